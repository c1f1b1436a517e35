# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The reader of result folders: what libinject writes, and what it does not."""

import errno
import os
import pathlib
import unittest
from unittest import mock

import folders
from libinject.result import BadFile, Result, printable, read_rows, read_table


class Real(folders.TemporaryFolder):
    def test_every_table_of_a_run(self):
        result = Result(folders.profile_example(self.folder / "out"))
        names = [name.removesuffix(".csv") for name in result.run["files"]]
        self.assertGreater(len(names), 20)
        tables = {name: result.table(name) for name in names}
        self.assertEqual((result.problems, result.lost(), result.complete), ([], {}, True))
        self.assertNotIn(None, tables.values())
        kernels = result.rows("cuda_gpu_kern_sum", "Total Time (ns)", "Instances", "Name")
        total = result.rows("window_sum", "Kernels", "Kernel Time (ns)")[0]
        self.assertEqual(sum(row["Instances"] for row in kernels), total["Kernels"])
        self.assertEqual(sum(row["Total Time (ns)"] for row in kernels), total["Kernel Time (ns)"])


class Bad(folders.TemporaryFolder):
    def refusal(self, function, *arguments):
        with self.assertRaises(BadFile) as caught:
            function(*arguments)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception).removeprefix(str(self.folder) + "/")

    def table(self, content):
        path = self.folder / "t.csv"
        path.write_bytes(content)
        return self.refusal(read_table, path)

    def test_tables(self):
        self.assertEqual(self.table(b""), "t.csv:1: empty: not even a header")
        self.assertEqual(self.table(b"Calls,Name\n1,a\n2\n"), "t.csv:3: 1 cells, the header has 2")
        self.assertEqual(self.table(b"Calls,Name\n1,a\nx,b\n"), "t.csv:3: 'x' in column 'Calls' is not a number")
        self.assertEqual(self.table(b"Avg (ns)\n\x1b[31m\n"), "t.csv:2: '\N{REPLACEMENT CHARACTER}[31m' in column 'Avg (ns)' is not a number")
        self.assertEqual(self.table(b'Name\n"a\n'), "t.csv:2: not CSV: unexpected end of data")
        self.assertTrue(self.table(b"Name\n\xff\n").startswith("t.csv:1: not UTF-8"), "decoded ahead of its line")
        self.assertEqual(self.table(b"A,A\n"), "t.csv:1: the header has duplicate columns, or none")
        # Includes what Python's int() or float() accept beyond the notation of the tables.
        for number in (b"nan", b"-inf", b"1e400", b"1e3", b"1e-320", b"1_000", b" 7", b"+5", "٣".encode(), b"1-2", b"-", b"340282366920938463463374607431768211456"):
            self.assertEqual(self.table(b"Calls\n" + number + b"\n"), f"t.csv:2: '{number.decode()}' in column 'Calls' is not a number")

    def test_tables_that_are_too_large_to_hold(self):
        path = self.folder / "t.csv"
        path.write_bytes(b"Name\n")
        os.truncate(path, 1 << 40)
        self.assertEqual(self.refusal(read_table, path), "t.csv: far too large: 1099511627776 bytes, at most 134217728 are read")
        # If only one row at a time is held, an endless one is too large: a line, or a cell without a closing quote.
        for content in (b"", b'"\n', b'"\n' + b"a\n" * (9 << 20)):
            path.write_bytes(b"Name\n" + content)
            os.truncate(path, 1 << 40)
            self.assertEqual(self.refusal(lambda: list(read_rows(path))), "t.csv:1: a row of more than 16777216 characters")
        path.write_bytes(b"Name\n" + b"a\n" * 100)
        with mock.patch("libinject.result._MOST_CELLS", 100):
            self.assertEqual(self.refusal(read_table, path), "t.csv:12: far too many cells")

    def test_what_is_no_file(self):
        os.mkfifo(self.folder / "t.csv")
        self.assertEqual(self.refusal(read_table, self.folder / "t.csv"), "t.csv: not a regular file")
        out = folders.write_run(self.folder / "out")
        (out / "run.json").unlink()
        os.mkfifo(out / "run.json")
        self.assertEqual(self.refusal(Result, out), "out/run.json: not a regular file")

    def test_folders(self):
        self.assertEqual(self.refusal(Result, self.folder / "none"), "none: no such folder")
        (self.folder / "file").touch()
        self.assertEqual(self.refusal(Result, self.folder / "file"), "file: not a folder")
        foreign = self.folder / "foreign"
        foreign.mkdir()
        self.assertEqual(self.refusal(Result, foreign), "foreign: not a libinject folder: it has no run.json")
        for text, why in (("{", "foreign/run.json:1: not JSON: Expecting property name enclosed in double quotes"),
                          ("[]", "foreign/run.json:1: not written by libinject: it does not say which version wrote it"),
                          ("9" * 5000, f"foreign/run.json: not written by libinject: '{'9' * 39}…' is not a number of 64 bits"),
                          ('{"libinject": "1", "lost": {"names": NaN}}', "foreign/run.json: not written by libinject: 'NaN' is not a number of 64 bits"),
                          ('{"libinject": "1", "pid": 1e400}', "foreign/run.json: not written by libinject: '1e400' is not a number of 64 bits"),
                          ("[" * 100_000, "foreign/run.json: not written by libinject: nested too deeply"),
                          ('{"libinject": "1", "lost": []}', "foreign/run.json: 'lost' is a list, but must be an object"),
                          ('{"libinject": "1", "diagnosis": 5}', "foreign/run.json: 'diagnosis' is a number, but must be a list"),
                          ('{"libinject": "1", "command_line": true}', "foreign/run.json: 'command_line' is a truth value, but must be a list"),
                          ('{"libinject": "1", "windows": null}', "foreign/run.json: 'windows' is null, but must be a list"),
                          ('{"libinject": "1", "versions": "x"}', "foreign/run.json: 'versions' is a text, but must be an object")):
            (foreign / "run.json").write_text(text)
            self.assertEqual(self.refusal(Result, foreign), why)

    def test_what_may_be_missing(self):
        folder = folders.write_run(self.folder / "out")
        (folder / "run.json").write_text('{"libinject": "1", "job": null, "metrics": null, "diagnosis": null}')
        self.assertEqual(Result(folder).run["windows"], [])

    def test_folders_that_may_not_be_looked_into(self):
        """With a name that no file system accepts; and as seen by a user without permission, which no test that runs as root is."""
        self.assertEqual(self.refusal(Result, self.folder / ("x" * 300)), "x" * 300 + ": file name too long")
        folder = folders.write_run(self.folder / "out", files=["a.csv"])
        exists = pathlib.Path.exists

        def refused(path, **more):
            if path.name in ("run.json", "a.csv"):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return exists(path, **more)

        result = Result(folder)
        with mock.patch.object(pathlib.Path, "exists", refused):
            self.assertEqual(self.refusal(Result, folder), "out: permission denied")
            self.assertEqual(result.rows("a"), [])
        self.assertEqual([problem.removeprefix(f"{folder}/") for problem in result.problems], ["a.csv: permission denied"])

    def test_commands_say_one_line(self):
        """No traceback: one line, and status 2."""
        good = folders.write_run(self.folder / "good")
        bad = folders.write_run(self.folder / "bad", diagnosis=5)
        for path, why in ((bad, "bad/run.json: 'diagnosis' is a number, but must be a list"), (self.folder / ("x" * 300), "file name too long")):
            for arguments, end in ((("compare", good, path), "inject: nothing to compare"), (("merge", path), "inject: no result folders to merge"),
                                   (("report", path, "-o", self.folder / "r.html"), "inject: nothing to report: no folder could be read")):
                done = folders.invoke(*arguments)
                first, *others = done.stderr.splitlines()
                self.assertTrue(first.startswith("inject: ") and first.endswith(why), done.stderr)
                self.assertEqual((others, done.returncode, done.stdout), ([end], 2, ""), arguments)

    def test_a_bad_table_leaves_the_others(self):
        folder = folders.write_run(self.folder / "out", files=["a.csv", "b.csv", "c.csv"])
        (folder / "a.csv").write_text("Calls\nx\n")
        (folder / "b.csv").write_text("Calls\n7\n")
        result = Result(folder)
        self.assertEqual((result.rows("a"), result.rows("b"), result.rows("c"), result.rows("d")), ([], [{"Calls": 7}], [], []))
        self.assertEqual(result.rows("b", "Name"), [])
        self.assertEqual([problem.removeprefix(str(folder) + "/") for problem in result.problems],
                         ["a.csv:2: 'x' in column 'Calls' is not a number", "c.csv: missing, though run.json lists it",
                          "b.csv:1: no column 'Name'"])


