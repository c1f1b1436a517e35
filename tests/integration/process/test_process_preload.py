#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The library twice in one process: one copy works, and the other has no effect."""

import os
import pathlib
import shutil
import subprocess
import unittest

import harness

NOBODY = 65534


class TwoCopies(harness.Case):
    def setUp(self):
        super().setUp()
        self.copy = self.fresh_folder() / "libinject.so"
        shutil.copy(harness.library, self.copy)

    def check(self, window="api", **options):
        done = self.run_program(harness.victim("exit", "return"), env={"INJECT_WINDOW": window, **options.pop("env", {})},
                                **options)
        self.assertEqual((done.status, done.stdout), (0, "launched\n"))
        output = done.output
        self.assertEqual((output.state, output.lost()), ("closed", {}))
        kernels = output.kernels()
        self.assertEqual({name: kernels[name] for name in ("quick", "slow")}, {"quick": 100, "slow": 50})
        self.assertEqual(output.calls()["__cudaLaunchKernel"], 150)
        self.assertEqual(done.problems(), [])
        self.assertEqual(done.stderr.count("\n  tables: "), 1)

    def test_both_preloaded(self):
        for window in ("api", "always"):
            for preloads in ([harness.library, self.copy], [self.copy, harness.library]):
                with self.subTest(window=window, first=pathlib.Path(preloads[0]).parent.name):
                    self.check(window, preloads=preloads)

    @harness.unsanitized("a library is loaded by RTLD_DEEPBIND, which a sanitizer refuses")
    def test_libraries_come_and_go(self):
        done = self.run_program(harness.victim("threads", "loading"), preloads=[harness.library, self.copy])
        self.assertEqual((done.status, done.stdout), (0, "done\n"), done.stderr)
        self.assert_complete(done.output, {"steady": 4000})

    def test_one_preloaded_and_another_one_brought_by_the_driver(self):
        # As in a process whose parent ran under another copy.
        for window in ("api", "always"):
            with self.subTest(window):
                self.check(window, env={"CUDA_INJECTION64_PATH": str(self.copy), "NVTX_INJECTION64_PATH": str(self.copy)})


class OneFile(harness.Case):
    def test_named_twice(self):
        link = self.fresh_folder() / "other-name.so"
        link.symlink_to(harness.library)
        done = self.run_both(harness.victim("exit", "return"), preloads=[harness.library, link, harness.library])
        self.assert_complete(done.output, {"quick": 100, "slow": 50})


@unittest.skipIf(os.geteuid() != 0, "only root can make a program another user's")
@harness.unsanitized("its run-time library can't be loaded there")
class OtherRights(harness.Case):
    """A setuid program that has the library nevertheless: the program does not trust its user's environment."""

    def run_victim(self, mode):
        folder = self.fresh_folder()
        folder.chmod(0o777)
        program = folder / "program"
        shutil.copy(harness.programs / "secure_victim", program)
        if mode & 0o4000:
            os.chown(program, NOBODY, NOBODY)
        program.chmod(mode)
        library = folder / "libinject.so"
        shutil.copy(harness.library, library)
        env = {"PATH": os.environ["PATH"], "INJECT_HELP": "1", "INJECT_OUT": str(folder / "out"), "INJECT_SUMMARY": "stderr"}
        done = subprocess.run([str(program), str(library)], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split(), done.stderr, (folder / "out").exists()

    def test_does_nothing(self):
        (secure, started, trace), stderr, output = self.run_victim(0o755)
        self.assertEqual((secure, started, trace, output), ("0", "0", "1", True))
        self.assertIn("INJECT_WINDOW", stderr)
        (secure, started, trace), stderr, output = self.run_victim(0o4755)
        if secure == "0":
            self.skipTest("the file system has no setuid programs")
        self.assertEqual((started, trace, stderr, output), ("-1", "0", "", False))


if __name__ == "__main__":
    harness.main()
