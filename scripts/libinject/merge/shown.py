# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A job's report as lines and tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libinject.console import duration, per_second, size
from libinject.merge.links import SLOW
from libinject.merge.steps import FEWEST_ITERATIONS
from libinject.page.parts import Table, as_column, plain_table
from libinject.result import printable


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _times(*names: str) -> list[dict[str, Any]]:
    return [as_column(name, "ns") for name in names]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def title(job: dict[str, Any]) -> str:
    gpus = ", ".join(f"{count} {printable(name, 60)}" for name, count in job["gpus"].items()) or "no GPU"
    ranks = _count(job["ranks"], "rank") if job["ranks"] == job["world"] else f"{job['ranks']} of {job['world']} ranks"
    return f"{job['name']}: {ranks} on {_count(job['hosts'], 'host')}, {gpus}"


def lines(job: dict[str, Any]) -> list[tuple[str, str]]:
    """(question, answer); further answers to the same question have an empty first element."""
    found = [("command", printable(job["command"], 110))] if job["command"] else []
    if job["throughput"] is not None:
        rate = job["throughput"]
        work = next((f", {per_second(rate[f'{of}_per_s'])} {of}/s" for of in ("samples", "units") if rate[f"{of}_per_s"] is not None), "")
        of = "without the profiler, median of the ranks" if rate["unprofiled"] else f"median of {_iterations(job)} in windows"
        inside = f"; in windows {duration(job['window_step_ns'])}" if rate["unprofiled"] and job["window_step_ns"] is not None else ""
        found.append(("step time", f"{duration(job['step_ns'])}, {of}; {rate['steps_per_s']:.3f} steps/s{work}{inside}"))
    else:
        found.append(("step time", "not known: no complete iteration with a step time"))
    found += _skew(job) + _stragglers(job) + _collectives(job)
    used = [(row["utilization"], row["rank"]) for row in job["by_rank"] if row.get("utilization") is not None]
    if used:
        least, most = (f"{percent(share)}% (rank {rank})" for share, rank in (min(used), max(used)))
        mean = percent(sum(share for share, _ in used) / len(used))
        several = f" on average over the ranks; from {least} to {most}" if len(used) > 1 else ""
        found.append(("utilization", f"GPU utilization {mean}%: share of the device time with a kernel running{several}"))
    found.append(("verdicts", ", ".join(f"{printable(name, 40)} ({_count(count, 'rank')})" for name, count in job["verdicts"].items())))
    found += _from_to(job, "memory", "peak GPU memory allocated by a rank", "peak_memory_mb", lambda peak: f"{peak:.1f}MB")
    found += _from_to(job, "in use", "highest reading of a GPU's memory, by all processes", "device_memory_in_use_mb", lambda used: f"{used:.1f}MB")
    found += _from_to(job, "PyTorch", "the most that its allocator had reserved on a GPU", "torch_reserved_mb", lambda size: f"{size:.1f}MB")
    failed = [row["rank"] for row in job["by_rank"] if row.get("failed_allocations")]
    if failed:
        found.append(("", f"allocations failed on {_count(len(failed), 'rank')}, rank {failed[0]} first"))
    found += _from_to(job, "processors", "used by a rank and its children", "cores_used", lambda cores: f"{cores:.2f}")
    short = [row["rank"] for row in job["by_rank"] if row.get("cores_allowed") and row["cores_wanted"] is not None and row["cores_wanted"] > row["cores_allowed"]]
    if short:
        found.append(("", f"more wanted than allowed on {_count(len(short), 'rank')}, rank {short[0]} first"))
    found += _from_to(job, "power", "of a rank's GPUs, on average", "power_w", lambda watts: f"{watts:.1f}W")
    found += _from_to(job, "clocks", "throttled", "clocks_held_down", lambda share: f"{percent(share)}% of the time")
    losing = [row for row in job["by_rank"] if row["lost"]]
    if losing:
        kinds = ", ".join(f"{count} {printable(kind, 40).replace('_', ' ')}" for kind, count in job["lost"].items())
        found.append(("lost", f"{kinds}, on {_count(len(losing), 'rank')}: their figures are incomplete"))
    else:
        found.append(("lost", "not counted: recovery was not complete" if any(row["gaps"] for row in job["by_rank"]) else "nothing"))
    said = [(row["rank"], row["messages"][0]) for row in job["by_rank"] if row["messages"]]
    for rank, text in said[:3]:
        found.append(("warning", f"rank {rank}: {printable(text, 200)}"))
    if len(said) > 3:
        found.append(("", f"… and {_count(len(said) - 3, 'rank')} more"))
    return found


