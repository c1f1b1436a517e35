# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Which folder is which rank of which job."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
from typing import Any

from libinject.merge.store import Store
from libinject.result import printable

HOW = ("auto", "one", "folders")


@dataclasses.dataclass
class Job:
    """`ranks`: rank to row of `runs`. `world` is how many ranks the job has, as far as that can be told."""

    name: str
    ranks: dict[int, dict[str, Any]]
    world: int = 0
    missing: list[int] = dataclasses.field(default_factory=list)
    numbered: bool = False  # the ranks' numbers are ours: run.json has none
    problems: list[str] = dataclasses.field(default_factory=list)


def spans(numbers: list[int], most: int = 8) -> str:
    """0-3, 7, …"""
    parts: list[str] = []
    for index, number in enumerate(numbers):
        if index and number == numbers[index - 1] + 1:
            parts[-1] = f"{parts[-1].partition('-')[0]}-{number}"
        else:
            parts.append(str(number))
    return ", ".join(parts[:most] + (["…"] if len(parts) > most else []))


def divide(store: Store, how: str = "auto") -> list[Job]:
    """The jobs, in the order of their names, and the table `member` (job, rank, run). Folders with different parents are one job
    unless a rank comes twice in it: each job has a rank 0."""
    runs = store.rows("SELECT * FROM runs ORDER BY run")
    by_parent: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_parent.setdefault(run["parent"], []).append(run)
    groups = list(by_parent.items())
    if how == "one" or (how == "auto" and not _ranks_repeat(groups)):
        groups = [(os.path.commonpath(list(by_parent)) if by_parent else "", runs)]
    complete = dict(store.connection.execute(
        "SELECT run, count(*) FROM iteration_sum WHERE Label = 'iteration' AND Complete = 1 AND Device = 'all' GROUP BY run").fetchall())
    largest = dict(store.connection.execute("SELECT run, max(Ranks) FROM nccl_sum WHERE Ranks < 1000000 GROUP BY run").fetchall())
    names = _names([parent for parent, _ in groups])
    jobs = [_job(name, members, complete, largest) for name, (_, members) in zip(names, groups, strict=True)]
    store.run("CREATE OR REPLACE TABLE member (job BIGINT, rank BIGINT, run BIGINT)")
    members = [(index, rank, run["run"]) for index, job in enumerate(jobs) for rank, run in job.ranks.items()]
    store.insert("member", ("BIGINT",) * 3, members)
    return jobs


def _ranks_repeat(groups: list[tuple[str, list[dict[str, Any]]]]) -> bool:
    """Whether a rank of one group is in another; without ranks, groups are jobs."""
    seen: set[int] = set()
    for _, runs in groups:
        ranks = {run["rank"] for run in runs if run["rank"] is not None}
        if seen & ranks or (not ranks and len(groups) > 1):
            return True
        seen |= ranks
    return False


def _names(parents: list[str]) -> list[str]:
    """The last parts of the paths, as many as tell them apart."""
    paths = [pathlib.PurePath(parent) for parent in parents]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return [printable(name) for name in names]
    return [printable(parent) for parent in parents]


def _job(name: str, runs: list[dict[str, Any]], complete: dict[int, int], largest: dict[int, int]) -> Job:
    job = Job(name, {})
    if all(run["rank"] is None for run in runs):
        ordered = sorted(runs, key=lambda run: (run["host"], run["time_zero"] or 0, run["pid"] or 0, run["run"]))
        job.ranks = dict(enumerate(ordered))
        job.numbered = len(runs) > 1
        if job.numbered:
            job.problems.append("no rank in any run.json (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID were not set): "
                                "folders are numbered by host and start")
    else:
        by_rank = collections.defaultdict(list)
        for run in runs:
            by_rank[run["rank"]].append(run)
        for run in by_rank.pop(None, []):
            job.problems.append(f"{printable(run['folder'], 400)}: left out: it has no rank, and others of the job have")
        for rank, candidates in sorted(by_rank.items()):
            # A rank that was started again: the one that has more to say.
            candidates.sort(key=lambda run: (complete.get(run["run"], 0), run["time_zero"] or 0, run["run"]), reverse=True)
            job.ranks[rank] = candidates[0]
            for other in candidates[1:]:
                job.problems.append(f"{printable(other['folder'], 400)}: left out: rank {rank} is there twice, and "
                                    f"{printable(candidates[0]['folder'], 400)} has more complete iterations, or is newer")
    communicator = max((largest.get(run["run"]) or 0 for run in job.ranks.values()), default=0)
    job.world = max(len(job.ranks), max(job.ranks, default=-1) + 1, communicator)
    if not job.numbered:
        job.missing = [rank for rank in range(job.world) if rank not in job.ranks]
    if job.missing:
        count = f"{len(job.missing)} of {job.world} ranks are missing" if len(job.missing) > 1 else f"1 of {job.world} ranks is missing"
        why = f": NCCL's communicators have {communicator}" if communicator > max(job.ranks, default=-1) + 1 else ""
        job.problems.append(f"{count}: {spans(job.missing)}{why}")
    return job
