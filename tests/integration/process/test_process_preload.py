#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The library twice in one process: one of the two works, the other is not noticed."""

import pathlib
import shutil

import harness


class TwoCopies(harness.Case):
    def setUp(self):
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


if __name__ == "__main__":
    harness.main()
