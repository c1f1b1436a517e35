# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The head of a run: what ran, the verdict with its evidence, and the key figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from libinject import figures
from libinject.console import duration, per_second
from libinject.page.parts import numbers
from libinject.page.values import clean, object_of, objects, share, text_of, texts, whole
from libinject.report import remedies
from libinject.result import Result

_MOST_DEVICES = 16
# As docs/diagnosis.md has them, in a sentence.
_MEANINGS = {
    "GPU-bound": "Kernels run nearly all of the time: the GPU itself sets the pace.",
    "GPU-bound (compute)": "Kernels run nearly all of the time, and most of that time is limited by arithmetic.",
    "GPU-bound (memory)": "Kernels run nearly all of the time, and most of that time is limited by moving data.",
    "GPU-bound (latency)": "Kernels run nearly all of the time, but most of them are too small for the GPU.",
    "launch-bound": "The GPU waits for the host to launch its work.",
    "synchronization-bound": "The host waits for the GPU, and then the GPU waits for the host.",
    "input-bound": "The GPU waits for data, or for other work of the host.",
    "copy-bound": "The GPU waits for copies.",
    "communication-bound": "The GPU waits for collectives between GPUs.",
    "mixed": "More than one cause accounts for the lost time, or it is not clear which one does.",
    "undetermined": "The GPU is idle for reasons that its own records do not show.",
    **dict.fromkeys(("", "too short"), "The windows are too short for a verdict: profile longer ones, or more iterations."),
}
TOO_SHORT = ("", "too short")  # in place of a verdict
_COLOURS = {"launch-bound": "launch", "synchronization-bound": "sync", "input-bound": "input", "copy-bound": "copy",
            "communication-bound": "comm"}
_LABELS = {"launch-bound": "Waiting for launches", "synchronization-bound": "Synchronization", "input-bound": "Waiting for input",
           "copy-bound": "Copies", "communication-bound": "Communication"}


def colour_of(kind: str) -> str:
    """The part of the time that a verdict or a piece of evidence refers to."""
    return "compute" if kind.startswith("GPU-bound") else _COLOURS.get(kind, "rest")


def _label(kind: str) -> str:
    return "Kernels" if kind.startswith("GPU-bound") else _LABELS.get(kind, "Start-up, other streams, graphs")


def _parts(entry: dict, evidence: list[dict[str, Any]], device_time: int) -> list[dict[str, Any]]:
    """The device's time in parts that add up to it: those of the evidence, or, if these do not, kernels, copies and idle time."""
    kernels = whole(entry.get("kernel_busy_ns")) or 0
    copies = whole(entry.get("copy_only_ns")) or 0
    parts = [{"label": _label(part["kind"]), "colour": colour_of(part["kind"]), "ns": part["ns"]} for part in evidence]
    rest = device_time - sum(part["ns"] for part in parts)
    collectives = whole(entry.get("exposed_collective_ns")) or 0
    # What the evidence leaves out is computing, where that is not the verdict.
    if rest and rest == kernels - collectives:
        parts.insert(0, {"label": "Kernels other than collectives" if collectives else "Kernels", "colour": "compute", "ns": rest})
    elif rest:
        parts = [{"label": "Kernels", "colour": "compute", "ns": kernels}, {"label": "Copies alone", "colour": "copy", "ns": copies},
                 {"label": "Idle", "colour": "rest", "ns": max(0, device_time - kernels - copies)}]
    return [{**part, "share": share(part["ns"], device_time)} for part in parts if part["ns"] > 0]


def _remedy(part: dict[str, Any], gain: float | None, result: Result, device: str) -> dict[str, Any]:
    """The advice of run.json says why, and then what to do."""
    why, _, remedy = part["advice"].rpartition(": ")
    found = {**part, "why": why, "remedy": remedy, "gain": gain}
    return {**found, "where": remedies.where(result, part["kind"], device) if remedies.worth_doing(found) else []}


