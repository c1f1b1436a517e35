# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject doctor`, on the simulated CUDA, without CUDA, and on invented machines."""

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import unittest
import unittest.mock

import folders
from libinject.doctor import machine, trial

SIMULATION = {"LD_LIBRARY_PATH": str(folders.BUILD / "sim")}


class Command(folders.TemporaryFolder):
    def doctor(self, *arguments, status=0, **env):
        done = folders.inject("doctor", "--json", *arguments, env=env, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return {finding["subject"]: finding for finding in reversed(json.loads(done.stdout))}  # the first of each

    def test_all_is_well(self):
        found = self.doctor(**SIMULATION)
        for subject in ("libinject.so", "CUPTI", "trial", "counters", "output"):
            self.assertEqual(found[subject]["state"], "good", found[subject])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_records_that_can_not_outlive_a_process(self):
        """As where there is too little room for temporary files: all else works."""
        done = subprocess.run(["sh", "-c", f"ulimit -f 20000; exec {sys.executable} {folders.ROOT / 'scripts' / 'inject'} doctor --json"], cwd=self.folder,
                              env={**os.environ, **SIMULATION}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = {finding["subject"]: finding for finding in json.loads(done.stdout)}
        self.assertEqual([found[subject]["state"] for subject in ("records", "trial", "counters")], ["warning", "good", "good"])
        self.assertTrue(found["records"]["text"].startswith("records are kept in memory, and are lost if the process is killed: "), found["records"])

    def test_in_words(self):
        done = folders.inject("doctor", env=SIMULATION)
        self.assertEqual(done.returncode, 0)
        self.assertIn("     ok  trial: a window opened and closed, and the GPU's work in it (20 memsets) is in the tables\n", done.stdout)

    def test_no_cuda(self):
        found = self.doctor(status=1, LD_LIBRARY_PATH="")
        self.assertEqual(found["CUDA"]["state"], "bad")
        self.assertIn("libcuda.so.1", found["CUDA"]["text"])
        self.assertNotIn("trial", found)

    def test_no_trial(self):
        self.assertEqual(self.doctor("--no-trial", LD_LIBRARY_PATH="")["libinject.so"]["state"], "good")

    def test_another_profiler(self):
        found = self.doctor(status=1, **SIMULATION, CUDASIM_FAULTS="subscriber_taken=a profiler")
        self.assertEqual(found["trial"]["state"], "bad")
        self.assertIn("a profiler", found["trial"]["text"])

    def test_samples_of_counters_lost(self):
        # As on a busy machine, which does not mean that something is wrong.
        out = self.folder / "out"
        with unittest.mock.patch.dict(os.environ, SIMULATION):
            done = trial._run(sys.executable, folders.BUILD / "libinject.so", out, metrics=True)
        told = json.loads((out / "run.json").read_text())
        for kind, states in (("metric_samples", ("good", "note")), ("api_records", ("bad", "good"))):
            (out / "run.json").write_text(json.dumps({**told, "lost": {kind: 3}}))
            found = {finding.subject: finding for finding in trial._judge(out, done)}
            self.assertEqual((found["trial"].state, found["counters"].state), states)
            self.assertIn(f"3 {kind}", found["counters" if kind == "metric_samples" else "trial"].text)

    def test_what_records_take(self):
        """As much as the file that a killed program leaves."""
        env = {**SIMULATION, "LD_PRELOAD": str(folders.BUILD / "libinject.so"), "INJECT_OUT": str(self.folder / "out"), "INJECT_WINDOW": "always"}
        subprocess.run([folders.BUILD / "tests/integration/script/script_cuda", "gemm", "sync", "until_delivered", "crash:KILL"], env={**os.environ, **env}, capture_output=True, check=False)
        self.assertEqual((self.folder / "out" / "records").stat().st_size, machine.RECORDS)

    def test_a_program_that_fails(self):
        found = self.doctor("--python", self.folder / "none", status=1, **SIMULATION)
        self.assertTrue(found["trial"]["text"].endswith("can't be run: no such file or directory"), found["trial"])

    def test_a_trial_without_an_answer(self):
        program = self.folder / "python"
        crash, hang = "kill -SEGV $$", "exec sleep 60"
        for with_it, without, said in (
                (crash, "exit 0", "under libinject, a small CUDA program was ended by SIGSEGV (oh); without libinject it ends as it should"),
                (crash, f"echo no driver >&2; {crash}", "under libinject, a small CUDA program was ended by SIGSEGV (oh); without libinject it was ended by SIGSEGV (no driver)"),
                ("exit 3", "exit 4", "under libinject, a small CUDA program ended with status 3 (oh); without libinject it ended with status 4 (oh)"),
                (hang, "exit 0", "under libinject, a small CUDA program has not ended after 1 s; without libinject it ends as it should"),
                (hang, hang, "under libinject, a small CUDA program has not ended after 1 s; without libinject it has not ended after 1 s")):
            program.write_text(f'#!/bin/sh\necho oh >&2\n[ -n "$LD_PRELOAD" ] || {{ {without}; }}\necho memsets 20\n{with_it}\n')
            program.chmod(0o755)
            with unittest.mock.patch.object(trial, "_SECONDS", 1):
                (found,) = trial.look(str(program))
            self.assertEqual((found.state, found.subject, found.text), ("bad", "trial", said))

    def test_variables(self):
        found = self.doctor("--no-trial", INJECT_WINDOWS="x", INJECT_RING="1M", CUDA_INJECTION64_PATH="/tool.so", LD_PRELOAD="/no/such.so")
        self.assertEqual((found["INJECT_WINDOWS"]["state"], found["INJECT_WINDOWS"]["remedy"]), ("warning", "did you mean INJECT_WINDOW?"))
        self.assertEqual(found["INJECT_RING"]["state"], "note")
        self.assertEqual(found["CUDA_INJECTION64_PATH"]["state"], "warning")
        self.assertEqual(found["LD_PRELOAD"]["state"], "warning")

    def test_a_variable_that_turns_profiling_off(self):
        found = self.doctor("--no-trial", status=1, INJECT_WINDOW="foo")["variables"]
        self.assertEqual(found["state"], "bad")
        self.assertTrue(found["text"].startswith("profiling would be off: INJECT_WINDOW='foo': "), found)

    def test_no_working_directory(self):
        command = shlex.join([sys.executable, str(folders.ROOT / "scripts" / "inject"), "doctor", "--no-trial", "--json"])
        done = subprocess.run(["sh", "-c", f"mkdir gone && cd gone && rmdir ../gone && exec {command}"], cwd=self.folder, capture_output=True, text=True,
                              env={name: value for name, value in os.environ.items() if not name.startswith("INJECT_")}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        (found,) = (finding for finding in json.loads(done.stdout) if finding["subject"] == "output")
        self.assertEqual((found["state"], found["text"]), ("warning", "the working directory no longer exists"))

    def test_a_program_that_is_not_python(self):
        (found,) = trial.look("/bin/true")
        self.assertEqual((found.state, found.text), ("bad", "'/bin/true' is not a Python interpreter"))

    def test_variables_that_libinject_has_set(self):
        # As in a shell that is preloaded.
        ours = f"{folders.BUILD}/././libinject.so"
        found = self.doctor("--no-trial", CUDA_INJECTION64_PATH=ours, NVTX_INJECTION64_PATH=ours)
        self.assertEqual([subject for subject in found if "INJECTION64" in subject], [])


class Machine(folders.TemporaryFolder):
    """Contents of /proc, and output of nvidia-smi."""

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @contextlib.contextmanager
    def proc(self):
        with unittest.mock.patch.object(machine, "PROC", self.folder):
            yield

    def test_driver(self):
        with self.proc():
            self.assertEqual([finding.state for finding in machine.driver()], ["note"])
            self.write("driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n")
            self.assertEqual([finding.text for finding in machine.driver()], ["NVIDIA 580.159.04"])

    def test_counters(self):
        states = {}
        with self.proc():
            for restricted in (0, 1):
                for capabilities in ("0000000000000000", "0000000000200000"):
                    self.write("driver/nvidia/params", f"EnableMSI: 1\nRmProfilingAdminOnly: {restricted}\n")
                    self.write("self/status", f"CapEff:\t{capabilities}\n")
                    states[restricted, capabilities[10]] = [finding.state for finding in machine.counters()]
        self.assertEqual(states, {(0, "0"): ["good"], (0, "2"): ["good"], (1, "0"): ["warning"], (1, "2"): ["good"]})

    def test_who_else_uses_counters(self):
        for pid, name in ((17, "nv-hostengine"), (18, "bash"), (os.getpid(), "ncu")):
            self.write(f"{pid}/comm", name + "\n")
        (self.folder / "19").mkdir()  # has ended
        with self.proc():
            found = list(machine.holders())
        self.assertEqual([(finding.subject, "17" in finding.text, "--pause" in finding.remedy) for finding in found], [("nv-hostengine", True, True)])

    def test_gpus(self):
        program = self.write("bin/nvidia-smi", '#!/bin/sh\necho "NVIDIA H200, 580.1, Enabled, Exclusive_Process, 143771 MiB"\n'
                                               'echo "Odd \033[31m GPU"\n')
        program.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}"):
            found = list(machine.devices())
            self.assertEqual([(finding.subject, finding.state) for finding in found],
                             [("GPU 0", "good"), ("GPU 0", "note"), ("GPU 0", "note"), ("GPU 1", "good")])
            self.assertEqual(found[0].text, "NVIDIA H200, 143771 MiB")
            self.assertNotIn("\033", found[3].text)
            program.write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
            self.assertEqual([finding.text for finding in machine.devices()], ["nvidia-smi: NVIDIA-SMI has failed"])

    def test_output(self):
        self.assertEqual([finding.state for finding in machine.output_folder(self.folder)], ["good"])
        for free, states in ((203_292_671, ["warning"]), (203_292_672, ["good"])):
            with unittest.mock.patch.object(machine.shutil, "disk_usage", return_value=unittest.mock.Mock(free=free)):
                self.assertEqual([finding.state for finding in machine.output_folder(self.folder)], states)
        with unittest.mock.patch.object(machine.os, "access", return_value=False):
            self.assertEqual([finding.state for finding in machine.output_folder(pathlib.Path("/"))], ["warning"])


if __name__ == "__main__":
    unittest.main()
