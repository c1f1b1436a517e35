#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Programs that are killed, and `injectctl recover`: every call that returned and every record that CUPTI delivered is in the tables, none
twice, and everything missing is counted.

usage: test_recovery.py LIBRARY PROGRAMS SIMULATION INJECTCTL [--kills N] [--ring SIZE] [TEST...]
"""

import fcntl
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import sanitized
import simulated

injectctl = pathlib.Path(sys.argv.pop(4)).resolve()


def given(name, otherwise):
    if name not in sys.argv:
        return otherwise
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


kills = int(given("--kills", 10))
small_ring = given("--ring", "256K")

NOBODY = 65534
# The record file exists once run.json does.
READY = "until_text:out/run.json:time_zero progress:progress"
# Four threads in a window that stays open; the third column is their launches per round.
STEADY = (f"sync {READY} threads:4 [ loop:100000 [ push:step kernel:alpha:5:own copy:d2d:4096 memset:100 pop kernel:beta:1:own "
          "sleep:1 ] ]")
# Windows that open and close while three threads launch.
WINDOWS = (f"start {READY} stop loop:100000 [ start threads:3 [ loop:20 [ push:in kernel:alpha:3:own pop sleep:1 ] ] sync stop "
           "sleep:30 ]")
# Four threads that leave our own thread no time to keep up.
FLOOD = f"sync {READY} threads:4 [ loop:100000 [ push:step kernel:alpha:50:own pop ] ]"
# Bursts that fill a small ring now and then, and the journal.
BURSTS = f"sync {READY} threads:4 [ loop:100000 [ kernel:beta:100:own sleep:1 ] ]"
# Hundreds of threads, each of which takes one of CUPTI's buffers and ends, before there is a record file and after.
STORM = "progress:progress loop:100000 [ threads:64 [ kernel:alpha:20:own ] ]"
# Calls that are counted but are not submissions, such as a thread's creation of its stream.
OTHERS = 100
KERNELS = {"alpha", "beta", "[not recovered]"}


def numbers(path, count):
    """Little-endian numbers of eight bytes; zeros if there are none."""
    content = path.read_bytes() if path.exists() else b""
    return struct.unpack(f"<{count}Q", content.ljust(8 * count, b"\0")[:8 * count])


class Killed:
    """A program that runs until it is killed, or crashes, and what it has left."""

    def __init__(self, test, text, env=None, before=None, stdout=subprocess.DEVNULL, **options):
        test.runs += 1
        self.work = test.folder / f"run{test.runs}"
        self.work.mkdir()
        self.test = test
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("INJECT_", "CUDASIM_", "CUDA_", "NVTX_", "LD_"))}
        kept.update(LD_LIBRARY_PATH=str(simulated.simulation), LD_PRELOAD=simulated.preload_of(simulated.library), LC_ALL="C",
                    CUDASIM_PROGRESS=str(self.work / "given"))
        given = {"OUT": "out", "SUMMARY": "off", "TRACE": "csv", **options}
        kept.update({f"INJECT_{name}": value for name, value in given.items() if value is not None})
        kept.update(env or {})
        self.out = simulated.Folder(self.work / given["OUT"])
        self.report = self.work / "report"  # what ran on the devices, which a killed simulation does not write
        self.errors = open(self.work / "stderr", "w+b")
        test.addCleanup(self.errors.close)
        self.process = subprocess.Popen([str(simulated.programs / "script_cuda"), *text.split()], cwd=self.work, env=kept,
                                        stdin=subprocess.DEVNULL, stdout=stdout, stderr=self.errors,
                                        preexec_fn=before)
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stderr(self):
        self.errors.flush()
        return (self.work / "stderr").read_text(encoding="utf-8")

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self.test.assertIsNone(self.process.poll(), f"ended before {what}: {self.stderr()}")
            self.test.assertLess(time.monotonic(), deadline, f"waited in vain for {what}")
            time.sleep(0.002)

    def wait_for_submissions(self, count=1):
        self.wait_for(lambda: numbers(self.work / "progress", 2)[1] >= count, f"{count} submissions")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.test.assertEqual(self.process.returncode, -signal.SIGKILL)


class Case(simulated.SimulatedTest):
    def recover(self, folder, *more, code=0, **how):
        done = subprocess.run([str(injectctl), "recover", *more, str(folder)], capture_output=True, text=True, timeout=60 * sanitized.PACE,
                              check=False, **how)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def refused(self, folder, *more, **how):
        """The one line with the reason."""
        done = self.recover(folder, *more, code=1, **how)
        self.assertEqual(done.stdout, "")
        (line,) = done.stderr.splitlines()
        return line

    def recovered(self, program):
        """The folder, once it is recovered and found consistent with itself and with what the program did."""
        out = program.out
        before = {row["Window"]: row for row in out.windows() if row["State"] == "closed"} \
            if "window_sum.csv" in out.files() else {}
        said = self.recover(out.path).stdout
        run = out.run
        self.assertEqual(run["state"], "recovered")
        kept = run["recovered"]["tables_kept"]
        self.assertIn("are those that the process wrote itself" if kept else "recovered: the process was killed", said)
        self.assertEqual({"records", "records.at", ".recovering", ".run.json.spare", ".run.json.last"} & set(out.files()), set())
        self.assertEqual([name for name in out.files() if name.endswith(".tmp")], [])
        self.check_counts(program, out)
        # Tables agree with each other, and with the raw records, which are rebuilt as well.
        self.check_folder(out, program)
        for number, row in before.items():
            (after,) = [found for found in out.windows() if found["Window"] == number]
            for column in ("Kernels", "Kernel Time (ns)", "Copies", "Memsets", "Submissions", "API Calls", "Duration (ns)",
                           "GPU Busy (ns)", "Ranges"):
                self.assertEqual(after[column], row[column], f"{column} of window {number}, which was on disk")
        # A second recovery finds nothing to do.
        tables = {name: (out.path / name).read_bytes() for name in out.files()}
        self.assertIn("has already been recovered", self.recover(out.path).stdout)
        self.assertEqual({name: (out.path / name).read_bytes() for name in out.files()}, tables)
        return out

    others = OTHERS

    def check_counts(self, program, out):
        run = out.run
        recovered = run["recovered"]
        begun, returned = numbers(program.work / "progress", 2)
        (given,) = numbers(program.work / "given", 1)
        windows = out.windows()
        submissions = self.sum(windows, "Submissions")
        records = sum(self.sum(windows, column) for column in ("Kernels", "Copies", "Memsets"))
        missing = run["lost"]["missing_activity_records"]
        # Calls that found no room, and calls that were neither in the journal nor in the queues' part of the file.
        calls_lost = run["lost"]["host_records"] + recovered["calls_not_kept"]
        where = (recovered, run["lost"], f"{begun=} {returned=} {given=} {submissions=} {records=} {missing=}")
        self.assertFalse(recovered["journal_cut"], where)
        self.assertEqual(recovered["records_refused"], 0, where)
        self.assertEqual(recovered["bytes_unread"], 0, where)
        # Every call that returned is there or counted as lost, and no call is there that had not begun.
        self.assertLessEqual(returned, submissions + calls_lost, where)
        self.assertLessEqual(submissions + recovered["submissions_after_full"], begun, where)
        if calls_lost:
            self.assertLessEqual(submissions + calls_lost, begun + begun // 20 + self.others, where)
        if recovered["tables_kept"]:
            return  # those belong to a running process
        # Every record that CUPTI delivered is there, and none twice. A record whose call is lost is in the window that was open then.
        if not calls_lost or len(windows) == 1:
            self.assertLessEqual(given, records + recovered["records_after_full"], where)
        self.assertEqual(records - recovered["records_without_call"] + missing, submissions, where)
        self.assertLessEqual(recovered["records_without_call"], begun - returned + calls_lost, where)
        self.assertLessEqual(set(out.kernels()), KERNELS)
        self.assertEqual(sum(out.kernels().values()), self.sum(windows, "Kernels"))
        self.assertEqual(sum(out.operations().values()), self.sum(windows, "Copies") + self.sum(windows, "Memsets"))
        self.assertEqual([row["State"] for row in windows], ["closed"] * len(windows))
        for name in simulated.TABLES:
            self.assertIn(name, out.files())


class KillTest(Case):
    def kill_at_random(self, text, count, ready=lambda program: None, killed=lambda program: None, check=lambda run: None, **options):
        for i in range(count):
            seed = random.randrange(2**32)
            with self.subTest(kill=i, seed=seed):
                program = Killed(self, text, **options)
                program.wait_for_submissions()
                ready(program)
                time.sleep(random.Random(seed).uniform(0, 0.5))
                program.kill()
                killed(program)
                check(self.recovered(program).run)
                shutil.rmtree(program.work)

    def test_threads_in_a_window(self):
        self.kill_at_random(STEADY, (kills + 1) // 2, WINDOW="always")

    def test_windows_that_open_and_close(self):
        self.kill_at_random(WINDOWS, kills // 2, WINDOW="api")

    def test_a_ring_that_is_full(self):
        """Dropped calls are all counted."""
        lost = []
        self.kill_at_random(FLOOD, (kills + 2) // 3, check=lambda run: lost.append(run["lost"]["host_records"]), WINDOW="always",
                            RING=small_ring)
        self.assertTrue(any(lost), "the ring was never full")

    def test_a_ring_and_a_journal_that_are_full(self):
        self.kill_at_random(BURSTS, (kills + 2) // 3, ready=self.wait_for_full_journal,
                            check=lambda run: self.assertTrue(run["recovered"]["journal_full"]), WINDOW="always", RING="64K",
                            BUFFERS="1M")

    def test_windows_after_the_journal_was_full(self):
        """The tables on disk are kept, and everything after their last write is counted."""
        self.kill_at_random(WINDOWS, (kills + 2) // 3, ready=self.wait_for_full_journal,
                            check=lambda run: self.assertTrue(run["recovered"]["journal_full"]), WINDOW="api", RING="64K",
                            BUFFERS="1M", TRACE=None)

    def wait_for_full_journal(self, program):
        program.wait_for(lambda: self.word(program, 0) == 1, "a full journal")

    def test_threads_that_come_and_go(self):
        """All of CUPTI's buffers are in use when they are moved into the file: they follow later, and no message says otherwise."""
        def wait_for_move(program):
            program.wait_for(lambda: self.word(program, 9) != 0, "a pass with the record file")

        def check_lines(program):
            self.assertNotIn("records are", program.stderr())

        self.others = 10**6  # each thread creates a stream
        self.kill_at_random(STORM, (kills + 2) // 3, ready=wait_for_move, killed=check_lines, WINDOW="always")

    def test_a_window_that_is_on_disk_stays_complete(self):
        """Killed once a later window has been recorded as open."""
        program = Killed(self, f"start {READY} kernel:alpha:50 sync stop until_text:out/run.json:\"closed\" start kernel:beta:7 "
                         "sleep:60000", WINDOW="api")
        program.wait_for_submissions(57)
        program.kill()
        out = self.recovered(program)
        first, second = out.windows()
        self.assertEqual((first["Kernels"], first["Submissions"], first["Missing Activity Records"]), ("50", "50", "0"))
        self.assertEqual((int(second["Kernels"]) + int(second["Missing Activity Records"]), second["Submissions"]), (7, "7"))

    def test_short_calls(self):
        """A call that has returned is there, whether others have followed it or not."""
        for more in (0, 1, 13, 14, 15, 100):
            with self.subTest(more=more):
                program = Killed(self, f"start {READY} loop:57 [ device:0 ] kernel:alpha:1 sync until_delivered loop:{more} [ device:0 ] "
                                 "crash:KILL", WINDOW="api", TRACE="off")
                program.process.wait(60)
                self.recover(program.out.path)
                self.assertEqual(program.out.calls()["cudaSetDevice"], 57 + more)
                self.assertEqual(program.out.run["recovered"]["calls_not_kept"], 0)

    def test_step_times(self):
        """Including those that ran before there was a record file."""
        step = "copy:h2d:64 kernel:forward:3 kernel:backward:2 kernel:adam:1 sync sleep:2"
        program = Killed(self, f"sync loop:400 [ {step} ] until_text:out/run.json:\"closed\" looks:3 crash:KILL", WINDOW="iter:200+5", TRACE="off")
        program.process.wait(60)
        self.assertEqual(program.process.returncode, -signal.SIGKILL, program.stderr())
        before = [(row["Iteration"], row["Start (ns)"], row["Duration (ns)"]) for row in program.out.rows("step_times.csv")]
        self.assertLess(int(before[0][0]), 50)
        self.recover(program.out.path)
        after = [(row["Iteration"], row["Start (ns)"], row["Duration (ns)"]) for row in program.out.rows("step_times.csv")]
        self.assertEqual(after[:len(before)], before)
        (window,) = program.out.windows()
        self.assertEqual(float(window["Step Time (ns)"]), statistics.median(int(duration) for _, _, duration in after))

    def test_a_flush_writes_the_steps_timed_after_the_window(self):
        step = "copy:h2d:64 kernel:forward:3 kernel:backward:2 kernel:adam:1 sync sleep:2"
        program = Killed(self, f"sync loop:210 [ {step} ] until_text:out/run.json:\"closed\" loop:10 [ {step} ] flush crash:KILL",
                         WINDOW="iter:200+5", TRACE="off")
        program.process.wait(60)
        self.assertEqual(program.process.returncode, -signal.SIGKILL, program.stderr())
        self.assertGreaterEqual(max(int(row["Iteration"]) for row in program.out.rows("step_times.csv")), 215)

    def test_a_crash_after_everything_was_handed_over(self):
        # A sanitizer's handler raises a different signal.
        for name in ("SEGV", "ABRT", "KILL")[bool(sanitized.SANITIZER):]:
            with self.subTest(signal=name):
                program = Killed(self, f"sync {READY} push:outer kernel:alpha:100 copy:d2d:1000 pop sync until_delivered "
                                 f"looks:3 crash:{name}", WINDOW="always", before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
                program.process.wait(60)
                self.assertEqual(program.process.returncode, -getattr(signal, "SIG" + name))
                out = self.recovered(program)
                self.assertEqual(out.lost(), {})
                (window,) = out.windows()
                self.assertEqual((window["Kernels"], window["Copies"]), ("100", "1"))
                self.assertEqual(out.ranges()[("outer", "PushPop")], 1)
                self.assertEqual(out.range_kernels()[("outer", "alpha")], (1, 100))

    def test_memory_over_time(self):
        """The allocated memory as of the last look at it: after the window's end, when the tables were written."""
        changes = "malloc:a:3000000 malloc:b:9000000 free:b"
        program = Killed(self, f"{changes} start {READY} kernel:alpha:5 sync malloc:c:1000000 stop until_text:out/run.json:\"closed\" looks:3 crash:KILL",
                         WINDOW="api", TRACE="off")
        program.process.wait(60)
        self.assertEqual(program.process.returncode, -signal.SIGKILL, program.stderr())

        def allocated():
            return [{**row, "Duration (ns)": ""} for row in program.out.rows("memory_timeline.csv") if row["Of"] == "allocated"]
        before, peak = allocated(), program.out.rows("memory_sum.csv")[0]
        self.assertEqual([row["Highest (MB)"] for row in before], ["3.000", "12.000", "3.000", "3.000", "4.000", "4.000"])
        (program.out.path / "memory_timeline.csv").unlink()
        self.recovered(program)
        self.assertEqual(allocated(), before)
        self.assertEqual(program.out.rows("memory_sum.csv")[0], peak)

    @staticmethod
    def word(program, number):
        """A changing word of the record file (Live, libinject/journal/format.h); 0 if there is no file, or it is still too short."""
        records = program.out.path / "records"
        if not records.exists():
            return 0
        with open(records, "rb") as file:
            file.seek(4096 + 8 * number)
            return struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]

    def test_a_journal_that_is_full_is_counted(self):
        """The window that was already on disk stays, whichever of them had more."""
        program = Killed(self, f"start {READY} kernel:alpha:50 sync stop until_text:out/run.json:\"closed\" start "
                         "threads:2 [ loop:100000 [ kernel:beta:50 sleep:1 ] ]", WINDOW="api", RING="64K", BUFFERS="1M")
        program.wait_for_submissions(60)
        program.wait_for(lambda: self.word(program, 0) == 1, "a full journal")
        program.wait_for(lambda: self.word(program, 1) > 100, "submissions after it was full")
        program.kill()
        self.recover(program.out.path)
        run = program.out.run
        self.assertTrue(run["recovered"]["journal_full"])
        first = program.out.windows()[0]
        self.assertEqual((first["Kernels"], first["Missing Activity Records"]), ("50", "0"))
        begun, _ = numbers(program.work / "progress", 2)
        submissions = self.sum(program.out.windows(), "Submissions")
        self.assertLess(50, submissions)
        self.assertLess(0, run["recovered"]["submissions_after_full"])
        self.assertLessEqual(submissions + run["recovered"]["submissions_after_full"], begun)


class EndTest(Case):
    def test_a_folder_that_is_moved_meanwhile(self):
        program = Killed(self, f"start {READY} kernel:alpha:5 until_text:moved:yes stop sync", WINDOW="api")
        program.wait_for_submissions(5)
        elsewhere = program.out.path.rename(program.work / "elsewhere")
        (program.work / "moved").write_text("yes")
        self.assertEqual(program.process.wait(timeout=60), 0)
        self.assertRegex(program.stderr(), "/out has been moved or removed: `injectctl recover` on where it is now writes the tables\n")
        self.assertNotIn("files are in /", program.stderr())
        self.recover(elsewhere)
        self.assertEqual(simulated.Folder(elsewhere).kernels(), {"alpha": 5})

    def test_a_folder_that_is_moved_and_replaced_meanwhile(self):
        program = Killed(self, f"start {READY} kernel:alpha:5 until_text:moved:yes stop sync", WINDOW="api", TRACE="csv,chrome")
        program.wait_for_submissions(5)
        elsewhere = program.out.path.rename(program.work / "elsewhere")
        program.out.path.mkdir()
        theirs = ["cuda_gpu_kern_sum.csv", "records", ".trace.json.gz.new", ".run.json.spare"]
        for name in theirs:
            (program.out.path / name).write_text("theirs")
        (program.work / "moved").write_text("yes")
        self.assertEqual(program.process.wait(timeout=60), 0)
        self.assertEqual({path.name: path.read_text() for path in program.out.path.iterdir()}, dict.fromkeys(theirs, "theirs"))
        self.assertEqual(program.stderr().count("error: "), 1)
        self.assertRegex(program.stderr(), "/out[^ ]* has been moved or removed")
        self.assertRegex(program.stderr(), "/out has been moved or removed: `injectctl recover` on where it is now writes the tables\n")
        self.assertNotIn("files are in /", program.stderr())
        self.recover(elsewhere)
        self.assertEqual(simulated.Folder(elsewhere).kernels(), {"alpha": 5})

    def test_a_clean_end_leaves_no_file(self):
        result = self.script("kernel:alpha:10 sync", WINDOW="always")
        self.assertNotIn("records", result.out.files())
        self.assertEqual(result.warnings(), [])
        self.assertIn("nothing to recover", self.refused(result.out.path))

    def test_switched_off_there_is_none(self):
        program = Killed(self, f"sync {READY} kernel:alpha:5 sleep:60000", WINDOW="always", RECOVER="0")
        program.wait_for_submissions(5)
        self.assertNotIn("records", program.out.files())
        program.kill()
        self.assertIn("nothing to recover", self.refused(program.out.path))

    def test_killed_before_a_window_there_is_nothing(self):
        program = Killed(self, "progress:progress kernel:alpha:5 sleep:60000", WINDOW="api")
        program.wait_for_submissions(5)
        program.kill()
        self.assertEqual([name for name in os.listdir(program.work) if name == "out"], [])

    def test_the_file_is_the_users_alone(self):
        program = Killed(self, f"sync {READY} kernel:alpha:5 sleep:60000", WINDOW="always")
        program.wait_for_submissions(5)
        self.assertEqual((program.out.path / "records").stat().st_mode & 0o777, 0o400)

    def test_a_forked_child_writes_nothing_there(self):
        program = Killed(self, f"sync {READY} kernel:alpha:20 child:USR1 kernel:alpha:20 child:USR1 sync until_delivered "
                         "looks:3 crash:KILL", WINDOW="always")
        program.process.wait(60)
        out = self.recovered(program)
        self.assertEqual(out.kernels(), {"alpha": 40})


class ElsewhereTest(Case):
    """The output folder is on a network file system: records are on this machine, and the folder says where."""

    def setUp(self):
        super().setUp()
        self.local = self.folder / "local"
        self.local.mkdir()

    def away(self, network):
        """The environment of a program for which everything under `network` is remote."""
        preload = simulated.preload_of(simulated.library, simulated.programs / "script_network.so")
        return {"LD_PRELOAD": preload, "NETWORK_FOLDER": str(network), "TMPDIR": str(self.local)}

    def records(self):
        return sorted((self.local / f"libinject-{os.geteuid()}").glob("records-*"))

    def started(self, text=STEADY):
        program = Killed(self, text, env=self.away(self.folder / "run"), WINDOW="always")
        program.wait_for_submissions(500)
        return program

    def killed(self):
        program = self.started()
        program.kill()
        return program

    def change(self, program, before, after):
        pointer = program.out.path / "records.at"
        text = pointer.read_text(encoding="utf-8")
        self.assertIn(before, text)
        pointer.write_text(text.replace(before, after), encoding="utf-8")

    def test_killed(self):
        for text in (STEADY, WINDOWS) * 2:
            program = Killed(self, text, env=self.away(self.folder / "run"), WINDOW="always" if text is STEADY else "api")
            program.wait_for_submissions(200)
            time.sleep(random.random() / 2)
            program.kill()
            self.assertIn("records.at", program.out.files())
            self.assertNotIn("records", program.out.files())
            (records,) = self.records()
            self.assertEqual(records.stat().st_mode & 0o777, 0o400)
            self.recovered(program)
            self.assertEqual(self.records(), [])
            self.assertEqual(program.stderr().count("warning"), 0)

    def test_a_clean_end_leaves_no_file(self):
        result = self.script("kernel:alpha:10 sync", WINDOW="always", env=self.away(self.folder / "run"))
        self.assertEqual(result.warnings(), [])
        self.assertNotIn("records.at", result.out.files())
        self.assertEqual(self.records(), [])

    def test_a_process_that_still_runs(self):
        program = self.started()
        self.assertIn("still writing", self.refused(program.out.path))

    def test_on_another_host(self):
        program = self.killed()
        self.change(program, "host ", "host other-")
        self.recovered(program)  # the host was renamed since: the file is here, and it is this run's
        program = self.killed()
        self.change(program, "host ", "host other-")
        self.change(program, str(self.local), "/nonexistent")
        line = self.refused(program.out.path)
        self.assertIn("other-", line)
        self.assertIn("run `injectctl recover` there", line)

    def test_files_that_are_not_the_run_s(self):
        program = self.killed()
        (records,) = self.records()
        kept = records.with_name("kept")
        with self.subTest("gone"):
            records.rename(kept)
            self.assertIn("can't be opened", self.refused(program.out.path))
        with self.subTest("a link"):
            records.symlink_to(kept)
            self.assertIn("can't be opened", self.refused(program.out.path))
            records.unlink()
        with self.subTest("another run's"):
            kept.rename(records)
            pointer = program.out.path / "records.at"
            text = pointer.read_text(encoding="utf-8")
            start = re.search("^start ([0-9]+)$", text, re.M)[1]
            pointer.write_text(text.replace(start, "1" + start), encoding="utf-8")
            other = records.with_name(records.name.replace(start, "1" + start))
            records.rename(other)
            self.assertIn("it is another run's", self.refused(program.out.path))
            other.rename(records)
            pointer.write_text(text, encoding="utf-8")
        with self.subTest("under a name that libinject does not give"):
            elsewhere = [self.local / "libinject-12345" / records.name, records.with_name("precious"), self.local / records.name,
                         self.local / f"libinject-{os.geteuid()}" / "deeper" / records.name]
            for place in elsewhere:
                place.parent.mkdir(mode=0o700, exist_ok=True)
                records.rename(place)
                self.change(program, f"path {records}\n", f"path {place}\n")
                self.assertIn("not as libinject writes it", self.refused(program.out.path))
                self.assertTrue(place.exists())
                place.rename(records)
                pointer.write_text(text, encoding="utf-8")
        with self.subTest("not ours"):
            for text in ("", "\n", "libinject records\n", "libinject records\nhost a\npath b\npid 1\nstart 1\n", "\xff" * 100):
                (program.out.path / "records.at").write_text(text, encoding="latin-1")
                self.assertIn("not as libinject writes it", self.refused(program.out.path))
        self.assertTrue(records.exists())

    @unittest.skipUnless(os.geteuid() == 0, "root alone can give files away")
    def test_another_users_records(self):
        program = self.killed()
        (records,) = self.records()
        os.chown(records, NOBODY, NOBODY)
        self.assertIn("belongs to another user", self.refused(program.out.path))

    def test_no_place_at_all(self):
        result = self.script("kernel:alpha:30 sync return:3", WINDOW="always", env=self.away("/"), check=False)
        self.assertEqual(result.code, 3)
        (line,) = result.warnings()
        self.assertIn("records are kept in memory", line)
        self.assertIn("(NFS), and no folder for temporary files is suitable", line)
        self.assertEqual(result.out.kernels(), {"alpha": 30})

    def test_what_nobody_recovers_is_bounded(self):
        self.leave_and_run(small=False)

    def test_a_whole_job_s_records_are_kept(self):
        self.leave_and_run(small=True)

    def leave_and_run(self, small):
        """Twelve record files that have not been recovered, and another process."""
        folder = self.local / f"libinject-{os.geteuid()}"
        folder.mkdir(mode=0o700)
        gone = subprocess.Popen(["true"])
        gone.wait()
        # In a container with the same folder and process ids of its own: its lock shows that it runs, or it has no lock yet.
        there, new = f"records-10-{gone.pid}", f"records-11-{gone.pid}"
        here = f"records-1-{os.getpid()}"
        left = [f"records-{start + 100}-{gone.pid}" for start in range(12)]
        disk = os.statvfs(folder)
        for name in (here, there, new, *left, "records-of-mine"):
            (folder / name).touch()
            if name in left:  # sparse: a tenth of the disk is enough for some of the small ones
                os.truncate(folder / name, disk.f_blocks * disk.f_frsize // (1000 if small else 20))
            if name != new:
                os.utime(folder / name, (time.time() - 3600,) * 2)
        with (folder / there).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            self.script("kernel:alpha:10 sync", WINDOW="always", env=self.away(self.folder / "run"))
        kept = left if small else left[4:]
        self.assertEqual([path.name for path in self.records()], sorted((here, there, new, *kept, "records-of-mine")))

    def test_the_file_of_a_process_is_locked_while_it_lives(self):
        program = self.started()
        (records,) = self.records()
        with records.open("rb") as file:
            with self.assertRaises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            program.kill()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class RefusalTest(Case):
    def killed(self):
        program = Killed(self, f"sync {READY} kernel:alpha:20 sync until_delivered sleep:60000", WINDOW="always")
        program.wait_for_submissions(20)
        program.kill()
        return program.out.path

    def test_what_is_no_output_folder(self):
        self.assertIn("No such file", self.refused(self.folder / "nowhere"))
        self.assertIn("not an output folder", self.refused(self.folder))
        done = subprocess.run([str(injectctl), "recover"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("recover takes one folder", done.stderr)
        for words, said in ((("recover", ""), "'' is not a folder"), (("recover", "--keep"), "'--keep' is not a folder"),
                            (("status", ""), "'' is not a process id"), (("", ), "'' is not a command")):
            done = subprocess.run([str(injectctl), *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.splitlines()[0]), (2, f"injectctl: {said}"))
        done = subprocess.run([str(injectctl), "recover", "--help"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout[:6]), (0, "usage:"))

    def test_a_process_that_still_runs(self):
        program = Killed(self, f"sync {READY} kernel:alpha:5 sleep:60000", WINDOW="always")
        program.wait_for_submissions(5)
        self.assertIn("still writing", self.refused(program.out.path))
        self.assertIn("records", program.out.files())

    def test_a_process_that_nobody_has_waited_for(self):
        program = Killed(self, f"sync {READY} kernel:alpha:5 sleep:60000", WINDOW="always")
        program.wait_for_submissions(5)
        program.process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, program.process.pid, os.WEXITED | os.WNOWAIT)
        self.recovered(program)

    def test_damaged_files(self):
        out = self.killed()
        records = out / "records"
        whole = records.read_bytes()
        tables = sorted(os.listdir(out))
        for damaged, said in ((b"", "too short"), (whole[:100_000], "was made with"), (whole + b"\0", "was made with"),
                              (b"x" + whole[1:], "not a record file"), (whole[:8] + b"\x63" + whole[9:], "version 99"),
                              (whole[:40] + b"\xff" + whole[41:], "header is damaged")):
            records.write_bytes(damaged)
            self.assertIn(said, self.refused(out))
        records.unlink()
        records.symlink_to("/dev/zero")
        self.assertIn("link", self.refused(out))
        records.unlink()
        records.mkdir()
        self.assertIn("not a regular file", self.refused(out))
        records.rmdir()
        self.assertEqual([name for name in tables if name != "records"], sorted(os.listdir(out)))
        records.write_bytes(whole)
        self.recover(out, "--keep")
        self.assertEqual(records.read_bytes(), whole)

    def test_no_file_may_grow(self):
        out = self.killed()
        self.assertIn("File too large", self.refused(out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))))
        self.recover(out)

    def test_output_that_nobody_gets(self):
        out = self.killed()
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(injectctl), "recover", str(out)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "injectctl: the output can't be written\n"))
        self.assertFalse((out / "records").exists())

    @unittest.skipUnless(os.geteuid() == 0, "root alone can become another user")
    def test_another_users_files(self):
        out = self.killed()
        copy = pathlib.Path(tempfile.mkdtemp(prefix="inject-test-"))
        self.addCleanup(shutil.rmtree, copy)
        shutil.copy(injectctl, copy / "injectctl")
        os.chmod(copy, 0o755)
        for folder in (out, *out.parents[:-1]):
            if folder != pathlib.Path("/tmp"):
                os.chmod(folder, 0o755)
        done = subprocess.run([str(copy / "injectctl"), "recover", str(out)], user=NOBODY, group=NOBODY, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Permission denied", done.stderr)


class FolderTest(Case):
    """What else is in the folder, and who else works in it."""

    def killed(self, **options):
        program = Killed(self, f"sync {READY} kernel:alpha:20 sync until_delivered sleep:60000", WINDOW="always", TRACE="csv,chrome",
                         **options)
        program.wait_for_submissions(20)
        program.kill()
        return program

    def elsewhere(self, names):
        """A folder of another user, with files that must stay as they are."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-test-"))
        self.addCleanup(shutil.rmtree, folder)
        for name in names:
            (folder / name).write_text("precious")
        return folder

    def check_untouched(self, folder, names):
        self.assertEqual({name: (folder / name).read_text(encoding="utf-8") for name in os.listdir(folder)},
                         {name: "precious" for name in names})

    def test_a_link_in_the_place_of_the_folder_that_is_made(self):
        names = (*simulated.RAW, "trace.json.gz", ".trace.json.gz.new", "run.json")
        elsewhere = self.elsewhere(names)
        program = self.killed()
        (program.out.path / ".recovering").symlink_to(elsewhere)
        self.recovered(program)
        self.check_untouched(elsewhere, names)

    def test_links_in_the_places_of_files(self):
        program = self.killed()
        out = program.out.path
        names = (*simulated.TABLES, *simulated.RAW, "trace.json.gz")
        targets = (*names, *(f".{name}.new" for name in (*names, "run.json")))
        elsewhere = self.elsewhere(targets)
        for name in targets:
            (out / name).unlink(missing_ok=True)
            (out / name).symlink_to(elsewhere / name)
        self.recover(out)
        self.check_untouched(elsewhere, targets)
        self.assertEqual([name for name in program.out.files() if (out / name).is_symlink()], [])
        self.check_counts(program, program.out)

    def test_a_run_json_that_is_a_link(self):
        program = self.killed()
        elsewhere = self.elsewhere(["run.json"])
        run = program.out.path / "run.json"
        run.unlink()
        run.symlink_to(elsewhere / "run.json")
        self.recover(program.out.path)
        self.check_untouched(elsewhere, ["run.json"])
        self.assertEqual(program.out.run["state"], "recovered")

    def test_what_a_killed_recovery_left(self):
        program = self.killed()
        left = program.out.path / ".recovering"
        left.mkdir()
        for name in ("run.json", ".window_sum.csv.new", "cuda_gpu_trace.csv", "anything"):
            (left / name).write_text("half a file")
        self.recovered(program)

    def test_recoveries_that_are_killed(self):
        """If run.json says that the run is recovered, everything is in place; if not, the records are there."""
        program = self.killed(RING="256K", BUFFERS="1M")
        alone = self.folder / "alone"
        shutil.copytree(program.out.path, alone)
        started = time.monotonic()
        self.recover(alone)
        whole = time.monotonic() - started
        expected = {name: (alone / name).read_bytes() for name in os.listdir(alone)}
        for i in range(20):
            copy = self.folder / f"copy{i}"
            shutil.copytree(program.out.path, copy)
            with subprocess.Popen([str(injectctl), "recover", str(copy)], stdout=subprocess.DEVNULL) as process:
                time.sleep(random.uniform(max(0, whole - 0.05 * sanitized.PACE), whole))
                process.kill()
            found = simulated.Folder(copy)
            if found.run["state"] == "recovered":
                self.assertEqual({name: (copy / name).read_bytes() for name in expected}, expected)
            else:
                self.assertIn("records", found.files())
            self.recover(copy)
            self.assertEqual({name: (copy / name).read_bytes() for name in expected}, expected)
            self.assertEqual(set(found.files()) - set(expected) - {".recovering"}, set())
            shutil.rmtree(copy)

    def test_one_recovery_at_a_time(self):
        program = self.killed()
        folder = os.open(program.out.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self.assertTrue(self.refused(program.out.path).endswith(": another recovery is under way"))
        finally:
            os.close(folder)
        self.recovered(program)

    def test_recoveries_at_once(self):
        program = self.killed()
        alone = self.folder / "alone"
        shutil.copytree(program.out.path, alone)
        self.recover(alone)
        for i in range(10):
            copy = self.folder / f"copy{i}"
            shutil.copytree(program.out.path, copy)
            both = [subprocess.Popen([str(injectctl), "recover", str(copy)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     text=True) for _ in range(2)]
            said = [process.communicate(timeout=60 * sanitized.PACE)[0] for process in both]
            self.assertIn([process.returncode for process in both], ([0, 0], [0, 1], [1, 0]), said)
            for process, text in zip(both, said):
                self.assertIn("another recovery is under way" if process.returncode else "recovered", text)
            self.assertEqual(sorted(os.listdir(copy)), sorted(os.listdir(alone)))
            for name in os.listdir(alone):
                self.assertEqual((copy / name).read_bytes(), (alone / name).read_bytes(), name)

    def test_a_process_of_another_namespace(self):
        """There its process id belongs to nobody, or to another process."""
        unshare = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no PID namespace can be made")
        program = Killed(self, f"sync {READY} kernel:alpha:5 sleep:60000", WINDOW="always")
        program.wait_for_submissions(5)
        done = subprocess.run([*unshare, str(injectctl), "recover", str(program.out.path)], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("still writing", done.stderr)
        self.assertIn("records", program.out.files())

    def test_large_files_of_nothing(self):
        out = self.folder / "out"
        out.mkdir()
        for gigabytes in (3, 32):
            with open(out / "records", "wb") as file:
                file.truncate(gigabytes << 30)
            with open(self.folder / "said", "w+b") as said:
                process = subprocess.Popen([str(injectctl), "recover", str(out)], stderr=said)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                said.seek(0)
                self.assertIn(b"not a record file", said.read())
            self.assertEqual(process.returncode, 1)
            self.assertLess(usage.ru_maxrss, 500_000)  # KB, most of it for a sanitizer


class RoomTest(Case):
    def check_in_memory(self, result, said):
        """One line gives the reason; everything else is as usual."""
        (line,) = [text for text in result.warnings() if "records are kept in memory" in text]
        self.assertIn(said, line)
        self.assertEqual(result.out.kernels(), {"alpha": 30})
        self.assertEqual(result.out.lost(), {})
        self.assertNotIn("records", result.out.files())

    def test_a_limit_on_files(self):
        text = "kernel:alpha:30 sync return:3"
        command = ["prlimit", f"--fsize={20_000_000}", str(simulated.programs / "script_cuda"), *text.split()]
        if shutil.which("prlimit") is None:
            self.skipTest("there is no prlimit")
        result = self.script(text, command=command, WINDOW="always", TRACE=None, check=False)
        self.assertEqual(result.code, 3)
        self.check_in_memory(result, "ulimit -f")

    def group(self, limit):
        """A control group of ours with that memory limit: its path, and what a process does to enter it."""
        ways = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
        for controllers, path in [(way[1].split(","), way[2]) for way in ways]:
            if "memory" in controllers:
                parents, name = ["/sys/fs/cgroup/memory" + path, "/sys/fs/cgroup/memory"], "memory.limit_in_bytes"
            elif controllers == [""]:
                # A version 2 group that has processes has no child groups with controllers, except for the root.
                parents, name = ["/sys/fs/cgroup" + path.rpartition("/")[0], "/sys/fs/cgroup"], "memory.max"
            else:
                continue
            for parent in parents:
                group = pathlib.Path(parent) / f"inject-test-{os.getpid()}"
                try:
                    group.mkdir()
                except OSError:
                    continue
                try:
                    (group / name).write_text(str(limit))
                except OSError:
                    group.rmdir()
                    continue
                self.addCleanup(group.rmdir)
                return group
        self.skipTest("no control group with a limit on memory can be made")

    def in_group(self, text, limit, code=3, **options):
        """Runs a program that takes 8 MB, with its output folder in memory, in such a group."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, folder)
        group = self.group(limit)
        # The test's own process stays where it is.
        command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"),
                   str(simulated.programs / "script_cuda"), *text.split()]
        result = self.script(text, command=command, WINDOW="always", OUT=str(folder / "out"), TRACE=None, check=False, **options)
        self.assertEqual(result.code, code, result.stderr)
        self.assertEqual([line for line in pathlib.Path(group / "memory.events").read_text().splitlines()
                          if line.startswith("oom_kill ") and line != "oom_kill 0"] if (group / "memory.events").exists() else [], [])
        return result, simulated.Folder(folder / "out")

    LOADED = "loop:200 [ kernel:alpha:100 sync ] until_delivered return:3"

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "there is no tmpfs")
    @sanitized.unsanitized("it takes more memory than the group has")
    def test_a_limit_on_memory_that_leaves_little(self):
        """Ring, buffers and file are reduced to fit, and the message has the sizes."""
        result, out = self.in_group(self.LOADED, 64 << 20)
        (line,) = [text for text in result.warnings() if "INJECT_RING" in text]
        self.assertRegex(line, r"INJECT_RING=\d+K and INJECT_BUFFERS=\d+K are used: \d+ MB are left of the 67 MB of memory "
                         "of its control group")
        self.assertEqual([text for text in result.warnings() if "records are" in text], [])
        options = out.run["options"]
        self.assertIn(f"INJECT_RING={options['INJECT_RING']} and INJECT_BUFFERS={options['INJECT_BUFFERS']} ", line)
        self.assertLess(int(options["INJECT_RING"][:-1]), 4096)
        lost = out.lost()
        self.assertLessEqual(sum(out.kernels().values()), 20000)
        self.assertGreaterEqual(sum(out.kernels().values()) + lost.get("activity_records", 0), 20000)

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "there is no tmpfs")
    @sanitized.unsanitized("it takes more memory than the group has")
    def test_a_limit_on_memory_that_leaves_next_to_nothing(self):
        # Even if the remaining memory would be enough for the requested queues and buffers.
        for limit, options in ((24, {}), (44, {"RING": "64K", "BUFFERS": "1M"})):
            with self.subTest(options):
                result, out = self.in_group("kernel:alpha:30 sync return:3", limit << 20, **options)
                (line,) = result.warnings()
                self.assertRegex(line, r"^\d+ MB are left of the (25|46) MB of memory of its control group, .*profiling is off")
                self.assertFalse(out.path.exists())

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "there is no tmpfs")
    @sanitized.unsanitized("it takes more memory than the group has")
    def test_memory_that_is_gone_by_the_first_window(self):
        """The file would not fit: records are kept in memory."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, folder)
        group = self.group(4 << 30)
        procs = group / "cgroup.procs"
        program = Killed(self, "progress:progress kernel:beta:1 sync until_text:go:go start kernel:alpha:30 sync stop return:3",
                         before=lambda: procs.write_text(str(os.getpid())), WINDOW="api", OUT=str(folder / "out"), TRACE=None)
        program.wait_for_submissions()
        (limit,) = [group / name for name in ("memory.max", "memory.limit_in_bytes") if (group / name).exists()]
        limit.write_text(str(200 << 20))
        (program.work / "go").write_text("go")
        self.assertEqual(program.process.wait(60), 3)
        (line,) = [text for text in program.stderr().splitlines() if "records are kept in memory" in text]
        self.assertRegex(line, r"they take \d+ MB there, and \d+ MB are left of the 210 MB of memory of its control group")
        out = simulated.Folder(folder / "out")
        self.assertEqual(out.kernels(), {"alpha": 30})
        self.assertNotIn("records", out.files())

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "there is no tmpfs")
    def test_a_limit_on_memory_that_leaves_enough(self):
        result, out = self.in_group(self.LOADED, 4 << 30)
        self.assertEqual(result.warnings(), [])
        self.assertEqual(out.kernels(), {"alpha": 20000})

    @unittest.skipUnless(os.geteuid() == 0, "root alone can mount")
    def test_a_small_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", str(disk)], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("nothing can be mounted")
        try:
            self.runs += 1
            result = self.script("kernel:alpha:30 sync return:3", WINDOW="always", OUT=str(disk / "out"), TRACE=None, check=False)
            self.assertEqual(result.code, 3)
            (line,) = [text for text in result.warnings() if "records are kept in memory" in text]
            self.assertIn("and the disk has", line)
            out = simulated.Folder(disk / "out")
            self.assertEqual(out.kernels(), {"alpha": 30})
            self.assertNotIn("records", out.files())
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "root alone can mount")
    @sanitized.unsanitized("a ring that leaves room on the disk is too small for its pace", alone="thread")
    def test_a_disk_that_fills_up_meanwhile(self):
        """The file's space is reserved, so the program is not harmed; the tables, which have no reserved space, are written later."""
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(disk)], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("nothing can be mounted")
        try:
            program = Killed(self, f"sync until_text:{disk}/out/run.json:time_zero progress:progress signal:go "
                             "until_text:full:full loop:200 [ kernel:alpha:30 sync ] return:3", WINDOW="always",
                             OUT=str(disk / "out"), RING="256K", BUFFERS="1M")
            program.wait_for(lambda: (disk / "out" / "run.json").exists(), "run.json")
            filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
            try:
                while True:
                    os.write(filler, bytes(4096))
            except OSError:
                os.close(filler)
            (program.work / "full").write_text("full")
            program.process.wait(60)
            self.assertEqual(program.process.returncode, 3)
            self.assertIn("the records are kept", program.stderr())
            (disk / "filler").unlink()
            self.recover(disk / "out")
            out = simulated.Folder(disk / "out")
            self.assertEqual(out.kernels(), {"alpha": 6000})
            self.assertEqual(out.lost(), {})
        finally:
            program.end()
            subprocess.run(["umount", str(disk)], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "root alone can mount")
    def test_a_copy_that_shares_blocks_and_then_a_full_disk(self):
        """XFS has no space for a store to blocks shared with a copy. By then the blocks are the program's own again."""
        self.copy_and_fill(self.folder / "xfs", lambda disk: disk)

    @unittest.skipUnless(os.geteuid() == 0, "root alone can mount")
    def test_a_copy_on_an_overlay_that_shares_blocks(self):
        self.copy_and_fill(self.folder / "xfs", self.overlay)

    def overlay(self, disk):
        for name in ("lower", "upper", "work", "merged"):
            (disk / name).mkdir()
        if subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work", "none",
                           str(disk / "merged")], capture_output=True, check=False).returncode != 0:
            self.skipTest("no overlay can be mounted")
        return disk / "merged"

    @unittest.skipUnless(os.geteuid() == 0, "root alone can mount")
    def test_an_overlay_on_what_copies_on_write(self):
        """On btrfs, a full disk has no room for a store to an allocated block: the records are elsewhere. On tmpfs they are not."""
        for system, below in (("btrfs", True), ("ext4", False), ("tmpfs", False)):
            with self.subTest(system):
                disk = self.folder / system
                disk.mkdir()
                image = self.folder / f"{system}.image"
                with open(image, "wb") as file:
                    file.truncate(600 << 20)
                commands = ([["mount", "-t", "tmpfs", "-o", "size=600m", "none", str(disk)]] if system == "tmpfs" else
                            [[f"mkfs.{system}", "-q", str(image)], ["mount", "-o", "loop", str(image), str(disk)]])
                for command in commands:
                    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
                        self.skipTest(f"no {system} can be mounted")
                try:
                    self.check_overlay(self.overlay(disk), below)
                finally:
                    subprocess.run(["umount", "--recursive", str(disk)], check=True)

    def check_overlay(self, disk, elsewhere):
        out = disk / "out"
        program = Killed(self, "kernel:alpha:30 sync loop:9999 [ sleep:5 ]", WINDOW="always", OUT=str(out), TRACE=None)
        try:
            program.wait_for((out / "run.json").exists, "run.json")
            self.assertEqual([(out / name).exists() for name in ("records", "records.at")], [not elsewhere, elsewhere])
        finally:
            program.end()
        self.assertNotIn("records are kept in memory", program.stderr())
        self.recover(out)

    def copy_and_fill(self, whole, mount):
        whole.mkdir()
        image = self.folder / "image"
        with open(image, "wb") as file:
            file.truncate(400 << 20)
        for command in (["mkfs.xfs", "-q", str(image)], ["mount", "-o", "loop", str(image), str(whole)]):
            if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
                self.skipTest("no XFS can be mounted")
        program = None
        try:
            disk = mount(whole)
            # Everything that is stored to later has been stored to before: nothing else is copied.
            program = Killed(self, f"sync until_text:{disk}/out/run.json:time_zero progress:progress loop:20 [ kernel:alpha:30 sync ] "
                             "until_text:full:full loop:200 [ kernel:alpha:30 sync ] return:3", WINDOW="always", OUT=str(disk / "out"),
                             RING="256K", BUFFERS="1M", TRACE=None)
            program.wait_for_submissions(600)
            records, copy = disk / "out" / "records", disk / "copy"
            if subprocess.run(["cp", "--reflink=always", str(records), str(copy)], capture_output=True, check=False).returncode != 0:
                self.skipTest("this XFS shares no blocks")
            deadline = time.monotonic() + 20
            while shares_blocks(records) and time.monotonic() < deadline:
                time.sleep(0.2)
                subprocess.run(["sync", "-f", str(disk)], check=True)  # only then the blocks are known
            with open(disk / "filler", "wb", buffering=0) as filler:
                for size in (1 << 20, 4096, 4096):
                    try:
                        while True:
                            filler.write(bytes(size))
                    except OSError:
                        os.fsync(filler.fileno())
            (program.work / "full").write_text("full")
            program.process.wait(60)
            self.assertEqual(program.process.returncode, 3, program.stderr())
            self.assertNotIn("a copy of the records' file", program.stderr())
            (disk / "filler").unlink()
            self.recover(disk / "out")
            out = simulated.Folder(disk / "out")
            self.assertEqual(out.kernels(), {"alpha": 6600})
            self.assertEqual(out.lost(), {})
        finally:
            if program is not None:
                program.end()
            subprocess.run(["umount", "--recursive", str(whole)], check=True)


def shares_blocks(path):
    """Whether another file shares an extent of the file (FS_IOC_FIEMAP)."""
    count = 256
    asked = bytearray(struct.pack("=QQIIII", 0, 2**64 - 1, 0, 0, count, 0) + bytes(56 * count))
    with open(path, "rb") as file:
        fcntl.ioctl(file, 0xC020660B, asked)
    found = struct.unpack_from("=I", asked, 20)[0]
    return any(struct.unpack_from("=I", asked, 32 + 56 * i + 40)[0] & 0x2000 for i in range(found))


if __name__ == "__main__":
    simulated.main()
