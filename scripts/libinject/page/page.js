// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Fills the page: tables, icicles, timelines and histograms first, then each plot once it is near what is in sight.

const PRINTED_WIDTH = 680;
const root = document.documentElement;

let articles = [];

function partOf(holder, key, parts) {
  const [article, section, at] = holder.dataset[key].split(",").map(Number);
  return articles[article][section][parts][at];
}

// A button that copies says so, by its own text and to a screen reader.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Where a page from a file may not.
    const field = element("textarea", { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button.copy");
  if (!button) return;
  await copyText(button.dataset.copy ?? button.copyOf());
  button.classList.add("copied");
  said.textContent = "copied";
  setTimeout(() => { button.classList.remove("copied"); said.textContent = ""; }, 1500);
});
const said = element("p", { className: "unseen", role: "status" });
document.body.append(said);

const holders = [...document.querySelectorAll("[data-plot]")];
const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

// Logarithmic axes have ticks of ours.
function followZoom(holder, changed) {
  const update = {};
  for (const [name, most] of Object.entries(holder.layout.meta?.most ?? {})) {
    const axis = holder._fullLayout[name];
    if (most && axis.type === "log" && Object.keys(changed).some((key) => key.startsWith(`${name}.range`) || key === `${name}.autorange`)) {
      const ticks = ticksOf(axis.range, holder.layout.meta.units[name], most);
      Object.assign(update, { [`${name}.tickvals`]: ticks.tickvals, [`${name}.ticktext`]: ticks.ticktext });
    }
  }
  if (Object.keys(update).length) window.Plotly.relayout(holder, update);
}

const widthOf = (holder) => (printing ? PRINTED_WIDTH : holder.parentElement.clientWidth);

function draw(holder) {
  const width = widthOf(holder);
  const plot = partOf(holder, "plot", "plots");
  const { data, layout } = figureOf(plot, themeOf(root), width);
  const first = !holder.layout;
  const drawn = window.Plotly.react(holder, data, layout, { ...PLOT_CONFIG, displayModeBar: plot.kind !== "points" || width < NARROW ? false : "hover" });
  if (first) holder.on("plotly_relayout", (changed) => followZoom(holder, changed));
  holder.dataset.drawn = "";
  return drawn;
}

// None is drawn as the page looks now. Each has its height before it is drawn, so that nothing moves.
function outdate() {
  const heights = holders.map((holder) => heightOf(partOf(holder, "plot", "plots"), widthOf(holder)));
  holders.forEach((holder, at) => {
    holder.style.height = `${heights[at]}px`;
    delete holder.dataset.drawn;
  });
}

const pause = () => new Promise((resume) => setTimeout(resume));

// How far from what is in sight.
function distance(holder) {
  const box = holder.getBoundingClientRect();
  return Math.max(0, box.top - innerHeight, -box.bottom);
}

const near = new Set();

// Wherever the reader has scrolled to meanwhile.
function nextToDraw() {
  const waiting = [...near].filter((holder) => holder.dataset.drawn === undefined).map((holder) => [distance(holder), holder]);
  return waiting.sort(([a], [b]) => a - b)[0]?.[1];
}

let drawing = false;
let resizing = 0; // a timer, while the window is
async function drawNear() {
  if (drawing || resizing) return;
  drawing = true;
  root.dataset.plots = "drawing";
  for (let holder = nextToDraw(); holder; holder = nextToDraw()) {
    await draw(holder);
    await pause();
  }
  drawing = false;
  root.dataset.plots = "drawn";
}

function redraw() {
  outdate();
  drawNear();
}

async function start() {
  try {
    articles = JSON.parse(await unpacked("model"));
  } catch {
    document.querySelector("main").prepend(element("p", { className: "alert" }, "This browser can't unpack the page's tables and plots: it needs one of 2023 or later."));
    root.dataset.plots = "failed";
    return;
  }
  for (const holder of document.querySelectorAll("[data-table]")) buildTable(holder, partOf(holder, "table", "tables"));
  outdate();
  root.dataset.tables = "shown";
  for (const holder of document.querySelectorAll("[data-icicle]")) buildIcicle(holder, partOf(holder, "icicle", "icicles"));
  for (const holder of document.querySelectorAll("[data-timeline]")) buildTimeline(holder, partOf(holder, "timeline", "timelines"));
  for (const holder of document.querySelectorAll("[data-histogram]")) buildHistogram(holder, partOf(holder, "histogram", "histograms"));
  await pause();
  try {
    await loadPlotly();
  } catch {
    for (const holder of holders) {
      holder.style.height = "";
      holder.textContent = "The plots can't be drawn; the tables have their figures.";
    }
    root.dataset.plots = "failed";
    return;
  }
  // The window may have another width by now.
  let width = root.clientWidth;
  outdate();
  // A screen ahead, so that they are there when the reader is. In a notebook's frame the document is all of it.
  const observer = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) near[isIntersecting ? "add" : "delete"](target);
    drawNear();
  }, { root: document, rootMargin: "100% 0%" });
  for (const holder of holders) observer.observe(holder);
  if (!holders.length) drawNear();
  addEventListener("resize", () => {
    if (root.clientWidth === width || printing) return;
    width = root.clientWidth;
    clearTimeout(resizing);
    resizing = setTimeout(() => { resizing = 0; redraw(); }, 150);
  });
  dark.addEventListener("change", redraw);
  // On paper: all of them, light, and as wide as a sheet. Nothing may be left for later here.
  const look = (on) => {
    printing = on;
    root.classList.toggle("printing", on);
    outdate();
  };
  addEventListener("beforeprint", () => { look(true); holders.forEach(draw); });
  addEventListener("afterprint", () => { look(false); drawNear(); });
}

// Beside the text there is room for the contents; above it they fold. A plot by itself has none.
const wide = matchMedia("(min-width: 70rem)");
const contents = document.querySelector("nav .contents");
const fold = () => { if (contents) contents.open = wide.matches; };
fold();
wide.addEventListener("change", fold);
start();
