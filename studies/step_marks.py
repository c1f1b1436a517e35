# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/iterations.md, "What it costs": tests/gpu/run_all.sh -t 300 step_marks

What it costs that PyTorch calls libinject at the beginning and the end of each function of user scope, such as an optimizer's step.
A process for each model, with libinject's search on and no window. PyTorch's own switch for such functions is turned off and on from
one training step to the next, in random order within each pair, so that both kinds of step run in one process and at one time. With
the switch off PyTorch does not make these functions at all: the difference has its own cost in it, and is more than ours.
"""

import json
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "tests", "gpu"))

MODELS = ("resnet50", "lstm", "transformer")
WARM_UP = 30
BLOCKS, MARKS = 40, 5000


# --- the process under test ------------------------------------------------------------------------------------------

def lstm(device, batch=32, length=64, width=256):
    """A cell in a Python loop, as in a launch-bound program."""
    import torch
    cell, head = torch.nn.LSTMCell(width, width).to(device), torch.nn.Linear(width, 1).to(device)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
    inputs = torch.randn(length, batch, width, device=device)

    def step():
        state = None
        for x in inputs:
            state = cell(x, state)
        loss = head(state[0]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def switch(on):
    import torch
    torch.autograd._enable_record_function(on)


class Study:
    """Takes the optimizer's place: the mark's name has its class."""

    def mark(self, name, times):
        import torch
        begin = time.perf_counter_ns()
        for _ in range(times):
            with torch.autograd.profiler.record_function(name):
                pass
        return (time.perf_counter_ns() - begin) / times


def time_of_a_mark(name):
    """How many nanoseconds longer it takes with the switch on, in each of BLOCKS blocks."""
    study, differences = Study(), []
    for _ in range(BLOCKS):
        took = {}
        for on in random.sample((False, True), 2):
            switch(on)
            took[on] = study.mark(name, MARKS)
        differences.append(took[True] - took[False])
    switch(True)
    return differences


def marks_of_a_step(step):
    """The number of functions of user scope per step."""
    import torch
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    return sum(event.count for event in profiler.key_averages() if event.key.startswith(("Optimizer.", "enumerate(DataLoader)")))


def child(model, pairs, device):
    import torch
    import torch_models
    random.seed(1)
    torch.manual_seed(1)
    step = {**torch_models.MODELS, "lstm": lstm}[model](device)
    for _ in range(WARM_UP):
        step()
    times = {False: [], True: []}
    for _ in range(pairs):
        for on in random.sample((False, True), 2):
            switch(on)
            begin = time.perf_counter_ns()
            step()  # it ends with the loss on the host
            times[on].append(time.perf_counter_ns() - begin)
    switch(True)
    print(json.dumps({"on": times[True], "off": times[False], "marks": marks_of_a_step(step),
                      "step_mark": time_of_a_mark("Optimizer.step#Study.step"), "other_mark": time_of_a_mark("another function")}))


# --- what is made of it ----------------------------------------------------------------------------------------------

def interval(values, statistic=statistics.median, rounds=2000):
    """Bootstrap interval of the statistic: (value, 2.5 %, 97.5 %)."""
    draw = random.Random(1)
    found = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(rounds))
    return statistic(values), found[int(0.025 * rounds)], found[int(0.975 * rounds)]


def summary(measured):
    """The values that the page states for a model: paired ratio, ns per mark, and the marks' share of a step."""
    ratio = interval([on / off for on, off in zip(measured["on"], measured["off"])])
    step_mark, other_mark = interval(measured["step_mark"]), interval(measured["other_mark"])
    step = statistics.median(measured["off"])
    marks = measured["marks"]
    share = (step_mark[2] + (marks - 1) * other_mark[2]) / step
    return {"step_ms": step / 1e6, "ratio": ratio, "step_mark_ns": step_mark, "other_mark_ns": other_mark, "marks": marks, "share": share}


def text_of(model, row):
    def three(values, digits):
        return "{:.{d}f} ({:.{d}f} ... {:.{d}f})".format(*values, d=digits)
    return (f"{model:12} step {row['step_ms']:.2f} ms, with marks {three(row['ratio'], 4)} of that; {row['marks']} marks, "
            f"a step's {three(row['step_mark_ns'], 0)} ns, another's {three(row['other_mark_ns'], 0)} ns, "
            f"{100 * row['share']:.4f} % of the step at most")


def test(options, report):
    from gputest import profiled_environment, run
    for model in options.models.split(","):
        environment = profiled_environment(options.library, os.path.join(options.work, f"{model}.out"), "iter:100000000+1", summary="off")
        result = run([sys.executable, os.path.abspath(__file__), "--child", model, str(options.pairs), "cuda"], environment,
                     timeout=options.limit, cwd=options.work, log=os.path.join(options.work, f"{model}.log"))
        if result.rc != 0:
            report.check(model, False, result.why())
            continue
        row = summary(json.loads(result.out.splitlines()[-1]))
        report.data[model] = row
        print(text_of(model, row))
        report.check(f"{model}: marks take 0.1 % of a step at most", row["share"] <= 0.001, f"{100 * row['share']:.4f} %")
        report.check(f"{model}: steps with marks take 1.01 of others at most", row["ratio"][2] <= 1.01, text_of(model, row))


def arguments(parser):
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--pairs", type=int, default=600, help="pairs of steps")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one model")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        from gputest import main
        main("step_marks", test, modules=("torch", "torchvision"), arguments=arguments)
