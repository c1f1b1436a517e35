# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject check`: a clean folder has no findings, each rule finds what is planted for it, and bad input is one line."""

import csv
import json
import os
import pathlib
import shutil
import time
import unittest

import folders
from libinject.check.check import findings
from libinject.check.rules import RULES
from libinject.result import BadFile

DOCS = folders.ROOT / "docs" / "check.md"
NCCL = {"Operation": "AllReduce", "Type": "fp32", "Reduction": "sum", "Bytes": "4000000", "Ranks": "4", "Peer/Root": "", "Grouped": "no",
        "Calls": "2", "Failed Calls": "0", "Captured Calls": "0", "Replayed Calls": "0", "Host Time (ns)": "5000", "GPU Time (%)": "100.0",
        "GPU Time (ns)": "20000", "GPU Avg (ns)": "10000.0", "GPU Min (ns)": "9000", "GPU Max (ns)": "11000", "Algorithm BW (GB/s)": "400.000",
        "Bus BW (GB/s)": "600.000", "Overlap with Compute (%)": "0.0", "Kernels": "2", "Kernel Names": "ncclDevKernel_AllReduce",
        "Communicator": "0x0000000000000001"}
# A window, and one of its iterations.
ENERGY = [{"Window": "1", "Iteration": "", "Of": "window", "Device": "0", "Start (ns)": "0", "Duration (ns)": "2000000000", "Energy (J)": "900.000",
           "± Energy (J)": "20.000", "Power (W)": "450.0", "Idle Energy (J)": "60.000", "± Idle Energy (J)": "19.000", "Idle Energy (%)": "6.7",
           "Clock Readings": "40", "SM Clock (MHz)": "1700.0", "SM Clock Min (MHz)": "1400", "SM Clock Highest (MHz)": "1980",
           "Held Down (%)": "50.0", "Held by Power (%)": "50.0", "Held by Heat (%)": "0.0", "Held by Hardware (%)": "0.0", "Held Cost Bound (%)": "10.0"}]
ENERGY.append({**ENERGY[0], "Iteration": "0", "Of": "iteration", "Start (ns)": "5", "Duration (ns)": "1000000000", "Energy (J)": "450.000",
               "± Energy (J)": "30.000", "Idle Energy (J)": "", "± Idle Energy (J)": "", "Idle Energy (%)": ""})
# Of the simulated GPU's 3,352 GB/s: half of it for 100 us is 167.616 MB.
MEASURED = {"Samples": "40", "Reliable": "yes", "FMA Pipe (%)": "40.00", "± FMA Pipe (%)": "1.00", "FP64 Pipe (%)": "0.00", "± FP64 Pipe (%)": "0.00",
            "Tensor Pipe (%)": "10.00", "± Tensor Pipe (%)": "1.00", "L2 (%)": "20.00", "± L2 (%)": "1.00", "Occupancy (%)": "80.00",
            "± Occupancy (%)": "2.00", "DRAM Read (%)": "30.00", "± DRAM Read (%)": "1.00", "DRAM Write (%)": "20.00", "± DRAM Write (%)": "1.00",
            "Busiest Unit": "DRAM", "Utilization (%)": "50.00", "Unused Time (ns)": "50000", "DRAM Traffic (MB)": "167.616", "TFLOP/s": "1.000",
            "FLOP/Byte": "0.60", "Bound": "memory", "Roofline (%)": "50.0"}

# Roles of a window of 1 s; the process comes last.
_HOST = {"Window": "1", "Total": "no", "Count": "1", "Run Queue Wait (ns)": "5", "Voluntary Switches": "10", "Involuntary Switches": "2",
         "Minor Faults": "4", "Major Faults": "0", "Read (MB)": "1.000", "Start (ns)": "100", "Span (ns)": "1000000000", "Reading (ns)": "50000"}
_NO_SUMS = dict.fromkeys(("Cores by Affinity", "Cores by Quota", "Cores Used", "Cores Wanted", "Workers Computing (%)", "Workers Queued (%)",
                          "Loader Moments", "Workers Asleep", "Workers Blocked"), "")
HOST = [{**_HOST, "Role": role, "Processor Time (ns)": time, "Share of a Core (%)": share, **_NO_SUMS}
        for role, time, share in (("main", "300000000", "30.0"), ("libinject", "10000000", "1.0"), ("[rest]", "90000000", "9.0"),
                                  ("loader worker", "1500000000", "150.0"))]
HOST.insert(3, {**_HOST, "Role": "process", "Total": "yes", "Processor Time (ns)": "400000000", "Share of a Core (%)": "40.0",
                "Voluntary Switches": "30", "Involuntary Switches": "6", "Minor Faults": "12", "Read (MB)": "3.000", "Cores by Affinity": "4",
                "Cores by Quota": "2.500", "Cores Used": "1.900", "Cores Wanted": "1.900", "Workers Computing (%)": "90.0",
                "Workers Queued (%)": "0.0", "Loader Moments": "9", "Workers Asleep": "3", "Workers Blocked": "1"})

_PURPOSE = dict.fromkeys(("Tensors", "Largest (B)", "Largest Tensor", "Peak Allocated (B)", "Peak Reserved (B)", "Activations at Peak (B)"), "")
PURPOSES = [{"Device": "0", "Purpose": purpose, "Total": "no", "Memory (B)": size, **_PURPOSE,
             **({"Tensors": "3", "Largest (B)": size, "Largest Tensor": "Linear.weight (10, 10) torch.float32"} if index < 5 else {})}
            for index, (purpose, size) in enumerate((("parameters", "1000"), ("gradients", "1000"), ("optimizer state", "2000"), ("buffers", "10"),
                                                     ("other tensors", "300"), ("workspaces", "60"), ("communication buffers", "40"), ("[no tensor]", "100"), ("[rounding]", "90"), ("[private pools]", "100"), ("[cached]", "300"),
                                                     ("[outside of the allocator]", "5000")))]
PURPOSES.append({"Device": "0", "Purpose": "[all]", "Total": "yes", "Memory (B)": "10000", **_PURPOSE, "Peak Allocated (B)": "5000",
                 "Peak Reserved (B)": "7000", "Activations at Peak (B)": "890"})

SAMPLE = {"SM Active (%)": "80.000", "IPC": "2.000", "FMA Pipe (%)": "10.000", "FP64 Pipe (%)": "0.000", "Tensor Pipe (%)": "20.000",
          "Warps Active (%)": "40.000", "Occupancy (%)": "50.000", "DRAM Read (%)": "30.000", "DRAM Write (%)": "10.000", "L2 (%)": "20.000"}


def edit(folder, table, row, **cells):
    """Changes cells of a row (0-based)."""
    path = pathlib.Path(folder) / f"{table}.csv"
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows[row].update(cells)
    folders.write_table(folder, table, rows)


def change_run(folder, change):
    path = pathlib.Path(folder) / "run.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    change(run)
    path.write_text(json.dumps(run, indent=1), encoding="utf-8")


def graph_folder(path, longest):
    """Ten iterations of 17 ms, in which a kernel of 1.3 us ran 74 times, the last time for `longest`."""
    folders.write_run(path, windows=[])
    total = 73 * 1300 + longest
    mean = total / 74
    deviation = ((73 * (1300 - mean) ** 2 + (longest - mean) ** 2) / 73) ** 0.5
    kernel = {"Time (%)": "100.0", "Total Time (ns)": total, "Instances": 74, "Avg (ns)": f"{mean:.1f}", "Med (ns)": "1300.0", "Min (ns)": 1300,
              "Max (ns)": longest, "StdDev (ns)": f"{deviation:.1f}"}
    folders.write_table(path, "cuda_gpu_kern_sum", [{**kernel, "Name": "fill"}])
    folders.write_table(path, "cuda_gpu_kern_gb_sum", [{**kernel, "GridXYZ": "   1    1    1", "BlockXYZ": "  32    1    1", "Name": "fill"}])
    folders.write_table(path, "iteration_sum", [
        {"Window": 1, "Iteration": number, "Label": "iteration", "Complete": 1, "Device": device, "Start (ns)": number * 17_400_000,
         "Duration (ns)": 17_400_000, "GPU Busy (ns)": 17_395_000} for number in range(10) for device in ("all", "0")])
    change_run(path, lambda run: run.update(files=[name for name in os.listdir(path) if name.endswith(".csv")]))
    return path


