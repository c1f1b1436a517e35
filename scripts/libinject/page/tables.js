// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Tables that are sorted by the buttons in their headers and searched by a field above. Everything of the program's goes
// into the page as text, never as HTML.

// On a phone the figures are to be seen beside the names.
const phone = matchMedia("(max-width: 40rem)").matches;
const LONGEST_NAME = phone ? 28 : 64;
const LONGEST_LINE = phone ? 20 : 40;
const LONGEST_TEXT = 300;

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// One tooltip for the whole page. It follows the mouse, or stands below what has the focus, wherever that scrolls to.
const tip = element("div", { className: "tip", role: "tooltip", hidden: true });
let above = null;

function showTip(lines, x, y) {
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(...lines.filter(Boolean).map((line) => element("p", {}, line)));
  tip.hidden = false;
  above = null;
  placeTip(x, y);
}

function placeTip(x, y) {
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, Math.min(x, root.clientWidth - width - 4))}px`;
  tip.style.top = `${y + height + 4 > innerHeight ? Math.max(4, y - height - 28) : y}px`;
}

function showTipBelow(lines, focused) {
  const box = focused.getBoundingClientRect();
  showTip(lines, box.left, box.bottom + 4);
  above = focused;
}

const hideTip = () => { tip.hidden = true; };
// By a mouse, not by a finger, and not because the page scrolls below it.
let mouse = null;
function isMoved(event) {
  const before = mouse;
  mouse = `${event.clientX} ${event.clientY}`;
  return event.pointerType !== "touch" && mouse !== before;
}

// The mouse may leave what scrolls away from it, and what the focus says stays.
const leaveTip = () => { if (!above || above !== document.activeElement) hideTip(); };
addEventListener("scroll", () => {
  if (above !== document.activeElement || tip.hidden) {
    hideTip();
    return;
  }
  const box = above.getBoundingClientRect();
  placeTip(box.left, box.bottom + 4);
}, { capture: true, passive: true });

// The tooltip for what is drawn in an area: `at` finds what an element stands for, `lines` says it.
function showTipsIn(area, at, lines) {
  // Fingers have what stands beside the area.
  area.addEventListener("pointermove", (event) => {
    if (!isMoved(event)) return;
    const found = at(event.target);
    if (found) showTip(lines(found), event.clientX + 12, event.clientY + 16);
    else hideTip();
  });
  area.addEventListener("pointerleave", leaveTip);
  area.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) showTipBelow(lines(at(event.target)), event.target); });
  area.addEventListener("focusout", hideTip);
}

function copyButton(label, text) {
  const button = element("button", { type: "button", className: "copy" }, label);
  button.copyOf = text;
  return button;
}

// The whole name on demand, to be copied as well. `after`: what tells apart rows with the same name.
function nameCell(text, short, after) {
  const cell = element("span", { className: "named" });
  const suffix = after ? [" ", element("span", { className: "of" }, after)] : [];
  if (short === text) {
    cell.append(element("span", { className: "name" }, text), ...suffix);
    return cell;
  }
  const button = element("button", { type: "button", className: "name", title: text, "aria-expanded": "false" }, short);
  const copy = copyButton("", () => text);
  copy.setAttribute("aria-label", "Copy the whole name");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    button.textContent = open ? short : text;
    if (open) copy.remove();
    else button.after(copy);
  });
  cell.append(button, ...suffix);
  return cell;
}

// A cell is a value, or [value, text, mood]: sorted by the one, shown and searched as the other.
const valueOf = (cell) => (Array.isArray(cell) ? cell[0] : cell);
const textOf = (cell, column) => (Array.isArray(cell) ? cell[1] : shown(cell, column.kind, column.digits));
const isText = (column) => column.kind === "name" || column.kind === "text";

function tableCell(column, value, names, after) {
  const cell = document.createElement("td");
  const text = textOf(value, column);
  if (column.kind === "name") {
    cell.append(nameCell(text, names.get(text) ?? shortened(text, LONGEST_NAME), after));
  } else if (column.kind === "text") {
    const words = text.includes(" ");
    cell.append(text.length > (words ? LONGEST_TEXT : LONGEST_NAME) ? nameCell(text, shortened(text, LONGEST_NAME)) : text);
    if (words && text.length > LONGEST_LINE) cell.className = "long";
  } else {
    cell.className = "number";
    cell.textContent = text;
    if (typeof value === "number" && (column.kind === "ns" || column.kind === "si")) {
      cell.title = grouped(value, Number.isInteger(value) ? 0 : 1) + (column.kind === "ns" ? " ns" : "");
    }
  }
  if (Array.isArray(value) && value[2]) cell.classList.add(value[2]);
  return cell;
}

// Empty cells come last, whichever way.
function compare(a, b, ascending) {
  const emptyA = a === null || a === "";
  const emptyB = b === null || b === "";
  if (emptyA || emptyB) return Number(emptyA) - Number(emptyB);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return ascending ? order : -order;
}

// A spreadsheet takes such a text for a formula (docs/security.md).
function pasted(cell, column) {
  const value = valueOf(cell);
  const text = value === null || value === undefined ? "" : String(isText(column) ? textOf(cell, column) : value);
  return /^[=+\-@]/.test(text) && typeof value !== "number" ? `'${text}` : text;
}

