# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What is missing from a run: lost records, each count with its meaning, windows that ended early, a run that was cut off."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import numbers
from libinject.page.values import object_of, objects, text_of, texts, whole
from libinject.result import METRIC_LOSSES, Result

# In the words of the text summary.
_LOST = {
    "host_records": "API calls lost: the ring was full, raise INJECT_RING",
    "range_records": "NVTX ranges lost: the ring was full, raise INJECT_RING",
    "activity_records": "GPU records lost: CUPTI's buffers were full, raise INJECT_BUFFERS",
    "invalid_timestamps": "GPU records left out: without usable times",
    "missing_activity_records": "launches whose GPU record never arrived",
    "window_times": "windows without timestamps: they followed one another too fast",
    "names": "names counted as [other]",
    "shapes": "library calls whose shape is counted as [other]",
    "code_places": "launches without operator, module or line: beyond the limit",
    "impossible_rates": "rates left out: above the device's peak",
    "range_paths": "nested NVTX ranges counted as the enclosing range",
    "trace_rows": "rows left out of the raw traces",
    "trace_events": "events left out of the timeline",
    "iteration_records": "GPU records not assigned to an iteration: too many arrived before it was known",
    "iteration_signs": "calls missed by the iteration search, so iteration numbers may be off: raise INJECT_RING",
    "busy_time_records": "GPU records too late for the busy times",
    "device_time_records": "records left out of the idle time by cause: too late or too many",
    "graph_nodes": "nodes of CUDA graphs beyond the limit: their kernels have no library call",
    "live_allocations": "allocations beyond the limit: not in live and peak bytes",
    "memory_lines": "devices without a timeline of their allocations",
    "metric_samples": "samples of hardware metrics lost",
    "metric_records": "records left out of the metrics: too late, too many for a sample, or impossible",
    "metric_rows": "rows left out of metric_samples.csv",
}
_RECOVERED = {
    "calls_not_kept": "calls not in the file when the process was killed",
    "submissions_after_full": "submissions after the journal was full: raise INJECT_RING",
    "records_after_full": "GPU records after the journal was full",
    "records_without_call": "GPU records whose call could not be recovered",
    "names_missing": "names shown as [not recovered]",
    "records_refused": "records left out: damaged, or of an impossible time",
    "bytes_unread": "bytes of CUPTI's buffers that can't be read",
}
_STATES = {
    "open": "run.json says that the run is open: the program is still running, or was killed. The tables cover the windows that had "
            "closed; if it was killed, injectctl recover adds the rest from its records.",
    "recovered": "The process was killed: these tables were recovered from its records, which do not include hardware metrics and memory in use on the GPU.",
    "kept": "The process was killed: these tables are those that it last wrote itself, since its records have less. What came later is missing.",
}


def _counts(values: dict[str, Any], meanings: dict[str, str]) -> list[dict[str, Any]]:
    return [{"kind": text_of(kind), "count": count, "meaning": meanings.get(kind, text_of(kind).replace("_", " "))}
            for kind, value in values.items() if (count := whole(value)) is not None and count > 0]


def losses(result: Result) -> dict[str, Any]:
    """{counts: what was lost, metrics_alone: whether only hardware metrics are affected, notes: what else is incomplete}."""
    run = result.run
    counts = _counts(run["lost"], _LOST)
    recovered = object_of(run.get("recovered"))
    counts += _counts({kind: recovered.get(kind) for kind in _RECOVERED}, _RECOVERED)
    rows = [row for row in result.rows("window_sum", "Device", "Unattributed") if row["Device"] == "all"]
    counts += _counts({"Unattributed": sum(numbers(rows, "Unattributed"))},
                      {"Unattributed": "GPU records whose launch was not seen (still counted)"})
    state = text_of(run.get("state"))
    if recovered.get("tables_kept") is True:
        state = "kept"
    notes = [] if state == "closed" else [_STATES.get(state, f"run.json has the state '{state}', which is unknown to this version.")]
    if recovered.get("journal_cut") is True:
        notes.append("The journal is damaged; everything after that point is missing.")
    if recovered.get("info_damaged") is True:
        notes.append("What the records said of command, devices, options and memory is damaged.")
    for key, what in (("ended_by", "closed early"), ("no_device_activity", "without GPU records")):
        reasons: dict[str, list[str]] = {}
        for window in objects(run["windows"]):
            if reason := text_of(window.get(key)):
                reasons.setdefault(reason, []).append(text_of(window.get("number")))
        notes += [f"Window{'s' if len(which) > 1 else ''} {', '.join(which[:20])}{' …' if len(which) > 20 else ''} {what}: {reason}"
                  for reason, which in list(reasons.items())[:10]]
    for key, what in (("stale_files", "Out of date, because it could not be rewritten"),
                      ("write_errors", "A file could not be written"), ("messages", "Warnings from libinject")):
        notes += [f"{what}: {text}" for text in texts(run.get(key))[:50]]
    return {"counts": counts, "metrics_alone": {entry["kind"] for entry in counts} <= METRIC_LOSSES, "notes": notes}
