# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/measurements.md, "Training": tests/gpu/run_all.sh 'utilization:--apart'

What published studies of GPU training report, taken from hardware metrics: how much of the SMs, of the FP32 and tensor pipes, of the
warps and of the memory the examples' models use, over precision and batch size, and the ten longest kernels of each.

study: a window for each precision and batch size, all of a model in one process (programs/torch_study.py). kernels: one
configuration of each model, for longer. In the folder of details, utilization.md has the tables for the page, utilization.csv and
kernels.csv the figures.

It also checks that the figures make sense: no samples are lost; window_sum.csv has the means of the window's samples; percentages
lie between 0 and 100; fp32 without TF32 does not use the tensor pipe, TF32 and bf16 do, and more with a larger batch. Where no
kernels overlap, FP32 and Tensor Utilization (sums over the kernels) equal the means of the samples. ResNet-50 in bf16 keeps the
tensor pipe busy at least as long as its products take at peak rate.

--apart: one process for each configuration. A process tells only the 384 states of kernels apart that take most time, which come
from a few configurations; the others then have no FP32 and Tensor Utilization.
"""

import collections
import csv
import json
import os
import shutil
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests", "gpu"))
from diagnosis import device_rows  # noqa: E402
from gputest import Folder, folders, main, profiled_environment, run  # noqa: E402
from kernel_names import short_name  # noqa: E402
from metrics_collection import FLOP_A_CYCLE, POINTS, TABLE, loss_reasons, refusal  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_study.py")
PRECISIONS = "fp32,tf32,bf16"
# For each model: batch sizes of the study; the precision and batch size whose kernels are examined, and for how many seconds.
Model = collections.namedtuple("Model", "batches precision batch seconds")
MODELS = {"resnet50": Model("1,2,4,8,16,32,64", "bf16", 64, 3), "transformer": Model("1,4,16,64", "bf16", 16, 3),
          "deepspeech2": Model("1,4,16,64", "default", 32, 3)}
PARTS = ("study", "kernels")
MOST_LOST = 0.01
FP32_TENSOR = 1          # percent of the tensor pipe that fp32 without TF32 may use
PART = 0.10              # by which the kernels' sum may differ from the mean, or by POINTS
MOST_CONCURRENCY = 1.02  # kernels at once, below which they count as not overlapping
MEANS_APART = 0.5        # effect of a sample at a window's edge, in points
RESNET50_FORWARD = 4.09e9  # multiply-adds per image of 224 x 224, in convolutions and the last layer
SLACK = 1.1
TOP = 10

MEANS = ("SM Active (%)", "FMA Pipe (%)", "Tensor Pipe (%)", "Occupancy (%)", "DRAM Read (%)", "DRAM Write (%)")
SUMS = {"FP32 Utilization (%)": "FMA Pipe (%)", "Tensor Utilization (%)": "Tensor Pipe (%)"}
WEIGHTED = {"Occupancy (%)": "SM Active (%)"}  # per active cycle


# --- judging: no GPU needed ------------------------------------------------------------------------------------------

def value(row, column):
    text = row.get(column) or ""
    return float(text) if text else None


def added(*values):
    return None if None in values else sum(values)


def told_lines(out):
    """(versions and device, [each configuration]) from the program's output."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    told = [line for line in lines if "precision" in line]
    return next((line for line in lines if "precision" not in line), {}), told


def mean_of(samples, column):
    """Mean over samples, weighted with their length and, per active cycle, with the share of it in which SMs were active."""
    weighted = total = 0.0
    for sample in samples:
        found, share = value(sample, column), 1.0
        if column in WEIGHTED:
            share = value(sample, WEIGHTED[column])
        if found is None or share is None:
            continue
        weight = share * (int(sample["End (ns)"]) - int(sample["Start (ns)"]))
        weighted += weight * found
        total += weight
    return weighted / total if total else None


def point_of(told, rows, samples):
    """The results of a configuration that ran, from its window and its samples. `rows`: of the windows, by number."""
    row = rows.get(told["window"])
    if row is None:
        return {**told, "samples": 0}
    begin, end = int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"] or 0)
    inside = [sample for sample in samples if sample["Device"] == row["Device"] and begin <= int(sample["Start (ns)"]) < end]
    columns = (*MEANS, *SUMS, "GPU Utilization (%)", "Kernel Concurrency")
    found = {column: value(row, column) for column in columns}
    found["DRAM (%)"] = added(found["DRAM Read (%)"], found["DRAM Write (%)"])
    return {**told, **found, "samples": len(inside), "window_ns": end - begin, "of_samples": {c: mean_of(inside, c) for c in MEANS}}


