# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""memory_purpose.csv and oom.json against the program's own tensors, for models of several kinds; FSDP2 on two GPUs where there are two."""

import glob
import json
import os
import sys

from gputest import Folder, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "programs", "torch_purposes.py")
EXACT = ("parameters", "gradients", "optimizer state", "buffers")
CUPTI = 32 << 20  # more than its own memory (docs/memory.md), which is in use at the reading, but no longer at the end


def check_folder(report, name, folder, truth, bare):
    rows = {(row["Device"], row["Purpose"]): row for row in folder.rows("memory_purpose.csv")}
    devices = sorted({device for device, _ in rows})
    report.check(f"{name}: one GPU's memory was read", len(devices) == 1, devices)
    if len(devices) != 1:
        report.data[name] = folder.run_json().get("memory_reading")
        return
    found = {purpose: row["Memory (B)"] for (_, purpose), row in rows.items()}
    report.data[name] = {"found": found, "truth": truth, "reading": folder.run_json()["memory_reading"]}
    for purpose in EXACT:
        report.check(f"{name}: {purpose} are their tensors' bytes", found[purpose] == str(truth[purpose]), f"{found[purpose]}, {truth[purpose]}")
    report.check(f"{name}: cuBLAS has a workspace", int(found["workspaces"]) > 0, found["workspaces"])
    if name.startswith("ddp"):
        report.check(f"{name}: the buckets are as large as the gradients", found["communication buffers"] == found["gradients"],
                     f"{found['communication buffers']}, {found['gradients']}")
    total = rows[devices[0], "[all]"]
    parts = sum(int(size or 0) for purpose, size in found.items() if purpose != "[all]")
    report.check(f"{name}: the purposes are 98 % of what is in use", parts >= 0.98 * int(found["[all]"] or 0) > 0, f"{parts}, {found['[all]']}")
    report.check(f"{name}: … and of what NVML says that the process holds", 0.98 * truth["process"] <= parts <= 1.02 * truth["process"] + CUPTI,
                 f"{parts}, {truth['process']} at the end")
    report.check(f"{name}: the allocator's peak", int(total["Peak Allocated (B)"]) <= truth["peak_allocated"] * 1.001,
                 f"{total['Peak Allocated (B)']}, {truth['peak_allocated']} at the end")
    report.check(f"{name}: … and what it reserved at most", abs(int(total["Peak Reserved (B)"]) - truth["peak_reserved"]) <= 0.01 * truth["peak_reserved"],
                 f"{total['Peak Reserved (B)']}, {truth['peak_reserved']} at the end")
    reading = folder.run_json()["memory_reading"]
    report.check(f"{name}: read as an optimizer stepped", reading["asked_at"] == "optimizer step" and not reading["error"], reading)
    path = os.path.join(folder.path, "oom.json")
    told = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
    report.data[f"{name}, oom.json"] = {key: told.get(key) for key in ("failures", "requested", "allowed", "free", "stack", "holders", "ns", "error")}
    report.check(f"{name}: oom.json tells of ten failures, and of the last request", told.get("failures") == 10 and
                 0 <= told.get("requested", -1) - truth["last_request"] < 1 << 21, f"{told.get('failures')}, {told.get('requested')}, {truth['last_request']}")
    report.check(f"{name}: … where it was made", [os.path.basename(frame["file"]) for frame in told.get("stack", [])[:1]] == ["torch_purposes.py"],
                 told.get("stack", [])[:1])
    report.check(f"{name}: the program's exceptions are as without libinject", truth["errors"] == bare["errors"] and len(truth["errors"]) == 10,
                 f"{truth['errors'][:1]}, {bare['errors'][:1]}")


def of_model(options, report, name, ranks=1):
    command = [sys.executable] if ranks == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    label = name if ranks == 1 else f"{name} on {ranks} GPUs"
    work = os.path.join(options.work, label.replace(" ", "_"))
    bare = run([*command, PROGRAM, name, "8"], dict(os.environ), timeout=180, cwd=options.work, log=work + ".bare.log")
    environment = profiled_environment(options.library, os.path.join(work, "%p"), "iter:20+3")
    result = run([*command, PROGRAM, name, "60"], environment, timeout=240, cwd=options.work, log=work + ".log")
    report.check(f"{label}: both programs end well", bare.rc == 0 and result.rc == 0, bare.why() if bare.rc else result.why())
    if bare.rc or result.rc:
        return
    lines = [json.loads(line) for line in result.out.splitlines() if line.startswith("{")]
    plain = [json.loads(line) for line in bare.out.splitlines() if line.startswith("{")]
    found = sorted(glob.glob(os.path.join(work, "*")))
    report.check(f"{label}: a folder for each rank", len(found) == len(lines) == len(plain) == ranks, found)
    # Ranks have the same sizes, or differ in their shares: each folder matches one of them.
    for path in found:
        folder = Folder(path)
        sizes = {row["Purpose"]: row["Memory (B)"] for row in folder.rows("memory_purpose.csv")}
        truth = next((line for line in lines if str(line["parameters"]) == sizes.get("parameters")), lines[0])
        check_folder(report, label, folder, truth, plain[0])


def test(options, report):
    for name in options.models.split(",") if options.models else ("resnet50", "transformer", "amp_bert", "frozen", "fsdp2", "ddp"):
        report.guarded(name, of_model, options, report, name)
    import torch
    for name in ("fsdp2", "ddp") if torch.cuda.device_count() > 1 else ():
        if not options.models or name in options.models:
            report.guarded(f"{name} on two GPUs", of_model, options, report, name, 2)


def arguments(parser):
    parser.add_argument("--models", help="those to train, with commas between them; all by default")


if __name__ == "__main__":
    main("memory_purpose", test, modules=("torch",), arguments=arguments)
