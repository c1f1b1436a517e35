# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""energy_sum.csv against NVML's counter, which a second process reads over the same span: a thousand steps in a window, and a
window that is mostly a pause. How often the counter moves, and what the readings cost. Some 30 s.
"""

import ctypes
import json
import os
import select
import subprocess
import sys
import time

from gputest import Folder, clean_environment, folders, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = (sys.executable, os.path.join(HERE, "programs", "torch_energy.py"))
PACE = 0.004  # s between the second process's readings
WITHIN = 0.02
WITHIN_PAUSE = 0.1  # a shorter window, with less power, so its edges, with steps, are a larger part
MOST_COST = 0.001  # of a CPU, beyond the initial allowance
AT_ONCE = 35e6  # ns: the allowance, plus one call that exceeds what is left
STEPS = 1e6, 250e6  # ns: bounds of the counter's update interval on known GPUs


def pci_bus_id():
    """The bus id of CUDA's device 0, queried in a process of its own."""
    code = ("import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\ntext = ctypes.create_string_buffer(64)\ndevice = ctypes.c_int()\n"
            "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0\n"
            "assert cuda.cuDeviceGetPCIBusId(text, 64, device) == 0\nprint(text.value.decode())\n")
    result = run([sys.executable, "-c", code], clean_environment(), timeout=60)
    return result.out.strip() if result.rc == 0 else None


