# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Programs that are slow for one known reason (programs/bottlenecks.py), as they are and with the remedy.

Each one's verdict names that reason, and with the remedy another one; the gain that is promised is one that the remedy
keeps: at least nine tenths of what it won, and at most twice that. The times of window_sum.csv equal those of the raw
records (idle_truth.py). ResNet-50 over its batch size goes from launch-bound to GPU-bound.

--profiler: GPU utilization of programs that the GPU bounds against torch.profiler's of the same steps, within two points.

The table at the end is for docs/measurements.md; diagnosis.md in the folder of details is a copy.
"""

import collections
import json
import os
import sys

import idle_truth
from gputest import Folder, folders, main, profiled_environment, run
from nccl_ddp import ENVIRONMENT, RANKS, device_count, free_port

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "programs", "bottlenecks.py")
TOLERANCE = 0.1   # of the gain: a remedy may also improve something else
PROMISE = 2       # times the gain: part of a cause may remain
POINTS = 2
FALLS = 5         # points by which a larger batch may lower utilization

GPU_BOUND = ("GPU-bound (compute)", "GPU-bound (memory)", "GPU-bound (latency)")
VERDICTS = (*GPU_BOUND, "launch-bound", "synchronization-bound", "input-bound", "copy-bound", "communication-bound", "mixed")

# verdicts: the allowed ones. gain: whether the promised gain is checked; for GPU-bound programs, another data type may win more than any
# idle time suggests.
Case = collections.namedtuple("Case", "name verdicts fix gain ranks", defaults=(True, True, 1))
CASES = (
    Case("tiny_kernels", ("launch-bound",)),
    Case("rnn_small", ("launch-bound",)),
    Case("item_every_step", ("synchronization-bound",)),
    Case("slow_loader", ("input-bound",)),
    Case("host_loader", ("input-bound",)),
    Case("pageable_copies", ("copy-bound",)),
    Case("all_reduce", ("communication-bound",), ranks=RANKS),
    Case("mixed", ("mixed",), gain=False),
    Case("gemm_fp32", ("GPU-bound (compute)",), gain=False),
    Case("elementwise", ("GPU-bound (memory)",), gain=False),
    Case("rnn_large", GPU_BOUND, fix=False),
)
COMPARED = ("gemm_fp32", "elementwise", "rnn_large")


# --- judging: no GPU needed ------------------------------------------------------------------------------------------

def device_rows(folder):
    """{window: the row of the busiest device}, in order."""
    found = {}
    for row in folder.rows("window_sum.csv"):
        if row["Device"] == "all" or row["Window"] == "[other]":
            continue
        number = int(row["Window"])
        if number not in found or int(row["GPU Busy (ns)"]) > int(found[number]["GPU Busy (ns)"]):
            found[number] = row
    return dict(sorted(found.items()))


def promised(row, seconds):
    """Seconds per step that the remedy may win at most; None if there is no bound."""
    return float(row["Potential Gain (%)"]) / 100 * seconds if row["Potential Gain (%)"] else None


def judge_verdicts(case, before, after):
    """Problems: [text]. `after` is None if there is no remedy."""
    wrong = [f"{verdict} is no verdict" for verdict in (before, after) if verdict is not None and verdict not in VERDICTS]
    if before not in case.verdicts:
        wrong.append(f"{before}, and is {' or '.join(case.verdicts)}")
    # With faster kernels, a program remains GPU-bound.
    if after is not None and not set(case.verdicts) & set(GPU_BOUND) and after in case.verdicts:
        wrong.append(f"{after} with the remedy as well")
    return wrong


def judge_gain(promise, before, after):
    """Problems with the gain promised for a step that took `before` seconds and takes `after` with the remedy: [text]"""
    won = before - after
    if won <= 0:
        return [f"the remedy won nothing: {1e3 * before:.3f} ms, {1e3 * after:.3f} ms with it"]
    if promise is None:
        return [f"nothing was promised, and {1e3 * won:.3f} ms were won"]
    wrong = []
    if promise < (1 - TOLERANCE) * won:
        wrong.append(f"promised less than was won: {1e3 * promise:.3f} ms, {1e3 * won:.3f} ms")
    if promise > PROMISE * won:
        wrong.append(f"promised more than {PROMISE} times what was won: {1e3 * promise:.3f} ms, {1e3 * won:.3f} ms")
    return wrong


def judge_study(points):
    """Problems with [(batch, verdict, utilization)], in ascending order: [text]"""
    wrong = []
    if not points:
        return ["no window"]
    if points[0][1] != "launch-bound":
        wrong.append(f"batch {points[0][0]}: {points[0][1]}, and is launch-bound")
    if points[-1][1] not in GPU_BOUND:
        wrong.append(f"batch {points[-1][0]}: {points[-1][1]}, and is GPU-bound")
    most, bound = 0.0, None
    for batch, verdict, utilization in points:
        if utilization < most - FALLS:
            wrong.append(f"batch {batch}: utilization {utilization}, {most} with a smaller one")
        most = max(most, utilization)
        if verdict in GPU_BOUND:
            bound = bound or batch
        elif bound:
            wrong.append(f"batch {batch}: {verdict}, GPU-bound with {bound}")
    return wrong


def judge_utilization(ours, theirs):
    if not ours or len(ours) != len(theirs):
        return [f"{len(ours)} windows of ours, {len(theirs)} of theirs"]
    return [f"{mine:.1f} % ours, {other:.1f} theirs" for mine, other in zip(ours, theirs) if abs(mine - other) > POINTS]


def idle_text(row, least=0.5):
    """Idle time by cause, in percent of the device's time."""
    span = int(row["Device Time (ns)"])
    shares = {cause: 100 * int(row[idle_truth.idle_column(cause)]) / span for cause in idle_truth.CAUSES} if span else {}
    return ", ".join(f"{cause.lower()} {share:.0f}" for cause, share in sorted(shares.items(), key=lambda s: -s[1]) if share >= least)


