# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""--fail-if: "step_time > +5%", "kernel:*softmax* > +200us", "utilization < 80%"."""

from __future__ import annotations

import dataclasses
import fnmatch
import operator
import re
from collections.abc import Callable

from libinject.compare.changes import Change, Comparison, sum_of
from libinject.compare.measures import KINDS, METRIC_OF, METRICS
from libinject.result import printable

_OPERATORS: dict[str, Callable[[float, float], bool]] = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
# The last operator counts: kernel names may contain < and >.
_FORM = re.compile(r"\s*(?P<what>.+?)\s*(?P<operator>[<>]=?)\s*(?P<sign>[+-]?)(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[^\s\d]*)\s*")
_KIND_OF = {kind.prefix: kind for kind in KINDS}


PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"


class BadCondition(Exception):
    """`str()` is one line that says what would be accepted."""


def accepted() -> str:
    return (f"METRIC > +5%, with >, >=, < or <=; METRIC is one of {', '.join(metric.name for metric in METRICS)}, or "
            f"{', '.join(prefix + ':NAME' for prefix in _KIND_OF)} (NAME may have * and ?, and all matches are added up); +5% and -5% are "
            "changes, +2ms and -100MB changes in a unit, -3pp changes of a percentage; 30ms, 12GB, 80% without a sign are values")


@dataclasses.dataclass(frozen=True)
class Condition:
    text: str
    kind: str  # of a breakdown, or nothing
    name: str
    unit: str
    operator: str
    limit: float
    how: str  # relative, difference, value

    def matching(self, names: list[str]) -> list[str]:
        pattern = self.name.replace("[", "[[]")  # as in [CUDA memcpy*]: only * and ? are special
        return [name for name in names if name == self.name or fnmatch.fnmatchcase(name, pattern)]


@dataclasses.dataclass(frozen=True)
class Outcome:
    condition: Condition
    change: Change
    result: str  # PASSED, FAILED or UNDECIDED

    def as_dict(self) -> dict:
        return {"condition": self.condition.text, "result": self.result, **self.change.as_dict()}


def parse(text: str) -> Condition:
    form = _FORM.fullmatch(text)
    shown = printable(text)
    if form is None:
        raise BadCondition(f"'{shown}' is not a condition: {accepted()}")
    what, sign, unit = form["what"], form["sign"], form["unit"]
    prefix, colon, name = what.partition(":")
    if what in METRIC_OF:
        kind, name, figure_unit = "", what, METRIC_OF[what].unit
    elif colon and prefix in _KIND_OF and name:
        kind, figure_unit = _KIND_OF[prefix].name, _KIND_OF[prefix].unit
    else:
        raise BadCondition(f"'{shown}': there is no '{printable(what, 60)}': {accepted()}")
    number = float(form["number"]) * (-1.0 if sign == "-" else 1.0)
    if unit == "%" and (sign or figure_unit != "%"):
        return Condition(text, kind, name, figure_unit, form["operator"], number / 100, "relative")
    units = {"ns": _TIMES, "B": _SIZES, "MB": {name: size / _SIZES["MB"] for name, size in _SIZES.items()},
             "%": {"pp": 1.0} if sign else {"%": 1.0}, "1/s": {"": 1.0, "/s": 1.0}}.get(figure_unit, {figure_unit: 1.0})
    if unit not in units:
        names = ", ".join(["%", *(name or "no unit" for name in units if name != "%")])
        raise BadCondition(f"'{shown}': '{printable(unit, 20)}' is not a unit of {printable(what, 60)}, which has {names}")
    return Condition(text, kind, name, figure_unit, form["operator"], number * units[unit], "difference" if sign else "value")


def check(condition: Condition, comparison: Comparison, strict: bool, least: float) -> Outcome:
    """Raises BadCondition if the runs have no such figure."""
    if condition.kind:
        if condition.kind in comparison.left_out:
            raise BadCondition(f"'{printable(condition.text)}': not all runs have '{condition.kind}': {comparison.left_out[condition.kind]}")
        names = condition.matching([change.name for change in comparison.tables[condition.kind]])
        if not names:
            raise BadCondition(f"'{printable(condition.text)}': no '{condition.kind}' row in either run matches that name")
        kind = next(kind for kind in KINDS if kind.name == condition.kind)
        change = sum_of(condition.name, comparison.before, comparison.after, kind, names, least)
    else:
        found = next((change for metric, change in comparison.metrics if metric.name == condition.name), None)
        if found is None:
            present = ", ".join(metric.name for metric, _ in comparison.metrics)
            raise BadCondition(f"'{printable(condition.text)}': not all runs have a figure for {condition.name}; they have {present}")
        change = found
    return Outcome(condition, change, _result(condition, change, strict, least))


def _result(condition: Condition, change: Change, strict: bool, least: float) -> str:
    """Failed if the change is certain and beyond the limit, passed if its whole interval is within it."""
    beyond, limit = _OPERATORS[condition.operator], condition.limit
    value = {"relative": change.relative, "difference": change.difference, "value": change.after or 0.0}[condition.how]
    if value is None:
        return UNDECIDED
    holds = beyond(value, limit)
    if strict or condition.how == "value" or (holds and change.real):
        return FAILED if holds else PASSED
    growth = condition.operator[0] == ">"
    if change.before is None or change.after is None:
        # What is new has not shrunk, and what has gone has not grown. A relative change of either is known without an interval.
        opposite = (change.before is None and not growth and limit <= 0) or (change.after is None and growth and limit >= 0)
        if condition.how == "relative" or (opposite and not holds):
            return UNDECIDED if holds else PASSED
    interval = change.interval if condition.how == "relative" else change.span
    if interval is None:
        return UNDECIDED
    # A change of less than `least` is called none, so a limit within that is as far away.
    near = least if condition.how == "relative" else least * abs(change.before or 0.0)
    if growth and 0 <= limit < near:
        limit = near
    elif not growth and -near < limit <= 0:
        limit = -near
    ends = [beyond(end, limit) for end in interval]
    return FAILED if all(ends) else UNDECIDED if any(ends) else PASSED
