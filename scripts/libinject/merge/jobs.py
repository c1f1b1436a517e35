# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Determines which folder is which rank of which job."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Hashable
from typing import Any, NoReturn

from libinject.console import duration
from libinject.merge.store import Store
from libinject.result import printable

HOW = ("auto", "one", "folders")
Run = dict[str, Any]  # a row of `runs`
_CLOCKS = 300_000_000_000  # ns by which hosts' clocks may differ
_OWN_RANK = re.compile(r"(--(?:local|node)?[-_]?rank[= ])\d+")  # what launchers add to a command


class NotOneJob(Exception):
    """`str()` is one line: which folders are not ranks of one job, and why."""


@dataclasses.dataclass
class Job:
    """`ranks`: rank to row of `runs`. `world` is the number of ranks of the job, as far as it is known."""

    name: str
    ranks: dict[int, Run]
    world: int = 0
    missing: list[int] = dataclasses.field(default_factory=list)
    id: str = ""
    numbered: bool = False  # ranks are numbered here because run.json has none
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


def divide(store: Store, how: str = "auto", force: bool = False) -> list[Job]:
    """The jobs, sorted by name, and the table `member` (job, rank, run). Raises NotOneJob, unless `force`."""
    runs = store.rows("SELECT * FROM runs ORDER BY run")
    communicators = _communicators(store)
    if how == "auto":
        groups = _by_evidence(runs, communicators)
    elif how == "folders":
        groups = list(_by(runs, lambda run: run["parent"]).values())
    else:
        groups = [runs] if runs else []
    if not force:
        ends = dict(store.connection.execute('SELECT run, max("Start (ns)" + "Duration (ns)") FROM window_sum GROUP BY run').fetchall())
        for group in groups:
            _check(group, communicators, ends)
        _check_once(runs)
    complete = dict(store.connection.execute(
        "SELECT run, count(*) FROM iteration_sum WHERE Label = 'iteration' AND Complete = 1 AND Device = 'all' GROUP BY run").fetchall())
    largest = dict(store.connection.execute("SELECT run, max(Ranks) FROM nccl_sum WHERE Ranks < 1000000 GROUP BY run").fetchall())
    jobs = [_job(name, members, complete, largest) for name, members in zip(_names(groups), groups)]
    store.run("CREATE OR REPLACE TABLE member (job BIGINT, rank BIGINT, run BIGINT)")
    members = [(index, rank, run["run"]) for index, job in enumerate(jobs) for rank, run in job.ranks.items()]
    store.insert("member", ("BIGINT",) * 3, members)
    return jobs


