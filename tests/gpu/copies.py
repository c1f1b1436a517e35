# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""copy_sum.csv against copies of known sizes in PyTorch, and against CUDA events.

programs/torch_copies.py copies between pageable, pinned and device memory, blocking and not, beside a kernel and not, and
reads single values. Counts, bytes and kinds of memory must be exact; what blocks must be synchronizing, and what does not must
not; throughput must be within 10 % of what events say.
"""

import json
import os
import sys

from gputest import Folder, check_sums, folders, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ("blocking", "non_blocking", "overlap", "reads")
RATE = 0.10


def same(expected, row):
    return (row["Direction"], row["Source"]) == (expected["direction"], expected["source"]) and \
        expected["target"] in (None, row["Target"])


def memory_of(row):
    """The kind of memory on the host's side, if there is one."""
    return row["Source"] if row["Direction"].startswith("Host") else row["Target"]


def sums(rows):
    """Sums over rows that together match one expected row."""
    time = sum(int(row["Total Time (ns)"]) for row in rows)
    size = sum(float(row["Total (MB)"]) for row in rows)
    overlap = sum(float(row["Overlap with Kernels (%)"] or 0) * int(row["Total Time (ns)"]) for row in rows)
    return {"count": sum(int(row["Count"]) for row in rows), "small": sum(int(row["Small Copies"]) for row in rows),
            "waited": sum(int(row["Synchronizing"]) for row in rows), "MB": size, "rate": 1e6 * size / time if time else 0,
            "overlap": overlap / time if time else 0}


def compare(expected, rows):
    """{what was compared: [differences]}."""
    wrong = {"rows": [], "counts": [], "bytes": [], "small copies": [], "synchronizing": [], "arithmetic": []}
    for row in rows:
        if not any(same(one, row) for one in expected["rows"]):
            wrong["rows"].append(f"not expected: {row['Direction']} {row['Source']} -> {row['Target']}, {row['Count']}")
        size, time, link = (float(row[name] or 0) for name in ("Total (MB)", "Total Time (ns)", "Link (GB/s)"))
        rate = float(row["Throughput (GB/s)"] or 0)
        # The bytes are rounded to 0.001 MB, the rates to 0.001 GB/s.
        if time and abs(rate - 1e6 * size / time) > 0.001 + 500 / time:
            wrong["arithmetic"].append(f"{row['Throughput (GB/s)']} GB/s of {size} MB in {time} ns")
        if link and abs(float(row["Link (%)"]) - 100 * rate / link) > 0.06 + 0.1 / link:
            wrong["arithmetic"].append(f"{row['Link (%)']} % of {link} GB/s at {rate}")
    for one in expected["rows"]:
        label = f"{one['direction']} {one['source']} -> {one['target'] or 'host'}"
        found = [row for row in rows if same(one, row)]
        if not found:
            wrong["rows"].append(f"missing: {label}")
            continue
        got = sums(found)
        for name, what in (("count", "counts"), ("small", "small copies"), ("waited", "synchronizing")):
            # A device clock and a host clock are compared, so one in twenty may be wrong.
            slack = one["count"] // 20 if name == "waited" and one["waited"] else 0
            if abs(got[name] - one[name]) > slack:
                wrong[what].append(f"{label}: {got[name]}, {one[name]} expected")
        if abs(got["MB"] - one["bytes"] / 1e6) > 0.00051 * len(found):
            wrong["bytes"].append(f"{label}: {got['MB']} MB, {one['bytes'] / 1e6} expected")
        if one["direction"] in expected.get("rates", {}):
            rate = expected["rates"][one["direction"]]
            wrong.setdefault("throughput", [])
            if abs(got["rate"] - rate) > RATE * rate:
                wrong["throughput"].append(f"{label}: {got['rate']:.2f} GB/s, {rate:.2f} by CUDA events")
        if "overlap" in expected:
            least, most = expected["overlap"]
            wrong.setdefault("overlap with kernels", [])
            if not least <= got["overlap"] <= most:
                wrong["overlap with kernels"].append(f"{label}: {got['overlap']:.1f} %, {least} … {most} expected")
    wrong["hints"] = []
    for direction, memory, hint in expected["hints"]:
        hints = [row["Hint"] for row in rows if row["Direction"] == direction and memory in (None, memory_of(row))]
        if not hints or not all(hint in text if hint else text == "" for text in hints):
            wrong["hints"].append(f"{direction} {memory or ''}: {hints}, {hint or 'none'} expected")
    return wrong


def one_mode(options, report, mode):
    out = os.path.join(options.work, mode)
    environment = profiled_environment(options.library, out, "api", summary="off", trace="csv")
    result = run([sys.executable, os.path.join(HERE, "programs", "torch_copies.py"), mode], environment, timeout=100,
                 cwd=options.work, log=os.path.join(options.work, mode + ".log"))
    found = folders(out)
    if not report.check(f"{mode}: the program ends well, one output folder", result.rc == 0 and len(found) == 1,
                        result.why() if result.rc else found):
        return
    folder = Folder(found[0])
    expected = json.loads(result.out.strip().splitlines()[-1])
    rows = folder.rows("copy_sum.csv")
    report.data[mode] = {"expected": expected, "rows": rows}
    report.check(f"{mode}: nothing lost", not folder.lost(), folder.lost() or "")
    compared, wrong = check_sums(folder)
    report.check(f"{mode}: tables are the sums of the raw records", compared and not wrong, wrong[:3] or f"{compared} rows")
    for what, differences in compare(expected, rows).items():
        report.check(f"{mode}: {what}", not differences, "; ".join(differences))
    for row in rows:
        print(f"copies: {mode}: {row['Direction']} {row['Source']} -> {row['Target']}: {row['Count']} copies, "
              f"{row['Throughput (GB/s)']} GB/s, {row['Link (%)'] or '?'} % of the link, "
              f"{row['Overlap with Kernels (%)']} % overlapped, {row['Synchronizing']} synchronizing; {row['Hint']}")


def test(options, report):
    for mode in options.modes.split(","):
        report.guarded(mode, one_mode, options, report, mode)


if __name__ == "__main__":
    main("copies", test, ["torch"], lambda parser: parser.add_argument("--modes", default=",".join(MODES)))
