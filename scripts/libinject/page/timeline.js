// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A timeline: a row for each stream and thread, with lanes for what overlaps. What is too narrow to be seen is drawn together with its
// neighbours. A click shows an event over much of the width.

const LEAST_EVENT = 3; // pixels
const MOST_JOINED = 40;
const ZOOMED_TO = 0.4; // of the width, for one event
const EVENT_FIELDS = 7;

// On an axis: 20us, not 20.000us.
const briefly = (ns) => duration(ns).replace(/(\.\d*?)0+(?=[a-z])/, "$1").replace(/\.(?=[a-z])/, "");

// A piece: the events from..to of a lane, which are several if they are too narrow.
function buildTimeline(holder, timeline) {
  const title = holder.querySelector("figcaption").firstElementChild.textContent;
  const labels = timeline.names.map(kernelLabel);
  const lanes = timeline.rows.flatMap((row, at) => row.lanes.map((events, lane) => ({ row: at, lane, events, count: events.length / EVENT_FIELDS })));
  const eventAt = ({ events }, at) => {
    const [start, time, name, kind, own, count, busy] = events.slice(at * EVENT_FIELDS, (at + 1) * EVENT_FIELDS);
    return { start, time, end: start + time, name, kind, own, count, busy };
  };
  const whole = [0, Math.max(1, timeline.duration)];
  let view = whole;
  let drawn = [];
  let width = 0;

  const chart = element("div", { className: "chart tracks", role: "group", "aria-label": `${title}: arrow keys go from event to event, Enter shows one over much of the width, plus and minus zoom, Escape shows all` });
  const about = element("p", { className: "about", role: "status" });
  const legend = element("ul", { className: "legend" });
  const buttons = element("div", { className: "tools" }, legend);
  const ruler = element("div", { className: "ruler", "aria-hidden": "true" });
  const holders = timeline.rows.map((row) => element("div", { className: "boxes", role: "group", "aria-label": row.name }));
  holders.forEach((boxes, at) => boxes.style.setProperty("--levels", timeline.rows[at].lanes.length));

  const eventsOf = ({ lane, from, to }) => Array.from({ length: to - from + 1 }, (_, i) => eventAt(lane, from + i));
  const countOf = (events) => events.reduce((sum, { count }) => sum + count, 0);
  const spanOf = (piece) => [eventAt(piece.lane, piece.from).start, eventAt(piece.lane, piece.to).end];

  function piecesOf(lane) {
    const pieces = [];
    const scale = width / (view[1] - view[0]);
    for (let at = 0; at < lane.count; at += 1) {
      const event = eventAt(lane, at);
      if (event.end < view[0] || event.start > view[1]) continue;
      const last = pieces[pieces.length - 1];
      const narrow = event.time * scale < LEAST_EVENT;
      if (narrow && last?.narrow && (event.start - last.end) * scale < 1 && (event.end - last.start) * scale < MOST_JOINED && last.own === event.own) {
        Object.assign(last, { to: at, end: event.end });
      } else {
        pieces.push({ lane, from: at, to: at, start: event.start, end: event.end, narrow, own: event.own });
      }
    }
    return pieces;
  }

  function linesOf(piece) {
    const events = eventsOf(piece);
    const [start, end] = spanOf(piece);
    const where = `${timeline.rows[piece.lane.row].name}, from ${start < 0 ? `${duration(-start)} before the step` : duration(start)} on${piece.own ? "" : "; of another step"}`;
    const count = countOf(events);
    if (count === 1) return [timeline.names[events[0].name], `${timeline.kinds[events[0].kind].name}, ${duration(events[0].time)}`, where];
    const kinds = new Map();
    for (const { kind, busy } of events) kinds.set(kind, (kinds.get(kind) ?? 0) + busy);
    const parts = [...kinds].sort(([, a], [, b]) => b - a).map(([kind, time]) => `${timeline.kinds[kind].name} ${duration(time)}`);
    return [`${grouped(count, 0)} events within ${duration(end - start)}`, parts.join(", "), where];
  }

  function elementOf(piece) {
    const events = eventsOf(piece);
    const [start, end] = spanOf(piece);
    const scale = 100 / (view[1] - view[0]);
    const left = Math.max(0, (start - view[0]) * scale);
    const wide = Math.min(100, (end - view[0]) * scale) - left;
    const longest = events.reduce((most, event) => (event.time > most.time ? event : most));
    const pixels = (wide * width) / 100;
    const count = countOf(events);
    const label = count === 1 ? labels[events[0].name] : `${grouped(count, 0)} events`;
    const colour = `var(--part-${timeline.kinds[longest.kind].colour})`;
    const made = element("div", { className: `box${pixels < 6 ? " thin" : ""}${piece.own ? "" : " dim"}`, role: "button", tabIndex: -1, "aria-label": linesOf(piece).join(", ") }, pixels < LEAST_LABEL ? "" : label);
    // The line at the bottom is as long as they ran.
    const ran = (100 * events.reduce((sum, { busy }) => sum + busy, 0)) / Math.max(1, end - start);
    made.style.cssText = `--of: ${colour}; --split: linear-gradient(to right, ${colour} ${ran}%, transparent ${ran}%); --level: ${piece.lane.lane}; left: ${left}%; width: max(1px, ${wide}%)`;
    return made;
  }

  function drawRuler() {
    const most = Math.max(2, Math.floor(width / 110));
    const rough = (view[1] - view[0]) / most;
    const base = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, base * [1, 2, 5, 10].find((each) => rough / base <= each));
    const marks = [];
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      const left = (at - view[0]) / (view[1] - view[0]);
      if ((1 - left) * width < 56) break; // no room for it
      const mark = element("span", {}, briefly(at));
      mark.style.left = `${100 * left}%`;
      marks.push(mark);
    }
    ruler.replaceChildren(...marks);
  }

  function draw() {
    hideTip();
    width = holders[0].clientWidth || 680;
    drawn = [];
    holders.forEach((boxes, row) => {
      const pieces = lanes.filter((lane) => lane.row === row).flatMap(piecesOf);
      for (const piece of pieces) piece.element = elementOf(piece);
      drawn.push(...pieces);
      const end = element("div", { className: "end" });
      const at = (100 * (timeline.step - view[0])) / (view[1] - view[0]);
      end.style.left = `${at}%`;
      boxes.replaceChildren(...pieces.map((piece) => piece.element), ...(at > 0 && at < 100 ? [end] : []));
    });
    if (drawn.length) drawn[0].element.tabIndex = 0;
    drawRuler();
    about.textContent = view === whole ? `${duration(timeline.duration)}, of which the step took ${duration(timeline.step)} on the host`
      : `${duration(Math.max(0, view[0]))} to ${duration(view[1])} of ${duration(timeline.duration)}`;
  }

  // What had the focus keeps it.
  function show(from, to, kept) {
    const least = Math.min(timeline.duration, 20);
    const wide = Math.min(whole[1], Math.max(least, to - from));
    const start = Math.max(0, Math.min(whole[1] - wide, from));
    view = wide >= whole[1] ? whole : [start, start + wide];
    draw();
    if (kept) goTo(drawn.find((piece) => piece.lane === kept.lane && piece.from <= kept.from && kept.from <= piece.to) ?? drawn[0]);
  }

  function zoom(piece) {
    const [start, end] = spanOf(piece);
    const wide = (end - start) / (piece.from === piece.to ? ZOOMED_TO : 1);
    const middle = (start + end) / 2;
    show(middle - wide / 2, middle + wide / 2, piece);
  }

  function zoomBy(factor, piece) {
    const [start, end] = piece ? spanOf(piece) : view;
    const middle = Math.max(view[0], Math.min(view[1], (start + end) / 2));
    const wide = (view[1] - view[0]) * factor;
    show(middle - wide / 2, middle + wide / 2, piece);
  }

  const move = (share) => show(view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0]));

  const pieceOf = (target) => drawn.find((piece) => piece.element === target.closest?.(".box"));

  function goTo(piece) {
    if (!piece) return;
    for (const each of drawn) each.element.tabIndex = each === piece ? 0 : -1;
    piece.element.focus();
  }

  // The one in the next lane, or the one before, that is closest in time.
  function beside(piece, step) {
    const start = spanOf(piece)[0];
    for (let at = lanes.indexOf(piece.lane) + step; lanes[at]; at += step) {
      const there = drawn.filter((each) => each.lane === lanes[at]);
      const away = (each) => Math.max(spanOf(each)[0] - start, start - spanOf(each)[1], 0);
      if (there.length) return there.reduce((near, each) => (away(each) < away(near) ? each : near));
    }
    return null;
  }

  function key(event) {
    const piece = pieceOf(event.target);
    if (!piece || event.ctrlKey || event.altKey || event.metaKey) return;
    const place = drawn.indexOf(piece);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") zoom(piece);
    else if (event.key === "Escape") show(...whole, piece);
    else if (event.key === "+" || event.key === "=") zoomBy(0.5, piece);
    else if (event.key === "-") zoomBy(2, piece);
    else if (event.key === "Home") goTo(drawn[0]);
    else if (event.key === "End") goTo(drawn[drawn.length - 1]);
    else if (event.key === "ArrowDown") goTo(beside(piece, 1));
    else if (event.key === "ArrowUp") goTo(beside(piece, -1));
    else if (step) goTo(drawn[place + step]?.lane === piece.lane ? drawn[place + step] : null);
    else return;
    event.preventDefault();
  }

  chart.addEventListener("click", (event) => { if (pieceOf(event.target)) zoom(pieceOf(event.target)); });
  chart.addEventListener("keydown", key);
  showTipsIn(chart, pieceOf, linesOf);

  const present = new Set(lanes.flatMap((lane) => Array.from({ length: lane.count }, (_, at) => eventAt(lane, at).kind)));
  timeline.kinds.forEach(({ name, colour }, kind) => {
    if (!present.has(kind)) return;
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = `var(--part-${colour})`;
    legend.append(element("li", {}, swatch, name));
  });
  for (const [text, says, action] of [["−", "Zoom out", () => zoomBy(2)], ["+", "Zoom in", () => zoomBy(0.5)], ["←", "Earlier", () => move(-0.5)], ["→", "Later", () => move(0.5)],
    ["all", "Show all of it", () => show(...whole)]]) {
    const button = element("button", { type: "button", className: "tool", title: says, "aria-label": says }, text);
    button.addEventListener("click", action);
    buttons.append(button);
  }
  chart.append(element("div", { className: "track" }, element("span", {}), ruler),
    ...timeline.rows.map((row, at) => element("div", { className: "track" }, element("span", { className: "of", "aria-hidden": "true" }, row.name), holders[at])));
  holder.querySelector("figcaption").append(buttons);
  holder.append(about, chart, element("div", { className: "foot" }, element("p", { className: "file" }, timeline.file)));
  draw();
  new ResizeObserver(() => { if (holders[0].clientWidth !== width) draw(); }).observe(chart);
}
