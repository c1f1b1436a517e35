# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A typical training iteration on a timeline, and how long each kernel took: what a folder's raw records add to its tables."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from libinject import figures
from libinject.console import duration
from libinject.page.parts import Histograms, Section, Timeline
from libinject.page.values import clean
from libinject.report.records import Call, Records, Work
from libinject.result import BadFile, Result, Row

# {name, colour}; an event's kind is its place here.
_KINDS = (("kernel", "compute"), ("collective", "comm"), ("copy or memset", "copy"), ("launch call", "launch"), ("synchronizing call", "sync"),
          ("copy call", "copy"), ("other CUDA call", "rest"), ("library call", "input"))
_KERNEL, _COLLECTIVE, _COPY, _LAUNCH, _SYNC, _COPY_CALL, _OTHER, _LIBRARY = range(len(_KINDS))
_MOST_CANDIDATES = 5
MOST_EVENTS = 6000  # on the page, before short ones are joined
_MOST_HELD = 100_000  # while they are
_MOST_ROWS = 24
_MOST_LANES = 5  # calls inside calls; work that overlaps on a stream
MOST_KERNELS = 50
_LONGEST_NAME = 400
_MOST_NAMES = 100_000  # of kernels, while records are read
_PER_OCTAVE = 4  # bins of the histogram: each 19 % wider than the one before
_NO_RECORDS = "This folder has no raw records. INJECT_TRACE=csv writes them: one step on a timeline, and how each kernel's durations are spread, need them."


def bin_of(time: int) -> int:
    """Bin b has the durations from 2^(b/4) ns on, below 2^((b+1)/4); what took less than a nanosecond is in the first one."""
    return math.floor(_PER_OCTAVE * math.log2(time) + 1e-9) if time > 1 else 0


@dataclasses.dataclass
class _Step:
    """A complete iteration: what its calls submitted is its own."""

    row: Row
    time: float
    window: int
    start: int
    end: int  # on the host
    limit: float  # when the next window starts: correlation ids may begin anew
    submitted: dict[str, int] = dataclasses.field(default_factory=dict)  # by correlation id, when
    calls: int = 0
    kernels: int = 0
    work: int = 0
    last: int = 0  # when its last work ended

    def owns(self, work: Work) -> bool:
        return self.submitted.get(work.correlation, math.inf) <= work.start < self.limit

    @property
    def whole(self) -> bool:
        """As far as is known."""
        kernels = self.row.get("Kernels")
        return self.kernels == kernels if isinstance(kernels, (int, float)) else self.work > 0


def _candidates(result: Result) -> tuple[list[_Step], float]:
    """Those closest to the median first, and the median."""
    rows = [row for row in figures.complete_iterations(result) if all(isinstance(row.get(name), int) for name in ("Window", "Iteration", "Start (ns)", "Duration (ns)"))
            and row["Duration (ns)"] > 0]  # type: ignore[operator]
    if not rows:
        return [], 0
    times = [(float(time), row) for row in rows if isinstance(time := figures.step_time(row), (int, float))]
    # Where none has a step time, the host's is all there is.
    times = times or [(float(row["Duration (ns)"]), row) for row in rows]  # type: ignore[arg-type]
    median = statistics.median(time for time, _ in times)
    opened = sorted(start for row in figures.windows(result) if isinstance(start := row.get("Start (ns)"), int))
    steps = []
    for time, row in heapq.nsmallest(_MOST_CANDIDATES, times, key=lambda each: abs(each[0] - median)):
        start = row["Start (ns)"]
        steps.append(_Step(row, time, row["Window"], start, start + row["Duration (ns)"], next((at for at in opened if at > start), math.inf)))  # type: ignore[arg-type,operator]
    return steps, median


class _Spread:
    """Durations of kernels, by name, in bins."""

    def __init__(self) -> None:
        self.bins: dict[str, collections.Counter[int]] = {}
        self.left_out = 0

    def add(self, work: Work) -> None:
        bins = self.bins.get(work.name)
        if bins is None:
            if len(self.bins) == _MOST_NAMES:
                self.left_out += 1
                return
            bins = self.bins[work.name] = collections.Counter()
        bins[bin_of(work.duration)] += 1


def _read(records: Records, steps: list[_Step], spread: _Spread) -> None:
    """What the steps submitted, what of it ran, and each kernel's durations. May raise BadFile."""
    for call in records.calls() if steps else ():
        for step in steps:
            if step.start <= call.start < step.end:
                step.calls += 1
                if call.correlation:
                    step.submitted.setdefault(call.correlation, call.start)
    for work in records.work():
        if work.is_kernel:
            spread.add(work)
        for step in steps:
            if step.owns(work) if step.submitted else step.start <= work.start < step.end:
                step.work += 1
                step.kernels += work.is_kernel
                step.last = max(step.last, work.start + work.duration)


