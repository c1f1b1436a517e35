#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Random programs with random options and faults: every folder satisfies the rules of `inject check` (docs/check.md).

usage: test_random_runs.py LIBRARY PROGRAMS SIMULATION INJECTCTL [--without GROUP]... [--runs N] [--seed FIRST]

A run is determined by its seed. A failing run is printed with its seed, and as the command line that repeats it alone.
"""

import collections
import pathlib
import random
import shlex
import shutil
import subprocess
import sys

import sanitized
import simulated
from libinject.check.check import findings  # found through promises.py, which simulated.py has imported
from libinject.check.rules import ERROR
from libinject.result import BadFile


def taken(name, default):
    """The value of an option of this script, which is removed from the command line."""
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


injectctl = pathlib.Path(sys.argv.pop(4)).resolve()
absent = set()
while (group := taken("--without", None)) is not None:
    absent.add(group)
first_seed = taken("--seed", None)
runs = int(taken("--runs", 24 if first_seed is None else 1))
first_seed = int(first_seed or 1)

KERNELS = ("k", "ampere_sgemm_128x64_nn", "vectorized_elementwise_kernel", "reduce_kernel", "multi_tensor_apply_kernel",
           "batch_norm_backward", "flash_fwd_kernel")
LIBRARY_CALLS = {
    "cublas": ("gemm", "gemm:3", "sgemm", "batched", "vectors", "pedantic", "complex_int8"),
    "cudnn": ("conv:forward", "conv:data:4", "conv:filter", "conv:fused", "use:forward:4", "use:attention:2", "use:matmul:8", "rnn:forward",
              "norm:training", "norm:backward", "execute:p"),
    "nccl": ("nccl:AllReduce:A:1000", "nccl:AllGather:A:4096", "nccl:ReduceScatter:B:100:9", "nccl:Broadcast:B:70000:7:0",
             "group_start nccl:AllReduce:A:7 nccl:AllReduce:A:9 group_end", "nccl:Send:A:1000:0:1"),
}
CUPTI_CALLS = ("cuptiSubscribe", "cuptiUnsubscribe", "cuptiFinalize", "cuptiActivityEnable", "cuptiActivityDisable",
               "cuptiActivityFlushAll", "cuptiActivityRegisterCallbacks", "cuptiActivityRegisterTimestampCallback",
               "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords", "cuptiEnableCallback", "cuptiGetGraphNodeId",
               "cuptiPmSamplingEnable", "cuptiPmSamplingSetConfig", "cuptiPmSamplingStart", "cuptiPmSamplingDecodeData",
               "cuptiPmSamplingStop", "cuptiDeviceGetChipName")
CUDA_CALLS = ("cudaMemcpy", "cudaMemcpyAsync", "cudaMemsetAsync", "__cudaLaunchKernel", "cudaGraphLaunch", "cudaDeviceSynchronize",
              "cublasGemmEx", "cublasSgemm", "cudnnConvolutionForward", "ncclAllReduce")
KILL = "crash:KILL"


class Plan:
    """The result of a seed: a program, libinject's options, the simulation's faults."""

    def __init__(self, seed):
        self.seed = seed
        self.chance = random.Random(seed)
        self.devices = self.chance.choice((1, 2, 2, 3))
        self.options = {"OUT": "out", "SUMMARY": "off"}
        self.faults = []
        self.ranges = 0
        self.choose_options()
        self.choose_faults()
        self.kill = self.likely(0.1)
        self.words = self.program().split()
        if self.kill:
            # Not before a window may have opened, and as likely in a thread or a loop as elsewhere.
            self.words.insert(self.chance.randrange(len(self.words) // 2, len(self.words) + 1), KILL)
            self.words = self.outside_of_arguments(self.words)

    def likely(self, share):
        return self.chance.random() < share

    @staticmethod
    def outside_of_arguments(words):
        """A loop is directly followed by its bracket: words that came between them are moved before the loop."""
        for at, word in enumerate(words[:-1]):
            if word == KILL and words[at + 1] == "[":
                words[at - 1], words[at] = word, words[at - 1]
        return words

    def choose_options(self):
        chance, options = self.chance, self.options
        options["TRACE"] = chance.choice(("csv", "csv", "csv,chrome", "chrome", None, None))
        if self.likely(0.3):
            options["API"] = chance.choice(("full", "off"))
        if self.likely(0.25):
            options["METRICS"] = "auto"
            options["METRICS_INTERVAL"] = chance.choice(("100us", "200us", "1ms"))
            options["METRICS_TIMELINE"] = chance.choice(("0", "1"))
        if self.likely(0.3):
            options["BATCH"] = str(chance.choice((1, 7, 64)))
        if self.likely(0.3):
            options["RING"] = chance.choice(("64K", "256K"))
        if self.likely(0.3):
            options["BUFFERS"] = chance.choice(("1M", "2M"))
        if self.likely(0.2):
            groups = ("cudart", "cublas", "cublaslt", "cudnn", "nccl")
            options["HOOKS"] = ",".join(chance.sample(groups, chance.randrange(1, len(groups))))
        if self.likely(0.1):
            options["RECOVER"] = "0"

    def choose_faults(self):
        chance = self.chance
        if self.likely(0.5):
            return
        kinds = ["late=20", f"drop={chance.randrange(1, 50)}", f"repeat={chance.randrange(1, 50)}", f"zero_time={chance.randrange(1, 50)}",
                 f"overwritten_end={chance.randrange(1, 5)}", "out_of_order", "finalize_keeps_nothing", "no_attach_wait", "attach_ms=30",
                 "subscriber_taken", "fatal_error",
                 f"cupti_fail={chance.choice(CUPTI_CALLS)}:{chance.choice((1, 8, 15))}:{chance.randrange(1, 4)}:{chance.randrange(1, 3)}",
                 f"cupti_fail={chance.choice(CUPTI_CALLS)}:{chance.choice((1, 8, 15))}:{chance.randrange(1, 20)}",
                 f"api_fail={chance.choice(CUDA_CALLS)}:{chance.choice((1, 2))}:{chance.randrange(1, 9)}:{chance.randrange(1, 5)}"]
        if "METRICS" in self.options:
            kinds += [f"pm_contrary={chance.randrange(1, 50)}", "pm_buffer=100", "pm_overflow_flag", "pm_overflow_silent", "pm_wall_clock",
                      "pm_no_timer", "pm_enable_ms=20", "pm_decode_ms=5", "pm_silent_pcie"]
        self.faults = chance.sample(kinds, chance.choice((1, 1, 2)))

    def work(self, depth=0):
        """A few operations that submit device work, in ranges and loops."""
        chance, words = self.chance, []
        for _ in range(chance.randrange(1, 6)):
            stream = chance.choice(("0", "own", "own", "3", "4"))
            kind = chance.randrange(12)
            if kind < 4:
                words.append(f"kernel:{chance.choice(KERNELS)}:{chance.randrange(1, 20)}:{stream}:{chance.choice((1, 64, 1000))}:"
                             f"{chance.choice((32, 256, 1024))}")
            elif kind == 4:
                memory = chance.choice((f"{stream}:pageable", stream, ""))
                words.append(f"copy:{chance.choice(('h2d', 'd2h', 'd2d', 'p2p'))}:{chance.choice((4, 4096, 1000000))}:{memory}".rstrip(":"))
            elif kind == 5:
                words.append(chance.choice((f"memset:1000:{stream}", "memset:100000", f"copy2d:256:16:{stream}", "copy3d:64:4:4",
                                            f"memset2d:64:16:{stream}", "runtime_kernel:r:3", "mallocs:3:1000")))
            elif kind == 6:
                words.append(f"graph:g:{stream}")
            elif kind == 7:
                words.append(f"record:e:{stream} await:e:{chance.choice(('3', '4'))}")
            elif kind < 10:
                words.append(chance.choice([call for name, calls in LIBRARY_CALLS.items() if name not in absent for call in calls]))
            elif depth < 2 and kind == 10:
                words.append(f"loop:{chance.randrange(1, 8)} [ {self.work(depth + 1)} ]")
            elif depth < 2:
                self.ranges += 1
                name = f"r{self.ranges % 5}"
                words.append(chance.choice((f"push:{name} {self.work(depth + 1)} pop",
                                            f"domain_push:D:{name} {self.work(depth + 1)} domain_pop:D",
                                            f"range_start:{self.ranges}:{name} {self.work(depth + 1)} range_end:{self.ranges}")))
        if self.likely(0.3):
            words.append(chance.choice(("sync", "stream_sync:3", "busy:200", "sleep:1", "bad_copy", "last_error")))
        return " ".join(words) or "kernel:k"

    def body(self):
        """Work of one thread or several, on one device or several."""
        chance = self.chance
        text = self.work()
        if self.devices > 1 and self.likely(0.4):
            text += f" device:1 {self.work()} device:0"
        if self.likely(0.3):
            name = chance.choice(("name:pt_autograd_0 ", "name:worker ", ""))
            device = f"device:{chance.randrange(self.devices)} "
            text = f"threads:{chance.randrange(2, 5)} [ {name}{device}{text} loop:{chance.randrange(1, 5)} [ {self.work()} ] ]"
        return text

    def every(self, most):
        """A schedule, which a trigger's windows may have."""
        chance = self.chance
        if self.likely(0.4):
            return ""
        return f"/{chance.randrange(2, most)}" + (f"x{chance.randrange(1, 5)}" if self.likely(0.5) else "")

    def program(self):
        chance, options = self.chance, self.options
        text = "capture:3 kernel:k:2:3 kernel:reduce_kernel:1:3 memset:64:3 end_capture:3:g "
        text = "memset:4 " + text  # allocates the memory that must not be allocated while a stream is captured
        text += " ".join(f"duration:{name}:{chance.choice((500, 5000, 50000, 300000))}" for name in KERNELS)
        if "nccl" not in absent:
            text += " comm:A:4 comm:B:2"
        if "cudnn" not in absent:
            text += " plan:p:forward:4"
        trigger = chance.choice(("api", "api", "own", "always", "time", "launch", "launch", "nvtx", "iter", "signal", "auto"))
        if trigger == "api":
            options["WINDOW"] = "api" + (f"x{chance.randrange(1, 4)}" if self.likely(0.3) else "")
            between = self.body() if self.likely(0.5) else chance.choice(("", "sleep:5", "sync"))
            text += f" loop:{chance.choice((1, 1, 3, 20))} [ start {self.body()} stop {between} ]"
            if self.likely(0.2):
                text += f" start {self.body()}"
        elif trigger == "own":
            text += f" loop:{chance.choice((1, 3))} [ open {self.body()} close {self.body()} {chance.choice(('flush', ''))} ]"
        elif trigger == "always":
            options["WINDOW"] = "always"
            text += f" loop:{chance.choice((1, 10))} [ {self.body()} ]"
        elif trigger == "time":
            every = f"/{chance.randrange(30, 60)}ms" if self.likely(0.6) else ""
            options["WINDOW"] = f"time:{chance.randrange(0, 30)}ms+{chance.randrange(5, 30)}ms{every}" + ("x2" if every and self.likely(0.5) else "")
            text += f" loop:{chance.randrange(20, 80)} [ {self.body()} sleep:1 ]"
        elif trigger == "launch":
            count = chance.randrange(1, 30)
            options["WINDOW"] = f"launch:{chance.randrange(0, 30)}+{count}" + self.every(60)
            if "/" in options["WINDOW"]:
                start, _, every = options["WINDOW"].partition("/")
                number, _, most = every.partition("x")
                options["WINDOW"] = f"{start}/{max(int(number), count)}" + (f"x{most}" if most else "")
            text += f" loop:{chance.randrange(1, 30)} [ {self.body()} ] {chance.choice(('kernel:k:3000', ''))}"
        elif trigger == "nvtx":
            domain = self.likely(0.3)
            options["WINDOW"] = ("nvtx:win@D" if domain else "nvtx:win") + self.every(4)
            begin, end = ("domain_push:D:win", "domain_pop:D") if domain else ("push:win", "pop")
            text += f" loop:{chance.randrange(1, 12)} [ {begin} {self.body()} {end} {self.body()} ]"
        elif trigger == "iter":
            count = chance.randrange(1, 6)
            every = f"/{chance.randrange(count, count + 10)}" if self.likely(0.5) else ""
            options["WINDOW"] = f"iter:{chance.randrange(10, 30)}+{count}{every}"
            text += f" loop:{chance.randrange(40, 80)} [ {self.body()} kernel:multi_tensor_apply_kernel:2 sync ]"
        elif trigger == "signal":
            options["WINDOW"] = "signal" + (self.every(4) if self.likely(0.3) else "")
            text += f" loop:{chance.randrange(1, 4)} [ raise:USR2 until_open {self.body()} raise:USR2 until_closed {self.body()} ]"
            if "/" in options["WINDOW"] or "x" in options["WINDOW"]:  # some of the signals have no effect
                text = text.replace("until_open ", "sleep:2 ").replace("until_closed ", "sleep:2 ")
        else:
            text += f" {self.body()} loop:{chance.choice((1, 4))} [ start {self.body()} stop ]"
        return text + chance.choice((" sync", " sync", ""))

    def settings(self):
        """The variables of the run."""
        found = {f"INJECT_{name}": value for name, value in self.options.items() if value is not None}
        found["CUDASIM_DEVICES"] = str(self.devices)
        if self.faults:
            found["CUDASIM_FAULTS"] = ",".join(self.faults)
        return found

    def __str__(self):
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.settings().items())
        return f"{variables} script_cuda {shlex.join(self.words)}"

    def expected_warnings(self):
        """Rules at warning level that this run may break."""
        return {"outlier"} if any(fault.startswith("overwritten_end") for fault in self.faults) else set()


