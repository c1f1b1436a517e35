# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The same libinject.so under a C++ program with the CUDA 12 runtime and CUPTI 12, both from the vendor's wheels.

cuda12_fetch.sh prepares the folder that --cuda12 names.
"""

import glob
import json
import os
import sys

from gputest import COPY_KINDS, MEMSET, Folder, SKIPPED, check_sums, folders, main, profiled_environment, run


def test(options, report):
    program = os.path.join(options.cuda12, "cuda12")
    if not os.path.exists(program):
        print(f"cuda12: SKIPPED: no {program}; cuda12_fetch.sh {options.cuda12} makes it")
        sys.exit(SKIPPED)
    program = os.path.abspath(program)
    out = os.path.join(options.work, "out")
    environment = profiled_environment(options.library, out, "api", trace="csv")
    # CUPTI 12 is next to the runtime, in the wheels' own layout; no path in the environment leads to any CUPTI. (The
    # driver may be found through one of these paths.)
    paths = [p for p in environment.pop("LD_LIBRARY_PATH", "").split(":") if p and not glob.glob(os.path.join(p, "libcupti.so*"))]
    if paths:
        environment["LD_LIBRARY_PATH"] = ":".join(paths)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        environment.pop(variable, None)
    result = run([program], environment, timeout=60, cwd=options.work, log=os.path.join(options.work, "cuda12.log"))
    if not report.check("program ends well", result.rc == 0, result.why() if result.rc else ""):
        return
    known = json.loads(result.out)
    report.check("it runs on the CUDA 12 runtime", 12000 <= known["runtime"] < 13000, known["runtime"])
    found = folders(out)
    if not report.check("one output folder", len(found) == 1, found or result.why()):
        return
    folder = Folder(found[0])
    run_json = folder.run_json()
    report.data["run"] = run_json
    versions = run_json["versions"]
    # CUPTI's API versions are 18 … 28 in CUDA 12, and 130000 or higher since CUDA 13.
    report.check("through CUPTI 12 and nothing of CUDA 13", int(versions.get("cupti", 0)) in range(18, 100) and
                 not any(name.endswith(".so.13") for name in versions), versions)
    report.check("nothing lost", not folder.lost(), folder.lost() or "")
    kernels, operations = folder.kernel_counts(), folder.operation_counts()
    report.check("kernels", kernels == {"inject_saxpy12": known["kernels"]}, kernels)
    expected = {COPY_KINDS["HtoD"]: known["copies"], COPY_KINDS["DtoH"]: known["copies"], MEMSET: known["memsets"]}
    report.check("copies and memsets", operations == expected, operations)
    calls = {row["Name"]: int(row["Num Calls"]) for row in folder.rows("cuda_api_sum.csv")}
    launches = sum(c for n, c in calls.items() if n.startswith("cudaLaunchKernel"))
    report.check("hooked launches", launches == known["kernels"], calls)
    compared, wrong = check_sums(folder)
    report.check("tables equal the sums of the raw records", compared > 0 and not wrong, f"{compared} rows; " + "; ".join(wrong[:2]))


if __name__ == "__main__":
    main("cuda12", test, arguments=lambda p: p.add_argument("--cuda12", default=os.environ.get("INJECT_CUDA12", "build/cuda12")))
