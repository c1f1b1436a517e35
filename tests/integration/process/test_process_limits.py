#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""If a resource is denied to the program, the library does without it, reports it once, and does no harm."""

import concurrent.futures
import fcntl
import os
import pathlib
import resource
import struct
import threading
import time
import unittest

import harness

TRACED = {"INJECT_TRACE": "csv"}
UNKNOWN = {f"INJECT_UNKNOWN_{i}": "1" for i in range(100)}  # one warning each
# One window, after which the library's own thread ends at once; if another window may come, it stays for five seconds.
LAST = {"INJECT_WINDOW": "apix1"}


class Streams(harness.Case):
    def test_closed_stderr(self):
        for scenario, env in (("plain", TRACED), ("settled", TRACED | LAST)):
            with self.subTest(scenario):
                done = self.run_both(harness.victim("limits", scenario), keep_stderr=False,
                                     preexec_fn=lambda: os.close(2), env=env)
                self.assertEqual((done.status, done.stdout), (0, "done\n"))
                self.assert_complete(done.output, {"quick": 200 if scenario == "plain" else 100})

    def test_nothing_is_written_to_the_file_that_takes_the_place_of_stderr(self):
        done = self.run_both(harness.victim("limits", "own_file_as_stderr"), keep_stderr=False,
                             preexec_fn=lambda: os.close(2), env={"INJECT_LOG": "debug", **TRACED},
                             expected_files=["own.txt"])
        self.assertEqual((done.status, done.stdout), (0, "descriptor 2\n"))
        self.assertEqual((done.folder / "own.txt").read_text(), "first\nsecond\nthird\n")
        self.assert_complete(done.output, {"quick": 200})

    def test_standard_descriptors_stay_free(self):
        done = self.run_both(harness.victim("limits", "standard_descriptors_stay_free"), env=TRACED,
                             expected_files=["own.txt"])
        self.assertEqual((done.status, done.stdout), (0, "freed 0, opened 0\nfreed 2, opened 2\n"))
        self.assertEqual((done.folder / "own.txt").read_text(), "text\ntext\n")

    def test_a_program_that_closes_every_descriptor_finds_its_own_files_alone(self):
        names = [f"own{i}.txt" for i in range(8)]
        done = self.run_both(harness.victim("limits", "close_every_descriptor"),
                             env={"INJECT_LOG_FILE": "log.txt", "INJECT_LOG": "debug", **TRACED},
                             expected_files=names + ["log.txt"])
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assertEqual([(done.folder / name).read_text() for name in names], ["text\n"] * 8)
        self.assertEqual(done.output.state, "closed")
        self.assertEqual(done.output.kernels(), {"quick": 200})

    def test_broken_pipe(self):
        for scenario, env in (("plain", {}), ("settled", LAST)):
            with self.subTest(scenario):
                reader, writer = os.pipe()
                os.close(reader)
                done = self.run_both(harness.victim("limits", scenario), stderr=writer, env={"INJECT_LOG": "debug", **env})
                os.close(writer)
                self.assertEqual((done.status, done.stdout), (0, "done\n"))
                self.assert_complete(done.output, {"quick": 200 if scenario == "plain" else 100})

    def test_full_pipe(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        os.set_blocking(writer, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writer, b"x" * 65536)
        os.set_blocking(writer, True)
        # The first of its messages takes a second, the others no time.
        done = self.run_both(harness.victim("limits", "plain"), stderr=writer, env=UNKNOWN)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assert_complete(done.output, {"quick": 200})

    def test_a_small_pipe_that_is_read_slowly_gets_all_of_it(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        text = []

        def read_slowly():
            time.sleep(0.3)
            while part := os.read(reader, 1000):
                text.append(part.decode())
                time.sleep(0.01)

        slow = threading.Thread(target=read_slowly)
        slow.start()
        done = self.run_program(harness.victim("limits", "plain"), stderr=writer, env=UNKNOWN)
        os.close(writer)
        slow.join()
        os.close(reader)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        text = "".join(text)
        self.assertGreater(len(text), 2 * 4096)
        self.assertEqual(text.count("INJECT_UNKNOWN_"), 100)
        self.assertRegex(text, r"(?s)\nlibinject: 2 windows.*\n  tables: \S+\n  next: inject report \S+ -o report\.html\n\Z")


class Descriptors(harness.Case):
    @harness.unsanitized("it needs some for its checks")
    def test_none_is_left(self):
        done = self.run_both(harness.victim("limits", "no_descriptor_left"), env=TRACED)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assertLessEqual(len(done.problems()), 3, done.stderr)
        self.assertIn("Too many open files", done.stderr)


    def test_what_takes_a_standard_descriptors_place(self):
        names = ["f0", "f1", "f2"]
        done = self.run_both(harness.victim("limits", "files_as_standard_descriptors"), expected_files=names)
        self.assertEqual(done.status, 0)
        self.assertEqual([(done.folder / name).read_text() for name in names], names)
        self.assert_complete(done.output, {"quick": 200})


class FileSizes(harness.Case):
    def check(self, scenario, **options):
        done = self.run_both(harness.victim("limits", scenario), **options)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        return done

    def test_no_file_may_grow(self):
        done = self.check("no_file_may_grow", env=TRACED)
        self.assertIn("File too large", done.stderr)
        self.assertLessEqual(len(done.problems()), 3, done.stderr)
        # The summary goes to a pipe.
        self.assertIn("quick", done.stderr)

    def test_no_file_may_grow_when_the_exiting_thread_writes(self):
        done = self.check("no_file_may_grow_at_exit", env={"INJECT_SUMMARY": "summary.txt", **LAST}, expected_files=["summary.txt"])
        # Files written when the window closed are still there.
        self.assert_complete(done.output, {"quick": 100})

    def test_messages_into_files(self):
        done = self.check("no_file_may_grow", env={"INJECT_LOG_FILE": "log.txt", "INJECT_SUMMARY": "summary.txt", **TRACED},
                          expected_files=["log.txt", "summary.txt"])
        self.assertEqual((done.folder / "log.txt").stat().st_size, 0)

    def test_stderr_is_a_file(self):
        with open(self.fresh_folder() / "stderr", "wb") as file:
            self.check("no_file_may_grow", stderr=file)
        with open(self.fresh_folder() / "stderr", "wb") as file:
            self.check("no_file_may_grow_at_exit", stderr=file, env=LAST)

    def test_a_limit_in_the_midst_of_a_file(self):
        done = self.check("files_may_grow_a_little", env=TRACED)
        # No table is truncated: it is there in full or not at all.
        for path in done.output.path.glob("*_sum.csv"):
            self.assertLess(path.stat().st_size, 1001)
            self.assertTrue(path.read_text().endswith("\n"), path)
        self.assertIn("File too large", done.stderr)


class Threads(harness.Case):
    # `auto` has a thread from the beginning, which waits for the time of its own window.
    API = {"INJECT_WINDOW": "api"}

    def test_none_can_be_started(self):
        done = self.run_both(harness.victim("limits", "no_thread"), env=self.API)
        self.assertEqual((done.status, done.stdout, done.outputs), (0, "done\n", []))
        self.assertEqual(sum("thread can't be started" in line for line in done.problems()), 1)

    def test_none_can_be_started_at_exit(self):
        done = self.run_both(harness.victim("limits", "no_thread_at_exit"), env=self.API)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assert_complete(done.output, {"quick": 100})

    def test_one_can_be_started_later(self):
        done = self.run_both(harness.victim("limits", "thread_at_the_second_attempt"), env=self.API)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assert_complete(done.output, {"quick": 100})

    @unittest.skipIf(os.geteuid() != 0, "takes root, to become a user who has no process")
    def test_the_user_has_no_process_left(self):
        done = self.run_both(harness.victim("limits", "no_process"), env=self.API)
        self.assertEqual((done.status, done.stdout, done.outputs), (0, "done\n", []))
        self.assertEqual(sum("thread can't be started" in line for line in done.problems()), 1)


class Patches(harness.Case):
    """MPI libraries patch functions of the C library to track freed memory, and some get it wrong."""

    def test_mremap_without_its_last_argument(self):
        done = self.run_both(harness.victim("limits", "mremap_is_patched"))
        self.assertEqual((done.status, done.stdout, done.problems()), (0, "address 0 is free\n", []))
        self.assert_complete(done.output, {"quick": 100})


@harness.unsanitized("it reserves terabytes of addresses, and aborts where memory is denied")
class AddressSpace(harness.Case):
    """However little is left: the tables may be missing, but the program works."""

    # Below that, the simulated CUPTI, which keeps its records in memory without a limit, has none left. The last value is enough for the
    # library.
    SPARE_MIB = (32, 48, 64, 96, 128, 192, 256, 512, 4096)

    def check(self, scenario, kernels):
        # A program that works with the least memory by itself also works with more.
        bare = None
        for spare in self.SPARE_MIB:
            with self.subTest(spare_mib=spare):
                env = {"VICTIM_SPARE_MIB": str(spare), "INJECT_SUMMARY": "off"}
                bare = bare or self.run_program(harness.victim("limits", scenario), preload=False, env=env)
                done = self.run_beside(bare, harness.victim("limits", scenario), env=env)
                self.assertEqual((done.status, done.stdout), (0, "done\n"), done.stderr)
                self.assertLessEqual(len(done.problems()), 3, done.stderr)
        self.assert_complete(done.output, {"quick": kernels})

    def test_from_the_start(self):
        self.check("little_memory_from_the_start", 200)

    def test_what_is_reserved_is_a_small_share(self):
        done = self.run_both(harness.victim("limits", "little_memory_from_the_start"), env={"VICTIM_SPARE_MIB": "1024"})
        (line,) = done.problems()
        self.assertRegex(line, r"profiling is off: it reserves 384 MB of addresses, more than an eighth of the \d+ MB that "
                         "ulimit -v leaves")
        self.assertEqual(done.outputs, [])

    def test_what_is_said_of_it_is_as_the_options_want(self):
        command = harness.victim("limits", "little_memory_from_the_start")
        spare = {"VICTIM_SPARE_MIB": "1024"}
        log = self.fresh_folder() / "log"
        for options in ({"INJECT_WINDOW": "off"}, {"INJECT_LOG": "off"}, {"INJECT_LOG_FILE": str(log)}):
            with self.subTest(options):
                self.assertEqual(self.run_both(command, env={**spare, **options}).problems(), [])
        self.assertIn("profiling is off: it reserves 384 MB", log.read_text(encoding="utf-8"))

    def image_bytes(self):
        """Address space that the loader maps for the library before any of its code runs."""
        image = pathlib.Path(harness.library).read_bytes()
        segments, size, count = struct.unpack_from("<Q", image, 32)[0], *struct.unpack_from("<HH", image, 54)
        headers = [struct.unpack_from("<IIQQQQQQ", image, segments + i * size) for i in range(count)]
        return max(address + memory for kind, _, _, address, _, _, memory, _ in headers if kind == 1)  # PT_LOAD

    def test_whatever_the_program_needs(self):
        """The least address space with which the program works is also enough beside the library."""
        command = harness.victim("limits", "plain")

        def limited(size):
            return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)), "env": {"INJECT_SUMMARY": "off"}}

        def runs(size):
            bare = self.run_program(command, preload=False, **limited(size))
            return bare.status == 0 and bare.stdout == "done\n"

        step = 256 << 10
        fails, least = 0, (8 << 30) // step
        self.assertTrue(runs(least * step))
        while least - fails > 1:
            middle = (fails + least) // 2
            if runs(middle * step):
                least = middle
            else:
                fails = middle
        # Beside the image there are only the loader's data and the reason why nothing is profiled.
        least = least * step + (self.image_bytes() + 0xFFFF & ~0xFFFF)
        for more in (1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29,
                     1 << 30, 1 << 31, 1 << 32):
            for _ in range(3):
                with self.subTest(least=least, more=more):
                    done = self.run_program(command, **limited(least + more))
                    self.assertEqual((done.status, done.stdout), (0, "done\n"), done.stderr)
                    self.assertLessEqual(len(done.problems()), 1, done.stderr)
        self.assert_complete(done.output, {"quick": 200})

    def test_before_the_window(self):
        self.check("little_memory_before_the_window", 200)

    def test_in_the_window(self):
        self.check("little_memory_in_the_window", 30_200)


