# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/shapes.md, "What following the hints gains": tests/gpu/run_all.sh hints

Layers that should get a hint in conv_sum.csv or rnn_sum.csv (programs/hinted_layers.py): which get it is in the table, hints.md, with how
much faster a forward and backward pass is as the hint would have it. B below 32 is compared by sequences per second.
"""

import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "tests", "gpu"))
from gputest import Folder, folders, main, profiled_environment, run  # noqa: E402

PROGRAM = os.path.join(HERE, "programs", "hinted_layers.py")
PARTS = {"convolution": "conv_sum.csv", "convolution_tf32": "conv_sum.csv", "recurrent": "rnn_sum.csv", "recurrent_tf32": "rnn_sum.csv"}


def is_hinted(case, rows):
    """How many of the layer's rows have the hint, and how many rows it has."""
    found = [row for row in rows if all(row[column] == str(value) for column, value in case["row"].items())]
    return sum(case["hint"] in row["Hint"] for row in found), len(found)


def profile(options, report, part, arm):
    """(the program's output, its folder, ms in which the GPU is busy in each window) or None."""
    name = f"{part}.{arm}"
    out = os.path.join(options.work, name + ".out")
    shutil.rmtree(out, ignore_errors=True)
    result = run([sys.executable, PROGRAM, part, arm], profiled_environment(options.library, out, summary="off"), timeout=200, cwd=options.work,
                 log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    if not report.check(f"{name}: program ends well, one output folder", result.rc == 0 and len(found) == 1, result.why() if result.rc else found):
        return None
    printed, folder = json.loads(result.out.strip().splitlines()[-1]), Folder(found[0])
    busy = [int(row["GPU Busy (ns)"]) / printed["calls"] / 1e6 for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
    if not report.check(f"{name}: a window for each layer", len(busy) == len(printed["cases"]), f"{len(busy)}, {len(printed['cases'])}"):
        return None
    return printed["cases"], folder, busy


def test(options, report):
    lines = ["| layer: change | rows with the hint | before (ms) | after (ms) | gain | GPU busy before (ms) | after (ms) | gain |",
             "|---|---|---|---|---|---|---|---|"]
    for part, table in PARTS.items():
        before, after = (profile(options, report, part, arm) for arm in ("before", "after"))
        if before is None or after is None:
            continue
        cases, folder, busy = before
        rows = folder.rows(table)
        report.data[part] = cases
        for case, was, is_now in zip(cases, busy, after[2]):
            hinted, of = is_hinted(case, rows)
            gain = was / is_now * case["units"][1] / case["units"][0]
            report.check(f"{case['name']}: has rows", of > 0, f"hint in {hinted} of {of}, {case['gain']:.2f} x, on the GPU {gain:.2f} x")
            lines.append(f"| {case['name']} | {hinted} of {of} | {case['ms'][0]:.3f} | {case['ms'][1]:.3f} | "
                         f"{case['gain']:.2f} ({case['least']:.2f} … {case['most']:.2f}) | {was:.3f} | {is_now:.3f} | {gain:.2f} |")
    with open(os.path.join(options.work, "hints.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main("hints", test, modules=("torch",))