class CheckTest(folders.TemporaryFolder):
    """A run of the example on the simulated CUDA, with additions that it lacks: collectives, a kernel with all of its metrics, overhead."""

    @classmethod
    def setUpClass(cls):
        holder = folders.tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.clean = folders.profile_example(f"{holder.name}/out", METRICS="auto", METRICS_TIMELINE="1", METRICS_INTERVAL="100us", TRACE="csv",
                                            BATCH="64", SUMMARY="off")
        folders.write_table(cls.clean, "nccl_sum", [NCCL])
        folders.write_table(cls.clean, "energy_sum", ENERGY)
        # The example's window is too short to be read.
        folders.write_table(cls.clean, "host_sum", HOST)
        folders.write_table(cls.clean, "memory_purpose", PURPOSES)
        # The example does not use PyTorch: all of its kernels belong to one operator, module and line.
        with open(cls.clean / "cuda_gpu_kern_sum.csv", newline="", encoding="utf-8") as file:
            kernels = list(csv.DictReader(file))
        count, time = (sum(int(row[column]) for row in kernels) for column in ("Instances", "Total Time (ns)"))
        code = {"Self Time (ns)": time, "Self Instances": count, "Total Time (ns)": time, "Total Instances": count, "Forward (ns)": time,
                "Backward (ns)": 0, "Recomputation (ns)": 0, "Optimizer (ns)": 0, "Other (ns)": 0, "Compute-bound (ns)": 1, "Memory-bound (ns)": 1,
                "Latency-bound (ns)": 1, "FLOP Time (ns)": 1}
        with open(cls.clean / "cuda_gpu_mem_time_sum.csv", newline="", encoding="utf-8") as file:
            operations = list(csv.DictReader(file))
        copies = {title: sum(int(row[column]) for row in operations)
                  for title, column in (("User Code Copies", "Count"), ("User Code Copy Time (ns)", "Total Time (ns)"))}
        folders.write_table(cls.clean, "op_sum", [{"Time (%)": "100.0", "Operator": "aten::mm", **code}])
        folders.write_table(cls.clean, "module_sum", [{"Time (%)": "100.0", "Module": "Net", "Class": "Net", "Depth": 0, "Parent": "", **code}])
        folders.write_table(cls.clean, "line_sum", [{"Time (%)": "100.0", "File": "train.py", "Line": 7, "Function": "train", "In Library": 0,
                                                     "User Code Time (ns)": time, **code, **copies}])
        with open(cls.clean / "window_sum.csv", newline="", encoding="utf-8") as file:
            devices = [row for row in csv.DictReader(file) if row["Device"] != "all"]
        causes = {column: sum(int(row[column]) for row in devices) for column in devices[0] if column.startswith("Idle: ")}
        own = sum(int(row["Own Work (ns)"]) for row in devices)
        folders.write_table(cls.clean, "gap_line_sum", [{"Time (%)": "100.0", "File": "train.py", "Line": 7, "Function": "train",
                                                         "Idle Time (ns)": sum(causes.values()), "Gaps": 9, **causes, "Own Work (ns)": own}])
        with open(cls.clean / "kernel_metrics.csv", newline="", encoding="utf-8") as file:
            first = next(csv.DictReader(file))
        edit(cls.clean, "kernel_metrics", 0, **{**dict.fromkeys(first, ""), **{column: cell for column, cell in first.items() if "(%)" not in column},
                                              "Shared (%)": "0.0", "Theoretical Occupancy (%)": first["Theoretical Occupancy (%)"], **MEASURED})
        for row in (0, 1):
            with open(cls.clean / "window_sum.csv", newline="", encoding="utf-8") as file:
                times = list(csv.DictReader(file))[row]
                busy, left = int(times["Kernel Busy (ns)"]), max(int(times["Kernel Busy (ns)"]), int(0.6 * int(times["Device Time (ns)"])))
            # Large enough to be visible in the utilization of a window that a busy machine has lengthened.
            edit(cls.clean, "window_sum", row, **{"Profiler Overhead (%)": "40.0", "Profiler Overhead Low (%)": "10.0",
                                                  "Profiler Overhead High (%)": "70.0", "Device Time w/o Overhead (ns)": left,
                                                  "Utilization w/o Overhead (%)": f"{100 * busy / left:.1f}",
                                                  **{title: f"{float(value):.2f}" for title, value in SAMPLE.items()}})
        # The number of samples depends on the machine's load.
        with open(cls.clean / "window_sum.csv", newline="", encoding="utf-8") as file:
            start = int(next(csv.DictReader(file))["Start (ns)"])
        folders.write_table(cls.clean, "metric_samples", [{"Device": 0, "Start (ns)": start + 100 * at, "End (ns)": start + 100 * at + 100, **SAMPLE}
                                                          for at in range(10)])
        # Iterations before the window, which the example lacks.
        folders.write_table(cls.clean, "step_times", [{"Iteration": at, "Start (ns)": start - 20_000 + 1100 * at, "Duration (ns)": 1000 + 10 * at, "Step Time (ns)": f"{1000 + 10 * at}.0",
                                                       "Samples/s": f"{64e9 / (1000 + 10 * at):.1f}", "Units": 64, "Units From": "stated",
                                                       "Units/s": f"{64e9 / (1000 + 10 * at):.3f}"} for at in range(9)])
        edit(cls.clean, "window_sum", 0, **{"Step Time (ns)": "1040.0", "Step Time Low (ns)": "1000.0", "Step Time High (ns)": "1080.0",
                                            "Samples/s": f"{64e9 / 1040:.1f}", "Units/s": f"{64e9 / 1040:.3f}"})
        change_run(cls.clean, lambda run: run.update(lost=dict.fromkeys(run["lost"], 0),
                                                     files=[*run["files"], "op_sum.csv", "module_sum.csv", "line_sum.csv", "gap_line_sum.csv", "energy_sum.csv",
                                                            "memory_purpose.csv"]))

    def copy(self):
        self.copies = getattr(self, "copies", 0) + 1
        return pathlib.Path(shutil.copytree(self.clean, self.folder / f"copy{self.copies}"))

    def cell(self, table, row, column):
        with open(self.clean / f"{table}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))[row][column]


# What is planted: rule, table, row, cells, and the other rules that it breaks as well.
PLANTED = [
    ("header", "cuda_gpu_kern_sum", 0, {"Mode": "x"}, ()),
    ("number", "cuda_gpu_kern_sum", 0, {"Instances": "many"}, ("kernel-sum", "kernel-name-sum", "range-kernels", "trace-sum")),
    ("number", "window_sum", 0, {"GPU Busy (ns)": "7.5"}, ("device-sum", "device-time", "kernel-busy", "busy")),
    ("number", "memory_sum", 0, {"Largest (MB)": "0.5"}, ()),
    ("number", "cuda_gpu_kern_sum", 0, {"Med (ns)": "10000"}, ()),
    ("negative", "window_sum", 0, {"H2D Busy (ns)": "-5"}, ("device-sum",)),
    ("negative", "memory_sum", 0, {"Failed": "-1"}, ("memory",)),
    ("share-range", "metric_samples", 5, {"Tensor Pipe (%)": "170.000"}, ("metric-mean",)),
    ("share-range", "kernel_metrics", 0, {"L2 (%)": "120.00"}, ("busiest-unit",)),
    ("share-range", "window_sum", 1, {"Copy Overlap (%)": "-3.0"}, ()),
    ("overhead-range", "window_sum", 0, {"Profiler Overhead (%)": "-15.5"}, ()),
    ("overhead-range", "window_sum", 0, {"Profiler Overhead (%)": ""}, ()),
    ("overhead-range", "window_sum", 0, {"Profiler Overhead Low (%)": "-2.0"}, ()),
    ("overhead-range", "window_sum", 0, {"Profiler Overhead High (%)": "0.5"}, ()),
    ("overhead-range", "window_sum", 0, {"Profiler Overhead Low (%)": ""}, ()),
    ("utilization", "window_sum", 0, {"Utilization w/o Overhead (%)": "0.1"}, ()),
    ("utilization", "window_sum", 0, {"Device Time w/o Overhead (ns)": "99999999999"}, ()),
    ("order", "cuda_api_sum", 0, {"Med (ns)": "99999999999.0"}, ()),
    ("order", "gemm_sum", 0, {"GPU Min (ns)": "20000"}, ()),
    ("order", "nvtx_sum", 0, {"Min (ns)": "9999999999"}, ("deviation",)),
    ("average", "cuda_gpu_kern_sum", 0, {"Avg (ns)": "10001.0"}, ("order",)),
    ("average", "library_sum", 0, {"Host Avg (ns)": "1.0"}, ("order",)),
    ("average", "gemm_sum", 0, {"GPU Avg (ns)": "100.0"}, ("order", "peak")),
    ("average", "copy_sum", 0, {"Avg (MB)": "5.000"}, ()),
    ("total", "cuda_api_sum", 0, {"Min (ns)": "0", "Max (ns)": "1"}, ("order", "deviation", "trace-sum")),
    ("deviation", "cuda_gpu_kern_sum", 0, {"StdDev (ns)": "77.0"}, ()),
    ("share", "cuda_gpu_kern_sum", 0, {"Time (%)": "12.3"}, ()),
    ("share", "gemm_sum", 0, {"GPU Time (%)": "99.0"}, ()),
    ("share", "phase_sum", 0, {"Kernel Time (%)": "1.0"}, ()),
    ("share", "copy_sum", 0, {"Small Copies (%)": "1.0"}, ()),
    ("total-mark", "window_sum", 0, {"Total": "no"}, ()),
    ("total-mark", "iteration_sum", 1, {"Total": "yes"}, ()),
    ("total-mark", "memory_sum", 0, {"Total": ""}, ()),
    ("rate", "window_sum", 0, {"TFLOP/s": "700.000"}, ()),
    ("rate", "gemm_sum", 0, {"TFLOP/s": "700.000"}, ()),
    ("rate", "copy_sum", 0, {"Throughput (GB/s)": "700.000"}, ()),
    ("rate", "family_sum", 0, {"TFLOP/s": "700.000"}, ()),
    ("rate", "nccl_sum", 0, {"Algorithm BW (GB/s)": "700.000"}, ("bus-bandwidth",)),
    ("bus-bandwidth", "nccl_sum", 0, {"Bus BW (GB/s)": "400.000"}, ()),
    ("call-counts", "nccl_sum", 0, {"Captured Calls": "3"}, ("average", "rate")),
    ("call-counts", "library_sum", 0, {"Kernels": "99"}, ("library-kernels",)),
    ("memory", "memory_sum", 0, {"Live (MB)": "9.000"}, ()),
    ("memory", "memory_sum", 0, {"Allocations": "1000"}, ()),
    ("memory-timeline", "memory_timeline", 0, {"Lowest (MB)": "9999999.000"}, ()),
    ("memory-timeline", "memory_timeline", 1, {"Highest at (ns)": "1"}, ()),
    ("memory-timeline", "memory_timeline", 1, {"Duration (ns)": "1"}, ()),
    ("memory-timeline", "memory_timeline", 1, {"Highest (MB)": "99999.000"}, ()),
    ("memory-timeline", "memory_sum", 0, {"Peak at (ns)": "1"}, ()),
    ("energy", "energy_sum", 1, {"± Energy (J)": "151.000"}, ()),
    ("energy", "energy_sum", 0, {"± Idle Energy (J)": "21.000"}, ()),
    ("energy", "energy_sum", 0, {"Power (W)": "440.0"}, ()),
    ("energy", "energy_sum", 1, {"Energy (J)": "990.000", "Power (W)": "990.0"}, ()),
    ("energy", "energy_sum", 0, {"SM Clock Min (MHz)": "1701"}, ()),
    ("energy", "energy_sum", 0, {"Held by Heat (%)": "60.0"}, ()),
    ("memory-purpose", "memory_purpose", 0, {"Memory (B)": "1001"}, ()),
    ("memory-purpose", "memory_purpose", 0, {"Tensors": "0"}, ()),
    ("memory-purpose", "memory_purpose", 12, {"Peak Allocated (B)": "7001"}, ()),
    ("memory-purpose", "memory_purpose", 12, {"Activations at Peak (B)": "5001"}, ()),
    ("distinct", "memory_purpose", 1, {"Purpose": "parameters"}, ()),
    ("total-mark", "memory_purpose", 0, {"Total": "yes"}, ()),
    ("host-sum", "host_sum", 0, {"Processor Time (ns)": "310000000", "Share of a Core (%)": "31.0"}, ()),
    ("host-sum", "host_sum", 3, {"Processor Time (ns)": "390000000", "Share of a Core (%)": "39.0"}, ()),
    ("host-sum", "host_sum", 2, {"Processor Time (ns)": "0", "Share of a Core (%)": "0.0"}, ()),
    ("host-sum", "host_sum", 1, {"Voluntary Switches": "11"}, ()),
    ("host-sum", "host_sum", 3, {"Read (MB)": "3.100"}, ()),
    ("host-sum", "host_sum", 4, {"Share of a Core (%)": "100.0"}, ()),
    ("host-sum", "host_sum", 3, {"Workers Asleep": "10"}, ()),
    ("host-sum", "host_sum", 3, {"Cores Used": "2.500"}, ()),
    ("distinct", "host_sum", 4, {"Role": "libinject"}, ("host-sum",)),
    ("total-mark", "host_sum", 0, {"Total": "yes"}, ()),
    ("kernel-sum", "family_sum", 0, {"Instances": "1"}, ("average", "total", "deviation", "order")),
    ("kernel-sum", "thread_kern_sum", 0, {"Instances": "1"}, ("average", "total", "deviation", "order")),
    ("kernel-name-sum", "cuda_gpu_kern_gb_sum", 0, {"Name": "another"}, ()),
    ("copy-sum", "cuda_gpu_mem_size_sum", 0, {"Count": "1"}, ("average", "total", "deviation", "order")),
    ("copy-sum", "copy_sum", 0, {"Direction": "Device-to-Device"}, ("link",)),
    ("copy-sum", "window_sum", 0, {"Copies": "99"}, ("device-sum", "window-split", "missing-records")),
    ("device-sum", "window_sum", 1, {"D2H Busy (ns)": "7"}, ()),
    ("window-split", "phase_sum", 0, {"Unattributed": "7"}, ()),
    ("launch-sum", "iteration_sum", 0, {"Launches": "7000"}, ()),
    ("call-sum", "window_sum", 0, {"API Calls": "7"}, ()),
    ("call-sum", "window_sum", 0, {"Ranges": "7"}, ()),
    ("library-kernels", "library_sum", 0, {"Kernels incl. Nested": "99"}, ()),
    ("range-kernels", "nvtx_kern_sum", 0, {"Kern Inst": "9999"}, ("average", "total", "order", "deviation")),
    ("flop-sum", "window_sum", 0, {"FLOPs": "12345"}, ("rate",)),
    ("flop-sum", "gemm_sum", 0, {"FLOPs": "999999999"}, ("flops", "intensity")),
    ("flops", "gemm_sum", 0, {"M": "1024"}, ()),
    ("intensity", "gemm_sum", 0, {"FLOP/Byte": "1.00"}, ()),
    ("communicator", "nccl_sum", 0, {"Communicator": "7"}, ()),
    ("kernel-extremes", "thread_kern_sum", 0, {"Max (ns)": "10004"}, ("total", "deviation")),
    ("trace-sum", "cuda_api_sum", 0, {"Max (ns)": "999999999"}, ("deviation", "total", "order")),
    ("link", "copy_sum", 0, {"Link (GB/s)": "31.508", "Link (%)": "31.7"}, ()),
    ("word", "phase_sum", 0, {"Phase": "sideways"}, ()),
    ("word", "gemm_sum", 0, {"Tensor Cores": "perhaps"}, ()),
    ("device-span", "window_sum", 1, {"Device Time (ns)": "1"}, ("device-time", "device-sum", "diagnosis-sum", "kernel-busy", "own-work", "utilization")),
    ("memory", "window_sum", 1, {"Memory at End (MB)": "999999.000"}, ()),
    ("shape-kernels", "nccl_sum", 0, {"Kernels": "7777777"}, ()),
    ("window-time", "window_sum", 0, {"Duration (ns)": "1"}, ("busy", "rate", "window-run", "utilization")),
    ("busy", "window_sum", 1, {"GPU Busy (%)": "99.9"}, ()),
    ("busy", "window_sum", 1, {"GPU Span (ns)": "700"}, ("trace-busy", "longest-kernel")),
    ("kernel-busy", "iteration_sum", 0, {"Kernel Busy (ns)": "99999999"}, ("device-sum",)),
    ("device-time", "window_sum", 0, {"Idle (ns)": "1"}, ("idle-sum", "device-sum", "diagnosis-sum")),
    ("idle-sum", "window_sum", 1, {"Idle: Queue (ns)": "12"}, ("device-sum", "diagnosis-sum", "gap-sum", "own-work")),
    ("gain", "window_sum", 1, {"Verdict": "GPU-bound", "Potential Gain (%)": "0.0"}, ()),
    ("gain", "window_sum", 1, {"Verdict": "launch-bound", "Potential Gain (%)": ""}, ()),
    ("utilization", "window_sum", 1, {"GPU Utilization (%)": "100.0"}, ()),
    ("concurrency", "window_sum", 1, {"Kernel Concurrency": "2.000"}, ()),
    ("concurrency", "window_sum", 1, {"Kernel Concurrency": "129.000"}, ()),
    ("overlap", "window_sum", 1, {"Taken by Collectives (ns)": "999999999"}, ()),
    ("overlap", "window_sum", 1, {"H2D Busy (ns)": "999999999"}, ("device-sum",)),
    ("code-time", "op_sum", 0, {"Forward (ns)": "1"}, ()),
    ("code-time", "module_sum", 0, {"Total Time (ns)": "1"}, ()),
    ("code-time", "line_sum", 0, {"User Code Time (ns)": "999999999999"}, ()),
    ("code-time", "op_sum", 0, {"FLOP Time (ns)": "999999999999"}, ()),
    ("code-time", "line_sum", 0, {"Memory-bound (ns)": "999999999999"}, ()),
    ("kernel-sum", "op_sum", 0, {"Self Instances": "1"}, ()),
    ("copy-sum", "line_sum", 0, {"User Code Copies": "99"}, ()),
    ("gap-sum", "gap_line_sum", 0, {"Idle: Queue (ns)": "9999999999"}, ()),
    ("gap-sum", "gap_line_sum", 0, {"Idle Time (ns)": "1"}, ()),
    ("gap-sum", "gap_line_sum", 0, {"Own Work (ns)": "9999999999"}, ("own-work",)),
    ("own-work", "window_sum", 1, {"Own Work (ns)": "9999999999"}, ("device-sum", "gap-sum")),
    ("own-work", "window_sum", 1, {"Launch-bound (%)": "99.9"}, ()),
    ("fetch-time", "iteration_sum", 0, {"Fetch: Waiting (ns)": "1", "Fetch: Processing (ns)": "99999999999"}, ()),
    ("fetch-time", "window_sum", 0, {"Fetch: Waiting (ns)": "99999999999", "Fetch: Processing (ns)": "1"}, ()),
    ("fetch-time", "window_sum", 1, {"Input in Fetch: Waiting (ns)": "9", "Input in Fetch: Processing (ns)": "99999999999"}, ()),
    ("iteration-time", "iteration_sum", 2, {"Start (ns)": "1"}, ("device-sum",)),
    ("iteration-time", "iteration_sum", 2, {"Iteration": "0"}, ("device-sum",)),
    ("iteration-count", "iteration_sum", 0, {"Complete": "0"}, ("units",)),
    ("iteration-count", "iteration_sum", 0, {"Samples/s": "1.0"}, ()),
    ("iteration-count", "window_sum", 0, {"Samples/s in Window": "1.0"}, ()),
    ("iteration-count", "window_sum", 0, {"Step Time in Window (ns)": "7.0"}, ()),
    ("step-times", "step_times", 3, {"Start (ns)": "-1"}, ()),
    ("step-times", "step_times", 3, {"Iteration": "1"}, ()),
    ("step-times", "step_times", 3, {"Samples/s": "1.0"}, ()),
    ("step-times", "step_times", 6, {"Duration (ns)": "999999999999"}, ("times", "units")),
    ("step-times", "window_sum", 0, {"Step Time (ns)": "7.0"}, ()),
    ("step-times", "window_sum", 0, {"Step Time (ns)": ""}, ()),
    ("step-times", "window_sum", 0, {"Samples/s": "1.0"}, ()),
    *(("units", "iteration_sum", 0, {column: value}, ()) for column, value in (
        ("Units", "63"), ("Units", ""), ("Units From", "called"), ("Units From", ""), ("Units/s", "1.000"), ("Units/s of GPU Busy", "1.000"))),
    ("units", "iteration_sum", 1, {"Units": "64", "Units From": "stated"}, ()),
    *(("units", "step_times", 3, {column: value}, ()) for column, value in (("Units", "65"), ("Units From", "payload"), ("Units/s", "1.000"))),
    *(("units", "window_sum", 0, {column: value}, ()) for column, value in (
        ("Iterations with Units", "1"), ("Units in Window", "1"), ("Units in Window", ""), ("Units/s in Window", "1.000"),
        ("Units/s of GPU Busy in Window", "1.000"), ("Units/s", "1.000"), ("Units/s", ""))),
    ("longest-kernel", "family_sum", 0, {"Max (ns)": "60000000000"}, ("total", "kernel-extremes")),
    ("trace-sum", "cuda_gpu_trace", 0, {"Duration (ns)": "1"}, ("trace-busy",)),
    ("trace-sum", "cuda_api_trace", 0, {"Name": "cudaNothing"}, ()),
    ("trace-busy", "cuda_gpu_trace", 0, {"Start (ns)": "1"}, ()),
    ("theoretical-occupancy", "kernel_detail", 0, {"Occupancy (%)": "12.5"}, ()),
    ("theoretical-occupancy", "kernel_detail", 0, {"SM Efficiency (%)": "50.0"}, ()),
    ("theoretical-occupancy", "kernel_detail", 0, {"Lost Time (ns)": "5"}, ()),
    ("theoretical-occupancy", "kernel_detail", 0, {"Waves": "7.00"}, ()),
    ("occupancy", "kernel_metrics", 0, {"Occupancy (%)": "99.00"}, ()),
    ("peak", "gemm_sum", 0, {"Peak (%)": "150.0"}, ("one-peak",)),
    ("roofline", "kernel_metrics", 0, {"Roofline (%)": "170.0"}, ()),
    ("traffic", "kernel_metrics", 0, {"DRAM Traffic (MB)": "200.000"}, ()),
    ("traffic", "kernel_metrics", 0, {"FLOP/Byte": "99.00"}, ()),
    ("busiest-unit", "kernel_metrics", 0, {"Busiest Unit": "L2"}, ()),
    ("busiest-unit", "kernel_metrics", 0, {"Unused Time (ns)": "1"}, ()),
    ("metric-error", "kernel_metrics", 0, {"± L2 (%)": ""}, ()),
    ("metric-error", "kernel_metrics", 0, {"Samples": "9"}, ()),
    ("metric-error", "kernel_metrics", 0, {"± L2 (%)": "12.00"}, ()),
    ("metric-kernels", "kernel_metrics", 0, {"Instances": "11"}, ()),
    ("sample-time", "metric_samples", 1, {"Start (ns)": "1"}, ("metric-mean",)),
    ("sample-occupancy", "metric_samples", 7, {"SM Active (%)": "60.000", "Warps Active (%)": "40.000", "Occupancy (%)": "10.000"}, ("metric-mean",)),
    ("metric-mean", "window_sum", 1, {"L2 (%)": "99.00"}, ()),
    ("window-run", "window_sum", 0, {"Missing Activity Records": "1"}, ("lost-sum",)),
    ("missing-records", "window_sum", 0, {"Submissions": "1"}, ("launch-sum",)),
]


class Planted(CheckTest):
    def found(self, folder, rule, others=()):
        """Findings of the rule; no rules but it and `others` have any."""
        found = findings(folder)
        self.assertIn(rule, {finding.rule for finding in found}, list(map(str, found)))
        self.assertLessEqual({finding.rule for finding in found}, {rule, *others}, list(map(str, found)))
        return [finding for finding in found if finding.rule == rule]

    def test_a_clean_folder_has_none(self):
        self.assertEqual(list(map(str, findings(self.clean))), [])

    def test_one_cell_that_is_wrong(self):
        for rule, table, row, cells, others in PLANTED:
            with self.subTest(rule=rule, table=table, cells=cells):
                folder = self.copy()
                edit(folder, table, row, **cells)
                found = self.found(folder, rule, others)
                self.assertTrue(all(finding.place.row >= 1 and finding.place.text for finding in found))

    def test_the_place_is_told(self):
        folder = self.copy()
        edit(folder, "window_sum", 1, **{"Kernel Concurrency": "129.000"})
        self.assertEqual(str(findings(folder)[0]), "window_sum.csv:3: Kernel Concurrency: concurrency: 129.0 kernels at once")

    def test_rows_are_lines_of_the_file(self):
        # A name may have line breaks.
        folder = self.copy()
        edit(folder, "cuda_api_sum", 0, Name="a\nb\nc")
        edit(folder, "cuda_api_sum", 1, **{"Time (%)": "99.9"})
        found = [finding for finding in findings(folder) if finding.rule == "share"]
        self.assertEqual([finding.place.row for finding in found], [5])

    def test_two_rows_of_one_thing(self):
        folder = self.copy()
        edit(folder, "cuda_api_sum", 1, Name=self.cell("cuda_api_sum", 0, "Name"))
        self.found(folder, "distinct", ("trace-sum",))

    @staticmethod
    def keep_tables(run):
        """As recovery does where the records have less than the tables."""
        counts = ("journal_blocks", "records_from_queues", "records_from_buffers", "calls_not_kept", "submissions_after_full", "records_after_full",
                  "records_without_call", "names_missing", "records_refused", "bytes_unread")
        run.update(state="recovered", recovered={**dict.fromkeys(counts, 0), "journal_cut": True, "journal_full": False, "info_damaged": False,
                                                 "tables_kept": True})
        run["windows"][-1]["state"] = "cut"

    def test_what_run_json_says(self):
        for rule, change, others in (
                ("run-schema", lambda run: run.update(another=1), ()),
                ("run-schema", lambda run: run.pop("pid"), ()),
                ("run-schema", lambda run: run["windows"][0].update(state="shut"), ()),
                ("state", lambda run: run.update(state="open"), ()),
                ("state", self.keep_tables, ()),
                ("files", lambda run: run["files"].append("absent.csv"), ()),
                ("files", lambda run: run["files"].remove("gemm_sum.csv"), ()),
                ("write-errors", lambda run: run["write_errors"].append("gemm_sum.csv: no space left on device"), ()),
                ("stale-files", lambda run: run.update(stale_files=["gemm_sum.csv"]), ()),
                ("window-run", lambda run: run["windows"][0].update(start_ns=1), ()),
                ("window-run", lambda run: run["windows"].append({**run["windows"][0], "number": 2}), ()),
                ("window-run", lambda run: run["windows"].clear(), ()),
                ("diagnosis-sum", lambda run: run["diagnosis"][0].update(copy_only_ns=1), ()),
                ("gain", lambda run: run["diagnosis"][0].update(verdict="GPU-bound", potential_gain_ns=0), ()),
                ("gain", lambda run: run["diagnosis"][0].update(verdict="undetermined", potential_gain_ns=7), ()),
                ("diagnosis-sum", lambda run: run["diagnosis"][0]["idle_ns"].update({"Queue": 1}), ())):
            with self.subTest(rule=rule):
                folder = self.copy()
                change_run(folder, change)
                for finding in self.found(folder, rule, others):
                    self.assertGreaterEqual(finding.place.row, 1)

    def test_tables_of_different_moments_need_not_agree(self):
        def later(run, stale):
            run["windows"].append({**run["windows"][0], "number": 2})
            run["diagnosis"][0]["copy_only_ns"] += 1
            run["stale_files"] = stale

        for stale, expected in ((["gemm_sum.csv"], {"stale-files", "window-run", "diagnosis-sum"}), (["window_sum.csv"], {"stale-files"})):
            folder = self.copy()
            change_run(folder, lambda run, stale=stale: later(run, stale))
            self.assertEqual({finding.rule for finding in findings(folder)}, expected)
        edit(folder, "window_sum", 0, **{"GPU Utilization (%)": "101.0"})
        self.assertIn("share-range", {finding.rule for finding in findings(folder)})

    def test_less_lost_in_all_than_in_the_windows(self):
        folder = self.copy()
        for row in (0, 1):
            edit(folder, "window_sum", row, **{"Lost Host Records": "3"})
        change_run(folder, lambda run: run["windows"][0]["lost"].update(host_records=3))
        self.found(folder, "lost-sum")

    def test_what_is_wrong_with_step_times(self):
        for table, cells, text in (
                ("window_sum", {"Step Time (ns)": "1040.1", "Samples/s": f"{64e9 / 1040.1:.1f}"}, "1040.1 is not the median of the 9 in step_times.csv"),
                ("window_sum", {"Step Time (ns)": "1090.0", "Samples/s": f"{64e9 / 1090:.1f}"}, "1090.0 is not within 1000.0 … 1080.0"),
                ("window_sum", {"Step Time (ns)": ""}, "empty, but step_times.csv has 9 iterations"),
                ("window_sum", {"Step Time Low (ns)": "1015.0"}, "1015.0 is no duration in step_times.csv"),
                ("window_sum", {"Step Time High (ns)": "1085.0"}, "1085.0 is no duration in step_times.csv"),
                ("step_times", {"Iteration": "9"},
                 f"iteration 1 at {self.cell('step_times', 1, 'Start (ns)')} begins before iteration 9 has ended, or is numbered below it")):
            with self.subTest(cells=cells):
                folder = self.copy()
                edit(folder, table, 0, **cells)
                self.assertEqual([finding.place.text for finding in self.found(folder, "step-times")], [text])

    def test_medians_of_more_iterations_than_are_kept(self):
        """They come from a histogram, and are up to 1.6 % off."""
        for count, slower, rules in ((1024, 1.01, {"iteration-count"}), (1025, 1.01, set()), (1025, 1.07, {"iteration-count"}), (1024, 1, set())):
            folder = folders.write_run(self.folder / f"{count} {slower}", options={"INJECT_BATCH": "64"}, files=["iteration_sum.csv", "window_sum.csv"])
            folders.write_table(folder, "iteration_sum", [
                {"Window": 1, "Iteration": at, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": 2000 * at, "Duration (ns)": 1000, "Step Time (ns)": "1000.0"}
                for at in range(count)])
            folders.write_table(folder, "window_sum", [{"Window": 1, "Device": "all", "Iterations": count, "Step Time in Window (ns)": f"{1000 * slower:.1f}",
                                                        "Samples/s in Window": f"{64e6 / slower:.1f}"}])
            found = findings(folder)
            self.assertEqual({finding.rule for finding in found}, rules, list(map(str, found)))
            self.assertEqual(len(found), 2 * len(rules))

    def test_energy_by_units(self):
        for name, units, joules, said in (("right", "50", "9.000000", set()), ("rounded", "49.999970", "9.000005", set()), ("wrong", "50", "9.100000", {"units"}),
                                          ("of unknown units", "", "9.000000", {"units"}), ("of none", "0", "9.000000", {"units"})):
            folder = folders.write_run(self.folder / name, files=["iteration_sum.csv", "energy_sum.csv"])
            folders.write_table(folder, "iteration_sum", [
                {"Window": 1, "Iteration": 0, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": 5, "Duration (ns)": 1_000_000_000,
                 "GPU Busy (ns)": 500_000_000, "Units": units, "Units From": "called" if units else ""}])
            folders.write_table(folder, "energy_sum", [{**ENERGY[1], "Energy per Unit (J)": joules}])
            self.assertEqual({finding.rule for finding in findings(folder)} - {"device-sum"}, said, name)

    def test_a_process_without_threads(self):
        for name, rows, said in (("all", HOST[:4], set()), ("none", HOST[3:4], {"host-sum"})):
            folder = folders.write_run(self.folder / name, files=["host_sum.csv"])
            folders.write_table(folder, "host_sum", rows)
            self.assertEqual({finding.rule for finding in findings(folder)} & {"host-sum"}, said, name)

    def test_units_of_several_gpus_are_by_the_busiest(self):
        for name, rate, in_window, said in (("right", "200.000", "200.000", set()), ("by the sum", "125.000", "200.000", {"units"}),
                                            ("by the sum in the window", "200.000", "125.000", {"units"})):
            folder = folders.write_run(self.folder / name, files=["iteration_sum.csv", "window_sum.csv"])
            row = {"Window": 1, "Label": "iteration", "Complete": 1, "Start (ns)": 5, "Duration (ns)": 1_000_000_000}
            folders.write_table(folder, "iteration_sum", [
                entry for number in (0, 1) for entry in (
                    {**row, "Iteration": number, "Device": "all", "GPU Busy (ns)": 800_000_000, "Units": 100, "Units From": "called",
                     "Units/s": "100.000", "Units/s of GPU Busy": rate},
                    {**row, "Iteration": number, "Device": 0, "GPU Busy (ns)": 300_000_000}, {**row, "Iteration": number, "Device": 1, "GPU Busy (ns)": 500_000_000})])
            folders.write_table(folder, "window_sum", [
                {"Window": 1, "Device": "all", "Iterations with Units": 2, "Units in Window": 200, "Units/s in Window": "100.000",
                 "Units/s of GPU Busy in Window": in_window}])
            self.assertEqual({finding.rule for finding in findings(folder)} & {"units"}, said, name)

    def test_a_rate_is_empty_only_where_the_host_ran_ahead(self):
        for name, step, rate, said in (("kept pace", "1000000000.0", "100.000", set()), ("empty all the same", "1000000000.0", "", {"units"}),
                                       ("ran ahead", "3000000000.0", "", set())):
            folder = folders.write_run(self.folder / name, files=["iteration_sum.csv"])
            folders.write_table(folder, "iteration_sum", [
                {"Window": 1, "Iteration": 0, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": 5, "Duration (ns)": 1_000_000_000,
                 "Step Time (ns)": step, "GPU Busy (ns)": 800_000_000, "Units": 100, "Units From": "called", "Units/s": rate}])
            self.assertEqual({finding.rule for finding in findings(folder)} & {"units"}, said, name)

    def test_memory_over_time_of_each_device(self):
        rows = [{"Device": device, "Of": "allocated", "Start (ns)": start, "Duration (ns)": 100, "Lowest (MB)": "1.000", "Highest (MB)": "9.000",
                 "Highest at (ns)": start} for device in (0, 1) for start in (100, 200)]
        peaks = [{"Device": device, "Kind": "[all]", "API": "[all]", "Peak (MB)": "9.000", "Peak at (ns)": 100} for device in (0, 1)]
        late = [*rows[:-1], {**rows[-1], "Duration (ns)": 90}]
        torch = [*rows, *({**rows[0], "Of": f"PyTorch {kind}", "Highest (MB)": high} for kind, high in (("allocated", "5.000"), ("reserved", "6.000")))]
        too_much = [*torch[:-1], {**torch[-1], "Highest (MB)": "4.000"}]
        for name, table, lost, said in (("right", rows, 0, set()), ("of one alone", rows[:2], 0, {"memory-timeline"}), ("counted", rows[:2], 1, set()),
                                        ("ends before", late, 0, {"memory-timeline"}), ("PyTorch's", torch, 0, set()),
                                        ("more than PyTorch has", too_much, 0, {"memory-timeline"}), ("none", [], 0, {"memory-timeline"}), ("none, counted", [], 2, set())):
            folder = folders.write_run(self.folder / name, files=["memory_timeline.csv", "memory_sum.csv"], lost={"memory_lines": lost})
            folders.write_table(folder, "memory_timeline", table or rows)
            if not table:
                path = folder / "memory_timeline.csv"
                path.write_text(path.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
            folders.write_table(folder, "memory_sum", peaks)
            self.assertEqual({finding.rule for finding in findings(folder)} & {"memory-timeline"}, said, name)

    def test_a_kernel_with_another_ones_end(self):
        self.assertEqual(findings(graph_folder(self.folder / "good", 1300)), [])
        found = findings(graph_folder(self.folder / "bad", 17_395_000))
        self.assertEqual([(finding.rule, finding.severity, finding.place.file, finding.place.row) for finding in found],
                         [("outlier", "warning", "cuda_gpu_kern_gb_sum.csv", 2)])

    def test_operations_of_a_shape(self):
        # From runs on an H200 (examples/data).
        rows = {"attention_sum": {"Direction": "backward", "B": 16, "H": 16, "S Query": 1024, "S Key": 1024, "D": 64, "D Value": 64, "Causal": 1,
                                  "Varying Lengths": 0, "FLOPs": 85983232000},
                "rnn_sum": {"Cell": "GRU", "Layers": 5, "Directions": 2, "Input Size": 1312, "Hidden Size": 800, "Projection Size": 0,
                            "Steps": 9600, "FLOPs": 1079377920000},
                "conv_sum": {"N": 64, "C": 3, "D": "", "H": 224, "W": 224, "K": 64, "T": "", "R": 7, "S": 7, "Stride": "2x2", "Padding": "3x3",
                             "Dilation": "1x1", "Groups": 1, "FLOPs": 15105785856}}
        for table, row in rows.items():
            with self.subTest(table):
                folder = folders.write_run(self.folder / table, files=[f"{table}.csv"])
                folders.write_table(folder, table, [row])
                self.assertEqual(list(map(str, findings(folder))), [])
                edit(folder, table, 0, FLOPs=str(2 * row["FLOPs"]))
                self.found(folder, "flops")

    def test_products_inside_recurrent_layers(self):
        folder = folders.write_run(self.folder / "products", files=["gemm_sum.csv", "rnn_sum.csv", "family_sum.csv"])
        calls = {"API": "cudnnRNNForward", "Calls": 3, "Captured Calls": 1, "Replayed Calls": 2}
        folders.write_table(folder, "rnn_sum", [{**calls, "FLOPs": 1280, "GPU Time (ns)": 90}, {**calls, "API": "cudnnRNNForward", "FLOPs": "", "GPU Time (ns)": 10}])
        one = {"Derived": "product", "M": 8, "N": 4, "K": 2, "Batch": 4, "FLOPs": 512, "GPU Time (ns)": ""}
        folders.write_table(folder, "gemm_sum", [
            {**calls, **one, "Derived": "call", "M": 8, "N": "", "K": "", "Batch": 10, "FLOPs": 1280, "GPU Time (ns)": 70}, {**calls, **one},
            {**calls, **one, "N": "", "Batch": 6, "FLOPs": 768},
            {**calls, **one, "Derived": "call", "M": "", "N": "", "K": "", "Batch": "", "FLOPs": "", "GPU Time (ns)": 10},
            {**calls, **one, "API": "cublasGemmEx", "Derived": "", "Batch": 1, "FLOPs": 128, "GPU Time (ns)": 20}])
        folders.write_table(folder, "family_sum", [{"Family": "GEMM", "Total Time (ns)": 100}, {"Family": "RNN cell", "Total Time (ns)": 20}])
        self.assertEqual(list(map(str, findings(folder))), [])
        for rule, table, row, cells, others in (
                ("derived-products", "gemm_sum", 1, {"FLOPs": "640", "K": "", "N": ""}, ()),
                ("derived-products", "gemm_sum", 0, {"FLOPs": "640"}, ()),
                ("derived-products", "gemm_sum", 2, {"Batch": "7"}, ()),
                ("derived-products", "gemm_sum", 1, {"Calls": "4"}, ()),
                ("derived-products", "gemm_sum", 4, {"Derived": "product"}, ()),
                ("derived-products", "gemm_sum", 3, {"Batch": "1"}, ()),
                ("derived-products", "rnn_sum", 0, {"FLOPs": "1282"}, ()),
                ("derived-products", "rnn_sum", 0, {"GPU Time (ns)": "69"}, ()),
                ("word", "gemm_sum", 4, {"Derived": "products"}, ()),
                ("flops", "gemm_sum", 1, {"K": "3"}, ()),
                ("product-time", "gemm_sum", 4, {"GPU Time (ns)": "19"}, ())):
            with self.subTest(rule=rule, table=table, cells=cells):
                copy = self.folder / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(folder, copy)
                edit(copy, table, row, **cells)
                self.found(copy, rule, others)

    def test_two_peaks_of_one_arithmetic(self):
        folder = folders.write_run(self.folder / "peaks", devices=[{"id": 0}], files=["gemm_sum.csv"])
        rows = [{"TFLOP/s": "689.004", "Peak": "bf16 tensor", "Peak (%)": "69.7"}, {"TFLOP/s": "713.715", "Peak": "bf16 tensor", "Peak (%)": "72.2"}]
        folders.write_table(folder, "gemm_sum", rows)
        self.assertEqual(list(map(str, findings(folder))), [])
        edit(folder, "gemm_sum", 1, **{"Peak (%)": "36.1"})
        self.found(folder, "one-peak")

    def test_collectives_wait_for_others(self):
        folder = graph_folder(self.folder / "bad", 17_395_000)
        for table in ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum"):
            edit(folder, table, 0, Name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        self.assertEqual(findings(folder), [])

    def test_losses_loosen_what_they_touch(self):
        folder = self.copy()
        edit(folder, "window_sum", 0, Submissions="87")
        edit(folder, "iteration_sum", 0, Launches=str(int(self.cell("iteration_sum", 0, "Launches")) + 1))
        self.found(folder, "missing-records")
        change_run(folder, lambda run: run["lost"].update(missing_activity_records=1))
        self.assertEqual(findings(folder), [])

    def test_each_rule_has_something_planted(self):
        elsewhere = {"readable", "size", "run-schema", "distinct", "state", "files", "write-errors", "stale-files", "lost-sum", "outlier", "diagnosis-sum", "one-peak",
                     "derived-products", "product-time"}
        self.assertEqual({rule for rule, *_ in PLANTED} | elsewhere, set(RULES))

    def test_the_documentation_lists_the_rules(self):
        rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in DOCS.read_text(encoding="utf-8").splitlines()
                if line.startswith("| `")]
        self.assertEqual([(name.strip("`"), severity, says) for name, severity, says in rows],
                         [(rule.name, rule.severity, rule.says) for rule in RULES.values()])


class BadInput(CheckTest):
    def command(self, *arguments):
        return folders.invoke("check", *arguments)

    def test_clean(self):
        done = folders.inject("check", self.clean)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_findings(self):
        folder = self.copy()
        edit(folder, "kernel_metrics", 0, **{"Roofline (%)": "170.0"})
        done = self.command(folder)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertRegex(done.stdout, rf"^{folder}/kernel_metrics\.csv:2: Roofline \(%\): roofline: 170\.0 % of [^\n]*\n$")
        told = json.loads(self.command("--json", folder).stdout)
        self.assertEqual([(finding["rule"], finding["row"]) for finding in told[str(folder)]], [("roofline", 2)])

    def test_warnings_alone_are_no_failure(self):
        done = self.command(graph_folder(self.folder / "graph", 17_395_000))
        self.assertEqual(done.returncode, 0)
        self.assertIn("outlier", done.stdout)
        self.assertIn("(warning)", done.stdout)

    def test_a_rule_is_told_twenty_times(self):
        folder = self.copy()
        with open(folder / "metric_samples.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        folders.write_table(folder, "metric_samples", [{**row, "L2 (%)": "-1.000"} for row in rows * 3])
        lines = [line for line in self.command(folder).stdout.splitlines() if ": share-range: " in line]
        self.assertEqual(len(lines), 21)
        self.assertEqual(lines[-1], f"{folder}: share-range: … and {3 * len(rows) - 20} more")

    def test_tables_that_are_missing(self):
        # From an older version, or from a run without them: existing tables are checked, and those that run.json promises are reported as
        # missing.
        names = [path.stem for path in sorted(self.clean.glob("*.csv"))]
        for name in names:
            with self.subTest(name):
                folder = self.copy()
                (folder / f"{name}.csv").unlink()
                change_run(folder, lambda run, name=name: run.update(files=[file for file in run["files"] if file != f"{name}.csv"]))
                self.assertEqual(list(map(str, findings(folder))), [])
        for path in folder.glob("*.csv"):
            path.unlink()
        self.assertEqual({finding.rule for finding in findings(folder)}, {"files"})

    def test_columns_that_are_missing(self):
        tables = {}
        for path in sorted(self.clean.glob("*.csv")):
            with open(path, newline="", encoding="utf-8") as file:
                tables[path.stem] = list(csv.DictReader(file))
        folder = self.copy()
        for column in sorted({column for rows in tables.values() if rows for column in rows[0]}):
            with self.subTest(column):
                mine = {name: rows for name, rows in tables.items() if rows and column in rows[0]}
                for name, rows in mine.items():
                    folders.write_table(folder, name, [{key: cell for key, cell in row.items() if key != column} for row in rows])
                self.assertLessEqual({finding.rule for finding in findings(folder)}, {"header"}, [f for f in findings(folder) if f.rule != "header"])
                for name in mine:
                    shutil.copy(self.clean / f"{name}.csv", folder)

    def test_tables_that_are_damaged(self):
        for content in (b"", b"\n", b"a,a\n", b"a,b\n1\n", b"\xff\xfe\n", b'"a', b"\0\n", b"a" * 100):
            folder = self.copy()
            for path in folder.glob("*.csv"):
                path.write_bytes(content)
            self.assertLessEqual({finding.rule for finding in findings(folder)}, {"readable", "header"})
        folder = self.copy()
        for path in sorted(self.clean.glob("*.csv")):
            (folder / path.name).write_bytes(path.read_bytes()[:-9])
            findings(folder)
            shutil.copy(path, folder)

    def test_no_sample_was_taken(self):
        folder = self.copy()
        (folder / "metric_samples.csv").write_bytes(b"")
        self.assertEqual(list(map(str, findings(folder))), [])

    def test_tables_without_rows(self):
        folder = self.copy()
        for path in folder.glob("*.csv"):
            path.write_text(path.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
        self.assertLessEqual({finding.rule for finding in findings(folder)}, {"window-run"})

    def test_numbers_that_are_none(self):
        for cell in ("", "nan", "inf", "-inf", "1e999", "9" * 5000, "-1", "0", "99999999999999999999", "text", "'=1"):
            folder = self.copy()
            for path in folder.glob("*.csv"):
                with open(path, newline="", encoding="utf-8") as file:
                    rows = list(csv.DictReader(file))
                if rows:
                    folders.write_table(folder, path.stem, [dict.fromkeys(row, cell) for row in rows])
            findings(folder)

    def test_run_json_that_is_none(self):
        for content, why in ((b"", "not JSON"), (b"[]", "not written by libinject"), (b"{}", "does not say which version"), (b"\xff", "not UTF-8")):
            folder = self.copy()
            (folder / "run.json").write_bytes(content)
            done = self.command(folder)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, f"^inject: [^\n]*{why}[^\n]*\n$")

    def test_members_of_run_json_that_are_none(self):
        folder = self.copy()
        for member in json.loads((self.clean / "run.json").read_text()):
            for value in (5, [None], {"a": None}):
                shutil.copy(self.clean / "run.json", folder)
                change_run(folder, lambda run, member=member, value=value: run.update({member: value}))
                try:
                    findings(folder)
                except BadFile:
                    pass

    def test_figures_that_would_divide_by_nothing(self):
        folder = self.copy()
        edit(folder, "kernel_detail", 0, GrdX="-5", GrdY="7", GrdZ="1")
        self.assertIn("negative", {finding.rule for finding in findings(folder)})

    def test_devices_of_run_json_that_are_none(self):
        for value in ([], {}, "x", None, 1.5, 2**63 - 1):
            folder = self.copy()
            change_run(folder, lambda run, value=value: [device.update(dict.fromkeys(device, value), id=device["id"]) for device in run["devices"]])
            findings(folder)

    def test_a_table_of_one_device(self):
        """A table each of whose rows claims to be the total."""
        folder = self.copy()
        with open(folder / "memory_sum.csv", newline="", encoding="utf-8") as file:
            row = next(csv.DictReader(file))
        folders.write_table(folder, "memory_sum", [{**row, "API": "[all]"}] * 10_000)
        begin = time.process_time()
        findings(folder)
        self.assertLess(time.process_time() - begin, 10)

    def test_a_name_that_is_no_text(self):
        folder = self.folder / os.fsdecode(b"\xff\x1b[31m") / "\u202e"
        shutil.copytree(self.clean, folder)
        done = self.command(folder, "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {str(folder): []}))
        self.assertTrue(done.stdout.isascii())

    def test_no_folder(self):
        (self.folder / "empty").mkdir()
        for path, why in ((self.folder / "absent", "no such folder"), (self.folder / "empty", "it has no run.json"), (DOCS, "not a folder")):
            done = self.command(path, self.clean)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, f"^inject: [^\n]*{why}[^\n]*\n$")
        self.assertEqual(self.command().returncode, 2)
        self.assertEqual(self.command("--nothing", self.clean).returncode, 2)

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_a_folder_that_may_not_be_read(self):
        folder = self.copy()
        folder.chmod(0o300)
        self.addCleanup(folder.chmod, 0o700)
        self.assertEqual(self.command(folder).returncode, 2)

    def test_a_pipe_is_not_waited_for(self):
        folder = self.copy()
        (folder / "gemm_sum.csv").unlink()
        os.mkfifo(folder / "gemm_sum.csv")
        done = folders.inject("check", folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gemm_sum.csv:1: -: readable: not a regular file", done.stdout)


class OfAGpu(unittest.TestCase):
    def test_runs_on_an_h100_and_an_h200(self):
        runs = sorted((folders.ROOT / "examples" / "data").glob("*/*/run.json"))
        self.assertEqual(len(runs), 6)
        for run in runs:
            with self.subTest(run.parent):
                self.assertEqual(list(map(str, findings(run.parent))), [])


class Large(folders.TemporaryFolder):
    def test_ten_thousand_kernels(self):
        folder = folders.write_run(self.folder / "large")
        times = {"Time (%)": "0.0", "Total Time (ns)": 20000, "Instances": 2, "Avg (ns)": "10000.0", "Min (ns)": 9000, "Max (ns)": 11000}
        whole = {"Time (%)": "0.0", "Total Time (ns)": 20000, "Instances": 2, "Avg (ns)": "10000.0", "Med (ns)": "10000.0", "Min (ns)": 9000,
                 "Max (ns)": 11000, "StdDev (ns)": "1414.2"}
        ranged = {column: cell for column, cell in whole.items() if column not in ("Time (%)", "Instances")}
        names = [f"void kernel_{number}<float, {number}>(float*, int)" for number in range(10_000)]
        shape = {"GrdX": 64, "GrdY": 1, "GrdZ": 1, "BlkX": 128, "BlkY": 1, "BlkZ": 1}
        folders.write_table(folder, "cuda_gpu_kern_sum", [{**whole, "Name": name} for name in names])
        folders.write_table(folder, "cuda_gpu_kern_gb_sum", [{**whole, "GridXYZ": "64", "BlockXYZ": "128", "Name": name} for name in names])
        folders.write_table(folder, "kernel_detail", [{**times, "Device": 0, **shape, "Name": name} for name in names])
        folders.write_table(folder, "nvtx_kern_sum", [{"NVTX Range": ":step", "Style": "PushPop", "PID": 1, "TID": 1, "NVTX Inst": 2, "Kern Inst": 2,
                                                      **ranged, "Kernel Name": name} for name in names])
        folders.write_table(folder, "kernel_metrics", [{"Device": 0, **shape, "Total Time (ns)": 20000, "Instances": 2, "Samples": 20, "Shared (%)": "0.0",
                                                       **MEASURED, "Unused Time (ns)": 10000,
                                                       "DRAM Traffic (MB)": "33.520", "Name": name} for name in names])
        change_run(folder, lambda run: run.update(files=[name for name in os.listdir(folder) if name.endswith(".csv")]))
        begin = time.process_time()
        found = findings(folder)
        self.assertEqual({finding.rule for finding in found}, set())
        # 1 s where this was written; sums that go through all rows again for each row would take minutes.
        self.assertLess(time.process_time() - begin, 10)


if __name__ == "__main__":
    unittest.main()
