# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Time that ranks spend in collectives: transfer, and waiting for the last rank."""

from __future__ import annotations

import math
import statistics
from typing import Any

from libinject.merge.jobs import Job, spans
from libinject.merge.schema import LARGEST
from libinject.merge.statistics import median_of_others, middle
from libinject.merge.steps import STRAGGLER_CHANCE, STRAGGLER_SHARE
from libinject.merge.store import Store

_CALL = "Operation, Type, Reduction, Bytes, Ranks, Grouped"
_KEY = f"{_CALL}, Communicator"
# No rank can leave these before all have arrived; in a broadcast the root can.
_ALL_WAIT = "regexp_full_match(Operation, '(Group of [0-9]+ )?(AllReduce|AllGather|ReduceScatter|AllToAll)')"
_MOST_KEYS = 50
_MOST_COMMUNICATORS = 50


def of_job(store: Store, number: int, job: Job) -> dict[str, Any] | None:
    """None without any collective's kernel."""
    # Bytes that are not known must be equal to join. `times`: what GPU Avg, Min and Max are of. Calls that share a kernel have a part of it each.
    store.run(f"""
        CREATE OR REPLACE TEMP TABLE spent AS
        SELECT rank, {_KEY.replace("Bytes", "coalesce(Bytes, -1) AS Bytes")}, sum(Kernels) AS kernels, sum("GPU Time (ns)") AS t, min("GPU Min (ns)") AS shortest,
               max("GPU Max (ns)") AS longest,
               sum(greatest(1, least({LARGEST}, round("GPU Time (ns)" / "GPU Avg (ns)"))))::HUGEINT AS times
        FROM nccl_sum JOIN member USING (run)
        WHERE job = ? AND Kernels > 0 AND "GPU Time (ns)" > 0 AND "GPU Avg (ns)" > 0 GROUP BY ALL""", [number])
    # `given`: which of a communicator's ranks there are. Without an id it is known of one of all ranks alone.
    store.run("""
        CREATE OR REPLACE TEMP TABLE communicator AS
        SELECT Communicator, max(Ranks) AS size, list(DISTINCT rank ORDER BY rank) AS given FROM nccl_sum JOIN member USING (run)
        WHERE job = ? AND Communicator <> '' AND Ranks > 0 GROUP BY Communicator""", [number])
    # A call that all ranks of a communicator wait in, and made by all equally often: else nothing tells which kernels met. Alone in
    # one, a rank waits for nobody.
    store.run(f"""
        CREATE OR REPLACE TEMP TABLE met AS
        SELECT {_KEY}, kernels, min(t) AS most_transfer, min(CASE WHEN Ranks = 1 THEN t ELSE times * shortest END) AS least_transfer
        FROM (SELECT *, count(*) OVER key AS present, min(kernels) OVER key AS fewest, max(kernels) OVER key AS most FROM spent
              WHERE {_ALL_WAIT} WINDOW key AS (PARTITION BY {_KEY}))
        LEFT JOIN (SELECT Communicator, len(given) AS members FROM communicator) USING (Communicator)
        WHERE present = CASE WHEN Ranks = ? THEN ? ELSE members END AND fewest = most AND (present > 1 OR Ranks = 1)
        GROUP BY {_KEY}, kernels""", [job.world, len(job.ranks)])
    store.run(f"""
        CREATE OR REPLACE TEMP TABLE waited AS
        SELECT rank, Communicator, sum(t)::DOUBLE AS t, sum(t - most_transfer) AS waiting_least,
               sum(t - least(least_transfer, most_transfer)) AS waiting_most,
               sum(times * (longest - shortest) / 2.0 / sqrt(greatest(1, least(times, coalesce(steps, times))))) AS noise
        FROM spent JOIN met USING ({_KEY}, kernels)
        LEFT JOIN (SELECT rank, count(*) AS steps FROM step WHERE job = ? GROUP BY rank) USING (rank) GROUP BY rank, Communicator""", [number])
    # None where that is not all the time of the windows, as where records were lost: what ran in them is in nccl_sum.csv all the same. A
    # window in which nothing ran has no GPU's row, and windows for which there was no room have no number.
    time = dict(store.connection.execute("""
        SELECT rank, CASE WHEN bool_and(coalesce("Device Time (ns)" >= "Duration (ns)", Device = 'all' AND "Window" IS NOT NULL))
                          THEN coalesce(sum("Device Time (ns)") FILTER (Device = 'all'), 0) END
        FROM window_sum JOIN member USING (run) WHERE job = ? GROUP BY rank""", [number]).fetchall())
    # A rank is compared with those that it has a communicator in common with; what others do elsewhere need not take as long.
    rows = store.rows(f"""
        SELECT rank, all_t AS collective_ns, coalesce(w.t, 0) AS split_ns, waiting_least AS waiting_at_least_ns,
               waiting_most AS waiting_at_most_ns, noise, lead
        FROM (SELECT rank, sum(t) AS all_t FROM spent GROUP BY rank)
        LEFT JOIN (
          SELECT rank, sum(t) AS t, sum(waiting_least) AS waiting_least, sum(waiting_most) AS waiting_most, sum(noise) AS noise,
                 sum({median_of_others('t')} - t) AS lead
          FROM waited JOIN (SELECT Communicator, {middle('sorted')}
                            FROM (SELECT Communicator, list(t ORDER BY t) AS sorted FROM waited GROUP BY Communicator)) USING (Communicator)
          GROUP BY rank) w USING (rank) ORDER BY rank""")
    if not rows:
        return None
    ranks = {}
    for row in rows:
        device = time.get(row["rank"]) or None
        lead, noise = row.pop("lead"), row.pop("noise")
        ranks[row.pop("rank")] = {**row, "share": _share(row["collective_ns"], device), "waited_for_ns": lead, "noise_ns": noise,
                                  "waiting_at_least_share": _share(row["waiting_at_least_ns"], device),
                                  "waiting_at_most_share": _share(row["waiting_at_most_ns"], device)}
    total = sum(row["collective_ns"] for row in ranks.values())
    unknown = sorted(rank for rank in {*time, *ranks} if time.get(rank) is None)
    if unknown:
        job.problems.append(f"shares of the time in collectives, and stragglers by them, are not known, as not all of the windows' GPU time is: rank {spans(unknown)}")
    split = sum(row["split_ns"] for row in ranks.values())
    found = {"collective_ns": total, "split_share": split / total,
             "waiting_at_least_ns": sum(row["waiting_at_least_ns"] or 0 for row in ranks.values()),
             "waiting_at_most_ns": sum(row["waiting_at_most_ns"] or 0 for row in ranks.values()),
             "share": None if unknown else _share(total, sum(time.values())), "ranks": ranks,
             "stragglers": _stragglers(ranks, time, job), "operations": _operations(store), "communicators": _communicators(store)}
    if split < 0.995 * total:
        job.problems.append(f"{100 * (1 - split / total):.1f}% of the collectives' time is not split into transfer and waiting: the "
                            "communicator's ranks are not known, or only one of them is here, or not all ranks wait in the call, or not "
                            "all made it equally often")
    return found


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _stragglers(ranks: dict[int, dict[str, Any]], time: dict[int, Any], job: Job) -> list[dict[str, Any]]:
    """Ranks that the others wait for: those with the shortest kernels."""
    measured = {rank: row for rank, row in ranks.items() if row["waited_for_ns"] is not None}
    if len(measured) < 2:
        return []
    usual = statistics.median(row["noise_ns"] for row in measured.values())
    sure = statistics.NormalDist().inv_cdf(1 - STRAGGLER_CHANCE / len(measured))
    found = []
    for rank, row in measured.items():
        lead, noise = row["waited_for_ns"], math.hypot(row["noise_ns"], usual)
        row["noise_ns"] = noise
        if time.get(rank) and lead >= STRAGGLER_SHARE * time[rank] and lead >= max(3.0, sure) * noise:
            found.append({"rank": rank, "by": "collectives", "waited_for_ns": lead, "noise_ns": noise, "share": lead / time[rank]})
    return sorted(found, key=lambda entry: -entry["share"])


