#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Ranks of an MPI job, however it ends: the launcher is not affected, its status is the same, and each rank has a folder of its own. With
Open MPI's mpirun, or MPICH's.
"""

import concurrent.futures
import re
import shutil
import subprocess
import sys
import time
import unittest

import harness

RANKS = 4
SKIPPED = 77
# So that four record files stay small.
SMALL = {"INJECT_RING": "4M", "INJECT_BUFFERS": "4M"}


class Launcher:
    """Names that differ between the two families of mpirun."""

    def __init__(self):
        self.path = shutil.which("mpirun")
        version = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False).stdout if self.path else ""
        self.hydra = "HYDRA" in version
        self.name = version.partition("\n")[0]
        self.rank_variable = "PMI_RANK" if self.hydra else "OMPI_COMM_WORLD_RANK"

    def command(self, program, variables=None):
        """`variables` are only for the ranks."""
        words = [self.path, *([] if self.hydra else ["--oversubscribe"])]
        for name, value in (variables or {}).items():
            words += ["-genv", name, str(value)] if self.hydra else ["-x", f"{name}={value}"]
        return [*words, "-np", str(RANKS), *program]


launcher = Launcher()


def outcome(done):
    """Status, output and the launcher's reason why the job ended, without process ids."""
    said = re.findall(r"^mpirun (?:noticed|detected|has exited).*|^ *Exit code: .*", done.stderr, re.MULTILINE)
    return done.status, *(re.sub(r"PID \d+", "PID", text) for text in (done.stdout, "\n".join(said)))


class Case(harness.Case):
    bare = {}  # jobs without the library, by program

    def job(self, program, *, preloaded="", **options):
        """The job with nothing, the "ranks", or "all" (launcher and ranks) under the preload."""
        env = {**SMALL, "INJECT_SUMMARY": "off", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "TMPDIR": str(self.fresh_folder()), **options.pop("env", {})}
        command = launcher.command(program, {"LD_PRELOAD": harness.library} if preloaded == "ranks" else {})
        return self.run_program(command, preload=preloaded == "all", env=env, **options)

    def both(self, program, preloaded="ranks", wrapper=(), **options):
        """The preloaded job, after checking that it ends like the bare one. `wrapper`: a command that starts the ranks."""
        key = tuple(map(str, program))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            # Concurrently, because launchers wait before they kill.
            bare = Case.bare.get(key) or pool.submit(self.job, program)
            done = self.job([*wrapper, *program], preloaded=preloaded, **options)
            Case.bare[key] = bare
        self.assertEqual(bare.result().outputs, [])
        self.assertEqual(outcome(done), outcome(bare.result()), done.stderr)
        return done

    def by_rank(self, done):
        outputs = {output.run["rank"]: output for output in done.outputs}
        self.assertEqual(len(outputs), len(done.outputs))
        self.assertEqual(len({output.run["pid"] for output in done.outputs}), len(done.outputs))
        return outputs

    def check_all(self, done):
        """Each rank's kernels are in its own folder, and there are no messages."""
        outputs = self.by_rank(done)
        self.assertEqual(sorted(outputs), [str(rank) for rank in range(RANKS)])
        for rank, output in outputs.items():
            self.assert_complete(output, {"step": 10 * (int(rank) + 1)})
            self.assertFalse((output.path / "records").exists())
        self.assertEqual(done.problems(), [])


class OrderlyEnds(Case):
    def test_the_ranks_are_preloaded(self):
        done = self.both(harness.victim("mpi", "train"), env={"INJECT_OUT": "out-%r", "INJECT_SUMMARY": "stderr"})
        self.assertEqual(done.stdout.splitlines()[0].split(",")[0], f"{RANKS} ranks")
        self.assertEqual([output.path.name for output in done.outputs], [f"out-{rank}" for rank in range(RANKS)])
        self.check_all(done)
        # Only rank 0 prints its summary.
        (title,) = re.findall(r"^libinject: 1 window .*", done.stderr, re.MULTILINE)
        self.assertTrue(title.endswith(", rank 0"), title)
        # Shows that our threads are recognised in a rank, and so in the launcher.
        self.assertRegex(done.notes, r"\Arank: threads of ours [1-9]\n\Z")

    def test_the_launcher_is_preloaded_as_well(self):
        # The launcher does not have the variable, and does not need it, since it creates no folder.
        done = self.both(harness.victim("mpi", "train"), preloaded="all",
                         env={"INJECT_OUT": f"out-%q{{{launcher.rank_variable}}}"})
        self.assertEqual([output.path.name for output in done.outputs], [f"out-{rank}" for rank in range(RANKS)])
        self.check_all(done)
        self.assertRegex(done.notes, r"\Arank: threads of ours [1-9]\n(launcher: threads of ours 0\n)+\Z")

    def test_a_rank_that_fails_after_the_job(self):
        done = self.both(harness.victim("mpi", "train_and_fail"))
        self.assertEqual(done.status, 3)
        self.check_all(done)

    def test_ranks_without_cuda(self):
        # One name for all: their folders are numbered.
        done = self.both(harness.victim("mpi", "half_of_them"), preloaded="all", env={"INJECT_OUT": "out-job"})
        self.assertEqual([output.path.name for output in done.outputs], ["out-job", "out-job.1"])
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        outputs = self.by_rank(done)
        self.assertEqual(sorted(outputs), ["1", "3"])
        for rank, output in outputs.items():
            self.assert_complete(output, {"step": int(rank)})
        self.assertEqual(done.problems(), [])

    def test_a_shell_preloads_into_one_rank(self):
        wrapper = f'if [ "${launcher.rank_variable}" = 2 ]; then export LD_PRELOAD="$0"; fi; exec "$@"'
        done = self.both(harness.victim("mpi", "train"), preloaded="", wrapper=["sh", "-c", wrapper, harness.library],
                         env={"INJECT_SUMMARY": "summary-%r"}, expected_files=["summary-2"])
        self.assertEqual(done.output.run["rank"], "2")
        self.assert_complete(done.output, {"step": 30})
        self.assertIn(", rank 2\n", (done.folder / "summary-2").read_text())
        self.assertEqual(done.problems(), [])


