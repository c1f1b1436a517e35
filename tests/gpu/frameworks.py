# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""JAX, CuPy, Numba and Triton: every kernel and copy that the program is known to have submitted in the window; and the time in
PyTorch's DataLoader.

CuPy, Numba and Triton name their kernels, so their counts are known; JAX's are compared with what its own profiler sees
of the same steps in a process of its own.
"""

import json
import os
import sys

from gputest import COPY_KINDS, Folder, check_sums, clean_environment, count_differences, folders, main, module_missing, normalise, \
    profiled_environment, run

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
H2D, D2H = COPY_KINDS["HtoD"], COPY_KINDS["DtoH"]


def matching(counts, part):
    return sum(count for name, count in counts.items() if part in name)


def profile(options, report, program, arguments=(), extra=None, window="api", called=None):
    name = called or program
    out = os.path.join(options.work, name + ".out")
    environment = profiled_environment(options.library, out, window, trace="csv")
    environment.update(extra or {})
    script = os.path.join(PROGRAMS, program + ".py")
    result = run([sys.executable, script, *arguments], environment, timeout=90, cwd=options.work,
                 log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    report.check(f"{name}: ends well, one output folder", result.rc == 0 and len(found) == 1,
                 result.why() if result.rc else ", ".join(map(os.path.basename, found)) or "no folder: " + result.why())
    if not found:
        return None
    folder = Folder(found[0])
    compared, wrong = check_sums(folder)
    report.check(f"{name}: tables equal the sums of the raw records", compared > 0 and not wrong,
                 f"{compared} rows; " + "; ".join(wrong[:2]))
    report.check(f"{name}: nothing lost", not folder.lost(), folder.lost() or "")
    report.data[name] = {"kernels": folder.kernel_counts(), "operations": folder.operation_counts(), "seconds": result.seconds,
                         "stderr": result.err[-2000:]}
    return folder


def check_fetches(report, name, folder, fetched, kind):
    """The fetch time of each iteration is what the program measured around the fetches, all of it of that kind."""
    other = {"Waiting": "Processing", "Processing": "Waiting"}[kind]
    rows = [row for row in folder.rows("iteration_sum.csv") if row["Device"] == "all" and row["Complete"] == "1"]
    pairs = [(int(row[f"Fetch: {kind} (ns)"] or 0), sum(fetched[int(row["Iteration"])])) for row in rows]
    worst = max((abs(ours - theirs) / theirs for ours, theirs in pairs), default=None)
    report.check(f"{name}: time in fetches within 10 % of the program's own", worst is not None and worst <= 0.1,
                 f"{len(rows)} iterations, at most {worst:.2%} apart" if rows else "no iterations")
    strangers = [row["Iteration"] for row in rows if row[f"Fetch: {other} (ns)"] != "0"]
    report.check(f"{name}: nothing but {kind.lower()}", not strangers, ", ".join(strangers))
    diagnoses = folder.run_json()["diagnosis"]
    verdicts = [diagnosis["verdict"] for diagnosis in diagnoses]
    report.check(f"{name}: input-bound", verdicts == ["input-bound"], verdicts)
    text = diagnoses[0]["evidence"][0]["text"] if diagnoses and diagnoses[0]["evidence"] else ""
    report.check(f"{name}: the loader is the evidence", text.startswith("in DataLoader.__next__, ") and f" of it {kind.lower()} " in text, text)


def loader(options, report):
    for workers, kind in ((0, "Processing"), (1, "Waiting")):
        name = f"torch_loader_{workers}"
        measured = os.path.join(options.work, name + ".json")
        folder = profile(options, report, "torch_loader", ["--workers", str(workers), "--measured", measured], window="iter:30+10", called=name)
        if folder:
            with open(measured, encoding="utf-8") as file:
                check_fetches(report, name, folder, json.load(file), kind)


def expect(report, what, counted, expected):
    report.check(what, counted == expected, f"{counted}, expected {expected}")


def cupy(options, report, count=25):
    folder = profile(options, report, "cupy_work", ["--count", str(count)])
    if not folder:
        return
    kernels, operations = folder.kernel_counts(), folder.operation_counts()
    expect(report, "cupy: raw kernel", matching(kernels, "inject_raw_saxpy"), count)
    expect(report, "cupy: elementwise kernel", matching(kernels, "inject_elementwise"), count)
    others = {n: c for n, c in kernels.items() if "inject_" not in n}
    report.check("cupy: a kernel for every product", sum(others.values()) >= count and all(c % count == 0 for c in others.values()),
                 ", ".join(f"{c} {n[:60]}" for n, c in others.items()))
    expect(report, "cupy: copies to the device", operations.get(H2D, 0), count)
    expect(report, "cupy: copies to the host", operations.get(D2H, 0), count)


def numba(options, report, count=25):
    folder = profile(options, report, "numba_work", ["--count", str(count)])
    if not folder:
        return
    kernels, operations = folder.kernel_counts(), folder.operation_counts()
    expect(report, "numba: first kernel", matching(kernels, "inject_saxpy"), 2 * count)
    expect(report, "numba: second kernel", matching(kernels, "inject_scale"), count)
    expect(report, "numba: kernels in all", sum(kernels.values()), 3 * count)
    expect(report, "numba: copies to the device", operations.get(H2D, 0), count)
    expect(report, "numba: copies to the host", operations.get(D2H, 0), count)


def triton(options, report, count=25):
    folder = profile(options, report, "triton_work", ["--count", str(count)])
    if not folder:
        return
    kernels = folder.kernel_counts()
    expect(report, "triton: its kernel", kernels.get("inject_softmax", 0), count)
    others = sum(c for n, c in kernels.items() if n != "inject_softmax")
    report.check("triton: a kernel for every product beside it", others >= count and others % count == 0, f"{others}")
    # PyTorch calls cuBLAS through symbols that hooks see; CuPy, Numba and JAX resolve them with dlsym.
    products = {r["Call"]: int(r["Kernels incl. Nested"]) for r in folder.rows("library_sum.csv") if r["Depth"] == "0"}
    report.check("triton: the products' kernels are cuBLAS's", sum(products.values()) == others, products)


def jax(options, report, steps=20):
    # XLA benchmarks kernels and may choose others in the next process: on an H200 23 per step instead of 22. The runs are compared.
    untuned = "--xla_gpu_autotune_level=0"
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2", "XLA_FLAGS": untuned}
    # Without command buffers (CUDA graphs), thunks are launched one by one, and JAX's profiler counts kernels.
    plain = environment | {"XLA_FLAGS": f"{untuned} --xla_gpu_enable_command_buffer="}
    folder = profile(options, report, "jax_mlp", ["--steps", str(steps)], plain)
    if not folder:
        return
    kernels = folder.kernel_counts()
    total = sum(kernels.values())
    report.check("jax: the same kernels in every step", total > 0 and all(c % steps == 0 for c in kernels.values()),
                 f"{total} of {len(kernels)} names in {steps} steps")
    result = run([sys.executable, os.path.join(PROGRAMS, "jax_mlp.py"), "--steps", str(steps), "--reference"],
                 clean_environment() | plain, timeout=90, log=os.path.join(options.work, "jax_reference.log"))
    try:
        reference = json.loads(result.out.strip().splitlines()[-1])
        theirs = {}
        for name, count in reference["kernels"].items():
            theirs[normalise(name)] = theirs.get(normalise(name), 0) + count
    except (IndexError, ValueError, KeyError):
        reference, theirs = None, {}
    report.data["jax_reference"] = reference
    if not theirs:
        report.skip("jax: as many kernels as JAX's own profiler", "it saw none: " + result.why())
    else:
        differences = count_differences(kernels, theirs)
        report.check("jax: as many kernels as JAX's own profiler", total == sum(theirs.values()),
                     f"{total} ours, {sum(theirs.values())} theirs; {len(differences)} names differ: " +
                     "; ".join(f"{a}/{b} {n[:40]}" for n, a, b in differences[:3]))
    # JAX's default: steps as CUDA graphs.
    os.rename(folder.path, folder.path + "-plain")
    folder = profile(options, report, "jax_mlp", ["--steps", str(steps)], environment)
    if folder:
        graphs = folder.kernel_counts()
        report.check("jax: all kernels in CUDA graphs too", sum(graphs.values()) >= total and
                     all(c % steps == 0 for c in graphs.values()), f"{sum(graphs.values())} with graphs, {total} without")


def test(options, report):
    for name, function, modules in (("cupy", cupy, ("cupy",)), ("numba", numba, ("numba",)),
                                    ("triton", triton, ("torch", "triton")), ("jax", jax, ("jax",)), ("loader", loader, ("torch",))):
        if name not in options.only.split(","):
            continue
        reason = module_missing(*modules)
        if reason:
            report.skip(name, reason)
        else:
            report.guarded(name, function, options, report)


if __name__ == "__main__":
    main("frameworks", test, arguments=lambda p: p.add_argument("--only", default="cupy,numba,triton,jax,loader"))