HEADER = ("program", "step (ms)", "with the remedy (ms)", "verdict", "with the remedy", "promised (ms)", "won (ms)",
          "GPU utilization (%)", "with the remedy (%)", "idle (%)")


def table_row(name, seconds, row, fixed_seconds=None, fixed_row=None):
    def milliseconds(value):
        return "" if value is None else f"{1e3 * value:.3f}"

    return (name, milliseconds(seconds), milliseconds(fixed_seconds), row["Verdict"], fixed_row["Verdict"] if fixed_row else "",
            milliseconds(promised(row, seconds)), milliseconds(seconds - fixed_seconds if fixed_seconds is not None else None),
            row["GPU Utilization (%)"], fixed_row["GPU Utilization (%)"] if fixed_row else "", idle_text(row) or "none")


def markdown(rows):
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# --- running ---------------------------------------------------------------------------------------------------------

def profile(options, report, name, arguments, ranks=1):
    """(the program's output, its folder), None if it failed; with several ranks, the first one's."""
    what = "-".join([name, *(a.strip("-") for a in arguments)])
    out = os.path.join(options.work, what)
    environment = profiled_environment(options.library, out + ("-%r.out" if ranks > 1 else ".out"), "api", trace="csv", summary="off")
    command = [sys.executable, PROGRAM, name, *arguments]
    if ranks > 1:
        environment.update(ENVIRONMENT)
        command[1:1] = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--nnodes=1", "--node_rank=0",
                        "--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    done = run(command, environment, timeout=100, cwd=options.work, log=os.path.join(options.work, what + ".log"))
    found = [path for rank in range(ranks) for path in folders(f"{out}-{rank}.out" if ranks > 1 else out + ".out")]
    passed = done.rc == 0 and len(found) == ranks
    report.check(f"{what}: the program ends well, one output folder a process", passed, done.why() if done.rc else found)
    if not passed:
        return None
    said = json.loads([line for line in done.out.splitlines() if line.startswith("{")][-1])
    report.data[what] = {"said": said, "seconds": round(done.seconds, 1), "window_sum": Folder(found[0]).rows("window_sum.csv")}
    for path in found:
        where = what if ranks == 1 else os.path.basename(path)
        # If the host ran ahead, an iteration's rate is impossible, and is left out and counted.
        lost = {name: count for name, count in Folder(path).lost().items() if name != "impossible_rates"}
        report.check(f"{where}: nothing lost", not lost, lost or "")
        wrong = report.guarded(f"{where}: raw records", idle_truth.differences, path)
        if wrong is not None:
            report.check(f"{where}: where the time went, as by the raw records", not wrong, "; ".join(wrong))
    return said, Folder(found[0])


