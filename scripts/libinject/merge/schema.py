# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The columns of each table that a merge keeps."""

from __future__ import annotations

import dataclasses

WHOLE, REAL, TEXT = "BIGINT", "DOUBLE", "VARCHAR"
LARGEST = 1 << 53  # of integers: 104 days in ns. Sums and products over a thousand ranks stay within DuckDB's types.
LARGEST_RANK = 999_999


@dataclasses.dataclass(frozen=True)
class Kept:
    """Columns of a table with their types. A table that lacks one of the `needed` is not used; the others may be missing. `instead`: the
    column that older versions have."""

    needed: dict[str, str]
    others: dict[str, str]
    is_new: bool = False  # older copies lack it
    instead: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        return {**self.needed, **self.others}


_PHASES = ("Forward (ns)", "Backward (ns)", "Recomputation (ns)", "Optimizer (ns)", "Other (ns)")
_SELF = ("Self Time (ns)", "Self Instances", "Total Time (ns)", "Total Instances")
_WORK = (*_SELF, *_PHASES, "Compute-bound (ns)", "Memory-bound (ns)", "Latency-bound (ns)", "FLOP Time (ns)", "FLOPs")
_CAUSES = ("Start-up", "Synchronization", "Copy Call", "Launch Call", "Other Call", "Host Compute", "Host Wait", "Other Stream", "Collective", "Queue", "Graph", "Unknown")
# The columns that are summed over ranks.
SUMS = {
    "op_sum": _WORK,
    "module_sum": _WORK,
    "line_sum": ("User Code Time (ns)", "User Code Copies", "User Code Copy Time (ns)", *_WORK),
    "gap_line_sum": ("Idle Time (ns)", "Gaps", *(f"Idle: {cause} (ns)" for cause in _CAUSES), "Own Work (ns)"),
}
_LINE = {"File": TEXT, "Line": WHOLE, "Function": TEXT}


def _summed(table: str, key: dict[str, str], needed: tuple[str, ...], others: dict[str, str]) -> Kept:
    # A run's FLOPs exceed LARGEST.
    types = {column: REAL if column == "FLOPs" else WHOLE for column in SUMS[table]}
    return Kept({**key, **{column: types[column] for column in needed}}, {**others, **{column: kind for column, kind in types.items() if column not in needed}}, True)


TABLES = {
    "iteration_sum": Kept(
        {"Window": WHOLE, "Iteration": WHOLE, "Label": TEXT, "Complete": WHOLE, "Device": TEXT, "Start (ns)": WHOLE,
         "Duration (ns)": WHOLE},
        {"Step Time (ns)": REAL, "Total": TEXT, "Samples/s": REAL, "Units": REAL, "Units From": TEXT, "GPU Busy (ns)": WHOLE, "Kernels": WHOLE, "Kernel Time (ns)": WHOLE,
         "Kernel Busy (ns)": WHOLE}, instead={"Step Time (ns)": "Duration (ns)"}),
    "window_sum": Kept(
        {"Window": WHOLE, "Device": TEXT, "State": TEXT, "Duration (ns)": WHOLE},
        {"Total": TEXT, "Reason": TEXT, "Start (ns)": WHOLE, "Iterations": WHOLE, "Step Time (ns)": REAL, "Samples/s": REAL, "Units/s": REAL, "Units From": TEXT,
         "Device Time (ns)": WHOLE,
         "Kernel Busy (ns)": WHOLE, "Copy Only (ns)": WHOLE, "Idle (ns)": WHOLE, "Exposed Collective (ns)": WHOLE, "Verdict": TEXT,
         "Memory at Start (MB)": REAL, "Memory at End (MB)": REAL}),
    "nccl_sum": Kept(
        {"Operation": TEXT, "Type": TEXT, "Reduction": TEXT, "Bytes": WHOLE, "Ranks": WHOLE, "Peer/Root": TEXT, "Grouped": TEXT,
         "Calls": WHOLE, "GPU Time (ns)": WHOLE, "GPU Avg (ns)": REAL, "GPU Min (ns)": WHOLE, "GPU Max (ns)": WHOLE,
         "Bus BW (GB/s)": REAL, "Kernels": WHOLE},
        {"Algorithm BW (GB/s)": REAL, "Overlap with Compute (%)": REAL, "Communicator": TEXT}),
    "copy_sum": Kept(
        {"Device": TEXT, "Direction": TEXT, "Source": TEXT, "Target": TEXT, "Count": WHOLE, "Total (MB)": REAL, "Throughput (GB/s)": REAL},
        {"Link (GB/s)": REAL, "Link (%)": REAL}),
    "memory_sum": Kept(
        {"Device": TEXT, "Kind": TEXT, "API": TEXT, "Peak (MB)": REAL},
        {"Total": TEXT, "Live (MB)": REAL, "Failed": WHOLE}),
    "memory_timeline": Kept({"Of": TEXT, "Highest (MB)": REAL}, {}, True),
    "memory_purpose": Kept(
        {"Device": TEXT, "Purpose": TEXT, "Total": TEXT, "Memory (B)": WHOLE}, {"Peak Allocated (B)": WHOLE, "Activations at Peak (B)": WHOLE}, True),
    "energy_sum": Kept(
        {"Window": WHOLE, "Of": TEXT, "Device": TEXT, "Duration (ns)": WHOLE, "Energy (J)": REAL, "± Energy (J)": REAL, "Clock Readings": WHOLE},
        {"SM Clock (MHz)": REAL, "SM Clock Highest (MHz)": WHOLE, "Held Down (%)": REAL}, True),
    "host_sum": Kept(
        {"Window": WHOLE, "Role": TEXT, "Span (ns)": WHOLE},
        {"Total": TEXT, "Count": WHOLE, "Processor Time (ns)": WHOLE, "Run Queue Wait (ns)": WHOLE, "Read (MB)": REAL, "Cores by Affinity": WHOLE,
         "Cores by Quota": REAL, "Cores Used": REAL, "Cores Wanted": REAL, "Workers Computing (%)": REAL, "Workers Queued (%)": REAL}, True),
    "op_sum": _summed("op_sum", {"Operator": TEXT}, _SELF, {}),
    "module_sum": _summed("module_sum", {"Module": TEXT}, _SELF, {"Class": TEXT, "Parent": TEXT}),
    "line_sum": _summed("line_sum", _LINE, ("User Code Time (ns)", *_SELF), {"In Library": WHOLE}),
    "gap_line_sum": _summed("gap_line_sum", _LINE, ("Idle Time (ns)",), {}),
}

# What is kept of run.json: one row per folder. `parent` is what folders of one job have in common if nothing else tells; `unit_ranges`, the
# NVTX payloads that are units of work; `gaps`, what recovery could not complete.
RUNS = {"run": WHOLE, "folder": TEXT, "parent": TEXT, "rank": WHOLE, "host": TEXT, "pid": WHOLE, "time_zero": WHOLE, "state": TEXT,
        "command": TEXT, "gpu": TEXT, "gpu_uuid": TEXT, "verdict": TEXT, "gain": REAL, "lost": TEXT, "messages": TEXT, "job_id": TEXT, "world_size": WHOLE, "unit_ranges": TEXT,
        "batch": WHOLE, "gaps": TEXT}
RUNS_OTHERS = frozenset(("job_id", "world_size", "unit_ranges", "batch", "gaps"))  # missing in older copies
