// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Plotly's figures of the model's plots. Plotly takes some tags in texts for markup: whatever is the program's is escaped.

const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "star", "hexagon"];
const PARTS = ["compute", "launch", "copy", "sync", "input", "comm", "rest"];
const CYCLE = 6; // of them, for series
const TIMES = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];
const NARROW = 560;

function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// Lines of at most 90 letters: a kernel's name may have a thousand.
function hoverText(lines) {
  const wrapped = lines.filter((line) => line).flatMap((line) => shortened(line, 270).match(/.{1,90}/gsu) || []);
  return wrapped.map(plain).join("<br>");
}

function themeOf(page) {
  const style = getComputedStyle(page);
  const of = (name) => style.getPropertyValue(name).trim();
  return { text: of("--text"), muted: of("--muted"), line: of("--line"), surface: of("--surface"), band: of("--band"), font: style.fontFamily,
    parts: Object.fromEntries([...PARTS.map((part) => [part, of(`--part-${part}`)]), ["good", of("--good")], ["bad", of("--bad")]]),
    cycle: PARTS.slice(0, CYCLE).map((part) => of(`--part-${part}`)) };
}

// Of a plot's small texts.
const pen = document.createElement("canvas").getContext("2d");
function widthOfText(text, theme) {
  pen.font = `12px ${theme.font}`;
  return pen.measureText(text).width;
}

// Times are drawn in the unit of the largest one.
function scaleOf(unit, values) {
  if (unit !== "ns") return { size: 1, unit: "" };
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
  const [name, size] = TIMES.find(([, each]) => largest >= each) || ["ns", 1];
  return { size, unit: name };
}

const signed = (text, value) => (value > 0 ? "+" : "") + text;

// Beyond the colours there are the same ones, hatched.
const patternOf = (at) => ({ shape: ["", "/", "x"][Math.floor(at / CYCLE) % 3], size: 6, solidity: 0.25 });

// null ends a line.
const scaled = (values, scale) => values.map((value) => (value === null ? null : value / scale.size));

