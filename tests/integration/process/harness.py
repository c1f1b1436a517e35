# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs a program bare and under the preloaded library on the simulated CUDA, each in a folder of its own, and reads what the library wrote.

usage of the tests: test_process_NAME.py LIBRARY PROGRAMS SIMULATION
"""

import csv
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import promises  # pylint: disable=wrong-import-position
from sanitized import LOST_TO_PACE, PACE, SANITIZER, preload as preload_of, unsanitized  # pylint: disable=wrong-import-position,unused-import

library = programs = simulation = None

# The longest time that the library may add to a run, far more than it usually adds: closing a window waits for the device, 100 ms of work
# in these programs, and a loaded machine adds seconds of its own. If the library has waited for its maximum time in vain, it reports that.
MOST_ADDED_SECONDS = 10 * PACE
WAITED_IN_VAIN = "the device has not finished"
PROFILING_STOPPED = "profiling has stopped"
SPARES = {".run.json.spare", ".run.json.last"}
# If the machine, or its disk, does not finish the last files within the exit's deadline of 5 s, the program ends while they are written,
# and one of these lines says so: with a thirtieth of a CPU this happens.
ENDED_MEANWHILE = ("the output folder is slow", "the files are not complete")

# A child hung in __sanitizer::StackDepotBase, waiting for a lock held by another thread of the parent.
LOCKED_IN_CHILDREN = "its run-time library has locks of its own that a child, forked while other threads are at work, never gets"

NOT_OURS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


@dataclasses.dataclass
class Output:
    """One folder that the library wrote."""
    path: pathlib.Path

    @property
    def run(self):
        return json.loads((self.path / "run.json").read_text())

    @property
    def state(self):
        return self.run["state"]

    def table(self, name):
        with open(self.path / f"{name}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def kernels(self):
        """Instances by kernel name."""
        return {row["Name"]: int(row["Instances"]) for row in self.table("cuda_gpu_kern_sum")}

    def calls(self):
        """Calls by function name."""
        return {row["Name"]: int(row["Num Calls"]) for row in self.table("cuda_api_sum")}

    def operations(self):
        """Copies and memsets by name."""
        return {row["Operation"]: int(row["Count"]) for row in self.table("cuda_gpu_mem_time_sum")}

    def threads(self):
        """(thread id, thread name, kernels) of every launching thread."""
        return [(int(row["TID"]), row["Thread Name"], int(row["Instances"])) for row in self.table("thread_kern_sum")]

    def windows(self):
        """The states of the windows."""
        return [window["state"] for window in self.run["windows"]]

    def lost(self):
        return {what: count for what, count in self.run["lost"].items() if count}


@dataclasses.dataclass
class Result:
    status: int
    stdout: str
    stderr: str
    seconds: float
    folder: pathlib.Path
    outputs: list
    notes: str

    @property
    def output(self):
        assert len(self.outputs) == 1, [output.path.name for output in self.outputs]
        return self.outputs[0]

    def problems(self):
        """The library's warnings and errors on stderr."""
        return [line for line in self.stderr.splitlines()
                if line.startswith("libinject[") and not line.split()[1].startswith("info")]

    def ended_meanwhile(self):
        """The messages that the program ended while its files were being written."""
        return [line for line in self.problems() if any(text in line for text in ENDED_MEANWHILE)]


class Case(unittest.TestCase):
    may_break = {}  # rules of `inject check` that the folders of a test may break, and why

    def setUp(self):
        self.cut_off = set()  # folders whose files may be from different moments, as reported

    def fresh_folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-process-"))
        folder.chmod(0o777)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        # Everything that the library leaves keeps the documentation's promises.
        self.addCleanup(lambda: folder in self.cut_off or promises.hold(self, folder, self.may_break))
        return folder

    def run_program(self, command, preload=True, timeout=60, preloads=None, expected_files=(), keep_stderr=True, **options):
        """Runs `command` in a fresh folder, where the library puts its output as `out-PID`. INJECT_* and other variables are given as
        `env`. Other files left in the folder must be listed in `expected_files`."""
        folder = self.fresh_folder()
        environment = {name: value for name, value in os.environ.items()
                       if name not in NOT_OURS and not name.startswith(("INJECT_", "CUDASIM_", "VICTIM_"))}
        environment.update(LC_ALL="C", INJECT_OUT="out-%p", VICTIM_NOTES=str(folder / "notes"))
        if libraries := preload_of(*((preloads or [library]) if preload else [])):
            environment["LD_PRELOAD"] = libraries
        environment.update(options.pop("env", {}))
        if keep_stderr:
            options.setdefault("stderr", subprocess.PIPE)
        begin = time.monotonic()
        done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, timeout=timeout * PACE, check=False, **options)
        seconds = time.monotonic() - begin
        notes = (folder / "notes").read_text() if (folder / "notes").exists() else ""
        outputs = [Output(path) for path in sorted(folder.glob("out-*"))]
        left = {path.name for path in folder.iterdir()} - {output.path.name for output in outputs}
        self.assertLessEqual(left, {"notes", *expected_files}, "files that nobody expects")
        result = Result(done.returncode, done.stdout.decode(), (done.stderr or b"").decode(), seconds, folder, outputs, notes)
        if result.ended_meanwhile():
            self.cut_off.add(folder)
        else:
            for output in outputs:
                names = {path.name for path in output.path.iterdir()}
                # If the profiler did not get to its last write, the space reserved for run.json remains, as do the records.
                cut = "records" in names or "run.json" not in names or output.state == "open" or PROFILING_STOPPED in result.stderr
                left = {name for name in names if name.startswith(".")} - (SPARES if cut else set())
                self.assertEqual(left, set(), f"temporary files are left\n{result.stderr}")
        return result

    def run_both(self, command, most_added=MOST_ADDED_SECONDS, **options):
        """The preloaded run, after checking that its status and stdout are those of the bare one, that it wrote nothing but its messages
        and summary to stderr, and that it did not take much longer."""
        return self.run_beside(self.run_program(command, preload=False, **options), command, most_added, **options)

    def run_beside(self, bare, command, most_added=MOST_ADDED_SECONDS, **options):
        """Like run_both(), with an existing bare run."""
        self.assertEqual(bare.outputs, [])
        preloaded = self.run_program(command, **options)
        self.assertEqual((preloaded.status, preloaded.stdout), (bare.status, bare.stdout), preloaded.stderr)
        self.assertLess(preloaded.seconds - bare.seconds, most_added)
        self.assertNotIn(WAITED_IN_VAIN, preloaded.stderr)
        return preloaded

    def assert_complete(self, output, kernels):
        """Everything is written, nothing is lost, exactly these kernels were seen, and the tables agree."""
        self.assertEqual(output.state, "closed")
        self.assertLessEqual(set(output.lost()), LOST_TO_PACE, output.lost())
        self.assertEqual(output.kernels(), kernels)
        self.assertEqual(sum(count for _, _, count in output.threads()), sum(kernels.values()))
        self.assertEqual(set(output.windows()), {"closed"})


def victim(name, *arguments):
    return [programs / f"{name}_victim", *arguments]


def main():
    global library, programs, simulation
    library, programs, simulation = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
    unittest.main()