@harness.unsanitized("the program's malloc takes the place of its own")
class Memory(harness.Case):
    """Every memory request of the library is denied in turn: only that one, or that one and all later ones."""

    def run_denied(self, first, count):
        return self.run_program(harness.victim("memory"),
                                env={"VICTIM_DENY_FROM": str(first), "VICTIM_DENY_COUNT": str(count), **TRACED})

    def test_denied(self):
        requests = int(self.run_denied(0, 0).notes.split()[1])
        self.assertGreater(requests, 200)
        # The first requests create the session and open the first window; later ones recur.
        chosen = [*range(1, 60), *range(60, 2 * requests, max(1, requests // 40))]
        cases = [(first, 1) for first in chosen[::2]] + [(first, 1_000_000) for first in chosen[1::2]]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # they mostly wait
            for (first, count), done in zip(cases, pool.map(lambda case: self.run_denied(*case), cases)):
                with self.subTest(first=first, count=count):
                    self.assertEqual((done.status, done.stdout), (0, "done\n"), done.stderr)
                    # A vain wait for the device would take 30 s; four programs at once, on a loaded machine, take some time.
                    self.assertLess(done.seconds, 25 * harness.PACE, done.stderr)
                    self.assertLessEqual(len(done.problems()) - len(done.ended_meanwhile()), 3, done.stderr)


if __name__ == "__main__":
    harness.main()
