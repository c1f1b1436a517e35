# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/measurements.md, "The first window": tests/gpu/run_all.sh -t 600 first_window

What the first ten profiled steps of a program take, under nothing, under the best client that CUPTI allows
(programs/floor_client.cpp), under libinject, and under torch.profiler, for the programs of programs/launch_bound.py.

Every arm is a server: a Python process that has imported PyTorch and forks a child for each run, before CUDA starts, so that a
run takes seconds. The children of all arms build the program at the same time and then take their steps in turn, the others idle.
A child takes STEPS steps and notes each one's times. The window is the ten steps from START on (libinject finds them by itself;
which steps it took is read from run.json), and what it is compared with are the same steps of the runs under nothing, not the steps
beside the window.

The program `graph` is left out unless asked for: its steps take 0.1 ms, and CUPTI is attached 100 ms ahead of a window, so that it
needs some thousands of them (--steps).
"""

import argparse
import ctypes
import glob
import json
import os
import random
import resource
import select
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "tests", "gpu"))
sys.path.append(os.path.join(HERE, "programs"))

START, COUNT, STEPS = 30, 10, 70
REHEARSAL = range(20, 25)
PROGRAMS = ("mlp", "language", "convolutions", "recurrent", "actor", "unet", "critic")

# What the environment of a server has, beside INJECT_OUT.
WINDOW = {"INJECT_WINDOW": f"iter:{START}+{COUNT}"}
OURS = {
    "ours": WINDOW,
    "ours_memory": {**WINDOW, "INJECT_RECOVER": "0"},
    "ours_no_api": {**WINDOW, "INJECT_API": "off"},
    "ours_idle": {"INJECT_WINDOW": "iter:1000000+1"},
    "other": WINDOW,
    "ours_fifth": {"INJECT_WINDOW": f"iter:{START}+{COUNT}/20x5"},
}
ARMS = ("none", "floor", "floor_rehearsed", "floor_kernels", "floor_callbacks", "profiler", "profiler_cpu", *OURS)


# --- a run -----------------------------------------------------------------------------------------------------------

class Floor:
    """The floor client's calls at the steps where they belong."""

    def __init__(self, arm, library, cupti):
        self.arm, self.cupti = arm, cupti.encode()
        self.library = ctypes.CDLL(library)

    def call(self, name, *arguments):
        failed = getattr(self.library, "floor_" + name)(*arguments)
        if failed:
            raise RuntimeError(f"floor_{name}: {failed}")

    def before(self, step):
        if step == REHEARSAL.start:
            self.call("attach", self.cupti)
            if self.arm != "floor_kernels":
                self.call("callbacks")
        if self.arm == "floor_callbacks":
            return
        if step == START or (self.arm == "floor_rehearsed" and step == REHEARSAL.start):
            self.call("open")
        if step == START + COUNT or (self.arm == "floor_rehearsed" and step == REHEARSAL.stop):
            self.call("close")

    def end(self):
        self.call("detach")
        return {"callbacks": ctypes.c_uint64(self.library.floor_count_callbacks()).value}


class Profiler:
    """torch.profiler around the window's steps."""

    def __init__(self, arm):
        from torch.profiler import ProfilerActivity, profile
        kinds = [ProfilerActivity.CUDA] + ([ProfilerActivity.CPU] if arm == "profiler_cpu" else [])
        self.profile = profile(activities=kinds)

    def before(self, step):
        # What its schedule does: the tracer is prepared some steps ahead.
        if step == REHEARSAL.start:
            self.profile.prepare_trace()
        if step == START:
            self.profile.start_trace()
        if step == START + COUNT:
            self.profile.stop_trace()

    def end(self):
        return {}


class Nothing:
    def before(self, step):
        pass

    def end(self):
        return {}