def _verdict(result: Result, entry: dict, names: dict[Any, str]) -> dict[str, Any] | None:
    device_time = whole(entry.get("device_time_ns"))
    if not device_time or device_time < 0:
        return None
    gains = remedies.gains(entry)
    gain = whole(entry.get("potential_gain_ns"))
    evidence = [{"kind": text_of(part.get("kind")), "ns": time, "share": share(time, device_time), "label": _label(text_of(part.get("kind"))),
                 "colour": colour_of(text_of(part.get("kind"))), "text": text_of(part.get("text")), "advice": text_of(part.get("advice"))}
                for part in objects(entry.get("evidence")) if (time := whole(part.get("time_ns"))) is not None and time >= 0]
    verdict, device = text_of(entry.get("verdict")), entry.get("device")
    ordered = remedies.in_order([_remedy(part, gains.percent(part["kind"]), result, text_of(device)) for part in evidence])
    kernels = whole(entry.get("kernel_busy_ns")) or 0
    return {"device": text_of(device), "device_name": names.get(text_of(device), ""), "verdict": verdict or "too short", "colour": colour_of(verdict),
            "meaning": _MEANINGS.get(verdict, ""), "device_ns": device_time, "kernel_ns": kernels,
            "utilization": share(kernels, device_time), "gain": None if gain is None or gain < 0 else share(gain, whole(entry.get("judged_time_ns")) or device_time),
            "parts": _parts(entry, evidence, device_time),
            "remedies": ordered, "worth": sum(map(remedies.worth_doing, ordered))}


def verdicts(result: Result) -> list[dict[str, Any]]:
    """Of each device, over all windows: run.json's diagnosis."""
    names = {text_of(device.get("id")): text_of(device.get("name")) for device in objects(result.run["devices"])}
    found = [_verdict(result, entry, names) for entry in objects(result.run.get("diagnosis"))[:_MOST_DEVICES]]
    return [verdict for verdict in found if verdict is not None]


def _range(values: Sequence[float], unit: str, digits: int = 1) -> str:
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return f"{low}{unit}" if low == high else f"{low} … {high}{unit}"


def step_times(result: Result, in_windows: bool = False) -> dict[str, float] | None:
    """`in_windows`: of the profiled iterations. The standard deviation is the sample's."""
    times = figures.window_step_times(result) if in_windows else figures.step_times(result)
    if not times:
        return None
    return {"count": len(times), "mean": statistics.fmean(times), "median": statistics.median(times), "min": min(times), "max": max(times),
            "stdev": statistics.stdev(times) if len(times) > 1 else 0.0}