class AbruptEnds(Case):
    """The launcher ends all ranks, some by SIGTERM and the one that ignores it by SIGKILL."""

    def wait_for_end(self, pid):
        """A launcher that is killed may not wait for its ranks, and neither may the process that inherits them."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if re.search(r"^State:\t[ZX]", harness.pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE):
                    return
            except OSError:
                return
            time.sleep(0.01)

    def recover(self, output, rank):
        self.wait_for_end(output.run["pid"])
        self.assertEqual(output.state, "open")
        self.assertEqual(output.windows(), ["closed", "open"])
        self.assertEqual(output.kernels()["first"], 20)
        done = subprocess.run([harness.library.parent / "injectctl" / "injectctl", "recover", output.path], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(output.state, "recovered")
        self.assertEqual(output.run["rank"], str(rank))
        self.assertFalse((output.path / "records").exists())
        first, second = [row for row in output.table("window_sum") if row["Device"] == "all"]
        self.assertEqual((int(first["Submissions"]), int(first["Kernels"])), (20, 20))
        self.assertEqual(int(second["Submissions"]), rank + 5)
        missing = output.lost().get("missing_activity_records", 0)
        self.assertEqual(int(second["Kernels"]) + missing, rank + 5)

    def check(self, scenario, preloaded="ranks"):
        done = self.both(harness.victim("mpi", scenario), preloaded=preloaded)
        self.assertEqual(done.stdout.splitlines()[0], "all are in their windows")
        outputs = self.by_rank(done)
        self.assertEqual(sorted(outputs), [str(rank) for rank in range(RANKS)])
        for rank, output in outputs.items():
            self.recover(output, int(rank))
        return done

    @harness.unsanitized("Open MPI 4.1's mpirun itself reads what it has freed as it passes the abort on")
    def test_mpi_abort(self):
        self.assertEqual(self.check("aborted").status, 7)

    def test_a_rank_is_killed_while_others_are_in_a_collective(self):
        self.assertNotEqual(self.check("killed", preloaded="all").status, 0)

    @unittest.skipIf(launcher.hydra, "its ranks' parent takes no notice of SIGTERM")
    def test_the_launcher_is_ended(self):
        self.assertNotEqual(self.check("launcher_ended").status, 0)


class Endings(Case):
    def test_exit_waits_for_all_ranks(self):
        runtime = self.fresh_folder()
        runtime.chmod(0o700)
        done = self.job(harness.victim("mpi", "windows_one_after_the_other"), preloaded="ranks",
                        env={"INJECT_WINDOW": "apix1", "INJECT_AFTER": "exit", "XDG_RUNTIME_DIR": str(runtime)})
        # The ranks have exited without MPI_Finalize.
        self.assertEqual(done.status, 1 if not launcher.hydra else 0)
        self.assertEqual(done.stdout, "")
        outputs = self.by_rank(done)
        self.assertEqual(sorted(outputs), [str(rank) for rank in range(RANKS)])
        for rank, output in outputs.items():
            self.assert_complete(output, {"step": int(rank) + 1})


def main():
    victim = harness.pathlib.Path(sys.argv[2]) / "mpi_victim"
    if launcher.path is None or not victim.exists():
        print(f"process.mpi: SKIPPED: no {'mpirun' if launcher.path is None else victim}: scripts/setup.sh installs MPI, CMake finds it")
        sys.exit(SKIPPED)
    print(launcher.name)
    harness.main()


if __name__ == "__main__":
    main()
