# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Kernels by operator and module: op_sum.csv and module_sum.csv against torch.profiler's account of the same training in a second
process, whose modules are marked by hooks of the test; FLOPs against torch.utils.flop_counter there. Programs: programs/torch_code.py,
and programs/torch_graph_code.py for what is captured into CUDA graphs."""

import json
import os
import re
import sys

from gputest import clean_environment, main, profiled_environment, read_csv, run
from nccl_ddp import ENVIRONMENT, device_count, free_port

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "programs", "torch_code.py")
GRAPHS = os.path.join(HERE, "programs", "torch_graph_code.py")
MODELS = ("gaps,resnet50,transformer,deepspeech2,gpt2,gpt2_checkpoint,gpt2_recompute,compiled,varying,fsdp2,graph,graph_lines,"
          "graph_compiled")
WINDOW = 4
DISTRIBUTED = {"fsdp2"}  # on two GPUs; rank 0 is checked
# Minimum share of kernel time with a place if iterations differ from each other.
LEAST = {"varying": 0.9}


def agreement(ours, theirs, times):
    """(share of kernel time whose key agrees by count, differences)."""
    same = total = 0.0
    different = []
    for key in sorted({*ours, *theirs}):
        mine, other = ours.get(key, 0.0), theirs.get(key, 0.0)
        most = max(mine, other)
        weight = times.get(key, 0.0)
        if most == 0:
            continue
        total += weight
        same += weight * min(mine, other) / most
        if mine != other:
            different.append(f"{key}: {mine:g} instead of {other:g} a step")
    return (same / total if total else 0.0), different


def counts(rows, key, times):
    found = {}
    for row in rows:
        if row["Self Instances"] == "0":
            continue
        found[row[key]] = int(row["Self Instances"]) / WINDOW
        times[row[key]] = max(times.get(row[key], 0.0), int(row["Self Time (ns)"]) / WINDOW)
    return found


def model_flops(summary):
    """FLOPs of an iteration; None if the summary has none."""
    found = re.search(r"model FLOPs ([\d.]+) ?([kMGTPE]?)FLOP an iteration", " ".join(summary.split()))
    return float(found[1]) * 1e3 ** " kMGTPE".index(found[2] or " ") if found else None


def compare_flops(report, model, out, counted):
    """FLOPs of products and attention, by operator and of the model, agree within 1 %. Work without an operator of its own, such as an RNN,
    is not counted there."""
    rows = {row["Operator"]: int(row["FLOPs"]) / WINDOW for row in read_csv(os.path.join(out, "op_sum.csv"))}
    different = [f"{name}: {rows.get(name, 0):g} instead of {flops:g} a step" for name, flops in counted.items()
                 if abs(rows.get(name, 0) - flops) > 0.01 * flops]
    report.check(f"{model}: FLOPs of {len(counted)} operators", bool(counted) and not different, "; ".join(different))
    total = sum(counted.values())
    found = sum(int(row["FLOPs"]) for row in read_csv(os.path.join(out, "module_sum.csv")) if not row["Parent"]) / WINDOW
    report.check(f"{model}: FLOPs of a step", abs(found - total) <= 0.01 * total, f"{found:g} instead of {total:g}")
    print(f"   {model}: {found:g} FLOPs a step, {total:g} by torch.utils.flop_counter")
    if "_" in model:  # with recomputation, which is counted although it is not the model's
        return
    with open(out + ".summary") as file:
        of_model = model_flops(file.read())
    report.check(f"{model}: model FLOPs", of_model is not None and abs(of_model - total) <= 0.01 * total, f"{of_model} instead of {total:g}")


def compare(options, report, model):
    out = os.path.join(options.work, model)
    start, also, folder = [sys.executable], {}, out
    if model in DISTRIBUTED:
        if device_count() < 2:
            report.skip(model, "needs two GPUs")
            return
        start += ["-m", "torch.distributed.run", "--nproc-per-node=2", "--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1",
                  f"--master-port={free_port()}"]
        also = ENVIRONMENT
        folder = out + "-%r"
        out += "-0"
    program = [*start, GRAPHS, "whole"] if model == "graph" else [*start, PROGRAM, model]
    done = run([*program, "1000" if model == "graph" else "60"],
               {**profiled_environment(options.library, folder, f"iter:30+{WINDOW}", summary=folder + ".summary"), **also}, timeout=240,
               log=out + ".log")
    if not report.check(f"{model}: the training ends", done.rc == 0, done.why() if done.rc else ""):
        return
    account = out + ".json"
    done = run([*program, "0", account], {**clean_environment(), **also}, timeout=240, log=out + ".profiler.log")
    if not report.check(f"{model}: torch.profiler's account", done.rc == 0, done.why() if done.rc else ""):
        return
    with open(account) as file:
        truth = json.load(file)
    kernels = sum(int(row["Total Time (ns)"]) for row in read_csv(os.path.join(out, "cuda_gpu_kern_sum.csv")))
    operators, modules = ("operators", "op_sum.csv", "Operator", 0.99), ("modules", "module_sum.csv", "Module", 0.95)
    for kind, name, key, least in (operators,) if model == "compiled" else (operators, modules):
        times = {what: time / truth["steps"] for what, (_, time) in truth[kind].items()}
        theirs = {what: count / truth["steps"] for what, (count, _) in truth[kind].items()}
        rows = read_csv(os.path.join(out, name))
        share, different = agreement(counts(rows, key, times), theirs, times)
        report.check(f"{model}: {kind} of {share:.2%} of kernel time", share >= LEAST.get(model, least), "; ".join(different[:8]))
        unknown = sum(int(row["Self Time (ns)"]) for row in rows if row[key] == "[unattributed]")
        report.check(f"{model}: {kind} for all kernels but {unknown / kernels:.2%} of their time", unknown <= 0.1 * kernels)
        report.check(f"{model}: {name} adds up", sum(int(row["Self Time (ns)"]) for row in rows) == kernels)
        if different:
            print(f"   {model}, {kind}:", *different[:12], sep="\n      ")
    if model.startswith("gpt2"):
        compare_flops(report, model, out, truth["flops"])
    lines = read_csv(os.path.join(out, "line_sum.csv"))
    if model == "compiled":
        call_of_compiled(report, out, lines)
    else:
        compare_lines(report, model, lines, truth["lines"], "what Python launches")
        compare_lines(report, model, lines, truth["backward_lines"], "the backward pass")
    print(f"   {model}, lines:", *(f"{row['Time (%)']} % {row['File'].rpartition('/')[2]}:{row['Line']} {row['Function']}" for row in lines[:5]), sep="\n      ")


def call_of_compiled(report, out, lines):
    """The line that calls the compiled function has everything that its two passes launch, and nothing else."""
    with open(PROGRAM) as file:
        call = next(str(number) for number, text in enumerate(file, 1) if "# COMPILED" in text)
    of_line, _ = user_lines(lines, PROGRAM).get(call, (0, 0))
    of_operators = sum(int(row["Total Time (ns)"]) for row in read_csv(os.path.join(out, "op_sum.csv"))
                       if row["Operator"] in ("CompiledFunction", "CompiledFunctionBackward"))
    report.check(f"compiled: the call's line has {of_line / 1e6:.3f} ms, its operators {of_operators / 1e6:.3f}",
                 of_operators > 0 and abs(of_line - of_operators) <= 0.01 * of_operators)


def compare_lines(report, model, rows, truth, what):
    """Shares of kernel time by line: of the backward pass, or of the forward pass and the optimizer."""
    truth = {line: time for line, time in truth.items() if line}
    ours, whole = {}, 0
    for row in rows:
        if not row["Line"]:
            continue
        backward = int(row["Backward (ns)"])
        time = backward if what == "the backward pass" else int(row["Total Time (ns)"]) - backward - int(row["Recomputation (ns)"])
        place = f"{os.path.basename(row['File'])}:{row['Line']}"
        if row["Function"].endswith("step") and row["In Library"] == "0":
            whole += time
        if time > 0 and place in truth:
            ours[place] = ours.get(place, 0) + time
    other = truth.pop("step", 0)
    if not report.check(f"{model}: lines of {what} on both sides", whole > 0 and other > 0, f"{len(ours)} and {len(truth)}"):
        return
    weight = sum(truth.values())
    same = sum(min(ours.get(line, 0) / whole, time / other) for line, time in truth.items()) * other / weight
    different = [f"{line}: {ours.get(line, 0) / whole:.2%} instead of {time / other:.2%}" for line, time in truth.items()
                 if abs(ours.get(line, 0) / whole - time / other) > 0.01]
    report.check(f"{model}: lines of {same:.2%} of kernel time of {what}", same >= 0.95, "; ".join(different[:6]))
    if different:
        print(f"   {model}, lines of {what}:", *different[:10], sep="\n      ")


def waits(options, report):
    """Idle time by line, compared with the program's own measurement of each line."""
    out = os.path.join(options.work, "gaps")
    account = out + ".json"
    program = os.path.join(HERE, "programs", "torch_gaps.py")
    done = run([sys.executable, program, "60", account], profiled_environment(options.library, out, "iter:30+10", summary="off"), timeout=240, log=out + ".log")
    if not report.check("gaps: the training ends", done.rc == 0, done.why() if done.rc else ""):
        return
    with open(account) as file:
        took = json.load(file)
    with open(program) as file:
        places = {text.partition("# WAITS ")[2].strip(): number for number, text in enumerate(file, 1) if "# WAITS " in text}
    rows = read_csv(os.path.join(out, "gap_line_sum.csv"))
    idle = {}
    for row in rows:
        if row["Line"] and os.path.basename(row["File"]) == "torch_gaps.py":
            idle[int(row["Line"])] = idle.get(int(row["Line"]), 0) + int(row["Idle Time (ns)"])
    window = read_csv(os.path.join(out, "window_sum.csv"))
    whole = sum(int(row["Idle Time (ns)"]) for row in rows)
    report.check("gaps: gap_line_sum.csv adds up", whole == sum(int(row["Idle (ns)"]) for row in window if row["Device"] not in ("all", "")), str(whole))
    # The window's ten iterations; steps differ little.
    for name, each in took.items():
        own = sum(each[30:40])
        ours = idle.get(places[name], 0)
        report.check(f"gaps: {name} {ours / 1e6:.1f} ms of {own / 1e6:.1f}", abs(ours - own) <= 0.2 * own + 5e6, "")
    for row in rows[:12]:
        print("  ", row["Idle Time (ns)"], row["File"].rpartition("/")[2], row["Line"], row["Function"])


