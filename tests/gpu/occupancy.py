# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Theoretical occupancy in kernel_detail.csv against the CUDA runtime's own answer.

programs/occupancy.cu launches kernels of few and many registers and of little and much shared memory, with blocks and
grids of many sizes, and prints what cudaOccupancyMaxActiveBlocksPerMultiprocessor says of each. The table must have the
same blocks and occupancy, exactly, and the waves, efficiency and lost time that follow from them.
"""

import json
import os
import sys

from gputest import SKIPPED, Folder, folders, main, profiled_environment, run

PROGRAM = "inject-occupancy"
LEAST_REGISTERS = 16  # in CUPTI's records, whatever cudaFuncGetAttributes returns: 4, 10 and 13 are 16 there, 30 is 30
LIMITERS = {"registers", "shared memory", "block size", "blocks"}


def key_of_row(row):
    return row["Name"], int(row["GrdX"]), int(row["BlkX"]), int(row["DymSMem (B)"])


def key_of_launch(launch):
    return launch["name"], launch["grid"], launch["block"], launch["dynamic"]


def expected_cells(device, launch, total):
    """The row's expected cells for the runtime's number of blocks; `total` is the row's time."""
    warps = launch["blocks"] * -(-launch["block"] // device["warp"])
    wave = device["multiprocessors"] * launch["blocks"]
    full, rest = divmod(launch["grid"], wave)
    used = full + min(rest, device["multiprocessors"]) / device["multiprocessors"]
    efficiency = used / (full + (rest > 0))
    return {"Blocks/SM": str(launch["blocks"]), "Occupancy (%)": f"{100 * warps / (device['threads'] // device['warp']):.1f}",
            "Waves": f"{launch['grid'] / wave:.2f}", "SM Efficiency (%)": f"{100 * efficiency:.1f}",
            "Lost Time (ns)": str(int(total * (1 - efficiency) + 0.5)),
            "Reg/Trd": str(max(launch["registers"], LEAST_REGISTERS)), "StcSMem (B)": str(launch["static"])}


def compare(device, rows):
    """Problems with the rows: {column: [differences]}; "row": launches without a row, and rows without a launch."""
    wrong = {"row": []}
    launches = {key_of_launch(launch): launch for launch in device["launches"]}
    found = {}
    for row in rows:
        if row["GrdX"] == "" or key_of_row(row) not in launches or key_of_row(row) in found:
            wrong["row"].append(f"not launched so: {row['Name']} {row['GrdX']} x {row['BlkX']}, {row['DymSMem (B)']} bytes")
        else:
            found[key_of_row(row)] = row
    for key, launch in launches.items():
        label = "{} {} x {}, {} bytes".format(*key)
        if key not in found:
            wrong["row"].append(f"missing: {label}")
            continue
        row = found[key]
        for column, value in expected_cells(device, launch, int(row["Total Time (ns)"])).items():
            off = row[column] != value
            if column == "Lost Time (ns)" and row[column] != "":
                off = abs(int(row[column]) - int(value)) > 1  # the last digit of a product
            wrong.setdefault(column, [])
            if off:
                wrong[column].append(f"{label}: {row[column] or 'nothing'}, {value} expected")
        names = row["Limited by"].split("+")
        wrong.setdefault("Limited by", [])
        if not set(names) <= LIMITERS or len(set(names)) != len(names):
            wrong["Limited by"].append(f"{label}: {row['Limited by']!r}")
    return wrong


def test(options, report):
    build = options.build if os.path.isdir(options.build) else os.path.dirname(options.library)
    places = [os.path.join(build, folder, PROGRAM) for folder in ("tests/gpu", "")]
    program = next((place for place in places if os.path.exists(place)), None)
    if program is None:
        print(f"occupancy: SKIPPED: no {PROGRAM} under {build}: building it needs nvcc")
        sys.exit(SKIPPED)
    out = os.path.join(options.work, "out")
    result = run([os.path.abspath(program)], profiled_environment(options.library, out, "api", summary="off"), timeout=100,
                 cwd=options.work, log=os.path.join(options.work, "child.log"))
    found = folders(out)
    if not report.check("the program ends well, one output folder", result.rc == 0 and len(found) == 1,
                        result.why() if result.rc else found):
        return
    device = json.loads(result.out)
    folder = Folder(found[0])
    report.check("nothing lost", not folder.lost(), folder.lost() or "")
    launches = device["launches"]
    counts = {launch["blocks"] for launch in launches}
    report.check("launches differ in what they ask for", len(launches) > 500 and len(counts) > 10,
                 f"{len(launches)} launches, {min(counts)} … {max(counts)} blocks a multiprocessor")
    rows = folder.rows("kernel_detail.csv")
    for column, differences in compare(device, rows).items():
        report.check("a row for every launch, and no other" if column == "row" else column, not differences,
                     f"{len(differences)} of {len(launches)} differ {differences[:3]}" if differences else f"{len(launches)} equal")
    limiters = {limiter for row in rows for limiter in row["Limited by"].split("+")}
    report.check("every limiter was met", limiters == LIMITERS, ", ".join(sorted(limiters)))
    report.data["device"] = {name: value for name, value in device.items() if name != "launches"}


if __name__ == "__main__":
    main("occupancy", test)
