# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject run`: the variables that it sets, and that nothing else of the program changes."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import folders
from rich.cells import cell_len


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

    def test_what_it_shows_is_what_it_would_run(self):
        words = ["a\tb", "line\nbreak", "bell\a\x1b[31m1", "not UTF-8: \udcff\udce9'\\", "\u00e9 \u00b5", "\u00a0", "", "$HOME", "\\n", "'\t'"]
        for locale in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
            done = subprocess.run([sys.executable, folders.ROOT / "scripts" / "inject", "run", "--set", "LOG_FILE=a\tb", "--show", "printf", r"%s\0", *words],
                                  env={**os.environ, **locale}, capture_output=True, check=True)
            self.assertTrue(done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n").isprintable(), done.stdout)
            shown = subprocess.run(["bash", "-c", done.stdout], capture_output=True, check=True).stdout
            self.assertEqual(shown.split(b"\0")[:-1], [os.fsencode(word) for word in words])
            self.assertIn(b"INJECT_LOG_FILE=$'a\\011b' ", done.stdout)

    def test_a_preload_that_is_there_already(self):
        first = json.loads(folders.inject("run", "--json", "true").stdout)["environment"]["LD_PRELOAD"]
        done = folders.inject("run", "--json", "true", env={"LD_PRELOAD": f"/a.so {first}:/b.so"})
        self.assertEqual(json.loads(done.stdout)["environment"]["LD_PRELOAD"], f"{first}:/a.so:/b.so")

    def test_status(self):
        for command, status in ((["sh", "-c", "exit 7"], 7), (["no-such-program"], 127), ([self.folder], 126)):
            self.assertEqual(folders.inject("run", "--", *command).returncode, status)
        self.assertIn("can't run 'no-such-program': no such file or directory", folders.inject("run", "no-such-program").stderr)

    def test_a_script_that_does_not_say_by_what_it_is_run(self):
        """Started as env does it, through PATH or not."""
        (self.folder / "my-script").write_text("echo said $0 $1; exit 7\n")
        (self.folder / "other").write_bytes(b"\x7fELF\0")
        for name in ("my-script", "other"):
            (self.folder / name).chmod(0o755)
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        for name in ("my-script", "./my-script", self.folder / "my-script"):
            done = folders.inject("run", "--", name, "a b", env=env, cwd=self.folder)
            path = self.folder / "my-script" if name == "my-script" else name
            self.assertEqual((done.returncode, done.stdout), (7, f"said {path} a b\n"), name)
        folders.inject("sweep", "--var", "A=1", "-o", "sweep", "--", "my-script", "{A}", env=env, cwd=self.folder)
        self.assertIn(f"said {self.folder}/my-script 1\n", (self.folder / "sweep" / "001-A=1" / "log.txt").read_text())
        done = folders.inject("run", "--", "./other", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (126, "inject: can't run './other': exec format error\n"))

    def refused(self, line, *options, env=None):
        """Before anything runs: the command would create a file."""
        ran = self.folder / "ran"
        done = folders.inject("run", *options, "--", "touch", ran, env=env, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
        self.assertRegex(done.stderr, r"^inject: " + line)
        self.assertFalse(ran.exists())

    def test_values_are_checked_before_the_command_runs(self):
        (self.folder / "file").touch()
        (self.folder / "loop").symlink_to("loop")
        for options, line in ((("--window", "iter:x"), r"--window 'iter:x': .*; accepted: auto, always, off; api, iter:START\+COUNT"),
                              (("--after", "stop"), "--after 'stop': .*; accepted: continue, interrupt, exit"),
                              (("--timeout", "5"), "--timeout '5': '5' has no unit .*; accepted: off, or a time such as 500ms"),
                              (("--batch", "0"), "--batch '0': too small; accepted: a whole number from 1 to 1000000000"),
                              (("--batch", "many"), "--batch 'many': not a whole number; accepted: "),
                              (("--metrics", "sm"), "--metrics 'sm': 'sm' is not a metric's full name; accepted: "),
                              (("--trace", "csv,json"), "--trace 'csv,json': 'json' is not a known format; accepted: off, csv, chrome"),
                              (("--summary", "stdout"), "--summary 'stdout': stdout is the program's own; accepted: stderr, off, or a file"),
                              (("--out", "a%z"), "--out 'a%z': unknown placeholder '%z'; accepted: a folder to create"),
                              (("--out", "file/out"), "--out 'file/out': 'file' is not a folder; accepted: a folder to create"),
                              (("--out", "loop/out"), "--out 'loop/out': 'loop' is a symbolic link loop; accepted: "),
                              (("--set", "HOOKS=cudart,cuda"), "INJECT_HOOKS='cudart,cuda': 'cuda' is not a group of hooks; accepted: all, or a list of cudart, "),
                              (("--set", "RING=1K"), "INJECT_RING='1K': too small; accepted: a size from 64K to 4G"),
                              (("--window", "api", "--set", "WINDOW=x"), "INJECT_WINDOW is set twice: by --window and by --set"),
                              (("--set", "RIGN=1M"), r"'INJECT_RIGN' is not an option of libinject; did you mean INJECT_RING\?"),
                              (("--set", "FOO=1"), r"'INJECT_FOO' is not an option of libinject \(INJECT_HELP=1")):
            with self.subTest(options):
                self.refused(line, *options)
                self.refused(line, *options, "--json")
        self.refused("INJECT_API='some': .*; accepted: cuda, full, off", env={"INJECT_API": "some"})

    def test_what_may_be_right_where_the_program_runs_is_not_refused(self):
        for options, env in ((("--out", "result-%q{LOCAL_RANK}"), {}), (("--out", "new/%h/%p"), {}), ((), {"INJECT_SOMETHING": "1"}),
                             (("--out", "/dev/null"), {})):
            done = folders.inject("run", *options, "--show", "--", "true", env=env, cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), options)

    def test_files_that_can_not_be_written_are_told_of(self):
        (self.folder / "file").touch()
        for options, line in ((("--summary", "no/s.txt"), "--summary 'no/s.txt': there is no folder 'no'"),
                              (("--summary", "."), "--summary '.': it is a folder"),
                              (("-s", "LOG_FILE=file/log"), "INJECT_LOG_FILE='file/log': 'file' is not a folder"),
                              (("-s", "PROM=no/a.prom"), "INJECT_PROM='no/a.prom': there is no folder 'no'"),
                              (("-s", "ITER_RECORD=/proc/x/y"), "INJECT_ITER_RECORD='/proc/x/y': there is no folder '/proc/x'"),
                              (("--summary", "%h/s.txt"), ""), (("--summary", "s.txt"), ""), (("--summary", "/dev/null"), "")):
            done = folders.inject("run", *options, "--show", "--", "true", cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (0, line and f"inject: {line}\n"), options)

    def test_every_window_of_the_documents_passes(self):
        text = "".join(path.read_text(encoding="utf-8") for path in (folders.ROOT / "docs").glob("*.md"))
        windows = {window for window in re.findall(r"--window '?((?:iter|time|launch|nvtx|signal):[^\s'`)]+)", text) if "…" not in window}
        self.assertGreater(len(windows), 3)
        for window in sorted(windows):
            self.assertEqual(folders.inject("run", "--window", window, "--json", "true").returncode, 0, window)

    def test_the_line_to_type_next(self):
        """With the folder's final name."""
        (self.folder / "result").mkdir()
        done = folders.inject("run", "--out", "result", "--", folders.BUILD / "examples" / "inject-train",
                              env={"LD_LIBRARY_PATH": str(folders.BUILD / "sim")}, cwd=self.folder)
        self.assertTrue(done.stderr.endswith("\n  next: inject report result.1 -o report.html\n"), done.stderr)
        following = done.stderr.splitlines()[-1].split()[2:]
        self.assertEqual(folders.inject(*following, cwd=self.folder).returncode, 0)
        self.assertTrue((self.folder / "report.html").exists())

    def test_a_summary_fits_the_terminal(self):
        for columns in ("80", "100", "120"):
            done = folders.inject("run", "--out", self.folder / "out", "--", folders.BUILD / "examples" / "inject-train",
                                  env={"LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "COLUMNS": columns})
            lines = done.stderr.splitlines()
            self.assertGreater(len(lines), 10)
            self.assertIn("  Library call (inclusive)", {line[line.find("  Library call"):] for line in lines}, "no header is cut off")
            for line in lines:
                if not line.startswith(("  tables: ", "  next: ")):
                    self.assertLessEqual(len(line), int(columns), line)

    NOTHING = "libinject: no output folder was made: the command has not used CUDA\n"
    NOTHING_AT_ALL = "libinject: no output folder was made: no process of this command has used CUDA, or no window opened\n"

    def end_of(self, *command, options=(), env=None):
        done = folders.inject("run", *options, "--", *command, env={"LD_LIBRARY_PATH": str(folders.BUILD / "sim"), **(env or {})}, cwd=self.folder)
        return done.stderr

    def test_a_command_that_never_uses_cuda(self):
        script = self.folder / "script.sh"
        script.write_text("true\nls >/dev/null\ntrue\n")
        for command in (("python3", "-c", "pass"), ("bash", "-c", "exec python3 -c pass"), ("python3", "-c", "import os; os.chdir('/')"), ("bash", "-c", "true; true")):
            with self.subTest(command):
                self.assertEqual(self.end_of(*command), self.NOTHING)
        self.assertEqual(self.end_of("bash", script), self.NOTHING_AT_ALL)
        self.assertEqual(self.end_of("python3", "-c", "import os; os.fork()"), self.NOTHING)  # only once
        self.assertEqual(self.end_of("python3", "-c", "pass", options=("--window", "off")), "")
        self.assertEqual(self.end_of("python3", "-c", "pass", options=("--set", "LOG=error")), "")
        # Not without the command, and not in the processes that it starts.
        library = folders.inject("lib").stdout.strip()
        done = subprocess.run(["true"], env={"LD_PRELOAD": library}, capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")

    def test_a_process_of_the_command_that_has_used_cuda(self):
        train = str(folders.BUILD / "examples" / "inject-train")
        script = self.folder / "script.sh"
        script.write_text(f"{train} >/dev/null\ntrue\n")
        for out in (None, "result", "deep/%h/[x]-%p", "rank-%r-%q{X}"):
            with self.subTest(out):
                said = self.end_of("bash", script, options=("--summary", "off", *(("--out", out) if out else ())), env={"X": "y"})
                self.assertNotIn("no output folder", said)
        late = ("--window", "iter:100000+1", "--out", "late")
        self.assertRegex(self.end_of("bash", script, options=late), "(?s)ended before a window opened.*" + self.NOTHING_AT_ALL)
        self.assertNotIn("no output folder", self.end_of(train, options=late))
        # The second time, the folder of the first run is not one of this run's.
        old = self.folder / "result"
        os.utime(old, (1, 1))
        self.assertEqual(self.end_of("bash", "-c", "true; true", options=("--out", "result")), self.NOTHING)

    def test_it_is_still_the_process_that_was_started(self):
        process = subprocess.Popen(["python3", folders.ROOT / "scripts" / "inject", "run", "--", "python3", "-c", "import os; print(os.getpid())"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assertEqual(process.communicate()[0], f"{process.pid}\n")

    def test_what_it_starts_is_as_it_would_be_without(self):
        """Ignored signals, and the locale: Python changes both."""
        show = ["sh", "-c", "grep SigIgn /proc/self/status; env | grep ^LC_CTYPE="]
        for locale in ({}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}):
            env = {**{name: value for name, value in os.environ.items() if name != "LANG" and name[:3] != "LC_"}, **locale}
            alone = subprocess.run(show, env=env, capture_output=True, text=True, check=False)
            for started in (["run"], ["sweep", "--var", "A=1", "-o", self.folder / "sweep"]):
                command = [sys.executable, folders.ROOT / "scripts" / "inject", *started, "--", *show, *(["{A}"] if "sweep" in started else [])]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
                said = done.stdout if "run" in started else (self.folder / "sweep" / "001-A=1" / "log.txt").read_text()
                self.assertEqual(re.findall("^(?:SigIgn|LC_CTYPE).*", said, re.MULTILINE), alone.stdout.splitlines(), (started, locale))
            shutil.rmtree(self.folder / "sweep")

    def test_the_librarys_path(self):
        done = folders.inject("lib")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{folders.BUILD.resolve() / 'libinject.so'}\n", ""))
        self.assertTrue(pathlib.Path(done.stdout.strip()).is_file())

    def test_wrong_use_is_one_line(self):
        for arguments, line in ((("run", "--windw", "x", "true"), "there is no option --windw; did you mean --window? (inject run --help)"),
                                (("run", "--foo", "true"), "there is no option --foo (inject run --help)"),
                                (("sweep", "--bach-var", "x"), "there is no option --bach-var; did you mean --batch-var? (inject sweep --help)"),
                                (("foo",), "No such command 'foo' (inject --help)"), (("report",), "Missing argument 'FOLDER…' (inject report --help)")):
            done = folders.inject(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, f"inject: {line}\n")

    def test_streams_that_are_closed_or_can_not_be_written(self):
        """Status 1 would be taken for a command's result."""
        folders.write_run(self.folder / "a")
        end, nobody = os.pipe()
        self.addCleanup(os.close, nobody)
        os.close(end)
        closed, full = "inject: stdout is closed\n", "inject: stdout: no space left on device\n"
        for line, status, said in (("lib >&-", 2, closed), ("--version >&-", 2, closed), ("report a --json >&-", 2, closed), ("report a -o - >&-", 2, closed),
                                   ("compare a a >&-", 2, closed), ("check a --json >&-", 2, closed), ("check a >&-", 0, ""),
                                   ("run --show true >&-", 2, closed), ("run --set LOG=error -- sh -c 'exit 5' >&-", 5, ""),
                                   ("lib >/dev/full", 2, full), ("report a --json >/dev/full", 2, full), ("report a -o - >/dev/full", 2, full),
                                   (f"lib >&{nobody}", 2, ""), (f"report a --json >&{nobody}", 2, ""), (f"report a -o - >&{nobody}", 2, ""),
                                   ("lib <&-", 0, ""), ("lib 2>&-", 0, ""), ("check b >&- 2>&-", 2, ""),
                                   *((f"{wrong} 2>{to}", 2, "") for wrong in ("check b", "--foo", "") for to in ("&-", "/dev/full", f"&{nobody}"))):
            done = subprocess.run(["sh", "-c", f'exec "$0" "$1" {line}', sys.executable, folders.ROOT / "scripts" / "inject"], cwd=self.folder,
                                  pass_fds=[nobody], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (status, said), line)

    def test_older_packages_in_the_environment(self):
        """What scripts/setup.sh has installed comes first."""
        if not (folders.ROOT / "build" / "deps" / "python" / "typer").is_dir():
            self.skipTest("build/deps/python is not there")
        (self.folder / "typer.py").touch()
        self.assertEqual(folders.inject("--version", env={"PYTHONPATH": str(self.folder)}).returncode, 0)

    def test_packages_that_do_not_fit(self):
        (self.folder / "scripts").mkdir()
        (self.folder / "scripts" / "inject").write_text((folders.ROOT / "scripts" / "inject").read_text(encoding="utf-8"))
        (self.folder / "scripts" / "libinject").symlink_to(folders.ROOT / "scripts" / "libinject")
        (self.folder / "typer.py").write_text("from json import nothing\n")
        done = subprocess.run([sys.executable, self.folder / "scripts" / "inject"], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(self.folder)})
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
        self.assertRegex(done.stderr, r"^inject: the Python package 'json' does not fit: cannot import name 'nothing' from 'json' \(.*/json/__init__\.py\): scripts/setup\.sh")

    def test_packages_for_another_python(self):
        """They may fail in any way when they are imported."""
        (self.folder / "scripts").mkdir()
        (self.folder / "scripts" / "inject").write_text((folders.ROOT / "scripts" / "inject").read_text(encoding="utf-8"))
        (self.folder / "scripts" / "libinject").symlink_to(folders.ROOT / "scripts" / "libinject")
        for code in ("def f(a, /, *, b): pass; match = = 1\n", "type | None | 3\n", "raise AttributeError('two\\nlines')\n"):
            (self.folder / "typer.py").write_text(code)
            done = subprocess.run([sys.executable, self.folder / "scripts" / "inject"], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(self.folder)})
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
            self.assertRegex(done.stderr, r"^inject: the Python packages do not fit Python 3\.\d+: .*: scripts/setup\.sh installs what is needed, for Python 3\.9 or newer\n$")

    def test_an_empty_command(self):
        done = folders.inject("run", "--", "")
        self.assertEqual((done.returncode, done.stderr), (127, "inject: can't run '': the command is empty\n"))

    def test_empty_names(self):
        """As of an unset variable: they do not mean the current folder."""
        for arguments in (("report", "a", "-o", ""), ("compare", "a", "b", "-o", ""), ("merge", "a", "--out", ""), ("merge", "a", "--parquet", ""),
                          ("sweep", "--report", ""), ("sweep", "--out", "", "--var", "N=1", "--", "true", "{N}")):
            done = folders.invoke(*arguments)
            self.assertEqual((done.returncode, done.stderr), (2, "inject: the name of a file or folder, in an option, is empty\n"), arguments)

    def test_numbers_out_of_range(self):
        for arguments, line in ((("compare", "a", "b", "--least", "abc"), "--least 'abc': not a number; accepted: 0 or more"),
                                (("compare", "a", "b", "--least", "-1"), "--least '-1': too small; accepted: 0 or more"),
                                (("compare", "a", "b", "--top", "0"), "--top '0': too small; accepted: 1 or more"),
                                (("compare", "a", "b", "--top", "1.5"), "--top '1.5': not a whole number; accepted: 1 or more"),
                                (("merge", "a", "--ranks", "1" + 400 * "0"), f"--ranks '1{39 * '0'}': too large; accepted: 1 to 1000000000")):
            done = folders.invoke(*arguments)
            self.assertEqual((done.returncode, done.stderr), (2, f"inject: {line}\n"))

    def test_an_error_of_its_own(self):
        code = "import sys; from libinject import cli, library; library.find_library = lambda: {}['a\\nb']; sys.argv = ['inject', 'lib']; cli.main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": f"{folders.ROOT / 'scripts'}:{os.environ.get('PYTHONPATH', '')}"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", "inject: KeyError: 'a\\nb' (<string>:1)\n"))

    def test_help_fits_80_columns(self):
        for command in ((), ("run",), ("doctor",), ("report",), ("check",), ("compare",), ("merge",), ("sweep",), ("lib",)):
            shown = folders.inject(*command, "--help", env={"COLUMNS": "80"}).stdout
            self.assertTrue(shown)
            for line in shown.splitlines():
                self.assertLessEqual(len(line), 80, line)
                self.assertFalse(not command and line.startswith(" ") and line.endswith("..."), line)

    def test_what_is_printed_fits_80_columns(self):
        runs = [folders.ROOT / "examples" / "data" / name for name in ("h100/resnet50", "h200/resnet50", "h100/transformer")]
        for arguments in (("compare", *runs[:2]), ("compare", runs[0], runs[2]), ("doctor", "--no-trial")):
            shown = folders.inject(*arguments, env={"COLUMNS": "80"}, cwd=folders.ROOT).stdout
            self.assertGreater(len(shown.splitlines()), 2)
            for line in shown.splitlines():
                if " " in line.strip():  # a path may be longer
                    self.assertLessEqual(cell_len(line.rstrip()), 80, line)
        shown = folders.inject("compare", *runs[:2], env={"COLUMNS": "80"}).stdout
        self.assertIn("40.617 TFLOP/s  46.743 TFLOP/s  +15.1%", shown)  # no number is cut off

    def test_bad_settings(self):
        for setting in ("RING", "=1", "A B=1", "R\N{LATIN SMALL LETTER I WITH DIAERESIS}NG=1"):
            done = folders.inject("run", "--set", setting, "--", "true")
            self.assertEqual((done.returncode, done.stderr), (2, f"inject: '{setting}' is not NAME=VALUE, such as RING=64M\n"))
        done = folders.inject("run", "--set", "RING=64M", "--set", "inject_ring=32M", "--show", "--", "true")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", "inject: INJECT_RING is set twice by --set\n"))


if __name__ == "__main__":
    unittest.main()
