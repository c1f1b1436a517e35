#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Where the time of each window and device went, by docs/diagnosis.md, from the raw records alone (INJECT_TRACE=csv): what
the time columns of window_sum.csv have to say.

usage: idle_truth.py FOLDER [--gaps]    differences to window_sum.csv, exit status 1 if there are any

Every time is compared to the nanosecond, ratios to the digits that are printed. --gaps lists each gap and its cause.
Where a record's correlation id was given out several times (CUPTI was attached anew), its launch is the last of them that
began before it.
"""

import argparse
import bisect
import collections
import csv
import json
import os
import sys

GPU_TRACE, API_TRACE, LIBRARY_TRACE, CPU_TRACE = ("cuda_gpu_trace.csv", "cuda_api_trace.csv", "library_trace.csv",
                                                  "thread_cpu_trace.csv")
START_UP, SYNCHRONIZATION, COPY_CALL, LAUNCH_CALL, OTHER_CALL, HOST_COMPUTE, HOST_WAIT, OTHER_STREAM, COLLECTIVE, QUEUE, GRAPH, \
    UNKNOWN = CAUSES = ("Start-up", "Synchronization", "Copy Call", "Launch Call", "Other Call", "Host Compute", "Host Wait",
                        "Other Stream", "Collective", "Queue", "Graph", "Unknown")
# What the host can have done in a gap; of equal ones, the first is its cause.
HOST_CAUSES = (SYNCHRONIZATION, COPY_CALL, LAUNCH_CALL, OTHER_CALL, HOST_COMPUTE, HOST_WAIT)
SUMS = ("Device Time (ns)", "Kernel Busy (ns)", "Copy Only (ns)", "Idle (ns)")
RATIOS = ("GPU Utilization (%)", "Kernel Concurrency", "Copy Overlap (%)")

LONGEST_QUEUE = 20_000           # ns: a longer gap is not due to a queue
STREAMS_AHEAD = 16               # copies on that many streams before the first kernel are not copies ahead
QUEUE_LENGTH = 1024  # pieces of work for which a wait can give a lead
SHORTEST_OFF_PROCESSOR = 100_000  # a shorter pause outside of calls is computing
SHORTEST_WAIT = 500_000          # less than this in a gap is a hand-over between threads
OWN_WORK = 1_000_000             # shorter computing is part of the way to a launch
SHORT_CALL = 1000                # a shorter call that submits no work is computing …
CALLS_APART = 100_000            # … unless the previous call ended this long before
# The trace has sizes in MB with three decimals: 64 KiB is 0.066 there, and so are the 36 sizes just below it.
SMALL_COPY_MB = 0.065
PREPARING = ("Create", "Destroy", "Finalize", "Find", "Get", "Init", "Make", "Build", "Check", "Abort")


def idle_column(cause):
    return f"Idle: {cause} (ns)"


TIMES = SUMS + tuple(map(idle_column, CAUSES)) + ("Own Work (ns)", "Exposed Collective (ns)", "Taken by Collectives (ns)", "H2D Busy (ns)", "D2H Busy (ns)",
                                                   "GPU Busy (ns)", "GPU Span (ns)")

Gap = collections.namedtuple("Gap", "window device begin end cause parts own_work")


# --- intervals -------------------------------------------------------------------------------------------------------

def union(intervals):
    """Disjoint intervals, in order, that cover the same time."""
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals):
    return sum(end - begin for begin, end in union(intervals))


# --- the raw records -------------------------------------------------------------------------------------------------

class Work:
    """A kernel, a copy or a memset."""

    def __init__(self, row):
        self.start = int(row["Start (ns)"])
        self.end = self.start + int(row["Duration (ns)"])
        self.correlation = int(row["CorrId"])
        self.device = int(row["Device"].rpartition("(")[2].rstrip(")"))
        self.stream = int(row["Ctx"]), int(row["Strm"])
        self.name = row["Name"]
        self.kernel = row["GrdX"] != ""
        self.collective = self.kernel and self.name.startswith("nccl")
        self.blocks = int(row["GrdX"]) * int(row["GrdY"]) * int(row["GrdZ"]) if self.kernel else 0
        self.copy = not self.kernel and "memcpy" in self.name
        self.small_to_host = self.to("Device-to-Host") and float(row["Bytes (MB)"]) <= SMALL_COPY_MB
        self.launch = None  # its Call, if that was seen

    def to(self, direction):
        return self.copy and direction in self.name

    @property
    def span(self):
        return self.start, self.end


def call_kind(name, library):
    if "Synchronize" in name:
        return SYNCHRONIZATION
    if not library and "Graph" in name and "Node" in name:
        return OTHER_CALL
    if library and name.startswith("cublas") and any(word in name for word in ("GetVector", "SetVector", "GetMatrix", "SetMatrix")):
        return COPY_CALL
    if "Memcpy" in name:
        return COPY_CALL
    if "Launch" in name or "Memset" in name:
        return LAUNCH_CALL
    return LAUNCH_CALL if library and not any(word in name for word in PREPARING) else OTHER_CALL


class Call:
    def __init__(self, row, library):
        self.begin = int(row["Start (ns)"])
        self.end = self.begin + int(row["Duration (ns)"])
        self.tid = row["Tid"]
        self.name = row["Name"]
        self.kind = call_kind(self.name, library)
        self.correlation = 0 if library else int(row["CorrID"])
        self.small_to_host = False  # a copy of a few bytes

    def computing_after(self, before):
        """Whether it counts as computing of its thread after that call."""
        return (self.kind == OTHER_CALL and "Query" not in self.name and self.end - self.begin < SHORT_CALL and
                self.begin - before.end < CALLS_APART)

    @property
    def waits(self):
        """Whether it is a synchronization, or counts as one: .item() and .cpu() wait by copying."""
        return self.kind == SYNCHRONIZATION or (self.kind == COPY_CALL and self.small_to_host)


class Thread:
    """What one thread did in a window: its outermost calls, except those that are part of computing, and the readings of its CPU time."""

    def __init__(self, closing, calls, readings):
        self.closing = closing
        self.calls = []
        for call in sorted(calls, key=lambda call: (call.begin, -call.end)):
            if not self.calls or (call.begin >= self.calls[-1].end and not call.computing_after(self.calls[-1])):
                self.calls.append(call)
        self.begins = [call.begin for call in self.calls]
        self.read_at = [time for time, _, _ in readings]
        self.used = [used for _, used, _ in readings]
        self.waits = [waits for _, _, waits in readings]
        self.pauses = {}

    def last_call(self, time):
        """Index of the last call that began at or before `time`, -1 if there is none."""
        return bisect.bisect_right(self.begins, time) - 1

    def call_at(self, time):
        index = self.last_call(time)
        return self.calls[index] if index >= 0 and time < self.calls[index].end else None

    def pause(self, index):
        """What the thread does between the calls `index` and `index` + 1."""
        if index not in self.pauses:
            self.pauses[index] = self._pause(index)
        return self.pauses[index]

    def _pause(self, index):
        if index < 0:
            return HOST_COMPUTE
        x = self.calls[index].end
        y = self.begins[index + 1] if index + 1 < len(self.calls) else self.closing
        at_y = bisect.bisect_left(self.read_at, y)
        if at_y == 0 or at_y == len(self.read_at) or self.read_at[at_y] != y:
            return HOST_COMPUTE  # no reading at y, or none before it
        before = at_y - 1
        if self.waits[at_y] == self.waits[before] != 0:
            return HOST_COMPUTE
        on = self.used[at_y] - self.used[before] - max(0, x - self.read_at[before])
        off = (y - x) - max(0, on)
        return HOST_WAIT if y - x >= SHORTEST_OFF_PROCESSOR and 2 * off >= y - x else HOST_COMPUTE

    def parts(self, begin, end):
        """[(kind, begin, end)] of what the thread did from begin to end."""
        found, time, index = [], begin, self.last_call(begin)
        while time < end:
            if index >= 0 and time < self.calls[index].end:
                kind, until = self.calls[index].kind, self.calls[index].end
            else:
                kind = self.pause(index)
                until = self.begins[index + 1] if index + 1 < len(self.calls) else end
            until = min(until, end)
            if until > time:
                found.append((kind, time, until))
            time = until
            if index + 1 < len(self.calls) and time >= self.begins[index + 1]:
                index += 1
        return found


def rows_of(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return
    with open(path, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


class Windows:
    """The closed windows of a run, by time."""

    def __init__(self, run):
        closed = [w for w in run["windows"] if "end_ns" in w]
        self.spans = sorted((w["start_ns"], w["end_ns"], w["number"]) for w in closed)
        self.starts = [start for start, _, _ in self.spans]

    def of(self, begin, end):
        """The number of the window to which a record from begin to end belongs. Each record belongs to one: a call that began before its
        window extends into it, and one that began after it was on its way as the window closed."""
        index = bisect.bisect_right(self.starts, begin) - 1
        if index + 1 < len(self.spans) and (index < 0 or begin > self.spans[index][1]) and (index < 0 or end >= self.starts[index + 1]):
            index += 1
        return self.spans[index][2] if index >= 0 else None


def launch_of(work, calls):
    """The call among those with the work's correlation id."""
    if work.correlation == 0 or not calls:
        return None
    index = bisect.bisect_right([call.begin for call in calls], work.start) - 1
    return calls[index] if index >= 0 else calls[0] if len(calls) == 1 else None


