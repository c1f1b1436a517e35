# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Step times: those of each rank, the skew between ranks, and stragglers."""

from __future__ import annotations

import math
import statistics
from typing import Any

from libinject.compare import noise
from libinject.console import duration
from libinject.merge.jobs import Job, spans
from libinject.merge.statistics import median_of_others, middle
from libinject.merge.store import Store
from libinject.result import printable

STRAGGLER_SHARE = 0.02  # of the step: a smaller excess does not matter, however significant
STRAGGLER_CHANCE = 0.01  # probability of any false straggler in a job
FEWEST_ITERATIONS = 5
OUT_OF_STEP = 0.75  # of a step


def prepare(store: Store) -> None:
    """`step`: complete iterations of all jobs whose step time (d) is known. `compared`: those that the ranks of a job have in common, with
    each rank's excess over the median of the others."""
    store.run("""
        CREATE OR REPLACE TABLE step AS
        SELECT job, rank, run, Iteration AS iteration, "Start (ns)" AS start, "Duration (ns)" AS duration, "Step Time (ns)" AS d
        FROM iteration_sum JOIN member USING (run)
        WHERE Label = 'iteration' AND Complete = 1 AND Device = 'all' AND Iteration IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY run, Iteration ORDER BY "Window" DESC, "Start (ns)" DESC) = 1 AND "Step Time (ns)" > 0""")
    # Iterations that at least half of the ranks have; ranks that have at least half of these; the iterations that all of those ranks have.
    store.run("""
        CREATE OR REPLACE TABLE usual AS
        SELECT job, iteration FROM step JOIN (SELECT job, count(DISTINCT rank) AS ranks FROM step GROUP BY job) USING (job)
        GROUP BY job, iteration, ranks HAVING count(*) * 2 >= ranks""")
    store.run("""
        CREATE OR REPLACE TABLE fitting AS
        SELECT job, rank FROM step JOIN usual USING (job, iteration)
        JOIN (SELECT job, count(*) AS iterations FROM usual GROUP BY job) USING (job)
        GROUP BY job, rank, iterations HAVING count(*) * 2 >= iterations""")
    store.run(f"""
        CREATE OR REPLACE TABLE common AS
        SELECT job, iteration, {middle('sorted')}, sorted[1] AS least, sorted[n] AS most
        FROM (SELECT job, iteration, list(d ORDER BY d) AS sorted FROM step JOIN fitting USING (job, rank)
              JOIN (SELECT job, count(*) AS ranks FROM fitting GROUP BY job) USING (job)
              GROUP BY job, iteration, ranks HAVING count(*) = ranks AND ranks > 1)""")
    store.run(f"""
        CREATE OR REPLACE TABLE compared AS
        SELECT job, rank, run, iteration, start, duration, d, d = most AND most > least AS slowest, d - {median_of_others('d')} AS excess
        FROM step JOIN fitting USING (job, rank) JOIN common USING (job, iteration)""")


def of_job(store: Store, number: int, job: Job) -> dict[str, Any]:
    ranks = {row.pop("rank"): row for row in store.rows("""
        SELECT rank, count(*) AS iterations, min(iteration) AS first, max(iteration) AS last, avg(d) AS mean_ns, median(d) AS median_ns,
               stddev_samp(d) AS stddev_ns, min(d) AS min_ns, quantile_cont(d, 0.95) AS p95_ns, max(d) AS max_ns
        FROM step WHERE job = ? GROUP BY rank ORDER BY rank""", [number])}
    _tell_repeated(store, number, job)
    without = [rank for rank in sorted(job.ranks) if rank not in ranks]
    if without:
        job.problems.append(f"no complete iteration with a step time: rank {spans(without)}")
    found: dict[str, Any] = {"ranks": ranks, "compared": None, "skew": None, "stragglers": [], "step_ns": None}
    if ranks:
        found["step_ns"] = statistics.median(row["median_ns"] for row in ranks.values())
    fitting = [row[0] for row in store.connection.execute("SELECT rank FROM fitting WHERE job = ? ORDER BY rank", [number]).fetchall()]
    if len(ranks) < 2:
        return found
    strangers = [rank for rank in ranks if rank not in fitting]
    if strangers:
        job.problems.append(f"left out of the comparison by iteration: rank {spans(strangers)} has different iterations from most ranks")
    shared = store.rows("SELECT count(*) AS iterations, min(iteration) AS first, max(iteration) AS last FROM common WHERE job = ?",
                        [number])[0]
    if not shared["iterations"]:
        job.problems.append("the ranks have no iteration in common: neither skew nor stragglers can be determined by step time")
        return found
    [(seen,)] = store.connection.execute("SELECT count(DISTINCT iteration) FROM step JOIN fitting USING (job, rank) WHERE job = ?", [number]).fetchall()
    found["compared"] = {"ranks": len(fitting), "iterations": shared["iterations"], "first": shared["first"], "last": shared["last"],
                         "left_out": seen - shared["iterations"]}
    found["skew"] = _skew(store, number)
    _check_starts(store, number, job)
    found["stragglers"] = _stragglers(store, number, job, ranks, len(fitting), found["step_ns"])
    return found