def user_lines(rows, program):
    """Total time, and that of the backward pass, by line of the program."""
    times = {}
    for row in rows:
        if row["Line"] and os.path.basename(row["File"]) == os.path.basename(program):
            total, backward = times.get(row["Line"], (0, 0))
            times[row["Line"]] = total + int(row["Total Time (ns)"]), backward + int(row["Backward (ns)"])
    return times


def graph_lines(options, report):
    """Kernels of graphs that all look the same, and whose duration depends on their line."""
    out = os.path.join(options.work, "graph_lines")
    account = out + ".json"
    done = run([sys.executable, GRAPHS, "lines", "400", account], profiled_environment(options.library, out, f"iter:30+{WINDOW}", summary="off"),
               timeout=240, log=out + ".log")
    if not report.check("graph lines: the program ends", done.rc == 0, done.why() if done.rc else ""):
        return
    with open(account) as file:
        cycles = json.load(file)
    times = user_lines(read_csv(os.path.join(out, "line_sum.csv")), GRAPHS)
    # A kernel takes some time to start, in addition to the cycles that it counts.
    spin = [row for row in read_csv(os.path.join(out, "cuda_gpu_kern_sum.csv")) if "spin_kernel" in row["Name"]]
    unit = sum(int(row["Total Time (ns)"]) for row in spin) / WINDOW / sum(cycles.values())
    for line, count in sorted(cycles.items(), key=lambda pair: int(pair[0])):
        total, backward = times.get(line, (0, 0))
        expected = count * unit * WINDOW
        report.check(f"graph lines: line {line} takes {total / 1e3:.1f} us of {expected / 1e3:.1f}", abs(total - expected) <= 0.1 * expected + 20_000, "")
        print(f"   line {line}: {total} ns, {backward} of it backward, {count} cycles a step")
    slow = {row["Module"]: row for row in read_csv(os.path.join(out, "module_sum.csv"))}.get("SlowLayer", {})
    report.check("graph lines: the module's forward and backward pass", int(slow.get("Forward (ns)", 0)) > 0 and int(slow.get("Backward (ns)", 0)) > 0, str(slow))


