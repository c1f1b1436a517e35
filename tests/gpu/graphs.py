# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""CUDA graphs over several windows: every kernel of every launch is there, and the program survives us.

cuptiFinalize breaks graphs that CUPTI has traced: the next attachment, or the next update of such a graph, ends in
CUDA_ERROR_LAUNCH_FAILED. Both programs here failed so before libinject kept CUPTI for programs with graphs.

Products that were captured in the window have the kernels of each launch of their graph.
"""

import json
import os
import sys

from gputest import Folder, folders, main, module_missing, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))


def profile(options, report, name, command, window, **more):
    out = os.path.join(options.work, name + ".out")
    environment = profiled_environment(options.library, out, window, summary="off", **more)
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    result = run([sys.executable] + command, environment, timeout=90, cwd=options.work,
                 log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    report.check(f"{name}: program ends well, one output folder", result.rc == 0 and len(found) == 1,
                 result.why() if result.rc else found)
    return result, Folder(found[0]) if len(found) == 1 else None


def torch_graphs(options, report):
    result, folder = profile(options, report, "torch", [os.path.join(HERE, "programs", "torch_graphs.py")], "api")
    if result.rc != 0 or folder is None:
        return
    expected = json.loads(result.out.strip().splitlines()[-1])
    seen = sum(count for name, count in folder.kernel_counts().items() if "relu" in name or "clamp" in name)
    # CUPTI gives some graph kernels another replay's end (docs/graphs.md, "Times"): they are left out, and counted.
    lost = folder.lost()
    invalid = lost.pop("invalid_timestamps", 0)
    report.check("torch: every kernel of every graph launch", seen + invalid == expected["kernels"],
                 f"{seen} of {expected['kernels']}, {invalid} without usable times")
    report.check("torch: nothing lost but, at most, 1 % of the times", not lost and invalid <= expected["kernels"] / 100, lost or "")
    lines = [line for line in result.err.splitlines() if "CUDA graphs" in line]
    report.check("torch: one line says that CUPTI stays", len(lines) == 1, " | ".join(lines))


def captured_in_the_window(options, report):
    name = "captured in the window"
    result, folder = profile(options, report, name.replace(" ", "_"),
                             [os.path.join(HERE, "programs", "torch_captured.py")], "api")
    if result.rc != 0 or folder is None:
        return
    expected = json.loads(result.out.strip().splitlines()[-1])
    replays = expected["replays"]
    rows = [row for row in folder.rows("gemm_sum.csv") if not row["API"].startswith("[")]
    shapes = sorted([int(row[size]) for size in "MNK"] for row in rows)
    report.check(f"{name}: a row for each captured product", shapes == expected["shapes"], shapes)
    counts = {(row["Calls"], row["Captured Calls"], row["Replayed Calls"]) for row in rows}
    report.check(f"{name}: each captured once, replayed {replays} times", counts == {("1", "1", str(replays))}, sorted(counts))
    kernels = [int(row["Kernels"]) for row in rows]
    report.check(f"{name}: kernels of every replay", all(count and count % replays == 0 for count in kernels), kernels)
    flops = replays * sum(2 * m * n * k for m, n, k in expected["shapes"])
    window = sum(int(row["FLOPs"] or 0) for row in folder.rows("window_sum.csv") if row["Device"] == "all")
    report.check(f"{name}: FLOPs of the window are those of all replays", window == flops, f"{window} of {flops}")
    families = {row["Family"]: row for row in folder.rows("family_sum.csv")}
    instances = int(families["GEMM"]["Instances"]) if "GEMM" in families else 0
    # The graph from before the window: the product's kernels again, without a known call.
    unknown = folder.run_json()["graph_kernels_without_call"]
    product = sum(int(row["Kernels"]) for row in rows if [row[size] for size in "MNK"] == ["384"] * 3)
    report.check(f"{name}: kernels of a graph captured before are counted as such", unknown * replays == product,
                 f"{unknown} kernels, {instances} of products in all, {sum(kernels)} attributed")
    report.check(f"{name}: nothing lost", not folder.lost(), folder.lost() or "")


def correlation(options, report):
    """CUPTI before CUDA 13.1 Update 1: "incorrect correlation IDs for cudaGraphLaunch API calls … in profiling sessions after the first
    session" (its release notes). Each launch's records must be its own graph's."""
    result, folder = profile(options, report, "order", [os.path.join(HERE, "programs", "torch_graph_order.py")], "api", trace="csv")
    if result.rc != 0 or folder is None:
        return
    expected = json.loads(result.out.strip().splitlines()[-1])
    kernels = {}
    for row in folder.rows("cuda_gpu_trace.csv"):
        kernels.setdefault(int(row["CorrId"]), []).append((int(row["Start (ns)"]), row["Name"]))
    # Correlation ids may start over with each attachment: the launch is the last one with that id before the record.
    windows = folder.run_json()["windows"]
    launches = sorted((int(row["Start (ns)"]), int(row["CorrID"])) for row in folder.rows("cuda_api_trace.csv")
                      if row["Name"].startswith(("cudaGraphLaunch", "cuGraphLaunch")))
    wrong = []
    right = 0
    for window, order in zip(windows, expected["orders"]):
        inside = [launch for launch in launches if window["start_ns"] <= launch[0] < window["end_ns"]]
        if len(inside) != len(order):
            wrong.append(f"window {window['number']}: {len(inside)} launches of {len(order)}")
            continue
        for (start, correlation_id), graph in zip(inside, order):
            names = [name for begin, name in kernels.get(correlation_id, ()) if start <= begin < window["end_ns"] + 10**9]
            if len(names) == expected["kernels"][graph] and all(graph in name.lower() for name in names):
                right += 1
            else:
                wrong.append(f"window {window['number']}: a launch of {graph} has {len(names)} kernels: {sorted(set(names))}"[:300])
    report.check("order: each launch has the kernels of its own graph, in every window", right and not wrong,
                 f"{right} launches; {wrong[:2] or ''}")
    report.check("order: nothing lost", not folder.lost(), folder.lost() or "")


def jax_graphs(options, report):
    program = os.path.join(HERE, "..", "..", "examples", "jax_train.py")
    _, folder = profile(options, report, "jax", [program, "--seconds", "20"], "time:14s+200ms/1800msx3")
    if folder is None:
        return
    windows = [row for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
    counts = [int(row["Kernels"]) for row in windows]
    report.check("jax: kernels in each of three windows", len(counts) == 3 and all(counts), counts)
    report.check("jax: nothing lost", not folder.lost(), folder.lost() or "")


def test(options, report):
    report.guarded("torch", torch_graphs, options, report)
    report.guarded("captured in the window", captured_in_the_window, options, report)
    report.guarded("correlation", correlation, options, report)
    reason = module_missing("jax")
    if reason:
        report.skip("jax", reason)
    else:
        report.guarded("jax", jax_graphs, options, report)


if __name__ == "__main__":
    main("graphs", test, modules=("torch",))