def name_of(point):
    return f"{point['precision']}, batch {point['batch']}"


def judge_samples(points, about):
    """Configurations without a row of their window, a mean of a sampled metric, or half of the samples for their duration. `about`:
    run.json's metrics."""
    interval_ns, titles = about["interval_ns"], {column["title"] for column in about["columns"]}
    wrong = []
    for point in points:
        if "window_ns" not in point:
            wrong.append(f"{name_of(point)}: no row of window {point['window']}")
        elif point["samples"] < 0.5 * point["window_ns"] / interval_ns:
            wrong.append(f"{name_of(point)}: {point['samples']} samples of {interval_ns} ns in {point['window_ns']} ns")
        else:
            missing = [column for column in MEANS if column in titles and point[column] is None]
            if missing:
                wrong.append(f"{name_of(point)}: no {', '.join(missing)}")
    return wrong


def judge_means(points):
    """The window's means compared with those of the samples that began in it."""
    wrong = []
    for point in points:
        for column, mean in point.get("of_samples", {}).items():
            if (mean is None) != (point[column] is None) or (mean is not None and abs(mean - point[column]) > MEANS_APART):
                wrong.append(f"{name_of(point)}: {column} {point[column]}, of the samples {mean}")
    return wrong


def judge_percentages(points):
    wrong = []
    for point in points:
        for column, found in point.items():
            # Both directions together are relative to one peak, each rounded.
            most = 100 if column != "DRAM (%)" else 101
            if column.endswith("(%)") and found is not None and not 0 <= found <= most:
                wrong.append(f"{name_of(point)}: {column} {found}")
    return wrong


def tensor_of(point):
    """The sum over the kernels, or else the mean."""
    found = point.get("Tensor Utilization (%)")
    return found if found is not None else point.get("Tensor Pipe (%)")


def judge_precisions(points):
    """(comparisons, [problems]): the tensor pipe by precision, and by batch size."""
    made, wrong = 0, []
    by = {(point["precision"], point["batch"]): point for point in points if tensor_of(point) is not None}
    for (precision, _), point in by.items():
        if precision == "fp32":
            made += 1
            used = max(point["Tensor Pipe (%)"] or 0, tensor_of(point))
            if used >= FP32_TENSOR:
                wrong.append(f"{name_of(point)}: tensor pipe {used:.2f} %")
    for precision in ("tf32", "bf16"):
        batches = sorted(batch for other, batch in by if other == precision)
        both = [batch for batch in batches if ("fp32", batch) in by]
        if both:
            made += 1
            ours, theirs = tensor_of(by[precision, both[-1]]), tensor_of(by["fp32", both[-1]])
            if ours <= theirs:
                wrong.append(f"batch {both[-1]}: tensor pipe {ours:.2f} % in {precision}, {theirs:.2f} % in fp32")
        if len(batches) > 1:
            made += 1
            small, large = (tensor_of(by[precision, batch]) for batch in (batches[0], batches[-1]))
            if large < small:
                wrong.append(f"{precision}: tensor pipe {small:.2f} % with batch {batches[0]}, {large:.2f} % with {batches[-1]}")
    return made, wrong


def judge_sums(points):
    """(values compared, [differences]): FP32 and Tensor Utilization against the means of the samples, for windows whose kernels do not
    overlap: overlapping kernels are each counted with what both do."""
    compared, wrong = 0, []
    for point in points:
        if point.get("Kernel Concurrency") is None or point["Kernel Concurrency"] > MOST_CONCURRENCY:
            continue
        for column, pipe in SUMS.items():
            found, mean = point[column], point["of_samples"][pipe]
            if found is None or mean is None:
                continue
            compared += 1
            if abs(found - mean) > max(POINTS, PART * mean):
                wrong.append(f"{name_of(point)}: {column} {found:.2f}, mean of the samples {mean:.2f}")
    return compared, wrong