// What a logarithmic axis from `low` to `high` is marked with: powers of ten, 1-2-5, 1-3, all digits, or equal steps, whichever first gives three
// that don't run into each other where there is room for `most`.
function logTicks(low, high, most) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const inside = (values) => values.map((value) => Number(value.toPrecision(12))).filter((value) => value >= low && value <= high);
  const near = Math.log10(high / low) / most / 1.5;
  const apart = (values) => values.every((value, i) => !i || Math.log10(value / values[i - 1]) >= near);
  // Those that leave the one before them room.
  const thinned = (values) => values.reduce((kept, value) => (kept.length && Math.log10(value / kept.at(-1)) < near ? kept : [...kept, value]), []);
  const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const few = inside(powers.filter((power) => power % Math.max(1, Math.ceil(powers.length / most)) === 0).map((power) => 10 ** power));
  for (const digits of [null, [1], [1, 2, 5], [1, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const found = digits ? inside(powers.flatMap((power) => digits.map((digit) => digit * 10 ** power))) : few;
    if (found.length >= 3 && apart(found)) return found;
  }
  let close;
  for (let power = last; power > first - 12; power -= 1) {
    for (const digit of [5, 2, 1]) {
      const step = digit * 10 ** power;
      if ((high - low) / step > 2 * most + 2) continue;
      const from = Math.ceil(low / step);
      const found = inside(Array.from({ length: Math.max(0, Math.floor(high / step) - from + 1) }, (_, i) => (from + i) * step));
      if (thinned(found).length >= 3) return thinned(found);
      if (found.length >= 3) close ??= found;
    }
  }
  return close ?? few;
}

const SHORT = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
function tickText(value, unit) {
  const [prefix, size] = (unit === "si" && SHORT.find(([, each]) => value >= each)) || ["", 1];
  return prefix ? Number((value / size).toPrecision(6)) + prefix : shown(Number(value.toPrecision(6)), "");
}

// Of a range in powers of ten.
function ticksOf([from, to], unit, most) {
  const tickvals = logTicks(10 ** from, 10 ** to, most);
  return { tickmode: "array", tickvals, ticktext: tickvals.map((value) => tickText(value, unit)) };
}

// The range, with room around what is drawn, and the ticks. With these given, Plotly makes none where the axis is zoomed: page.js does.
function logAxis(axis, scale, values, most) {
  const positive = values.filter((value) => value > 0).map((value) => Math.log10(value / scale.size));
  if (!axis.log || !positive.length) return {};
  const [low, high] = positive.reduce(([least, largest], value) => [Math.min(least, value), Math.max(largest, value)], [Infinity, -Infinity]);
  const room = Math.max(0.06 * (high - low), high > low ? 0.01 : 0.3);
  const range = [low - room, high + room];
  return { range, ...ticksOf(range, axis.unit, most) };
}

const mostTicks = (width) => Math.max(4, Math.floor(width / 80));

// Plotly takes the first of 2, 5, 10 times a power of ten that makes no more ticks than it is asked for: so many that there are three.
function ticksAsked(axis, scale, values, most) {
  const numbers = values.filter((value) => typeof value === "number").map((value) => value / scale.size);
  const [low, high] = numbers.reduce(([least, largest], value) => [Math.min(least, value), Math.max(largest, value)], axis.zero ? [0, 0] : [Infinity, -Infinity]);
  for (let asked = most + 2; high > low && asked <= 12; asked += 1) {
    const rough = (high - low) / asked;
    const base = 10 ** Math.floor(Math.log10(rough));
    const step = base * [2, 5, 10].find((each) => rough / base <= each);
    if (Math.floor(high / step) - Math.ceil(low / step) >= 2) return asked;
  }
  return most + 2;
}

// The labels of two axes don't meet where the axes do.
const APART = { ticks: "outside", ticklen: 5, tickcolor: "rgba(0,0,0,0)" };

function axisOf(axis, scale, theme, values = [], most = 0) {
  return { nticks: axis.log || !most ? undefined : ticksAsked(axis, scale, values, most), ...logAxis(axis, scale, values, most || 8), title: { text: plain(axis.title) + (scale.unit ? ` (${scale.unit})` : ""), font: { color: theme.muted, size: 13 }, standoff: 8 },
    type: axis.log ? "log" : "linear", rangemode: axis.zero ? "tozero" : "normal", gridcolor: theme.line, linecolor: theme.line, zeroline: false,
    tickfont: { color: theme.muted, size: 12 }, ...APART, automargin: true, exponentformat: axis.log && axis.unit === "si" ? "SI" : "none",
    separatethousands: true, fixedrange: false };
}

function baseLayout(plot, theme, width) {
  return { width, height: heightOf(plot, width), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: theme.font, size: 13, color: theme.text },
    margin: { l: 12, r: 16, t: 30, b: 12 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.muted, activecolor: theme.text }, hovermode: "closest", dragmode: width < NARROW ? false : "zoom", separators: ".,",
    hoverlabel: { bgcolor: theme.surface, bordercolor: theme.muted, align: "left", namelength: 0, font: { family: theme.font, size: 13, color: theme.text } },
    legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { color: theme.text, size: 13 }, itemsizing: "constant", maxheight: legendOf(plot, width).more + 40 } };
}

// A legend of more than a line, as the plot gives room to one: its names as long as there is room for, and its other lines' height.
function legendOf(plot, width) {
  const names = plot.series.filter((series) => !series.cross && !(series.roof && width >= NARROW)).map((series) => series.name ?? "");
  const most = Math.max(16, Math.floor(width / 9) - 6);
  const longest = Math.min(most, names.reduce((length, name) => Math.max(length, name.length), 0));
  const lines = Math.ceil(names.length / Math.max(1, Math.floor((0.85 * width) / (7 * longest + 46))));
  return { name: (name) => plain(shortened(name, most)), more: names.length > 1 ? 20 * (lines - 1) : 0 };
}

