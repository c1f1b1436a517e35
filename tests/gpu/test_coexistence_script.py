# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of coexistence.py: its client's parts on the simulated CUDA, and that a run which is not as expected is found.

usage: test_coexistence_script.py LIBRARY SIMULATION
"""

import os
import sys
import tempfile
import types
import unittest

import coexistence
from gputest import Report


class OnTheSimulation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.options = types.SimpleNamespace(library=library, out=folder.name, work=folder.name)
        self.report = Report("coexistence", folder.name)
        os.environ["LD_LIBRARY_PATH"] = simulation

    def failed(self):
        return [(check["check"], check["detail"]) for check in self.report.checks if not check["passed"]]

    def test_clients(self):
        for mode in coexistence.CLIENT_WINDOWS:
            coexistence.client(self.options, self.report, mode)
        self.assertEqual(self.failed(), [])
        self.assertEqual(len(self.report.checks), 2 * len(coexistence.CLIENT_WINDOWS))

    def test_hidden_clients(self):
        for mode in ("subscribe", "finalize", "buffers"):
            coexistence.hidden(self.options, self.report, mode)
        self.assertEqual(self.failed(), [])

    def test_a_run_that_differs_is_found(self):
        # Another tool holds CUPTI all the time: no window is as expected, and the client is refused without us as well.
        coexistence.client(self.options, self.report, "none", {"CUDASIM_FAULTS": "subscriber_taken"})
        self.assertEqual([check for check, _ in self.failed()], ["client, none: its calls as alone, our windows as expected"])
        self.assertIn("windows", str(self.failed()))

    def test_each_difference_is_found(self):
        coexistence.client(self.options, self.report, "subscribe")
        self.assertEqual(self.failed(), [])
        folder = coexistence.Folder(os.path.join(self.options.work, "client_subscribe.out"))
        with open(os.path.join(self.options.work, "client_subscribe.log"), encoding="utf-8") as log:
            err = log.read().partition("--- stderr\n")[2]
        alone = {"returned": {"0 cuptiSubscribe": 0}, "memsets": 0, "strays": 0}

        def differences(mode="subscribe", beside=alone, text=err):
            return set(coexistence.compare_client(mode, alone, beside, folder, text))

        self.assertEqual(differences(), set())
        self.assertEqual(differences(beside={**alone, "returned": {"0 cuptiSubscribe": 39}}), {"the client"})
        self.assertEqual(differences(text=""), {"lines on windows closed early", "lines on windows without CUPTI"})
        self.assertIn("windows", differences(mode="finalize"))


if __name__ == "__main__":
    library, simulation = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