def _kind(event: Work | Call) -> int:
    if isinstance(event, Work):
        return _COPY if not event.is_kernel else _COLLECTIVE if event.name.startswith("nccl") else _KERNEL
    if event.is_library:
        return _LIBRARY
    if "Synchronize" in event.name:
        return _SYNC
    if "Memcpy" in event.name:
        return _COPY_CALL
    return _LAUNCH if "Launch" in event.name or "Memset" in event.name else _OTHER


def _longest(events: Iterable[Work | Call], most: int) -> tuple[list[Work | Call], int]:
    """And how many there are besides."""
    kept: list[Work | Call] = []
    left_out = 0
    for event in events:
        kept.append(event)
        if len(kept) > 4 * most:
            left_out += len(kept) - most
            kept = heapq.nlargest(most, kept, key=lambda each: each.duration)
    left_out += max(0, len(kept) - most)
    return heapq.nlargest(most, kept, key=lambda each: each.duration) if len(kept) > most else kept, left_out


def _lanes(events: list[Work | Call]) -> tuple[list[list[Work | Call]], int]:
    """Beside each other what overlaps, the longer first; and how many found no lane."""
    lanes: list[list[Work | Call]] = []
    ends: list[int] = []
    left_out = 0
    for event in sorted(events, key=lambda each: (each.start, -each.duration)):
        at = next((at for at, end in enumerate(ends) if end <= event.start), len(ends))
        if at == _MOST_LANES:
            left_out += 1
            continue
        if at == len(ends):
            lanes.append([])
            ends.append(0)
        lanes[at].append(event)
        ends[at] = event.start + event.duration
    return lanes, left_out


class _Part(NamedTuple):
    """An event of a lane, or several that follow each other, of which each is short."""

    start: int
    end: int
    longest: Work | Call
    own: int
    count: int
    busy: int


