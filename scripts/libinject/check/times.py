# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Times of windows, devices and iterations, also compared with the raw records: upper bounds and sums."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Iterator, Sequence

from libinject.check.folder import Folder, Number, Place, Table, is_others, named, number_of
from libinject.check.rows import APART
from libinject.check.rules import ERROR, WARNING, rule
from libinject.check.sums import IDLE_CAUSES, idle_columns, rows_of, without_devices
from libinject.figures import FEWEST_STEPS
from libinject.result import printable

_FETCHES = ("Waiting", "Processing")
_MOST_AT_ONCE = 128  # kernels that a device can run concurrently
_MOST_STEPS = 1000  # rows of step_times
# With these losses, a device's work or time is incomplete.
_UNKNOWN_WORK = ("busy_time_records", "device_time_records", "activity_records", "invalid_timestamps", "missing_activity_records")
_UNIT_STEP = 5e-7  # of units of work: half of the last decimal
_MOST_EXACT = 1024  # number of values up to which a median is exact


def _window_tables(folder: Folder) -> Iterator[Table]:
    for name in ("window_sum", "iteration_sum"):
        if (table := folder.table(name, "Device")) is not None:
            yield table


@rule("window-time", ERROR, "A window ends after it starts, its duration is the time between, and windows follow each other by number.")
def window_time(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Window", "Device", "Start (ns)", "End (ns)", "Duration (ns)")
    if table is None:
        return
    before = None
    for index, (start, end, duration) in table.each("Start (ns)", "End (ns)", "Duration (ns)"):
        if end < start:
            yield table.place(index, "End (ns)", f"{end} is before the start, {start}")
        elif duration != end - start:
            yield table.place(index, "Duration (ns)", f"{duration} is not {end} - {start}, which is {end - start}")
        number = table.numbers("Window")[index]
        if number is None:
            continue
        if before is not None and number != before[0] and (number < before[0] or start < before[1]):
            yield table.place(index, "Window", f"window {number} from {start} on comes after window {before[0]} of {before[1]}")
        before = number, start


@rule("busy", ERROR, "A GPU is busy no longer than from its first to its last work, nor than all its work takes.")
def busy(folder: Folder) -> Iterator[Place]:
    for table in _window_tables(folder):
        for index, (time, *work) in table.each("GPU Busy (ns)", "Kernel Time (ns)", "Copy Time (ns)", "Memset Time (ns)"):
            if time > sum(work):
                yield table.place(index, "GPU Busy (ns)", f"{time} is more than its work takes, {sum(work)}")
        devices = table.cells("Device")
        for index, (time, span) in table.each("GPU Busy (ns)", "GPU Span (ns)"):
            # Busy times of several devices add up.
            if devices[index] != "all" and time > span:
                yield table.place(index, "GPU Busy (ns)", f"{time} is more than the time from the first work to the last, {span}")
        for index, (time, span, duration, value) in table.each("GPU Busy (ns)", "GPU Span (ns)", "Duration (ns)", "GPU Busy (%)"):
            whole = max(span, duration)
            if devices[index] != "all" and whole and abs(value - 100 * time / whole) > table.half(index, "GPU Busy (%)") + 1e-6:
                yield table.place(index, "GPU Busy (%)", f"{value} is not {time} of {whole}")


@rule("kernel-busy", ERROR, "Kernel Busy exceeds neither the sum of the kernels' times, nor GPU Busy, nor Device Time.")
def kernel_busy(folder: Folder) -> Iterator[Place]:
    for table in _window_tables(folder):
        whole = ("Kernel Time (ns)", *(["Device Time (ns)"] if table.has("Device Time (ns)") else []),
                 *([] if folder.lost("busy_time_records") else ["GPU Busy (ns)"]))
        for column in whole:
            for index, (time, most) in table.each("Kernel Busy (ns)", column):
                if time > most:
                    yield table.place(index, "Kernel Busy (ns)", f"{time} is more than {column}, {most}")


@rule("device-time", ERROR, "A device's time is that of kernels, of copies alone and idle time; the first two are the GPU's busy time, but for copies ahead of the first kernel.")
def device_time(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum")
    if table is None:
        return
    for index, (whole, *parts) in table.each("Device Time (ns)", "Kernel Busy (ns)", "Copy Only (ns)", "Idle (ns)"):
        if whole != sum(parts):
            yield table.place(index, "Device Time (ns)", f"{whole} is not {' + '.join(map(str, parts))}, which is {sum(parts)}")
    if not folder.lost("busy_time_records", "device_time_records"):
        for index, (whole, *parts, copies, memsets) in table.each("GPU Busy (ns)", "Kernel Busy (ns)", "Copy Only (ns)", "Copy Time (ns)", "Memset Time (ns)"):
            if not 0 <= whole - sum(parts) <= copies + memsets:
                yield table.place(index, "GPU Busy (ns)", f"{whole} is not {parts[0]} + {parts[1]} of kernels and copies alone")


@rule("device-span", ERROR, "A device's time covers its work in the window, except copies ahead of the first kernel, and is no less than the window.")
def device_span(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Device")
    if table is None:
        return
    ahead = {index for index, (busy, *parts) in table.each("GPU Busy (ns)", "Kernel Busy (ns)", "Copy Only (ns)") if busy > sum(parts)}
    for column in ("Duration (ns)", "GPU Span (ns)"):
        for index, (whole, part) in table.each("Device Time (ns)", column):
            if column == "GPU Span (ns)" and index in ahead:
                continue
            if table.cells("Device")[index] != "all" and whole < part and not folder.lost(*_UNKNOWN_WORK):
                yield table.place(index, "Device Time (ns)", f"{whole} is less than {column}, {part}")


@rule("diagnosis-sum", ERROR, "The diagnosis in run.json is of the sums over the windows.", compares=True)
def diagnosis_sum(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Window", "Device")
    devices = folder.run.get("diagnosis")
    if table is None or not isinstance(devices, list) or without_devices(table):
        return
    for told in devices:
        if not isinstance(told, dict):
            continue
        rows = table.rows_by("Device").get(str(told.get("device")))
        idle = told.get("idle_ns") if isinstance(told.get("idle_ns"), dict) else {}
        pairs = [("Device Time (ns)", told.get("device_time_ns")), ("Kernel Busy (ns)", told.get("kernel_busy_ns")),
                 ("Copy Only (ns)", told.get("copy_only_ns")), ("Exposed Collective (ns)", told.get("exposed_collective_ns")),
                 *((f"Idle: {cause} (ns)", idle.get(cause, 0)) for cause in IDLE_CAUSES)]
        for column, value in pairs:
            if rows and isinstance(value, int) and table.has(column) and table.sum(column, rows) != value:
                yield folder.in_run("diagnosis",
                                    f"{column} of device {told.get('device')} is {value}, {table.sum(column, rows)} in {table.path.name}")


@rule("idle-sum", ERROR, "The idle time by cause adds up to the idle time.")
def idle_sum(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", "Idle (ns)")
    if table is None:
        return
    for index, (whole, *parts) in table.each("Idle (ns)", *idle_columns(table)):
        if whole != sum(parts):
            yield table.place(index, "Idle (ns)", f"{whole}, {sum(parts)} by cause")


@rule("own-work", ERROR, "The host's own work is part of host compute. The rest of it, calls and the queue are the launch-bound share of the device's time.")
def own_work(folder: Folder) -> Iterator[Place]:
    for name in ("window_sum", "gap_line_sum"):
        table = folder.table(name, "Own Work (ns)", "Idle: Host Compute (ns)")
        for index, (own, compute) in table.each("Own Work (ns)", "Idle: Host Compute (ns)") if table is not None else ():
            if own > compute:
                yield table.place(index, "Own Work (ns)", f"{own} is more than host compute, {compute}")
    column = "Launch-bound (%)"
    table = folder.table("window_sum", column, "Own Work (ns)")
    causes = [f"Idle: {cause} (ns)" for cause in ("Launch Call", "Other Call", "Queue", "Host Compute")]
    for index, (value, own, whole, *parts) in table.each(column, "Own Work (ns)", "Device Time (ns)", *causes) if table is not None else ():
        if whole and abs(value - 100 * (sum(parts) - own) / whole) > table.half(index, column) + 1e-6:
            yield table.place(index, column, f"{value} is not {sum(parts)} without {own}, of {whole}")


# Whether GPU-bound (compute) is bounded depends on which kernels use tensor cores.
_BOUNDED = {"GPU-bound (memory)", "GPU-bound (latency)", "launch-bound", "synchronization-bound", "input-bound", "copy-bound", "communication-bound", "mixed"}
_UNBOUNDED = {"", "GPU-bound", "undetermined", "too short"}


def _contradicts(verdict: str, known: bool) -> bool:
    return known if verdict in _UNBOUNDED else verdict in _BOUNDED and not known


@rule("gain", ERROR, "The potential gain is known if the verdict bounds it, and empty if nothing does.")
def gain(folder: Folder) -> Iterator[Place]:
    column = "Potential Gain (%)"
    table = folder.table("window_sum", "Verdict", column)
    for index, verdict in enumerate(table.texts("Verdict") if table is not None else ()):
        cell = table.cells(column)[index]
        if _contradicts(verdict, bool(cell)):
            yield table.place(index, column, f"{printable(cell, 40) or 'empty'}, where the verdict is '{verdict}'")
    for told in folder.run["diagnosis"] if isinstance(folder.run.get("diagnosis"), list) else ():
        if isinstance(told, dict) and isinstance(verdict := told.get("verdict"), str):
            known = told.get("potential_gain_ns") is not None
            if _contradicts(verdict, known):
                yield folder.in_run("diagnosis", f"the gain of device {printable(str(told.get('device')), 40)} is {'known' if known else 'left out'}, "
                                                 f"where the verdict is '{verdict}'")


@rule("utilization", ERROR, "GPU Utilization is the share of the device's time in which kernels run.")
def utilization(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum")
    if table is None:
        return
    column = "GPU Utilization (%)"
    for index, (value, part, whole) in table.each(column, "Kernel Busy (ns)", "Device Time (ns)"):
        if whole and abs(value - 100 * part / whole) > table.half(index, column) + 1e-6:
            yield table.place(index, column, f"{value} is not {part} of {whole}, which is {100 * part / whole:.2f} %")
    column = "Utilization w/o Overhead (%)"
    for index, (value, part, whole) in table.each(column, "Kernel Busy (ns)", "Device Time w/o Overhead (ns)"):
        if whole and abs(value - 100 * part / whole) > table.half(index, column) + 1e-6:
            yield table.place(index, column, f"{value} is not {part} of {whole}, which is {100 * part / whole:.2f} %")
    for index, (less, whole) in table.each("Device Time w/o Overhead (ns)", "Device Time (ns)"):
        if less > whole:
            yield table.place(index, "Device Time w/o Overhead (ns)", f"{less} is more than {whole}")
    for column in ("Utilization w/o Overhead", "Launch-bound w/o Overhead"):
        for index, (low, value, high) in table.each(f"{column} Low (%)", f"{column} (%)", f"{column} High (%)"):
            if not low <= value <= high:
                yield table.place(index, f"{column} (%)", f"{value} is not within {low} … {high}")


@rule("concurrency", ERROR, "Kernel Concurrency is the kernels' time divided by Kernel Busy, and no device runs more than 128 at once.")
def concurrency(folder: Folder) -> Iterator[Place]:
    column = "Kernel Concurrency"
    if (table := folder.table("window_sum", column)) is not None:
        for index, (value, time, part) in table.each(column, "Kernel Time (ns)", "Kernel Busy (ns)"):
            if value > _MOST_AT_ONCE:
                yield table.place(index, column, f"{value} kernels at once")
            elif part and not folder.lost(*_UNKNOWN_WORK) and abs(value - time / part) > table.half(index, column) + 1e-6:
                yield table.place(index, column, f"{value} is not {time} by {part}, which is {time / part:.3f}")


@rule("overlap", ERROR, "The time in which work runs alone or overlaps with other work is no longer than the times it is part of.")
def overlap(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum")
    if table is None:
        return
    for part, whole in (("Exposed Collective (ns)", ("Kernel Busy (ns)",)), ("Copy Only (ns)", ("Copy Time (ns)", "Memset Time (ns)")),
                        ("H2D Busy (ns)", ("Copy Time (ns)",)), ("D2H Busy (ns)", ("Copy Time (ns)",))):
        for index, (time, *most) in table.each(part, *whole):
            if time > sum(most):
                yield table.place(index, part, f"{time} is more than {' and '.join(whole)}, {sum(most)}")
    for index, (taken, kernels, exposed) in table.each("Taken by Collectives (ns)", "Kernel Busy (ns)", "Exposed Collective (ns)"):
        if taken > kernels - exposed:
            yield table.place(index, "Taken by Collectives (ns)", f"{taken} is more than other kernels run, {kernels} - {exposed}")


@rule("fetch-time", ERROR, "The time in fetches is no longer than the iteration or window, and the idle time in them no longer than all for input.")
def fetch_time(folder: Folder) -> Iterator[Place]:
    fetches = [f"Fetch: {kind} (ns)" for kind in _FETCHES]
    idle = [f"Input in Fetch: {kind} (ns)" for kind in _FETCHES]
    windows = folder.table("window_sum")
    own = "Own Work (ns)" if windows is not None and windows.has("Own Work (ns)") else "Idle: Host Compute (ns)"
    causes = ("Idle: Host Wait (ns)", own)
    for name, parts, wholes in (("iteration_sum", fetches, ("Duration (ns)",)), ("window_sum", fetches, ("Duration (ns)",)),
                                ("window_sum", idle, causes)):
        table = folder.table(name, *parts, *wholes)
        if table is None:
            continue
        for index, (waiting, processing, *most) in table.each(*parts, *wholes):
            if waiting + processing > sum(most):
                yield table.place(index, parts[0], f"{waiting} and {processing} are more than {' and '.join(wholes)}, {sum(most)}")


_CODE_PHASES = [f"{phase} (ns)" for phase in ("Forward", "Backward", "Recomputation", "Optimizer", "Other")]


@rule("code-time", ERROR, "The self time of an operator, module or line is no more than its total, to which the phases add up; what is bound, and of known FLOPs, is part of it.")
def code_time(folder: Folder) -> Iterator[Place]:
    for name in ("op_sum", "module_sum", "line_sum"):
        table = folder.table(name, "Self Time (ns)", "Total Time (ns)", *_CODE_PHASES)
        if table is None:
            continue
        for index, (self_time, total, *phases) in table.each("Self Time (ns)", "Total Time (ns)", *_CODE_PHASES):
            if self_time > total:
                yield table.place(index, "Self Time (ns)", f"{self_time} is more than the total, {total}")
            if sum(phases) != total:
                yield table.place(index, "Total Time (ns)", f"{total} is not the sum of the phases, {sum(phases)}")
        limits = ("Compute-bound (ns)", "Memory-bound (ns)", "Latency-bound (ns)")
        if table.has("FLOP Time (ns)", *limits):
            for index, (total, flops, *bound) in table.each("Total Time (ns)", "FLOP Time (ns)", *limits):
                if flops > total:
                    yield table.place(index, "FLOP Time (ns)", f"{flops} is more than the total, {total}")
                if sum(bound) > total:
                    yield table.place(index, "Total Time (ns)", f"{total} is less than what is bound, {sum(bound)}")
    # A row without a file has kernels launched only by lines of libraries.
    if (table := folder.table("line_sum", "File", "User Code Time (ns)", "Total Time (ns)")) is not None:
        files = table.cells("File")
        for index, (user, total) in table.each("User Code Time (ns)", "Total Time (ns)"):
            if files[index] and user > total:
                yield table.place(index, "User Code Time (ns)", f"{user} is more than the total, {total}")


@rule("iteration-time", ERROR, "A window's iterations are numbered upwards, lie in the window, and do not overlap.", compares=True)
def iteration_time(folder: Folder) -> Iterator[Place]:
    table = folder.table("iteration_sum", "Window", "Iteration", "Label", "Device", "Start (ns)", "Duration (ns)")
    if table is None:
        return
    spans = {}
    windows = folder.table("window_sum", "Window", "Device")
    if windows is not None:
        spans = {windows.numbers("Window")[index]: (start, end) for index, (start, end) in windows.each("Start (ns)", "End (ns)")}
    labels, devices = table.cells("Label"), table.cells("Device")
    complete = table.cells("Complete") if table.has("Complete") else None
    last_number: dict[int, tuple[int, bool]] = {}
    last_end: dict[int, int] = {}
    for index, (window, start, duration) in table.each("Window", "Start (ns)", "Duration (ns)"):
        if devices[index] != "all" or labels[index] == "outside":
            continue
        if window in spans and not spans[window][0] <= start <= start + duration <= spans[window][1]:
            yield table.place(index, "Start (ns)",
                              f"{start} for {duration} is not in window {window}, {spans[window][0]} to {spans[window][1]}")
        if start < last_end.get(window, start):
            yield table.place(index, "Start (ns)", f"{start} is before the end of the one before, {last_end[window]}")
        last_end[window] = start + duration
        number = table.numbers("Iteration")[index]
        if number is not None:
            # A partial iteration may have the same number as the one that follows it (docs/iterations.md).
            before, piece = last_number.get(window, (-1, False))
            if number < before or number == before and not piece:
                yield table.place(index, "Iteration", f"{number} comes after {before}")
            last_number[window] = number, complete is not None and complete[index] == "0"


def _step_times(table: Table) -> Sequence[Number | None]:
    """None for tables of older versions, which only have durations."""
    return table.numbers("Step Time (ns)") if table.has("Step Time (ns)") else [None] * len(table)


def _ran_ahead(table: Table, index: int) -> bool:
    """Whether the row may be an iteration in which the host ran ahead of the GPU."""
    return _step_times(table)[index] != table.numbers("Duration (ns)")[index]


@rule("iteration-count", ERROR, "A window has as many iterations as complete rows, and its samples per second follow from their median.", compares=True)
def iteration_count(folder: Folder) -> Iterator[Place]:
    table = folder.table("iteration_sum", "Window", "Label", "Complete", "Device", "Duration (ns)")
    windows = folder.table("window_sum", "Window", "Device", "Iterations")
    if table is None:
        return
    labels, devices = table.cells("Label"), table.cells("Device")
    complete: dict[str, list] = collections.defaultdict(list)
    batch = number_of(folder.option("BATCH"))
    for index, (whole, duration) in table.each("Complete", "Duration (ns)"):
        if whole not in (0, 1):
            yield table.place(index, "Complete", f"{whole} is neither 0 nor 1")
        if whole == 1 and labels[index] == "iteration" and devices[index] == "all":
            of_window = complete[table.cells("Window")[index]]
            of_window.append(_step_times(table)[index])
            value = table.numbers("Samples/s")[index] if table.has("Samples/s") else None
            if batch and (time := of_window[-1]) and value and abs(value - batch * 1e9 / time) > table.half(index, "Samples/s") + 1e-6 * value:
                yield table.place(index, "Samples/s", f"{value} is not {batch:.0f} in {time} ns")
    if windows is None or any(map(is_others, table.cells("Window"))):
        return
    for index in rows_of(windows, "all"):
        window, told = windows.cells("Window")[index], windows.numbers("Iterations")[index]
        found = complete[window]
        if told is not None and not is_others(window) and told != len(found):
            yield windows.place(index, "Iterations", f"{told}, {len(found)} complete ones in {table.path.name}")
            continue
        # The last iteration of a window in which the host ran ahead of the GPU has no step time.
        found = [time for time in found if time is not None]
        apart = APART if len(found) > _MOST_EXACT else 1e-6
        column = "Step Time in Window (ns)"
        value = windows.numbers(column)[index] if windows.has(column) else None
        if value is not None and found and abs(value - statistics.median(found)) > windows.half(index, column) + apart * value:
            yield windows.place(index, column, f"{value}, the median of {len(found)} is {statistics.median(found)}")
        value = windows.numbers("Samples/s in Window")[index] if windows.has("Samples/s in Window") else None
        if value is not None and batch is not None and found:
            median = statistics.median(found)
            if median > 0 and abs(value - batch / median * 1e9) > windows.half(index, "Samples/s in Window") + apart * value:
                yield windows.place(index, "Samples/s in Window", f"{value} is not {batch:.0f} in {median} ns, the median of {len(found)}")


@rule("step-times", ERROR, "Iterations without CUPTI are in order and in no window, and the step time is their median, within its interval.",
      compares=True)
def step_time(folder: Folder) -> Iterator[Place]:
    steps = folder.table("step_times", "Iteration", "Start (ns)", "Duration (ns)")
    windows = folder.table("window_sum", "Device", "Start (ns)", "End (ns)", "Step Time (ns)", "Step Time Low (ns)", "Step Time High (ns)")
    if steps is None or windows is None:
        return
    batch = number_of(folder.option("BATCH"))
    open_times = [(begin, end) for _, (begin, end) in windows.each("Start (ns)", "End (ns)")]
    before = None
    durations = []
    for index, (number, begin, duration) in steps.each("Iteration", "Start (ns)", "Duration (ns)"):
        if (time := _step_times(steps)[index]) is not None:
            durations.append(time)
        if before is not None and (number <= before[0] or begin < before[1]):
            yield steps.place(index, "Start (ns)",
                              f"iteration {number:.0f} at {begin:.0f} begins before iteration {before[0]:.0f} has ended, or is numbered below it")
        before = number, begin + duration
        if any(begin < end and opened < begin + duration for opened, end in open_times):
            yield steps.place(index, "Start (ns)", f"iteration {number:.0f} is in a window")
        value = steps.numbers("Samples/s")[index] if steps.has("Samples/s") else None
        if batch and time and value is not None and abs(value - batch * 1e9 / time) > steps.half(index, "Samples/s") + 1e-6 * value:
            yield steps.place(index, "Samples/s", f"{value} is not {batch:.0f} in {time} ns")
    # The table only has the latest thousand of the values that the median covers.
    whole = steps.has("Step Time (ns)") and len(steps) < _MOST_STEPS
    if whole and len(durations) >= FEWEST_STEPS:
        for index in rows_of(windows, "all"):
            if windows.numbers("Step Time (ns)")[index] is None:
                yield windows.place(index, "Step Time (ns)", f"empty, but {steps.path.name} has {len(durations)} iterations")
    for index, (value, low, high) in windows.each("Step Time (ns)", "Step Time Low (ns)", "Step Time High (ns)"):
        if not low <= value <= high:
            yield windows.place(index, "Step Time (ns)", f"{value} is not within {low} … {high}")
        elif whole and (not durations or abs(value - statistics.median(durations)) > 0.06):
            yield windows.place(index, "Step Time (ns)", f"{value} is not the median of the {len(durations)} in {steps.path.name}")
        elif whole:
            # The bounds are order statistics.
            for column, end in (("Step Time Low (ns)", low), ("Step Time High (ns)", high)):
                if all(abs(end - duration) > 1 for duration in durations):
                    yield windows.place(index, column, f"{end} is no duration in {steps.path.name}")
        rate = windows.numbers("Samples/s")[index] if windows.has("Samples/s") else None
        if batch and value and rate is not None and abs(rate - batch * 1e9 / value) > windows.half(index, "Samples/s") + 1e-6 * rate:
            yield windows.place(index, "Samples/s", f"{rate} is not {batch:.0f} in {value} ns")


def _unit_rates(table: Table, units: str, rates: tuple[tuple[str, Sequence[Number | None]], ...]) -> Iterator[Place]:
    """A rate is present exactly if its units are, unless no time passed. `rates`: (column, times)."""
    for index, of in enumerate(table.numbers(units)):
        for column, times in rates:
            if not table.has(column):
                continue
            value, time = table.numbers(column)[index], times[index]
            if of is None:
                if table.cells(column)[index]:
                    yield table.place(index, column, f"{value}, but {units} is empty")
            elif value is None and column == "Units/s" and _ran_ahead(table, index):
                continue
            elif time and (value is None or abs(value - of * 1e9 / time) > table.half(index, column) * 1.01 + _UNIT_STEP * 1e9 / time + 1e-6 * value):
                yield table.place(index, column, f"{value} is not {of} in {time} ns")


def _busy_by_device(table: Table) -> list[dict[str, Number]]:
    """For each row with the total of all devices: GPU Busy of the devices in the rows that follow it."""
    found: list[dict[str, Number]] = []
    latest: dict[str, Number] = {}
    for device, busy in zip(table.cells("Device"), table.numbers("GPU Busy (ns)")):
        if device == "all":
            latest = {}
        elif busy is not None:
            latest[device] = busy
        found.append(latest if device == "all" else {})
    return found


@rule("units", ERROR, "Units of work are of complete iterations and of one source, a window has those of its iterations, and rates are units by time.",
      compares=True)
def units(folder: Folder) -> Iterator[Place]:
    batch = folder.option("BATCH")
    source = "called" if not batch else "payload" if batch.startswith("nvtx:") else "loader" if batch == "auto" else "stated"
    stated = number_of(batch) if source == "stated" else None
    steps = folder.table("step_times", "Duration (ns)", "Units", "Units From")
    table = folder.table("iteration_sum", "Window", "Label", "Complete", "Device", "Duration (ns)", "GPU Busy (ns)", "Units", "Units From")
    busy = [] if table is None else _busy_by_device(table)
    for of in filter(None, (steps, table)):
        rates: tuple[tuple[str, Sequence[Number | None]], ...] = (("Units/s", of.numbers("Duration (ns)")),)
        if of is table:
            rates += (("Units/s of GPU Busy", [max(devices.values(), default=None) for devices in busy]),)
        yield from _unit_rates(of, "Units", rates)
        for index, (cell, by) in enumerate(zip(of.cells("Units"), of.cells("Units From"))):
            if by != (source if cell else ""):
                yield of.place(index, "Units From", f"{named(by)} where {named(source if cell else '')} is due")
            if cell and stated is not None and of.numbers("Units")[index] != stated:
                yield of.place(index, "Units", f"{cell}, and INJECT_BATCH is {stated}")
    ahead = set() if table is None else {window for index, window in enumerate(table.cells("Window"))
                                         if (table.cells("Label")[index], table.cells("Complete")[index]) == ("iteration", "1") and _ran_ahead(table, index)}
    found: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0, 0.0])
    busy_in: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for index, (value, duration) in table.each("Units", "Duration (ns)") if table is not None else ():
        if table.cells("Device")[index] != "all" or table.cells("Complete")[index] != "1":
            yield table.place(index, "Units", f"{value} in a row that is of one device, or not complete")
        elif table.cells("Label")[index] == "iteration":
            sums = found[table.cells("Window")[index]]
            for at, more in enumerate((1, value, duration)):
                sums[at] += more
            busy_in[table.cells("Window")[index]].update(busy[index])
    yield from _energy_by_units(folder, table)
    windows = folder.table("window_sum", "Window", "Device", "Iterations with Units", "Units in Window")
    if windows is None or table is None:
        return
    known = [] if steps is None else [(value, duration) for _, (value, duration, _) in steps.each("Units", "Duration (ns)", "Units/s")]
    total, time = sum(value for value, _ in known), sum(duration for _, duration in known)
    for index in rows_of(windows, "all"):
        window = windows.cells("Window")[index]
        count, *sums = found[window] if not is_others(window) else (0, 0.0, 0.0)
        if windows.numbers("Iterations with Units")[index] != count:
            yield windows.place(index, "Iterations with Units", f"{windows.cells('Iterations with Units')[index]}, {count} in {table.path.name}")
            continue
        value = windows.numbers("Units in Window")[index]
        if (value is None) != (count == 0) or value is not None and abs(value - sums[0]) > _UNIT_STEP * (count + 1) + 1e-9 * value:
            yield windows.place(index, "Units in Window", f"{value}, {sums[0]} in {table.path.name}")
        for column, per in (("Units/s in Window", sums[1]), ("Units/s of GPU Busy in Window", max(busy_in[window].values(), default=0))):
            if window in ahead and column == "Units/s in Window" and windows.has(column) and windows.numbers(column)[index] is None:
                continue
            yield from _unit_rate(windows, index, column, sums[0] if count else None, per, count)
        if steps is not None and windows.has("Units/s"):
            yield from _unit_rate(windows, index, "Units/s", total if len(known) >= FEWEST_STEPS else None, time, len(known))


def _energy_by_units(folder: Folder, table: Table | None) -> Iterator[Place]:
    energies = folder.table("energy_sum", "Window", "Of", "Start (ns)", "Energy (J)", "Energy per Unit (J)")
    if energies is None or table is None or not table.has("Start (ns)"):
        return
    by_start = {(table.cells("Window")[index], start): value for index, (value, start) in table.each("Units", "Start (ns)")}
    for index, (start, joules, share) in energies.each("Start (ns)", "Energy (J)", "Energy per Unit (J)"):
        if energies.cells("Of")[index] == "window":
            continue
        value = by_start.get((energies.cells("Window")[index], start))
        if value is None or abs(share * value - joules) > energies.half(index, "Energy (J)") * 1.01 + _UNIT_STEP * (value + share) + 1e-6 * joules:
            yield energies.place(index, "Energy per Unit (J)", f"{share} is not {joules} by {value}")


def _unit_rate(windows: Table, index: int, column: str, of: float | None, time: float, count: int) -> Iterator[Place]:
    if not windows.has(column) or not time and of is not None:
        return
    value = windows.numbers(column)[index]
    if of is None or value is None:
        if value is not None or of is not None:
            yield windows.place(index, column, f"{value}, where {of} is due")
    elif abs(value - of * 1e9 / time) > windows.half(index, column) * 1.01 + _UNIT_STEP * count * 1e9 / time + 1e-6 * value:
        yield windows.place(index, column, f"{value} is not {of} in {time} ns")


# --- single kernels ---------------------------------------------------------------------------------------------------

# Kernels that wait for other ranks take as long as those do.
_WAITING = re.compile(r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|multimem|nvshmem", re.IGNORECASE)
_FAR = 20  # times the median
_SHORTEST = 100_000  # ns: shorter kernels may take much longer by chance


@rule("longest-kernel", ERROR, "No kernel, copy or memset takes longer than its window's work on the GPU, from the first to the last.", compares=True)
def longest_kernel(folder: Folder) -> Iterator[Place]:
    windows = folder.table("window_sum", "Window", "Device", "GPU Span (ns)")
    if windows is None or not len(windows) or any(map(is_others, windows.cells("Window"))) or folder.lost(*_UNKNOWN_WORK):
        return
    most = max((span for _, (span,) in windows.each("GPU Span (ns)")), default=None)
    for name in ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "kernel_detail", "family_sum", "cuda_gpu_mem_time_sum"):
        if most is not None and (table := folder.table(name)) is not None:
            for index, (value,) in table.each("Max (ns)"):
                if value > most:
                    label = table.cells(table.columns[-1])[index]
                    yield table.place(index, "Max (ns)",
                                      f"{value} is more than the longest window's work takes, {most}: {named(label)}")


@rule("outlier", WARNING, "No kernel but a collective's takes half of an iteration once, and 20 times less at the median.", compares=True)
def outlier(folder: Folder) -> Iterator[Place]:
    """Finds durations that look like a kernel record with another record's end."""
    table = folder.table("cuda_gpu_kern_gb_sum", "Name") or folder.table("cuda_gpu_kern_sum", "Name")
    if table is None:
        return
    durations = []
    iterations = folder.table("iteration_sum", "Label", "Device", "Complete", "GPU Busy (ns)")
    if iterations is not None:
        durations = sorted(time for index, (time, whole) in iterations.each("GPU Busy (ns)", "Complete")
                           if whole == 1 and iterations.cells("Device")[index] == "all" and iterations.cells("Label")[index] == "iteration")
    windows = folder.table("window_sum", "Device", "GPU Span (ns)")
    if not durations and windows is not None:
        durations = [max((span for _, (span,) in windows.each("GPU Span (ns)")), default=0)]
    if not durations:
        return
    long = max(durations[len(durations) // 2] / 2, _SHORTEST)
    names = table.cells("Name")
    for index, (median, greatest, count) in table.each("Med (ns)", "Max (ns)", "Instances"):
        if count > 2 and greatest > _FAR * median and greatest > long and not _WAITING.search(names[index]):
            yield table.place(index, "Max (ns)",
                              f"{greatest}, {median} at the median, and at least half of an iteration's work: {named(names[index])}")


# --- raw records ------------------------------------------------------------------------------------------------------

@rule("trace-sum", ERROR, "The raw records add up to the tables, name by name, with the same minimum and maximum.", compares=True)
def trace_sum(folder: Folder) -> Iterator[Place]:
    # Files that a killed process had already written stay unchanged (docs/recovery.md).
    kept = isinstance(folder.run.get("recovered"), dict) and folder.run["recovered"].get("tables_kept")
    if folder.lost("trace_rows") or kept or not folder.ended:
        return
    trace = folder.table("cuda_gpu_trace", "Name", "Duration (ns)", "GrdX")
    if trace is not None:
        found: list[dict[str, list[Number]]] = [{}, {}]
        for name, grid, duration in zip(trace.cells("Name"), trace.cells("GrdX"), trace.numbers("Duration (ns)")):
            _add(found[grid == ""], name, duration)
        yield from _compared(trace, found[0], folder.table("cuda_gpu_kern_sum", "Name", "Instances", "Total Time (ns)"), "Instances", "Name")
        operations = folder.table("cuda_gpu_mem_time_sum", "Operation", "Count", "Total Time (ns)")
        yield from _compared(trace, found[1], operations, "Count", "Operation")
    calls = folder.table("cuda_api_trace", "Name", "Duration (ns)")
    if calls is not None:
        sums: dict[str, list[Number]] = {}
        for name, duration in zip(calls.cells("Name"), calls.numbers("Duration (ns)")):
            _add(sums, name, duration)
        yield from _compared(calls, sums, folder.table("cuda_api_sum", "Name", "Num Calls", "Total Time (ns)"), "Num Calls", "Name")


def _add(sums: dict[str, list[Number]], name: str, duration: Number | None) -> None:
    duration = duration or 0
    seen = sums.setdefault(name, [0, 0, duration, duration])
    seen[:] = seen[0] + 1, seen[1] + duration, min(seen[2], duration), max(seen[3], duration)


def _compared(trace: Table, sums: dict[str, list[Number]], table: Table | None, count: str, key: str) -> Iterator[Place]:
    if table is None or any(map(is_others, table.cells(key))):
        return
    for index, name in enumerate(table.cells(key)):
        for column, found in zip((count, "Total Time (ns)", "Min (ns)", "Max (ns)"), sums.pop(name, [0, 0, 0, 0])):
            if table.has(column) and table.numbers(column)[index] != found:
                yield table.place(index, column, f"{table.cells(column)[index]}, {found} in {trace.path.name}: {named(name)}")
    for name, (number, *_) in sums.items():
        yield table.place(None, key, f"no row of {named(name)}, which {trace.path.name} has {number} times")


@rule("trace-busy", ERROR, "The time in which the raw records' work ran is the windows' busy time, or less where windows overlap.", compares=True)
def trace_busy(folder: Folder) -> Iterator[Place]:
    trace = folder.table("cuda_gpu_trace", "Device", "Start (ns)", "Duration (ns)")
    windows = folder.table("window_sum", "Device", "GPU Busy (ns)", "GPU Span (ns)")
    if trace is None or windows is None or folder.lost("trace_rows", *_UNKNOWN_WORK) or folder.run.get("state") != "closed":
        return
    spans: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
    for index, (start, duration) in trace.each("Start (ns)", "Duration (ns)"):
        spans[trace.cells("Device")[index].rpartition("(")[2].removesuffix(")")].append((start, start + duration))
    for device, intervals in spans.items():
        rows = windows.rows_by("Device").get(device)
        if not rows:
            continue
        covered, reached = 0, None
        for begin, end in sorted(intervals):
            covered += max(0, end - (begin if reached is None else max(begin, reached)))
            reached = end if reached is None else max(end, reached)
        told = windows.sum("GPU Busy (ns)", rows)
        if covered > told or len(rows) == 1 and covered != told:
            yield windows.place(rows[0], "GPU Busy (ns)", f"{told} in the windows of device {device}, {covered} in {trace.path.name}")
        if len(rows) == 1:
            span = max(end for _, end in intervals) - min(begin for begin, _ in intervals)
            if windows.numbers("GPU Span (ns)")[rows[0]] != span:
                yield windows.place(rows[0], "GPU Span (ns)", f"{windows.cells('GPU Span (ns)')[rows[0]]}, {span} in {trace.path.name}")