def graph_compiled(options, report):
    """Work captured from a compiled model has phases and the line that calls the model."""
    out = os.path.join(options.work, "graph_compiled")
    done = run([sys.executable, GRAPHS, "compiled", "200"], profiled_environment(options.library, out, f"iter:60+{WINDOW}", summary="off"), timeout=280,
               log=out + ".log")
    if not report.check("graph compiled: the program ends", done.rc == 0, done.why() if done.rc else ""):
        return
    rows = read_csv(os.path.join(out, "op_sum.csv"))
    whole = sum(int(row["Self Time (ns)"]) for row in rows)
    unknown = sum(int(row["Self Time (ns)"]) for row in rows if row["Operator"] == "[unattributed]")
    report.check(f"graph compiled: {unknown / whole:.2%} of kernel time unattributed", unknown <= 0.05 * whole, "")
    backward = sum(int(row["Backward (ns)"]) for row in read_csv(os.path.join(out, "module_sum.csv")) if not row["Parent"])
    report.check(f"graph compiled: {backward / whole:.2%} of kernel time in the backward pass", 0.3 * whole <= backward <= 0.9 * whole, "")
    with open(GRAPHS) as file:
        call = next(str(number) for number, text in enumerate(file, 1) if "# COMPILED" in text)
    total, _ = user_lines(read_csv(os.path.join(out, "line_sum.csv")), GRAPHS).get(call, (0, 0))
    report.check(f"graph compiled: the line of the call has {total / whole:.2%} of kernel time", total >= 0.5 * whole, "")
    for name, key in (("op_sum.csv", "Operator"), ("module_sum.csv", "Module"), ("line_sum.csv", "Function")):
        print(f"   compiled, {name}:", *(f"{row['Time (%)']} % {row.get('File', '').rpartition('/')[2]} {row.get('Line', '')} {row[key]}"
                                         for row in read_csv(os.path.join(out, name))[:8]), sep="\n      ")


OTHERS = {"gaps": waits, "graph_lines": graph_lines, "graph_compiled": graph_compiled}


def test(options, report):
    for model in options.models.split(","):
        if model in OTHERS:
            report.guarded(model, OTHERS[model], options, report)
        else:
            report.guarded(model, compare, options, report, model)


def arguments(parser):
    parser.add_argument("--models", default=MODELS)


if __name__ == "__main__":
    main("code_places", test, modules=("torch", "torchvision", "transformers"), arguments=arguments)
