// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Loads a trace into Perfetto's trace processor, as its page in the browser does, and asks it.
// usage: node query.js FOLDER TRACE SQL...   FOLDER has the page's engine_bundle.js and trace_processor.wasm
// Prints a JSON list of rows for each query, a line each. What is said to the engine is protos/perfetto/trace_processor/
// trace_processor.proto of Perfetto's sources; the numbers of its fields stand below.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace, ...queries] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorMethod
const PART = 16 << 20;

// --- protocol buffers
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

function* varints(buffer) {
  for (let at = 0; at < buffer.length; ) {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    yield [value, at];
  }
}
const first = (buffer) => varints(buffer).next().value;

function* fields(buffer) {
  while (buffer.length > 0) {
    const [tag, head] = first(buffer);
    buffer = buffer.subarray(head);
    const field = Number(tag >> 3n);
    let size = { 1n: 8, 5n: 4 }[tag & 7n];
    if (size === undefined) {
      const [value, used] = first(buffer);
      buffer = buffer.subarray(used);
      if ((tag & 7n) === 0n) {
        yield [field, value];
        continue;
      }
      size = Number(value);
    }
    yield [field, buffer.subarray(0, size)];
    buffer = buffer.subarray(size);
  }
}
const packed = (value) => (typeof value === "bigint" ? [value] : [...varints(value)].map(([one]) => one));

// --- the engine, which runs in a worker of the page
const port = { postMessage: (reply) => onReply(Buffer.from(reply)) };
const read = (name) => fs.readFileSync(path.join(folder, path.basename(String(name))));
const world = vm.createContext({
  self: { location: { href: "file:///engine_bundle.js" } },
  console: { log() {}, warn() {}, error: console.error },
  URL, TextDecoder, TextEncoder, performance, setTimeout, clearTimeout,
  WorkerGlobalScope: function () {},
});
const inWorld = vm.runInContext("(bytes) => new Uint8Array(bytes)", world);
world.XMLHttpRequest = class {
  open(_method, url) { this.url = url; }
  send() { this.response = inWorld(read(this.url)).buffer; this.status = 200; }
};
vm.runInContext(read("engine_bundle.js").toString(), world);
world.self.onmessage({ data: port });

let sequence = 0;
let result = null;
function request(method, ...parts) {
  const message = Buffer.concat([number(1, sequence++), number(2, method), ...parts]);
  port.onmessage({ data: inWorld(bytes(1, message)) });
}

function onReply(stream) {
  for (const [, message] of fields(stream)) {
    for (const [field, value] of fields(message)) {
      if (field === 5) throw new Error(value.toString()); // fatal_error
      if (field === 201) { // append_result
        for (const [inner, text] of fields(value)) if (inner === 2) throw new Error(text.toString());
      }
      if (field === 203) onRows(value); // query_result
    }
  }
}

function onRows(value) {
  for (const [field, inner] of fields(value)) {
    if (field === 1) result.columns += 1;
    if (field === 2) throw new Error(inner.toString());
    if (field !== 3) continue;
    const cells = { kinds: [], integers: [], reals: [], texts: [] };
    for (const [kind, batch] of fields(inner)) {
      if (kind === 1) cells.kinds.push(...packed(batch));
      if (kind === 2) cells.integers.push(...packed(batch).map((one) => Number(BigInt.asIntN(64, one))));
      if (kind === 3) for (let i = 0; i < batch.length; i += 8) cells.reals.push(batch.readDoubleLE(i));
      if (kind === 5) cells.texts.push(...batch.toString().split("\0").slice(0, -1));
    }
    const from = { 1: [], 2: cells.integers.values(), 3: cells.reals.values(), 4: cells.texts.values() };
    for (const kind of cells.kinds) result.cells.push(kind === 1n ? null : from[kind].next().value);
  }
}

function query(sql) {
  result = { columns: 0, cells: [] };
  request(QUERY, bytes(103, bytes(1, Buffer.from(sql))));
  const rows = [];
  for (let i = 0; i < result.cells.length; i += result.columns) rows.push(result.cells.slice(i, i + result.columns));
  return rows;
}

// The engine is ready once the promises are kept that it made as it was loaded.
setImmediate(() => {
  const text = fs.readFileSync(trace);
  for (let at = 0; at < text.length; at += PART) request(APPEND, bytes(101, text.subarray(at, at + PART)));
  request(FINALIZE);
  for (const sql of queries) console.log(JSON.stringify(query(sql)));
});
