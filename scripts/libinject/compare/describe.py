# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What the terminal and the page say about runs and changes, in words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence

from libinject import console, figures
from libinject.compare import conditions
from libinject.compare.changes import Change, Comparison
from libinject.compare.measures import Basis, Metric, Run
from libinject.result import RECOVERY_GAPS, Result, printable

VERDICTS = {"small": "too small a change", "no difference": "no difference seen", "too few": "too few samples to say"}
_SPEEDS = {"step_time", "throughput", "unit_rate", "gemm_rate", "flop_rate"}  # what is faster or slower; the rest is more or less
_MOST_NAMED = 4  # runs in a line
_OPTIONS_OF_NO_INTEREST = ("INJECT_OUT", "INJECT_LOG", "INJECT_LOG_FILE", "INJECT_SUMMARY", "INJECT_HELP", "INJECT_PROM", "INJECT_ITER_RECORD")


def shorten(text: str, most: int) -> str:
    """`text` without control characters, shortened in the middle if it is too long: kernel names differ at both ends."""
    shown = printable(text, 1 << 20)
    if len(shown) <= most:
        return shown
    head = (most - 1) * 2 // 3
    return f"{shown[:head]}…{shown[len(shown) - (most - 1 - head):]}"


def without_signature(name: str) -> str:
    """A function's name without arguments and return type, as in the text summary; any other name unchanged."""
    if not name.endswith(")"):
        return name
    depth, end = 0, len(name)
    while end > 0:
        end -= 1
        depth += (name[end] == ")") - (name[end] == "(")
        if depth == 0:
            break
    if depth or end == 0:
        return name
    brackets = start = 0
    for at, character in enumerate(name[:end]):
        brackets += (character in "<({[") - (character in ">)}]")
        if character == " " and brackets == 0:
            start = at + 1
    return name[start:end] or name[:end]


def figure(value: float | None, unit: str) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if unit == "ns":
        return console.duration(value)
    if unit == "B":
        return console.size(value)
    if unit == "MB":
        return f"{value / 1e3:.3f}GB" if abs(value) >= 1e3 else f"{value:.3f}MB"
    if unit == "%":
        return f"{value:.1f}%"
    text = f"{value:.3f}" if abs(value) < 1e3 and value != int(value) else f"{value:,.0f}"
    return text + (unit[1:] if unit == "1/s" else f" {unit}" if unit else "")


def difference(change: Change, unit: str) -> str:
    sign = "+" if change.difference > 0 else ""
    return f"{sign}{change.difference:.1f}pp" if unit == "%" else sign + figure(change.difference, unit)


def percent(value: float | None) -> str:
    if value is None:
        return "–"
    if math.isinf(value):
        return "new"
    return f"{value * 100:+.1f}%" if abs(value) < 10 else f"{value + 1:.1f}x"


def interval(change: Change) -> str:
    if change.interval is None:
        return "–"
    low, high = change.interval
    return f"{percent(low)} … {percent(high)}" if high <= 20 else f"{percent(low)} … more than 20x"


def verdict(change: Change, metric: Metric | None = None) -> str:
    if change.verdict != "changed":
        return VERDICTS.get(change.verdict, change.verdict)
    if metric is None or metric.name not in _SPEEDS:
        return "more" if change.difference > 0 else "less"
    return "faster" if (change.difference > 0) == (metric.better > 0) else "slower"


def _told(change: Change, unit: str) -> str:
    """5.000ms → 6.000ms, +20.0% (+18.0% … +22.0%)."""
    known = "" if change.interval is None else f" ({interval(change)})"
    return f"{figure(change.before, unit)} → {figure(change.after, unit)}, {percent(change.relative)}{known}"


def gate(outcome: conditions.Outcome) -> str:
    change = outcome.change
    says = {conditions.PASSED: "passed", conditions.FAILED: "failed", conditions.UNDECIDED: "inconclusive, too few samples to say"}
    return f"{printable(outcome.condition.text)}: {says[outcome.result]}: {_told(change, outcome.condition.unit)}"


