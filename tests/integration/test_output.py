#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Where the files go, and what happens if they can't be written.

usage: test_output.py LIBRARY PROGRAMS SIMULATION
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import stat
import subprocess
import unittest

import promises
import simulated

TEXT = "kernel:a:3 start kernel:b:2 copy:h2d:64 stop print:done sync return:3"
NOBODY = 65534
MORE = {"RANK": None, "OMPI_COMM_WORLD_RANK": None, "PMI_RANK": None, "SLURM_PROCID": None}


def program(text, name="cuda"):
    return shlex.join([str(simulated.programs / f"script_{name}"), *text.split()])


class OutputTest(simulated.SimulatedTest):
    def shell(self, line, **options):
        """Runs a line of bash that starts the program; only the program runs under the preload."""
        preload = f"LD_PRELOAD={shlex.quote(simulated.preload_of(simulated.library))} "
        return self.script("", command=["bash", "-c", line.replace("PRELOAD ", preload)], preload=False,
                           **{"WINDOW": "api", **options})

    def check_program(self, done):
        self.assertEqual((done.code, done.stdout), (3, "done\n"))


class Folders(OutputTest):
    def test_patterns(self):
        done = self.script(TEXT, WINDOW="api", OUT="a-%h-%p-%r-%q{JOB}-%%", env={"JOB": "7x", "RANK": "2"})
        run = done.out.run
        self.assertEqual(done.out.path.name, f"a-{socket.gethostname()}-{run['pid']}-2-7x-%")
        self.assertEqual((run["rank"], run["host"]), ("2", socket.gethostname()))

    def test_the_default(self):
        done = self.script(TEXT, WINDOW="api", OUT=None)
        self.assertEqual(done.out.path.name, f"inject-{socket.gethostname()}-{done.out.run['pid']}")

    def test_ranks(self):
        for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
            done = self.script(TEXT, WINDOW="api", OUT="r%r", env={variable: "11"})
            self.assertEqual(done.out.path.name, "r11")

    def test_an_existing_folder_is_left_alone(self):
        names = []
        folder = self.folder / "shared"
        (folder / "out").mkdir(parents=True)
        (folder / "out" / "mine.txt").write_text("precious")
        for _ in range(3):
            done = self.script(TEXT, WINDOW="api", OUT=str(folder / "out"))
            self.check_program(done)
            names.append(sorted(path.name for path in folder.iterdir()))
        self.assertEqual(names[2], ["out", "out.1", "out.2", "out.3"])
        self.assertEqual([path.name for path in (folder / "out").iterdir()], ["mine.txt"])
        self.assertEqual((folder / "out" / "mine.txt").read_text(), "precious")
        for i in (1, 2, 3):
            self.assertEqual(simulated.Folder(folder / f"out.{i}").kernels(), {"b": 2})

    def test_an_existing_file_is_left_alone(self):
        (self.folder / "out").write_text("precious")
        self.script(TEXT, WINDOW="api", OUT=str(self.folder / "out"))
        self.assertEqual((self.folder / "out").read_text(), "precious")
        self.assertEqual(simulated.Folder(self.folder / "out.1").kernels(), {"b": 2})

    def test_a_dangling_link_is_left_alone(self):
        (self.folder / "out").symlink_to(self.folder / "elsewhere")
        self.script(TEXT, WINDOW="api", OUT=str(self.folder / "out"))
        self.assertFalse((self.folder / "elsewhere").exists())
        self.assertEqual(simulated.Folder(self.folder / "out.1").kernels(), {"b": 2})

    def test_folders_above_are_made(self):
        done = self.script(TEXT, WINDOW="api", OUT="x/y/z/out")
        self.assertEqual(done.out.path, done.work / "x/y/z/out")

    def test_a_relative_path_and_chdir(self):
        (self.folder / "elsewhere").mkdir()
        text = f"kernel:a:1 chdir:{self.folder}/elsewhere start kernel:b:2 stop sync"
        done = self.script(text, WINDOW="api", OUT="out", SUMMARY="summary.txt", LOG_FILE="log.txt")
        self.assertEqual(done.out.path, done.work / "out")
        self.assertEqual(done.out.kernels(), {"b": 2})
        self.assertEqual(sorted(path.name for path in done.work.iterdir()), ["log.txt", "out", "summary.txt"])
        self.assertEqual(list((self.folder / "elsewhere").iterdir()), [])

    def test_a_working_directory_that_is_gone(self):
        done = self.shell(f"mkdir gone; cd gone; rmdir ../gone; PRELOAD {program(TEXT)}")
        self.check_program(done)
        self.assertEqual(len(done.warnings()), 1, done.stderr)
        self.assertIn("INJECT_OUT", done.warnings()[0])

    def test_the_files(self):
        done = self.script(TEXT, WINDOW="api")
        self.assertEqual(done.out.files(), sorted([*simulated.TABLES, *simulated.RAW, "run.json"]))
        self.assertEqual(set(done.out.run["files"]), set(simulated.TABLES))
        done = self.script(TEXT, WINDOW="api", TRACE=None)
        self.assertEqual(done.out.files(), sorted([*simulated.TABLES, "run.json"]))

    def test_run_json(self):
        done = self.script(TEXT, WINDOW="api")
        run = done.out.run
        self.assertEqual(run["command_line"], [str(simulated.programs / "script_cuda"), *TEXT.split()])
        self.assertEqual(run["working_directory"], str(done.work))
        self.assertEqual((run["state"], run["rank"], run["write_errors"], run["messages"]), ("closed", None, [], []))
        self.assertEqual([device["name"] for device in run["devices"]], ["Simulated H200"] * 2)
        self.assertEqual(run["devices"][1]["multiprocessors"], 132)
        limits = {name: run["devices"][1][name] for name in run["devices"][1] if "_per_" in name or name == "warp_size"}
        self.assertEqual(limits, {"warp_size": 32, "threads_per_block": 1024, "threads_per_multiprocessor": 2048,
                                  "blocks_per_multiprocessor": 32, "registers_per_block": 65536,
                                  "registers_per_multiprocessor": 65536, "shared_bytes_per_block": 49152,
                                  "shared_bytes_per_block_optin": 232448, "shared_bytes_per_multiprocessor": 233472,
                                  "reserved_shared_bytes_per_block": 1024})
        self.assertEqual(run["versions"]["driver"], "13.0")
        self.assertIn("libcudart.so.13", run["versions"])

    def test_occupancy(self):
        # The simulated kernels have 32 registers and take a known time.
        text = "duration:a:1000 duration:b:1000 duration:c:1000 start kernel:a:3:0:265:1024 kernel:b:1:0:132:32 " \
               "device:1 kernel:c:2:0:1:256 sync device:0 sync stop"
        done = self.script(text, WINDOW="api", devices=2)
        cells = {row["Name"]: (row["Device"], row["Occupancy (%)"], row["Blocks/SM"], row["Limited by"], row["Waves"],
                               row["SM Efficiency (%)"], row["Tensor Cores"], row["Total Time (ns)"], row["Lost Time (ns)"])
                 for row in done.out.rows("kernel_detail.csv")}
        self.assertEqual(cells, {
            "a()": ("0", "100.0", "2", "registers+block size", "1.00", "50.4", "unknown", "3000", "1489"),
            "b()": ("0", "50.0", "32", "blocks", "0.03", "100.0", "unknown", "1000", "0"),
            "c()": ("1", "100.0", "8", "registers+block size", "0.00", "0.8", "unknown", "2000", "1985")})

    def test_run_json_says_open_while_a_window_is(self):
        text = 'start kernel:a:3 sync until_text:out/run.json:"open" quick_exit:4'
        done = self.script(text, WINDOW="api", check=False)
        self.assertEqual(done.code, 4)
        self.assertEqual(done.out.run["state"], "open")
        self.assertEqual([window["state"] for window in done.out.run["windows"]], ["open"])


    def test_what_is_written_is_this_users_alone(self):
        done = self.script(TEXT, WINDOW="api", SUMMARY="summary.txt", LOG_FILE="log.txt", ITER_RECORD="stream", OUT="above/out")
        for path in [*done.work.rglob("*")]:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700 if path.is_dir() else 0o600, path)
        self.assertEqual(len(done.out.files()), len([*simulated.TABLES, *simulated.RAW, "run.json"]))


