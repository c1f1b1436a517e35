# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""All results of a merge in one value: what `--json` prints, and what terminal and page show."""

from __future__ import annotations

import collections
from typing import Any

from libinject.merge import code, collectives, jobs, links, memory, scaling, steps, usage
from libinject.merge.store import Store
from libinject.result import printable

_MOST_CELLS = 200_000  # of the heat map


def build(store: Store, how: str, problems: list[str], force: bool = False) -> dict[str, Any]:
    found = jobs.divide(store, how, force)
    steps.prepare(store)
    throughputs = [scaling.throughputs(store, number, job) for number, job in enumerate(found)]
    return {"jobs": [_job(store, number, job, next(iter(throughputs[number]), None)) for number, job in enumerate(found)],
            "scaling": scaling.compare(found, throughputs, problems), "problems": problems}


def _job(store: Store, number: int, job: jobs.Job, throughput: dict[str, Any] | None) -> dict[str, Any]:
    ranks = usage.of_job(store, number, job)
    times = steps.of_job(store, number, job)
    spent = collectives.of_job(store, number, job)
    for rank, row in times.pop("ranks").items():
        ranks[rank]["step"] = row
    for rank, row in (spent.pop("ranks") if spent else {}).items():
        ranks[rank]["collectives"] = row
    purposes = memory.of_job(store, number)
    for rank, row in purposes["ranks"].items():
        ranks[rank]["memory_by_purpose_b"] = row
    launched = code.of_job(store, number, job)
    stragglers = times.pop("stragglers") + (spent.pop("stragglers") if spent else [])
    lost: collections.Counter[str] = collections.Counter()
    for row in ranks.values():
        lost.update(row["lost"])
    some = next(iter(job.ranks.values()), {})
    return {
        "name": job.name, "command": some.get("command", ""), "id": printable(job.id, 500), "ranks": len(job.ranks), "world": job.world,
        "missing": jobs.spans(job.missing, 1000),
        "numbered_by_us": job.numbered, "hosts": len({row["host"] for row in ranks.values()}),
        "gpus": _gpus(ranks),
        "throughput": throughput, **times, "window_step_ns": times["step_ns"], "step_ns": throughput["step_ns"] if throughput else None,
        "stragglers": stragglers, "collectives": spent, "links": links.of_job(store, number), "memory_by_purpose": purposes["purposes"], "code": launched,
        "verdicts": dict(collections.Counter(row["verdict"] or "none" for row in ranks.values()).most_common()),
        "lost": dict(lost), "problems": job.problems,
        "by_rank": [{"rank": rank, **row} for rank, row in sorted(ranks.items())]}


def _gpus(ranks: dict[int, dict[str, Any]]) -> dict[str, int]:
    """The number of GPUs by name: ranks of one host may see the same GPUs."""
    seen = {uuid or f"{rank} {index}": name for rank, row in ranks.items()
            for index, (name, uuid) in enumerate(zip(row["gpus"], row["gpu_uuids"]))}
    return dict(collections.Counter(seen.values()))


def heat_map(store: Store, number: int) -> dict[str, Any]:
    """Step times by rank and iteration; if there are more than a page can show, the latest iterations. None if a rank has no complete
    iteration of that number; a gap in the numbers is a column of None, with the number None."""
    ranks = [row[0] for row in store.connection.execute("SELECT DISTINCT rank FROM step WHERE job = ? ORDER BY rank", [number]).fetchall()]
    iterations = [row[0] for row in store.connection.execute(
        "SELECT DISTINCT iteration FROM step WHERE job = ? ORDER BY iteration DESC LIMIT ?",
        [number, max(1, _MOST_CELLS // max(1, len(ranks)))]).fetchall()][::-1]
    columns: list[int | None] = []
    for iteration in iterations:
        if columns and columns[-1] != iteration - 1:
            columns.append(None)
        columns.append(iteration)
    cells: dict[int, list[float | None]] = {rank: [None] * len(columns) for rank in ranks}
    place = {iteration: index for index, iteration in enumerate(columns)}
    for rank, iteration, d in store.connection.execute(
            "SELECT rank, iteration, d FROM step WHERE job = ? AND iteration >= ?",
            [number, iterations[0] if iterations else 0]).fetchall():
        cells[rank][place[iteration]] = d
    [(total,)] = store.connection.execute("SELECT count(DISTINCT iteration) FROM step WHERE job = ?", [number]).fetchall()
    blank = sum(cells[rank][place[iteration]] is None for rank in ranks for iteration in iterations)
    return {"ranks": ranks, "iterations": columns, "ns": [cells[rank] for rank in ranks], "shown": len(iterations), "of": total, "blank": blank}
