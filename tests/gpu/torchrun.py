# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""torchrun under the preload, with ranks that train, fail, are started anew, or are ended with it: the same status, output and
error summary as bare, nothing in torchrun itself, and a folder for each rank with its own kernels, as torch.profiler counts them.
Two ranks on one GPU, and one on each.
"""

import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys

from gputest import Folder, clean_environment, main, profiled_environment, run
from nccl_ddp import ENVIRONMENT, device_count, free_port
from recovery import column_sum, find_injectctl, totals

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_ranks.py")
LIMIT = 75  # s, for one job: most of it is PyTorch's start
# Lines that torchrun prints about a rank that failed.
SUMMARY = r"^\s*(?:rank|exitcode|error_file|traceback|raise \w+|\w*Error)\b.*"


def launch(*words):
    return [sys.executable, "-m", "torch.distributed.run", *words]


def static(ranks):
    return launch(f"--nproc-per-node={ranks}", "--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}")


def error_summary(text):
    """What torchrun prints about failed ranks, without times, process ids and names of temporary files."""
    said = text[text.rfind("FAILED"):] if "FAILED" in text else ""
    lines = [line.strip() for line in re.findall(SUMMARY, said, re.MULTILINE)]
    return [re.sub(r"\(pid: \d+\)|by PID \d+", "(pid)", re.sub(r"/tmp/\S+", "FILE", line)) for line in lines]


class Job:
    """One torchrun, bare or under the preload, in a working directory of its own."""

    def __init__(self, options, name, mode, command, backend, bare):
        self.work = os.path.join(options.work, name + ("-bare" if bare else ""))
        os.makedirs(self.work)
        environment = clean_environment() if bare else \
            profiled_environment(options.library, os.path.join(self.work, "out-%r"), "api", summary="off", ring="4M", buffers="8M")
        # faulthandler's output would replace the exception's text in torchrun's summary.
        environment.pop("PYTHONFAULTHANDLER", None)
        environment.update(ENVIRONMENT, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
        self.result = os.path.join(options.work, os.path.basename(self.work) + ".result")
        self.command = [*command, options.program, "--mode", mode, "--backend", backend, "--result", self.result]
        self.environment, self.log = environment, self.work + ".log"
        self.done = None

    def run(self):
        self.done = run(self.command, self.environment, timeout=LIMIT, cwd=self.work, log=self.log)
        return self

    def outcome(self):
        return self.done.rc, sorted(self.done.out.splitlines()), error_summary(self.done.err)

    def results(self, attempt=0):
        """{rank: what it has written}"""
        found = {}
        for path in glob.glob(f"{self.result}.*.{attempt}"):
            with open(path) as file:
                said = json.load(file)
            found[said["rank"]] = said
        return found

    def folders(self):
        """{(rank, pid): folder}"""
        found = {}
        for path in glob.glob(os.path.join(self.work, "out-*")):
            said = Folder(path).run_json()
            found[said["rank"], said["pid"]] = Folder(path)
        return found


def trained(report, what, said, folder):
    run_json, kernels = folder.run_json(), folder.kernel_counts()
    wrong = [name for name in set(kernels) | set(said["kernels"]) if kernels.get(name) != said["kernels"].get(name)]
    report.check(f"{what}: as many kernels of each name as torch.profiler has, nothing lost",
                 kernels and not wrong and run_json["state"] == "closed" and not folder.lost() and "records" not in folder.files(),
                 f"{sum(kernels.values())} kernels of {len(kernels)} names, {run_json['state']}; lost {folder.lost()}; " +
                 "; ".join(f"{name[:60]} {kernels.get(name)} of {said['kernels'].get(name)}" for name in wrong[:2]))


def kernels_of(rank):
    """The kernels of come_to_the_window, in both windows."""
    return 1 + 100 * (rank + 1)


def known(folder):
    return sum(count for name, count in folder.kernel_counts().items() if "cos" in name.lower())


def failed(report, what, rank, folder):
    """Python has unwound, so everything is written."""
    run_json = folder.run_json()
    report.check(f"{what}: a rank that fails by an exception leaves complete tables",
                 run_json["state"] == "closed" and not folder.lost() and known(folder) == kernels_of(rank),
                 f"{run_json['state']}, {known(folder)} of {kernels_of(rank)} kernels; lost {folder.lost()}")


def ended(options, report, what, rank, folder):
    """SIGTERM has ended it in its window, and its records are recovered."""
    if "records" not in folder.files():  # it may unwind after SIGTERM
        failed(report, what, rank, folder)
        return
    done = subprocess.run([options.injectctl, "recover", folder.path], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        report.check(f"{what}: a rank that torchrun has ended is recovered", False, done.stderr.strip())
        return
    run_json, rows = folder.run_json(), totals(folder)
    submissions, missing = column_sum(rows, "Submissions"), run_json["lost"]["missing_activity_records"]
    records = column_sum(rows, "Kernels", "Copies", "Memsets") - run_json["recovered"]["records_without_call"]
    report.check(f"{what}: a rank that torchrun has ended is recovered, what is missing counted",
                 run_json["state"] == "recovered" and records + missing == submissions and submissions == kernels_of(rank),
                 f"{run_json['state']}, {records} records and {missing} missing, {submissions} submissions, {kernels_of(rank)} known")


def check(options, report, name, mode, bare, job, ranks):
    same = bare.outcome() == job.outcome()
    expected = 0 if mode in ("train", "restart") else None
    report.check(f"{name}: torchrun's status, output and error summary are as without us",
                 same and (job.done.rc == 0) == (expected == 0) and not job.done.timed_out,
                 job.outcome() if same else f"{bare.outcome()} bare, {job.outcome()}; {job.done.why()}")
    report.data[name] = {"bare": bare.outcome(), "preloaded": job.outcome(), "stderr": job.done.err[-3000:]}
    attempts = [job.results(attempt) for attempt in range(2 if mode == "restart" else 1)]
    everyone = list(range(ranks))
    if not report.check(f"{name}: every rank has come to its window", all(sorted(said) == everyone for said in attempts),
                        [sorted(said) for said in attempts]):
        return
    folders = job.folders()
    pids = {(str(rank), said["pid"]) for results in attempts for rank, said in results.items()}
    stray = sorted(set(os.listdir(job.work)) - {os.path.basename(folder.path) for folder in folders.values()})
    report.check(f"{name}: a folder for each rank and attempt, and no other file", set(folders) == pids and not stray,
                 [sorted(os.path.basename(folder.path) for folder in folders.values()), stray])
    agent = {(said["launcher_preloaded"], said["launcher_threads"]) for results in attempts for said in results.values()}
    report.check(f"{name}: torchrun has the library and no thread of ours", agent == {(True, 0)}, sorted(agent))
    for attempt, results in enumerate(attempts):
        for rank, said in sorted(results.items()):
            folder = folders.get((str(rank), said["pid"]))
            what = f"{name}, rank {rank}" + (f", attempt {attempt + 1}" if len(attempts) > 1 else "")
            if folder is None:
                continue
            if mode == "train" or attempt == 1:
                trained(report, what, said, folder)
            elif rank == 1 and mode != "stop":
                failed(report, what, rank, folder)
            else:
                ended(options, report, what, rank, folder)


def test(options, report):
    options.program = PROGRAM
    options.injectctl = options.injectctl or find_injectctl(options.library)
    if not options.injectctl:
        report.check("injectctl is there", False, "name it with --injectctl")
        return
    gpus = device_count()
    two = ("--standalone", "--nproc-per-node=2")
    # (name, mode, torchrun's command, backend, ranks)
    jobs = [("two ranks on a GPU", "train", lambda: launch(*two), "gloo", 2),
            ("four ranks, no standalone", "train", lambda: static(4), "gloo", 4),
            ("a rank a GPU", "train", lambda: launch("--standalone", f"--nproc-per-node={gpus}"), "nccl", gpus),
            ("a rank fails", "fail", lambda: launch(*two), "gloo", 2),
            ("a rank fails, restart", "restart", lambda: launch(*two, "--max-restarts=1"), "gloo", 2),
            ("torchrun is ended", "stop", lambda: launch(*two), "gloo", 2)]
    run_jobs(options, report, jobs)


def run_jobs(options, report, jobs):
    """Nothing is measured here, so jobs may run concurrently, except for two that use NCCL on the same GPUs."""
    def pair(job):
        name, mode, command, backend, ranks = job
        bare, preloaded = (Job(options, name.replace(" ", "-").replace(",", ""), mode, command(), backend, bare) for bare in (True, False))
        return name, mode, bare.run(), preloaded.run(), ranks

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        started = [(job[0], pool.submit(pair, job)) for job in jobs]
    for name, future in started:
        report.guarded(name, lambda future=future: check(options, report, *future.result()))


def arguments(parser):
    parser.add_argument("--injectctl", help="default: that of the build")
    parser.add_argument("--jobs", type=int, default=6, help="pairs of jobs at a time")


if __name__ == "__main__":
    main("torchrun", test, modules=("torch",), arguments=arguments)
