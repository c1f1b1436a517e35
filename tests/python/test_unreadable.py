# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Folders that can't be read, and places that can't be written to, for every command: lines on stderr and a documented status, never a
traceback. Folders with damaged contents are in test_fuzz.py."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import tempfile
import traceback
import unittest

import folders

NOBODY = 65534
HUGE = 1 << 40  # bytes of a sparse file
# Commands that read a folder, and their statuses if there is nothing to read.
READERS = {"report": ("-o", "-"), "check": (), "merge": (), "compare": (), "sweep": ("--report",)}


def sparse(path):
    with open(path, "wb") as file:
        try:
            file.truncate(HUGE)
        except OSError:  # larger than this file system allows
            file.truncate(1 << 33)


def socket_at(path):
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as made:  # a path longer than a socket's can be
        made.bind(str(path))


# What may be in place of a file or folder.
IN_PLACE = {
    "nothing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "an empty file": lambda path: path.write_bytes(b""),
    "a binary file": lambda path: path.write_bytes(bytes(range(256)) * 4096),
    "zeros": lambda path: path.write_bytes(bytes(1 << 20)),
    "a huge file": sparse,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to the folder above": lambda path: path.symlink_to(".."),
    "a pipe": os.mkfifo,
    "a socket": socket_at,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a file of the kernel's": lambda path: path.symlink_to("/proc/self/mem"),
}


class Unreadable(folders.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.good = folders.profile_example(pathlib.Path(holder.name) / "good")

    def lines_on_stderr(self, statuses, *arguments):
        done = folders.invoke(*arguments)  # raises what the command raises
        self.assertIn(done.returncode, statuses, (arguments, done.stderr))
        self.assertNotIn("Traceback", done.stderr)
        for line in done.stderr.splitlines():
            self.assertRegex(line, r"^inject: \S", arguments)
        if done.returncode == 2:
            self.assertTrue(done.stderr, arguments)
        return done

    def read(self, folder, statuses):
        for command, options in READERS.items():
            twice = (folder, folder) if command == "compare" else (folder,)
            with self.subTest(command=command):
                self.lines_on_stderr({2} if command == "sweep" else statuses, command, *options, *twice)

    def test_what_is_no_folder(self):
        (self.folder / "cases").mkdir()
        for what, make in IN_PLACE.items():
            with self.subTest(what):
                folder = self.folder / "cases" / what.replace(" ", "-").replace("'", "")
                make(folder)
                self.read(folder, {2})
                self.read(folder / "below", {2})
        for name in ("x" * 300, "x/" * 3000, "\udcff", "line\nbreak", " ", "-"):
            with self.subTest(name[:20]):
                self.read(pathlib.Path(self.folder / name), {2})

    def test_run_json(self):
        for what, make in IN_PLACE.items():
            with self.subTest(what):
                folder = self.folder / what.replace(" ", "-").replace("'", "")
                shutil.copytree(self.good, folder)
                (folder / "run.json").unlink()
                make(folder / "run.json")
                self.read(folder, {2})

    def test_tables(self):
        """Each table except one is unreadable: the remaining one is shown."""
        for what, make in IN_PLACE.items():
            with self.subTest(what):
                folder = self.folder / what.replace(" ", "-").replace("'", "")
                shutil.copytree(self.good, folder)
                for table in sorted(folder.glob("*.csv"))[1:]:
                    table.unlink()
                    make(table)
                self.read(folder, {0, 1, 2})

    def test_points_of_a_sweep(self):
        for what, make in IN_PLACE.items():
            with self.subTest(what):
                folder = self.folder / what.replace(" ", "-").replace("'", "")
                folder.mkdir()
                make(folder / "points.json")
                self.lines_on_stderr({2}, "sweep", "--report", folder)
                if what != "nothing":
                    self.lines_on_stderr({2}, "sweep", "--var", "A=1", "-o", folder, "--", "true", "{A}")

    def test_where_nothing_can_be_written(self):
        for what, make in IN_PLACE.items():
            if what in ("nothing", "a device", "a pipe", "a file of the kernel's"):  # these can be read, or may be intended
                continue
            with self.subTest(what):
                place = self.folder / what.replace(" ", "-").replace("'", "")
                make(place)
                below = place / "x" / "y"
                for arguments in (("report", self.good, "-o", below), ("compare", self.good, self.good, "-o", below), ("merge", self.good, "-o", below),
                                  ("merge", self.good, "--parquet", below / "z"), ("merge", self.good, "--parquet", place)):
                    if what.startswith("a link to the") or (what == "a folder" and "--parquet" in arguments):
                        continue
                    with self.subTest(arguments=arguments):
                        self.lines_on_stderr({2}, *arguments)
                if what not in ("a folder", "a link to nothing", "a link to the folder above"):
                    self.lines_on_stderr({2}, "sweep", "--var", "A=1", "-o", place, "--", "true", "{A}")
                    self.lines_on_stderr({2}, "run", "-o", below, "--", "true")

    def test_without_permission(self):
        """root may read everything, so this runs as another user."""
        if os.geteuid() != 0:
            self.skipTest("needs root, to become another user")
        self.folder.chmod(0o755)
        for name in ("closed", "no-run", "no-tables", "above"):
            shutil.copytree(self.good, self.folder / name)
            (self.folder / name).chmod(0o755)
            for path in (self.folder / name).iterdir():
                path.chmod(0o644)
        (self.folder / "closed").chmod(0)
        (self.folder / "no-run" / "run.json").chmod(0)
        for path in (self.folder / "no-tables").glob("*.csv"):
            path.chmod(0)
        (self.folder / "sweep").mkdir()
        (self.folder / "sweep" / "points.json").write_text(json.dumps({}))
        (self.folder / "sweep" / "points.json").chmod(0)
        (self.folder / "above").chmod(0o644)
        child = os.fork()
        if not child:
            status = 1
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                for name, statuses in (("closed", {2}), ("no-run", {2}), ("no-tables", {0, 1, 2}), ("above", {2}), ("sweep", {2})):
                    self.read(self.folder / name, statuses)
                self.lines_on_stderr({2}, "report", self.folder / "no-tables", "-o", self.folder / "x.html")
                self.lines_on_stderr({2}, "merge", self.folder / "no-tables", "--parquet", self.folder / "copies")
                self.lines_on_stderr({2}, "sweep", "--var", "A=1", "-o", self.folder / "closed", "--", "true", "{A}")
                self.lines_on_stderr({2}, "sweep", "--var", "A=1", "-o", self.folder / "new", "--", "true", "{A}")
                self.lines_on_stderr({2}, "sweep", "--var", "A=1", "-o", self.folder / "sweep", "--", "true", "{A}")
                status = 0
            except BaseException:  # noqa: BLE001 - the parent is told by the status
                traceback.print_exc()
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_working_folder_that_is_gone(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        gone = self.folder / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        for arguments in (("report", "x"), ("report", self.good, "-o", "x.html"), ("check", "x"), ("merge", "x"), ("merge", self.good, "--parquet", "x"),
                          ("compare", "x", "y"), ("sweep", "--report", "x"), ("sweep", "--var", "A=1", "--", "true", "{A}")):
            with self.subTest(arguments=arguments):
                self.lines_on_stderr({2}, *arguments)
        self.lines_on_stderr({0}, "lib")
        self.lines_on_stderr({0, 1}, "doctor", "--no-trial")  # a finding


if __name__ == "__main__":
    unittest.main()
