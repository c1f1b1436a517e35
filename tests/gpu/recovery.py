# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A PyTorch training that is killed at random moments (SIGKILL): `injectctl recover` makes its tables each time, what is missing
is counted, and windows whose tables were on disk stay as they were.

Half of the runs have one window that stays open, half have windows of 200 ms that follow each other. Some at a time, since
most of each is PyTorch's start.
"""

import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from gputest import Folder, main, profiled_environment

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_training.py")
START = 120  # s, at most, until the program has launched something
AT_ONCE = 4
COLUMNS = ("Kernels", "Kernel Time (ns)", "Copies", "Memsets", "Submissions", "API Calls", "Duration (ns)")


def find_injectctl(library):
    """injectctl from the same build as the library."""
    for folder in (os.path.dirname(library), os.path.dirname(os.path.dirname(library))):
        for name in ("injectctl/injectctl", "injectctl", "bin/injectctl"):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


def totals(folder):
    return [row for row in folder.rows("window_sum.csv") if row["Device"] == "all"]


def column_sum(rows, *columns):
    return sum(int(row[column]) for row in rows for column in columns)


class Kill:
    """One run: started, killed, recovered; `problems` lists what was wrong."""

    def __init__(self, options, number, window):
        self.options, self.number, self.window = options, number, window
        self.work = os.path.join(options.work, f"kill{number}")
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        self.out = os.path.join(self.work, "out")
        self.problems = []
        self.data = {"number": number, "window": window}

    def expect(self, what, holds):
        if not holds:
            self.problems.append(what)

    def killed(self):
        """The program, killed while its records were in a file. False if it did not get that far."""
        environment = profiled_environment(self.options.library, self.out, self.window, summary="off")
        environment["OMP_NUM_THREADS"] = "1"
        environment["PYTHONFAULTHANDLER"] = "1"  # a program that crashes prints where
        with open(os.path.join(self.work, "log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen([sys.executable, PROGRAM, "recovery", "--workers", "0", "--seconds", str(START)],
                                       env=environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                deadline = time.monotonic() + START
                while not os.path.exists(os.path.join(self.out, "records")):
                    if process.poll() is not None or time.monotonic() > deadline:
                        self.problems.append("no record file")
                        return False
                    time.sleep(0.01)
                delay = random.Random(self.options.seed + self.number).uniform(0, self.options.longest)
                self.data["killed_after_s"] = round(delay, 3)
                time.sleep(delay)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
        if process.returncode != -signal.SIGKILL:
            with open(os.path.join(self.work, "log"), encoding="utf-8", errors="replace") as log:
                self.problems.append(f"status {process.returncode}: " + " | ".join(log.read().splitlines()[-12:]))
        return True

    def recover(self):
        folder = Folder(self.out)
        before = {row["Window"]: row for row in totals(folder) if row["State"] == "closed"}
        done = subprocess.run([self.options.injectctl, "recover", self.out], capture_output=True, text=True, timeout=120, check=False)
        self.expect(f"recover: {done.returncode} {done.stderr.strip()}", done.returncode == 0)
        if done.returncode != 0:
            return
        run = folder.run_json()
        rows = totals(folder)
        recovered = run["recovered"]
        records = column_sum(rows, "Kernels", "Copies", "Memsets")
        submissions = column_sum(rows, "Submissions")
        missing = run["lost"]["missing_activity_records"]
        self.data.update(recovered, windows=len(rows), records=records, submissions=submissions, missing=missing,
                         lost={kind: count for kind, count in run["lost"].items() if count})
        self.expect("state " + run["state"], run["state"] == "recovered")
        self.expect("the record file is still there", "records" not in folder.files())
        for name in ("journal_cut", "journal_full", "records_refused", "bytes_unread"):
            self.expect(f"{name} {recovered[name]}", not recovered[name])
        # Without CUDA graphs, each submission has one record.
        self.expect(f"{records} records - {recovered['records_without_call']} + {missing} missing, {submissions} submissions",
                    records - recovered["records_without_call"] + missing == submissions)
        self.expect(f"{column_sum(rows, 'Kernels')} kernels in windows, {sum(folder.kernel_counts().values())} by name",
                    column_sum(rows, "Kernels") == sum(folder.kernel_counts().values()))
        after = {row["Window"]: row for row in rows}
        for number, row in before.items():
            # A call that began in the window may have returned after the tables were written.
            changed = [column for column in COLUMNS if number not in after or (
                int(after[number][column]) < int(row[column]) if column == "API Calls" else after[number][column] != row[column])]
            self.expect(f"window {number}, which was on disk, has other {changed}", not changed)
        again = subprocess.run([self.options.injectctl, "recover", self.out], capture_output=True, text=True, timeout=120, check=False)
        self.expect("the second time says that it is done", again.returncode == 0 and "already been recovered" in again.stdout)

    def check(self):
        if self.killed():
            self.recover()
        self.data["problems"] = self.problems
        return self


def test(options, report):
    options.injectctl = options.injectctl or find_injectctl(options.library)
    if not options.injectctl:
        report.check("injectctl is there", False, "name it with --injectctl")
        return
    windows = ("always", "time:0s+200ms/300ms")
    kills = [Kill(options, number, windows[number % 2]) for number in range(options.kills)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(Kill.check, kills))
    report.data["kills"] = [kill.data for kill in done]
    for kill in done:
        data = kill.data
        report.check(f"kill {kill.number} ({kill.window}, after {data.get('killed_after_s', '?')} s)", not kill.problems,
                     "; ".join(kill.problems) or f"{data['records']} records, {data['missing']} missing, "
                     f"{data['records_from_queues']} from queues, {data['records_from_buffers']} from buffers")
    report.check("some records were recovered", any(kill.data.get("records") for kill in done))


def arguments(parser):
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=6.0, help="s from the record file's appearance to the kill, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--injectctl", help="default: that of the build")


if __name__ == "__main__":
    main("recovery", test, modules=("torch",), arguments=arguments)
