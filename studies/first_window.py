# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/measurements.md, "The first window": tests/gpu/run_all.sh -t 600 first_window

What the first ten profiled steps of a program take, under nothing, under the best client that CUPTI allows
(programs/floor_client.cpp), under libinject, and under torch.profiler, for the programs of programs/launch_bound.py.

Every arm is a server: a Python process that has imported PyTorch and forks a child for each run, before CUDA starts, so that a
run takes seconds. The children of all arms build the program at the same time and then take their steps in turn, the others idle:
all of them at once, or --turn of them, so that the machine has no time to change between arms.
A child takes STEPS steps and notes each one's times. The window is the ten steps from START on (libinject finds them by itself;
which steps it took is read from run.json), and what it is compared with are the same steps of the runs under nothing (of the first
arm), not the steps beside the window. Processes of one program differ by more than profilers do, so each process's steps are also scaled by its own steps
before CUPTI comes (BASELINE): the second ratio is of these.

The program `graph` is left out unless asked for: a replay of its graph was taken for an iteration, so that its windows are
not those of the steps (docs/measurements.md).
"""

import argparse
import bisect
import csv
import ctypes
import glob
import json
import mmap
import os
import random
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "tests", "gpu"))
sys.path.append(os.path.join(HERE, "programs"))

START, COUNT, STEPS = 60, 10, 90  # COUNT is set by set_count()
REHEARSAL = range(45, 50)
BASELINE = range(15, 35)  # no arm has CUPTI attached yet
PROGRAMS = ("mlp", "language", "convolutions", "recurrent", "actor", "unet", "critic")

# Variables of a server's environment, in addition to INJECT_OUT and the window.
OURS = {
    "ours": {},
    "ours_memory": {"INJECT_RECOVER": "0"},
    "ours_no_api": {"INJECT_API": "off"},
    "ours_idle": {"INJECT_WINDOW": "iter:1000000+1"},
    "ours_metrics": {"INJECT_METRICS": "auto"},
    "ours_fifth": {"INJECT_WINDOW": "iter:{start}+{count}/20x5"},
}
ARMS = ("none", "floor", "floor_rehearsed", "floor_kernels", "floor_callbacks", "profiler", "profiler_cpu", "proton", *OURS)


# --- a run -----------------------------------------------------------------------------------------------------------

class Floor:
    """The floor client's calls at the corresponding steps."""

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
        # As its schedule does: the tracer is prepared some steps ahead.
        if step == REHEARSAL.start:
            self.profile.prepare_trace()
        if step == START:
            self.profile.start_trace()
        if step == START + COUNT:
            self.profile.stop_trace()

    def end(self):
        return {}


class Proton:
    """Triton's profiler around the window's steps, as in its guide: kernels by CUPTI, one session."""

    def __init__(self, folder):
        import triton.profiler
        self.proton, self.path = triton.profiler, os.path.join(folder, f"proton-{os.getpid()}")

    def before(self, step):
        if step == START:
            self.session = self.proton.start(self.path, backend="cupti")
        if step == START + COUNT:
            self.proton.deactivate(self.session)

    def end(self):
        self.proton.finalize(self.session)
        return {}


class Nothing:
    def before(self, step):
        pass

    def end(self):
        return {}


def threads():
    """{thread: (name, CPU time in ns, page faults)} of this process."""
    found = {}
    for task in glob.glob("/proc/self/task/*"):
        try:
            with open(task + "/comm") as comm, open(task + "/schedstat") as times, open(task + "/stat") as stat:
                found[task] = comm.read().strip(), int(times.read().split()[0]), int(stat.read().rpartition(")")[2].split()[7])
        except OSError:  # it has ended
            pass
    return found