def _operations(store: Store) -> list[dict[str, Any]]:
    rows = store.rows(f"""
        SELECT Operation AS operation, Type AS type, Reduction AS reduction, nullif(Bytes, -1) AS bytes, Ranks AS ranks, Grouped AS grouped,
               count(DISTINCT s.rank) AS made_by, sum(s.kernels) AS kernels, sum(s.t) AS time_ns,
               sum(s.t - m.most_transfer) AS waiting_at_least_ns, sum(s.t - least(m.least_transfer, m.most_transfer)) AS waiting_at_most_ns
        FROM spent s LEFT JOIN met m USING ({_KEY}, kernels) GROUP BY {_CALL} ORDER BY time_ns DESC, operation, bytes LIMIT {_MOST_KEYS}""")
    return _whole(rows)


def _communicators(store: Store) -> list[dict[str, Any]]:
    """Those that have ids, by time."""
    rows = store.rows(f"""
        SELECT Communicator AS id, size, given AS ranks, len(given) AS given, sum(s.kernels) AS kernels, sum(s.t) AS time_ns,
               sum(s.t) FILTER (m.most_transfer IS NOT NULL) AS split_ns, sum(s.t - m.most_transfer) AS waiting_at_least_ns,
               sum(s.t - least(m.least_transfer, m.most_transfer)) AS waiting_at_most_ns
        FROM communicator LEFT JOIN spent s USING (Communicator) LEFT JOIN met m USING ({_KEY}, kernels)
        GROUP BY ALL ORDER BY time_ns DESC NULLS LAST, id LIMIT {_MOST_COMMUNICATORS}""")
    for row in rows:
        row["ranks"] = spans(row["ranks"], 100)
    return _whole(rows)


def _whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: int(value) if name.endswith("_ns") and value is not None else value for name, value in row.items()} for row in rows]
