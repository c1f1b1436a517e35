// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors

// As `duration` in console.py, and in the text summary.
function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (Math.abs(ns) >= size) return (ns / size).toFixed(3) + unit;
  }
  return ns.toFixed(0) + "ns";
}

function grouped(value, digits) {
  const [whole, decimals] = value.toFixed(digits).split(".");
  const text = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return decimals ? text + "." + decimals : text;
}

function withPrefix(value) {
  for (const [prefix, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size) return (value / size).toFixed(3) + prefix;
  }
  return String(value);
}

function shown(value, unit, digits) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value !== "number") return String(value);
  if (unit === "ns") return duration(value);
  if (unit === "si") return withPrefix(value);
  if (digits !== undefined) return grouped(value, digits);
  return Number.isInteger(value) ? grouped(value, 0) : String(Number(value.toPrecision(6)));
}

// A function's name without arguments and return type, as the text summary shortens it.
function withoutSignature(name) {
  if (!name.endsWith(")")) return name;
  let depth = 0;
  let open = name.length;
  while (open > 0) {
    open -= 1;
    if (name[open] === ")") depth += 1;
    if (name[open] === "(" && --depth === 0) break;
  }
  if (depth !== 0 || open === 0) return name;
  let brackets = 0;
  let start = 0;
  for (let at = 0; at < open; at += 1) {
    if ("<({[".includes(name[at])) brackets += 1;
    if (">)}]".includes(name[at])) brackets -= 1;
    if (name[at] === " " && brackets === 0) start = at + 1;
  }
  return start < open ? name.slice(start, open) : name.slice(0, open);
}

function shortened(name, most) {
  if (name.length <= most) return name;
  const letters = [...withoutSignature(name)];
  if (letters.length <= most) return letters.join("");
  const tail = Math.floor((most - 1) / 3);
  return letters.slice(0, most - 1 - tail).join("") + "…" + letters.slice(-tail).join("");
}

// A kernel's name without what says little: namespaces, the functions around a lambda, the pointers that elementwise kernels take.
function simplified(name) {
  return withoutSignature(name)
    .replace(/\{lambda\([^{}()]*\)#\d+\}::operator\(\)\([^{}()]*\) const::/g, "")
    .replace(/\([^{}()]*\)(?=::\{lambda)/g, "")
    .replace(/(?:\(anonymous namespace\)|<unnamed>|\b[A-Za-z_]\w*)::(?!\{)/g, "")
    .replace(/\b(\d+)ul\b/g, "$1")
    .replace(/, array<char ?\*, \d+>/g, "")
    .replace(/ +>/g, ">");
}

// `text` with what follows the letter `at` in sight, from the template's argument on that it is in.
function around(text, at, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const tail = Math.floor((most - 1) / 3);
  if (at < most - 5 - tail || at >= letters.length - tail) return letters.slice(0, most - 1 - tail).join("") + "…" + letters.slice(-tail).join("");
  const open = letters.indexOf("<") + 1;
  const head = open > 0 && open <= most / 2 ? open : Math.floor(most / 3);
  let start = at;
  while (start > head && at - start < most / 4 && !"<, ".includes(letters[start - 1])) start -= 1;
  const room = most - head - 1;
  const rest = letters.slice(start);
  return letters.slice(0, head).join("") + "…" + (rest.length <= room ? rest.join("") : rest.slice(0, room - 1).join("") + "…");
}

// By name: at most `most` letters of it, which differ wherever that is possible. Names that would be alike show where they begin to differ.
function shortNames(names, most) {
  const texts = new Map();
  const all = [...new Set(names)];
  for (const name of all) texts.set(name, name.length <= most ? name : simplified(name));
  for (const fuller of [withoutSignature, (name) => name]) {
    const times = new Map();
    for (const text of texts.values()) times.set(text, (times.get(text) ?? 0) + 1);
    for (const name of all) if (times.get(texts.get(name)) > 1) texts.set(name, fuller(name));
  }
  const same = (a, b) => {
    let at = 0;
    while (at < a.length && a[at] === b[at]) at += 1;
    return at;
  };
  // Those that have the most in common stand beside each other.
  const order = all.map((name) => [name, [...texts.get(name)]]).sort(([a], [b]) => (texts.get(a) < texts.get(b) ? -1 : 1));
  return new Map(order.map(([name, letters], at) => {
    const beside = [order[at - 1], order[at + 1]].filter(Boolean).map(([, other]) => same(letters, other));
    return [name, around(texts.get(name), Math.max(0, ...beside), most)];
  }));
}

// What the page brings compressed: a fraction of the size, for some hundredths of a second.
async function unpacked(id) {
  const letters = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(letters.length);
  // Uint8Array.from() takes thirty times as long for it.
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  // What goes wrong in here goes wrong where it is read as well.
  writer.write(bytes).catch(() => {});
  writer.close().catch(() => {});
  return new Response(readable).text();
}