def least_tensor(point, device):
    """Minimum percentage of the tensor pipe that a window of ResNet-50 in bf16 has to use; None if the device's peak is unknown.

    The gradients by the inputs and by the filters each take as many FLOPs as the forward pass. At the highest clock: the pipe's share is
    relative to cycles, and at a lower clock the work takes a larger share of them."""
    cycle = FLOP_A_CYCLE.get(tuple(int(part) for part in device["compute_capability"].split(".")))
    if cycle is None or not device["clock_khz"]:
        return None
    rate = 3 * 2 * RESNET50_FORWARD * point["batch"] * point["steps"] / (point["window_ns"] * 1e-9)
    return 100 * rate / (cycle[0] * device["multiprocessors"] * device["clock_khz"] * 1e3)


def judge_work(points, device):
    """(comparisons, [problems]) of ResNet-50 in bf16."""
    made, wrong = 0, []
    for point in points:
        least = least_tensor(point, device) if point["precision"] == "bf16" and "window_ns" in point else None
        if least is None:
            continue
        for column in ("Tensor Pipe (%)", "Tensor Utilization (%)"):
            if point[column] is not None:
                made += 1
                if least > SLACK * point[column]:
                    wrong.append(f"{name_of(point)}: {column} {point[column]:.2f}, and its products alone are {least:.2f}")
    return made, wrong


def judge_kernels(rows):
    """(values checked, [problems]) of rows of kernel_metrics.csv: impossible values, after subtracting the error."""
    looked, wrong = 0, []
    for row in rows:
        for column in MEANS:
            found, error = value(row, column), value(row, f"± {column}")
            if found is None:
                continue
            looked += 1
            most = 100
            if column == "Occupancy (%)" and value(row, "Theoretical Occupancy (%)") is not None:
                most = value(row, "Theoretical Occupancy (%)") + POINTS
            if error is None or not 0 <= found <= 100 or found - error > most:
                wrong.append(f"{short_name(row['Name'])}: {column} {found} ± {error}, {most:.0f} at most")
    return looked, wrong


# --- tables ----------------------------------------------------------------------------------------------------------

def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def percent(found):
    return "-" if found is None else f"{found:.1f}"


def study_table(points):
    """Configurations that ran and those that did not, in the program's order."""
    unit = next((point["unit"] for point in points if "unit" in point), "samples")
    columns = ("SM Active (%)", "FP32 Utilization (%)", "FMA Pipe (%)", "Tensor Utilization (%)", "Tensor Pipe (%)", "Occupancy (%)",
               "DRAM (%)")
    rows = []
    for point in points:
        cells = [point["precision"], point["batch"]]
        if "failed" in point:
            cells += [point["failed"], *["-"] * (len(columns) + 2)]
        else:
            cells += [f"{point['step_ns'] / 1e6:.2f}", f"{point['rate']:.0f}", *(percent(point.get(column)) for column in columns),
                      point["samples"]]
        rows.append(cells)
    return markdown(["precision", "batch", "step (ms)", f"{unit}/s", *columns, "samples"], rows)


def estimate(row, *columns):
    """The sum of metrics with their errors added, which is an upper bound; "-" if one has no value."""
    found, error = (added(*(value(row, mark + column) for column in columns)) for mark in ("", "± "))
    return "-" if found is None or error is None else f"{found:.1f} ± {error:.1f}"


def top_kernels(rows):
    """The rows with most time, each with its share of the total."""
    total = sum(int(row["Total Time (ns)"]) for row in rows)
    ordered = sorted(rows, key=lambda row: -int(row["Total Time (ns)"]))
    return [(row, 100 * int(row["Total Time (ns)"]) / total) for row in ordered[:TOP]] if total else []


KERNEL_HEADER = ("kernel", "grid", "time (%)", "instances", "occupancy, achieved / theoretical (%)", "FP32 (FMA pipe) (%)",
                 "tensor (%)", "DRAM (%)")


def kernel_cells(row, share):
    theoretical = value(row, "Theoretical Occupancy (%)")
    return [short_name(row["Name"]), " x ".join(row[column] or "-" for column in ("GrdX", "GrdY", "GrdZ")), f"{share:.1f}",
            row["Instances"], f"{estimate(row, 'Occupancy (%)')} / {percent(theoretical)}", estimate(row, "FMA Pipe (%)"),
            estimate(row, "Tensor Pipe (%)"), estimate(row, "DRAM Read (%)", "DRAM Write (%)")]


# --- running ---------------------------------------------------------------------------------------------------------