def conclusion(comparison: Comparison, outcomes: Sequence[conditions.Outcome] = ()) -> str:
    """The conclusion, in sentences."""
    return " ".join(filter(None, (_step(comparison), _most(comparison), _gates(outcomes))))


def _step(comparison: Comparison) -> str:
    metric, change = next(((metric, change) for metric, change in comparison.metrics if metric.name in ("step_time", "kernel_time")), (None, None))
    if metric is None or change is None:
        return "The runs have no step time and no kernel time to compare."
    steps = metric.name == "step_time"
    what = "a step takes" if steps else f"kernel time {comparison.basis.per} is"
    times = f"{what} {figure(change.after, 'ns')} instead of {figure(change.before, 'ns')}: {percent(change.relative)}"
    times += "" if change.interval is None else f", the {100 * (change.confidence or 0):.0f}% interval is {interval(change)}"
    if change.verdict == "changed":
        return f"B is {verdict(change, metric)} than A: {times}." if steps else f"B has {verdict(change, metric)} kernel time than A: {times}."
    if change.verdict == "small":
        return f"B and A differ by less than the threshold: {times}."
    if change.verdict == "no difference":
        return f"No difference seen between A and B: {times}."
    return f"Too few samples to say whether {'B is slower or faster' if steps else 'B has more kernel time or less'} than A: {times}."


def _most(comparison: Comparison) -> str:
    """The kernel that changed most, which comes first."""
    kernels = comparison.tables["kernels"]
    count = sum(change.real for change in kernels)
    if not count:
        return ""
    name = shorten(without_signature(kernels[0].name), 80)
    return f"{count} of {len(kernels)} kernels changed, most of all {name}: {difference(kernels[0], 'ns')} {comparison.basis.per}."


def _gates(outcomes: Sequence[conditions.Outcome]) -> str:
    if not outcomes:
        return ""
    found = {result: [printable(outcome.condition.text) for outcome in outcomes if outcome.result == result]
             for result in (conditions.FAILED, conditions.UNDECIDED)}
    undecided = f"too few samples to judge {'; '.join(found[conditions.UNDECIDED])}" if found[conditions.UNDECIDED] else ""
    if found[conditions.FAILED]:
        return f"The gate failed: {'; '.join(found[conditions.FAILED])}{f' ({undecided})' if undecided else ''}."
    if undecided:
        return f"The gate is inconclusive: {undecided}."
    return "The gate passed."


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.10g}" if abs(value - round(value)) < 1e-6 else f"{value:.2f}"


def counts(change: Change) -> str:
    if change.count_before is None or change.count_after is None:
        return times(change.count_before if change.count_after is None else change.count_after)
    if math.isclose(change.count_before, change.count_after, rel_tol=1e-3):
        return times(change.count_after)
    return f"{times(change.count_before)} → {times(change.count_after)}"


def run_line(run: Run) -> str:
    gpus: dict[str, int] = {}
    devices = run.result.run["devices"]
    # A process may see all GPUs of its host, and work on one.
    used = {str(row["Device"]) for row in run.result.rows("window_sum", "Device")}
    for device in [device for device in devices if isinstance(device, dict) and str(device.get("id")) in used] or devices:
        name = device.get("name") if isinstance(device, dict) else None
        gpus[printable(str(name), 40)] = gpus.get(printable(str(name), 40), 0) + 1
    names = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in gpus.items()) or "no GPU listed"
    return (f"{printable(str(run.result.path), 80)} ({run.iterations} iterations, {run.seconds:.3f}s in {len(run.windows)} "
            f"window{'' if len(run.windows) == 1 else 's'}; {names})")


def how_normalised(comparison: Comparison) -> str:
    if comparison.basis is Basis.ITERATION:
        return "Totals are divided by the number of iterations in the windows, which may differ between runs."
    if comparison.basis is Basis.SECOND:
        return "One of the runs has no complete iterations: totals are per second of window, and do not show whether a step got faster."
    return "One of the runs has neither iterations nor windows: totals are not scaled, and depend on how long was profiled."