# --- a device in a window --------------------------------------------------------------------------------------------

class Lead:
    """How much earlier the launches would have come if no thread had waited for the device; for one device's gaps, in order."""

    def __init__(self, waits, starts):
        self.waits = sorted((call.end, call.end - call.begin) for call in waits)
        self.starts = starts
        self.counted = 0
        self.parts = collections.deque()  # [pieces of work that had started when the wait ended, what is left of it]

    @property
    def time(self):
        return sum(left for _, left in self.parts)

    def advance(self, launched, index):
        """Advances to the launch of the work with that index."""
        while self.counted < len(self.waits) and self.waits[self.counted][0] <= launched:
            end, length = self.waits[self.counted]
            self.parts.append([bisect.bisect_left(self.starts, end), length])
            self.counted += 1
        while self.parts and self.parts[0][0] + QUEUE_LENGTH < index:
            self.parts.popleft()

    def after(self, cause, gap):
        """To be called after a gap for which the host was late."""
        if cause == HOST_WAIT:
            self.parts.clear()
        else:
            while gap and self.parts:
                taken = min(gap, self.parts[0][1])
                gap -= taken
                self.parts[0][1] -= taken
                if not self.parts[0][1]:
                    self.parts.popleft()


class DeviceTime:
    """`threads`: all in the window; `launching`: the ids of those that launched something in it, on any device."""

    def __init__(self, window, device, multiprocessors, opening, closing, work, threads, launching):
        self.window, self.device, self.multiprocessors = window, device, multiprocessors
        self.opening, self.closing = opening, closing
        self.threads = threads
        self.work = sorted(work, key=lambda w: (w.start, w.launch is None, w.launch.begin if w.launch else 0, w.stream))
        self.lead = Lead((call for tid in launching for call in threads[tid].calls if call.waits), [w.start for w in self.work])
        self.last = max(w.end for w in self.work)
        lag = max(0, self.last - closing)
        self.ahead = self._copies_ahead()
        self.begin = opening + min(lag, self.work[self.ahead].start - opening)
        self.end = max(closing, self.last)
        self.launches = sorted({(w.launch.begin, w.launch.tid) for w in self.work if w.launch})
        self.gaps = []
        self._find_gaps()

    def _gap(self, begin, end, cause, parts=None, computing=0):
        """`computing`: the longest period of host compute in it."""
        self.gaps.append(Gap(self.window, self.device, begin, end, cause, parts or {}, cause == HOST_COMPUTE and computing >= OWN_WORK))

    def _copies_ahead(self):
        """The number of copies that ran before the first kernel, beside work from before the window for which this kernel waited."""
        first = next((index for index, w in enumerate(self.work) if w.kernel), 0)
        kernel, copies = self.work[first], self.work[:first]
        end = max((w.end for w in copies), default=0)
        streams = {w.stream for w in copies}
        waited = copies and kernel.launch and kernel.launch.end <= end and kernel.start - end > LONGEST_QUEUE
        return first if waited and kernel.stream not in streams and len(streams) < STREAMS_AHEAD else 0

    def _find_gaps(self):
        # Of works that end together, the one that started last counts, which is the last one here.
        before = self.work[0]
        for index, next_work in enumerate(self.work):
            if index == self.ahead:
                self.gaps.clear()
                if next_work.start > self.begin:
                    self._gap(self.begin, next_work.start, START_UP)
            elif next_work.start > before.end:
                self._between(before, next_work, index)
            if next_work.end >= before.end:
                before = next_work
        if self.end > before.end:
            if self.launches:
                self._late_host(before.end, self.end, self.closing, self.launches[-1][1], None, LAUNCH_CALL, len(self.work))
            else:
                self._gap(before.end, self.end, UNKNOWN)

    def _between(self, before, next_work, position):
        begin, end, launch = before.end, next_work.start, next_work.launch
        if launch is None:
            self._gap(begin, end, UNKNOWN)
        elif launch.end <= begin:
            other = before.stream != next_work.stream
            if other and before.collective:
                self._gap(begin, end, COLLECTIVE)
            elif end - begin > LONGEST_QUEUE:
                self._gap(begin, end, OTHER_STREAM)
            elif before.launch is launch:
                self._gap(begin, end, GRAPH)
            elif other:
                self._gap(begin, end, OTHER_STREAM)
            else:
                self._gap(begin, end, QUEUE)
        else:
            index = bisect.bisect_left(self.launches, (launch.begin, ""))
            tid_before = self.launches[index - 1][1] if index > 0 else None
            self._late_host(begin, end, launch.begin, launch.tid, tid_before,
                            COPY_CALL if launch.kind == COPY_CALL else LAUNCH_CALL, position)

    def _late_host(self, begin, end, launched, tid, tid_before, launching, position):
        thread = self.threads[tid]
        other = self.threads[tid_before] if tid_before not in (None, tid) else None
        time = dict.fromkeys(HOST_CAUSES, 0)
        until = min(max(launched, begin), end)
        asked_first = thread
        computing = 0
        for kind, part_begin, part_end in thread.parts(begin, until):
            if kind == HOST_WAIT and other is not None:
                if part_begin == begin:
                    asked_first = other
                for other_kind, other_begin, other_end in other.parts(part_begin, part_end):
                    time[other_kind] += other_end - other_begin
                    computing = max(computing, other_end - other_begin if other_kind == HOST_COMPUTE else 0)
            else:
                time[kind] += part_end - part_begin
                computing = max(computing, part_end - part_begin if kind == HOST_COMPUTE else 0)
        time[launching] += end - until
        self.lead.advance(launched, position)
        cause = self._cause(end - begin, time, asked_first.call_at(begin))
        self.lead.after(cause, end - begin)
        self._gap(begin, end, cause, time, computing)

    def _cause(self, gap, time, call):
        if 2 * time[HOST_WAIT] >= gap and time[HOST_WAIT] >= SHORTEST_WAIT:
            return HOST_WAIT
        if call is not None and 2 * (call.end - call.begin) >= gap:
            if call.waits:
                return SYNCHRONIZATION
            if call.kind == COPY_CALL:
                return COPY_CALL
        if gap <= self.lead.time:
            return SYNCHRONIZATION
        if time[HOST_WAIT] < SHORTEST_WAIT:
            time = {**time, HOST_COMPUTE: time[HOST_COMPUTE] + time[HOST_WAIT], HOST_WAIT: 0}
        return max(HOST_CAUSES, key=lambda cause: time[cause])

    def columns(self):
        def busy(chosen):
            return length(w.span for w in self.work[self.ahead:] if chosen(w))

        kernels = busy(lambda w: w.kernel)
        everything = busy(lambda w: True)
        copies = busy(lambda w: w.copy)
        span = self.end - self.begin
        found = {"GPU Busy (ns)": length(w.span for w in self.work), "GPU Span (ns)": self.last - self.work[0].start, "Device Time (ns)": span,
                 "Kernel Busy (ns)": kernels, "Copy Only (ns)": everything - kernels, "Idle (ns)": span - everything}
        for cause in CAUSES:
            found[idle_column(cause)] = sum(gap.end - gap.begin for gap in self.gaps if gap.cause == cause)
        found["Own Work (ns)"] = sum(gap.end - gap.begin for gap in self.gaps if gap.own_work)
        found["Exposed Collective (ns)"] = kernels - busy(lambda w: w.kernel and not w.collective)
        computing = [w.span for w in self.work if w.kernel and not w.collective]
        beside = sum(w.blocks * (length(computing) + w.end - w.start - length([*computing, w.span]))
                     for w in self.work if w.collective)
        taken = min(beside // self.multiprocessors, length(computing)) if self.multiprocessors else 0
        found["Taken by Collectives (ns)"] = taken
        found["H2D Busy (ns)"] = busy(lambda w: w.to("Host-to-Device"))
        found["D2H Busy (ns)"] = busy(lambda w: w.to("Device-to-Host"))
        # None: a ratio with denominator 0.
        found["GPU Utilization (%)"] = 100 * kernels / span if span else None
        found["Kernel Concurrency"] = sum(w.end - w.start for w in self.work if w.kernel) / kernels if kernels else None
        beside = copies + kernels - busy(lambda w: w.kernel or w.copy)
        found["Copy Overlap (%)"] = 100 * beside / copies if copies else None
        return found


# --- a folder --------------------------------------------------------------------------------------------------------

def read(folder):
    """[DeviceTime] for every window and each device that worked in it."""
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        about = json.load(file)
    windows = Windows(about)
    multiprocessors = {device["id"]: device["multiprocessors"] for device in about["devices"]}
    work = [Work(row) for row in rows_of(folder, GPU_TRACE)]
    calls = [Call(row, False) for row in rows_of(folder, API_TRACE)]
    by_correlation = collections.defaultdict(list)
    for call in sorted(calls, key=lambda call: call.begin):
        if call.correlation:
            by_correlation[call.correlation].append(call)
    calls += [Call(row, True) for row in rows_of(folder, LIBRARY_TRACE)]
    readings = collections.defaultdict(list)
    for row in rows_of(folder, CPU_TRACE):
        readings[row["Tid"]].append((int(row["Time (ns)"]), int(row["CPU Time (ns)"]), int(row["Voluntary Switches"])))
    for of_thread in readings.values():
        of_thread.sort()

    device_work = collections.defaultdict(list)
    for item in work:
        call = item.launch = launch_of(item, by_correlation.get(item.correlation))
        if call is not None:
            call.small_to_host = call.small_to_host or item.small_to_host
        begin, end = (call.begin, call.end) if call is not None else item.span
        device_work[windows.of(begin, end), item.device].append(item)
    thread_calls = collections.defaultdict(lambda: collections.defaultdict(list))
    for call in calls:
        thread_calls[windows.of(call.begin, call.end)][call.tid].append(call)
    found = []
    for opening, closing, number in windows.spans:
        threads = {tid: Thread(closing, own, readings[tid]) for tid, own in thread_calls[number].items()}
        launching = {item.launch.tid for (window, _), items in device_work.items() if window == number for item in items if item.launch}
        for device in sorted(device for window, device in device_work if window == number):
            found.append(DeviceTime(number, device, multiprocessors.get(device, 0), opening, closing, device_work[number, device],
                                    threads, launching))
    return found


def compute(folder):
    """{(window, device): {column: value}}; a ratio is None if its denominator is 0."""
    return {(time.window, time.device): time.columns() for time in read(folder)}


def agrees(text, value, exact):
    """Whether a cell equals `value`: to the nanosecond, or to the cell's last digit."""
    if value is None:
        return text == "" or float(text) == 0
    if text == "":
        return False
    if exact:
        return text == str(value)
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return abs(float(text) - value) <= half + 1e-9


def differences(folder):
    """Differences in window_sum.csv: [text], empty if everything agrees with the raw records."""
    truth = compute(folder)
    wrong = []
    rows = {}
    for row in rows_of(folder, "window_sum.csv"):
        if row["Device"] != "all" and row["Window"] != "[other]":
            rows[int(row["Window"]), int(row["Device"])] = row
    for key in sorted(set(truth) | set(rows)):
        where = "window %d, device %d" % key
        if key not in truth or key not in rows:
            wrong.append(f"{where}: {'no row' if key in truth else 'a row, and no record'}")
            continue
        for column in TIMES + RATIOS:
            text = rows[key].get(column)
            value = truth[key][column]
            if text is None:
                wrong.append(f"{where}: no column {column}")
            elif not agrees(text, value, column in TIMES):
                wrong.append(f"{where}: {column}: {text or 'nothing'}, {value} by the raw records")
    if not truth:
        wrong.append("no records to compare with")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--gaps", action="store_true", help="list every gap and what the host did in it")
    options = parser.parse_args()
    if options.gaps:
        for time in read(options.folder):
            for gap in time.gaps:
                parts = ", ".join(f"{kind} {took}" for kind, took in gap.parts.items() if took)
                print(f"window {gap.window}, device {gap.device}: {gap.begin} + {gap.end - gap.begin}: {gap.cause}"
                      + (f" ({parts})" if parts else ""))
    wrong = differences(options.folder)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