def take_steps(request, arm, options, built):
    import launch_bound
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)  # what OpenMP's threads were in the parent is lost in a child
    client = Nothing()
    if arm.startswith("floor"):
        client = Floor(arm, options.floor, options.cupti)
    elif arm.startswith("profiler"):
        client = Profiler(arm)
    step = launch_bound.PROGRAMS[request["program"]](options.device)
    step()
    built()
    count = options.steps
    begin, end, faults, cpu = ([0] * count for _ in range(4))
    usage, monotonic, process = resource.getrusage, time.monotonic_ns, time.process_time_ns
    for at in range(count):
        client.before(at)
        before, spent = usage(resource.RUSAGE_SELF).ru_minflt, process()
        begin[at] = monotonic()
        step()
        end[at] = monotonic()
        cpu[at] = process() - spent
        faults[at] = usage(resource.RUSAGE_SELF).ru_minflt - before
    if options.device == "cuda":
        torch.cuda.synchronize()
    found = client.end()
    return {"begin": begin, "end": end, "faults": faults, "cpu": cpu, "pid": os.getpid(), **found}


def serve(arm, options):
    """Lines of JSON on stdin, an answer each on stdout."""
    import launch_bound  # noqa: F401
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"ready": arm}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        (reading, writing), (go, said_go) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.close(said_go)

            def built(writing=writing, go=go):
                os.write(writing, b"\n")
                os.read(go, 1)

            try:
                answer = take_steps(request, arm, options, built)
            except Exception as error:  # noqa: BLE001 (whatever it is belongs to the answer)
                answer = {"failed": f"{type(error).__name__}: {error}"[:500], "pid": os.getpid()}
            with os.fdopen(writing, "w") as file:
                json.dump(answer, file)
            sys.exit(0)  # not os._exit: the library writes its tables at a program's end
        os.close(writing)
        os.close(go)
        with os.fdopen(reading) as file:
            line = file.readline()
            if line == "\n":
                print(json.dumps({"built": True}), file=answers, flush=True)
                sys.stdin.readline()
                os.write(said_go, b"g")
                line = ""
            text = line + file.read()
        os.close(said_go)
        _, status = os.waitpid(child, 0)
        answer = json.loads(text) if text else {"failed": "no answer", "pid": child}
        answer["status"] = status
        print(json.dumps(answer), file=answers, flush=True)


# --- the arms in turn ------------------------------------------------------------------------------------------------