// On a phone names stand above their bars.
function namesAbove({ series: [{ names, after }] }, width) {
  return width < NARROW && names.some((name, i) => name.length + (after?.[i]?.length ?? 0) > 22);
}

// A plot's height is known before it is drawn.
function heightOf(plot, width) {
  const { more } = legendOf(plot, width);
  const narrow = width < NARROW;
  if (plot.kind === "points") return (narrow ? 340 : 380) + more + 130 * (panelsOf(plot).length - 1);
  if (plot.kind === "columns") return (narrow ? 320 : 360) + more;
  if (plot.kind === "heat") return Math.min(900, 110 + 18 * Math.max(6, plot.series[0].y.length));
  const groups = plot.stacked ? 1 : plot.series.filter((series) => !series.mark).length;
  const bars = plot.series[0].names.length * Math.max(namesAbove(plot, width) ? 44 : 26, 16 * groups + 10);
  return Math.max(136, 86 + bars + (plot.series.length > 1 ? 30 + more : 0));
}

function barFigure(plot, theme, width) {
  const names = plot.series[0].names;
  const bars = plot.series.filter((series) => !series.mark);
  const scale = scaleOf(plot.x.unit, plot.series.flatMap((series) => series.values));
  const legend = legendOf(plot, width);
  const written = (value) => (plot.x.signed ? signed(shown(value, plot.x.unit), value) : shown(value, plot.x.unit));
  const after = plot.series[0].after ?? [];
  // As long as there is room for, in letters and in pixels.
  const labels = (most, pixels) => {
    const short = shortNames(names, most - (after.length ? after.reduce((length, text) => Math.max(length, text.length), 0) + 2 : 0));
    const texts = names.map((name, i) => short.get(name) + (after[i] ? `  ${after[i]}` : ""));
    return most > 14 && texts.some((text) => widthOfText(text, theme) > pixels) ? labels(most - 1, pixels) : texts.map(plain);
  };
  const room = Math.max(14, Math.min(58, Math.floor((width * (width < NARROW ? 0.4 : 0.42)) / 7)));
  const data = plot.series.map((series, at) => {
    const hover = series.names.map((name, i) => hoverText([name, `${plot.series.length > 1 ? series.name : plot.x.title}: ${written(series.values[i])}`, series.notes?.[i]]));
    const common = { x: scaled(series.values, scale), y: names.map((_, i) => i), name: legend.name(series.name), hovertext: hover, hoverinfo: "text" };
    if (series.mark) return { ...common, type: "scatter", mode: "markers", marker: { symbol: "line-ns", size: 22, line: { width: 3, color: theme.text } } };
    const colour = series.colours ? series.colours.map((part) => theme.parts[part]) : theme.cycle[at % theme.cycle.length];
    const text = bars.length === 1 ? series.values.map(written) : undefined;
    return { ...common, type: "bar", orientation: "h", text, textposition: "outside", cliponaxis: false, textfont: { color: theme.text, size: 12 },
      marker: { color: colour, pattern: series.pattern === undefined ? patternOf(at) : hatched(series.pattern, theme), line: { width: plot.stacked ? 1 : 0, color: theme.surface } } };
  });
  const above = namesAbove(plot, width);
  const layout = { ...baseLayout(plot, theme, width),
    barmode: plot.stacked ? "stack" : "group", bargap: above ? 0.62 : 0.28, showlegend: plot.series.length > 1, dragmode: false, xaxis: axisOf(plot.x, scale, theme),
    yaxis: { autorange: "reversed", tickvals: names.map((_, i) => i), ticktext: labels(room, Infinity), automargin: true, fixedrange: true,
      tickfont: { color: theme.text, size: 12 }, ...APART, showgrid: false, zeroline: false } };
  if (above) {
    layout.yaxis.showticklabels = false;
    layout.annotations = labels(Math.floor(width / 7), width - 24).map((text, i) => ({ text, x: 0, xref: "paper", xanchor: "left", y: i - 0.2, yanchor: "bottom",
      showarrow: false, font: { color: theme.text, size: 12 } }));
  }
  layout.xaxis.fixedrange = true;
  layout.xaxis.rangemode = "tozero";
  if (plot.x.range) layout.xaxis.range = plot.x.range;
  // Room for the figure behind the longest bar, on either side.
  if (bars.length === 1) {
    const values = plot.series.flatMap((series) => scaled(series.values, scale));
    const [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
    const more = (width < NARROW ? 0.4 : Math.max(0.16, 150 / width)) * (most - least);
    layout.xaxis.range = [least < 0 ? least - more : 0, most > 0 ? most + more : 0];
    layout.xaxis.zeroline = least < 0 && !above;
    layout.xaxis.zerolinecolor = theme.muted;
  }
  return { data, layout };
}

function roofTrace(series, theme, x, y, width) {
  // Where there is no room beside the line, its name is in the legend.
  return { type: "scatter", mode: "lines", name: plain(series.name), hoverinfo: "skip", showlegend: width < NARROW, x, y,
    line: { color: theme.muted, width: 2, dash: series.dash ? "dash" : "solid" } };
}

// Beside the slope, on the side where there is room, or over the end of a flat roof.
function roofLabel(series, theme, axisX, scaleX, panel, range, width) {
  const flat = series.y[0] === series.y[1];
  const place = (axis, scale, value) => (axis.log ? Math.log10(value / scale.size) : value / scale.size);
  // Not quite at the end of a flat one: what is beside the axis is not drawn.
  const along = (axis, scale, pair) => {
    const [from, to] = pair.map((value) => place(axis, scale, value));
    return from + (flat ? 0.995 : 0.5) * (to - from);
  };
  const x = along(axisX, scaleX, series.x);
  const below = !flat && range && ((x - range[0]) / (range[1] - range[0])) * (width - 100) < widthOfText(series.name, theme) + 12;
  return { text: plain(series.name), showarrow: false, xanchor: below ? "left" : "right", yanchor: below ? "top" : "bottom", yshift: below ? -2 : 2, xshift: flat ? 0 : below ? 6 : -6,
    font: { color: theme.muted, size: 12 }, x, y: along(panel.axis, panel.scale, series.y), yref: panel.name };
}

// Axes one below the other, over one of x.
const panelsOf = (plot) => (plot.panels?.length ? plot.panels : [plot.y]);

function pointFigure(plot, theme, width) {
  const scaleX = scaleOf(plot.x.unit, plot.series.flatMap((series) => series.x));
  const panels = panelsOf(plot).map((axis, at) => {
    const values = plot.series.filter((series) => (series.panel ?? 0) === at).flatMap((series) => series.y);
    return { axis, values, scale: scaleOf(axis.unit, values), name: at ? `y${at + 1}` : "y" };
  });
  const largest = Math.max(1, ...plot.series.map((series) => (series.sizes || []).reduce((most, size) => Math.max(most, size ?? 0), 0)));
  const legend = legendOf(plot, width);
  const data = plot.series.map((series, at) => {
    const x = scaled(series.x, scaleX);
    const panel = panels[series.panel ?? 0];
    const y = scaled(series.y, panel.scale);
    if (series.roof) return { ...roofTrace(series, theme, x, y, width), yaxis: panel.name };
    const own = series.of ?? at;
    const colour = theme.cycle[own % theme.cycle.length];
    const many = series.x.length > 1500 || series.plain;
    const hover = series.x.map((value, i) => hoverText([series.labels?.[i], `${series.name}: ${shown(series.y[i], panel.axis.unit)} ${panel.axis.unit ? "" : panel.axis.title}`,
      plot.x.ticks ? "" : `${plot.x.title}: ${shown(value, plot.x.unit)}`, series.notes?.[i]]));
    return { type: "scatter", yaxis: panel.name, mode: series.lines ? (many ? "lines" : "lines+markers") : "markers", name: legend.name(series.name), x, y, hovertext: hover, hoverinfo: "text",
      line: { color: colour, width: series.plain ? 1.5 : 2, dash: series.dash || own >= theme.cycle.length ? "dot" : "solid" },
      showlegend: series.cross ? false : undefined, error_y: errorsOf(series, panel.scale, colour), cliponaxis: !series.cross,
      marker: { color: colour, symbol: series.cross ? "x" : SYMBOLS[own % SYMBOLS.length] + (series.hollow ? "-open" : ""), opacity: series.sizes ? 0.65 : 1,
        line: { width: series.hollow ? 2 : 1, color: series.hollow ? colour : theme.surface },
        size: series.sizes ? series.sizes.map((size) => 6 + 16 * Math.sqrt((size ?? 0) / largest)) : series.x.length > 120 ? 4 : 7 } };
  });
  const labelled = data.filter((trace, at) => trace.showlegend !== false || plot.series[at].cross).length;
  const layout = { ...baseLayout(plot, theme, width), showlegend: labelled > 1 || labelled < data.length || Boolean(plot.series[0].sizes), 
    meta: { units: { xaxis: plot.x.unit, yaxis: panels[0].axis.unit }, most: { xaxis: mostTicks(width), yaxis: 8 } },
    xaxis: { ...axisOf(plot.x, scaleX, theme, plot.series.flatMap((series) => series.x), mostTicks(width)), anchor: panels.at(-1).name } };
  panels.forEach(({ axis, scale, values, name }, at) => {
    // The first one on top, a tenth of its height from the next.
    const top = 1 - at / panels.length;
    layout[name.replace("y", "yaxis")] = { ...axisOf(axis, scale, theme, values, panels.length > 1 ? 3 : 0), domain: [Math.max(0, top - (at < panels.length - 1 ? 0.9 : 1) / panels.length), top] };
  });
  if (plot.x.ticks) {
    const room = width < 400 ? 6 : width < NARROW ? 10 : 14;
    const step = Math.max(1, Math.ceil(plot.x.ticks.length / room));
    layout.xaxis.tickvals = plot.x.ticks.map((_, i) => i).filter((i) => i % step === 0);
    layout.xaxis.ticktext = layout.xaxis.tickvals.map((i) => plain(plot.x.ticks[i]));
    if (plot.x.places) {
      layout.xaxis.tickvals = layout.xaxis.tickvals.map((i) => plot.x.places[i]);
      layout.xaxis.tickmode = "array";
      layout.meta.most.xaxis = 0;
    } else {
      layout.xaxis.range = [-0.6, plot.x.ticks.length - 0.4];
    }
  }
  layout.shapes = plot.bands.map((band, at) => ({ type: "rect", layer: "below", yref: "paper", y0: 0, y1: 1, x0: band.from / scaleX.size, x1: band.to / scaleX.size,
    fillcolor: theme.band, opacity: at % 2 ? 0.55 : 1, line: { width: 0 } }));
  const annotations = width < NARROW ? [] : plot.series.filter((series) => series.roof).map((series) => roofLabel(series, theme, plot.x, scaleX, panels[series.panel ?? 0], layout.xaxis.range, width));
  if (plot.bands.length <= (width < NARROW ? 3 : 8)) {
    annotations.push(...plot.bands.map((band) => ({ x: band.from / scaleX.size, xanchor: "left", y: 1, yref: "paper", yanchor: "top", showarrow: false, text: plain(band.label),
      font: { color: theme.muted, size: 12 } })));
  }
  return { data, layout: { ...layout, annotations } };
}

// Stacks side by side, one for each tick.
function columnFigure(plot, theme, width) {
  const totals = plot.x.ticks.map((_, i) => plot.series.reduce((sum, series) => sum + (series.values[i] ?? 0), 0));
  const scale = scaleOf(plot.y.unit, totals);
  const legend = legendOf(plot, width);
  const data = plot.series.map((series) => ({ type: "bar", name: legend.name(series.name), x: totals.map((_, i) => i), y: scaled(series.values, scale), hoverinfo: "text",
    hovertext: series.values.map((value, i) => hoverText([`${plot.x.title} ${plot.x.ticks[i]}`, `${series.name}: ${shown(value, plot.y.unit)}, ${shareText(value, totals[i])} of ${shown(totals[i], plot.y.unit)}`])),
    marker: { color: theme.parts[series.colour], pattern: hatched(series.pattern, theme), line: { width: totals.length > 60 ? 0 : 1, color: theme.surface } } }));
  const layout = { ...baseLayout(plot, theme, width), barmode: "stack", bargap: totals.length > 60 ? 0 : 0.15, showlegend: true, dragmode: false,
    xaxis: { ...axisOf(plot.x, { unit: "" }, theme), ...placesOf(plot.x.ticks, width < 400 ? 6 : width < NARROW ? 10 : 14), range: [-0.6, totals.length - 0.4], fixedrange: true, showgrid: false },
    yaxis: { ...axisOf(plot.y, scale, theme), fixedrange: true } };
  return { data, layout };
}

const hatched = (shape, theme) => ({ shape: shape ?? "", size: 6, solidity: 0.25, fillmode: "overlay", fgcolor: theme.surface });

// From the value: [below, above].
function errorsOf(series, scale, colour) {
  if (!series.errors) return undefined;
  const [below, above] = series.errors.map((values) => scaled(values, scale));
  return { type: "data", symmetric: false, array: above, arrayminus: below, thickness: 1, width: 3, color: colour };
}

function heatFigure(plot, theme, width) {
  const { x, y, z, most } = plot.series[0];
  const values = z.flat().filter((value) => value !== null);
  const scale = scaleOf(plot.unit, values);
  const bar = { thickness: 12, outlinewidth: 0, title: { text: scale.unit, font: { color: theme.muted, size: 12 } }, tickfont: { color: theme.muted, size: 12 } };
  // By place, not by number: a cell would grow over the numbers that are not there.
  const hover = `${plain(plot.y.title)} %{customdata[1]}, ${plain(plot.x.title)} %{customdata[0]}: %{z:.3f}${scale.unit}<extra></extra>`;
  const data = [{ type: "heatmap", customdata: y.map((row) => x.map((column) => [column, row])), hoverongaps: false, z: z.map((row) => scaled(row, scale)), hovertemplate: hover, colorscale: "Viridis", colorbar: bar,
    zmin: values.reduce((least, value) => Math.min(least, value), Infinity) / scale.size, zmax: most / scale.size }];
  const axis = { unit: "" };
  const layout = { ...baseLayout(plot, theme, width), dragmode: false,
    xaxis: { ...axisOf({ ...axis, ...plot.x }, { unit: "" }, theme), showgrid: false, fixedrange: true },
    yaxis: { ...axisOf({ ...axis, ...plot.y }, { unit: "" }, theme), showgrid: false, fixedrange: true, autorange: "reversed" } };
  Object.assign(layout.xaxis, placesOf(x, Math.max(3, Math.floor(width / 90))));
  Object.assign(layout.yaxis, placesOf(y, 40));
  return { data, layout };
}

// Ticks at some places, with what stands there; null is a gap.
function placesOf(labels, most) {
  const there = labels.map((_, i) => i).filter((i) => labels[i] !== null);
  const step = Math.max(1, Math.ceil(there.length / most));
  const tickvals = there.filter((_, i) => i % step === 0);
  return { tickvals, ticktext: tickvals.map((i) => plain(labels[i])) };
}

function figureOf(plot, theme, width) {
  return { bars: barFigure, columns: columnFigure, points: pointFigure, heat: heatFigure }[plot.kind](plot, theme, width);
}

// No button that would send anything anywhere.
const PLOT_CONFIG = { displaylogo: false, responsive: false, scrollZoom: false, modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]] };

async function loadPlotly() {
  const source = await unpacked("plotly");
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);
  return window.Plotly;
}
