# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""run.json compared with the tables: how the run ended, which files exist, windows, and losses."""

from __future__ import annotations

from collections.abc import Iterator

from libinject.check.folder import Folder, Place, is_others
from libinject.check.rules import ERROR, WARNING, rule
from libinject.check.sums import rows_of

# Raw records and samples grow with the run, and are not among the tables that are rewritten.
_RAW = {"cuda_gpu_trace.csv", "cuda_api_trace.csv", "library_trace.csv", "thread_cpu_trace.csv", "metric_samples.csv"}
_LOST = {"Lost Host Records": "host_records", "Lost Range Records": "range_records", "Lost Activity Records": "activity_records",
         "Invalid Timestamps": "invalid_timestamps", "Missing Activity Records": "missing_activity_records"}


@rule("state", WARNING, "The run is closed, or was recovered with all of its windows.")
def state(folder: Folder) -> Iterator[Place]:
    if folder.ended:
        return
    if folder.run.get("state") == "recovered":
        yield folder.in_run("state", "'recovered': the tables are those that the process last wrote, with a window open")
    else:
        yield folder.in_run("state", f"'{folder.run.get('state')}': the program still runs, or was killed (injectctl recover)")


@rule("files", ERROR, "The tables that run.json lists are there, and it lists the tables that are there.")
def files(folder: Folder) -> Iterator[Place]:
    listed = {name for name in folder.run["files"] if isinstance(name, str)}
    for name in sorted(listed - folder.names):
        yield folder.in_run("files", f"lists {name}, which is not there")
    # While a run is open, its tables exist before the run.json that lists them.
    if folder.ended:
        for name in sorted(folder.names - listed - _RAW):
            if name.endswith(".csv"):
                yield folder.in_run("files", f"does not list {name}")


@rule("write-errors", WARNING, "All files could be written.")
def write_errors(folder: Folder) -> Iterator[Place]:
    errors = folder.run.get("write_errors")
    for error in errors if isinstance(errors, list) else ():
        yield folder.in_run("write_errors", str(error))


@rule("stale-files", WARNING, "All tables are of the same write.")
def stale_files(folder: Folder) -> Iterator[Place]:
    stale = folder.run.get("stale_files")
    for name in stale if isinstance(stale, list) else ():
        yield folder.in_run("stale_files", f"{name} is older than run.json")


@rule("window-run", ERROR, "run.json and window_sum.csv say the same of each window.", compares=True)
def window_run(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Window", "Device", "State")
    if table is None:
        return
    told = {window["number"]: window for window in folder.run["windows"] if isinstance(window, dict) and isinstance(window.get("number"), int)}
    for index, (number,) in table.each("Window"):
        if table.cells("Device")[index] != "all":
            continue
        if number not in told:
            if not folder.run.get("windows_not_listed"):
                yield table.place(index, "Window", f"run.json does not list window {number}")
            continue
        window = told.pop(number)
        for column, member in (("Start (ns)", "start_ns"), ("End (ns)", "end_ns"), ("Duration (ns)", "duration_ns")):
            if table.has(column) and member in window and table.numbers(column)[index] not in (None, window[member]):
                yield table.place(index, column, f"{table.cells(column)[index]}, {window[member]} in run.json")
        for column, member in _LOST.items():
            lost = window.get("lost")
            if table.has(column) and isinstance(lost, dict) and member in lost and table.numbers(column)[index] not in (None, lost[member]):
                yield table.place(index, column, f"{table.cells(column)[index]}, {lost[member]} in run.json")
    if not any(map(is_others, table.cells("Window"))) and folder.ended:
        for number in told:
            yield folder.in_run("windows", f"lists window {number}, of which window_sum.csv has no row")


@rule("lost-sum", ERROR, "run.json counts at least what was lost in the windows.", compares=True)
def lost_sum(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Device")
    if table is None:
        return
    for column, member in _LOST.items():
        if table.has(column) and member in folder.run["lost"]:
            windows = table.sum(column, rows_of(table, "all"))
            if windows > folder.lost(member):
                yield folder.in_run(member, f"{folder.lost(member)}, {windows} in window_sum.csv")


@rule("missing-records", ERROR, "Where nothing was lost and no graph launched, each submission is one kernel, copy or memset whose launch was seen.", compares=True)
def missing_records(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Device", "Submissions", "Kernels", "Copies", "Memsets", "Unattributed")
    calls = folder.table("cuda_api_sum", "Name")
    if table is None or calls is None or folder.lost() or folder.run.get("messages") or folder.run.get("state") != "closed":
        return
    if any("Graph" in name for name in calls.cells("Name")) or folder.run.get("graph_kernels_without_call") or folder.option("API") == "off":
        return
    for index, (submitted, *work, unattributed) in table.each("Submissions", "Kernels", "Copies", "Memsets", "Unattributed"):
        if table.cells("Device")[index] == "all" and sum(work) - unattributed != submitted:
            yield table.place(index, "Submissions",
                              f"{submitted}, and {sum(work)} kernels, copies and memsets, {unattributed} of them unattributed")
