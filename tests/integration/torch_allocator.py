#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A program whose allocator reports as PyTorch's does, for test_torch_allocator.py. Prints, in JSON, how many reports the allocator's
own library got, and a sum over all that they say.

usage: torch_allocator.py FOLDER WORD…
A word: TYPE:INDEX:ALLOCATED:RESERVED[:older], a report in MB; `launch`; `sleep`; `kill`
"""

import ctypes
import json
import os
import pathlib
import signal
import sys
import time

folder = pathlib.Path(sys.argv[1])
cuda = ctypes.CDLL(str(folder / "script_training.so"))
allocator = ctypes.CDLL(str(folder / "script_c10_cuda.so"))
counts = ctypes.CDLL(str(folder / "script_c10.so"))
allocator.c10_report.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
allocator.c10_report.restype = None
counts.c10_reports.restype = counts.c10_sum.restype = ctypes.c_uint64

for word in sys.argv[2:]:
    if word == "launch":
        if cuda.training_launch(b"kernel", 1) != 0:
            sys.exit("a launch failed")
    elif word == "sleep":
        time.sleep(0.02)
    elif word == "kill":
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        kind, index, allocated, reserved, *older = word.split(":")
        allocator.c10_report(int(kind), int(index), int(float(allocated) * 1e6), int(float(reserved) * 1e6), len(older))
print(json.dumps([counts.c10_reports(), counts.c10_sum()]))