def last_row(folder):
    return list(device_rows(folder).values())[-1]


def compare(options, report, case, table):
    before = profile(options, report, case.name, [], case.ranks)
    after = profile(options, report, case.name, ["--fixed"], case.ranks) if case.fix else None
    if before is None or (case.fix and after is None):
        return
    said, row = before[0], last_row(before[1])
    fixed, fixed_row = (after[0], last_row(after[1])) if case.fix else (None, None)
    table.append(table_row(case.name, said["seconds"], row, fixed["seconds"] if fixed else None, fixed_row))
    wrong = judge_verdicts(case, row["Verdict"], fixed_row["Verdict"] if fixed else None)
    report.check(f"{case.name}: the verdict", not wrong, "; ".join(wrong) or table[-1][3:5])
    if not fixed:
        return
    if case.gain:
        wrong = judge_gain(promised(row, said["seconds"]), said["seconds"], fixed["seconds"])
    else:
        wrong = [] if fixed["seconds"] < said["seconds"] else ["the remedy won nothing"]
    report.check(f"{case.name}: what the remedy wins" + (" is what was promised" if case.gain else ""), not wrong,
                 "; ".join(wrong) or f"promised {table[-1][5] or '–'} ms, won {table[-1][6]}")


def resnet50(options, report, table):
    result = profile(options, report, "resnet50", [])
    if result is None:
        return
    said, folder = result
    rows = list(device_rows(folder).values())
    if not report.check("resnet50: a window for each batch", len(rows) == len(said["windows"]), f"{len(rows)} windows"):
        return
    points = [(entry["batch"], row["Verdict"], float(row["GPU Utilization (%)"])) for entry, row in zip(said["windows"], rows)]
    table.extend(table_row(f"resnet50, batch {entry['batch']}", entry["seconds"], row) for entry, row in zip(said["windows"], rows))
    wrong = judge_study(points)
    report.check("resnet50: from launch-bound to GPU-bound", not wrong, "; ".join(wrong) or points)


def against_profiler(options, report, name):
    result = profile(options, report, name, ["--profiler"])
    if result is None:
        return
    said, folder = result
    ours = [float(row["GPU Utilization (%)"]) for row in device_rows(folder).values()]
    wrong = judge_utilization(ours, said["their_utilization"])
    pairs = "; ".join(f"{mine:.1f} and {other:.1f}" for mine, other in zip(ours, said["their_utilization"]))
    report.check(f"{name}: GPU utilization as torch.profiler has it", not wrong, "; ".join(wrong) or pairs)


def arguments(parser):
    parser.add_argument("--only", help="names of programs, with commas between them")
    parser.add_argument("--profiler", action="store_true", help="compare with torch.profiler, and nothing else")


def test(options, report):
    chosen = options.only.split(",") if options.only else None
    if options.profiler:
        for name in chosen or COMPARED:
            report.guarded(name, against_profiler, options, report, name)
        return
    gpus, table = device_count(), []
    for case in CASES:
        if chosen and case.name not in chosen:
            continue
        if gpus < case.ranks:
            report.skip(case.name, f"{gpus} of the {case.ranks} GPUs that it needs")
            continue
        report.guarded(case.name, compare, options, report, case, table)
    if not chosen or "resnet50" in chosen:
        report.guarded("resnet50", resnet50, options, report, table)
    text = markdown(table)
    with open(os.path.join(options.work, "diagnosis.md"), "w") as file:
        file.write(text)
    print(text)


if __name__ == "__main__":
    main("diagnosis", test, modules=("torch",), arguments=arguments)