def _from_to(job: dict[str, Any], what: str, says: str, figure: str, text: Callable[[float], str]) -> list[tuple[str, str]]:
    """The ranks with the lowest and the highest value."""
    known = [(row[figure], row["rank"]) for row in job["by_rank"] if row.get(figure) is not None]
    if not known:
        return []
    least, most = (f"{text(value)} (rank {rank})" for value, rank in (min(known), max(known)))
    return [(what, f"{says}: from {least} to {most}")]


def _iterations(job: dict[str, Any]) -> str:
    counts = [row["step"]["iterations"] for row in job["by_rank"] if row.get("step")]
    if len(counts) == 1:
        return _count(counts[0], "complete iteration")
    least, most = min(counts), max(counts)
    return f"each rank's {least if least == most else f'{least} to {most}'} complete iterations, and of the ranks,"


def _skew(job: dict[str, Any]) -> list[tuple[str, str]]:
    skew, compared = job["skew"], job["compared"]
    if not skew or not compared:
        return []
    iterations = _count(compared["iterations"], "iteration")
    left_out = f"; {compared['left_out']} are left out because some ranks have no step time for them" if compared["left_out"] else ""
    mean = f"{duration(skew['mean_ns'])} on average ({percent(skew['mean_share'])}% of the step)"
    most = f"{duration(skew['max_ns'])} at most (iteration {skew['max_iteration']})"
    return [("skew", f"{mean}, median {duration(skew['median_ns'])}, {most}"),
            ("", f"slowest minus fastest of {compared['ranks']} ranks, in {iterations}, {compared['first']} to {compared['last']}{left_out}")]


def stragglers_known(job: dict[str, Any]) -> bool:
    compared, spent = job["compared"] or {}, job["collectives"] or {}
    return compared.get("iterations", 0) >= FEWEST_ITERATIONS or bool(spent.get("split_share"))


def _stragglers(job: dict[str, Any]) -> list[tuple[str, str]]:
    hosts = {row["rank"]: row["host"] for row in job["by_rank"]}
    found = []
    for entry in job["stragglers"]:
        who = f"rank {entry['rank']} ({printable(hosts[entry['rank']], 40)})"
        if entry["by"] == "step time":
            excess = f"{duration(entry['excess_ns'])} ± {duration(entry['excess_error_ns'])} ({percent(entry['share'])}%)"
            text = f"{who}: a step takes {excess} longer than the others' median; slowest in {entry['slowest']} of {entry['iterations']}"
        else:
            lead = f"{duration(entry['waited_for_ns'])} in all ({percent(entry['share'])}% of the time)"
            text = f"{who}: the others wait for it in collectives, {lead}; noise at most {duration(entry['noise_ns'])}"
        found.append(("" if found else "stragglers", text))
    if len(found) > 10:
        found[10:] = [("", f"… and {len(found) - 10} more")]
    return found or [("stragglers", "none" if stragglers_known(job) else "not known: too few iterations, and no collectives, to compare")]


def _collectives(job: dict[str, Any]) -> list[tuple[str, str]]:
    spent = job["collectives"]
    if not spent:
        return []
    share = f", {percent(spent['share'])}% of the time" if spent["share"] is not None else ""
    found = [("collectives", f"{duration(spent['collective_ns'])} of kernel time on all ranks{share}")]
    if spent["split_share"] > 0:
        split = spent["split_share"] * spent["collective_ns"]
        bounds = (spent["waiting_at_least_ns"], spent["waiting_at_most_ns"])
        least, most = (f"{duration(bound)} ({percent(bound / split)}%)" for bound in bounds)
        found.append(("", f"waiting for the last rank: at least {least}, at most {most}; the rest is transfer"))
        if spent["split_share"] < 0.995:
            found.append(("", f"of the {percent(spent['split_share'])}% of that time, for which the two can be separated"))
    return found


