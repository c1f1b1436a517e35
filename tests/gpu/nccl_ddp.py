# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Data-parallel training on two GPUs under torchrun: nccl_sum.csv against what DDP must send, and its bus bandwidth
against a loop of all_reduce of that size, timed in the same processes outside the window."""

import json
import os
import socket
import sys

from gputest import KERN_SUM, SKIPPED, Folder, clean_environment, folders, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
BARRIER_BYTES = 64  # a barrier is an all_reduce of one number
# NVLink multicast is not used: if a program dies with it, the host's switches may need a reset. With one host, the network is not searched.
ENVIRONMENT = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
               "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "OMP_NUM_THREADS": "4"}


def device_count():
    code = ("import ctypes\nn = ctypes.c_int()\ncuda = ctypes.CDLL('libcuda.so.1')\n"
            "cuda.cuInit(0)\ncuda.cuDeviceGetCount(ctypes.byref(n))\nprint(n.value)")
    result = run([sys.executable, "-c", code], clean_environment(), timeout=60)
    return int(result.out or 0)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def profile(options, report, name, arguments):
    """Runs the program on both GPUs. Returns [(the rank's output, its folder)], None if it failed."""
    result_file = os.path.join(options.work, name + ".result")
    out = os.path.join(options.work, name)
    environment = profiled_environment(options.library, out + "-%r.out", "api", summary="off")
    environment.update(ENVIRONMENT)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={RANKS}", "--nnodes=1", "--node_rank=0",
               "--master_addr=127.0.0.1", f"--master_port={free_port()}", os.path.join(HERE, "programs", "torch_ddp.py"),
               *arguments, "--result", result_file]
    done = run(command, environment, timeout=130, cwd=options.work, log=os.path.join(options.work, name + ".log"))
    found = [folders(f"{out}-{rank}.out") for rank in range(RANKS)]
    passed = done.rc == 0 and all(len(of_rank) == 1 for of_rank in found)
    report.check(f"{name}: the job ends well, one output folder a rank", passed, done.why() if done.rc else found)
    if not passed:
        return None
    ranks = []
    for rank in range(RANKS):
        with open(f"{result_file}.{rank}") as file:
            ranks.append((json.load(file), Folder(found[rank][0])))
        report.data.setdefault(name, []).append({"said": ranks[-1][0], "nccl_sum": ranks[-1][1].rows("nccl_sum.csv")})
    return ranks


def brief(rows):
    return "; ".join(f"{r['Operation']} {r['Bytes']} B × {r['Calls'] or r['Kernels']}" for r in rows)


def check_kernels(report, what, folder):
    rows = folder.rows("nccl_sum.csv")
    listed = sum(int(r["Kernels"]) for r in rows), sum(int(r["GPU Time (ns)"]) for r in rows)
    kernels = [r for r in folder.rows(KERN_SUM) if r["Name"].startswith("nccl")]
    ran = sum(int(r["Instances"]) for r in kernels), sum(int(r["Total Time (ns)"]) for r in kernels)
    # The host runs ahead in the first steps: work launched in a step takes the GPU longer than the step, so its share of the peak is left
    # out, and counted.
    lost = {name: count for name, count in folder.lost().items() if name != "impossible_rates"}
    report.check(f"{what}: every NCCL kernel is in one row, nothing lost", listed == ran and not lost,
                 f"{listed} and {ran} kernels and ns; lost: {lost}")
    unknown = [r for r in rows if r["Operation"] == "[unknown]"]
    return rows, sum(int(r["GPU Time (ns)"]) for r in unknown) / max(listed[1], 1)


def gradients(rows):
    return [r for r in rows if r["Operation"] == "AllReduce" and int(r["Bytes"]) > BARRIER_BYTES]


def training(options, report, name, arguments):
    for said, folder in profile(options, report, name, ["train", *arguments]) or []:
        what = f"{name}, rank {said['rank']}"
        rows, unknown = check_kernels(report, what, folder)
        report.check(f"{what}: at least 98 % of NCCL's time has a call", unknown <= 0.02, f"{100 * (1 - unknown):.1f} %")
        mine = gradients(rows)
        sent = sum(int(r["Bytes"]) * int(r["Calls"]) for r in mine)
        expected = said["gradient_bytes"] * said["steps"]
        report.check(f"{what}: bytes of all_reduce are the gradients' times steps", sent == expected,
                     f"{sent} of {expected}; besides: {brief(r for r in rows if r not in mine)}")
        report.check(f"{what}: {RANKS} ranks, no failed calls", mine and all(r["Ranks"] == str(RANKS) and r["Failed Calls"] == "0" for r in mine),
                     brief(mine))
        yield said, folder, mine, what


def one_bucket(options, report):
    """All gradients in one all_reduce, after the backward pass: its kernel has the device to itself."""
    arguments = ["--width", "8192", "--layers", "3", "--batch", "16", "--bucket-mb", "4096", "--measure"]
    for said, _, mine, what in training(options, report, "one bucket", arguments):
        row = max(mine, key=lambda r: int(r["Bytes"]))
        ours, own = float(row["Bus BW (GB/s)"]), said["own_bus_bandwidth"]
        report.check(f"{what}: bus bandwidth within 10 % of the timing loop's", abs(ours / own - 1) <= 0.10,
                     f"{ours:.1f} GB/s, {own:.1f} in the loop ({100 * (ours / own - 1):+.1f} %), {row['Bytes']} B, "
                     f"kernels {row['GPU Min (ns)']} to {row['GPU Max (ns)']} ns")


def buckets(options, report):
    """DDP's own buckets, sent while the backward pass goes on."""
    for _, _, mine, what in training(options, report, "buckets", ["--width", "2048", "--layers", "24", "--batch", "4096"]):
        time = sum(int(r["GPU Time (ns)"]) for r in mine)
        overlap = sum(int(r["GPU Time (ns)"]) * float(r["Overlap with Compute (%)"] or 0) for r in mine) / max(time, 1)
        report.check(f"{what}: most of it is sent beside the computing", overlap > 50, f"{overlap:.1f} % of {time} ns; {brief(mine)}")


def operations(options, report):
    for said, folder in profile(options, report, "operations", ["operations"]) or []:
        what = f"operations, rank {said['rank']}"
        rows, _ = check_kernels(report, what, folder)
        wrong = []
        for operation, kind, reduction, size, calls in said["operations"]:
            found = sum(int(r["Calls"]) for r in rows if (r["Operation"], r["Type"], r["Reduction"], r["Bytes"], r["Ranks"]) ==
                        (operation, kind, reduction, str(size), str(RANKS)))
            if found != calls:
                wrong.append(f"{operation} {kind} {size} B: {found} calls of {calls}")
        report.check(f"{what}: operation, type, reduction, bytes, ranks and calls", not wrong, wrong or brief(rows))
        # PyTorch built for NCCL 2.28 calls ncclAlltoAll, older ones use a group.
        exchange = [r for r in rows if r["Operation"] in ("AllToAll", f"Group of {2 * RANKS} AllToAll")]
        report.check(f"{what}: all to all is seen", len(exchange) == 1 and int(exchange[0]["Kernels"]) == 5 and
                     exchange[0]["Bytes"] == str(said["all_to_all_bytes"]), brief(exchange))


def test(options, report):
    count = device_count()
    if count < RANKS:
        print(f"nccl_ddp: SKIPPED: {count} of the {RANKS} GPUs that it needs")
        sys.exit(SKIPPED)
    for part in (one_bucket, buckets, operations):
        report.guarded(part.__name__, part, options, report)


if __name__ == "__main__":
    main("nccl_ddp", test, modules=("torch",))
