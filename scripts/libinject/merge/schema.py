# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What a merge keeps of each table: the columns that it needs."""

from __future__ import annotations

import dataclasses

WHOLE, REAL, TEXT = "BIGINT", "DOUBLE", "VARCHAR"
LARGEST = 1 << 53  # of whole numbers: 104 days in ns. Sums and products of a thousand ranks' stay within DuckDB's types.
LARGEST_RANK = 999_999


@dataclasses.dataclass(frozen=True)
class Kept:
    """Columns of a table with their types. A table without one of the `needed` is not used; the others may be missing."""

    needed: dict[str, str]
    others: dict[str, str]

    @property
    def columns(self) -> dict[str, str]:
        return {**self.needed, **self.others}


TABLES = {
    "iteration_sum": Kept(
        {"Window": WHOLE, "Iteration": WHOLE, "Label": TEXT, "Complete": WHOLE, "Device": TEXT, "Start (ns)": WHOLE,
         "Duration (ns)": WHOLE},
        {"Total": TEXT, "Samples/s": REAL, "GPU Busy (ns)": WHOLE, "Kernels": WHOLE, "Kernel Time (ns)": WHOLE, "Kernel Busy (ns)": WHOLE}),
    "window_sum": Kept(
        {"Window": WHOLE, "Device": TEXT, "State": TEXT, "Duration (ns)": WHOLE},
        {"Total": TEXT, "Reason": TEXT, "Start (ns)": WHOLE, "Iterations": WHOLE, "Step Time (ns)": REAL, "Samples/s": REAL, "Device Time (ns)": WHOLE,
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
}

# What is kept of a run.json: one row a folder. `parent` is what folders of one job have in common, if nothing else says it.
RUNS = {"run": WHOLE, "folder": TEXT, "parent": TEXT, "rank": WHOLE, "host": TEXT, "pid": WHOLE, "time_zero": WHOLE, "state": TEXT,
        "command": TEXT, "gpu": TEXT, "gpu_uuid": TEXT, "verdict": TEXT, "gain": REAL, "lost": TEXT, "messages": TEXT, "job_id": TEXT, "world_size": WHOLE}
RUNS_OTHERS = frozenset(("job_id", "world_size"))  # that older copies lack
