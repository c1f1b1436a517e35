#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""INJECT_AFTER and INJECT_TIMEOUT: everything is written first, and no process is left over.

usage: test_endings.py LIBRARY PROGRAMS SIMULATION
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import simulated

TRAINING = pathlib.Path(__file__).resolve().parent / "training.py"
# Far longer than any window here: a program that reaches its own end was not ended early.
LONG = "loop:3000 [ kernel:k:1 sync sleep:5 ]"


def state_of(pid):
    """The process's state, or an empty text if it does not exist."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return None


class Case(simulated.SimulatedTest):
    def check_complete(self, done, windows=1):
        out = done.out
        self.assertEqual(out.run["state"], "closed")
        self.assertEqual([row["State"] for row in out.windows()], ["closed"] * windows)
        # On a busy machine, a call across a window's edge may return after the window is settled: it is not considered for the causes of
        # idle time.
        self.assertLessEqual(set(out.lost()), {"device_time_records"})
        return out


class LastWindow(Case):
    STATUS = {"interrupt": -signal.SIGINT, "exit": 0}

    def ends(self, text, windows=1, **options):
        for action, status in self.STATUS.items():
            with self.subTest(action):
                done = self.script(text, AFTER=action, **options)
                self.assertEqual((done.code, done.stdout), (status, ""))
                self.check_complete(done, windows)
        return done

    def test_of_a_span_of_time(self):
        done = self.ends("kernel:k:1 " + LONG, WINDOW="time:50ms+400ms")
        self.assertGreater(done.out.kernels()["k"], 0)

    def test_of_a_number_of_launches(self):
        done = self.ends("kernel:a:10 kernel:b:5 " + LONG, WINDOW="launch:10+5")
        self.assertEqual(done.out.kernels(), {"b": 5})

    def test_of_several(self):
        self.ends("kernel:k:1 " + LONG, windows=3, WINDOW="time:20ms+20ms/50msx3")
        self.ends("loop:2 [ start kernel:in:3 stop sleep:20 ] " + LONG, windows=2, WINDOW="apix2")

    def test_that_is_closed_from_outside(self):
        done = self.script("kernel:k:3 close " + LONG, WINDOW="always", AFTER="exit")
        self.assertEqual((done.code, done.stdout), (0, "close: 0\n"))
        self.assertEqual(self.check_complete(done).kernels(), {"k": 3})

    def test_waits_for_the_records_of_what_is_queued(self):
        done = self.ends("duration:slow:40000000 start kernel:slow:10 stop " + LONG, WINDOW="apix1")
        self.assertEqual(done.out.kernels(), {"slow": 10})

    def test_the_summary_is_shown_once(self):
        for action in self.STATUS:
            with self.subTest(action):
                done = self.script("start kernel:k:3 stop " + LONG, WINDOW="apix1", AFTER=action, SUMMARY="stderr")
                self.assertEqual(done.stderr.count("libinject: 1 window (api)"), 1, done.stderr)

    def test_continue(self):
        done = self.script("start kernel:k:3 stop sleep:100 print:done return:4", WINDOW="apix1", AFTER="continue")
        self.assertEqual((done.code, done.stdout), (4, "done\n"))

    def test_without_one_nothing_ends(self):
        # Without xN another window may always come; and so may one that has not opened yet.
        for text, window in (("loop:2 [ start kernel:k:3 stop ]", "api"), ("kernel:k:1 sleep:150", "time:10ms+10ms/30ms"),
                             ("kernel:k:3", "launch:5+5"), ("kernel:k:3", "time:1h+1s"), ("kernel:k:3", "always")):
            with self.subTest(window):
                done = self.script(text + " sleep:100 print:done return:4", WINDOW=window, AFTER="exit")
                self.assertEqual((done.code, done.stdout), (4, "done\n"))

    def test_a_program_that_ends_at_that_moment(self):
        for action, status in self.STATUS.items():
            for pause in (0, 1, 3, 10, 30):
                with self.subTest(action=action, pause=pause):
                    done = self.script(f"start kernel:k:3 stop sleep:{pause} exit:7", WINDOW="apix1", AFTER=action)
                    self.assertIn(done.code, (7, status))
                    self.assertEqual(self.check_complete(done).kernels(), {"k": 3})

    def test_a_program_that_ignores_interrupts(self):
        done = self.script("", command=["sh", "-c", "trap '' INT; exec \"$0\" start kernel:k:3 stop until_text:messages:SIGINT print:done",
                                        simulated.programs / "script_cuda"], WINDOW="apix1", AFTER="interrupt", LOG_FILE="messages")
        self.assertEqual((done.code, done.stdout), (0, "done\n"))
        self.assertIn("ignores SIGINT", (done.work / "messages").read_text(encoding="utf-8"))
        self.check_complete(done)


class Timeout(Case):
    def test_closes_an_open_window_and_interrupts(self):
        for action, status in ((None, -signal.SIGINT), ("continue", -signal.SIGINT), ("interrupt", -signal.SIGINT),
                               ("exit", 0)):
            with self.subTest(action):
                done = self.script(LONG, WINDOW="always", TIMEOUT="150ms", AFTER=action)
                self.assertEqual(done.code, status)
                (window,) = self.check_complete(done).windows()
                self.assertGreaterEqual(int(window["End (ns)"]), 150_000_000)

    def test_between_windows_and_before_the_first(self):
        done = self.script("start kernel:k:3 stop " + LONG, WINDOW="api", TIMEOUT="1500ms", AFTER="exit")
        self.assertEqual(done.code, 0)
        self.assertEqual(self.check_complete(done).kernels(), {"k": 3})
        done = self.script(LONG, WINDOW="api", TIMEOUT="150ms", AFTER="exit")
        self.assertEqual((done.code, done.folders()), (0, []))
        self.assertIn("INJECT_TIMEOUT expired before a window opened", done.warnings()[0])

    def test_with_windows_that_open_by_themselves(self):
        done = self.script("kernel:k:1 " + LONG, WINDOW="launch:3+100000", TIMEOUT="1500ms", AFTER="exit")
        self.assertEqual(done.code, 0)
        self.check_complete(done)

    def test_opens_no_window_afterwards(self):
        # SIGINT is blocked: the program continues, and is no longer profiled.
        done = self.script("", command=["sh", "-c", "trap '' INT; exec \"$0\" start kernel:a:1 stop until_text:messages:SIGINT start "
                                        "kernel:b:1 stop open sync", simulated.programs / "script_cuda"], WINDOW="api",
                           TIMEOUT="1500ms", LOG_FILE="messages")
        self.assertEqual(done.stdout, "open: -1\n")
        self.assertEqual(self.check_complete(done).kernels(), {"a": 1})

    def test_that_is_never_reached(self):
        for timeout in ("1h", "2000000h"):
            with self.subTest(timeout):
                done = self.script("start kernel:k:3 stop sleep:50 return:4", WINDOW="api", TIMEOUT=timeout, AFTER="exit")
                self.assertEqual(done.code, 4)


class Workers(Case):
    """A Python script with worker processes, none of which is left."""

    def train(self, *workers, action="exit", seconds=20, **options):
        options.setdefault("env", {})["WINDOW_STEPS"] = "20"
        done = self.script("", command=[sys.executable, str(TRAINING), str(seconds), *workers],
                           **{"WINDOW": "apix1", "AFTER": action, **options})
        self.check_complete(done)
        self.assertGreater(done.out.kernels().get("step", 0), 0)
        children = [int(pid) for pid in re.findall(r"^child (\d+)$", done.stdout, re.MULTILINE)]
        return done, children

    def check_gone(self, children):
        """They have been ended: by themselves they would run for a minute."""
        deadline = time.monotonic() + 20
        left = children
        while left and time.monotonic() < deadline:
            left = [pid for pid in left if state_of(pid) not in (None, "Z")]
            if left:
                time.sleep(0.02)
        self.assertEqual([(pid, state_of(pid)) for pid in left], [])

    def test_exit_leaves_none(self):
        for kinds in (["fork", "spawn"], ["forkserver"], ["pool"], ["executor"], ["nested"], ["plain"], ["watched"]):
            with self.subTest(kinds):
                done, children = self.train(*kinds)
                self.assertEqual(done.code, 0, done.stderr)
                self.assertNotIn("unwound", done.stdout)
                self.assertGreaterEqual(len(children), 2)
                self.check_gone(children)
                self.assertNotIn("Traceback", done.stderr)

    def test_exit_ends_those_that_take_no_hint(self):
        begin = time.monotonic()
        done, children = self.train("deaf")
        self.assertEqual(done.code, 0)
        self.check_gone(children)
        self.assertGreater(time.monotonic() - begin, 2)

    def test_exit_leaves_what_has_left_by_itself(self):
        done, _ = self.train("detached")
        (pid,) = re.findall(r"^detached (\d+)$", done.stdout, re.MULTILINE)
        self.assertEqual((done.code, state_of(pid)), (0, "S"))
        os.kill(int(pid), signal.SIGKILL)

    def test_interrupt_without_a_handler_leaves_none(self):
        done, children = self.train("fork", action="interrupt", env={"NO_HANDLER": "1"})
        self.assertEqual(done.code, -signal.SIGINT)
        self.assertNotIn("unwound", done.stdout)
        self.check_gone(children)

    def test_interrupt_unwinds(self):
        for kinds in ([], ["fork", "spawn"], ["pool"], ["executor"]):
            with self.subTest(kinds):
                done, children = self.train(*kinds, action="interrupt", env={"PYTHONUNBUFFERED": "1"})
                self.assertEqual(done.code, -signal.SIGINT, done.stderr)
                self.assertIn("unwound", done.stdout)
                self.assertIn("KeyboardInterrupt", done.stderr)
                self.check_gone(children)


def may_unshare(*options):
    return subprocess.run(["unshare", *options, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


@unittest.skipUnless(may_unshare("-pf"), "takes root, to make a PID namespace")
class Namespace(Case):
    """A program in a PID namespace of its own."""

    TEXT = "start kernel:k:3 stop " + LONG
    # With a child; and processes that are neither its children nor of its session, with the lowest numbers in the namespace.
    PROGRAM = ("while [ $((n = n + 1)) -le 20 ]; do sleep 60 & all=\"$all $!\"; done; (sleep 60 & echo $! >child; exec \"$0\" \"$@\"); "
               "echo status $?; sleep 0.1; all=\"$all $(cat child)\"; n=0; for one in $all; do kill -0 $one 2>/dev/null && n=$((n + 1)); done; echo left $n")

    def run_there(self, *options, **more):
        program = simulated.programs / "script_cuda"
        return self.script("", command=["unshare", "-f", "--kill-child", *options, "sh", "-c", self.PROGRAM, program, *self.TEXT.split()],
                           WINDOW="apix1", **more)

    def test_with_the_proc_of_another_no_process_is_ended(self):
        for action, status in (("exit", 0), ("interrupt", 128 + signal.SIGINT)):
            with self.subTest(action):
                done = self.run_there("-p", AFTER=action)
                self.assertEqual(done.stdout, f"status {status}\nleft 21\n", done.stderr)
                self.check_complete(done)
                self.assertEqual(sum("child processes are not ended" in line for line in done.warnings()), 1)
                self.assertEqual(sum("/proc does not list them" in line for line in done.warnings()), 1)
                self.assertFalse(any("still inside it:" in line for line in done.warnings()))

    @unittest.skipUnless(may_unshare("-pf", "--mount-proc"), "/proc can't be mounted")
    def test_with_its_own_its_children_are(self):
        done = self.run_there("-p", "--mount-proc", AFTER="exit")
        self.assertEqual(done.stdout, "status 0\nleft 20\n", done.stderr)
        self.check_complete(done)
        self.assertEqual(done.warnings(), [])


LAUNCHER = """
import os, subprocess, sys, time
ranks = []
for rank in range(2):
    # The second rank starts, and so ends its window, later.
    time.sleep(0.5 * rank)
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE=os.environ.get("COUNT", "2"),
               LD_PRELOAD=os.environ["PRELOAD"], MASTER_PORT="29500")
    ranks.append(subprocess.Popen([sys.executable, *sys.argv[1:]], env=env))
