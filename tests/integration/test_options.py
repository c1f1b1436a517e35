#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Invalid settings are reported in one line, and do no harm to the program.

usage: test_options.py LIBRARY PROGRAMS SIMULATION
"""

import re
import subprocess
import sys
import time

import simulated

TEXT = "kernel:a:3 start kernel:b:2 stop print:done sync return:3"

# Values that are refused: malformed ones, and values of features that do not exist.
REFUSED = {
    "INJECT_WINDOW": ["sometimes", "time:5", "time:5s", "time:5s+", "time:5s+0s", "time:1x+1s", "time:1s+2s/1s", "launch:5",
                      "launch:-1+5", "launch:1+0", "launch:1+2.5", "launch:99999999999999999999+1", "api:3", "api/", "autox0",
                      "time:1s+1s/2sx", "always ", "always/2", "iter:5", "iter:5+0", "nvtx:", "nvtx:\"\"", "nvtx:step@", "nvtx:step/0", "signal:",
                      "signal:KILL", "signal:SIGSEGV", "signal:12", "signal/1", "api/0", "x2", "/5"],
    "INJECT_AFTER": ["explode", "Exit"],
    "INJECT_TIMEOUT": ["10", "0s", "soon"],
    "INJECT_OUT": ["lone%", "%z", "%q", "%q{}", "%q{NO_SUCH_VARIABLE}", ".", "..", "/", "out/..", "./"],
    "INJECT_API": ["all", "CUDA"],
    "INJECT_HOOKS": ["cufft", "cudart,,cublas", "all,cudart", ","],
    "INJECT_BATCH": ["many", "0", "-4", "32x", "99999999999999999999", "nvtx", "nvtx:", "nvtx:batch/2", "AUTO"],
    "INJECT_METRICS": ["on", "sm", "auto,sm__cycles_active.avg", "sm__cycles_active", "sm__cycles_active.avg,"],
    "INJECT_METRICS_INTERVAL": ["100", "5us", "2ms", "1s", "soon"],
    "INJECT_METRICS_TIMELINE": ["yes", "2"],
    "INJECT_TRACE": ["json", "csv,", "csv,json", "off,chrome"],
    "INJECT_SUMMARY": ["lone%", "stdout"],
    "INJECT_RING": ["1K", "5G", "lots", "-1", "16 M", "0", "16MB", "99999999999999999999"],
    "INJECT_BUFFERS": ["64K", "5G", "M", "1e6"],
    "INJECT_CONTROL": ["2", "yes"],
    "INJECT_RECOVER": ["2", "yes"],
    "INJECT_PROM": ["metrics.txt", "prom", "x.prom.new", "%z.prom", "lone%", "%q{NO_SUCH_VARIABLE}.prom"],
    "INJECT_LOG": ["loud", "INFO"],
    "INJECT_LOG_FILE": ["%y"],
    "INJECT_ITER_RECORD": ["%y"],
    "INJECT_HELP": ["yes", "2"],
}


class Refused(simulated.SimulatedTest):
    def check(self, variable, value, shown=None):
        done = self.script(TEXT, OUT=None, TRACE=None, SUMMARY=None, env={variable: value})
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        (line,) = done.warnings()
        self.assertTrue(line.startswith(variable + "="), line)
        self.assertIn(value if shown is None else shown, line)
        self.assertIn("accepted: ", line)
        self.assertTrue(line.endswith("; profiling is off"), line)
        self.assertEqual(sorted(path.name for path in done.work.iterdir()), [])
        self.assertEqual([name for name in done.simulated_calls() if name.startswith("cupti")], [])
        return line

    def test_every_option(self):
        for variable, values in REFUSED.items():
            for value in values:
                with self.subTest(f"{variable}={value}"):
                    self.check(variable, value)

    def test_the_table_here_knows_every_option(self):
        done = subprocess.run(["true"], env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": simulated.preload_of(simulated.library), "INJECT_HELP": "1"},
                              capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stdout, "")
        self.assertEqual(set(re.findall(r"^ *(INJECT_\w+)", done.stderr, re.MULTILINE)), set(REFUSED))
        self.assertLessEqual(max(map(len, done.stderr.splitlines())), 110)

    def test_hostile_text_stays_one_line(self):
        for value in ("a\nlibinject[1] info: all is well", "\x1b[31mred\r", "tab\tbell\a"):
            with self.subTest(repr(value)):
                done = self.script(TEXT, OUT=None, TRACE=None, SUMMARY=None, env={"INJECT_WINDOW": value})
                self.assertEqual((done.code, done.stdout), (3, "done\n"))
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertNotRegex(done.stderr.rstrip("\n"), r"[\x00-\x1f]")

    def test_a_value_of_100_kb(self):
        done = self.script(TEXT, OUT=None, TRACE=None, SUMMARY=None, env={"INJECT_WINDOW": "a" * 100_000})
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertLess(len(done.stderr), 2000)

    def test_two_wrong_values_are_one_line(self):
        done = self.script(TEXT, OUT=None, TRACE=None, SUMMARY=None, env={"INJECT_WINDOW": "x", "INJECT_RING": "y"})
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    @simulated.unsanitized("its run-time library maps memory of its own")
    def test_off_reserves_no_memory(self):
        # A program that locks its memory would hold all of it.
        code = ("import ctypes\n"
                "size = lambda: int(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmSize')))\n"
                "cuda = ctypes.CDLL('libcudart.so.13')\n"
                "before = size()\n"
                "cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 64)\n"
                "print((size() - before) // 1024)")
        alone, off, on = (int(self.script("", command=[sys.executable, "-c", code], check=False, **how).stdout)
                          for how in ({"preload": False}, {"WINDOW": "off"}, {"WINDOW": "api"}))
        self.assertLess(off, alone + 16)
        self.assertGreater(on, alone + 64)

    def test_without_cuda_nothing_is_said(self):
        done = self.script("print:done", env={"INJECT_WINDOW": "sometimes", "INJECT_WINDOWS": "x"})
        self.assertEqual((done.code, done.stdout, done.stderr), (0, "done\n", ""))


class Unknown(simulated.SimulatedTest):
    def warn(self, **env):
        done = self.script(TEXT, WINDOW="api", env=env)
        # A warning, not a refusal.
        self.assertEqual(done.out.kernels(), {"b": 2})
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        warnings = done.warnings()
        self.assertEqual(done.out.run["messages"], warnings)
        return warnings

    def test_the_nearest_name(self):
        for name, nearest in (("INJECT_WINDWO", "INJECT_WINDOW"), ("INJECT_OUTPUT", "INJECT_OUT"), ("INJECT_BUFFER", "INJECT_BUFFERS"),
                              ("INJECT_TRACES", "INJECT_TRACE"), ("INJECT_out", "INJECT_OUT")):
            with self.subTest(name):
                (line,) = self.warn(**{name: "1"})
                self.assertIn(name, line)
                self.assertIn(f"did you mean {nearest}?", line)

    def test_nothing_near(self):
        (line,) = self.warn(INJECT_SOMETHING_ELSE_ALTOGETHER="1")
        self.assertIn("INJECT_SOMETHING_ELSE_ALTOGETHER", line)
        self.assertNotIn("did you mean", line)
        self.assertIn("INJECT_HELP=1", line)

    def test_each_once(self):
        self.assertEqual(len(self.warn(INJECT_AA="1", INJECT_BB="2", INJECTED="3")), 2)


class Messages(simulated.SimulatedTest):
    def test_levels(self):
        for level, kept in (("info", True), ("warn", True), ("error", False), ("off", False)):
            with self.subTest(level):
                done = self.script("kernel:a:1 sync", WINDOW="api", LOG=level)
                self.assertEqual(bool(done.stderr), kept)

    def test_a_window_is_said_to_open_and_where_its_files_are(self):
        # Not before the program ends: it would otherwise have its summary.
        done = self.script("start looks:2 kernel:a:1 stop sync flush", WINDOW="api")
        self.assertEqual(done.stdout, "flush: 0\n")
        levels = {level for level, _ in done.messages()}
        self.assertEqual(levels, {"info"})
        texts = " ".join(text for _, text in done.messages())
        self.assertIn("window 1 opened (api)", texts)
        self.assertIn("window 1 closed", texts)
        self.assertIn(str(done.work / "out"), texts)

    def test_where_the_files_are_is_said_without_a_summary(self):
        done = self.script("start kernel:a:1", WINDOW="api")
        self.assertIn(str(done.work / "out"), done.stderr)

    def test_at_most_a_pair_of_lines_a_second(self):
        begin = time.monotonic()
        done = self.script("loop:100 [ start kernel:a:1 stop sleep:1 ] sync", WINDOW="api")
        self.assertLessEqual(len(done.messages()), 5 + 2 * (time.monotonic() - begin), done.stderr)

    def test_a_file_for_messages(self):
        done = self.script("kernel:a:1 sync", WINDOW="api", LOG_FILE="messages.txt")
        self.assertEqual(done.stderr, "")
        self.assertIn("before a window opened", (done.work / "messages.txt").read_text(encoding="utf-8"))

    def test_a_file_that_cannot_be_written(self):
        done = self.script("kernel:a:1 sync", WINDOW="api", LOG_FILE="/proc/none/messages.txt")
        self.assertEqual(len(done.warnings()), 2)
        self.assertIn("/proc/none/messages.txt", done.warnings()[0])

    def test_a_path_with_control_characters(self):
        done = self.script("kernel:a:1 sync", WINDOW="api", LOG_FILE="/proc/none/a\nb\x1b[31m.txt")
        self.assertEqual(len(done.warnings()), 2)
        self.assertIn("INJECT_LOG_FILE=/proc/none/a?b?[31m.txt", done.warnings()[0])

    def test_nothing_on_stdout(self):
        done = self.script(TEXT, WINDOW="always", LOG="trace", SUMMARY="stderr")
        self.assertEqual(done.stdout, "done\n")

    def test_the_environment_is_not_changed_for_children(self):
        done = self.script("", command=["bash", "-c", "env | grep -c '^INJECT_'"], WINDOW="api")
        self.assertEqual(done.stdout, "4\n")


class InForce(simulated.SimulatedTest):
    def test_run_json_lists_every_option(self):
        done = self.script("start kernel:a:1 stop sync", WINDOW="apix3", RING="1M", LOG="")
        options = done.out.run["options"]
        self.assertEqual(set(options), set(REFUSED))
        self.assertEqual((options["INJECT_WINDOW"], options["INJECT_RING"], options["INJECT_BUFFERS"]), ("apix3", "1M", "32M"))
        # An empty value counts as unset.
        self.assertEqual(options["INJECT_LOG"], "info")


if __name__ == "__main__":
    simulated.main()
