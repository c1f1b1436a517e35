# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Idle time by cause: over all windows, for each device, and by the lines of Python that the devices waited for."""

from __future__ import annotations

from libinject import figures
from libinject.page.parts import Plot, Section, Table, made_table, numbers
from libinject.page.values import clean, share, text_of
from libinject.report.lines import MEANINGS, is_line, place_of
from libinject.result import BadFile, Cell, Result, Row

_MOST_DEVICES = 8
_MOST_LINES = 12
# From docs/diagnosis.md, one line each.
CAUSES = {
    "Start-up": "before the window's first work on the device",
    "Synchronization": "the host waited for the device, and therefore launched late",
    "Copy Call": "the host was in a copy call",
    "Launch Call": "the host was in the launch call, or in a call of cuBLAS, cuDNN or NCCL",
    "Other Call": "the host was in another CUDA call",
    "Host Compute": "the host computed between calls: Python, the framework",
    "Host Wait": "the host waited for something other than the device: data, a lock, a file",
    "Other Stream": "the work waited for another stream, or for something outside this device",
    "Collective": "the work waited for a collective on another stream",
    "Queue": "the time the device takes from one piece of work to the next on a stream",
    "Graph": "the time the device takes from one piece of work to the next within a launch of a CUDA graph",
    "Unknown": "the launch of the next work was not seen",
}
COLOURS = {"Synchronization": "sync", "Copy Call": "copy", "Launch Call": "launch", "Other Call": "launch", "Host Compute": "launch",
            "Queue": "launch", "Host Wait": "input", "Collective": "comm"}
# For causes with the same colour.
PATTERNS = {"Other Call": "/", "Host Compute": "x", "Queue": ".", "Other Stream": "/", "Graph": ".", "Unknown": "x"}


def _lines_plot(rows: list[Row]) -> Plot | None:
    """The lines that the devices waited for longest, each by cause, without those whose bar would be too short to see."""
    lines = sorted((row for row in rows if is_line(row) and sum(numbers([row], "Idle Time (ns)")) > 0), key=lambda row: -sum(numbers([row], "Idle Time (ns)")))
    shown = [row for row in lines[:_MOST_LINES] if sum(numbers([row], "Idle Time (ns)")) >= 0.005 * sum(numbers(lines[:1], "Idle Time (ns)"))]
    total = sum(numbers(rows, "Idle Time (ns)"))
    names = [clean(place_of(row)) for row in shown]
    series = []
    for cause in CAUSES:
        values = [sum(numbers([row], f"Idle: {cause} (ns)")) for row in shown]
        if any(values):
            series.append({"name": cause, "names": names, "values": values, "colours": [COLOURS.get(cause, "rest")] * len(shown), "pattern": PATTERNS.get(cause, ""),
                           "notes": [f"{share(sum(numbers([row], 'Idle Time (ns)')), total)}% of the idle time, {sum(numbers([row], 'Gaps')):,} gaps" for row in shown]})
    return Plot("idle-lines", "Lines that the GPU waited for", "bars", {"title": "idle time", "unit": "ns"}, series, stacked=True) if series else None


def _lines_table(rows: list[Row]) -> Table | None:
    if not rows:
        return None
    causes = [f"Idle: {cause} (ns)" for cause in CAUSES]
    on = ("Place", "Time (%)", "Idle Time (ns)", "Gaps", *causes, "Own Work (ns)")
    columns = tuple(dict.fromkeys((*on, *rows[0])))
    # Columns that are 0 in all rows would take space from the others.
    columns = tuple(column for column in columns if column not in (*causes, "Own Work (ns)") or any(numbers([row], column) != [0] for row in rows))
    cells = [[{**row, "Place": place_of(row)}.get(column) for column in columns] for row in rows]
    return made_table("gap_line_sum", "Idle time by line", "gap_line_sum.csv", columns, cells, on=on, meanings=MEANINGS,
                      note="[device]: the host was not late. [none]: no line of the program, only libraries'. [unattributed]: not known.")


def section(result: Result) -> Section:
    part = Section("idle", "Idle time by cause", "Why no kernel and no copy ran: every gap between two pieces of work has one cause, summed up "
                   "over all windows.")
    times: dict[str, dict[str, int | float]] = {}
    totals: dict[str, int | float] = {}
    rows = [row for row in result.rows("window_sum", "Device", "Device Time (ns)") if row["Device"] != "all" and numbers([row], "Idle (ns)")]
    by_cause = [(row, figures.idle_causes(row)) for row in rows]
    if any(found is None or not numbers([row], "Device Time (ns)") for row, found in by_cause):
        result.add_problem(BadFile(result.path / "window_sum.csv", "a window's idle time is not what its causes add up to, or is of no known time: none is shown"))
        by_cause = []
    for row, found in by_cause:
        device = text_of(row["Device"])
        totals[device] = totals.get(device, 0) + sum(numbers([row], "Device Time (ns)"))
        of_device = times.setdefault(device, dict.fromkeys(CAUSES, 0))
        for cause in CAUSES:
            of_device[cause] += (found or {}).get(cause, 0)
    cells: list[list[Cell]] = []
    for device, causes in times.items():
        for cause, time in sorted(causes.items(), key=lambda item: -item[1]):
            if time:
                cells.append([cause, time, share(time, totals[device]), device, CAUSES[cause]])
    lines = result.rows("gap_line_sum", "File", "Line", "Function", "Idle Time (ns)")
    if not cells:
        return part.add(_lines_plot(lines), _lines_table(lines))
    devices = list(times)[:_MOST_DEVICES]
    shown = sorted((cause for cause in CAUSES if any(times[device][cause] for device in devices)),
                   key=lambda cause: -max(times[device][cause] for device in devices))
    part.add(Plot("idle", "Idle time", "bars", {"title": "idle time", "unit": "ns"}, [
        {"name": f"GPU {device}", "names": shown, "values": [times[device][cause] for cause in shown],
         "notes": [f"{share(times[device][cause], totals[device])}% of the device's time: {CAUSES[cause]}" for cause in shown],
         "colours": [COLOURS.get(cause, "rest") for cause in shown] if len(devices) == 1 else None} for device in devices]))
    return part.add(_lines_plot(lines), made_table("idle", "Idle time by cause", "window_sum.csv", ["Cause", "Idle (ns)", "Device Time (%)", "Device", "Meaning"], cells,
                                                   meanings={"Cause": "Of each gap there is one.", "Device Time (%)": "Share of the device's time.", "Meaning": "The rule, in short."}),
                    _lines_table(lines))