class Server:
    def __init__(self, arm, options, environment):
        self.arm, self.options, self.environment = arm, options, environment
        self.log = open(os.path.join(options.out, f"{arm}.log"), "a")
        self.start()

    def start(self):
        options = self.options
        argv = [sys.executable, os.path.abspath(__file__), "--serve", self.arm, "--device", options.device, "--steps", str(options.steps),
                "--floor", options.floor or "", "--cupti", options.cupti or ""]
        self.process = subprocess.Popen(argv, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        start_new_session=True)

    def answer(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line else {"failed": f"no answer in {seconds} s"}

    def build(self, program):
        print(json.dumps({"program": program}), file=self.process.stdin, flush=True)

    def wait_built(self):
        self.built = self.answer(60)

    def run(self, seconds=40):
        answer, self.built = self.built, None
        if "built" in answer:
            print("go", file=self.process.stdin, flush=True)
            answer = self.answer(seconds)
        if "pid" not in answer:
            self.kill()
            self.start()
            self.answer(60)
        return answer

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        self.log.close()


def output_folder(options, arm, pid):
    found = glob.glob(os.path.join(options.work, f"{arm}-{pid}"))
    return found[0] if found else None


def window_steps(answer, window, zero):
    """The steps that lie inside of a window. An iteration begins at a launch, which may be a little later than the step that
    makes it. `zero`: run.json's time_zero, by CLOCK_MONOTONIC."""
    middle = [(b + e) // 2 - zero for b, e in zip(answer["begin"], answer["end"])]
    return [at for at, time_ in enumerate(middle) if window["start_ns"] <= time_ < window["end_ns"]]


def read_ours(options, arm, answer):
    """Adds to `answer` which steps the windows had, how many kernels and calls."""
    folder = output_folder(options, arm, answer["pid"])
    if folder is None:
        answer["windows"] = []
        return
    with open(os.path.join(folder, "run.json")) as file:
        run = json.load(file)
    answer["windows"] = [window_steps(answer, window, run["time_zero"]["clock_monotonic_ns"]) for window in run.get("windows", [])]
    answer["trigger"] = run.get("windows", [{}])[0]

    def total(name, *columns):
        import csv
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            return 0
        with open(path, newline="") as file:
            return sum(int(row[next(c for c in columns if c in row)] or 0) for row in csv.DictReader(file))
    steps = sum(len(one) for one in answer["windows"]) or 1
    answer["kernels"] = total("cuda_gpu_kern_sum.csv", "Instances") / steps
    answer["calls"] = total("cuda_api_sum.csv", "Num Calls") / steps


def step_ms(answer, steps):
    return statistics.fmean(answer["end"][at] - answer["begin"][at] for at in steps) / 1e6


def median_ms(answer, steps):
    return statistics.median(answer["end"][at] - answer["begin"][at] for at in steps) / 1e6


def interval(draw, rounds=2000):
    """The median of `rounds` bootstrap draws, and 95 % of them."""
    random.seed(1)
    values = sorted(draw() for _ in range(rounds))
    return [values[rounds // 2], values[int(rounds * 0.025)], values[int(rounds * 0.975)]]


def ratio(runs, none, of):
    """(median, low, high) of an arm's window against the same steps under nothing: rounds are drawn, each with its pair.
    `of`: what is taken of the steps, step_ms() or median_ms()."""
    pairs = []
    for number, run in runs.items():
        if number in none and run.get("steps"):
            pairs.append(of(run, run["steps"]) / of(none[number], run["steps"]))
    if not pairs:
        return None
    return interval(lambda: statistics.median(random.choices(pairs, k=len(pairs))))


def summarise(data, programs, arms):
    rows = []
    for program in programs:
        runs = data.get(program, {})
        none = runs.get("none", {})
        if not none:
            continue
        window = range(START, START + COUNT)
        bare = statistics.median(step_ms(run, window) for run in none.values())
        row = {"program": program, "runs": len(none), "none_ms": round(bare, 3)}
        ours = [run for arm in OURS for run in runs.get(arm, {}).values() if run.get("kernels")]
        if ours:
            row["kernels"] = round(statistics.median(run["kernels"] for run in ours))
            row["calls"] = round(statistics.median(run["calls"] for run in ours))
        for arm in arms:
            if arm != "none" and (found := ratio(runs.get(arm, {}), none, step_ms)):
                row[arm] = [round(value, 3) for value in found]
                row[arm + "_median"] = [round(value, 3) for value in ratio(runs[arm], none, median_ms)]
            of_arm = [run for run in runs.get(arm, {}).values() if run.get("steps")]
            if of_arm:
                row[arm + "_faults"] = round(statistics.median(sum(run["faults"][at] for at in run["steps"]) / len(run["steps"]) for run in of_arm), 1)
                row[arm + "_cpu_ms"] = round(statistics.median(sum(run["cpu"][at] for at in run["steps"]) / len(run["steps"]) for run in of_arm) / 1e6, 3)
        rows.append(row)
    return rows


def print_rows(rows, arms):
    for row in rows:
        print(f"{row['program']}: {row['runs']} runs, {row['none_ms']} ms, {row.get('kernels', '?')} kernels, {row.get('calls', '?')} calls a step")
        for arm in arms:
            if arm in row or arm == "none":
                middle, low, high = row.get(arm, (1, 1, 1))
                extra = (middle - 1) * row["none_ms"] * 1e3 / row["kernels"] if row.get("kernels") else float("nan")
                steps = row.get(arm + "_median", [1])[0]
                print(f"   {arm:16} {middle:6.3f} x ({low:.3f} ... {high:.3f})  median step {steps:6.3f} x  {extra:6.2f} us a kernel  {row[arm + '_faults']:7.1f} faults  "
                      f"{row[arm + '_cpu_ms']:8.3f} ms of processor a step")


def collect(options, environment_of):
    """{program: {arm: {round: run}}}, until the time is over."""
    arms, programs = options.arms.split(","), options.programs.split(",")
    deadline = time.monotonic() + options.seconds
    servers = {arm: Server(arm, options, environment_of(arm)) for arm in arms}
    data = {program: {arm: {} for arm in arms} for program in programs}
    failures = []
    for arm, server in servers.items():
        answer = server.answer(120)
        if "ready" not in answer:
            failures.append(f"{arm}: {answer.get('failed')}")
    print(f"servers ready after {options.seconds - deadline + time.monotonic():.0f} s", flush=True)
    number, longest = 0, 0
    with open(os.path.join(options.out, "first_window_runs.jsonl"), "w") as file:
        while len(failures) < 20:
            for program in programs:
                began = time.monotonic()
                if began + longest > deadline:
                    return finish(servers, data, failures)
                for server in servers.values():
                    server.build(program)
                for server in servers.values():
                    server.wait_built()
                for arm in arms[number % len(arms):] + arms[:number % len(arms)]:
                    run = servers[arm].run()
                    note_run(options, program, arm, number, run, data, failures)
                    print(json.dumps({"program": program, "arm": arm, "round": number, **run}), file=file, flush=True)
                longest = max(longest, time.monotonic() - began)
                print(f"round {number}, {program}: {time.monotonic() - began:.0f} s", flush=True)
            number += 1
    return finish(servers, data, failures)


def note_run(options, program, arm, number, run, data, failures):
    if run.get("failed") or run.get("status"):
        failures.append(f"{program}, {arm}: {run.get('failed')} (status {run.get('status')})")
        return
    run["steps"] = list(range(START, START + COUNT))
    if arm in OURS:
        read_ours(options, arm, run)
        if arm != "ours_idle":
            wanted = 4 if arm == "ours_fifth" else 0
            run["steps"] = run["windows"][wanted] if len(run["windows"]) > wanted else []
            if len(run["steps"]) != COUNT:
                failures.append(f"{program}, {arm}: window of steps {run['steps']}: {str(run.get('trigger'))[:200]}")
    data[program][arm][number] = run


def finish(servers, data, failures):
    for server in servers.values():
        server.close()
    return data, failures


def test(options, report):
    from gputest import clean_environment
    folder = os.path.dirname(options.library)
    for name in ("studies/libfloor_client.so", "libfloor_client.so"):
        if os.path.exists(os.path.join(folder, name)):
            options.floor = os.path.join(folder, name)
    options.cupti = options.cupti or "libcupti.so.13"

    def environment_of(arm):
        environment = clean_environment()
        if arm in OURS:
            environment.update(OURS[arm], LD_PRELOAD=options.other if arm == "other" else options.library, INJECT_OUT=os.path.join(options.work, f"{arm}-%p"), INJECT_SUMMARY="off")
        return environment

    data, failures = collect(options, environment_of)
    arms = options.arms.split(",")
    rows = summarise(data, options.programs.split(","), arms)
    print_rows(rows, arms)
    for failure in failures[:10]:
        print("  ", failure)
    report.data["rows"] = rows
    report.check("every run ended well and had its window", not failures, f"{len(failures)} did not")


def arguments(parser):
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--arms", default="none,floor,floor_rehearsed,ours", help="of " + ",".join(ARMS))
    parser.add_argument("--seconds", type=float, default=500, help="no round begins that might end later")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--floor", help=argparse.SUPPRESS)
    parser.add_argument("--other", help="another build of the library, for the arm of that name")
    parser.add_argument("--cupti", help="libcupti's file, if not that which the loader finds")


if __name__ == "__main__":
    if "--serve" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--serve")
        arguments(parser)
        served = parser.parse_args()
        serve(served.serve, served)
    else:
        from gputest import main
        main("first_window", test, modules=("torch",), arguments=arguments)
