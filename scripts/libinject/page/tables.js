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

function nameCell(text) {
  const short = shortened(text, LONGEST_NAME);
  if (short === text) return element("span", { className: "name" }, text);
  const button = element("button", { type: "button", className: "name", title: text, "aria-expanded": "false" }, short);
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    button.textContent = open ? short : text;
  });
  return button;
}

// A cell is a value, or [value, text, mood]: sorted by the one, shown and searched as the other.
const valueOf = (cell) => (Array.isArray(cell) ? cell[0] : cell);
const textOf = (cell, column) => (Array.isArray(cell) ? cell[1] : shown(cell, column.kind, column.digits));

function tableRow(table, row) {
  const line = document.createElement("tr");
  table.columns.forEach((column, at) => {
    const cell = document.createElement("td");
    const value = row[at];
    const text = textOf(value, column);
    if (column.kind === "name") {
      cell.append(nameCell(text));
    } else if (column.kind === "text") {
      const words = text.includes(" ");
      cell.append(text.length > (words ? LONGEST_TEXT : LONGEST_NAME) ? nameCell(text) : text);
      if (words && text.length > LONGEST_LINE) cell.className = "long";
    } else {
      cell.className = "number";
      cell.textContent = text;
      if (typeof value === "number" && (column.kind === "ns" || column.kind === "si")) {
        cell.title = grouped(value, Number.isInteger(value) ? 0 : 1) + (column.kind === "ns" ? " ns" : "");
      }
    }
    if (Array.isArray(value) && value[2]) cell.classList.add(value[2]);
    line.append(cell);
  });
  return line;
}

// Empty cells come last, whichever way.
function compare(a, b, ascending) {
  const emptyA = a === null || a === "";
  const emptyB = b === null || b === "";
  if (emptyA || emptyB) return Number(emptyA) - Number(emptyB);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return ascending ? order : -order;
}

function buildTable(holder, table) {
  const title = holder.firstElementChild.textContent;
  let rows = table.rows;
  let sorted = null; // {at, ascending}
  let all = false;
  let texts = null;

  const body = document.createElement("tbody");
  const count = element("p", { className: "count", role: "status" });
  const more = element("button", { type: "button", className: "more" });
  const headers = table.columns.map((column, at) => {
    const button = element("button", { type: "button" }, column.name.replace(/ \(ns\)$/, ""));
    button.addEventListener("click", () => sortBy(at));
    const number = column.kind !== "name" && column.kind !== "text";
    return element("th", { scope: "col", className: number ? "number" : "", "aria-sort": "none" }, button);
  });

  function sortBy(at) {
    const text = ["name", "text"].includes(table.columns[at].kind);
    const ascending = sorted && sorted.at === at ? !sorted.ascending : text;
    sorted = { at, ascending };
    headers.forEach((header, other) => {
      header.setAttribute("aria-sort", other !== at ? "none" : ascending ? "ascending" : "descending");
    });
    show();
  }

  function found(words) {
    if (words.length === 0) return table.rows;
    texts ??= table.rows.map((row) =>
      row.map((cell, at) => textOf(cell, table.columns[at])).join("\n").toLowerCase());
    return table.rows.filter((_, at) => words.every((word) => texts[at].includes(word)));
  }

  function show() {
    rows = found(search.value.toLowerCase().split(/\s+/).filter(Boolean));
    const order = sorted ? [...rows].sort((a, b) => compare(valueOf(a[sorted.at]), valueOf(b[sorted.at]), sorted.ascending)) : rows;
    body.replaceChildren(...(all ? order : order.slice(0, table.first)).map((row) => tableRow(table, row)));
    const hidden = rows.length - body.children.length;
    const matching = rows.length === table.rows.length ? grouped(rows.length, 0) : `${grouped(rows.length, 0)} of ${grouped(table.rows.length, 0)}`;
    count.textContent = `${matching} row${table.rows.length === 1 ? "" : "s"}` + (hidden ? `, ${body.children.length} shown` : "");
    more.hidden = !hidden && !(all && rows.length > table.first);
    more.textContent = hidden ? `Show all ${grouped(rows.length, 0)} rows` : `Show ${table.first} rows`;
  }

  const search = element("input", { type: "search", placeholder: "Search", autocomplete: "off", spellcheck: false, "aria-label": `Search in ${title}` });
  search.addEventListener("input", show);
  more.addEventListener("click", () => {
    all = !all;
    show();
  });

  const tools = element("div", { className: "tools" }, holder.firstElementChild);
  if (table.rows.length > 3) tools.append(search);
  const scroll = element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title },
    element("table", {}, element("thead", {}, element("tr", {}, ...headers)), body));
  const foot = element("div", { className: "foot" }, count, more, element("p", { className: "file" }, table.file));
  holder.append(tools, scroll, foot);
  if (table.of > table.rows.length) {
    foot.append(element("p", {}, `the first ${grouped(table.rows.length, 0)} of ${grouped(table.of, 0)} rows: all are in ${table.file}`));
  }
  if (table.note) holder.append(element("p", { className: "note" }, table.note));
  show();
}