def rank_table(job: dict[str, Any], most: int | None = None) -> Table:
    """At most `most` ranks: stragglers, then those with missing data, then the slowest."""
    slow = {entry["rank"] for entry in job["stragglers"]}
    ranks = job["by_rank"]
    if most is not None and len(ranks) > most:
        def order(row: dict[str, Any]) -> tuple:
            step = row.get("step") or {}
            lacking = row["lost"] or row["state"] != "closed"
            return (row["rank"] not in slow, not lacking, -step.get("excess_ns", step.get("median_ns", 0)), row["rank"])
        ranks = sorted(sorted(ranks, key=order)[:most], key=lambda row: row["rank"])
    rows = []
    for row in ranks:
        step, spent = row.get("step") or {}, row.get("collectives") or {}
        least, utmost = spent.get("waiting_at_least_share"), spent.get("waiting_at_most_share")
        rows.append([
            [row["rank"], str(row["rank"]), "bad" if row["rank"] in slow else ""], printable(row["host"], 24), step.get("iterations", 0),
            step.get("median_ns"), step.get("mean_ns"), step.get("stddev_ns"), step.get("p95_ns"), step.get("excess_ns"), step.get("slowest"), _percent(row.get("utilization")),
            _percent(spent.get("share")), None if least is None else [least, f"{percent(least)}-{percent(utmost)}"], row.get("peak_memory_mb"),
            row.get("power_w"), row.get("sm_clock_mhz"), _percent(row.get("clocks_held_down")), sum(row["lost"].values()) or None,
            printable(row["verdict"] or "", 30) + ("" if row["state"] == "closed" else f" ({printable(row['state'], 12)})")])
    note = "" if len(rows) == len(job["by_rank"]) else (
        f"{len(rows)} of {len(job['by_rank'])} ranks: stragglers, incomplete ranks, the slowest")
    columns = [as_column("Rank"), as_column("Host", "text"), as_column("Steps"),
               *_times("Step time in windows", "Mean", "StdDev", "P95", "Excess"), as_column("Slowest"),
               *(as_column(name, digits=1) for name in ("GPU Util. (%)", "Coll (%)", "Wait (%)", "Peak (MB)")), *(as_column(name) for name in ("Power (W)", "SM (MHz)")),
               as_column("Held (%)", digits=1), as_column("Lost"),
               as_column("Verdict", "text")]
    return plain_table("ranks", "Ranks", "", columns, rows, note=note, first=32)


def _operation(row: dict[str, Any]) -> str:
    return printable(" ".join(filter(None, (row["operation"], row["type"], row["reduction"]))), 50)


def _size(row: dict[str, Any]) -> list | None:
    return None if row["bytes"] is None else [row["bytes"], size(row["bytes"])]


def operation_table(job: dict[str, Any], most: int) -> Table:
    rows = [[_operation(row), _size(row), row["ranks"] or None, row["made_by"], row["kernels"], row["time_ns"], row["waiting_at_least_ns"],
             row["waiting_at_most_ns"]] for row in (job["collectives"] or {}).get("operations", [])[:most]]
    columns = [as_column("Operation", "text"), *map(as_column, ("Bytes", "Ranks", "Made by", "Kernels")), *_times("Time", "Wait at least", "Wait at most")]
    return plain_table("operations", "Collectives of all ranks: time, and how much of it is waiting", "", columns, rows)


def communicator_table(job: dict[str, Any], most: int) -> Table:
    """Empty if there is only one communicator, as there is nothing to compare."""
    found = (job["collectives"] or {}).get("communicators", [])
    rows = [[printable(row["id"], 20), row["size"], row["ranks"] if len(row["ranks"]) <= 40 else f"{row['ranks'][:39]}…",
             row["kernels"] or 0, row["time_ns"], row["waiting_at_least_ns"], row["waiting_at_most_ns"]]
            for row in found[:most] if len(found) > 1]
    columns = [as_column("Communicator", "text"), as_column("Size"), as_column("Ranks", "text"), as_column("Kernels"),
               *_times("Time", "Wait at least", "Wait at most")]
    return plain_table("communicators", "Communicators by time", "", columns, rows, note="ranks as the job numbers them, those whose folders are here")


def memory_table(job: dict[str, Any]) -> Table:
    def cell(bytes: float | None) -> list | None:
        return None if bytes is None else [bytes, size(bytes)]

    found = [row for row in job["memory_by_purpose"] if row["most_b"]]
    rows = [[printable(row["purpose"], 40), cell(row["least_b"]), row["least_rank"], cell(row["median_b"]), cell(row["most_b"]), row["most_rank"],
             cell(row["sum_b"]), None if row["ranks"] == job["ranks"] else row["ranks"]] for row in found]
    columns = [as_column("Purpose", "text"), *map(as_column, ("Least", "of rank", "Median", "Most", "by rank", "Sum", "Ranks"))]
    return plain_table("memory", "PyTorch's memory by purpose, of a rank", "", columns, rows, first=32)


def bus_table(job: dict[str, Any], most: int) -> Table:
    rows = [[_operation(row), _size(row), row["ranks"] or None, row["best_gbps"], row["best_rank"], row["median_gbps"], row["worst_gbps"],
             row["worst_rank"]] for row in job["links"]["bus"][:most]]
    columns = [as_column("Operation", "text"), *map(as_column, ("Bytes", "Ranks")), as_column("Best", digits=1), as_column("of rank"),
               as_column("Median", digits=1), as_column("Worst", digits=1), as_column("by rank")]
    return plain_table("bus", "Bus bandwidths (GB/s), slowest operations first", "", columns, rows,
                       note="the best rank is closest to the links' bandwidth: the others also waited")


