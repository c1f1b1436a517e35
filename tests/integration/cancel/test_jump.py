#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A hooked call that a signal handler leaves by siglongjmp: nothing is written where its frame was, later calls have their records, and
abandoned calls are counted.

usage: test_jump.py LIBRARY PROGRAM SIMULATED_CUDA
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

JUMPS = 40


def main():
    library, program, simulated = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        environment = dict(os.environ, LD_PRELOAD=library, LD_LIBRARY_PATH=simulated, INJECT_WINDOW="always",
                           INJECT_OUT=str(out), INJECT_SUMMARY="off", INJECT_LOG="warn")
        done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=50, check=False)
        print(done.stdout, done.stderr, sep="")
        if (done.returncode, done.stdout) != (0, "done\n"):
            print(f"exit status {done.returncode}")
            return 1
        kernels = sum(int(row["Instances"]) for row in csv.DictReader((out / "cuda_gpu_kern_sum.csv").open()))
        calls = {row["Name"]: int(row["Num Calls"]) for row in csv.DictReader((out / "cuda_api_sum.csv").open())}
        lost = json.loads((out / "run.json").read_text())["lost"]
    seen = [calls.get(name) for name in ("cuLaunchKernel", "cudaPeekAtLastError")]
    found = kernels, *seen, calls.get("cudaDeviceSynchronize", 0) + lost.get("host_records", 0)
    print(found, calls, lost)
    return 0 if found == (JUMPS, JUMPS, JUMPS, JUMPS) else 1


if __name__ == "__main__":
    sys.exit(main())