// By column: the short names, and what is behind those of several rows where grid and block are columns.
function namesOf(table) {
  const at = (name) => table.columns.findIndex((column) => column.name === name);
  const shapes = [at("Grid"), at("Block")];
  return table.columns.map((column, place) => {
    if (column.kind !== "name") return null;
    const texts = table.rows.map((row) => textOf(row[place], column));
    const seen = new Set();
    const several = new Set(texts.filter((text) => seen.size === seen.add(text).size));
    const after = (row) => (place === 0 && shapes.every((shape) => shape >= 0) && several.has(textOf(row[place], column)) && row[shapes[0]]
      ? shapes.map((shape) => row[shape]).join(" · ") : "");
    return { short: shortNames(texts, LONGEST_NAME), after };
  });
}

function buildTable(holder, table) {
  const title = holder.firstElementChild.textContent;
  let rows = table.rows;
  let sorted = null; // {at, ascending}
  let all = false;
  let texts = null;
  let names = null;
  const places = table.columns.map((_, at) => at);
  const atFirst = places.filter((at) => at === 0 || !table.columns[at].off);
  let visible = atFirst;

  const body = document.createElement("tbody");
  const head = document.createElement("tr");
  const count = element("p", { className: "count", role: "status" });
  const more = element("button", { type: "button", className: "more" });
  const headers = table.columns.map((column, at) => {
    const button = element("button", { type: "button" }, column.name.replace(/ \(ns\)$/, ""));
    button.addEventListener("click", () => sortBy(at));
    if (column.meaning) {
      button.setAttribute("aria-description", column.meaning);
      const lines = [column.name, column.meaning];
      button.addEventListener("pointermove", (event) => { if (isMoved(event)) showTip(lines, event.clientX + 12, event.clientY + 16); });
      button.addEventListener("pointerleave", leaveTip);
      button.addEventListener("focus", () => { if (button.matches(":focus-visible")) showTipBelow(lines, button); });
      button.addEventListener("blur", hideTip);
      button.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
    }
    return element("th", { scope: "col", className: isText(column) ? "" : "number", "aria-sort": "none" }, button);
  });

  function sortBy(at) {
    const ascending = sorted && sorted.at === at ? !sorted.ascending : isText(table.columns[at]);
    sorted = { at, ascending };
    headers.forEach((header, other) => {
      header.setAttribute("aria-sort", other !== at ? "none" : ascending ? "ascending" : "descending");
    });
    show();
  }

  // In the columns that show: a row with a word that is nowhere to be seen would only confuse.
  function found(words) {
    if (words.length === 0) return table.rows;
    texts ??= table.rows.map((row) => visible.map((at) => textOf(row[at], table.columns[at])).join("\n").toLowerCase());
    return table.rows.filter((_, at) => words.every((word) => texts[at].includes(word)));
  }

  const inOrder = () => (sorted ? [...rows].sort((a, b) => compare(valueOf(a[sorted.at]), valueOf(b[sorted.at]), sorted.ascending)) : rows);

  function tableRow(row) {
    return element("tr", {}, ...visible.map((at) => tableCell(table.columns[at], row[at], names[at]?.short, names[at]?.after(row))));
  }

  function show() {
    names ??= namesOf(table);
    rows = found(search.value.toLowerCase().split(/\s+/).filter(Boolean));
    const order = inOrder();
    body.replaceChildren(...(all ? order : order.slice(0, table.first)).map(tableRow));
    const hidden = rows.length - body.children.length;
    const matching = rows.length === table.rows.length ? grouped(rows.length, 0) : `${grouped(rows.length, 0)} of ${grouped(table.rows.length, 0)}`;
    count.textContent = `${matching} row${table.rows.length === 1 ? "" : "s"}` + (hidden ? `, ${body.children.length} shown` : "");
    more.hidden = !hidden && !(all && rows.length > table.first);
    more.textContent = hidden ? `Show all ${grouped(rows.length, 0)} rows` : `Show ${table.first} rows`;
  }

  function choose(columns) {
    visible = columns;
    texts = null;
    head.replaceChildren(...visible.map((at) => headers[at]));
    if (!chooser.hidden) chooser.firstElementChild.textContent = `Columns: ${visible.length} of ${places.length}`;
    boxes.forEach((box, at) => { box.checked = visible.includes(at); });
    show();
  }

  // The first column says what a row is of, and stays.
  const boxes = places.map((at) => {
    const box = element("input", { type: "checkbox", disabled: at === 0 });
    box.addEventListener("change", () => choose(places.filter((each) => boxes[each].checked)));
    return box;
  });
  const preset = (label, columns) => {
    const button = element("button", { type: "button", className: "tool" }, label);
    button.addEventListener("click", () => choose(columns));
    return button;
  };
  const chooser = element("details", { className: "chooser", hidden: places.length < 4 }, element("summary", {}),
    element("div", { className: "choices", role: "group", "aria-label": `Columns of ${title}` },
      ...places.map((at) => element("label", { title: table.columns[at].meaning }, boxes[at], " ", table.columns[at].name)),
      element("p", { className: "presets" }, preset("All", places), " ", preset("As at first", atFirst))));

  const search = element("input", { type: "search", placeholder: "Search", autocomplete: "off", spellcheck: false, "aria-label": `Search in ${title}` });
  search.addEventListener("input", show);
  more.addEventListener("click", () => {
    all = !all;
    show();
  });
  // As a spreadsheet takes it: the columns that show, of all rows that were found, with the numbers of the file.
  const copy = copyButton("Copy", () => [visible.map((at) => table.columns[at].name), ...inOrder().map((row) => visible.map((at) => pasted(row[at], table.columns[at])))]
    .map((cells) => cells.join("\t")).join("\n"));
  copy.classList.add("tool");
  copy.setAttribute("aria-label", `Copy ${title}: the columns that show, of all rows found`);

  const tools = element("div", { className: "tools" }, holder.firstElementChild);
  if (table.rows.length > 3) tools.append(search);
  tools.append(chooser, copy);
  const cells = element("table", {}, element("thead", {}, head), body);
  const scroll = element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title }, cells);
  // A shadow where there is more.
  function edge() {
    const left = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft;
    scroll.classList.toggle("before", scroll.scrollLeft > 1);
    scroll.classList.toggle("beyond", left > 1);
    // What has the focus is beside the first column, not behind it.
    scroll.style.scrollPaddingLeft = `${head.firstElementChild?.offsetWidth ?? 0}px`;
  }
  scroll.addEventListener("scroll", edge, { passive: true });
  const foot = element("div", { className: "foot" }, count, more, element("p", { className: "file" }, table.file));
  holder.append(tools, element("div", { className: "frame" }, scroll), foot);
  if (table.of > table.rows.length) {
    foot.append(element("p", {}, `the first ${grouped(table.rows.length, 0)} of ${grouped(table.of, 0)} rows: all are in ${table.file}`));
  }
  if (table.note) holder.append(element("p", { className: "note" }, table.note));
  choose(atFirst);
  // Not by show(): each table would have the page laid out before the next one is built.
  const observer = new ResizeObserver(edge);
  observer.observe(scroll);
  observer.observe(cells);
}
