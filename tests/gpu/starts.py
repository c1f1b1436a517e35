# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Programs that start CUDA while windows open and close: as long as --seconds says, --at-once of them at a time. None crashes or
hangs. Faults of this kind come once in thirty starts or less often, so a hundred runs of each are worth having. Half the runs open
the first window as CUDA is initialised, the others after a delay that differs from run to run.

Some start as bare processes, so that a fault that is not ours is seen.
"""

import collections
import concurrent.futures
import itertools
import os
import shutil
import sys
import time

from gputest import clean_environment, main, module_missing, profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "numerics.py")
WINDOW = "time:{}ms+50ms/100ms"
# In ms after cuInit: JAX initialises NVML after about 35 ms and creates its context after about 200 ms.
DELAYS = [*range(0, 200, 7), *range(200, 1500, 50)]
MODULES = {"jax": ["jax"], "torch": ["torch"]}
EVERY_BARE = 6  # one in this many runs is a bare one
PATIENCE = 40  # s: a run takes about five
FOLDERS = 20  # kept to be checked


def start(options, name, number):
    """A run of the program: (whether it is bare, what is wrong with it or "")."""
    bare = number % EVERY_BARE == 0
    window = WINDOW.format(DELAYS[number // 2 % len(DELAYS)] if number % 2 else 0)
    out = os.path.join(options.work, f"{name}{number}.out")
    environment = clean_environment() if bare else profiled_environment(options.library, out, window, summary="off")
    environment = {**environment, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONFAULTHANDLER": "1"}
    result = run([sys.executable, PROGRAM, name], environment, timeout=PATIENCE, cwd=options.work)
    if result.rc == 0 and not result.timed_out:
        if number >= FOLDERS:
            shutil.rmtree(out, ignore_errors=True)
        return bare, ""
    with open(os.path.join(options.work, f"{name}{number}.log"), "w") as log:
        log.write(result.err)
    return bare, f"{window}: {result.why()}"


def program(options, report, name):
    reason = module_missing(*MODULES[name])
    if reason:
        report.skip(name, reason)
        return
    end = time.monotonic() + options.seconds / len(options.programs)
    numbers = itertools.count()

    def several(_):
        while time.monotonic() < end:
            yield start(options, name, next(numbers))

    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        results = [result for several_results in pool.map(lambda i: list(several(i)), range(options.at_once)) for result in several_results]
    count = collections.Counter(bare for bare, _ in results)
    wrong = {kind: [why for bare, why in results if why and bare is kind] for kind in (True, False)}
    report.data[name] = {"runs": count[False], "bare": count[True], "wrong": wrong[False], "wrong_bare": wrong[True]}
    if wrong[True]:
        report.skip(name, f"does not always end without us either: {len(wrong[True])} of {count[True]}: {wrong[True][0]}")
    report.check(f"{name}: every start ends as it should", count[False] and not wrong[False],
                 f"{len(wrong[False])} of {count[False]} do not: {wrong[False][0]}" if wrong[False]
                 else f"{count[False]} starts, {count[True]} bare ones")


def test(options, report):
    for name in options.programs:
        report.guarded(name, program, options, report, name)


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--programs", nargs="+", choices=MODULES, default=list(MODULES))


if __name__ == "__main__":
    main("starts", test, arguments=arguments)
