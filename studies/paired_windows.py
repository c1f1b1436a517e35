# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/measurements.md, "The first window": tests/gpu/run_all.sh -t 400 paired_windows

What a step in a window takes, of the steps before and after that window: WINDOWS windows in one process, so that the machine's
drift from process to process cancels. A process for each arm and program: libinject, other builds of it, and the least that CUPTI
costs (programs/floor_client.cpp), with the CUPTI that the loader finds or with other versions. CUPTI is finalized between two
windows in every arm: libinject keeps it from its second window on if the next one comes within a second, so the program rests for
longer than that after each window. A first window costs more than these do: studies/first_window.py.
"""

import argparse
import ctypes
import gc
import json
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "tests", "gpu"))
sys.path.append(os.path.join(HERE, "programs"))

PROGRAMS = ("language", "convolutions", "recurrent")
START, COUNT, PERIOD = 120, 10, 50
AHEAD, BEHIND = 12, 8  # steps beside a window that attaching and detaching may affect
REST = 1.3  # seconds
OURS = {"ours": {}, "ours_no_api": {"INJECT_API": "off"}, "ours_memory": {"INJECT_RECOVER": "0"}}


# --- the process under test ------------------------------------------------------------------------------------------

class Floor:
    """The floor client's calls at the corresponding steps."""

    def __init__(self, library, cupti):
        self.library, self.cupti = ctypes.CDLL(library), cupti.encode()

    def call(self, name, *arguments):
        failed = getattr(self.library, "floor_" + name)(*arguments)
        if failed:
            raise RuntimeError(f"floor_{name}: {failed}")

    def before(self, place):
        """`place`: of the step, relative to the window's first one."""
        if place == -AHEAD:
            self.call("attach", self.cupti)
            self.call("callbacks")
        elif place == 0:
            self.call("open")
        elif place == COUNT:
            self.call("close")
        elif place == COUNT + 2:
            import torch
            torch.cuda.synchronize()
            self.call("detach")


def child(options):
    import launch_bound
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    client = Floor(options.floor, options.cupti) if options.child.startswith("floor") else None
    step = launch_bound.PROGRAMS[options.programs](options.device)
    count = START + PERIOD * options.windows
    begin, end = [0] * count, [0] * count
    gc.collect()
    gc.disable()  # its pauses would fall on some steps
    for at in range(count):
        if client is not None and at >= START - AHEAD:
            client.before((at - START + AHEAD) % PERIOD - AHEAD)
        if at >= START and (at - START) % PERIOD == COUNT + 3:
            time.sleep(REST)
        begin[at] = time.monotonic_ns()
        step()
        end[at] = time.monotonic_ns()
    print(json.dumps({"begin": begin, "end": end, "pid": os.getpid()}))


# --- what is made of it ----------------------------------------------------------------------------------------------

def ratios(run, windows):
    """A window's median step, relative to the mean of the medians of the steps before and after it, for each window."""
    took = [e - b for b, e in zip(run["begin"], run["end"])]
    found = []
    for steps in windows:
        first, last = steps[0], steps[-1] + 1
        before = took[max(first - (PERIOD - COUNT - BEHIND), 0):first - AHEAD]
        after = took[last + BEHIND:last + PERIOD - COUNT - AHEAD]
        if len(after) >= 5 and len(before) >= 5:
            outside = (statistics.median(before) + statistics.median(after)) / 2
            found.append(statistics.median(took[first:last]) / outside)
    return found


def interval(values, rounds=2000):
    draw = random.Random(1)
    found = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(rounds))
    return [round(value, 4) for value in (statistics.median(values), found[int(0.025 * rounds)], found[int(0.975 * rounds)])]


def test(options, report):
    from first_window import window_steps
    from gputest import clean_environment, run
    folder = os.path.dirname(options.library)
    for name in ("studies/libfloor_client.so", "libfloor_client.so"):
        if os.path.exists(os.path.join(folder, name)):
            options.floor = os.path.join(folder, name)
    libraries = dict(other.split("=", 1) for other in options.other)
    cuptis = dict(other.split("=", 1) for other in options.other_cupti)
    found = {}
    for program in options.programs.split(","):
        for arm in options.arms.split(",") * options.repeat:
            environment = clean_environment()
            out = os.path.join(options.work, f"{arm}-{program}")
            ours = arm in OURS or arm in libraries
            if ours:
                environment.update(OURS.get(arm, {}), LD_PRELOAD=libraries.get(arm, options.library), INJECT_OUT=out + "-%p", INJECT_SUMMARY="off",
                                   INJECT_WINDOW=f"iter:{START}+{COUNT}/{PERIOD}x{options.windows}")
            elif arm in cuptis:
                environment["LD_PRELOAD"] = cuptis[arm]  # otherwise PyTorch would load its own beside it
            command = [sys.executable, os.path.abspath(__file__), "--child", arm, "--programs", program, "--windows", str(options.windows),
                       "--device", options.device, "--floor", options.floor, "--cupti", cuptis.get(arm, "libcupti.so.13")]
            result = run(command, environment, timeout=options.limit, cwd=options.work, log=os.path.join(options.work, f"{arm}-{program}.log"))
            if result.rc != 0:
                report.check(f"{program}, {arm}", False, result.why())
                continue
            child_run = json.loads(result.out.splitlines()[-1])
            windows = [list(range(at, at + COUNT)) for at in range(START, len(child_run["begin"]), PERIOD)]
            if ours:
                with open(f"{out}-{child_run['pid']}/run.json") as file:
                    said = json.load(file)
                zero = said["time_zero"]["clock_monotonic_ns"]
                report.check(f"{program}, {arm}: CUPTI was finalized after every window",
                             said["overhead"]["finalizations"] == len(said["windows"]), str(said["overhead"]))
                windows = [window_steps(child_run, window, zero) for window in said["windows"]]
            found.setdefault(program, {}).setdefault(arm, []).extend(ratios(child_run, [steps for steps in windows if len(steps) == COUNT]))
            outside = statistics.median(e - b for b, e in zip(child_run["begin"][60:100], child_run["end"][60:100])) / 1e6
            print(f"{program} {arm}: {outside:.2f} ms, {len(windows)} windows, {interval(found[program][arm]) if found[program][arm] else None}", flush=True)
    report.data["ratios"] = found
    for program, arms in found.items():
        print(program, *(f"{arm} {'{:.3f} ({:.3f} ... {:.3f})'.format(*interval(values))}, {len(values)}" for arm, values in arms.items() if values), sep="\n   ")
    report.check("every process had windows to compare", all(values for arms in found.values() for values in arms.values()))


def arguments(parser):
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--arms", default="floor,ours", help="floor, " + ", ".join(OURS) + ", and those of --other and --other-cupti")
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=1, help="processes of an arm")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=int, default=90, help="seconds for one process")
    parser.add_argument("--floor", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cupti", default="libcupti.so.13", help=argparse.SUPPRESS)
    parser.add_argument("--other", default=[], action="append", metavar="NAME=LIBRARY", help="another build of the library, as the arm NAME")
    parser.add_argument("--other-cupti", default=[], action="append", metavar="NAME=FILE",
                        help="the floor client with that CUPTI, as the arm NAME, which begins with `floor`")


if __name__ == "__main__":
    if "--child" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--child")
        arguments(parser)
        child(parser.parse_args())
    else:
        from gputest import main
        main("paired_windows", test, modules=("torch",), arguments=arguments)
