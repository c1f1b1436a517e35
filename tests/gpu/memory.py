# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""memory_sum.csv against PyTorch's caching allocator, and the windows' edges against cudaMemGetInfo.

Once with the allocator's default, which calls cudaMalloc, and once with expandable segments, which are mapped by driver
calls that no hook sees: then the driver's figures alone show them.
"""

import json
import os
import sys

from gputest import Folder, folders, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
# CUPTI's own memory is allocated when a window opens and freed after it has closed: 23 MB on an H200.
SLACK_MB = 32


def in_mb(number):
    return f"{number / 1e6:.3f}"


def profile(options, report, name, allocator):
    out = os.path.join(options.work, name.replace(" ", "_") + ".out")
    environment = profiled_environment(options.library, out, "api")
    environment["PYTORCH_CUDA_ALLOC_CONF"] = allocator
    result = run([sys.executable, os.path.join(HERE, "programs", "torch_memory.py")], environment, timeout=120, cwd=options.work,
                 log=os.path.join(options.work, name.replace(" ", "_") + ".log"))
    found = folders(out)
    report.check(f"{name}: program ends well, one output folder", result.rc == 0 and len(found) == 1,
                 result.why() if result.rc else found)
    if result.rc != 0 or len(found) != 1:
        return None, None, None
    expected = json.loads(result.out.strip().splitlines()[-1])
    report.data[name] = expected
    return expected, Folder(found[0]), result.err


def check_edges(report, name, expected, folder):
    row = next((row for row in folder.rows("window_sum.csv") if row["Device"] == "0"), {})
    for edge, column in (("at_start", "Memory at Start (MB)"), ("at_end", "Memory at End (MB)")):
        ours, theirs = row.get(column), expected[edge] / 1e6
        report.check(f"{name}: {column} is what cudaMemGetInfo says, within {SLACK_MB} MB",
                     ours and abs(float(ours) - theirs) <= SLACK_MB, f"{ours}, {theirs:.3f}")


def check_allocator(report, name, expected, folder, err):
    """Values reported by PyTorch's allocator are those that it returns when queried."""
    last_window_ends = max(int(row["End (ns)"]) for row in folder.rows("window_sum.csv"))
    for kind in ("allocated", "reserved"):
        rows = [row for row in folder.rows("memory_timeline.csv") if (row["Device"], row["Of"]) == ("0", f"PyTorch {kind}")]
        peak = max((float(row["Highest (MB)"]) for row in rows), default=0.0)
        report.check(f"{name}: PyTorch {kind}: the highest row is max_memory_{kind}()", rows and f"{peak:.3f}" == in_mb(expected[f"max_{kind}"]),
                     f"{len(rows)} rows, {peak}, {in_mb(expected[f'max_{kind}'])}")
        # A failing allocation frees cached memory, after which no report follows; the rest is freed as the program ends.
        if kind == "allocated":
            kept = max((float(row["Highest (MB)"]) for row in rows if int(row["Start (ns)"]) > last_window_ends), default=0.0)
            report.check(f"{name}: PyTorch allocated: what is kept after the window is memory_allocated()", f"{kept:.3f}" == in_mb(expected[kind]),
                         f"{kept}, {in_mb(expected[kind])}")
    lines = [line.strip() for line in err.splitlines() if "PyTorch's allocator" in line]
    report.check(f"{name}: one line of the summary about PyTorch's allocator", len(lines) == 1, " | ".join(lines))


def caching_allocator(options, report):
    name = "cudaMalloc"
    expected, folder, err = profile(options, report, name, "expandable_segments:False")
    if expected is None:
        return
    rows = {(row["Device"], row["API"]): row for row in folder.rows("memory_sum.csv")}
    report.data["rows"] = list(rows.values())
    row, total = rows.get(("0", "cudaMalloc"), {}), rows.get(("0", "[all]"), {})
    report.check(f"{name}: peak is max_memory_reserved()", row.get("Peak (MB)") == in_mb(expected["max_reserved"]),
                 f"{row.get('Peak (MB)')}, {in_mb(expected['max_reserved'])}")
    report.check(f"{name}: live is memory_reserved()", row.get("Live (MB)") == in_mb(expected["reserved"]),
                 f"{row.get('Live (MB)')}, {in_mb(expected['reserved'])}")
    for column, key in (("Allocations", "allocations"), ("Frees", "frees")):
        if expected[key] is None:
            report.skip(f"{name}: {column} are those of memory_stats()", "this PyTorch does not count them")
        else:
            report.check(f"{name}: {column} are those of memory_stats()", row.get(column) == str(expected[key]),
                         f"{row.get(column)}, {expected[key]}")
    report.check(f"{name}: the device's row has the peak, too", float(total.get("Peak (MB)") or 0) >= float(in_mb(expected["max_reserved"])),
                 total.get("Peak (MB)"))
    report.check(f"{name}: the failed allocation with its size",
                 expected["failed"] and int(row.get("Failed") or 0) >= 1 and
                 row.get("Largest Failed (MB)") == row.get("Last Failed (MB)") == in_mb(expected["too_much"]),
                 f"{row.get('Failed')} failed, {row.get('Largest Failed (MB)')} MB")
    pinned = [float(row["Live (MB)"]) for (device, api), row in rows.items() if device == "host" and api == "[all]"]
    report.check(f"{name}: pinned memory", pinned and pinned[0] >= expected["pinned"] / 1e6 - 0.001, pinned)
    check_edges(report, name, expected, folder)
    check_allocator(report, name, expected, folder, err)
    lines = [line.strip() for line in err.splitlines() if "memory: peak" in line]
    report.check(f"{name}: one line of the summary, with what failed", len(lines) == 1 and "failed" in lines[0], " | ".join(lines))
    report.check(f"{name}: nothing lost", not folder.lost(), folder.lost() or "")
    run_json = folder.run_json()
    report.check(f"{name}: no free of unknown memory", run_json["unknown_frees"] == 0, run_json["unknown_frees"])
    device = run_json["devices"][0]
    link = [device[f"pcie_{part}"] for part in ("generation", "width", "max_generation", "max_width")]
    report.check(f"{name}: the PCIe link", link[3] > 0 and link[2] >= link[0] and link[3] >= link[1], link)
    report.check(f"{name}: time spent in NVML", run_json["overhead"]["device_readings_ns"] > 0,
                 f"{run_json['overhead']['device_readings_ns'] / 1e6:.1f} ms, on a thread of its own")


def expandable_segments(options, report):
    name = "expandable segments"
    expected, folder, err = profile(options, report, name, "expandable_segments:True")
    if expected is None:
        return
    check_edges(report, name, expected, folder)
    check_allocator(report, name, expected, folder, err)
    peaks = [float(row["Peak (MB)"]) for row in folder.rows("memory_sum.csv") if (row["Device"], row["API"]) == ("0", "[all]")]
    report.check(f"{name}: are none of the runtime's allocations", sum(peaks) < expected["max_reserved"] / 1e6,
                 f"{peaks}, reserved {in_mb(expected['max_reserved'])} MB")


def test(options, report):
    report.guarded("cudaMalloc", caching_allocator, options, report)
    report.guarded("expandable segments", expandable_segments, options, report)


if __name__ == "__main__":
    main("memory", test, modules=("torch",))
