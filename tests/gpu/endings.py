# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""INJECT_AFTER and INJECT_TIMEOUT, and windows that open without a call in the script, on a PyTorch training loop with
DataLoader workers, alone and under torchrun: the status, complete tables, and no process left over.
"""

import concurrent.futures
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from gputest import Folder, check_sums, folders, main, profiled_environment

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_training.py")
TIMEOUT = 15  # s, for INJECT_TIMEOUT: run several at a time, programs take this long to begin training
LIMIT = 60  # s, for a program that should take a few
SOON = 5  # s from the last window's end to the end of the process
# A worker whose parent was killed, as torchrun kills the remaining rank, checks for its parent every 5 s.
ORPHANS_SEE_IT = 8


def processes_of(token):
    """{pid: command} of the processes with the token in their arguments or environment."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/cmdline", "rb") as file:
                command = file.read()
            with open(path + "/environ", "rb") as file:
                environment = file.read()
        except OSError:  # it has just ended
            continue
        # Both are empty for a zombie.
        if token.encode() in command or token.encode() in environment:
            found[int(os.path.basename(path))] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


class Case:
    """A run of the training script: its process, its output, and the checks that follow."""

    def __init__(self, options, name, window, *arguments, torchrun=False, bare=False, out="out", **settings):
        self.options, self.name, self.checks, self.data = options, name, [], {}
        self.folder = os.path.join(options.work, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.runtime = os.path.join(self.folder, "runtime")
        os.makedirs(self.runtime, mode=0o700)
        self.token = f"endings-{name}-{os.getpid()}"
        self.out = os.path.join(self.folder, out)
        environment = profiled_environment(options.library, self.out, window, trace="csv", **settings)
        if bare:
            environment = {variable: value for variable, value in environment.items()
                           if variable != "LD_PRELOAD" and not variable.startswith("INJECT_")}
        environment.update(ENDINGS_CASE=self.token, XDG_RUNTIME_DIR=self.runtime, OMP_NUM_THREADS="1")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"] if torchrun else []
        self.command = [sys.executable, *launcher, PROGRAM, self.token, *arguments]
        self.environment = environment
        self.streams = {}
        self.process = None
        self.ended_at = None

    def __enter__(self):
        for stream in ("stdout", "stderr"):
            self.streams[stream] = open(os.path.join(self.folder, stream), "w")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(self.command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                        start_new_session=True, **self.streams)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)  # faulthandler then prints the Python stack
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in processes_of(self.token):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for stream in self.streams.values():
            stream.close()
        self.data.update(command=self.command, stdout=self.text("stdout")[-2000:], stderr=self.text("stderr")[-4000:],
                         rc=self.process.returncode)

    def text(self, stream):
        with open(os.path.join(self.folder, stream), errors="replace") as file:
            return file.read()

    def check(self, what, passed, detail=""):
        self.checks.append((f"{self.name}: {what}", bool(passed), str(detail)))
        return bool(passed)

    def last_words(self):
        return "; ".join(self.text("stderr").strip().splitlines()[-3:])[-400:]

    def wait_for(self, stream, pattern, patience=LIMIT):
        """Waits for a line of the program's output; RuntimeError if it does not come."""
        deadline = time.monotonic() + patience
        while not re.search(pattern, self.text(stream), re.MULTILINE):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no {pattern!r} on {stream}: {self.last_words()}")
            time.sleep(0.02)

    def ends(self, *statuses, soon=None):
        """The process ends by itself with one of the statuses, within `soon` seconds after the last window."""
        try:
            self.process.wait(max(self.begin + LIMIT - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            return self.check("ends", False, f"not within {LIMIT} s: {self.last_words()}")
        self.ended_at = time.monotonic()
        rc = self.process.returncode
        said = f"status {rc}"
        good = rc in statuses
        if good and soon:
            runs = [folder.run_json() for folder in self.results()]
            ends = [(run["time_zero"]["clock_monotonic_ns"] + int(row["End (ns)"])) / 1e9
                    for run, folder in zip(runs, self.results()) for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
            late = self.ended_at - max(ends) if ends else float("inf")
            said += f", {late:.2f} s after the last window's end"
            good = 0 <= late <= soon
        return self.check(f"status {' or '.join(map(str, statuses))}" + (f" within {soon} s of the window's end" if soon else ""),
                          good, said + ("" if rc in statuses else f": {self.last_words()}"))

    def results(self):
        """The existing output folders."""
        if "%r" in self.out:
            return [Folder(path) for path in sorted(glob.glob(self.out.replace("%r", "*")))]
        return [Folder(path) for path in folders(self.out)]

    def leaves_nothing(self, patience=1.0):
        """No process is left, and no file in the user's runtime directory."""
        deadline = time.monotonic() + patience
        while (left := processes_of(self.token)) and time.monotonic() < deadline:
            time.sleep(0.05)
        files = [os.path.join(where, name) for where, _, names in os.walk(self.runtime) for name in names]
        shown = [f"{pid}: {command[-80:]}" for pid, command in left.items()]
        return self.check("no process of it is left", not left and not files,
                          f"{len(left)} processes {shown[:3]}, {files}" if left or files else "")

    def wrote_everything(self, number=1, windows=1):
        """All tables exist and agree with the raw records; nothing was lost, and no window was cut off."""
        results, wrong, rows = self.results(), [], 0
        if len(results) != number:
            wrong.append(f"{len(results)} output folders")
        for folder in results:
            run = folder.run_json()
            states = [row["State"] for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
            if run["state"] != "closed" or states != ["closed"] * windows:
                wrong.append(f"run.json says {run['state']}, the windows are {states}")
            if any(not int(row["Kernels"] or 0) for row in folder.rows("window_sum.csv") if row["Device"] == "all"):
                wrong.append("a window without kernels")
            missing = [name for name in run["files"] if name not in folder.files()]
            if missing or run["write_errors"]:
                wrong.append(f"missing {missing} {run['write_errors']}")
            if folder.lost():
                wrong.append(f"lost {folder.lost()}")
            compared, differences = check_sums(folder)
            rows += compared
            wrong += differences[:2] if compared else ["no rows"]
        return self.check("everything is written", not wrong, "; ".join(map(str, wrong)) if wrong else f"{rows} rows of {len(results)} folders")

    def iterations(self, count, alike=True):
        """There are `count` complete training iterations in a row; `alike`: each with the same number of kernels."""
        wrong, numbers, kernels = [], [], []
        for folder in self.results():
            rows = [r for r in folder.rows("iteration_sum.csv") if r["Device"] == "all" and r["Label"] == "iteration"]
            numbers = [int(r["Iteration"]) for r in rows if r["Complete"] == "1"]
            kernels = [int(r["Kernels"]) for r in rows if r["Complete"] == "1"]
            if len(rows) != count or numbers != list(range(numbers[0], numbers[0] + count) if numbers else []):
                wrong.append(f"{len(rows)} iterations, complete are {numbers}")
            if not all(kernels) or (alike and len(set(kernels)) > 1):
                wrong.append(f"{kernels} kernels")
        wrong = wrong or ([] if numbers else ["none"])
        detail = "; ".join(wrong) if wrong else f"{numbers[0]} to {numbers[-1]}, {sorted(set(kernels))} kernels each"
        return self.check(f"{count} complete iterations", not wrong, detail)

    def comes_to_its_end(self):
        """The program ends by itself, as it would have without a window."""
        open(os.path.join(self.folder, "enough"), "w").close()
        if self.ends(0):
            self.leaves_nothing()
            self.wrote_everything()

    def unwinds(self, with_interrupt):
        """Whether Ctrl+C has reached the script: its finally block has run, and Python reports KeyboardInterrupt."""
        unwound = "unwound" in self.text("stdout").splitlines()
        stderr = self.text("stderr")
        if with_interrupt:
            return self.check("KeyboardInterrupt reaches the script", unwound and "KeyboardInterrupt" in stderr, f"unwound: {unwound}")
        # The script, its loader and Python print nothing about a killed worker.
        noise = re.findall(r"^.*(?:Traceback|DataLoader worker|Error:).*$", stderr, re.MULTILINE)
        return self.check("ends without a word of Python's", not unwound and not noise, "; ".join(noise[:2]))


def status_after_ctrl_c(options):
    """The script's exit status after SIGINT without the library, which INJECT_AFTER=interrupt must reproduce."""
    with Case(options, "bare", "off", bare=True) as case:
        case.wait_for("stdout", "^step 20$")
        case.process.send_signal(signal.SIGINT)
        return case.process.wait(LIMIT)


# --- endings ---------------------------------------------------------------------------------------------------------

def exit_at_once(options, cases, name, *arguments):
    with Case(options, name, "iter:5+5", *arguments, after="exit") as case:
        cases.append(case)
        if case.ends(0, soon=SOON):
            case.leaves_nothing()
            case.unwinds(False)
            case.wrote_everything()
            case.iterations(5)


def interrupt(options, cases, name, *arguments):
    with Case(options, name, "iter:5+5", *arguments, after="interrupt") as case:
        cases.append(case)
        if case.ends(options.interrupted, soon=SOON):
            case.leaves_nothing()
            case.unwinds(True)
            case.wrote_everything()
            case.iterations(5)


def goes_on(options, cases, name):
    with Case(options, name, "iter:5+5", "--steps", "150", "--status", "7", after="continue") as case:
        cases.append(case)
        if case.ends(7):
            case.check("the program comes to its own end", case.text("stdout").splitlines() == ["step 20", "done", "unwound"])
            case.leaves_nothing()
            case.wrote_everything()
            case.iterations(5)


def timeout_exit(options, cases, name):
    with Case(options, name, "always", timeout=f"{TIMEOUT}s", after="exit") as case:
        cases.append(case)
        if case.ends(0, soon=SOON):
            case.leaves_nothing()
            case.unwinds(False)
            case.wrote_everything()
            ends = [int(row["End (ns)"]) / 1e9 for row in case.results()[0].rows("window_sum.csv")]
            case.check("the window ends with the time", all(TIMEOUT - 0.1 < end < TIMEOUT + 1 for end in ends), f"after {max(ends):.2f} s")


def timeout_without_window(options, cases, name):
    # INJECT_AFTER is continue: an expired timeout interrupts.
    with Case(options, name, "api", timeout=f"{TIMEOUT}s") as case:
        cases.append(case)
        if case.ends(options.interrupted):
            case.leaves_nothing()
            case.unwinds(True)
            case.check("no folder, and one line that says why", not case.results() and
                       "INJECT_TIMEOUT expired before a window opened" in case.text("stderr"))


def torchrun(options, cases, name, after):
    with Case(options, name, "iter:5+5", "--ddp", "--workers", "1", torchrun=True, out="out-%r", after=after) as case:
        cases.append(case)
        # For torchrun, a rank that SIGINT has ended is a failed one; the other one may spend some time in its
        # collective.
        if case.ends(*((0,) if after == "exit" else (1,)), soon=SOON if after == "exit" else 2 * SOON):
            case.leaves_nothing(1 if after == "exit" else ORPHANS_SEE_IT)
            if after == "exit":
                case.unwinds(False)
            names = [os.path.basename(folder.path) for folder in case.results()]
            case.check("a folder of each rank", names == ["out-0", "out-1"], ", ".join(names))
            case.wrote_everything(number=2)
            case.iterations(5, alike=False)


# --- windows ---------------------------------------------------------------------------------------------------------

def by_signal(options, cases, name):
    with Case(options, name, "signal", "--until", os.path.join(options.work, name, "enough")) as case:
        cases.append(case)
        case.wait_for("stdout", "^step 20$")
        case.process.send_signal(signal.SIGUSR2)
        case.wait_for("stderr", "window 1 opened")
        time.sleep(0.3)
        case.process.send_signal(signal.SIGUSR2)
        case.wait_for("stderr", "window 1 closed")
        case.comes_to_its_end()


def by_injectctl(options, cases, name):
    with Case(options, name, "api", "--until", os.path.join(options.work, name, "enough"), control=1) as case:
        cases.append(case)
        case.wait_for("stdout", "^step 20$")

        def tell(*words):
            done = subprocess.run([options.injectctl, *words], env={**os.environ, "XDG_RUNTIME_DIR": case.runtime}, timeout=20,
                                  capture_output=True, text=True)
            case.data[" ".join(words)] = [done.returncode, done.stdout, done.stderr]
            return done

        pid = str(case.process.pid)
        listed = tell("list").stdout
        case.check("injectctl list shows it and no worker of it", re.findall(r"^\s*(\d+)\b", listed, re.MULTILINE) == [pid], listed.strip())
        said = [tell("status", pid), tell("start", pid)]
        time.sleep(0.3)
        said += [tell("status", pid), tell("stop", pid)]
        case.wait_for("stderr", "window 1 closed")
        case.check("injectctl status, start, stop", all(done.returncode == 0 for done in said) and said[0].stdout != said[2].stdout,
                   "; ".join(done.stderr.strip() for done in said if done.returncode))
        case.comes_to_its_end()


def steps_of(options, cases, name, window, bracket):
    """Three windows, each around one step of the program: their kernels and copies."""
    with Case(options, name, window, "--bracket", bracket, after="exit") as case:
        cases.append(case)
        if not case.ends(0, soon=SOON):
            return None
        case.leaves_nothing()
        case.wrote_everything(windows=3)
        folder = case.results()[0]
        kernels = [int(row["Kernels"] or 0) for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
        case.check("each window has the kernels of a step", len(kernels) == 3 and len(set(kernels)) == 1 and kernels[0] > 0, kernels)
        return folder.kernel_counts(), folder.operation_counts()


def automatic(options, cases, name):
    with Case(options, name, "auto", "--steps", "600") as case:
        cases.append(case)
        if case.ends(0):
            case.leaves_nothing()
            case.wrote_everything()
            case.iterations(10)


def find_injectctl(library):
    """injectctl from the same build as the library."""
    for folder in (os.path.dirname(library), os.path.dirname(os.path.dirname(library))):
        for name in ("injectctl/injectctl", "injectctl", "bin/injectctl"):
            if os.path.isfile(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return None


def test(options, report):
    options.injectctl = os.path.abspath(options.injectctl) if options.injectctl else find_injectctl(options.library)
    parts = {
        "exit": (exit_at_once,),
        "interrupt": (interrupt,),
        "interrupt-persistent": (interrupt, "--persistent"),
        "torchrun-exit": (torchrun, "exit"),
        "torchrun-interrupt": (torchrun, "interrupt"),
        "nvtx": (steps_of, "nvtx:step*@*x3", "nvtx"),
        "api": (steps_of, "apix3", "api"),
        "auto": (automatic,),
        "timeout-exit": (timeout_exit,),
        "timeout-no-window": (timeout_without_window,),
        "continue": (goes_on,),
        "exit-persistent": (exit_at_once, "--persistent"),
        "signal": (by_signal,),
        "injectctl": (by_injectctl,),
    }
    chosen = {name: part for name, part in parts.items() if not options.only or name in options.only.split(",")}
    if "injectctl" in chosen and not options.injectctl:
        report.skip("injectctl", "there is none beside libinject.so; --injectctl says where it is")
        del chosen["injectctl"]
    options.interrupted = status_after_ctrl_c(options)
    report.data["status after Ctrl+C"] = options.interrupted
    # Nothing is measured here, so they may run concurrently.
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        started = {}
        for name, (function, *arguments) in chosen.items():
            cases = []
            started[name] = cases, pool.submit(function, options, cases, name, *arguments)
    counts = {}
    for name, (cases, future) in started.items():
        counts[name] = report.guarded(name, future.result)
        for case in cases:
            report.data[name] = case.data
            for check in case.checks:
                report.check(*check)
    if "nvtx" in chosen and "api" in chosen:
        same = counts["nvtx"] is not None and counts["nvtx"] == counts["api"]
        report.check("nvtx: as many kernels and copies of each name as api windows at the same calls", same,
                     f"{sum(counts['api'][0].values())} kernels of {len(counts['api'][0])} names" if same else counts)


def arguments(parser):
    parser.add_argument("--injectctl", help="default: that beside libinject.so")
    parser.add_argument("--jobs", type=int, default=7, help="programs at a time")
    parser.add_argument("--only", help="some of the parts, with commas between")


if __name__ == "__main__":
    main("endings", test, modules=("torch",), arguments=arguments)