def _tile(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def tiles(result: Result, found: list[dict[str, Any]]) -> list[dict[str, str]]:
    shown = []
    steps = step_times(result)
    unprofiled = bool(figures.unprofiled_steps(result))
    if steps:
        count = int(steps["count"])
        spread = f", standard deviation {duration(steps['stdev'])}" if count > 1 else ""
        of = "without the profiler, on the host" if unprofiled else "in windows"
        shown.append(_tile("Step time", duration(steps["median"]),
                           f"median of {count} iteration{'s' if count != 1 else ''} {of}; mean {duration(steps['mean'])}{spread}"))
    profiled = step_times(result, in_windows=True)
    if steps and profiled and unprofiled:
        longer = 100 * (profiled["median"] / steps["median"] - 1)
        shown.append(_tile("Step time in windows", duration(profiled["median"]),
                           f"{longer:+.1f}%: the profiler's share, plus any other difference between these steps"))
    utilization = figures.utilization(result)
    if utilization is not None:
        by_device = f"; {_range([verdict['utilization'] for verdict in found], '%')} by GPU" if len(found) > 1 else ""
        shown.append(_tile("GPU utilization", f"{utilization:.1f}%", f"share of the device time with at least one kernel{by_device}"))
    windows = figures.windows(result)
    several = f", of {len(windows)} windows" if len(windows) > 1 else ""
    rate = figures.samples_per_second(result)
    if rate is not None:
        shown.append(_tile("Samples per second", f"{per_second(rate)}/s", "by the step time " + ("without the profiler" if unprofiled else "in windows")))
    of_units, source = figures.unit_iterations(result), figures.unit_source(result)
    units = figures.unit_rate(of_units)
    if units is not None and source != "stated":  # else they are the samples
        shown.append(_tile("Units of work per second", f"{per_second(units)}/s", f"{source}; all units by all the time of {len(of_units)} iterations "
                           + ("in windows" if "Complete" in of_units[0] else "without the profiler")))
    if rates := numbers(windows, "TFLOP/s"):
        peaks = numbers(windows, "Peak (%)")
        shown.append(_tile("Arithmetic", _range(rates, " TFLOP/s", 3 if len(rates) == 1 else 1),
                           (f"{_range(peaks, '%')} of the peak" if peaks else "of library calls of known shape") + several))
    if counts := numbers(windows, "Kernels"):
        total = sum(numbers(windows, "Kernel Time (ns)"))
        shown.append(_tile("Kernels", f"{sum(counts):,}", f"{duration(total)} of kernel time{several.replace(', of', ' in')}"))
    memory = [row for row in result.rows("memory_sum", "Device", "API", "Peak (MB)") if row["API"] == "[all]" and row["Device"] != "host"]
    if peaks := numbers(memory, "Peak (MB)"):
        shown.append(_tile("Peak memory", _range(peaks, " MB"), "allocated by the program" + (", by GPU" if len(peaks) > 1 else "")))
    if (used := figures.energy(result)) is not None:
        share, of = next(((joules, of) for of in ("Sample", "Unit") if (joules := figures.joules_per(of, result)) is not None), (None, ""))
        shown.append(_tile("Energy", f"{used.joules:,.1f} J", f"± {used.error:,.1f} J in windows{'' if used.whole else ' whose energy is known'}"
                           + (f", {used.joules / used.seconds:,.0f} W a GPU" if used.seconds > 0 else "")
                           + (f"; {share:,.4g} J a {of.lower()}" if share is not None else "")))
    if (clock := figures.clock(result)) is not None:
        held = figures.clock(result, "Held Down (%)")
        shown.append(_tile("SM clock", f"{clock:,.0f} MHz", "mean in windows" + (f"; throttled {held:.1f}% of the time" if held is not None else "")))
    return shown


def facts(result: Result) -> list[tuple[str, str]]:
    """What ran, where and when."""
    run = result.run
    shown = [("Command", clean(" ".join(texts(run.get("command_line"))))), ("Folder", clean(str(result.path)))]
    host = text_of(run.get("host"))
    rank = text_of(run.get("rank"))
    shown.append(("Process", text_of(run.get("pid")) + (f" on {host}" if host else "") + (f", rank {rank}" if rank else "")))
    devices = objects(run["devices"])
    kinds: dict[str, list[str]] = {}
    for device in devices:
        kinds.setdefault(text_of(device.get("name")), []).append(text_of(device.get("id")))
    shown.append(("GPU", "; ".join(f"{name} ({', '.join(ids)})" for name, ids in kinds.items())))
    versions = object_of(run.get("versions"))
    shown.append(("Driver", f"for CUDA {text_of(versions.get('driver'))}" if text_of(versions.get("driver")) else ""))
    started = text_of(object_of(run.get("time_zero")).get("utc")).partition(".")[0].replace("T", " ")
    shown.append(("Started", f"{started} UTC" if started else ""))
    windows = objects(run["windows"])
    more = whole(run.get("windows_not_listed")) or 0
    reasons = ", ".join(dict.fromkeys(text_of(window.get("reason")) for window in windows))
    shown.append(("Windows", f"{len(windows) + more}" + (f" ({reasons})" if reasons else "")))
    shown.append(("libinject", clean(run["libinject"])))
    return [(label, value) for label, value in shown if value]
