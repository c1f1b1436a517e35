# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The C++ example on the GPU, with the shared and with the static CUDA runtime: what its five profiled iterations are
known to submit."""

import os

from gputest import COPY_KINDS, MEMSET, Folder, check_sums, folders, main, profiled_environment, run

ITERATIONS = 5
KERNELS = {"add_bias_relu": 1, "softmax_cross_entropy": 1, "sum_rows": 2, "relu_backward": 1, "sgd_momentum": 4}
GEMMS = 5


def one(options, report, name):
    program = next((p for p in (os.path.join(os.path.dirname(options.library), folder, name) for folder in ("examples", ""))
                    if os.path.exists(p)), None)
    if program is None:
        report.skip(name, "not built")
        return
    shared = not name.endswith("static")
    out = os.path.join(options.work, name)
    result = run([program], profiled_environment(options.library, out, "auto", trace="csv"), timeout=60, cwd=options.work,
                 log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    if not report.check(f"{name}: ends well, one output folder", result.rc == 0 and len(found) == 1,
                        result.why() if result.rc or not found else ""):
        return
    folder = Folder(found[0])
    kernels, operations = folder.kernel_counts(), folder.operation_counts()
    own = {kernel: sum(c for n, c in kernels.items() if n.split("(")[0].endswith(kernel)) for kernel in KERNELS}
    report.check(f"{name}: its own kernels", own == {k: n * ITERATIONS for k, n in KERNELS.items()}, own)
    others = sum(kernels.values()) - sum(own.values())
    report.check(f"{name}: a kernel for every product", others >= GEMMS * ITERATIONS and others % ITERATIONS == 0, others)
    copies = operations.get(COPY_KINDS["HtoD"], 0), operations.get(COPY_KINDS["DtoH"], 0), operations.get(MEMSET, 0)
    report.check(f"{name}: copies to the device, to the host, memsets", copies[:2] == (2 * ITERATIONS, 1) and copies[2] >= ITERATIONS,
                 copies)
    calls = {row["Call"]: row for row in folder.rows("library_sum.csv")}
    gemm = calls.get("cublasGemmEx")
    report.check(f"{name}: the products' kernels are theirs", gemm is not None and int(gemm["Calls"]) == GEMMS * ITERATIONS and
                 int(gemm["Kernels incl. Nested"]) == others, {k: v for k, v in (gemm or {}).items() if "ernels" in k or k == "Calls"})
    ranges = {row["Range"].lstrip(":"): int(row["Instances"]) for row in folder.rows("nvtx_sum.csv")}
    expected = {r: ITERATIONS for r in ("iteration", "data", "forward", "backward", "optimizer")}
    report.check(f"{name}: NVTX ranges", ranges == expected, ranges)
    if shared:
        api = {row["Name"]: int(row["Num Calls"]) for row in folder.rows("cuda_api_sum.csv")}
        launches = sum(c for n, c in api.items() if n.startswith(("cudaLaunchKernel", "__cudaLaunchKernel")))
        report.check(f"{name}: hooked launches", launches == sum(own.values()), api)
    report.check(f"{name}: nothing lost", not folder.lost(), folder.lost() or "")
    compared, wrong = check_sums(folder)
    report.check(f"{name}: tables equal the sums of the raw records", compared > 0 and not wrong, f"{compared} rows; " + "; ".join(wrong[:2]))
    report.data[name] = {"kernels": kernels, "operations": operations, "run": folder.run_json(), "stderr": result.err}


def test(options, report):
    for name in ("inject-train", "inject-train-static"):
        report.guarded(name, one, options, report, name)


if __name__ == "__main__":
    main("cpp_example", test)
