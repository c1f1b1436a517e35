# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Validates run.json against run.schema.json, which uses only the part of JSON Schema (2020-12) that is implemented here."""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Iterator

import libinject
from libinject.check.folder import Folder, Place
from libinject.check.rules import ERROR, rule
from libinject.result import printable

SCHEMA = pathlib.Path(libinject.__file__).with_name("run.schema.json")
# The keywords that are validated, and those that are informative.
JUDGED = frozenset(("$ref", "type", "const", "enum", "minimum", "pattern", "required", "properties", "additionalProperties", "items"))
TELLING = frozenset(("$schema", "$defs", "title", "description"))
_IS = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer(),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


@functools.cache
def schema() -> dict:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def violations(value: object, strict: bool = True) -> Iterator[tuple[str, str]]:
    """Where run.json's content `value` violates the schema, and how: (`windows[0].state`, `5 is not of type string`). If not `strict`,
    members that the schema lacks are allowed."""
    yield from _violations(value, schema(), "", strict)


def _shown(value: object) -> str:
    return printable(json.dumps(value, ensure_ascii=False), 60)


def _violations(value: object, part: dict, path: str, strict: bool) -> Iterator[tuple[str, str]]:
    if "$ref" in part:
        yield from _violations(value, schema()["$defs"][part["$ref"].removeprefix("#/$defs/")], path, strict)
    kinds = part.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_IS[kind](value) for kind in kinds):
        yield path, f"{_shown(value)} is not of type {' or '.join(kinds)}"
        return
    if "const" in part and value != part["const"]:
        yield path, f"{_shown(value)} is not {part['const']}"
    # null is allowed by its type.
    if "enum" in part and value not in part["enum"]:
        yield path, f"{_shown(value)} is none of the values that it may have"
    if isinstance(value, (int, float)) and value < part.get("minimum", value):
        yield path, f"{_shown(value)} is below {part['minimum']}"
    if isinstance(value, str) and "pattern" in part and not re.search(part["pattern"], value):
        yield path, f"{_shown(value)} is not of the form {part['pattern']}"
    if isinstance(value, list) and "items" in part:
        for index, item in enumerate(value):
            yield from _violations(item, part["items"], f"{path}[{index}]", strict)
    if isinstance(value, dict):
        yield from _of_members(value, part, path, strict)


def _of_members(value: dict, part: dict, path: str, strict: bool) -> Iterator[tuple[str, str]]:
    before = f"{path}." if path else ""
    for name in part.get("required", ()):
        if name not in value:
            yield f"{before}{name}", "missing"
    named, others = part.get("properties", {}), part.get("additionalProperties", True)
    for name, member in value.items():
        where = before + printable(name, 60)
        if name in named:
            yield from _violations(member, named[name], where, strict)
        elif isinstance(others, dict):
            yield from _violations(member, others, where, strict)
        elif not others and strict:
            yield where, "no member of this schema version"


@rule("run-schema", ERROR, "run.json conforms to its schema; if it is from the same version of libinject, it has no other members.")
def run_schema(folder: Folder) -> Iterator[Place]:
    # A later libinject may add members within the same schema version; before 0.2.0 there was no schema.
    same = folder.written["libinject"] == libinject.__version__
    if same or "schema_version" in folder.written:
        for where, why in violations(folder.written, strict=same):
            yield folder.in_run(re.split(r"[.[]", where)[0], f"{where}: {why}")
