#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A thread that is cancelled inside a hooked call, with a window open, ends as it would have without the library, and
the call is in the tables.

usage: test_cancel.py LIBRARY PROGRAM SIMULATED_CUDA
"""

import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    library, program, simulated = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        environment = dict(os.environ, LD_PRELOAD=library, LD_LIBRARY_PATH=simulated, INJECT_WINDOW="always",
                           INJECT_OUT=str(out), INJECT_SUMMARY="off", INJECT_LOG="warn")
        done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=50, check=False)
        print(done.stdout, done.stderr, sep="")
        if (done.returncode, done.stdout) != (0, "cancelled, cleaned up\n"):
            print(f"exit status {done.returncode}")
            return 1
        tables = "".join(path.read_text() for path in sorted(out.glob("*_sum.csv")))
        if "ncclGroupEnd" not in tables:
            print("the cancelled call is in no table: the hook did not record it")
            print(tables)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
