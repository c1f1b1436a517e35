// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How long the executions of one kernel took, of some that can be chosen. Without records only the shortest, the longest, median and mean
// are known.

const MOST_IN_LIST = 60; // letters of a kernel's name
const ROOM = 1.3;

function buildHistogram(holder, histogram) {
  const { kernels } = histogram;
  const short = shortNames(kernels.map(({ name }) => name), phone ? 34 : MOST_IN_LIST);
  const list = element("select", { "aria-label": "Kernel" }, ...kernels.map(({ name, total }, at) => element("option", { value: String(at) }, `${short.get(name)}  ${duration(total)}`)));
  const name = element("p", { className: "name" });
  const figures = element("p", { className: "about", role: "status" });
  const bars = element("div", { className: "bars", role: "group" });
  const ticks = element("div", { className: "ruler", "aria-hidden": "true" });
  const edge = (bin) => 2 ** (bin / histogram.per_octave);
  let place = (time) => time;

  function bar(kernel, count, from, to, most) {
    const text = `${duration(from)} … ${duration(to)}: ${grouped(count, 0)} of ${grouped(kernel.count, 0)}, ${shareText(count, kernel.count)}`;
    const made = element("div", { className: "bar", role: "img", tabIndex: -1, "aria-label": text });
    made.style.cssText = `left: ${place(from)}%; width: ${place(to) - place(from)}%; height: max(2px, ${(100 * count) / most}%)`;
    made.says = [text];
    return made;
  }

  function marked(kind, time) {
    const mark = element("div", { className: `mark ${kind}` }, element("span", {}, kind));
    mark.style.left = `${place(time)}%`;
    if (place(time) > 80) mark.classList.add("last");
    return mark;
  }

  function draw() {
    hideTip();
    const kernel = kernels[Number(list.value)];
    const known = kernel.bins.length > 0;
    // Room on either side, so that one bar alone is no wall.
    const low = Math.max(1, (known ? edge(kernel.first) : kernel.min) / ROOM);
    const high = Math.max(low, known ? edge(kernel.first + kernel.bins.length) : kernel.max) * ROOM;
    place = (time) => (100 * Math.log(Math.min(high, Math.max(low, time)) / low)) / Math.log(high / low);
    const most = Math.max(...kernel.bins, 1);
    const filled = kernel.bins.map((count, at) => [count, kernel.first + at]).filter(([count]) => count);
    const drawn = filled.map(([count, bin]) => bar(kernel, count, edge(bin), edge(bin + 1), most));
    if (!known) {
      const range = element("div", { className: "bar range", role: "img", tabIndex: -1, "aria-label": `from ${duration(kernel.min)} to ${duration(kernel.max)}` });
      range.style.cssText = `left: ${place(kernel.min)}%; width: max(2px, ${place(kernel.max) - place(kernel.min)}%); height: 40%`;
      range.says = [`${duration(kernel.min)} … ${duration(kernel.max)}`, "how they are spread in between is not in the tables"];
      drawn.push(range);
    }
    drawn[0].tabIndex = 0;
    const marks = [["median", kernel.median], ["mean", kernel.mean]].filter(([, time]) => typeof time === "number");
    bars.replaceChildren(...drawn, ...marks.map(([kind, time]) => marked(kind, time)));
    bars.setAttribute("aria-label", `Durations of ${short.get(kernel.name)}: arrow keys go from bar to bar`);
    ticks.replaceChildren(...logTicks(low, high, phone ? 3 : 8).filter((time) => place(time) < (phone ? 82 : 92)).map((time) => {
      const tick = element("span", {}, briefly(time));
      tick.style.left = `${place(time)}%`;
      return tick;
    }));
    name.textContent = shortened(kernel.name, 400);
    figures.textContent = `${grouped(kernel.count, 0)} executions, ${duration(kernel.total)} in all; shortest ${duration(kernel.min)}, `
      + marks.map(([kind, time]) => `${kind} ${duration(time)}, `).join("") + `longest ${duration(kernel.max)}` + (known ? `; the tallest bar is ${grouped(most, 0)}` : "");
  }

  bars.addEventListener("keydown", (event) => {
    const all = [...bars.querySelectorAll(".bar")];
    const at = all.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (!all[to]) return;
    for (const each of all) each.tabIndex = each === all[to] ? 0 : -1;
    all[to].focus();
  });
  showTipsIn(bars, (target) => target.says, (says) => says);
  list.addEventListener("change", draw);
  holder.querySelector("figcaption").append(element("div", { className: "tools" }, list));
  holder.append(name, figures, element("div", { className: "spread" }, bars, ticks), element("div", { className: "foot" }, element("p", { className: "file" }, histogram.file)));
  draw();
}
