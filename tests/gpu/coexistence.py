# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Others who use CUPTI beside us: a client in the program, torch.profiler, Proton, and NVIDIA's tools around it.

Each program ends as it does without the preload, and what it prints of its own profiler is the same; our windows are complete,
were closed early with the one who came named, or have what the hooks saw, with a line that names who holds CUPTI. A tool that
the machine lacks is skipped. docs/reliability.md has what is expected of each.
"""

import glob
import json
import os
import shutil
import sys

from gputest import MEMSET, Folder, clean_environment, folders, main, module_missing, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = os.path.join(HERE, "programs", "cupti_client.py")
PROTON = os.path.join(HERE, "programs", "proton_turns.py")
TORCH = os.path.join(HERE, "programs", "torch_both.py")
COUNT = 20

# For each of the client's windows: memsets, and whether it was closed early; None if only hooks recorded it.
CLIENT_WINDOWS = {
    "none": [(2 * COUNT, False), (COUNT, False), (COUNT, False)],
    "subscribe": [(COUNT, True), None, (COUNT, False)],
    "buffers": [(COUNT, True), None, (COUNT, False)],
    "finalize": [(COUNT, True), (COUNT, False), (COUNT, False)],
}


def windows_of(folder):
    """[(memsets, closed early)], None for a window that has no device activity."""
    found = []
    rows = {row["Window"]: row for row in folder.rows("window_sum.csv") if row["Device"] == "all"}
    for window in folder.run_json()["windows"]:
        row = rows[str(window["number"])]
        work = sum(int(row[column] or 0) for column in ("Kernels", "Copies", "Memsets"))
        if "no_device_activity" not in window:
            found.append((int(row["Memsets"] or 0), "ended_by" in window))
        elif work == 0 and int(row["API Calls"]) > 0:
            found.append(None)
        else:
            found.append((work, "no device activity, and some after all"))
    return found


def line_count(err, *parts):
    """The number of our own lines that contain all the parts."""
    return sum(line.startswith("libinject[") and all(part in line for part in parts) for line in err.splitlines())


def compare_client(mode, alone, beside, folder, err):
    """{what: difference} between the expected and the actual results of the client beside us."""
    wrong = {}
    if beside != alone:
        wrong["the client"] = f"{beside}, alone {alone}"
    if alone.get("strays"):
        wrong["alone"] = "buffers of others"
    found = windows_of(folder)
    if found != CLIENT_WINDOWS[mode]:
        wrong["windows"] = f"{found}, expected {CLIENT_WINDOWS[mode]}"
    if folder.lost():
        wrong["losses"] = folder.lost()
    early = sum(window is not None and window[1] for window in CLIENT_WINDOWS[mode])
    if line_count(err, "closed early and CUPTI released") != early:
        wrong["lines on windows closed early"] = err[-600:]
    hooks_only = None in CLIENT_WINDOWS[mode]
    if line_count(err, "no device activity is recorded") != hooks_only:
        wrong["lines on windows without CUPTI"] = err[-600:]
    return wrong


def client(options, report, mode, environment=None):
    extra = environment or {}
    command = [sys.executable, CLIENT, "--mode", mode]
    bare = run(command, {**clean_environment(), **extra}, timeout=60, cwd=options.work, log=os.path.join(options.work, f"bare_{mode}.log"))
    out = os.path.join(options.work, f"client_{mode}.out")
    result = run(command, {**profiled_environment(options.library, out, summary="off"), **extra}, timeout=60, cwd=options.work,
                 log=os.path.join(options.work, f"client_{mode}.log"))
    found = folders(out)
    fine = bare.rc == 0 and result.rc == 0 and len(found) == 1
    report.check(f"client, {mode}: ends as alone, one output folder", fine, (bare.why(), result.why(), found) if not fine else "")
    if not fine:
        return
    wrong = compare_client(mode, json.loads(bare.out), json.loads(result.out), Folder(found[0]), result.err)
    report.check(f"client, {mode}: its calls as alone, our windows as expected", not wrong, wrong or windows_of(Folder(found[0])))


def hidden(options, report, mode):
    # Clients that no hook sees: the program is not harmed, and no window claims data that it lacks.
    out = os.path.join(options.work, f"hidden_{mode}.out")
    result = run([sys.executable, CLIENT, "--mode", mode, "--hidden"], profiled_environment(options.library, out, summary="off"),
                 timeout=90, cwd=options.work, log=os.path.join(options.work, f"hidden_{mode}.log"))
    found = folders(out)
    report.check(f"hidden client, {mode}: ends well", result.rc == 0 and len(found) == 1, result.why() if result.rc else found)
    if result.rc != 0 or len(found) != 1:
        return
    folder = Folder(found[0])
    recorded, lost = folder.operation_counts().get(MEMSET, 0), sum(folder.lost().values())
    report.data[f"hidden {mode}"] = {"windows": windows_of(folder), "lost": folder.lost(), "client": result.out.strip(), "stderr": result.err[-2000:]}
    report.check(f"hidden client, {mode}: nothing twice, what is missing is counted",
                 recorded <= 4 * COUNT and (recorded == 4 * COUNT or lost > 0 or None in windows_of(folder)
                                            or line_count(result.err, "finalized") > 0),
                 f"{recorded} memsets of {4 * COUNT}, {lost} lost")


def turns(options, report):
    """torch.profiler before, inside and after our windows, in one process."""
    out = os.path.join(options.work, "turns.out")
    result = run([sys.executable, TORCH, "--mode", "turns"], profiled_environment(options.library, out, summary="off"), timeout=90,
                 cwd=options.work, log=os.path.join(options.work, "turns.log"))
    found = folders(out)
    report.check("torch.profiler in turns: program ends well", result.rc == 0 and len(found) == 1, result.why() if result.rc else found)
    if result.rc != 0 or len(found) != 1:
        return
    seen, folder = json.loads(result.out.strip().splitlines()[-1]), Folder(found[0])
    windows = folder.run_json()["windows"]
    report.data["turns"] = {"seen": seen, "windows": windows, "stderr": result.err[-3000:]}
    report.check("torch.profiler in turns: it sees its kernels each time", seen["theirs"] == [seen["count"]] * len(seen["theirs"]), seen)
    rows = {row["Window"]: int(row["Kernels"] or 0) for row in folder.rows("window_sum.csv") if row["Device"] == "all"}
    # Each of our windows is complete, was ended by torch.profiler, or states that another client held CUPTI.
    told = [(rows[str(window["number"])], window.get("ended_by", ""), window.get("no_device_activity", "")) for window in windows]
    report.check("torch.profiler in turns: our windows are whole, or say why not",
                 len(told) == 3 and all(count >= seen["count"] or early or untraced for count, early, untraced in told), told)
    report.check("torch.profiler in turns: the window it came into is closed early", bool(told[1][1] or told[1][2]), told[1])
    report.check("torch.profiler in turns: nothing lost", folder.lost() == {}, folder.lost())


# Which of PROTON's steps work: a copy of CUPTI that has once been subscribed to, by anyone, locks Triton's own copy out.
PROTON_TURNS = {"proton": "with no window of ours", "proton ours proton": "before our window, and after it",
                "ours pause proton ours": "after our window"}


def proton_turn(options, report, steps, environment, name):
    """{step: its outcome}, in order; None if the program did not end well."""
    log = os.path.join(options.work, f"{name}.log")
    result = run([sys.executable, PROTON, os.path.join(options.work, name), *steps], environment, timeout=120, cwd=options.work, log=log)
    report.check(f"Proton, {' '.join(steps)} ({name}): program ends well", result.rc == 0, result.why())
    return json.loads(result.out.strip().splitlines()[-1]) if result.rc == 0 else None


def proton(options, report):
    reason = module_missing("torch", "triton")
    if not reason:
        probe = run([sys.executable, "-c", "import triton.profiler"], clean_environment(), timeout=60)
        reason = None if probe.rc == 0 else "triton.profiler can't be imported"
    if reason:
        report.skip("Proton", reason)
        return
    # The effect of another client of torch's copy of CUPTI on Proton, which is the same as ours.
    alone = proton_turn(options, report, ["proton"], clean_environment(), "alone")
    after_another = proton_turn(options, report, ["client", "proton"], clean_environment(), "after_another")
    report.check("Proton works here", bool(alone) and alone[0]["error"] == "" and alone[0]["kernels"] > 0, alone)
    if not alone or not after_another:
        return
    report.data["Proton after another client"] = after_another
    shut_out = after_another[1]["error"]
    for turns, when in PROTON_TURNS.items():
        name = "proton_" + turns.replace(" ", "_")
        out = os.path.join(options.work, f"{name}.out")
        seen = proton_turn(options, report, turns.split(), profiled_environment(options.library, out, summary="off"), name)
        if seen is None:
            continue
        first = turns.split()[0] == "proton"
        theirs = [step for step in seen if step["step"] == "proton"]
        expected = "" if first else shut_out
        report.check(f"Proton {when}: as after another client", theirs[0]["error"] == expected
                     and (theirs[0]["kernels"] > 0) == (expected == ""), (theirs, shut_out))
        found = folders(out)
        windows = Folder(found[0]).run_json()["windows"] if len(found) == 1 else []
        told = [(window.get("ended_by", ""), window.get("no_device_activity", "")) for window in windows]
        report.data[f"Proton {when}"] = {"seen": seen, "windows": told}
        # CUPTI is free for us if we used it first; if Proton did, our message says who holds it.
        report.check(f"Proton {when}: our windows are whole, or say why not", len(told) == turns.count("ours")
                     and all(window == ("", "") or (first and window[1]) for window in told), told)


def tool_path(name):
    found = shutil.which(name)
    patterns = (f"/usr/local/cuda*/bin/{name}", f"/usr/local/cuda*/compute-sanitizer/{name}", f"/opt/nvidia/nsight-*/*/{name}",
                f"/opt/nvidia/nsight-*/*/bin/{name}")
    return found or next((path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)), None)


def tools(options, report):
    """NVIDIA's tools around a program with our library: both work, and one line says who holds CUPTI."""
    commands = {"nsys": ["profile", "--trace=cuda", "--force-overwrite=true", "-o", os.path.join(options.work, "nsys")],
                "ncu": ["--target-processes", "all"],
                "compute-sanitizer": ["--tool", "memcheck", "--target-processes", "all"]}
    names = {"nsys": "Nsight Systems", "ncu": "Nsight Compute", "compute-sanitizer": "compute-sanitizer"}
    for name, arguments in commands.items():
        path = tool_path(name)
        if path is None:
            report.skip(name, "not on this machine")
            continue
        program = [sys.executable, CLIENT, "--mode", "none"]
        alone = run([path, *arguments, *program], clean_environment(), timeout=180, cwd=options.work,
                    log=os.path.join(options.work, f"{name}_alone.log"))
        out = os.path.join(options.work, f"{name}.out")
        result = run([path, *arguments, *program], profiled_environment(options.library, out, summary="off"), timeout=180, cwd=options.work,
                     log=os.path.join(options.work, f"{name}.log"))
        if alone.rc != 0:
            report.skip(name, f"does not work here without us either: {alone.why()}")
            continue
        report.check(f"{name}: ends as without us", result.rc == alone.rc, result.why() if result.rc else "")
        printed = [line for line in result.out.splitlines() if line.startswith("{")]
        expected = [line for line in alone.out.splitlines() if line.startswith("{")]
        report.check(f"{name}: the program prints the same", printed == expected, printed)
        report.check(f"{name}: one line names it", line_count(result.err + result.out, names[name]) >= 1, result.err[-300:])
        found = folders(out)
        if len(found) == 1:
            told = windows_of(Folder(found[0]))
            report.check(f"{name}: our windows are whole, or have what the hooks saw",
                         len(told) == 3 and all(window is None or window == expected
                                                for window, expected in zip(told, CLIENT_WINDOWS["none"])), told)
        else:
            report.check(f"{name}: one output folder", False, found)


def test(options, report):
    for mode in CLIENT_WINDOWS:
        report.guarded(f"client, {mode}", client, options, report, mode)
    for mode in ("subscribe", "finalize", "buffers"):
        report.guarded(f"hidden client, {mode}", hidden, options, report, mode)
    reason = module_missing("torch")
    if reason:
        report.skip("torch.profiler in turns", reason)
    else:
        report.guarded("torch.profiler in turns", turns, options, report)
    report.guarded("Proton", proton, options, report)
    report.guarded("tools", tools, options, report)


if __name__ == "__main__":
    main("coexistence", test)
