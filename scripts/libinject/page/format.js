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