class Named(folders.TemporaryFolder):
    def test_an_empty_name_is_not_the_current_folder(self):
        folder = folders.write_run(self.folder / "out")
        for command, others in (("check", ()), ("report", ()), ("merge", ()), ("compare", (str(folder),))):
            done = folders.invoke(command, "", *others)
            self.assertEqual((done.returncode, done.stderr), (2, "inject: a folder's name is empty\n"), command)


class Cells(folders.TemporaryFolder):
    def test_values(self):
        path = self.folder / "t.csv"
        path.write_text("Calls,Avg (ns),Name,TFLOP/s\n3,1.5,\"'=cmd()\",\n,,'a',2\n,,7,1000.000\n")
        self.assertEqual([tuple(row.values()) for row in read_table(path)],
                         [(3, 1.5, "=cmd()", None), (None, None, "'a'", 2), (None, None, "7", 1000.0)])

    def test_rows_that_others_share(self):
        path = self.folder / "t.csv"
        path.write_text("Window,Name\n[other],a\n")
        self.assertEqual(read_table(path).rows, ({"Window": "[other]", "Name": "a"},))

    def test_some_columns(self):
        path = self.folder / "t.csv"
        path.write_text("Calls,Name,Avg (ns)\nx,a,1\n")
        table = read_table(path, frozenset(("Avg (ns)", "Name", "None")))
        self.assertEqual((table.columns, table.rows), (("Name", "Avg (ns)"), ({"Name": "a", "Avg (ns)": 1},)))
        path.write_text("Calls,Name,Avg (ns)\nx,a\n")
        with self.assertRaises(BadFile):
            read_table(path, frozenset(("Name",)))

    def test_printable(self):
        self.assertEqual(printable("a\nb" + "c" * 200, 10), "a\N{REPLACEMENT CHARACTER}bcccccc…")


if __name__ == "__main__":
    unittest.main()
