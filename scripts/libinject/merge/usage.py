# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Utilization, verdict, memory and losses of each rank."""

from __future__ import annotations

import json
from typing import Any

from libinject.figures import NO_UTILIZATION
from libinject.merge.jobs import Job, spans
from libinject.merge.store import Store
from libinject.result import RECOVERY_GAPS


def _alone(column: str) -> str:
    """True of a window that has only one of the two: no sum is of the same windows as the other then."""
    return f"""("{column}" IS NULL) <> ("Device Time (ns)" IS NULL)"""


def _share(column: str) -> str:
    """Of device time."""
    return f"""CASE WHEN NOT bool_or({_alone(column)}) THEN sum("{column}") / nullif(sum("Device Time (ns)"), 0) END"""


def of_job(store: Store, number: int, job: Job) -> dict[int, dict[str, Any]]:
    """Values by rank."""
    found: dict[int, dict[str, Any]] = {}
    for rank, run in sorted(job.ranks.items()):
        found[rank] = {
            "host": run["host"], "pid": run["pid"], "folder": run["folder"], "state": run["state"], "verdict": run["verdict"] or None,
            "potential_gain": run["gain"], "gpus": _parsed(run["gpu"], list), "gpu_uuids": _parsed(run["gpu_uuid"], list),
            "lost": _parsed(run["lost"], dict), "gaps": _parsed(run["gaps"], list),
            "messages": _parsed(run["messages"], list)}
    unpaired: list[int] = []
    for row in store.rows(f"""
            SELECT rank, count(*) AS windows, sum("Duration (ns)") AS window_ns, sum("Device Time (ns)") AS device_time_ns,
                   {_share("Kernel Busy (ns)")} AS utilization, {_share("Idle (ns)")} AS idle, {_share("Exposed Collective (ns)")} AS exposed_collective,
                   coalesce(bool_or({_alone("Kernel Busy (ns)")}), false) AS unpaired
            FROM window_sum JOIN member USING (run) WHERE job = ? AND Device = 'all' GROUP BY rank""", [number]):
        if row.pop("unpaired"):
            unpaired.append(row["rank"])
        found[row.pop("rank")] |= {name: int(value) if name.endswith("_ns") and value is not None else value for name, value in row.items()}
    for row in store.rows("""
            SELECT rank, sum("Peak (MB)") AS peak_mb, sum("Failed") AS failed FROM memory_sum JOIN member USING (run)
            WHERE job = ? AND Kind = '[all]' AND Device <> 'host' GROUP BY rank""", [number]):
        found[row["rank"]] |= {"peak_memory_mb": row["peak_mb"], "failed_allocations": int(row["failed"] or 0)}
    for row in store.rows("""
            SELECT rank, max(used) AS used FROM (
              SELECT rank, greatest("Memory at Start (MB)", "Memory at End (MB)") AS used FROM window_sum JOIN member USING (run) WHERE job = $1 AND Device <> 'all'
              UNION ALL SELECT rank, "Highest (MB)" FROM memory_timeline JOIN member USING (run) WHERE job = $1 AND Of = 'in use') GROUP BY rank""", [number]):
        found[row["rank"]] |= {"device_memory_in_use_mb": row["used"]}
    for row in store.rows("""
            SELECT rank, max("Highest (MB)") FILTER (Of = 'PyTorch reserved') AS torch_reserved_mb,
                   max("Highest (MB)") FILTER (Of = 'PyTorch allocated') AS torch_allocated_mb
            FROM memory_timeline JOIN member USING (run) WHERE job = ? GROUP BY rank""", [number]):
        found[row.pop("rank")] |= row
    for row in store.rows("""
            SELECT rank, CASE WHEN count("Energy (J)") = count(*) THEN sum("Energy (J)") END AS energy_j,
                   CASE WHEN count("Energy (J)") = count(*) THEN sum("± Energy (J)") END AS energy_error_j,
                   sum("Energy (J)") FILTER ("Duration (ns)" IS NOT NULL) / nullif(sum("Duration (ns)") FILTER ("Energy (J)" IS NOT NULL), 0) * 1e9 AS power_w,
                   sum("SM Clock (MHz)" * "Duration (ns)") / nullif(sum("Duration (ns)") FILTER ("SM Clock (MHz)" IS NOT NULL), 0) AS sm_clock_mhz,
                   sum("Held Down (%)" * "Duration (ns)") / nullif(sum("Duration (ns)") FILTER ("Held Down (%)" IS NOT NULL), 0) / 100 AS clocks_held_down
            FROM energy_sum JOIN member USING (run) WHERE job = ? AND Of = 'window' GROUP BY rank""", [number]):
        found[row.pop("rank")] |= row
    for row in store.rows("""
            SELECT rank, sum("Cores Used" * "Span (ns)") / nullif(sum("Span (ns)") FILTER ("Cores Used" IS NOT NULL), 0) AS used,
                   sum("Cores Wanted" * "Span (ns)") / nullif(sum("Span (ns)") FILTER ("Cores Wanted" IS NOT NULL), 0) AS wanted,
                   min(least(coalesce("Cores by Affinity", "Cores by Quota"), coalesce("Cores by Quota", "Cores by Affinity"))) AS allowed
            FROM host_sum JOIN member USING (run) WHERE job = ? AND Role = 'process' GROUP BY rank""", [number]):
        found[row["rank"]] |= {"cores_used": row["used"], "cores_wanted": row["wanted"], "cores_allowed": row["allowed"]}
    cut_off = [rank for rank, row in found.items() if row["state"] not in ("closed", "recovered")]
    if cut_off:
        job.problems.append("cut off, or still running ('injectctl recover' completes the tables of a killed process): "
                            f"rank {spans(cut_off)}")
    gaps = [f"{text}: rank {spans(ranks)}" for kind, text in RECOVERY_GAPS.items()
            if (ranks := [rank for rank, row in found.items() if kind in row["gaps"]])]
    if gaps:
        job.problems.append(f"killed, and not recovered completely: {'; '.join(gaps)}")
    if unpaired:
        job.problems.append(f"{NO_UTILIZATION}: rank {spans(unpaired)}")
    without = [rank for rank, row in found.items() if not row.get("windows")]
    if without:
        job.problems.append(f"no window: rank {spans(without)}")
    return found


def _parsed(text: str | None, kind: type) -> Any:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return kind()
    if not isinstance(value, kind):
        return kind()
    if isinstance(value, dict):
        return {str(name): count for name, count in value.items() if isinstance(count, int)}
    return [item for item in value if isinstance(item, str)]
