# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of torchrun.py: its checks on the simulated CUDA with a launcher and ranks written here, and that a job which is not
as expected is found.

usage: test_torchrun_script.py LIBRARY SIMULATION INJECTCTL
"""

import os
import sys
import tempfile
import types
import unittest

import torchrun
from gputest import Report

# Starts its ranks, ends the others when one fails, and restarts all as often as allowed, like torchrun.
LAUNCHER = """
import os, signal, subprocess, sys, time
ranks, restarts, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
def end(*_):
    for rank in running: rank.terminate()
    for rank in running: rank.wait()
    sys.exit(1)
running = []
signal.signal(signal.SIGTERM, end)
for attempt in range(restarts + 1):
    running = [subprocess.Popen([sys.executable, *program], env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks),
                                TORCHELASTIC_RESTART_COUNT=str(attempt))) for rank in range(ranks)]
    while any(rank.poll() is None for rank in running) and not any(rank.poll() for rank in running): time.sleep(0.01)
    failed = [(number, rank) for number, rank in enumerate(running) if rank.poll()]
    for _, rank in failed[:1]:
        for other in running: other.terminate() if other.poll() is None else None
    for rank in running: rank.wait()
    if not failed: sys.exit(0)
number, rank = failed[0]
print(f"{program[0]} FAILED", "Root Cause (first observed failure):", f"  time      : {time.time()}", f"  rank      : {number} (local_rank: {number})",
      f"  exitcode  : {rank.returncode} (pid: {rank.pid})", f"  error_file: /tmp/{os.getpid()}/error.json", sep="\\n", file=sys.stderr)
sys.exit(1)
"""

# A rank with as many kernels of one name as one of torch_ranks.py's, or one more or fewer, as RANK_ERROR says.
RANK = """
import argparse, ctypes, glob, json, os, signal, sys, time
parser = argparse.ArgumentParser()
for name in ("--mode", "--backend", "--result"): parser.add_argument(name)
options = parser.parse_args()
rank, ranks, attempt = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)
cuda = ctypes.CDLL(None)
class Size(ctypes.Structure): _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]
stub, kernel = ctypes.create_string_buffer(1), ctypes.c_void_p()
register = getattr(cuda, "__cudaRegisterFatBinary"); register.restype = ctypes.c_void_p
binary = ctypes.c_void_p(register(None))
getattr(cuda, "__cudaRegisterFunction")(binary, stub, stub, b"cos_kernel", -1, None, None, None, None, None)
getattr(cuda, "__cudaRegisterFatBinaryEnd")(binary)
assert getattr(cuda, "__cudaGetKernel")(ctypes.byref(kernel), stub) == 0
run = getattr(cuda, "__cudaLaunchKernel")
run.argtypes = [ctypes.c_void_p, Size, Size, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
def launch(count):
    for _ in range(count): assert run(kernel, Size(1, 1, 1), Size(32, 1, 1), None, 0, None) == 0
    assert cuda.cudaDeviceSynchronize() == 0
def meet(name):
    open(f"{options.result}-{name}-{rank}-{attempt}", "w").close()
    for other in range(ranks):
        while not os.path.exists(f"{options.result}-{name}-{other}-{attempt}"): time.sleep(0.01)
def write(more):
    parent = f"/proc/{os.getppid()}"
    names = [open(path).read().strip() for path in glob.glob(f"{parent}/task/*/comm")]
    said = dict(pid=os.getpid(), rank=rank, ranks=ranks, launcher_preloaded="libinject" in open(f"{parent}/maps").read(),
                launcher_threads=names.count("libinject"), **more)
    with open(f"{options.result}.{rank}.{attempt}", "w") as file: json.dump(said, file)
    meet("written")
error = int(os.environ.get("RANK_ERROR", "0")) if rank == 1 else 0
launch(1)
cuda.cudaProfilerStart()
if options.mode == "train" or attempt == "1":
    launch(10 * (rank + 1))
    cuda.cudaProfilerStop()
    # One write: print's newline is another, and the ranks share this pipe.
    os.write(1, f"rank {rank} of {ranks}\\n".encode())
    write({"kernels": {"cos_kernel": 10 * (rank + 1) + error}})
    sys.exit(0)
launch(1)
cuda.cudaProfilerStop()
if hasattr(cuda, "inject_flush"): cuda.inject_flush()
cuda.cudaProfilerStart()
launch(100 * (rank + 1) - error)
write({})
if rank == 1 and options.mode != "stop": raise RuntimeError("this rank fails in its window")
if rank == 1: os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""


class OnTheSimulation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        work = os.path.join(folder.name, "work")
        os.mkdir(work)
        self.options = types.SimpleNamespace(library=library, injectctl=injectctl, out=folder.name, work=work, jobs=2,
                                             program=os.path.join(folder.name, "rank.py"))
        self.launcher = os.path.join(folder.name, "launcher.py")
        for path, text in ((self.launcher, LAUNCHER), (self.options.program, RANK)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.report = Report("torchrun", folder.name)
        os.environ["LD_LIBRARY_PATH"] = simulation
        os.environ.pop("RANK_ERROR", None)

    def run_jobs(self, *modes):
        torchrun.run_jobs(self.options, self.report,
                          [(mode, mode, lambda mode=mode: [sys.executable, self.launcher, "2", str(int(mode == "restart"))], "gloo", 2)
                           for mode in modes])

    def failed(self):
        return [(check["check"], check["detail"]) for check in self.report.checks if not check["passed"]]

    def test_all_is_well(self):
        self.run_jobs("train", "fail", "restart", "stop")
        self.assertEqual(self.failed(), [])
        # Four for each job, and one for each rank and attempt.
        self.assertEqual(len(self.report.checks), 4 * 4 + 2 + 2 + 4 + 2)
        self.assertIn("exitcode  : 1 (pid)", str(self.report.data["fail"]["preloaded"]))

    def test_other_counts_are_found(self):
        os.environ["RANK_ERROR"] = "1"
        self.run_jobs("train", "restart")
        self.assertEqual([check.partition(":")[0] for check, _ in self.failed()],
                         ["train, rank 1", "restart, rank 1, attempt 1", "restart, rank 1, attempt 2"])

    def test_another_end_is_found(self):
        self.options.library = os.path.join(self.options.work, "none.so")
        self.run_jobs("fail")
        self.assertIn("fail: a folder for each rank and attempt, and no other file", [check for check, _ in self.failed()])
        self.assertIn("fail: torchrun has the library and no thread of ours", [check for check, _ in self.failed()])


if __name__ == "__main__":
    library, simulation, injectctl = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