def _skew(store: Store, number: int) -> dict[str, Any]:
    """For each iteration, the slowest rank's step time minus the fastest one's."""
    return store.rows("""
        SELECT avg(s) AS mean_ns, median(s) AS median_ns, quantile_cont(s, 0.95) AS p95_ns, max(s) AS max_ns,
               arg_max(iteration, s) AS max_iteration, avg(s / usual) AS mean_share
        FROM (SELECT iteration, most - least AS s, CASE n % 2 WHEN 1 THEN mid ELSE (low + mid) / 2.0 END AS usual
              FROM common WHERE job = ?)""", [number])[0]


def _stragglers(store: Store, number: int, job: Job, ranks: dict[int, dict[str, Any]], compared: int, step: float) -> list[dict[str, Any]]:
    found = []
    rows = store.rows("""SELECT rank, count(*) AS n, avg(excess) AS mean, stddev_samp(excess) AS stddev,
                                count(*) FILTER (slowest) AS slowest
                         FROM compared WHERE job = ? GROUP BY rank ORDER BY mean DESC, rank""", [number])
    if rows and rows[0]["n"] < FEWEST_ITERATIONS:
        job.problems.append(f"{rows[0]['n']} iterations in common: too few to determine stragglers by step time, {FEWEST_ITERATIONS} are needed")
    # What makes a rank slow lasts: successive iterations are alike, and how much is seen best in all ranks together.
    means = dict(store.connection.execute(f"""
        SELECT rank, list(mean ORDER BY part) FROM (
            SELECT rank, place * {noise.MOST_BLOCKS} // n AS part, avg(excess) AS mean
            FROM (SELECT rank, excess, row_number() OVER (PARTITION BY rank ORDER BY iteration) - 1 AS place, count(*) OVER (PARTITION BY rank) AS n
                  FROM compared WHERE job = ?) GROUP BY rank, part) GROUP BY rank""", [number]).fetchall())
    inflated = noise.inflation(*means.values())
    for row in rows:
        ranks[row["rank"]] |= {"excess_ns": row["mean"], "excess_stddev_ns": row["stddev"], "slowest": row["slowest"]}
        if row["n"] < FEWEST_ITERATIONS or row["mean"] < STRAGGLER_SHARE * step:
            continue
        error, freedom = noise.error_of_mean(means[row["rank"]], inflated)
        # Every rank is one more chance of a false straggler, at one side.
        chance = min(1.0, compared * noise.student_p(row["mean"] / error if error else math.inf, freedom) / 2)
        if chance < STRAGGLER_CHANCE:
            found.append({"rank": row["rank"], "by": "step time", "excess_ns": row["mean"], "excess_error_ns": error,
                          "share": row["mean"] / step, "slowest": row["slowest"], "iterations": row["n"], "chance": chance})
    return found


def _tell_repeated(store: Store, number: int, job: Job) -> None:
    rows = store.rows("""
        SELECT rank, count(*) AS rows, count(DISTINCT Iteration) AS numbers FROM iteration_sum JOIN member USING (run)
        WHERE job = ? AND Label = 'iteration' AND Complete = 1 AND Device = 'all' AND Iteration IS NOT NULL GROUP BY rank
        HAVING rows > numbers ORDER BY rank""", [number])
    if rows:
        job.problems.append(f"iteration numbers occur twice, the later ones count: rank {spans([row['rank'] for row in rows])}")


def _check_starts(store: Store, number: int, job: Job) -> None:
    """Checks whether iterations with the same number are the same ones. Ranks of one host share a clock; different hosts are only
    mentioned. Ranks that drift apart because nothing synchronizes them are not reported: all of the iterations must be apart. Starts are
    the host's, and are compared with the host's."""
    sql = """
        WITH begun AS (SELECT c.rank, host, iteration, time_zero + start AS start, duration FROM compared c JOIN runs USING (run)
                       WHERE job = ? AND time_zero IS NOT NULL),
             apart AS (SELECT rank, host, start - quantile_disc(start, 0.5) OVER (PARTITION BY {group}) AS off, duration FROM begun)
        SELECT {what} AS what, min(abs(off)) / median(duration) AS steps, sign(median(off)) * min(abs(off)) AS off FROM apart GROUP BY what
        HAVING steps > ? ORDER BY steps DESC, what"""
    inside = store.rows(sql.format(group="host, iteration", what="rank"), [number, OUT_OF_STEP])
    for row in inside[:8]:
        apart = f"{row['steps']:.1f} steps {'later' if row['off'] > 0 else 'earlier'}"
        job.problems.append(f"rank {row['what']} starts its iterations {apart} than other ranks on its host start those with the same numbers: "
                            "the numbers may not correspond, in which case the skew is wrong")
    if len(inside) > 8:
        job.problems.append(f"… and so do {len(inside) - 8} more ranks")
    across = store.rows(sql.format(group="iteration", what="host"), [number, OUT_OF_STEP])
    if across and not inside:
        hosts = ", ".join(f"{printable(row['what'], 40)} by {duration(row['off'])}" for row in across[:4])
        job.problems.append(f"iterations with the same numbers begin at different times on {hosts}: "
                            "these hosts' clocks are off, or the numbers are")