def _by(runs: list[Run], key: Callable[[Run], Hashable]) -> dict[Hashable, list[Run]]:
    found: dict[Hashable, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found


def _communicators(store: Store) -> dict[int, list[str]]:
    return dict(store.connection.execute(
        "SELECT run, list(DISTINCT Communicator) FROM nccl_sum WHERE Communicator <> '' GROUP BY run").fetchall())


def _by_evidence(runs: list[Run], communicators: dict[int, list[str]]) -> list[list[Run]]:
    """Runs that share a communicator are one job. Otherwise, different ids are different jobs; and if ids do not distinguish them, folders
    with different parents are one job unless a rank occurs twice, as each job has a rank 0."""
    parents: dict[Hashable, Hashable] = {}  # of a forest: communicators, ids and folders that belong together have the same root

    def root(node: Hashable) -> Hashable:
        while (above := parents.setdefault(node, node)) != node:
            parents[node] = parents[above]
            node = above
        return node

    def roots(run: Run, kind: str, value: str) -> Hashable:
        """The root of this run by id or folder, merged with the runs that share a communicator with it."""
        own = root((kind, value))
        for each in communicators.get(run["run"], ()):
            parents[root((kind + " of", each))] = own
            own = root(own)
        return own

    for run in runs:
        if run["job_id"]:
            roots(run, "id", run["job_id"])
        roots(run, "folder", run["parent"])
    by_id = _by(runs, lambda run: root(("id", run["job_id"])) if run["job_id"] else None)
    if len(by_id) - (None in by_id) <= 1:
        by_id = {None: runs} if runs else {}
    groups = []
    for members in by_id.values():
        by_folder = list(_by(members, lambda run: root(("folder", run["parent"]))).values())
        groups += by_folder if _ranks_repeat(by_folder) else [members]
    return groups


def _check(group: list[Run], communicators: dict[int, list[str]], ends: dict[int, int | None]) -> None:
    """Checks that the folders can be ranks of one job. Those without a rank are left out if others have one."""
    ranked = [run for run in group if run["rank"] is not None]
    runs = ranked or group
    first_of: dict[int, Run] = {}
    for run in ranked:
        other = first_of.setdefault(run["rank"], run)
        if other is not run:
            _refuse(other, run, f"both are rank {run['rank']}")
    met = _met(runs, communicators)
    related = _met(runs, {run["run"]: [*communicators.get(run["run"], ()), *([f"job {run['job_id']}"] if run["job_id"] else [])] for run in runs})
    for run in runs[1:]:
        if met[run["run"]] != met[runs[0]["run"]]:
            differs = _differs(runs[0], run, related[run["run"]] == related[runs[0]["run"]], ends)
            if differs:
                _refuse(runs[0], run, differs)


def _check_once(runs: list[Run]) -> None:
    """Checks that no folder is a copy of another."""
    first_of: dict[tuple[str, int, int], Run] = {}
    for run in runs:
        if run["host"] and run["pid"] is not None and run["time_zero"] is not None:
            other = first_of.setdefault((run["host"], run["pid"], run["time_zero"]), run)
            if other is not run:
                _refuse(other, run, f"both are the one run of process {run['pid']} on {printable(run['host'], 40)}")


def _refuse(a: Run, b: Run, why: str) -> NoReturn:
    # A copy contains the path of the folder from which it was made.
    other = "a copy of it" if a["folder"] == b["folder"] else printable(b["folder"], 400)
    raise NotOneJob(f"{printable(a['folder'], 400)} and {other} are not ranks of one job: {why}; --force merges them anyway")


def _met(runs: list[Run], communicators: dict[int, list[str]]) -> dict[int, Hashable]:
    """Runs that have communicators in common, directly or through others, have the same value here; all others have one of their own."""
    of_communicator: dict[str, int] = {}
    members: dict[int, set[int]] = {}
    group_of: dict[int, int] = {}
    for run in runs:
        number = run["run"]
        members[number], group_of[number] = {number}, number
        for each in communicators.get(number, ()):
            a, b = group_of[of_communicator.setdefault(each, number)], group_of[number]
            if a != b:
                small, large = sorted((a, b), key=lambda group: len(members[group]))
                for member in members[small]:
                    group_of[member] = large
                members[large] |= members.pop(small)
    return dict(group_of)


def _differs(a: Run, b: Run, related: bool, ends: dict[int, int | None]) -> str:
    """The reason why two runs can't be of one job. `related`: they have the same id, or are connected through others by communicators or
    ids."""
    if a["world_size"] and b["world_size"] and a["world_size"] != b["world_size"]:
        return f"of {a['world_size']} and of {b['world_size']} ranks"
    if related:
        return ""
    if a["job_id"] and b["job_id"]:
        return f"jobs '{printable(a['job_id'], 80)}' and '{printable(b['job_id'], 80)}'"
    commands = [_OWN_RANK.sub(r"\1N", run["command"]) for run in (a, b)]
    if commands[0] != commands[1]:
        return f"they ran '{printable(a['command'], 120)}' and '{printable(b['command'], 120)}'"
    if any(run["time_zero"] is None or ends.get(run["run"]) is None for run in (a, b)):
        return ""
    between = max(run["time_zero"] for run in (a, b)) - min(run["time_zero"] + (ends[run["run"]] or 0) for run in (a, b))
    if between > (0 if a["host"] == b["host"] else _CLOCKS):
        return f"one had ended {duration(between)} before the other began"
    return ""


def _ranks_repeat(groups: list[list[Run]]) -> bool:
    """Whether a rank of one group is also in another; groups without ranks count as separate jobs."""
    seen: set[int] = set()
    for runs in groups:
        ranks = {run["rank"] for run in runs if run["rank"] is not None}
        if seen & ranks or (not ranks and len(groups) > 1):
            return True
        seen |= ranks
    return False


def _common(parents: set[str]) -> str:
    try:
        return os.path.commonpath(parents)
    except ValueError:  # a mix of absolute and relative paths, which copies may have
        return min(parents)


def _names(groups: list[list[Run]]) -> list[str]:
    """The last parts of the folders' paths, as many as needed to distinguish them; for jobs in the same folder, with their ids as well."""
    parents = [_common({run["parent"] for run in runs}) for runs in groups]
    paths = [pathlib.PurePath(parent) for parent in parents]
    names = [printable(parent) for parent in parents]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        short = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(short)) == len(set(parents)):
            names = [printable(name) for name in short]
            break
    ids = [next((run["job_id"] for run in runs if run["job_id"]), "") for runs in groups]
    return [f"{name} ({printable(ids[index] or 'no id', 60)})" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _job(name: str, runs: list[Run], complete: dict[int, int], largest: dict[int, int]) -> Job:
    job = Job(name, {})
    if all(run["rank"] is None for run in runs):
        ordered = sorted(runs, key=lambda run: (run["host"], run["time_zero"] or 0, run["pid"] or 0, run["run"]))
        job.ranks = dict(enumerate(ordered))
        job.numbered = len(runs) > 1
        if job.numbered:
            job.problems.append("no rank in any run.json (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID were not set): "
                                "ranks are numbered by host and start time")
    else:
        by_rank = collections.defaultdict(list)
        for run in runs:
            by_rank[run["rank"]].append(run)
        for run in by_rank.pop(None, []):
            job.problems.append(f"{printable(run['folder'], 400)}: left out: it has no rank, while others of the job have one")
        for rank, candidates in sorted(by_rank.items()):
            # A rank that was restarted: keep the folder with more data.
            candidates.sort(key=lambda run: (complete.get(run["run"], 0), run["time_zero"] or 0, run["run"]), reverse=True)
            job.ranks[rank] = candidates[0]
            for other in candidates[1:]:
                job.problems.append(f"{printable(other['folder'], 400)}: left out: rank {rank} occurs twice, and "
                                    f"{printable(candidates[0]['folder'], 400)} has more complete iterations, or is newer")
    communicator = max((largest.get(run["run"]) or 0 for run in job.ranks.values()), default=0)
    told = _by(list(job.ranks.values()), lambda run: run["world_size"])
    told.pop(None, None)
    if len(told) > 1:
        sizes = ", ".join(f"{size} (rank {spans(sorted(run['rank'] or 0 for run in runs))})" for size, runs in sorted(told.items())[:4])
        job.problems.append(f"the ranks' run.json do not agree on how many ranks the job has: {sizes}")
    job.world = max(len(job.ranks), max(job.ranks, default=-1) + 1, communicator, *told)
    job.id = next((run["job_id"] for run in job.ranks.values() if run["job_id"]), "")
    if not job.numbered:
        job.missing = [rank for rank in range(job.world) if rank not in job.ranks]
    if job.missing:
        count = f"{len(job.missing)} of {job.world} ranks are missing" if len(job.missing) > 1 else f"1 of {job.world} ranks is missing"
        why = f": NCCL's communicators have {communicator}" if communicator > max(max(job.ranks, default=-1) + 1, *told, 0) else ""
        job.problems.append(f"{count}: {spans(job.missing)}{why}")
    return job
