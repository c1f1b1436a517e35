# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject run`: the variables that it sets, and that nothing else of the program changes."""

import json
import unittest

import folders


class Run(folders.TemporaryFolder):
    def test_the_example(self):
        done = folders.inject("run", "--out", self.folder / "out", "--set", "SUMMARY=off", "--", folders.BUILD / "examples" / "inject-train",
                              env={"LD_LIBRARY_PATH": str(folders.BUILD / "sim")})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("loss"), 6)
        run = json.loads((self.folder / "out" / "run.json").read_text())
        self.assertEqual((run["state"], run["options"]["INJECT_SUMMARY"]), ("closed", "off"))

    def test_variables(self):
        done = folders.inject("run", "--window", "iter:1+2", "--after", "exit", "--timeout", "1m", "-o", "x", "--metrics", "auto", "--trace", "csv",
                              "--batch", 8, "--summary", "off", "-s", "RING=1M", "-s", "inject_log=warn", "--json", "--", "python", "-c", "x y",
                              env={"LD_PRELOAD": "other.so"})
        shown = json.loads(done.stdout)
        preload = shown["environment"].pop("LD_PRELOAD").split(":")
        self.assertEqual(preload[1:], ["other.so"])
        self.assertTrue(preload[0].endswith("/libinject.so"))
        self.assertEqual(shown, {"command": ["python", "-c", "x y"], "environment": {
            "INJECT_WINDOW": "iter:1+2", "INJECT_AFTER": "exit", "INJECT_TIMEOUT": "1m", "INJECT_OUT": "x", "INJECT_METRICS": "auto",
            "INJECT_TRACE": "csv", "INJECT_BATCH": "8", "INJECT_SUMMARY": "off", "INJECT_RING": "1M", "INJECT_LOG": "warn"}})

    def test_what_it_shows_can_be_run(self):
        done = folders.inject("run", "--window", "nvtx:a b", "--show", "--", "echo", "it's")
        self.assertRegex(done.stdout, r"^INJECT_WINDOW='nvtx:a b' LD_PRELOAD=\S+/libinject\.so echo 'it'\"'\"'s'\n$")

    def test_a_preload_that_is_there_already(self):
        first = json.loads(folders.inject("run", "--json", "true").stdout)["environment"]["LD_PRELOAD"]
        done = folders.inject("run", "--json", "true", env={"LD_PRELOAD": f"/a.so {first}:/b.so"})
        self.assertEqual(json.loads(done.stdout)["environment"]["LD_PRELOAD"], f"{first}:/a.so:/b.so")

    def test_status(self):
        for command, status in ((["sh", "-c", "exit 7"], 7), (["no-such-program"], 127), ([self.folder], 126)):
            self.assertEqual(folders.inject("run", "--", *command).returncode, status)
        self.assertIn("can't run 'no-such-program': no such file or directory", folders.inject("run", "no-such-program").stderr)

    def test_bad_settings(self):
        for setting in ("RING", "=1", "A B=1"):
            done = folders.inject("run", "--set", setting, "--", "true")
            self.assertEqual((done.returncode, done.stderr), (2, f"inject: '{setting}' is not NAME=VALUE, such as RING=64M\n"))


if __name__ == "__main__":
    unittest.main()
