# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Result folders of a made-up distributed job, whose truth is known.

usage: ranks.py FOLDER RANKS: one of 20 iterations, with all files that a run writes; a rank of them is a straggler
"""

import csv
import itertools
import json
import os
import pathlib
import random
import sys

MS = 1_000_000
ITERATION = ("Window", "Iteration", "Label", "Complete", "Device", "Start (ns)", "Duration (ns)", "Samples/s", "Units", "Units From", "Launches",
             "GPU Busy (ns)", "Gap to Next (ns)", "Kernels", "Kernel Time (ns)", "Copies", "Copy Time (ns)", "Copy Size (MB)", "Memsets",
             "Memset Time (ns)", "Memset Size (MB)", "Unattributed", "FLOPs", "TFLOP/s", "Peak (%)", "Kernel Busy (ns)",
             "GPU Utilization (%)")
WINDOW = ("Window", "Reason", "State", "Start (ns)", "End (ns)", "Duration (ns)", "Device", "GPU Busy (ns)", "Kernels", "Iterations",
          "Step Time (ns)", "Samples/s", "Units/s", "Units From", "Device Time (ns)", "Kernel Busy (ns)", "GPU Utilization (%)", "Copy Only (ns)", "Idle (ns)",
          "Exposed Collective (ns)", "Verdict", "Memory at Start (MB)", "Memory at End (MB)")
NCCL = ("Operation", "Type", "Reduction", "Bytes", "Ranks", "Peer/Root", "Grouped", "Calls", "Failed Calls", "GPU Time (ns)",
        "GPU Avg (ns)", "GPU Min (ns)", "GPU Max (ns)", "Algorithm BW (GB/s)", "Bus BW (GB/s)", "Overlap with Compute (%)", "Kernels",
        "Kernel Names", "Communicator")
COPY = ("Device", "Direction", "Source", "Target", "Count", "Total Time (ns)", "Avg (ns)", "Total (MB)", "Avg (MB)", "Throughput (GB/s)",
        "Link (GB/s)", "Link (%)")
MEMORY = ("Device", "Kind", "API", "Allocations", "Live (MB)", "Peak (MB)", "Failed")
_PIDS = itertools.count(1000)
KERNELS = ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)", "Name")


def write(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([row.get(column, "") for column in header] if isinstance(row, dict) else row for row in rows)


def collective(calls, transfer, waits, *, world, bytes=64 << 20, operation="AllReduce", **more):
    """A row of nccl_sum.csv; `waits`: the waiting time before each call."""
    times = [transfer + wait for wait in waits]
    total = sum(times)
    factor = {"AllReduce": 2 * (world - 1) / world, "AllGather": (world - 1) / world}.get(operation, 1)
    return {"Operation": operation, "Type": "fp32", "Reduction": "sum" if operation == "AllReduce" else "", "Bytes": bytes, "Ranks": world,
            "Grouped": "no", "Calls": calls, "Failed Calls": 0, "GPU Time (ns)": total, "GPU Avg (ns)": f"{total / calls:.1f}", "GPU Min (ns)": min(times),
            "GPU Max (ns)": max(times), "Algorithm BW (GB/s)": f"{bytes * calls / total:.3f}", "Bus BW (GB/s)": f"{factor * bytes * calls / total:.3f}",
            "Overlap with Compute (%)": "0.0", "Kernels": calls, "Kernel Names": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            **more}


def write_rank(folder, number, durations, *, host="node0", first=100, start=0, batch=None, nccl=(), link=86.0, peak=1000.0, lost=None,
               utilization=0.9, verdict="GPU-bound (compute)", unprofiled=None, units=None, steps=None, **run):
    """One rank: complete iterations from number `first` on. `start` is the first one's, in ns by the host's clock. `unprofiled`: the step
    time without the profiler. `units`: their source, and the number per iteration. `steps`: step times, which older versions do not
    distinguish from `durations`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    rank = number or 0
    zero = 1_795_000_000_000_000_000 - 1_000_000 * rank  # each process initialises CUDA at a different time
    begin = at = 20_000 * MS + 1_000_000 * rank + start
    rows = []
    for iteration, duration in enumerate(durations, first):
        busy = int(utilization * duration)
        row = {"Window": 1, "Iteration": iteration, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": at, "Duration (ns)": duration,
               "Samples/s": f"{batch * 1e9 / duration:.1f}" if batch else "", "Launches": 700, "GPU Busy (ns)": busy, "Kernels": 700,
               "Kernel Time (ns)": busy, "Copies": 3, "Memsets": 17, "Unattributed": 0, "Kernel Busy (ns)": busy}
        if units:
            row["Units From"], row["Units"] = units
        rows += [row, {**row, "Device": "0", "Units From": "", "Units": ""}]
        if steps:
            for row in rows[-2:]:
                row["Step Time (ns)"] = steps[iteration - first]
        at += duration
    rows.append({"Window": 1, "Label": "outside", "Device": "all", "Start (ns)": at, "Duration (ns)": 1000})
    write(folder / "iteration_sum.csv", (*ITERATION, "Step Time (ns)") if steps else ITERATION, rows)
    time = sum(durations)
    row = {"Window": 1, "Reason": "iter", "State": "closed", "Start (ns)": begin, "End (ns)": at, "Duration (ns)": time, "Device": "all",
           "Iterations": len(durations), "Device Time (ns)": time, "Kernel Busy (ns)": int(utilization * time), "Idle (ns)": time - int(utilization * time),
           "Copy Only (ns)": 0, "Exposed Collective (ns)": 0, "Verdict": verdict, "Step Time (ns)": unprofiled or "",
           "Samples/s": f"{batch * 1e9 / unprofiled:.1f}" if batch and unprofiled else ""}
    if units:
        row.update({"Units From": units[0], "Units/s": units[1] * 1e9 / unprofiled if unprofiled else ""})
    write(folder / "window_sum.csv", WINDOW, [row, {**row, "Device": "0", "Memory at Start (MB)": peak, "Memory at End (MB)": peak + 500}])
    # Without the last column if it is empty, as in older versions.
    write(folder / "nccl_sum.csv", NCCL if any("Communicator" in row for row in nccl) else NCCL[:-1], nccl)
    write(folder / "copy_sum.csv", COPY, [["0", "Host-to-Device", "Pinned", "Device", 20, 3_000_000, "150000.0", "192.000", "9.600",
                                           f"{0.63 * link:.3f}", "63.000", f"{link:.1f}"]])
    write(folder / "memory_sum.csv", MEMORY, [["0", "[all]", "[all]", 100, peak, peak, 0], ["0", "device", "cudaMalloc", 100, peak, peak, 0],
                                              ["host", "[all]", "[all]", 3, 30, 30, 0]])
    files = ["iteration_sum.csv", "window_sum.csv", "nccl_sum.csv", "copy_sum.csv", "memory_sum.csv"]
    (folder / "run.json").write_text(json.dumps({
        "libinject": "0.1.0", "state": "closed", "command_line": ["python3", "train.py"], "host": host, "pid": next(_PIDS),
        "rank": None if number is None else str(number), "time_zero": {"utc_ns": zero}, "devices": [{"id": 0, "name": "NVIDIA H200"}], "windows": [],
        "diagnosis": [{"device": 0, "verdict": verdict, "device_time_ns": time, "potential_gain_ns": time // 10}], "lost": lost or {},
        "messages": [], "files": files, "options": {"INJECT_BATCH": str(batch)} if batch else {}, **run}), encoding="utf-8")
    return folder


def write_job(folder, count, *, iterations=20, step=100 * MS, noise=0.01, slow=None, hosts=8, seed=1, **more):
    """Ranks of equal speed except for `slow`: {rank: factor}. `noise`: standard deviation of a step, relative to it. Arguments that are
    functions are called for each rank."""
    chance = random.Random(seed)
    for rank in range(count):
        factor = (slow or {}).get(rank, 1)
        durations = [int(step * factor * max(0.2, chance.gauss(1, noise))) for _ in range(iterations)]
        write_rank(pathlib.Path(folder) / f"rank-{rank}", rank, durations, **{"host": f"node{rank // hosts}", **{
            name: value(rank) if callable(value) else value for name, value in more.items()}})
    return pathlib.Path(folder)


def place(rank, world, local=8, id="torchrun:training slurm:4711"):
    """The part of run.json about a rank's job."""
    return {"launcher": "torchrun", "id": id, "rank": rank, "world_size": world, "local_rank": rank % local, "local_size": local,
            "node": rank // local, "nodes": -(-world // local)}


def fill_up(folder):
    """Other files that a run writes, with a hundred kernels: files that a merge does not read, the same for all ranks."""
    original = pathlib.Path(folder) / "rank-0"
    names = [f"void at::native::kernel_{index}<{'float, ' * 20}float>(int, at::native::Functor<float>)" for index in range(100)]
    rows = [["1.0", 1_000_000, 100, "10000.0", "10000.0", 9000, 11000, "100.0", name] for name in names]
    others = ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "nvtx_sum", "nvtx_kern_sum",
              "library_sum", "family_sum", "gemm_sum", "conv_sum", "attention_sum", "rnn_sum", "norm_sum", "thread_kern_sum", "phase_sum", "kernel_detail")
    for name in others:
        write(original / f"{name}.csv", KERNELS, rows)
    for rank in pathlib.Path(folder).iterdir():
        if rank != original:
            for name in others:
                os.link(original / f"{name}.csv", rank / f"{name}.csv")


def write_whole(folder, count):
    def on_three_communicators(rank):
        groups = (("0x0000000000000001", count), ("0x1%015x" % (rank // 8), 8), ("0x2%015x" % (rank % 8), count // 8))
        return [collective(20, MS, [5000 * (rank % 8)] * 20, world=groups[size % 3][1], bytes=1 << size, Communicator=groups[size % 3][0])
                for size in range(14, 26)]

    write_job(folder, count, slow={count * 7 // 10: 1.1}, batch=8, nccl=on_three_communicators, job=lambda rank: place(rank, count))
    fill_up(folder)


if __name__ == "__main__":
    write_whole(sys.argv[1], int(sys.argv[2]))