status = None
while status is None or any(rank.poll() is None for rank in ranks):
    for rank in ranks:
        # As soon as one fails the others are ended, as torchrun does; but with no time to write anything.
        if rank.poll() not in (None, 0) and status is None:
            status = rank.returncode
            [other.kill() for other in ranks]
    if all(rank.poll() == 0 for rank in ranks):
        status = 0
    time.sleep(0.001)
print("codes", *[rank.returncode for rank in ranks])
sys.exit(status != 0)
"""


class Ranks(Case):
    def launch(self, steps=20, **options):
        if steps:
            options.update(WINDOW_STEPS=str(steps), INJECT_WINDOW="apix1")
        runtime = self.folder / f"runtime{self.runs}"
        runtime.mkdir(mode=0o700)
        done = self.script("", command=[sys.executable, "-c", LAUNCHER, str(TRAINING), "20", "fork"], OUT="out-%r", preload=False,
                           check=False, env={"PRELOAD": simulated.preload_of(simulated.library), "INJECT_SUMMARY": "off", "INJECT_OUT": "out-%r",
                                             "XDG_RUNTIME_DIR": str(runtime), "INJECT_TRACE": "csv", **options})
        self.assertEqual(list((runtime / "libinject").iterdir()), [])
        children = [int(pid) for pid in re.findall(r"^child (\d+)$", done.stdout, re.MULTILINE)]
        self.assertEqual(len(children), 4)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and any(state_of(pid) not in (None, "Z") for pid in children):
            time.sleep(0.02)
        self.assertEqual([pid for pid in children if state_of(pid) not in (None, "Z")], [])
        return done

    def check_both(self, done):
        self.assertEqual([folder.name for folder in done.folders()], ["out-0", "out-1"])
        for folder in map(simulated.Folder, done.folders()):
            self.assertEqual(folder.run["state"], "closed")
            self.assertEqual(folder.lost(), {})
            self.assertGreater(folder.kernels()["step"], 0)

    def test_exit(self):
        done = self.launch(INJECT_AFTER="exit")
        self.assertEqual(done.code, 0, done.stderr)
        self.assertIn("codes 0 0", done.stdout)
        self.check_both(done)

    def test_interrupt(self):
        done = self.launch(INJECT_AFTER="interrupt")
        self.assertEqual(done.code, 1)
        self.check_both(done)

    def test_timeout(self):
        done = self.launch(steps=0, INJECT_TIMEOUT="2s", INJECT_WINDOW="always")
        self.assertEqual(done.code, 1)
        self.check_both(done)


if __name__ == "__main__":
    simulated.main()
