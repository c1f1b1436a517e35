// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Boxes inside boxes, the outermost on top, as wide as their share of the time. A click shows one box and what is inside over the whole
// width. As in tables, whatever is the program's goes into the page as text.

const LEAST_BOX = 1; // pixels
const LEAST_LABEL = 26;
const MOST_CRUMBS = 3; // boxes around the one on top that are named, besides the first
const LONGEST_CRUMB = 36;

// A kernel's name without return type, arguments and namespaces: what tells it from others begins with its own name.
function kernelLabel(name) {
  const bare = withoutSignature(name);
  const open = bare.indexOf("<", 1);
  const from = bare.lastIndexOf("::", open < 0 ? bare.length : open);
  return from < 0 ? bare : bare.slice(from + 2) || bare;
}

function shareText(part, whole) {
  const share = whole ? (100 * part) / whole : 0;
  return (share >= 0.1 || share === 0 ? share.toFixed(1) : String(Number(share.toPrecision(1)))) + "%";
}

// What is drawn is a `piece`: the box `at`, or, if it is one of several, those inside it from the place `from` on, which are too small each.
function buildIcicle(holder, icicle) {
  const title = holder.querySelector("figcaption").firstElementChild.textContent;
  const labels = icicle.names.map(([text, label]) => label || kernelLabel(text));
  const inside = icicle.boxes.map(() => []);
  icicle.boxes.forEach(([around], at) => { if (around >= 0) inside[around].push(at); });
  const times = icicle.boxes.map((box) => box.slice(3));
  const totals = times.map((parts) => parts.reduce((sum, part) => sum + part, 0));
  const isRest = (at) => icicle.boxes[at][1] < 0;
  const pieceOf = (at) => ({ at, several: false, from: 0 });
  const piecesIn = (piece) => inside[piece.at].slice(piece.from);
  const timeOf = (piece) => (piece.several ? piecesIn(piece).reduce((sum, at) => sum + totals[at], 0) : totals[piece.at]);

  function partsOf(piece) {
    if (!piece.several) return times[piece.at];
    return icicle.phases.map((_, phase) => piecesIn(piece).reduce((sum, at) => sum + times[at][phase], 0));
  }

  function labelOf({ at, several, from }) {
    if (several) return `(${grouped(inside[at].slice(from).reduce((sum, each) => sum + icicle.boxes[each][2], 0), 0)} smaller)`;
    return isRest(at) ? `(${grouped(icicle.boxes[at][2], 0)} smaller)` : labels[icicle.boxes[at][1]];
  }

  // Whole names, which of those that were summed up is the name of what they are in.
  function textOf({ at, several, from }) {
    if (several) return `${labelOf({ at, several, from })} in ${icicle.names[icicle.boxes[at][1]][0]}`;
    if (isRest(at)) return `${labelOf({ at, several, from })} in ${icicle.names[icicle.boxes[icicle.boxes[at][0]][1]][0]}`;
    return icicle.names[icicle.boxes[at][1]][0];
  }

  function phasesOf(piece) {
    const parts = partsOf(piece).map((part, phase) => [part, icicle.phases[phase].name]).filter(([part]) => part > 0).sort(([a], [b]) => b - a);
    return parts.map(([part, name]) => `${name} ${shareText(part, timeOf(piece))}`).join(", ");
  }

  function timeText(piece) {
    const time = timeOf(piece);
    const own = piece.several || !inside[piece.at].length ? 0 : time - inside[piece.at].reduce((sum, at) => sum + totals[at], 0);
    // By rounding, of times beyond 53 bits.
    const itself = own > 1e-9 * time ? `, ${duration(own)} of it in none of the boxes inside` : "";
    const ofView = (view.at || view.several) && !isView(piece) ? `, ${shareText(time, timeOf(view))} of the box on top` : "";
    return `${duration(time)}: ${shareText(time, totals[0])} of the kernels' time${ofView}${itself}`;
  }

  // Where one phase ends the next one begins.
  function splitOf(parts, whole) {
    let end = 0;
    const stops = parts.map((part, phase) => {
      const from = end;
      end += whole ? (100 * part) / whole : 0;
      return part ? `var(--part-${icicle.phases[phase].colour}) ${from.toFixed(2)}% ${end.toFixed(2)}%` : "";
    });
    return `linear-gradient(to right, ${stops.filter(Boolean).join(", ")})`;
  }

  let view = pieceOf(0);
  const isView = ({ at, several, from }) => at === view.at && several === view.several && from === view.from;
  let drawn = []; // pieces, each with its element, level, left and width (of 1), and the place in here of the one around it
  let found = null; // by box: whether it, and whether anything in it, is what is searched for
  let width = 0;

  const boxes = element("div", { className: "boxes" });
  const chart = element("div", { className: "chart", role: "tree", "aria-label": `${title}: arrow keys go from box to box, Enter shows one over the whole width` }, boxes);
  const crumbs = element("nav", { className: "crumbs", "aria-label": `Boxes around the one on top of ${title}` });
  const about = element("p", { className: "about" });
  const search = element("input", { type: "search", placeholder: "Search", autocomplete: "off", spellcheck: false, "aria-label": `Search in ${title}` });
  const count = element("p", { className: "count", role: "status" });
  const legend = element("ul", { className: "legend" });

  // Of boxes beside each other the small ones come last, and what is left of them on the page after these.
  function layOut() {
    const pieces = [{ ...view, level: 0, left: 0, width: 1, around: -1 }];
    for (let place = 0; place < pieces.length; place += 1) {
      const { at, from, several, level, left, around, width: whole } = pieces[place];
      if (several && around >= 0) continue; // not on top: its boxes are too small
      const within = inside[at].slice(several ? from : 0);
      const scale = whole / (timeOf({ at, several, from }) || 1);
      let start = left;
      for (const [step, each] of within.entries()) {
        const part = totals[each] * scale;
        const small = part * width < LEAST_BOX;
        const next = { level: level + 1, left: start, around: place };
        if (small && step < within.length - 1) {
          const rest = { at, several: true, from: (several ? from : 0) + step };
          const sum = timeOf(rest) * scale;
          if (sum * width >= LEAST_BOX) pieces.push({ ...rest, ...next, width: sum });
        } else if (!small) {
          pieces.push({ ...pieceOf(each), ...next, width: part });
        }
        if (small) break;
        start += part;
      }
    }
    return pieces;
  }

  function elementOf(piece, place) {
    const parts = partsOf(piece);
    const largest = parts.reduce((most, part, phase) => (part > parts[most] ? phase : most), 0);
    const pixels = piece.width * width;
    const label = labelOf(piece);
    const made = element("div", { className: pixels < 4 ? "box thin" : "box", role: "treeitem", tabIndex: place ? -1 : 0, "aria-level": String(piece.level + 1),
      "aria-label": `${label}, ${duration(timeOf(piece))}, ${shareText(timeOf(piece), totals[0])}` }, pixels < LEAST_LABEL ? "" : label);
    made.dataset.place = place;
    made.style.cssText = `--of: var(--part-${icicle.phases[largest].colour}); --split: ${splitOf(parts, timeOf(piece))}; --level: ${piece.level}; left: ${100 * piece.left}%; width: ${100 * piece.width}%`;
    return made;
  }

  function draw() {
    hideTip();
    width = chart.clientWidth || 680;
    drawn = layOut();
    drawn.forEach((piece, place) => { piece.element = elementOf(piece, place); });
    boxes.style.setProperty("--levels", drawn.reduce((most, piece) => Math.max(most, piece.level), 0) + 1);
    boxes.replaceChildren(...drawn.map((piece) => piece.element));
    mark();
    const around = [];
    for (let at = view.several ? view.at : icicle.boxes[view.at][0]; at >= 0; at = icicle.boxes[at][0]) around.unshift(at);
    const named = around.length > MOST_CRUMBS + 1 ? [around[0], null, ...around.slice(-MOST_CRUMBS)] : around;
    crumbs.replaceChildren(...named.flatMap((at) => [at === null ? element("span", {}, "…") : crumb(at), " › "]),
      element("strong", {}, shortened(labelOf(view), LONGEST_CRUMB)));
    about.replaceChildren(...(view.at || view.several ? [element("span", { className: "name" }, textOf(view)), " "] : []), timeText(view), "; ", phasesOf(view));
  }

  function crumb(at) {
    const button = element("button", { type: "button", title: icicle.names[icicle.boxes[at][1]][0] }, shortened(labels[icicle.boxes[at][1]], LONGEST_CRUMB));
    button.addEventListener("click", () => zoom(pieceOf(at)));
    return button;
  }

  function zoom({ at, several, from }) {
    view = { at, several, from };
    draw();
    chart.scrollTop = 0;
    drawn[0].element.focus({ preventScroll: true });
  }

  // Words may be anywhere in a name, but all of them have to be there, as in tables.
  function look() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = null;
    count.textContent = "";
    if (words.length) {
      const names = icicle.names.map(([text], at) => {
        const all = `${text}\n${labels[at]}`.toLowerCase();
        return words.every((word) => all.includes(word));
      });
      const own = icicle.boxes.map(([, name], at) => at > 0 && name >= 0 && names[name]);
      const any = [...own];
      const covered = [...own];
      let [time, unnamed] = [0, 0];
      // What is around a box comes before it. What is in a box that was found counts with it.
      icicle.boxes.forEach(([around], at) => {
        const within = around >= 0 && covered[around];
        if (own[at] && !within) time += totals[at];
        if (isRest(at) && !within) unnamed += totals[at];
        covered[at] ||= within;
      });
      for (let at = any.length - 1; at > 0; at -= 1) any[icicle.boxes[at][0]] ||= any[at];
      found = { own, any };
      const matches = own.filter(Boolean).length;
      count.textContent = `${grouped(matches, 0)} box${matches === 1 ? " has" : "es have"} ${shareText(time, totals[0])} of the time` + (time ? `, ${duration(time)}` : "")
        + (unnamed >= 0.0005 * totals[0] ? `; ${shareText(unnamed, totals[0])} is in boxes too small for this page, which are not searched` : "");
    }
    mark();
  }

  function mark() {
    for (const piece of drawn) {
      const is = found && (piece.several ? piecesIn(piece).some((at) => found.any[at]) : found.own[piece.at]);
      piece.element.classList.toggle("found", Boolean(is));
      piece.element.classList.toggle("dim", Boolean(found && !is));
    }
  }

  const drawnAt = (target) => drawn[target.closest?.(".box")?.dataset.place];
  const linesOf = (piece) => [textOf(piece), timeText(piece), phasesOf(piece)];

  function goTo(piece) {
    if (!piece) return;
    for (const each of drawn) each.element.tabIndex = each === piece ? 0 : -1;
    piece.element.focus();
  }

  function key(event) {
    const piece = drawnAt(event.target);
    if (!piece || event.ctrlKey || event.altKey || event.metaKey) return;
    const place = drawn.indexOf(piece);
    const beside = drawn.filter((each) => each.level === piece.level);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") zoom(piece);
    else if (event.key === "Escape") zoom(pieceOf(0));
    else if (event.key === "Home") goTo(drawn[0]);
    else if (event.key === "ArrowDown") goTo(drawn.find((each) => each.around === place));
    else if (event.key === "ArrowUp" && place) goTo(drawn[piece.around]);
    else if (event.key === "ArrowUp" && (view.several || view.at)) zoom(pieceOf(view.several ? view.at : icicle.boxes[view.at][0]));
    else if (step) goTo(beside[beside.indexOf(piece) + step]);
    else return;
    event.preventDefault();
  }

  boxes.addEventListener("click", (event) => { if (drawnAt(event.target)) zoom(drawnAt(event.target)); });
  boxes.addEventListener("keydown", key);
  showTipsIn(boxes, drawnAt, linesOf);
  search.addEventListener("input", look);

  times[0].forEach((part, phase) => {
    if (!part) return;
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = `var(--part-${icicle.phases[phase].colour})`;
    legend.append(element("li", {}, swatch, icicle.phases[phase].name));
  });
  holder.querySelector("figcaption").append(element("div", { className: "tools" }, legend, search));
  holder.append(crumbs, about, chart, element("div", { className: "foot" }, count, element("p", { className: "file" }, icicle.file)));
  draw();
  // Which boxes are too small, and which labels, depends on the width.
  new ResizeObserver(() => { if (chart.clientWidth !== width) draw(); }).observe(chart);
}
