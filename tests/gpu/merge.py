# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training on two GPUs under torchrun whose ranks have several communicators: what run.json says of the job, which communicator
nccl_sum.csv has each collective on, and what `inject merge` makes of the folders. These stay in OUT/merge/JOB, one folder
a rank.

Needs two GPUs and PyTorch; `inject merge` besides needs its Python packages, and is left out without them. Takes about a minute.
"""

import glob
import json
import os
import re
import sys

from gputest import SKIPPED, Folder, clean_environment, main, module_missing, profiled_environment, run
from nccl_ddp import BARRIER_BYTES, ENVIRONMENT, device_count

RANKS = 2
SLOW = 1  # the rank that computes more
LIMIT = 55  # s, for one job: most of it is PyTorch's start
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "programs", "torch_groups.py")
SCRIPTS = os.path.join(HERE, "..", "..", "scripts")
# (name, program arguments). The program opens the window around the same steps on all ranks; sixty are enough for the iterations in it to
# be found.
JOBS = [("split", ["--eager", "--steps", "10"]), ("lazy", ["--steps", "60", "--slow", str(SLOW)])]


def torchrun():
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]


def profile(options, report, name, arguments):
    """Runs a job. Returns {rank: (its output, its folder)}; None if it failed."""
    work = os.path.join(options.work, name)
    os.makedirs(work)
    environment = profiled_environment(options.library, os.path.join(work, "rank-%r"), summary="off")
    environment.update(ENVIRONMENT)
    result = os.path.join(options.work, name + ".result")
    done = run([*options.launcher(), options.program, *arguments, "--result", result], environment, timeout=LIMIT, cwd=options.work,
               log=os.path.join(options.work, name + ".log"))
    found = sorted(os.path.basename(path) for path in glob.glob(os.path.join(work, "*")))
    passed = done.rc == 0 and found == [f"rank-{rank}" for rank in range(RANKS)]
    report.check(f"{name}: the job ends well, and has one folder a rank", passed, found if done.rc == 0 else done.why())
    if not passed:
        return None
    ranks = {}
    for rank in range(RANKS):
        with open(f"{result}.{rank}") as file:
            ranks[rank] = json.load(file), Folder(os.path.join(work, f"rank-{rank}"))
        folder = ranks[rank][1]
        report.data.setdefault(name, []).append({"said": ranks[rank][0], "job": folder.run_json().get("job"),
                                                 "nccl_sum": folder.rows("nccl_sum.csv")})
    return ranks


def check_place(report, name, ranks):
    """What run.json has of the job, as torchrun reports it to its ranks."""
    found = [folder.run_json().get("job") or {} for _, folder in ranks.values()]
    expected = [{"rank": rank, "world_size": RANKS, "local_rank": rank, "local_size": RANKS, "node": 0} for rank in ranks]
    told = [{key: job.get(key) for key in expected[0]} for job in found]
    report.check(f"{name}: run.json has the ranks' places", told == expected, found)
    ids = {job.get("id") for job in found}
    report.check(f"{name}: all ranks have one job id", len(ids) == 1 and None not in ids, ids)
    return ids


def communicators(rows, **which):
    """{communicator: calls}"""
    found = {}
    for row in rows:
        if all(row[column] == value for column, value in which.items()) and row["Operation"] == "AllReduce" and \
                int(row["Bytes"]) > BARRIER_BYTES:
            found[row["Communicator"]] = found.get(row["Communicator"], 0) + int(row["Calls"])
    return found


def check_communicators(report, name, ranks):
    """One id for each group, the same on all of its ranks. Returns the ids."""
    by_rank = []
    for rank, (said, folder) in ranks.items():
        rows = folder.rows("nccl_sum.csv")
        what = f"{name}, rank {rank}"
        columns = list(rows[0]) if rows else []
        if not report.check(f"{what}: nccl_sum.csv has the column Communicator, the last", columns[-1:] == ["Communicator"], columns[-3:]):
            return None
        known = [row for row in rows if row["Operation"] != "[unknown]"]
        bad = [row["Operation"] for row in known if not re.fullmatch("0x[0-9a-f]{16}", row["Communicator"]) and row["Grouped"] != "group"]
        report.check(f"{what}: every call has its communicator, and the kernels of no call have none",
                     known and not bad and not any(row["Communicator"] for row in rows if row not in known), f"{len(known)} rows; without: {bad}")
        gradients, shared, own = (communicators(rows, Type=kind) for kind in ("fp32", "bf16", "fp64"))
        sent = sum(int(row["Bytes"]) * int(row["Calls"]) for row in known if row["Type"] == "fp32" and row["Communicator"] in gradients
                   and int(row["Bytes"]) > BARRIER_BYTES)
        steps = said["steps"]
        report.check(f"{what}: the gradients are on one communicator, the second group's sums on another",
                     len(gradients) == len(shared) == 1 and set(gradients) != set(shared), f"{gradients}, {shared}")
        report.check(f"{what}: rank 0 alone has a third one", len(own) == (1 if rank == 0 else 0) and not set(own) & {*gradients, *shared}, own)
        calls = *shared.values(), *own.values()
        report.check(f"{what}: as many calls and bytes as the program has made",
                     sent == steps * said["gradient_bytes"] and set(calls) == {steps}, f"{sent} B of gradients, {calls} calls in {steps} steps")
        by_rank.append((gradients, shared))
    report.check(f"{name}: communicators and calls are the same on all ranks", all(found == by_rank[0] for found in by_rank), by_rank)
    return {each for found in by_rank for group in found for each in group}


def check_merge(options, report, name, slow):
    """The merged report against the program's known behaviour."""
    reason = module_missing("duckdb", "typer", "rich", "jinja2", "plotly")
    if reason:
        report.skip(f"{name}: inject merge", f"{reason}; the folders are in {options.work}/{name}")
        return
    environment = clean_environment()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [SCRIPTS, environment.get("PYTHONPATH")]))
    done = run([sys.executable, "-m", "libinject", "merge", os.path.join(options.work, name), "--json"], environment, timeout=30,
               log=os.path.join(options.work, name + "-merge.log"))
    if not report.check(f"{name}: inject merge ends well", done.rc == 0, done.why()):
        return
    merged = json.loads(done.out)
    report.data[name + " merged"] = merged
    (job,) = merged["jobs"]
    found = job["collectives"] or {}
    report.check(f"{name}: one job, all ranks there", job["world"] == RANKS and job["ranks"] == RANKS and not job["missing"] and not merged["problems"],
                 f"{job['ranks']} of {job['world']} ranks, missing {job['missing'] or 'none'}; {merged['problems']}; {job['problems']}")
    groups = {entry["id"]: entry["ranks"] for entry in found.get("communicators", [])}
    report.check(f"{name}: two communicators of all ranks", list(groups.values()).count(f"0-{RANKS - 1}") == 2, groups)
    report.check(f"{name}: at least 95 % of the collectives' time is split into transfer and waiting", found.get("split_share", 0) >= 0.95,
                 found.get("split_share"))
    if slow is not None:
        waiting = {entry["rank"]: entry["collectives"]["waiting_at_least_ns"] for entry in job["by_rank"] if entry.get("collectives")}
        others = [waited for rank, waited in waiting.items() if rank != slow]
        report.check(f"{name}: rank {slow} computes more, and the others wait for it",
                     slow in waiting and others and waiting[slow] < 0.2 * min(others), waiting)


def test(options, report):
    count = device_count()
    if count < RANKS:
        print(f"merge: SKIPPED: {count} of the {RANKS} GPUs that it needs")
        sys.exit(SKIPPED)
    options.program, options.launcher, options.jobs = PROGRAM, torchrun, JOBS
    run_jobs(options, report)


def run_jobs(options, report):
    jobs, groups = [], []
    for name, arguments in options.jobs:
        ranks = report.guarded(name, profile, options, report, name, arguments)
        if ranks is None:
            continue
        jobs.append(report.guarded(name, check_place, report, name, ranks))
        groups.append(report.guarded(name, check_communicators, report, name, ranks))
        report.guarded(name, check_merge, options, report, name, SLOW if "--slow" in arguments else None)
    report.check("jobs have ids of their own, and their communicators as well",
                 len(jobs) == len(options.jobs) and None not in jobs + groups and not set.intersection(*jobs) and not set.intersection(*groups),
                 f"{jobs}, {groups}")


if __name__ == "__main__":
    main("merge", test, modules=("torch",))
