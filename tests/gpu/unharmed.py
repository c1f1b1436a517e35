# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Frameworks, bare and under the preload: the same status, the same output, the same results bit for bit, where those of two bare
runs are. Programs without CUDA are in tests/integration/process/test_process_unharmed.py.
"""

import concurrent.futures
import os
import sys

from gputest import clean_environment, main, module_missing, profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "numerics.py")
MODULES = {"torch": ["torch"], "torch_graph": ["torch"], "jax": ["jax"], "cupy": ["cupy"], "numba": ["numba"], "triton": ["torch", "triton"]}
# The whole run in a window; windows that open and close during the run; no window.
WINDOWS = {"always": {"trace": "csv"}, "time:0s+50ms/100ms": {}, "off": {}}


def framework(options, report, name):
    reason = module_missing(*MODULES[name])
    if reason:
        report.skip(name, reason)
        return

    def once(environment, label):
        # Makes libraries choose the same algorithms, and keeps JAX from allocating all of the device's memory.
        environment = {**environment, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
        return run([sys.executable, PROGRAM, name], environment, timeout=90, cwd=options.work,
                   log=os.path.join(options.work, f"{name}_{label}.log"))

    ours = {f"ours{number}": profiled_environment(options.library, os.path.join(options.work, f"{name}{number}.out"), window,
                                                  summary="off", **more) for number, (window, more) in enumerate(WINDOWS.items())}
    # Concurrently, because most of each run is the framework's start.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        bare, again, *results = pool.map(once, [clean_environment()] * 2 + list(ours.values()), ["bare", "again", *ours])
    if bare.rc != 0:
        report.skip(name, f"does not work here without us either: {bare.why()}")
        return
    same = bare.out == again.out
    for window, result in zip(WINDOWS, results):
        report.check(f"{name}, {window}: ends as without us", result.rc == bare.rc, result.why() if result.rc else "")
        if same:
            report.check(f"{name}, {window}: the same results", result.out == bare.out,
                         f"{len(bare.out.splitlines())} digests" if result.out == bare.out else result.out[-300:])
        else:
            names = [[line.rsplit(" ", 1)[0] for line in one.out.splitlines()] for one in (bare, result)]
            report.check(f"{name}, {window}: as many results (two bare runs differ)", names[0] == names[1], names[1][:5])


def test(options, report):
    for name in MODULES:
        report.guarded(name, framework, options, report, name)


if __name__ == "__main__":
    main("unharmed", test)