def _joined(lane: list[_Part], short: float) -> list[_Part]:
    """Those below `short` with their neighbours, in parts of at most eight times that."""
    parts: list[_Part] = []
    for part in lane:
        last = parts[-1] if parts else None
        if last and last.own == part.own and max(last.busy // last.count, part.busy // part.count, part.start - last.end) < short and part.end - last.start < 8 * short:
            parts[-1] = _Part(last.start, part.end, max(last.longest, part.longest, key=lambda event: event.duration), part.own, last.count + part.count,
                              last.busy + part.busy)
        else:
            parts.append(part)
    return parts


def _timeline(records: Records, step: _Step) -> tuple[Timeline, int]:
    """And how many events it leaves out. May raise BadFile."""
    end = max(step.end, step.last)
    overlaps = (event for source in (records.work(), records.calls()) for event in source if event.start < end and event.start + event.duration > step.start)
    events, left_out = _longest(overlaps, _MOST_HELD)
    groups: dict[tuple[int, str, str], list[Work | Call]] = collections.defaultdict(list)
    for event in events:
        groups[(0, event.device, event.stream) if isinstance(event, Work) else (1, event.thread, "")].append(event)
    # GPUs before threads, each by its number, of which those with most to do come first.
    busy = {key: sum(event.duration for event in group) for key, group in groups.items()}
    shown = sorted(heapq.nlargest(_MOST_ROWS, groups, key=lambda key: busy[key]), key=lambda key: (key[0], key[1] if key[0] == 0 else "", -busy[key]))
    left_out += sum(len(group) for key, group in groups.items() if key not in shown)
    lanes: list[list[list[_Part]]] = []
    for key in shown:
        of_row, without = _lanes(groups[key])
        left_out += without
        lanes.append([[_Part(event.start, event.start + event.duration, event, int(step.owns(event) if isinstance(event, Work) and step.submitted else
                                                                                 step.start <= event.start < step.end), 1, event.duration)
                       for event in lane] for lane in of_row])
    short = (end - step.start) / 2**16
    while sum(len(lane) for of_row in lanes for lane in of_row) > MOST_EVENTS:
        lanes = [[_joined(lane, short) for lane in of_row] for of_row in lanes]
        short *= 2
    names: dict[str, int] = {}
    rows = []
    for key, of_row in zip(shown, lanes):
        rows.append({
            "name": f"GPU {clean(key[1], 20)}, stream {clean(key[2], 20)}" if key[0] == 0 else records.thread_name(key[1]),
            "lanes": [[field for part in lane for field in (
                part.start - step.start, part.end - part.start, names.setdefault(part.longest.name, len(names)), _kind(part.longest), part.own, part.count,
                part.busy)] for lane in of_row]})
    return Timeline("step", f"Iteration {step.row['Iteration']} in window {step.window}", records.file, end - step.start, step.end - step.start,
                    [{"name": name, "colour": colour} for name, colour in _KINDS], [clean(name, _LONGEST_NAME) for name in names], rows), left_out


def _step_notes(step: _Step, median: float, left_out: int, timeline: Timeline) -> list[str]:
    took = duration(step.time) + (f", and {duration(step.end - step.start)} on the host" if round(step.time) != step.end - step.start else "")
    notes = [f"Of the complete iterations in windows, this one is closest to the median: it took {took}; the median is "
             f"{duration(median)}." if step.whole or not step.submitted else
             f"This iteration took {took}; the median of the complete ones is {duration(median)}. The records have {step.kernels:,} of its "
             f"{step.row.get('Kernels')} kernels."]
    if step.last > step.end:
        notes.append(f"The GPU ended its work {duration(step.last - step.end)} after the host had gone on to the next iteration.")
    if not step.calls:
        notes.append("There are no records of calls, so the work that ran meanwhile is shown.")
    lanes = [lane for row in timeline.rows for lane in row["lanes"]]
    if joined := sum(count for lane in lanes for count in lane[5::7] if count > 1):
        notes.append(f"{joined:,} short events are drawn with their neighbours, and can't be told apart.")
    if any(0 in lane[4::7] for lane in lanes):
        notes.append("Events drawn pale belong to another iteration.")
    if left_out:
        notes.append(f"{left_out:,} records are left out: of further streams and threads, and of calls inside calls.")
    return notes


def _kernel(row: Row, bins: collections.Counter[int] | None) -> dict[str, Any]:
    first, last = (min(bins), max(bins)) if bins else (0, -1)
    return {"name": clean(str(row["Name"])), "count": row["Instances"], "total": row["Total Time (ns)"], "mean": row.get("Avg (ns)"), "median": row.get("Med (ns)"),
            "min": row["Min (ns)"], "max": row["Max (ns)"], "first": first, "bins": [bins[at] for at in range(first, last + 1)] if bins else []}


def _durations(result: Result, spread: _Spread) -> tuple[Histograms | None, list[str]]:
    rows = [row for row in result.rows("cuda_gpu_kern_sum", "Name", "Total Time (ns)", "Instances")
            if all(isinstance(row.get(name), int) and row[name] >= 0 for name in ("Total Time (ns)", "Instances", "Min (ns)", "Max (ns)"))  # type: ignore[operator]
            and row["Min (ns)"] <= row["Max (ns)"]]  # type: ignore[operator]
    rows = heapq.nlargest(MOST_KERNELS, rows, key=lambda row: row["Total Time (ns)"])  # type: ignore[arg-type,return-value]
    if not rows:
        return None, []
    recorded = [spread.bins.get(str(row["Name"])) for row in rows]
    notes = []
    incomplete = sum(bins is not None and sum(bins.values()) != row["Instances"] for row, bins in zip(rows, recorded))
    if incomplete:
        notes.append(f"Of {incomplete} of these kernels the records do not have as many executions as the table: their bars show those that there are.")
    return Histograms("durations", "Durations by kernel", "cuda_gpu_kern_sum.csv", _PER_OCTAVE,
                      [_kernel(row, bins) for row, bins in zip(rows, recorded)]), notes


def sections(result: Result) -> list[Section]:
    """The timeline, and the durations."""
    step_part = Section("step", "One step on a timeline", "What ran on each stream of the GPUs, and what each thread called, in a typical iteration.")
    spread_part = Section("durations", "Durations of kernels", "How long each execution of a kernel took.")
    records, spread = Records(result), _Spread()
    steps, median = _candidates(result)
    try:
        if records.there:
            _read(records, steps, spread)
            if chosen := next((step for step in steps if step.whole), None) or max(steps, key=lambda step: step.work, default=None):
                timeline, left_out = _timeline(records, chosen)
                step_part.add(timeline if timeline.rows else None)
                step_part.notes += _step_notes(chosen, median, left_out, timeline) if timeline.rows else ["The records have nothing of a complete iteration."]
            else:
                step_part.notes.append("No iteration is complete in a window, so there is none to show.")
        else:
            step_part.notes.append(_NO_RECORDS)
    except BadFile as problem:
        result.add_problem(problem)
    histograms, notes = _durations(result, spread)
    spread_part.add(histograms)
    spread_part.notes += notes
    if histograms and not any(kernel["bins"] for kernel in histograms.kernels):
        spread_part.notes.append("The tables have shortest, median, mean and longest; with INJECT_TRACE=csv there are bars of how many took how long.")
    return [step_part, spread_part]