class RandomRuns(simulated.SimulatedTest):
    def check_promises(self):
        """Each run is checked separately."""

    def problems(self, plan):
        """Problems of a run: [(rule, line)]."""
        try:
            # check=False: the comparison with the devices' own record, used in tests of chosen faults, need not hold with arbitrary faults.
            done = self.script(" ".join(plan.words), devices=plan.devices, faults=plan.faults, check=False, **plan.options)
        except subprocess.TimeoutExpired:
            return [("hang", "the program did not end")]
        found = []
        if done.code not in ((0, -9) if plan.kill else (0,)):
            found.append(("status", f"the program ended with {done.code}: {done.stderr[-1000:]}"))
        if done.report.exists() and done.misuse() != 0:
            counts = [line for line in done.report.read_text(encoding="utf-8").splitlines()
                      if line.startswith(("calls_in_callbacks,", "cupti_misuse,", "sampling_misuse,"))]
            found.append(("misuse", "of CUDA or CUPTI: " + " ".join(counts)))
        for folder in done.folders():
            self.folders += 1
            if (folder / "records").exists():
                recovery = subprocess.run([str(injectctl), "recover", str(folder)], capture_output=True, text=True, check=False,
                                          timeout=60 * sanitized.PACE)
                if recovery.returncode != 0:
                    found.append(("recover", recovery.stdout + recovery.stderr))
            try:
                for finding in findings(folder):
                    killed = plan.kill and finding.rule == "state"  # with INJECT_RECOVER=0, or before there were records
                    if finding.severity == ERROR or not killed and finding.rule not in plan.expected_warnings():
                        found.append((finding.rule, str(finding)))
            except BadFile as problem:
                found.append(("readable", str(problem)))
        shutil.rmtree(done.work)
        return found

    def test_random_runs(self):
        failed = collections.Counter()
        self.folders = 0
        for seed in range(first_seed, first_seed + runs):
            plan = Plan(seed)
            found = [(rule, line) for rule, line in self.problems(plan) if rule not in self.may_break]
            if found:
                lines = [line for _, line in found]
                print(f"--seed {seed}: {plan}", *lines[:8], f"({len(lines)} in all)\n", sep="\n  ", flush=True)
                failed.update({rule for rule, _ in found})
        print(f"{runs} runs from seed {first_seed} on left {self.folders} folders", file=sys.stderr)
        self.assertTrue(self.folders > runs / 2 or runs == 1, "too few runs had a window to look at")
        self.assertEqual(failed, {}, f"runs that break a rule, of {runs}; each is printed above")


if __name__ == "__main__":
    simulated.main()
