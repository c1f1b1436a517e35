# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Throughput of jobs with different numbers of ranks."""

from __future__ import annotations

from typing import Any

from libinject.merge.jobs import Job
from libinject.merge.store import Store

# By rank: nanoseconds per step, samples and units of work per second, and the source and name of the units.
# The tables' rates are rounded, to 0.1 in older versions: they are used where a copy does not have the batch.
_SAMPLES = "CASE WHEN count(batch) = count(*) AND min(batch) = max(batch) THEN min(batch) END * 1e9 / step"
_UNPROFILED = f"""
    SELECT rank, arg_max("Step Time (ns)", "Window") AS step, coalesce({_SAMPLES}, arg_max("Samples/s", "Window")) AS samples,
           arg_max("Units/s", "Window") AS units, max(concat_ws(' ', "Units From", nullif(unit_ranges, ''))) AS source
    FROM window_sum JOIN member USING (run) JOIN (SELECT run, batch, unit_ranges FROM runs) USING (run)
    WHERE job = ? AND Device = 'all' AND "Window" IS NOT NULL AND "Step Time (ns)" > 0 GROUP BY rank"""
# Units are counted by the host's time. If the host ran ahead of the GPU, the step time is the GPU's, and such rates are meaningless.
_IN_WINDOWS = f"""
    SELECT rank, median("Step Time (ns)") AS step,
           coalesce({_SAMPLES}, CASE WHEN count("Samples/s") = count(*) THEN median("Samples/s") END) AS samples,
           sum("Units") FILTER (by_host) * 1e9 / sum("Duration (ns)") FILTER (by_host AND "Units" IS NOT NULL) AS units,
           max(concat_ws(' ', "Units From", nullif(unit_ranges, ''))) AS source
    FROM (SELECT *, "Step Time (ns)" = "Duration (ns)" AS by_host FROM iteration_sum) JOIN member USING (run)
    JOIN (SELECT run, batch, unit_ranges FROM runs) USING (run)
    WHERE job = ? AND Label = 'iteration' AND Complete = 1 AND Device = 'all' AND "Step Time (ns)" > 0 GROUP BY rank"""


def throughputs(store: Store, number: int, job: Job) -> list[dict[str, Any]]:
    """Throughput from iterations that ran without CUPTI (`unprofiled`), if each rank that has iterations has enough of them, and from those
    in windows: those of the two that exist, in this order. Steps per second: from each rank's step time, averaged over the ranks. Samples
    per second: the sum over all of the job's ranks, with missing ranks taken for average ones; only if each rank reports its samples per
    iteration (INJECT_BATCH). Likewise for units of work, if all ranks have them from the same source."""
    without, inside = (store.rows(f"""
        SELECT avg(1e9 / step) AS steps, median(step) AS step, avg(samples) AS samples, count(samples) AS told,
               CASE WHEN count(units) = count(*) AND count(DISTINCT source) = 1 THEN avg(units) END AS units, any_value(source) AS source,
               coalesce(list(rank), []) AS ranks
        FROM ({ranks})""", [number])[0] for ranks in (_UNPROFILED, _IN_WINDOWS))
    usable = [(True, without)] if set(without["ranks"]) >= set(inside["ranks"]) else []
    return [{"steps_per_s": row["steps"], "samples_per_s": row["samples"] * job.world if row["told"] == len(row["ranks"]) else None,
             "units_per_s": row["units"] * job.world if row["units"] is not None else None, "units_from": row["source"] if row["units"] is not None else None,
             "step_ns": row["step"], "unprofiled": unprofiled} for unprofiled, row in (*usable, (False, inside)) if row["ranks"]]


def compare(jobs: list[Job], found: list[list[dict[str, Any]]], problems: list[str]) -> dict[str, Any] | None:
    """Relative to the job with the fewest ranks, using the results `found` by throughputs() for each job. None unless there are two sizes
    to compare."""
    lacking = [job.name for job, kinds in zip(jobs, found) if kinds and not kinds[0]["unprofiled"]]
    throughputs = [next((kind for kind in kinds if kind["unprofiled"] != bool(lacking)), None) for kinds in found]
    measured = sorted(((job.world, index) for index, job in enumerate(jobs) if throughputs[index] is not None))
    if len({world for world, _ in measured}) < 2:
        return None
    if lacking and any(kinds and kinds[0]["unprofiled"] for kinds in found):
        problems.append("scaling is by step times in windows, which include the profiler's overhead: not every rank has seven step times without it "
                        f"in {', '.join(lacking[:3])}{' …' if len(lacking) > 3 else ''}")
    one_kind = len({(throughputs[index] or {})["units_from"] for _, index in measured}) == 1
    name = next(name for name in ("samples_per_s", "units_per_s", "steps_per_s")
                if name == "steps_per_s" or (name != "units_per_s" or one_kind) and all(((throughputs[index] or {})[name] or 0) > 0 for _, index in measured))
    by_work = name != "steps_per_s"
    base_world, base = measured[0]
    base_rate = (throughputs[base] or {})[name]
    rows = []
    for world, index in measured:
        rate = (throughputs[index] or {})[name]
        speedup = rate / base_rate
        # With constant work per rank, a step of a larger job does more work, so steps per second only show weak scaling.
        rows.append({"job": jobs[index].name, "ranks": world, **(throughputs[index] or {}), "speedup": speedup if by_work else None,
                     "efficiency": speedup * base_world / world if by_work else speedup})
    return {"by": name, "base": jobs[base].name, "jobs": rows}
