#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes the tables of members in docs/run_json.md anew, from run.json's schema. A test compares.

usage: scripts/run_json_page.py
"""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "run_json.md"
SCHEMA = ROOT / "scripts" / "libinject" / "run.schema.json"

_TABLES = re.compile(r"(?<=<!-- members -->\n).*?(?=<!-- end -->)", re.DOTALL)
_UNITS = {"ns": "ns", "khz": "kHz", "bytes": "B", "bits": "bits"}


def unit(name, part):
    """From the words of the name: `memory_bytes`, `shared_bytes_per_block`."""
    if part.get("type") != "integer":
        return ""
    return next((_UNITS[word] for word in reversed(name.split("_")) if word in _UNITS), "")


def kind(part):
    """The type's name, and its constraints shown in the table."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[object](#{name})"
    if "const" in part:
        return f"`{part['const']}`"
    types = part["type"] if isinstance(part["type"], list) else [part["type"]]
    if types == ["array"]:
        inner = kind(part["items"])
        return f"array of {inner.replace('object', 'objects')}" if "$ref" in part["items"] else f"array of {inner}s"
    if types == ["object"] and isinstance(part.get("additionalProperties"), dict):
        return f"object of {part['additionalProperties']['type']}s"
    return " or ".join(types)


def table(part, named):
    lines = ["| member | type | unit | meaning |", "|---|---|---|---|"]
    for name, member in part["properties"].items():
        meaning = member["description"]
        if "enum" in member:
            meaning += "; one of " + ", ".join(f"`{value}`" for value in member["enum"] if value)
        optional = "" if name in part.get("required", ()) else "?"
        if "properties" in member:
            named[name] = member
        shown = f"[object](#{name})" if "properties" in member else kind(member)
        lines.append(f"| `{name}`{optional} | {shown} | {unit(name, member)} | {meaning.replace('|', chr(92) + '|')} |")
    return lines


def tables(schema):
    lines = table(schema, named := {})
    for name, part in schema["$defs"].items():
        named[name] = part
    for name, part in sorted(named.items(), key=lambda item: list(named).index(item[0])):
        lines += ["", f"### {name}", *table(part, inner := {})]
        for other, member in inner.items():
            lines += ["", f"### {other}", *table(member, {})]
    return "\n".join(lines) + "\n"


def page(text):
    """`text` with the tables replaced by those generated from the schema."""
    made = tables(json.loads(SCHEMA.read_text(encoding="utf-8")))
    return _TABLES.sub(lambda _: made, text)


def main():
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
