# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""--var BATCH=1,2,4,…,64, and the placeholders of a command."""

from __future__ import annotations

import collections
import fractions
import itertools
import re
from collections.abc import Mapping, Sequence

from libinject.result import printable

MOST_POINTS = 10_000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)
_RANGE = re.compile(r"(?P<first>[+-]?[\d.]*\d(?:e[+-]?\d+)?)\.\.(?P<last>[+-]?\d[\d.]*(?:e[+-]?\d+)?)(?:(?P<how>[*+-])(?P<step>\d[\d.]*(?:e[+-]?\d+)?))?",
                    re.IGNORECASE)
_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}|[{}]")
_FORMS = "1,2,4,8; fp32,bf16; 1..64*2 (times 2), 1e-5..1e-3*10, 10..50+10, 1..8; 1,2,4,…,64 or 1,2,4,...,64"


class BadVariable(Exception):
    """`str()` is one line."""


def _number(text: str) -> fractions.Fraction | None:
    return fractions.Fraction(text) if len(text) < 40 and _NUMBER.fullmatch(text) else None


def _text(value: fractions.Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.12g}"


def _walk(first: fractions.Fraction, last: fractions.Fraction, how: str, step: fractions.Fraction) -> list[fractions.Fraction] | None:
    """From first up to last; None if it never gets there, or has too many values."""
    values = [first]
    while len(values) <= MOST_POINTS:
        following = values[-1] * step if how == "*" else values[-1] + step
        if following == values[-1] or (following > values[-1]) != (last > first):
            return None
        if (following > last) == (last > first) and following != last:
            return values
        values.append(following)
        if following == last:
            return values
    return None


def _continued(name: str, before: list[str], last: str) -> list[str]:
    """The values that the three dots in 1,2,4,…,64 stand for, and the value after them."""
    numbers = [_number(text) for text in before]
    end = _number(last)
    if len(numbers) < 2 or end is None or any(number is None for number in numbers):
        raise BadVariable(f"--var {name}: the three dots need at least two numbers before them and one after; accepted values: {_FORMS}")
    known = [number for number in numbers if number is not None]
    pairs = list(zip(known, known[1:]))
    found: list[list[fractions.Fraction]] = []
    if len({b - a for a, b in pairs}) == 1:
        found.append(_walk(known[-1], end, "+", pairs[0][1] - pairs[0][0]) or [])
    if 0 not in known and len({b / a for a, b in pairs}) == 1:
        found.append(_walk(known[-1], end, "*", pairs[0][1] / pairs[0][0]) or [])
    ways = [values for values in found if len(values) > 1 and values[-1] == end]
    shown = printable(",".join([*before, "…", last]), 60)
    if not ways:
        raise BadVariable(f"--var {name}: {shown} does not grow by a constant amount or factor up to {printable(last, 20)}")
    if len(ways) > 1 and ways[0] != ways[1]:
        raise BadVariable(f"--var {name}: {shown} may grow by an amount or by a factor: give one more value before the dots")
    return [_text(value) for value in ways[0][1:]]


def parse(text: str) -> tuple[str, list[str]]:
    """Name and values."""
    name, equals, rest = text.partition("=")
    name = name.strip()
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise BadVariable(f"'{printable(text, 60)}' is not NAME=VALUES, such as BATCH=1,2,4,8; accepted values: {_FORMS}")
    values: list[str] = []
    items = [item.strip() for item in rest.split(",")]
    place = 0
    while place < len(items):
        item = items[place]
        span = _RANGE.fullmatch(item)
        if item in ("…", "..."):
            if place + 1 >= len(items):
                raise BadVariable(f"--var {name}: the last value is missing after the three dots; accepted values: {_FORMS}")
            values += _continued(name, values, items[place + 1])
            place += 1
        elif span is not None:
            first, last, step = (_number(span[part] or "1") for part in ("first", "last", "step"))
            if first is None or last is None or step is None:
                raise BadVariable(f"--var {name}: '{printable(item, 40)}' is not a range; accepted values: {_FORMS}")
            found = [first] if first == last else _walk(first, last, span["how"] if span["how"] == "*" else "+",
                                                        -step if span["how"] == "-" or (span["how"] is None and last < first) else step)
            if found is None:
                raise BadVariable(f"--var {name}: '{printable(item, 40)}' never reaches its end, or has too many values; accepted values: {_FORMS}")
            if len(found) == 1 and first != last:
                raise BadVariable(f"--var {name}: '{printable(item, 40)}' contains only its first value, because the step is longer than the range; accepted values: {_FORMS}")
            values += [_text(value) for value in found]
        elif not item:
            raise BadVariable(f"--var {name}: an empty value; accepted values: {_FORMS}")
        elif not item.isprintable() or len(item) > 200:
            raise BadVariable(f"--var {name}: '{printable(item, 40)}' is not a value")
        else:
            values.append(item)
        place += 1
    twice = next((value for value, count in collections.Counter(values).items() if count > 1), None)
    if twice is not None:
        raise BadVariable(f"--var {name}: {twice} occurs twice")
    return name, values


def parse_all(texts: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    count = 1
    for text in texts:
        name, values = parse(text)
        if name in found:
            raise BadVariable(f"--var {name} is given twice: give all values at once")
        found[name] = values
        count *= len(values)
        if count > MOST_POINTS:
            raise BadVariable(f"more than {MOST_POINTS} combinations")
    if not found:
        raise BadVariable(f"nothing to vary: --var NAME=VALUES; accepted values: {_FORMS}")
    return found


def combinations(variables: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """The first variable changes last."""
    return [dict(zip(variables, values)) for values in itertools.product(*variables.values())]


def fill(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The command with {NAME} replaced; {{ and }} are braces."""

    def replacement(part: re.Match[str]) -> str:
        if part[0] in ("{{", "}}"):
            return part[0][0]
        if part[1] is None or part[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise BadVariable(f"'{printable(part[0], 40)}' in the command is not a variable: there are {known}; a brace is {{{{ or }}}}")
        return values[part[1]]

    return [_PART.sub(replacement, argument) for argument in command]


def used(command: Sequence[str]) -> set[str]:
    return {part[1] for argument in command for part in _PART.finditer(argument) if part[1]}