def peer_table(job: dict[str, Any], most: int) -> Table:
    rows = [[row["rank"], printable(row["operation"], 20), printable(row["peer"], 12), row["ranks"] or None, row["best_gbps"]]
            for row in job["links"]["peers"][:most]]
    columns = [as_column("Rank"), as_column("Operation", "text"), *map(as_column, ("Peer", "Ranks")), as_column("Best (GB/s)", digits=1)]
    return plain_table("peers", "Sends and receives, slowest first", "", columns, rows, note="the peer is a rank of a communicator of the size shown")


def copy_table(job: dict[str, Any], most: int) -> Table:
    rows = [[row["rank"], printable(row["host"], 24), printable(row["device"], 12), printable(row["direction"], 24),
             printable(f"{row['source']} to {row['target']}", 40), row["copies"], row["total_mb"], row["gbps"], row["link_percent"],
             row["median_gbps"], ["slow", "slow", "bad"] if row["slow"] else None]
            for row in job["links"]["copies"][:most]
            if row["slow"] or row["link_percent"] is None or row["link_percent"] < 100 * SLOW]
    columns = [as_column("Rank"), as_column("Host", "text"), as_column("Device"), as_column("Direction", "text"), as_column("Memory", "text"),
               as_column("Copies"), *(as_column(name, digits=1) for name in ("Size (MB)", "GB/s", "Link (%)", "Median GB/s")), as_column("", "text")]
    note = "slow: less than 80% of the median of the ranks' copies of this kind" if any(row[-1] for row in rows) else ""
    return plain_table("copies", "Large copies below 80% of their link or of the other ranks' rate, worst first", "", columns, rows, note=note)


_CODE = {
    "modules": ("Modules", "self_time_ns", "Self Time"),
    "lines": ("Lines of the program that launch kernels", "user_code_time_ns", "Kernel Time"),
    "operators": ("Operators", "self_time_ns", "Self Time"),
    "gap_lines": ("Lines of the program that the GPUs waited for", "idle_time_ns", "Idle Time"),
}


def _code_name(row: dict[str, Any]) -> str:
    if "module" in row:
        return f"{row['module']} ({row['class']})" if row["class"] and row["class"] != row["module"] else row["module"]
    if "operator" in row:
        return row["operator"]
    return f"{row['file'].rpartition('/')[2]}:{row['line']} {row['function']}" if row["file"] else row["function"]


def code_table(job: dict[str, Any], what: str, most: int) -> Table:
    """Omits rows without time, for example lines from which only lines of libraries are called."""
    title, time, column = _CODE[what]
    found = (job["code"] or {}).get(what, {"rows": [], "ranks": 0})
    rows = [[printable(_code_name(row), 100), _percent(row["share"]), row[time], row.get("total_time_ns") if time == "self_time_ns" else None, row["ranks"], row["most_ns"],
             row["most_rank"]] for row in found["rows"][:most] if row[time]]
    columns = [as_column("Place" if "line" in what else title[:-1], "name"), as_column("Time (%)", digits=1), *_times(column, "Total Time"), as_column("Ranks"),
               *_times("Most"), as_column("of rank")]
    note = "" if found["ranks"] == job["ranks"] else f"of the {_count(found['ranks'], 'rank')} that have the table"
    return plain_table(what, f"{title}, all ranks together", "", columns, rows, note=note)


def scaling_table(report: dict[str, Any]) -> Table | None:
    scaling = report["scaling"]
    if not scaling:
        return None
    by = scaling["by"].removesuffix("_per_s")
    work = "units" if by == "units" else "samples"
    rows = [[row["job"], row["ranks"], row["steps_per_s"], row[f"{work}_per_s"], row["speedup"], _percent(row["efficiency"])]
            for row in scaling["jobs"]]
    columns = [as_column("Job", "text"), as_column("Ranks"), as_column("Steps/s", digits=3), as_column(f"{work.capitalize()}/s", digits=3),
               as_column("Speed-up", digits=2), as_column("Efficiency (%)", digits=1)]
    title = f"Scaling by {by}/s, relative to the smallest job, {printable(scaling['base'])}"
    note = "" if by != "steps" else "without INJECT_BATCH: only correct if the work of a rank per step is the same in all jobs"
    return plain_table("scaling", title, "", columns, rows, note=note, first=32)


def cell_text(cell: Any, column: dict[str, Any]) -> str:
    """As a terminal shows it."""
    if isinstance(cell, list):
        return cell[1]
    if cell is None or isinstance(cell, str):
        return cell or ""
    return duration(cell) if column["kind"] == "ns" else f"{cell:.{column['digits']}f}"


def tables(job: dict[str, Any], ranks: int | None, most: int) -> list[Table]:
    found = [rank_table(job, ranks), memory_table(job), operation_table(job, most), communicator_table(job, most), bus_table(job, most),
             peer_table(job, most), copy_table(job, most), *(code_table(job, what, most) for what in _CODE)]
    return [table for table in found if table.rows]
