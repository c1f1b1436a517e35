# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Cases of tests/integration, which run there on the simulated CUDA, on the real one: the simulation claims to behave like it.

The program is theirs, with kernels of real code (contract/). LD_LIBRARY_PATH says which CUDA it finds, so the same script runs
on the simulation:

    LD_LIBRARY_PATH=build/sim python3 tests/gpu/contract.py --build build

What a case does with the simulation's own switches (faults, durations, a number of devices) is skipped, with the reason.
"""

import importlib
import os
import pathlib
import sys
import unittest

from gputest import SKIPPED, main

INTEGRATION = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration")
sys.path.append(INTEGRATION)
import simulated  # noqa: E402

CASES = {
    "test_windows": {
        "ProfilerApi": ("the_work_between_start_and_stop", "a_window_that_is_open_when_the_program_returns",
                        "a_start_in_an_open_window_and_a_stop_in_none_change_nothing", "several_windows"),
        "Always": ("everything",),
        "Launch": ("exactly_those_launches", "eight_threads", "again_and_again"),
        "OwnApi": ("a_window", "before_cuda_is_initialised", "what_is_flushed_outlives_a_program_that_is_cut_off"),
        "Graphs": ("every_kernel_of_a_graph", "a_capture_in_a_window_runs_nothing", "edges_inside_a_capture",
                   "a_graph_between_the_edges_of_captures"),
        "Concurrency": ("several_streams", "32_threads", "windows_over_threads_that_launch_without_pause"),
        "Tables": ("launch_shapes",)},
    "test_triggers": {
        "Ranges": ("the_work_in_a_range", "as_an_api_window_at_the_same_calls", "start_on_one_thread_and_end_on_another",
                   "a_range_around_the_initialisation_of_cuda", "every_iteration"),
        "Signals": ("each_signal_toggles",)},
    "test_nvtx": {"Ranges": ("nested_ranges", "threads_have_paths_of_their_own")},
    "test_libraries": {
        "Attribution": ("a_runtime_call_that_launches",),
        "Products": ("a_batch_with_a_matrix_in_common", "tf32_is_allowed_by_the_program_and_the_environment")},
    "test_graphs": {"Owed": ("graphs_without_gpu_work", "a_graph_within_a_graph", "sizes_of_0")},
    "test_memory": {"Allocations": ("before_in_and_after_a_window", "frees_of_what_no_hook_has_seen")},
    "test_endings": {"LastWindow": ("of_a_number_of_launches",)},
}
# On an H200 (driver 580.159.04, CUDA 13.0, 2026-11-23) no kernel was recorded in these, and the program ended as it does without us.
# Probably CUDA refuses the capture, which the simulation allows: cudaProfilerStart in one, or an empty graph's launch.
DIFFERENT = {"edges_inside_a_capture", "a_graph_between_the_edges_of_captures", "a_graph_within_a_graph"}
# Operations of the program that control the simulation.
SWITCHES = {"fault", "duration", "until_calls", "until_delivered", "until_sampling"}
on_the_simulation = simulated.SimulatedTest.script


def script(test, text, program="cuda", env=None, **how):
    """Replaces SimulatedTest.script."""
    used = sorted({word.split(":")[0] for word in text.split()} & SWITCHES | {name for name in ("faults", "devices") if name in how})
    if used:
        test.skipTest("needs the simulation's " + ", ".join(used))
    if program != "cuda":
        test.skipTest(f"script_{program} has no kernels of real code")
    # Lazy loading can't load a kernel while a stream captures.
    env = {**({"CUDA_MODULE_LOADING": "EAGER"} if "capture:" in text else {}), **(env or {})}
    return on_the_simulation(test, text, env=env, **how)


def program_folder(library):
    for folder in (os.path.dirname(library), os.path.dirname(os.path.dirname(library))):
        if os.access(os.path.join(folder, "tests", "gpu", "contract", "script_cuda"), os.X_OK):
            return pathlib.Path(folder, "tests", "gpu", "contract")
    return None


def run_case(report, module, group, name):
    found = unittest.TestResult()
    case = getattr(importlib.import_module(module), group)("test_" + name)
    case.run(found)
    what = f"{module} {group}: {name.replace('_', ' ')}"
    wrong = [(str(where), text) for where, text in found.failures + found.errors]
    report.data[what] = {"wrong": wrong, "skipped": [(str(where), why) for where, why in found.skipped]}
    for reason in sorted({why for _, why in found.skipped}):
        report.skip(what, reason)
    if wrong and name in DIFFERENT:
        report.skip(what, "differs on the real CUDA, which probably refuses the capture")
    elif wrong:
        report.check(what, False, f"{len(wrong)}: {' '.join(wrong[0][1].split())[-300:]}")
    elif not any(where is case for where, _ in found.skipped):
        report.check(what, True)


def test(options, report):
    simulated.library, simulated.programs = pathlib.Path(options.library), program_folder(options.library)
    simulated.simulation = ":".join(map(os.path.abspath, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))))
    if simulated.programs is None:
        print("contract: SKIPPED: the program is not built: there was no nvcc")
        sys.exit(SKIPPED)
    simulated.SimulatedTest.script = script
    for module, groups in CASES.items():
        for group, names in groups.items():
            for name in names:
                report.guarded(f"{module} {group}: {name}", run_case, report, module, group, name)


if __name__ == "__main__":
    main("contract", test)