def differences(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    return [f"{what}: {a} | {b}" for what, a, b in differing(before, after)]


def differing(before: Sequence[Run], after: Sequence[Run]) -> list[tuple[str, str, str]]:
    """In what runs differ from the first one: what, the first one's, and their own. Of more than two runs, `what` names those."""
    first, *others = [run.result for run in (*before, *after)]
    found: dict[tuple[str, str, str], list[str]] = {}
    for other in others:
        for difference in _differing(first, other):
            found.setdefault(difference, []).append(printable(str(other.path), 80))
    return [(f"{what} ({', '.join(names[:_MOST_NAMED])}{', …' if len(names) > _MOST_NAMED else ''})" if len(others) > 1 else what, a, b)
            for (what, a, b), names in found.items()]


def _differing(before: Result, after: Result) -> list[tuple[str, str, str]]:
    """GPUs, versions, options, command lines and verdicts that differ: what, and each run's."""
    found = []

    def add(what: str, a: object, b: object) -> None:
        if a != b:
            found.append((printable(what, 60), _text(a), _text(b)))

    for what, field in (("GPU", "name"), ("GPU clock (kHz)", "clock_khz"), ("GPU memory clock (kHz)", "memory_clock_khz")):
        add(what, *(", ".join(str(device.get(field)) for device in result.run["devices"] if isinstance(device, dict))
                    for result in (before, after)))
    for field in ("host", "libinject"):
        add(field, before.run.get(field), after.run.get(field))
    for field, left_out in (("versions", ()), ("options", _OPTIONS_OF_NO_INTEREST)):
        a, b = (result.run.get(field) if isinstance(result.run.get(field), dict) else {} for result in (before, after))
        for key in sorted({*a, *b} - set(left_out)):
            add(key, a.get(key), b.get(key))
    add("processors allowed", *(_allowed(result) for result in (before, after)))
    add("command line", *(_command(result) for result in (before, after)))
    add("verdict", *(_verdict(result) for result in (before, after)))
    return found


def _text(value: object) -> str:
    return "not there" if value is None else printable(str(value), 200) or "nothing"


def _command(result: Result) -> str | None:
    line = result.run.get("command_line")
    return shlex.join(str(part) for part in line) if isinstance(line, list) else None


def _allowed(result: Result) -> str | None:
    allowed = figures.processors(result).allowed
    return None if allowed is None else f"{allowed:.10g}"


def _verdict(result: Result) -> str | None:
    """With what the input waits for, of an input-bound run."""
    verdicts = set()
    for part in result.run.get("diagnosis") or []:
        if isinstance(part, dict):
            evidence = part.get("evidence") if isinstance(part.get("evidence"), list) else []
            cause = next((each["cause"] for each in evidence if isinstance(each, dict) and each.get("kind") == part.get("verdict") and each.get("cause")), "")
            verdicts.add(f"{part.get('verdict')} ({cause})" if cause else str(part.get("verdict")))
    return ", ".join(sorted(verdicts)) or None


def caveats(runs: Iterable[Run]) -> list[str]:
    """Reasons why a run's figures may be misleading."""
    lines = []
    for run in runs:
        name = printable(run.result.name, 40)
        if not run.result.complete and run.result.run.get("state") != "recovered":
            lines.append(f"{name}: the run has not ended, or was killed: its last tables are compared")
        if run.result.stale:
            lines.append(f"{name}: {', '.join(printable(text, 40) for text in run.result.stale[:5])}{' …' if len(run.result.stale) > 5 else ''} "
                         f"older than the other tables: could not be rewritten")
        lost = run.result.lost()
        if lost:
            lines.append(f"{name}: lost: " + ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(lost.items())))
        if gaps := run.result.gaps():
            lines.append(f"{name}: killed, and not recovered completely: {'; '.join(RECOVERY_GAPS[kind] for kind in gaps)}")
        # Of iterations without the profiler there are seven at least where these are used.
        if run.iterations < 5 and run.basis is Basis.ITERATION and not run.unprofiled:
            lines.append(f"{name}: {run.iterations} complete iterations; at least five per run are needed to judge a change of step time")
        lines += [f"{name}: {note}" for note in run.notes]
    return lines