class Unwritable(OutputTest):
    def check_nothing_written(self, done):
        self.check_program(done)
        self.assertEqual(len(done.warnings()), 1, done.stderr)
        self.assertIn("no files are written: INJECT_OUT=", done.warnings()[0])
        # Whatever is available is shown.
        self.assertRegex(done.stderr, r"2 +20\.000us.* b\(\)|b\(\)")

    def test_a_file_among_the_folders(self):
        (self.folder / "file").write_text("")
        self.check_nothing_written(self.script(TEXT, WINDOW="api", OUT=f"{self.folder}/file/out", SUMMARY="stderr"))

    def test_a_file_system_without_folders(self):
        self.check_nothing_written(self.script(TEXT, WINDOW="api", OUT="/proc/none/out", SUMMARY="stderr"))

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_no_permission(self):
        (self.folder / "closed").mkdir(mode=0o500)
        self.check_nothing_written(self.script(TEXT, WINDOW="api", OUT=f"{self.folder}/closed/out", SUMMARY="stderr"))

    @unittest.skipIf(os.geteuid() != 0, "only root can make another user's files")
    def test_what_another_user_has_put_in_the_way(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        (shared / "results").mkdir()
        (shared / "results").chmod(0o777)
        (self.folder / "mine").mkdir()
        (shared / "link").symlink_to(self.folder / "mine")
        for name in ("results", "link"):
            os.chown(shared / name, NOBODY, NOBODY, follow_symlinks=False)
        for name, problem in (("results", "results belongs to another user"), ("link", "link is a link that another user has made")):
            with self.subTest(name):
                done = self.script(TEXT, WINDOW="api", OUT=f"{shared}/{name}/out", SUMMARY="stderr")
                self.check_nothing_written(done)
                self.assertIn(problem, done.warnings()[0])
                # It is not used, like the folder itself.
                done = self.script(TEXT, WINDOW="api", OUT=f"{shared}/{name}")
                self.check_program(done)
                self.assertEqual(simulated.Folder(f"{shared}/{name}.1").kernels(), {"b": 2})
        for name, option in (("log", "LOG_FILE"), ("summary", "SUMMARY"), ("stream", "ITER_RECORD")):
            with self.subTest(name):
                (shared / name).write_text("theirs")
                os.chown(shared / name, NOBODY, NOBODY)
                done = self.script(TEXT, **{"WINDOW": "iter:1+2" if name == "stream" else "api", "SUMMARY": "off", option: f"{shared}/{name}"})
                self.check_program(done)
                self.assertIn("belongs to another user", " ".join(done.warnings()))
                self.assertEqual((shared / name).read_text(), "theirs")
        self.assertEqual((list((shared / "results").iterdir()), list((self.folder / "mine").iterdir())), ([], []))

    def test_a_name_too_long(self):
        self.check_nothing_written(self.script(TEXT, WINDOW="api", OUT="o" * 300, SUMMARY="stderr"))

    def test_a_folder_that_vanishes(self):
        text = f"start kernel:a:2 stop sync flush until_text:{self.folder}/gone:yes print:removed start kernel:b:3 stop sync return:6"
        line = (f"(until [ -e {self.folder}/out/window_sum.csv ]; do sleep 0.01; done; rm -rf {self.folder}/out; echo yes "
                f">{self.folder}/gone) & PRELOAD {program(text)}")
        done = self.shell(line, OUT=f"{self.folder}/out", SUMMARY="stderr", check=False)
        self.assertEqual((done.code, done.stdout.splitlines()[-1]), (6, "removed"))
        self.assertIn("b()", done.stderr)

    def test_a_limit_on_the_size_of_files(self):
        # The limit's signal kills a program that does not expect it.
        done = self.shell(f"ulimit -f 1; PRELOAD {program('start kernel:a:3000 stop sync print:done return:3')}",
                          env={"CUDASIM_REPORT": ""}, check=False)
        self.check_program(done)
        self.assertGreaterEqual(len(done.warnings()), 1)
        self.assertLessEqual(len(done.warnings()), 3, done.stderr)
        self.check_no_rest(self.folder)

    def test_a_limit_on_the_exiting_thread(self):
        # Everything is written, and our own thread has gone: the summary is left to the program's thread.
        done = self.shell(f"ulimit -f 4; PRELOAD {program('start kernel:a:3 stop sync sleep:300 print:done return:3')}",
                          env={"CUDASIM_REPORT": ""}, TRACE=None, SUMMARY="summary.txt", check=False)
        self.check_program(done)
        self.check_no_rest(self.folder)

    @simulated.unsanitized("its run-time library writes a file as the program starts", alone="thread")
    def test_a_limit_below_every_file(self):
        done = self.shell(f"ulimit -f 0; PRELOAD {program(TEXT)}", env={"CUDASIM_REPORT": ""}, SUMMARY="summary.txt", check=False)
        self.check_program(done)
        self.assertGreaterEqual(len(done.warnings()), 1)
        self.check_no_rest(self.folder)

    def test_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system can be mounted here")
        try:
            for trace in (None, "csv", "chrome"):
                with self.subTest(trace=trace):
                    (disk / "filler").write_bytes(b"x" * (56 << 10))
                    done = self.script("start kernel:a:3000 stop sync print:done return:3", WINDOW="api", TRACE=trace,
                                       OUT=str(disk / "out"), SUMMARY="stderr", check=False)
                    self.check_program(done)
                    self.assertGreaterEqual(len(done.warnings()), 1)
                    self.assertLessEqual(len(done.warnings()), 3, done.stderr)
                    self.assertIn("No space left", " ".join(done.warnings()))
                    self.assertIn("a()", done.stderr)
                    self.check_no_rest(disk)
                    shutil.rmtree(disk / "out", ignore_errors=True)
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    def test_a_disk_that_fills_up_between_windows(self):
        """Tables stay as they were, and run.json, for which space is reserved, reports it: even if there are too many windows for that
        space."""
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted here")
        try:
            for windows in (2, 600):
                with self.subTest(windows=windows):
                    self.fill_between(disk, windows)
                    shutil.rmtree(disk / "out")
                    (disk / "filler").unlink()
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    def fill_between(self, disk, windows):
        full = self.folder / f"full{windows}"
        text = (f"start kernel:a:3 sync stop sync until_text:{full}:yes loop:{windows - 1} [ start kernel:b:2 sync stop ] "
                "sync print:done return:3")
        # After the write of the first window, up to the last block; then the program is told.
        fill = (f"(i=0; until grep -q '\"state\": \"closed\"' {disk}/out/run.json 2>/dev/null || [ $((++i)) -gt 5000 ]; do sleep 0.01; done; "
                f"cp {disk}/out/window_sum.csv {self.folder}/before{windows}; cat /dev/zero >{disk}/filler 2>/dev/null; "
                f"echo yes >{full}) & PRELOAD {program(text)}; status=$?; wait; exit $status")
        done = self.shell(fill, OUT=f"{disk}/out", WINDOW="api", SUMMARY="stderr", TRACE=None, RECOVER="0", check=False)
        self.check_program(done)
        out = simulated.Folder(disk / "out")
        self.assertEqual([name for name in out.files() if name.startswith(".")], [])
        run = out.run
        self.assertEqual((run["state"], len(run["windows"]) + run["windows_not_listed"]), ("closed", windows))
        if windows > 500:
            self.assertEqual(run["windows"], [])
            self.assertIn("run.json has no room for its windows and threads", run["write_errors"])
        self.assertEqual((out.path / "window_sum.csv").read_text(), (self.folder / f"before{windows}").read_text())
        self.assertIn("window_sum.csv", run["stale_files"])
        self.assertIn("No space left on device", run["write_errors"][0])
        self.assertEqual(sum("No space left" in text for text in done.warnings()), 1, done.stderr)
        self.assertRegex(done.stderr, rf"tables: {disk}/out \(not all: \d+ files could not be written\)")
        after = done.stderr.partition("No space left")[2]
        self.assertNotIn("files are in", after)
        self.assertEqual(promises.broken(disk), {})

    def check_no_rest(self, folder):
        """Each table is complete or missing: no temporary file is left, and no table is truncated."""
        for path in folder.rglob("*"):
            if path.name in simulated.TABLES:
                text = path.read_text(encoding="utf-8")
                self.assertTrue(text.endswith("\n"), path)
            elif path.name == "run.json":
                json.loads(path.read_text(encoding="utf-8"))
            elif path.is_file() and path.parent.name.startswith("out"):
                self.assertIn(path.name, simulated.RAW)


class Summary(OutputTest):
    def test_on_stderr(self):
        done = self.script(TEXT, WINDOW="api", SUMMARY="stderr", LOG="off")
        text = done.stderr
        self.assertRegex(text, r"(?m)^libinject: 1 window \(api\)")
        self.assertRegex(text, r"2 kernels 20\.000us")
        self.assertRegex(text, r"(?m)^ +100\.0% +20\.000us +2 +10\.000us .* b\(\)$")
        self.assertIn(f"tables: {done.work}/out", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 120 + len(str(done.work)))

    def test_in_a_file(self):
        done = self.script(TEXT, WINDOW="api", SUMMARY="summary-%p.txt", LOG="off")
        self.assertEqual(done.stderr, "")
        text = (done.work / f"summary-{done.out.run['pid']}.txt").read_text(encoding="utf-8")
        self.assertIn("b()", text)

    def test_in_a_file_that_cannot_be_written(self):
        done = self.script(TEXT, WINDOW="api", SUMMARY="/proc/none/summary.txt")
        self.check_program(done)
        self.assertEqual(len(done.warnings()), 1)
        self.assertIn("/proc/none/summary.txt", done.warnings()[0])
        self.assertEqual(done.out.kernels(), {"b": 2})

    def test_rank_0_alone_prints(self):
        for rank, prints in (("0", True), ("1", False)):
            done = self.script(TEXT, WINDOW="api", SUMMARY="stderr", LOG="off", env={"RANK": rank})
            self.assertEqual("b()" in done.stderr, prints)
            self.assertEqual(done.out.kernels(), {"b": 2})

    def test_off(self):
        done = self.script(TEXT, WINDOW="api", SUMMARY="off", LOG="off")
        self.assertEqual(done.stderr, "")

    def test_a_stderr_that_takes_nothing(self):
        # Closed, full, a pipe without a reader. Files that the program then opens must not get our text.
        for closing in ("2>&-", "2>/dev/full", "2> >(exec true)"):
            with self.subTest(closing):
                done = self.shell(f"PRELOAD {program('sleep:50 ' + TEXT)} {closing}", SUMMARY="stderr")
                self.check_program(done)
                self.assertEqual(done.out.kernels(), {"b": 2})

    def test_no_standard_descriptors(self):
        # What the program writes to its closed stdout must not end up in our files.
        done = self.shell(f"PRELOAD {program('sleep:50 print:more ' + TEXT)} <&- >&- 2>&-", SUMMARY="stderr")
        self.assertEqual((done.code, done.stdout, done.stderr), (3, "", ""))
        self.assertEqual(done.out.kernels(), {"b": 2})

    def test_a_message_file_by_pattern(self):
        done = self.script("kernel:a:1 sync", WINDOW="api", LOG_FILE="log-%p.txt")
        (path,) = done.work.iterdir()
        self.assertTrue(re.fullmatch(r"log-\d+\.txt", path.name), path)


if __name__ == "__main__":
    simulated.main()