class Tables:
    """The contents of the folder of details, rewritten after every table: a run that is cut short leaves the earlier ones."""

    def __init__(self, work):
        self.work, self.text, self.points, self.kernels = work, "", [], []

    def add(self, title, table):
        self.text += f"{title}\n\n{table}\n"
        with open(os.path.join(self.work, "utilization.md"), "w", encoding="utf-8") as file:
            file.write(self.text)

    def study(self, title, points):
        self.points += [{key: found for key, found in point.items() if key != "of_samples"} for point in points]
        write_rows(os.path.join(self.work, "utilization.csv"), self.points)
        self.add(title, study_table(points))

    def top(self, model, title, top):
        self.kernels += [{"model": model, "Time (%)": round(share, 2), **row} for row, share in top]
        write_rows(os.path.join(self.work, "kernels.csv"), self.kernels)
        self.add(title, markdown(KERNEL_HEADER, [kernel_cells(row, share) for row, share in top]))


def write_rows(path, rows):
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def profile(options, name, arguments):
    out = os.path.join(options.work, name + ".out")
    shutil.rmtree(out, ignore_errors=True)
    environment = profiled_environment(options.library, out, "api", summary="off", metrics="auto", metrics_timeline="1")
    result = run([sys.executable, PROGRAM, *arguments], environment, timeout=240, cwd=options.work,
                 log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    return result, Folder(found[0]) if len(found) == 1 else None


class Measured:
    """A process's configurations, and the results in its folder."""

    def __init__(self, options, report, name, arguments):
        self.points, self.folder, self.about, self.versions = [], None, None, {}
        result, folder = profile(options, name, arguments)
        self.refused = refusal(result.err)
        self.seconds = getattr(result, "seconds", 0)
        # A program that failed still has the results up to then.
        report.check(f"{name}: program ends well, one output folder", result.rc == 0 and folder is not None,
                     f"{self.seconds:.0f} s" if result.rc == 0 else result.why())
        self.versions, told = told_lines(result.out)
        if folder is None or self.refused:
            return
        self.folder, self.about = folder, folder.run_json()
        rows, samples = device_rows(folder), folder.rows(TABLE)
        self.points = [line if "failed" in line else point_of(line, rows, samples) for line in told]
        metrics, lost = self.about["metrics"], folder.lost().get("metric_samples", 0)
        total = lost + metrics["samples"]
        report.check(f"{name}: samples lost, {MOST_LOST:.0%} at most", total and lost <= MOST_LOST * total,
                     f"{lost} of {total}{loss_reasons(metrics)}")
        report.data[name] = {"versions": self.versions, "seconds": self.seconds, "metrics": metrics, "points": self.points}

    def device(self):
        return self.about["devices"][0]

    def title(self):
        return ", ".join(filter(None, [self.versions.get("device"), f"PyTorch {self.versions.get('torch')}"]))


def ran(points):
    return [point for point in points if "failed" not in point]


def check_points(report, name, points, asked, about):
    """Checks that apply to the windows of any model. Returns the measured ones."""
    missing = [f"{precision}, batch {batch}" for precision, batch in asked
               if (precision, batch) not in {(point["precision"], point["batch"]) for point in points}]
    failed = [point for point in points if "failed" in point]
    for point in failed:
        if point["failed"] == "out of memory":
            report.skip(f"{name}: {name_of(point)}", point["failed"])
    failures = [f"{name_of(point)}: {point['failed']}" for point in failed if point["failed"] != "out of memory"]
    good = ran(points)
    report.check(f"{name}: every configuration ran, or was out of memory", good and not missing and not failures,
                 "; ".join(missing + failures) or f"{len(good)} of {len(asked)}")
    wrong = judge_samples(good, about)
    report.check(f"{name}: every configuration has its window and samples", not wrong,
                 "; ".join(wrong) or f"{min((point['samples'] for point in good), default=0)} samples at the least")
    good = [point for point in good if "window_ns" in point]
    wrong = judge_means(good)
    report.check(f"{name}: a window's means are those of its samples", not wrong, "; ".join(wrong) or f"{len(good)} windows")
    wrong = judge_percentages(good)
    report.check(f"{name}: percentages between 0 and 100", not wrong, "; ".join(wrong))
    return good


def check_comparisons(report, name, model, points, device):
    compared, wrong = judge_sums(points)
    what = f"{name}: FP32 and Tensor Utilization as the samples have it"
    if compared:
        report.check(what, not wrong, "; ".join(wrong) or f"{compared} values")
    else:
        report.skip(what, "no window without overlapping kernels whose kernels have values")
    if model != "resnet50" or not any(point["precision"] == "bf16" for point in points):
        return
    made, wrong = judge_work(points, device)
    what = f"{name}: the tensor pipe is used for no less than the products in bf16"
    if made:
        report.check(what, not wrong, "; ".join(wrong) or f"{made} values")
    else:
        report.skip(what, "this device's peak is not known")


def study(options, report, tables, model):
    """Returns whether metrics are available."""
    batches = [int(batch) for batch in (options.batches or MODELS[model].batches).split(",")]
    asked = [(precision, batch) for precision in options.precisions.split(",") for batch in batches]
    processes = [[one] for one in asked] if options.apart else [asked]
    points, last = [], None
    for one in processes:
        name = model if not options.apart else "-".join([model, *map(str, one[0])])
        precisions, sizes = (",".join(dict.fromkeys(str(pair[at]) for pair in one)) for at in (0, 1))
        measured = Measured(options, report, name, [model, "--precisions", precisions, "--batches", sizes,
                                                    "--seconds", str(options.seconds)])
        if measured.refused:
            report.skip(f"{model}: everything else", measured.refused)
            return False
        points += measured.points
        last = measured if measured.folder else last
    if last is None:
        return True
    tables.study(f"{model}, training ({last.title()}), {options.seconds} s each:", points)
    good = check_points(report, model, points, asked, last.about["metrics"])
    made, wrong = judge_precisions(good)
    what = f"{model}: the tensor pipe by precision and batch size"
    if made:
        shown = "; ".join(f"{name_of(point)} {percent(tensor_of(point))}" for point in good)
        report.check(what, not wrong, "; ".join(wrong) or shown)
    else:
        report.skip(what, "nothing to compare")
    check_comparisons(report, model, model, good, last.device())
    return True


def kernels(options, report, tables, model):
    chosen, name = MODELS[model], f"{model}-kernels"
    measured = Measured(options, report, name, [model, "--precisions", chosen.precision, "--batches", str(chosen.batch),
                                                "--seconds", str(chosen.seconds)])
    if measured.refused:
        report.skip(f"{name}: everything else", measured.refused)
        return
    if measured.folder is None:
        return
    good = check_points(report, name, measured.points, [(chosen.precision, chosen.batch)], measured.about["metrics"])
    check_comparisons(report, name, model, good, measured.device())
    rows = measured.folder.rows("kernel_metrics.csv")
    top = top_kernels(rows)
    pipes = ("Occupancy (%)", "FMA Pipe (%)", "Tensor Pipe (%)", "DRAM Read (%)", "DRAM Write (%)")
    known = sum(share for row, share in top if all(value(row, column) is not None for column in pipes))
    report.check(f"{name}: kernels, some of the longest with values", len(rows) > 0 and known > 0,
                 f"{len(rows)} rows; the first {len(top)} have {sum(share for _, share in top):.0f} % of the time, "
                 f"those of them with values {known:.0f} %")
    looked, wrong = judge_kernels(rows)
    report.check(f"{name}: no kernel's value is one that can't be", looked and not wrong, "; ".join(wrong) or f"{looked} values")
    if good:
        point = good[0]
        sums = ", ".join(f"{column} {percent(point[column])}" for column in (*SUMS, "SM Active (%)", "DRAM (%)"))
        tables.top(model, f"{model}, {name_of(point)}, a step {point['step_ns'] / 1e6:.2f} ms ({measured.title()}; {sums}):", top)


def arguments(parser):
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas between them")
    parser.add_argument("--batches", help="for all models, instead of each one's own")
    parser.add_argument("--precisions", default=PRECISIONS)
    parser.add_argument("--seconds", type=float, default=0.6, help="of training in each window of the study")
    parser.add_argument("--parts", default=",".join(PARTS), help="what runs")
    parser.add_argument("--apart", action="store_true", help="each configuration of the study in a process of its own")


def test(options, report):
    parts, models = options.parts.split(","), options.models.split(",")
    unknown = (set(parts) - set(PARTS)) | (set(models) - set(MODELS))
    if not report.check("parts and models are known", not unknown, ", ".join(sorted(unknown)) or options.models):
        return
    tables = Tables(options.work)
    for model in models:
        if "study" in parts and report.guarded(f"{model}: study", study, options, report, tables, model) is False:
            return
        if "kernels" in parts:
            report.guarded(f"{model}: kernels", kernels, options, report, tables, model)
    print(tables.text)


if __name__ == "__main__":
    main("utilization", test, modules=("torch", "torchvision"), arguments=arguments)
