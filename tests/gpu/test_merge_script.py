# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of merge.py: its checks on the simulated CUDA with a launcher and ranks written here, and that a job whose communicators or
places are not as they should be is found.

usage: test_merge_script.py LIBRARY SIMULATION
"""

import os
import sys
import tempfile
import types
import unittest

import merge
from gputest import Report

# The variables that torchrun sets for its ranks. The rank that computes more is the last to reach the collectives, so its kernels are the
# shortest.
LAUNCHER = """
import os, secrets, subprocess, sys
program = sys.argv[1:]
env = dict(os.environ, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK="0", GROUP_WORLD_SIZE="1", TORCHELASTIC_RUN_ID=secrets.token_hex(8),
           UNIQUE_ID=secrets.token_hex(32))
ranks = [subprocess.Popen([sys.executable, *program], env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank if os.environ.get("BROKEN") != "place" else 0),
                          CUDASIM_KERNELS=f"AllReduce={40000 if '--slow' in program and rank == 1 else 90000}")) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""

# A rank with the communicators of torch_groups.py. BROKEN is the deviation.
RANK = """
import ctypes, json, os, sys
rank, broken, result, eager = int(os.environ["RANK"]), os.environ.get("BROKEN"), sys.argv[sys.argv.index("--result") + 1], "--eager" in sys.argv
steps = int(sys.argv[sys.argv.index("--steps") + 1])
for library in ("libcudart.so.13", "libnccl.so.2"): ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
cuda = ctypes.CDLL(None)
class Id(ctypes.Structure): _fields_ = [("internal", ctypes.c_char * 128)]
def made(name, nranks, own_rank):
    comm = ctypes.c_void_p()
    assert cuda.ncclCommInitRankConfig(ctypes.byref(comm), nranks, Id((os.environ["UNIQUE_ID"] + name).encode()), own_rank, None) == 0
    return comm
def split(parent, color):
    comm = ctypes.c_void_p()
    assert cuda.ncclCommSplit(parent, color, rank, ctypes.byref(comm), None) == 0
    return comm
job = made("" if broken != "other ids" else str(rank), 2, rank)
# What the simulation splits off has all ranks: another one stands for rank 0's own.
if eager: split(job, 0 if rank == 0 else -1)
alone = made("alone", 1, 0) if rank == 0 else None
shared = split(job, 0) if eager else made("shared", 2, rank)
if broken == "one group": shared = job
def all_reduce(comm, count, kind):
    assert cuda.ncclAllReduce(None, None, ctypes.c_size_t(count), kind, 0, comm, None) == 0
cuda.cudaProfilerStart()
for _ in range(steps):
    all_reduce(shared, 3000000, 9)
    all_reduce(job, 250000, 7)
    if rank == 0: all_reduce(alone, 1000, 8)
    if broken == "more calls" and rank == 1: all_reduce(shared, 3000000, 9)
assert cuda.cudaDeviceSynchronize() == 0
cuda.cudaProfilerStop()
with open(f"{result}.{rank}", "w") as file:
    json.dump({"rank": rank, "ranks": 2, "steps": steps, "gradient_bytes": 1000000, "shared_bytes": 6000000, "own_bytes": 8000}, file)
"""


class OnTheSimulation(unittest.TestCase):
    def run_jobs(self, broken="", jobs=2):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.environ.update(LD_LIBRARY_PATH=simulation, BROKEN=broken)
        launcher, program = (os.path.join(folder.name, name) for name in ("launcher.py", "rank.py"))
        for path, text in ((launcher, LAUNCHER), (program, RANK)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        options = types.SimpleNamespace(library=library, work=os.path.join(folder.name, "work"), program=program,
                                        launcher=lambda: [sys.executable, launcher],
                                        jobs=merge.JOBS[:jobs])
        os.mkdir(options.work)
        report = Report("merge", folder.name)
        merge.run_jobs(options, report)
        self.checks = [check["check"] for check in report.checks]
        return [check["check"] for check in report.checks if check["passed"] is False]

    def test_all_is_well(self):
        self.assertEqual(self.run_jobs(), [])
        self.assertGreater(len(self.checks), 20)

    def test_what_is_wrong_is_found(self):
        for broken, found in (("other ids", "communicators and calls are the same on all ranks"),
                              ("more calls", "communicators and calls are the same on all ranks"),
                              ("one group", "rank 0: the gradients are on one communicator, the second group's sums on another"),
                              ("place", "run.json has the ranks' places")):
            with self.subTest(broken):
                failed = self.run_jobs(broken, jobs=1)
                self.assertTrue(any(check.startswith("split") and check.endswith(found) for check in failed), failed)


if __name__ == "__main__":
    library, simulation = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
