# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Hardware metrics over time. There may be millions of samples, so neighbours are merged into one point with their mean."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import Plot, Section
from libinject.page.values import clean, text_of
from libinject.report.transfers import windows_over_time
from libinject.result import BadFile, Result, as_number, read_rows

_MOST_POINTS = 1024
_MOST_DEVICES = 8
_OF_ACTIVE = ("IPC", "Occupancy (%)")  # per active cycle: means are weighted with SM Active (docs/metrics.md)


class Timeline:
    """The samples of a device as at most twice _MOST_POINTS points, each the mean of `each` samples weighted by their length. There are
    none between windows: no point has samples from both sides of a gap, and `gaps` lists the points that follow one."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self.each = 1
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.sums: list[list[float]] = []
        self.weights: list[list[float]] = []
        self.gaps: list[bool] = []
        self.left_out = 0  # samples of further windows, if windows alone outnumber the points
        self._counts: list[int] = []
        self._of_active = [column in _OF_ACTIVE for column in columns]
        self._active = columns.index("SM Active (%)") if "SM Active (%)" in columns else None

    def add(self, start: float, end: float, values: list[float | None]) -> None:
        if self.left_out:
            self.left_out += 1
            return
        gap = bool(self.ends) and start > self.ends[-1] + (end - start)
        if len(self.starts) == 2 * _MOST_POINTS and (gap or self._counts[-1] >= self.each):
            self._halve()
        if gap or not self.starts or self._counts[-1] >= self.each:
            if len(self.starts) == 2 * _MOST_POINTS:
                self.left_out = 1
                return
            self.starts.append(start)
            self.ends.append(end)
            self.sums.append([0.0] * len(values))
            self.weights.append([0.0] * len(values))
            self.gaps.append(gap)
            self._counts.append(0)
        self._counts[-1] += 1
        self.ends[-1] = end
        sums, weights = self.sums[-1], self.weights[-1]
        length = float(end - start)
        active = values[self._active] if self._active is not None else None
        for at, value in enumerate(values):
            if value is not None:
                weight = length if active is None or not self._of_active[at] else length * active
                sums[at] += weight * value
                weights[at] += weight

    def _halve(self) -> None:
        """Halves the number of points until they fit, or each window is one point."""
        before = len(self.starts)
        while len(self.starts) == before and self.each < 1 << 40:
            self.each *= 2
            kept: list[int] = []
            for at in range(before):
                if not kept or self.gaps[at] or self._counts[kept[-1]] + self._counts[at] > self.each:
                    kept.append(at)
                    continue
                into = kept[-1]
                self.ends[into] = self.ends[at]
                self._counts[into] += self._counts[at]
                for lists in (self.sums, self.weights):
                    lists[into] = [a + b for a, b in zip(lists[into], lists[at])]
            for name in ("starts", "ends", "sums", "weights", "gaps", "_counts"):
                values = getattr(self, name)
                setattr(self, name, [values[at] for at in kept])

    def means(self, at: int) -> list[float | None]:
        return [round(sums[at] / weights[at], 3) if weights[at] else None for sums, weights in zip(self.sums, self.weights)]


def _number(cell: Any) -> float | None:
    """Columns of a user's own list have names that do not tell the unit."""
    if isinstance(cell, (int, float)):
        return cell
    try:
        return as_number(cell) if cell else None
    except ValueError:
        return None


def timelines(result: Result) -> dict[str, Timeline]:
    """By device; empty if there are no samples, or they can't be read (see the result's problems)."""
    path = result.path / "metric_samples.csv"
    if not path.exists() or path.is_file() and path.stat().st_size == 0:  # empty: no sample was taken
        return {}
    found: dict[str, Timeline] = {}
    try:
        rows = read_rows(path)
        header = [str(name) for name in next(rows)]
        if header[:3] != ["Device", "Start (ns)", "End (ns)"]:
            raise BadFile(path, "the first columns are not Device, Start (ns), End (ns)", 1)
        for device, start, end, *cells in rows:
            if isinstance(start, int) and isinstance(end, int) and end > start:
                name = text_of(device)
                if name not in found and len(found) == _MOST_DEVICES:
                    continue
                found.setdefault(name, Timeline(header[3:])).add(start, end, [cell if isinstance(cell, float) else _number(cell) for cell in cells])
    except BadFile as problem:
        result.problems.append(str(problem))
        return {}
    return found


def _unit(column: str) -> str:
    return column[column.rfind("(") + 1 : -1] if column.endswith(")") and "(" in column else ""


def section(result: Result) -> Section:
    part = Section("metrics", "Hardware metrics over time", "The GPU's own counters while windows were open (shaded), sample by sample.")
    found = timelines(result)
    for device, timeline in found.items():
        times: list[float | None] = []
        places: list[int | None] = []  # None: the line is interrupted
        for at, (start, end, gap) in enumerate(zip(timeline.starts, timeline.ends, timeline.gaps)):
            times += [None] * gap + [(start + end) / 2]
            places += [None] * gap + [at]
        # One unit per axis: whether two columns without a unit have one in common is unknown.
        units: dict[tuple[str, str], list[int]] = {}
        for at, column in enumerate(timeline.columns):
            unit = _unit(column)
            units.setdefault((unit, "" if unit else column), []).append(at)
        for (unit, _), columns in units.items():
            means = {at: timeline.means(at) for at in columns}
            series = [{"name": clean(timeline.columns[at].removesuffix(f" ({unit})")), "x": times, "lines": True, "plain": True,
                       "y": [None if place is None else means[at][place] for place in places]}
                      for at in columns if means[at].count(None) < len(means[at])]
            if series:
                name = series[0]["name"]
                part.add(Plot(f"metrics-{len(part.plots)}", f"GPU {device}: " + (f"metrics in {unit}" if unit else name), "points",
                              {"title": "time since CUDA's initialisation", "unit": "ns"}, series, {"title": unit or name, "zero": True},
                              bands=windows_over_time(result)))
        if timeline.each > 1:
            part.notes.append(f"Each point of GPU {device} is the mean of {timeline.each} samples, or of a window's samples if it has fewer.")
        if timeline.left_out:
            part.notes.append(f"GPU {device}: {timeline.left_out} samples of further windows are not drawn.")
    if not found and isinstance(result.run.get("metrics"), dict):
        part.notes.append("Metrics were sampled, but the samples were not written: set INJECT_METRICS_TIMELINE=1. The means are in the "
                          "tables of windows and iterations.")
    return part