def watch(bus, path):
    """The second process: updates of the counter, [[earliest, latest, mJ], …] in ns of CLOCK_MONOTONIC, until its stdin closes."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, energy, moves = ctypes.c_void_p(), ctypes.c_ulonglong(), []
    status = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(device))
    before, last = 0, None
    while not status and not select.select([sys.stdin], [], [], PACE)[0]:
        begin = time.monotonic_ns()
        status = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy))
        if not status and energy.value != last:
            if last is None:
                print("reads", flush=True)  # the program may start
            moves.append([before, time.monotonic_ns(), energy.value])
            last = energy.value
        before = begin
    with open(path, "w") as file:
        json.dump({"status": status, "moves": moves}, file)


def counted(moves, time_ns):
    """Millijoules at that time, by linear interpolation between the updates around it; None outside of them."""
    places = [((max(earliest, latest - 20_000_000) + latest) / 2, energy) for earliest, latest, energy in moves]
    for (begin, low), (end, high) in zip(places, places[1:]):
        if begin <= time_ns <= end:
            return low + (high - low) * (time_ns - begin) / (end - begin)
    return None


def joules(moves, begin, end):
    first, last = counted(moves, begin), counted(moves, end)
    return None if first is None or last is None else (last - first) / 1e3


def check_windows(report, run_json, rows, moves):
    base = run_json["time_zero"]["clock_monotonic_ns"]
    spans = {window["number"]: (base + window["start_ns"], base + window["end_ns"]) for window in run_json["windows"]}
    windows = {int(row["Window"]): row for row in rows if row["Of"] == "window" and row["Device"] == "0"}
    report.data["windows"] = list(windows.values())
    for number, what, within in ((1, "a thousand steps", WITHIN), (2, "a pause", WITHIN_PAUSE)):
        row = windows.get(number, {})
        ours, theirs = float(row.get("Energy (J)") or 0), joules(moves, *spans[number]) if number in spans else None
        report.check(f"{what}: energy is the counter's difference, within {within:.0%}", theirs and abs(ours - theirs) <= within * theirs,
                     f"{row.get('Energy (J)')} ± {row.get('± Energy (J)')} J, the second process {theirs and round(theirs, 3)} J, "
                     f"{row.get('Power (W)')} W, readings of the power {row.get('Power Readings (W)')} W")
        report.check(f"{what}: … and within the error that is stated", theirs and abs(ours - theirs) <= float(row.get("± Energy (J)") or 0) + 0.01 * theirs,
                     f"off by {abs(ours - theirs):.3f} J" if theirs else "nothing to compare with")
    busy, pause = windows.get(1, {}), windows.get(2, {})
    report.check("a pause uses less power than steps", pause.get("Power (W)") and float(pause["Power (W)"]) < 0.9 * float(busy.get("Power (W)") or 0),
                 f"{pause.get('Power (W)')} W, steps {busy.get('Power (W)')} W")
    # Blank if reading the counter is too expensive between a window's edges.
    share = pause.get("Idle Energy (%)")
    report.check("most of the pause's energy is used without a kernel, if that is known", not share or float(share) > 50, f"{share or 'not known'} %")
    parts = [float(row["Energy (J)"]) for row in rows if row["Of"] != "window" and row["Window"] == "1" and row["Energy (J)"]]
    report.check("iterations use no more than their window", sum(parts) <= float(busy.get("Energy (J)") or 0) * 1.01,
                 f"{len(parts)} with energy, {sum(parts):.3f} J")
    clocks = [busy.get(f"SM Clock{which} (MHz)") for which in (" Min", "", " Highest")]
    report.check("the SM clock", all(clocks) and float(clocks[0]) <= float(clocks[1]) + 0.1 and float(clocks[1]) <= float(clocks[2]) + 0.1,
                 f"lowest, mean, highest of the GPU: {clocks}; held down {busy.get('Held Down (%)')} %, memory {busy.get('Memory Clock (MHz)')} MHz, "
                 f"{busy.get('Temperature Max (C)')} °C, {busy.get('Clock Readings')} readings")


def check_readings(report, run_json, moves):
    energy = run_json["energy"]
    device = next(device for device in energy["devices"] if device["device"] == 0)
    report.data["energy"] = energy
    # Readings that were further apart say nothing about the counter.
    steps = sorted(latest - before for (_, before, _), (earliest, latest, _) in zip(moves, moves[1:]) if latest - earliest < 10_000_000)
    theirs = steps[len(steps) // 2] if steps else 0
    ours = device.get("counter_step_ns")
    # If a call takes milliseconds, readings are too far apart to tell.
    report.check("the counter's step, if it was seen", ours is None or (STEPS[0] < ours < STEPS[1] and 0.5 * theirs <= ours <= 2 * theirs),
                 f"{'not seen' if ours is None else f'{ours / 1e6:.1f} ms'}, by the second process {theirs / 1e6:.1f} ms, "
                 f"{device['energy_readings']} readings")
    report.check("no reset, nothing left out", device["counter_resets"] == 0 and device["left_out"] == 0, device)
    # Pauses between windows add to the budget as well.
    windows = run_json["windows"]
    span = max(energy["readings_ns"], windows[-1]["end_ns"] - windows[0]["start_ns"])
    cost = max(0, energy["readings_cpu_ns"] - AT_ONCE) / span
    readings = device["energy_readings"] + device["clock_readings"]
    report.check(f"readings cost {MOST_COST:.1%} of a processor at most", cost <= MOST_COST,
                 f"{cost:.4%}, {energy['readings_cpu_ns'] / readings / 1e3:.1f} us a reading, {readings} in {span / 1e9:.1f} s, "
                 f"{energy['readings_cpu_ns'] / 1e6:.1f} ms in all")
    report.check("what the driver lacks", True, device["missing"] or "nothing")


def test(options, report):
    bus = pci_bus_id()
    if not report.check("the device's PCI bus id", bus, bus):
        return
    out, told = (os.path.join(options.work, name) for name in ("energy.out", "watched.json"))
    with subprocess.Popen([sys.executable, os.path.abspath(__file__), "--watch", bus, told], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=clean_environment()) as watcher:
        watcher.stdout.readline()
        result = run(list(getattr(options, "program", PROGRAM)), profiled_environment(options.library, out, "api", batch=32), timeout=120, cwd=options.work,
                     log=os.path.join(options.work, "energy.log"))
        watcher.stdin.close()
        watcher.wait(30)
    found = folders(out)
    report.check("program ends well, one output folder", result.rc == 0 and len(found) == 1, result.why() if result.rc else found)
    with open(told) as file:
        watched = json.load(file)
    report.check("the second process reads the counter", watched["status"] == 0 and len(watched["moves"]) > 10,
                 f"status {watched['status']}, {len(watched['moves'])} moves")
    folder = Folder(found[0])
    run_json = folder.run_json()
    if not report.check("libinject reads energy or clocks", "energy" in run_json, run_json["messages"]):
        return
    check_windows(report, run_json, folder.rows("energy_sum.csv"), watched["moves"])
    check_readings(report, run_json, watched["moves"])
    lines = [line.strip() for line in result.err.splitlines() if line.strip().startswith(("energy:", "clocks held"))]
    report.check("the summary's lines", 1 <= len(lines) <= 2, " | ".join(lines))
    # An iteration's duration is the host's, which may launch work in it that takes the GPU longer (docs/peaks.md).
    lost = {name: count for name, count in folder.lost().items() if name != "impossible_rates"}
    report.check("nothing lost", not lost, lost or "")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        watch(*sys.argv[2:4])
    else:
        main("energy", test, modules=("torch",))
