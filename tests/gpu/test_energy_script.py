# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of energy.py on the simulated CUDA, and that a run which is not as expected is found.

usage: test_energy_script.py LIBRARY SIMULATION PROGRAM
"""

import os
import sys
import tempfile
import types
import unittest

import energy
from gputest import Report

# Like programs/torch_energy.py, but shorter.
WORDS = ("duration:k:50000000 kernel:k:1 sync sleep:300 start loop:250 [ kernel:k:1 sync ] stop sleep:1500 "
         "start kernel:k:1 sync sleep:4000 kernel:k:1 sync stop sleep:500")


class OnTheSimulation(unittest.TestCase):
    def failed(self, power):
        """The checks that fail. A machine that is too busy leaves energies blank; then the run is repeated."""
        for _ in range(4):
            failed = self.failed_once(power)
            if not any(detail.startswith(" ") for detail in failed.values()):
                break
        return failed

    def failed_once(self, power, words=WORDS):
        with tempfile.TemporaryDirectory() as folder:
            options = types.SimpleNamespace(library=library, out=folder, work=folder, program=[program, *words.split()])
            report = Report("energy", folder)
            os.environ.update(LD_LIBRARY_PATH=simulation, CUDASIM_POWER=power, CUDASIM_DEVICES="1")
            energy.test(options, report)
            self.assertGreater(len(report.checks), 10)
            return {check["check"]: check["detail"] for check in report.checks if not check["passed"]}

    def test_a_run(self):
        # The second process has a simulated device of its own, without kernels: both use the same power if kernels make no difference.
        failed = self.failed("step_us=20000,idle_mw=300000,busy_mw=300000")
        self.assertEqual(set(failed), {"a pause uses less power than steps"}, failed)

    def test_a_run_that_differs_is_found(self):
        failed = self.failed("step_us=20000,idle_mw=100000,busy_mw=500000")
        self.assertLessEqual({"a thousand steps: energy is the counter's difference, within 2%",
                              "a thousand steps: … and within the error that is stated"}, set(failed))
        self.assertNotIn("a pause uses less power than steps", failed)


class Arithmetic(unittest.TestCase):
    def test_moves(self):
        moves = [[0, 100, 0], *([at * 20_000_000 - 4, at * 20_000_000, at * 10_000] for at in range(1, 50))]  # 500 W
        self.assertAlmostEqual(energy.joules(moves, 100_000_000, 500_000_000), 200, delta=0.1)
        self.assertIsNone(energy.joules(moves, 100_000_000, 5_000_000_000))


if __name__ == "__main__":
    library, simulation, program = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
