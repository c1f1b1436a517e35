#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes what columns mean, for the tooltips of the pages, from docs/columns.md, which is made of the source. A test compares.

usage: scripts/column_meanings.py
"""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = ROOT / "docs" / "columns.md"
MEANINGS = ROOT / "scripts" / "libinject" / "page" / "columns.json"


def meanings(text):
    """{table: {column: meaning}}"""
    found = {}
    table = None
    for line in text.splitlines():
        if heading := re.fullmatch(r"## (\w+)\.csv", line):
            table = found.setdefault(heading.group(1), {})
        elif table is not None and line.startswith("| ") and not line.startswith("| column |"):
            name, _, _, meaning, empty = (cell.strip().replace("\\|", "|").replace("`", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            table[name.replace("*", "")] = meaning + (f" Empty: {empty}." if empty else "")
    return found


def text_of(columns):
    return json.dumps(meanings(columns), ensure_ascii=False, indent=0) + "\n"


def main():
    MEANINGS.write_text(text_of(COLUMNS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
