# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""DataLoader workers by fork and spawn, subprocesses, launches from many threads: right counts, one output folder."""

import json
import os
import sys

from gputest import COPY_KINDS, Folder, check_sums, folders, main, profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_processes.py")


def run_mode(options, report, mode):
    # A separate working directory, in which a stray folder under the default name would show up.
    work = os.path.join(options.work, mode)
    os.makedirs(work)
    out = os.path.join(work, "out")
    environment = profiled_environment(options.library, out, "api", trace="csv")
    result = run([sys.executable, PROGRAM, "--mode", mode], environment, timeout=90, cwd=work,
                 log=os.path.join(options.work, mode + ".log"))
    if not report.check(f"{mode}: program ends well", result.rc == 0, result.why() if result.rc else ""):
        return
    known = json.loads(result.out.strip().splitlines()[-1])["count"]
    left = sorted(os.listdir(work))
    report.check(f"{mode}: one output folder and nothing else", left == ["out"], ", ".join(left))
    if not folders(out):
        return
    folder = Folder(out)
    kernels, operations = folder.kernel_counts(), folder.operation_counts()
    report.data[mode] = {"known": known, "kernels": kernels, "operations": operations, "stderr": result.err[-2000:]}
    adds = sum(c for n, c in kernels.items() if "add" in n.lower() and "reduce" not in n.lower())
    if mode in ("fork", "spawn"):
        report.check(f"{mode}: a copy for every batch", operations.get(COPY_KINDS["HtoD"], 0) == known,
                     f"{operations.get(COPY_KINDS['HtoD'], 0)} of {known}")
    report.check(f"{mode}: a kernel for every addition", adds == known, f"{adds} of {known}")
    report.check(f"{mode}: nothing lost", not folder.lost(), folder.lost() or "")
    compared, wrong = check_sums(folder)
    report.check(f"{mode}: tables equal the sums of the raw records", compared > 0 and not wrong, f"{compared} rows; " + "; ".join(wrong[:2]))


def test(options, report):
    for mode in ("fork", "spawn", "subprocess", "threads16", "threads32"):
        report.guarded(mode, run_mode, options, report, mode)


if __name__ == "__main__":
    main("processes", test, modules=("torch",))