def by_name(before, after, steps):
    """{name: [threads, CPU time in us, page faults]} per step, between the two readings."""
    found = {}
    for task, (name, time_ns, faults) in after.items():
        _, earlier_ns, earlier_faults = before.get(task, (name, 0, 0))
        if time_ns == earlier_ns:
            continue
        one = found.setdefault(name, [0, 0.0, 0.0])
        one[0] += 1
        one[1] += round((time_ns - earlier_ns) / 1e3 / steps, 1)
        one[2] += round((faults - earlier_faults) / steps, 1)
    return found


def own_pages():
    """Makes the pages that a child shares with its parent its own: a program that is not forked has no faults for them."""
    populate_write = 23  # MADV_POPULATE_WRITE
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        private = [line.split()[0] for line in maps.read().splitlines() if line.split()[1] == "rw-p"]
        for begin, end in ([int(edge, 16) for edge in one.split("-")] for one in private):
            pagemap.seek(begin // page * 8)
            entries = pagemap.read((end - begin) // page * 8)
            there = [at for at in range(len(entries) // 8) if entries[8 * at + 7] & 0x80]
            for at in there:
                libc.madvise(ctypes.c_void_p(begin + at * page), ctypes.c_size_t(page), populate_write)


def take_steps(request, arm, options, wait_for_turn):
    own_pages()
    import launch_bound
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)  # a child lacks the threads that OpenMP had in the parent
    client = Nothing()
    if arm.startswith("floor"):
        client = Floor(arm, options.floor, options.cupti)
    elif arm.startswith("profiler"):
        client = Profiler(arm)
    elif arm == "proton":
        client = Proton(tempfile.mkdtemp())
    step = launch_bound.PROGRAMS[request["program"]](options.device)
    step()
    count = options.steps
    begin, end, faults, cpu = ([0] * count for _ in range(4))
    edges = []
    usage, monotonic, process = resource.getrusage, time.monotonic_ns, time.process_time_ns
    for at in range(count):
        if at % options.turn == 0:
            wait_for_turn()
        client.before(at)
        if at in (max(START - COUNT, 1), START, START + COUNT):
            edges.append(threads())
        before, spent = usage(resource.RUSAGE_SELF).ru_minflt, process()
        begin[at] = monotonic()
        step()
        end[at] = monotonic()
        cpu[at] = process() - spent
        faults[at] = usage(resource.RUSAGE_SELF).ru_minflt - before
    if options.device == "cuda":
        torch.cuda.synchronize()
    found = client.end()
    return {"begin": begin, "end": end, "faults": faults, "cpu": cpu, "pid": os.getpid(), **found,
            "threads_before": by_name(edges[0], edges[1], START - max(START - COUNT, 1)), "threads": by_name(edges[1], edges[2], COUNT)}


def serve(arm, options):
    """Lines of JSON on stdin, with an answer to each on stdout."""
    set_count(options.count)
    if options.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.cpus])
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

            def wait_for_turn(writing=writing, go=go):
                os.write(writing, b"\n")
                os.read(go, 1)

            try:
                answer = take_steps(request, arm, options, wait_for_turn)
            except Exception as error:  # noqa: BLE001 (whatever it is belongs to the answer)
                answer = {"failed": f"{type(error).__name__}: {error}"[:500], "pid": os.getpid()}
            with os.fdopen(writing, "w") as file:
                json.dump(answer, file)
            sys.exit(0)  # not os._exit: the library writes its tables at a program's end
        os.close(writing)
        os.close(go)
        with os.fdopen(reading) as file:
            while (line := file.readline()) == "\n":
                print(json.dumps({"waits": True}), file=answers, flush=True)
                sys.stdin.readline()
                os.write(said_go, b"g")
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
        argv = [sys.executable, os.path.abspath(__file__), "--serve", self.arm, "--device", options.device, "--steps", str(options.steps), "--count", str(options.count),
                "--turn", str(options.turn), "--cpus", str(options.cpus), "--floor", options.floor or "", "--cupti", options.cupti or ""]
        self.process = subprocess.Popen(argv, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        start_new_session=True)

    def answer(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line else {"failed": f"no answer in {seconds} s"}

    def build(self, program):
        print(json.dumps({"program": program}), file=self.process.stdin, flush=True)

    def wait_built(self):
        self.told = self.answer(60)

    def take_turn(self, seconds=40):
        """Runs the child's steps up to the next turn. True: it has finished, and `told` is its answer."""
        if "waits" in self.told:
            print("go", file=self.process.stdin, flush=True)
            self.told = self.answer(seconds)
        if "waits" in self.told:
            return False
        if "pid" not in self.told:
            self.kill()
            self.start()
            self.answer(60)
        return True

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


FIGURES = ("Step Time (ns)", "Step Time in Window (ns)", "GPU Utilization (%)", "Launch-bound (%)", "Profiler Overhead (%)",
           *(f"{name} w/o Overhead{end} (%)" for name in ("Utilization", "Launch-bound") for end in ("", " Low", " High")))
SAMPLED = ("GPU Utilization (%)", *(f"Utilization w/o Overhead{end} (%)" for end in ("", " Low", " High")))


def table_rows(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def output_folder(options, arm, pid):
    found = glob.glob(os.path.join(options.work, f"{arm}-{pid}"))
    return found[0] if found else None


def window_steps(answer, window, zero):
    """The steps inside a window. An iteration begins at a launch, which may be slightly later than the step that makes it. `zero`:
    run.json's time_zero, by CLOCK_MONOTONIC."""
    middle = [(b + e) // 2 - zero for b, e in zip(answer["begin"], answer["end"])]
    return [at for at, time_ in enumerate(middle) if window["start_ns"] <= time_ < window["end_ns"]]


def read_ours(options, arm, answer):
    """Adds to `answer` the steps in the windows, and the numbers of kernels and calls."""
    folder = output_folder(options, arm, answer["pid"])
    if folder is None:
        answer["windows"] = []
        return
    with open(os.path.join(folder, "run.json")) as file:
        run = json.load(file)
    answer["windows"] = [window_steps(answer, window, run["time_zero"]["clock_monotonic_ns"]) for window in run.get("windows", [])]
    answer["trigger"] = run.get("windows", [{}])[0]
    zero = run["time_zero"]["clock_monotonic_ns"]
    answer["unprofiled"] = [at for row in table_rows(folder, "step_times.csv")
                            for at in window_steps(answer, {"start_ns": int(row["Start (ns)"]),
                                                            "end_ns": int(row["Start (ns)"]) + int(row["Duration (ns)"])}, zero)]
    for row in table_rows(folder, "window_sum.csv"):
        if row["Device"] == "all" and row["Window"] == "1":
            answer["figures"] = {name: float(row[name]) for name in FIGURES if row.get(name)}

    def total(name, column):
        return sum(int(row[column] or 0) for row in table_rows(folder, name))
    steps = sum(len(one) for one in answer["windows"]) or 1
    answer["kernels"] = total("cuda_gpu_kern_sum.csv", "Instances") / steps
    answer["calls"] = total("cuda_api_sum.csv", "Num Calls") / steps


class Sampler:
    """A process, concurrent with all arms, that samples the share of time in which the GPU's compute engine is active."""

    METRIC = "gr__cycles_active.avg.pct_of_peak_sustained_elapsed"

    def __init__(self, options, environment):
        self.folder = os.path.join(options.work, "sampler")
        self.log = open(os.path.join(options.out, "sampler.log"), "a")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "programs", "device_sampler.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True,
            env={**environment, "LD_PRELOAD": options.library, "INJECT_OUT": self.folder, "INJECT_WINDOW": "api", "INJECT_METRICS": self.METRIC,
                 "INJECT_METRICS_TIMELINE": "1", "INJECT_SUMMARY": "off"})
        self.process.stdout.readline()

    def tell(self, what):
        print(what, file=self.process.stdin, flush=True)
        self.process.stdout.readline()

    def close(self):
        """[(begin, end, share)], by CLOCK_MONOTONIC."""
        self.process.stdin.close()
        self.process.wait(60)
        self.log.close()
        with open(os.path.join(self.folder, "run.json")) as file:
            zero = json.load(file)["time_zero"]["clock_monotonic_ns"]
        rows = table_rows(self.folder, "metric_samples.csv")
        column = list(rows[0])[-1] if rows else ""
        return [(int(row["Start (ns)"]) + zero, int(row["End (ns)"]) + zero, float(row[column])) for row in rows if row[column]]


# By how much longer the engine is active than a kernel runs: from kernels that spin for 2, 10 and 50 us at given times.
ENGINE_US = 1.6


def stretches(steps):
    """[(first, last)] of runs of consecutive steps."""
    found = []
    for at in sorted(steps):
        if found and found[-1][1] == at - 1:
            found[-1][1] = at
        else:
            found.append([at, at])
    return found


def kernel_share(samples, run, steps):
    """Percent of these steps in which a kernel ran, from the engine's activity; None if less than nine tenths of it was sampled."""
    sampled = active = whole = kernels = 0
    for first, last in stretches(steps):
        if last + 1 >= len(run["begin"]):
            last -= 1
        begin, end = run["begin"][first], run["begin"][last + 1]
        whole += end - begin
        kernels += run["kernels"] * (last + 1 - first)
        first_after = bisect.bisect_right(samples, begin, key=lambda sample: sample[1])
        for low, high, share in samples[first_after:bisect.bisect_left(samples, end, key=lambda sample: sample[0])]:
            inside = min(high, end) - max(low, begin)
            if inside > 0:
                sampled += inside
                active += inside * share
    return active / sampled - 100 * kernels * ENGINE_US * 1e3 / whole if whole and sampled >= 0.9 * whole else None


def set_count(count):
    global COUNT
    COUNT = count


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
    """(median, low, high) of an arm's window relative to the same steps under nothing: rounds are drawn, each with its pair. `of`: the
    statistic of the steps, step_ms() or median_ms()."""
    pairs = []
    for number, run in runs.items():
        if number in none and run.get("steps"):
            pairs.append(of(run, run["steps"]) / of(none[number], run["steps"]))
    if not pairs:
        return None
    return interval(lambda: statistics.median(random.choices(pairs, k=len(pairs))))


def own_scale(run, steps):
    """The steps' mean, relative to the median of the same process's steps before CUPTI is attached."""
    return step_ms(run, steps) / median_ms(run, BASELINE)


def by_position(runs, none):
    """[the step's time at each place from ten before the window to five after it, by own_scale(), relative to that without a profiler]."""
    rows = []
    for number, run in runs.items():
        if number in none and run.get("steps"):
            first, last = run["steps"][0] - 10, min(run["steps"][-1] + 6, len(run["end"]))
            rows.append([own_scale(run, [at]) / own_scale(none[number], [at]) for at in range(first, last)])
    return [round(statistics.median(column), 3) for column in zip(*rows)]


def of_floor(runs, floor, of):
    """The ratio of `of` for an arm's window to that for the floor's, for each round that has both."""
    return [of(run, run["steps"]) / of(floor[number], floor[number]["steps"]) for number, run in runs.items() if number in floor and run.get("steps")]


def against_floor(runs, floor):
    """(median, low, high) of an arm's window relative to the floor's in the same round, by own_scale()."""
    pairs = of_floor(runs, floor, own_scale)
    return interval(lambda: statistics.median(random.choices(pairs, k=len(pairs)))) if pairs else None


def over_programs(data, arm, of):
    """(median, low, high): the median over programs of each one's median over rounds, relative to the floor. Rounds are drawn within their
    program, since the result is for these programs. None if the arms have no round in common."""
    pairs = [found for runs in data.values() if (found := of_floor(runs.get(arm, {}), runs.get("floor", {}), of))]
    return interval(lambda: statistics.median(statistics.median(random.choices(one, k=len(one))) for one in pairs)) if pairs else None


def print_over_programs(data, arms):
    for arm in arms:
        if arm != "floor" and (found := over_programs(data, arm, step_ms)):
            print("median over programs, {} of the floor: {:.3f} ({:.3f} ... {:.3f}), by own steps before {:.3f} ({:.3f} ... {:.3f})".format(
                arm, *found, *over_programs(data, arm, own_scale)))


def unprofiled_ratio(runs, none):
    """(median, low, high) of the steps that ran without CUPTI, by the program's own times, relative to the same steps under nothing."""
    pairs = [median_ms(run, run["unprofiled"]) / median_ms(none[number], run["unprofiled"]) for number, run in runs.items()
             if number in none and run.get("unprofiled")]
    return interval(lambda: statistics.median(random.choices(pairs, k=len(pairs)))) if pairs else None


def table_ratios(runs):
    """The step time in the tables, relative to the program's own for the same steps, run by run."""
    found = []
    for run in runs.values():
        if run.get("unprofiled") and "Step Time (ns)" in run.get("figures", {}):
            own = statistics.median(run["begin"][at + 1] - run["begin"][at] for at in run["unprofiled"] if at + 1 < len(run["begin"]))
            found.append(run["figures"]["Step Time (ns)"] / own)
    return found


def of_threads(run, own):
    """(CPU milliseconds, page faults) per step in the window: of our thread, or of those that launch."""
    rows = [row for name, row in run["threads"].items() if (name == "libinject") == own and not name.startswith("cuda-Evt")]
    return sum(row[1] for row in rows) / 1e3, sum(row[2] for row in rows)


def summarise(data, programs, arms):
    rows = []
    for program in programs:
        runs = data.get(program, {})
        none = runs.get(arms[0], {})
        if not none:
            continue
        window = range(START, START + COUNT)
        bare = statistics.median(step_ms(run, window) for run in none.values())
        row = {"program": program, "runs": len(none), "none_ms": round(bare, 3)}
        ours = [run for arm in OURS for run in runs.get(arm, {}).values() if run.get("kernels")]
        if ours:
            row["kernels"] = round(statistics.median(run["kernels"] for run in ours))
            row["calls"] = round(statistics.median(run["calls"] for run in ours))
        if found := unprofiled_ratio(runs.get("ours", {}), none):
            row["step_time"] = [round(value, 4) for value in found]
            row["step_time_of_own"] = [round(value, 4) for value in sorted(table_ratios(runs["ours"]))]
        known = [run["figures"] for run in runs.get("ours", {}).values() if run.get("figures")]
        row["figures"] = {name: round(statistics.median(values), 2) for name in FIGURES if (values := [one[name] for one in known if name in one])}
        row["sampled"] = [[round(run["figures"].get(name, float("nan")), 1) for name in SAMPLED] + [round(share, 1) for share in run["sampled"]]
                          for run in runs.get("ours", {}).values() if run.get("figures") and None not in run.get("sampled", [None])]
        for arm in arms:
            if arm != arms[0] and (found := ratio(runs.get(arm, {}), none, step_ms)):
                row[arm] = [round(value, 3) for value in found]
                row[arm + "_median"] = [round(value, 3) for value in ratio(runs[arm], none, median_ms)]
                row[arm + "_scaled"] = [round(value, 3) for value in ratio(runs[arm], none, own_scale)]
                row[arm + "_positions"] = by_position(runs[arm], none)
                if found := against_floor(runs[arm], runs.get("floor", {})):
                    row[arm + "_of_floor"] = [round(value, 3) for value in found]
            of_arm = [run for run in runs.get(arm, {}).values() if run.get("steps")]
            if of_arm:
                row[arm + "_faults"] = round(statistics.median(sum(run["faults"][at] for at in run["steps"]) / len(run["steps"]) for run in of_arm), 1)
                for whose, own in (("launching", False), ("our", True)):
                    row[f"{arm}_{whose}"] = [round(statistics.median(found), 2) for found in zip(*(of_threads(run, own) for run in of_arm))]
                row[arm + "_cpu_ms"] = round(statistics.median(sum(run["cpu"][at] for at in run["steps"]) / len(run["steps"]) for run in of_arm) / 1e6, 3)
        rows.append(row)
    return rows


def print_rows(rows, arms):
    for row in rows:
        print(f"{row['program']}: {row['runs']} runs, {row['none_ms']} ms, {row.get('kernels', '?')} kernels, {row.get('calls', '?')} calls a step")
        for arm in arms:
            if arm in row or arm == arms[0]:
                middle, low, high = row.get(arm, (1, 1, 1))
                extra = (middle - 1) * row["none_ms"] * 1e3 / row["kernels"] if row.get("kernels") else float("nan")
                steps = row.get(arm + "_median", [1])[0]
                print(f"   {arm:16} {middle:6.3f} x ({low:.3f} ... {high:.3f})  median step {steps:6.3f} x  {extra:6.2f} us a kernel  {row[arm + '_faults']:7.1f} faults  "
                      f"{row[arm + '_cpu_ms']:8.3f} ms of processor a step")
                if arm + "_scaled" in row:
                    print("      by its own steps before: {:.3f} x ({:.3f} ... {:.3f})".format(*row[arm + "_scaled"]), end="")
                    print(", of the floor {:.3f} ({:.3f} ... {:.3f})".format(*row[arm + "_of_floor"]) if arm + "_of_floor" in row else "")
                    print("      steps from ten before the window on:", *row[arm + "_positions"])
                print("      launching threads {} ms, {} faults; our thread {} ms, {} faults".format(*row[arm + "_launching"], *row[arm + "_our"]))
        if "step_time" in row:
            print("   steps without CUPTI, of the same steps under nothing: {:.3f} ({:.3f} ... {:.3f})".format(*row["step_time"]))
            own = row["step_time_of_own"]
            print(f"   step time in the tables, of the program's own of the same steps: {own[0]} ... {own[-1]}" if own else "   no step time in the tables")
        for raw, without, low, high, bare, window in row["sampled"]:
            print(f"   a kernel runs in the window for {raw} % (sampled {window}), without the profiler {without} ({low} ... {high}; sampled {bare}: {without - bare:+.1f})")
        if row["figures"]:
            print("   " + ", ".join(f"{name} {value}" for name, value in row["figures"].items()))


def collect(options, environment_of):
    """{program: {arm: {round: run}}}, until the time is up."""
    arms, programs = options.arms.split(","), options.programs.split(",")
    deadline = time.monotonic() + options.seconds
    servers = {arm: Server(arm, options, environment_of(arm)) for arm in arms}
    sampler = Sampler(options, environment_of("none")) if options.sample else None
    data = {program: {arm: {} for arm in arms} for program in programs}
    failures = []
    for arm, server in servers.items():
        answer = server.answer(120)
        if "ready" not in answer:
            failures.append(f"{arm}: {answer.get('failed')}")
    print(f"servers ready after {options.seconds - deadline + time.monotonic():.0f} s", flush=True)
    number, longest = read_earlier(options.earlier, data), 0
    with open(os.path.join(options.out, "first_window_runs.jsonl"), "w") as file:
        while len(failures) < 20:
            for program in programs:
                began = time.monotonic()
                if began + longest > deadline:
                    return finish(servers, sampler, data, failures)
                for server in servers.values():
                    server.build(program)
                for server in servers.values():
                    server.wait_built()
                if sampler is not None:
                    sampler.tell("start")
                waiting = arms[number % len(arms):] + arms[:number % len(arms)]
                while waiting:
                    waiting = [arm for arm in waiting if not servers[arm].take_turn()]
                if sampler is not None:
                    sampler.tell("stop")
                for arm in arms:
                    run = servers[arm].told
                    note_run(options, program, arm, number, run, data, failures)
                    print(json.dumps({"program": program, "arm": arm, "round": number, **run}), file=file, flush=True)
                longest = max(longest, time.monotonic() - began)
                print(f"round {number}, {program}: {time.monotonic() - began:.0f} s", flush=True)
            number += 1
    return finish(servers, sampler, data, failures)


def read_earlier(paths, data):
    """Adds the runs of earlier calls, appending each call's rounds to the previous ones. Returns the first free round."""
    free = 0
    for path in paths:
        first = free
        with open(path) as file:
            for run in map(json.loads, file):
                free = max(free, first + run["round"] + 1)
                if run.get("steps") and run["arm"] in data.get(run["program"], {}):
                    data[run["program"]][run["arm"]][first + run["round"]] = run
    return free


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


def finish(servers, sampler, data, failures):
    for server in servers.values():
        server.close()
    if sampler is not None:
        samples = sampler.close()
        for runs in data.values():
            for run in runs.get("ours", {}).values():
                if run.get("unprofiled") and run.get("steps"):
                    run["sampled"] = [kernel_share(samples, run, steps) for steps in (run["unprofiled"], run["steps"])]
    return data, failures


def test(options, report):
    from gputest import clean_environment
    folder = os.path.dirname(options.library)
    for name in ("studies/libfloor_client.so", "libfloor_client.so"):
        if os.path.exists(os.path.join(folder, name)):
            options.floor = os.path.join(folder, name)
    options.cupti = options.cupti or "libcupti.so.13"
    set_count(options.count)
    options.others = dict(other.split("=", 1) if "=" in other else ("other", other) for other in options.other)
    OURS.update(dict.fromkeys(options.others, {}))

    def environment_of(arm):
        environment = clean_environment()
        if arm in OURS:
            window = OURS[arm].get("INJECT_WINDOW", "iter:{start}+{count}").format(start=START, count=COUNT)
            environment.update(OURS[arm], INJECT_WINDOW=window, LD_PRELOAD=options.others.get(arm, options.library), INJECT_SUMMARY="off",
                               INJECT_OUT=os.path.join(options.work, f"{arm}-%p"))
        return environment

    data, failures = collect(options, environment_of)
    arms = options.arms.split(",")
    rows = summarise(data, options.programs.split(","), arms)
    print_rows(rows, arms)
    print_over_programs(data, arms)
    for failure in failures[:10]:
        print("  ", failure)
    report.data["rows"] = rows
    report.check("every run ended well and had its window", not failures, f"{len(failures)} did not")


def arguments(parser):
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--arms", default="none,floor,floor_rehearsed,ours",
                        help="of " + ",".join(ARMS) + ", and those of --other; the others are compared with the first one")
    parser.add_argument("--seconds", type=float, default=500, help="no round begins that might end later")
    parser.add_argument("--earlier", default=[], nargs="*", metavar="RUNS", help="first_window_runs.jsonl of earlier calls: their rounds count as well")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--count", type=int, default=COUNT, help="steps of the window")
    parser.add_argument("--turn", type=int, default=1_000_000, help="steps that an arm takes before it is another's turn")
    parser.add_argument("--cpus", type=int, default=0, help="the arms run on so many processors, the same ones (0: on all)")
    parser.add_argument("--sample", action="store_true", help="sample the GPU's activity, for the arm `ours`, from another process")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--floor", help=argparse.SUPPRESS)
    parser.add_argument("--other", default=[], action="append", metavar="[NAME=]LIBRARY",
                        help="another build of the library, as the arm NAME (other); may be repeated")
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
