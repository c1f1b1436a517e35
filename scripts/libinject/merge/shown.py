# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A job's report as lines and tables: what the terminal prints and the page shows."""

from __future__ import annotations

import dataclasses
from typing import Any

from libinject.console import duration
from libinject.merge.links import SLOW
from libinject.merge.steps import FEWEST_ITERATIONS
from libinject.result import printable


@dataclasses.dataclass
class Shown:
    """A table of texts. The columns named in `words` are no figures."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    words: frozenset[str] = frozenset()


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _time(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else duration(nanoseconds)


def _figure(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _bytes(number: int | None) -> str:
    if number is None:
        return ""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3f}{unit}"
    return f"{number}B"


def title(job: dict[str, Any]) -> str:
    gpus = ", ".join(f"{count} {printable(name, 60)}" for name, count in job["gpus"].items()) or "no GPU"
    ranks = _count(job["ranks"], "rank") if job["ranks"] == job["world"] else f"{job['ranks']} of {job['world']} ranks"
    return f"{job['name']}: {ranks} on {_count(job['hosts'], 'host')}, {gpus}"


def lines(job: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, the answer); further answers to the same have nothing in the first place."""
    found = [("command", printable(job["command"], 110))] if job["command"] else []
    if job["step_ns"] is not None:
        rate = job["throughput"]
        samples = f", {rate['samples_per_s']:.1f} samples/s" if rate["samples_per_s"] is not None else ""
        found.append(("step time", f"{duration(job['step_ns'])} on average over the ranks; {rate['steps_per_s']:.3f} steps/s{samples}"))
    else:
        found.append(("step time", "not known: no complete iterations"))
    found += _skew(job) + _stragglers(job) + _collectives(job)
    used = [(row["utilization"], row["rank"]) for row in job["by_rank"] if row.get("utilization") is not None]
    if used:
        least, most = (f"{percent(share)}% (rank {rank})" for share, rank in (min(used), max(used)))
        mean = percent(sum(share for share, _ in used) / len(used))
        found.append(("utilization", f"a kernel runs {mean}% of the time on average; from {least} to {most}"))
    found.append(("verdicts", ", ".join(f"{printable(name, 40)} ({_count(count, 'rank')})" for name, count in job["verdicts"].items())))
    peaks = [(row["peak_memory_mb"], row["rank"]) for row in job["by_rank"] if row.get("peak_memory_mb") is not None]
    if peaks:
        least, most = (f"{peak:.1f}MB (rank {rank})" for peak, rank in (min(peaks), max(peaks)))
        found.append(("memory", f"peak of what a rank allocated on GPUs: from {least} to {most}"))
    failed = [row["rank"] for row in job["by_rank"] if row.get("failed_allocations")]
    if failed:
        found.append(("", f"allocations failed on {_count(len(failed), 'rank')}, rank {failed[0]} first"))
    losing = [row for row in job["by_rank"] if row["lost"]]
    if losing:
        kinds = ", ".join(f"{count} {printable(kind, 40).replace('_', ' ')}" for kind, count in job["lost"].items())
        found.append(("lost", f"{kinds}, on {_count(len(losing), 'rank')}: figures of these are incomplete"))
    else:
        found.append(("lost", "nothing"))
    said = [(row["rank"], row["messages"][0]) for row in job["by_rank"] if row["messages"]]
    for rank, text in said[:3]:
        found.append(("said", f"rank {rank}: {printable(text, 200)}"))
    if len(said) > 3:
        found.append(("", f"… and {_count(len(said) - 3, 'rank')} more"))
    return found


def _skew(job: dict[str, Any]) -> list[tuple[str, str]]:
    skew, compared = job["skew"], job["compared"]
    if not skew or not compared:
        return []
    iterations = _count(compared["iterations"], "iteration")
    mean = f"{duration(skew['mean_ns'])} on average ({percent(skew['mean_share'])}% of the step)"
    most = f"{duration(skew['max_ns'])} at most (iteration {skew['max_iteration']})"
    return [("skew", f"{mean}, median {duration(skew['median_ns'])}, {most}"),
            ("", f"slowest less fastest of {compared['ranks']} ranks, in {iterations}, {compared['first']} to {compared['last']}")]


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
    known = (job["compared"] or {}).get("iterations", 0) >= FEWEST_ITERATIONS or (job["collectives"] or {}).get("split_share")
    return found or [("stragglers", "none" if known else "not known: too few iterations, and no collectives, to compare")]


def _collectives(job: dict[str, Any]) -> list[tuple[str, str]]:
    spent = job["collectives"]
    if not spent:
        return []
    share = f", {percent(spent['share'])}% of the time" if spent["share"] is not None else ""
    found = [("collectives", f"{duration(spent['collective_ns'])} of kernels on all ranks{share}")]
    if spent["split_share"] > 0:
        split = spent["split_share"] * spent["collective_ns"]
        bounds = (spent["waiting_at_least_ns"], spent["waiting_at_most_ns"])
        least, most = (f"{duration(bound)} ({percent(bound / split)}%)" for bound in bounds)
        found.append(("", f"waiting for the last rank: {least} at least, {most} at most; the rest is transfer"))
        if spent["split_share"] < 0.995:
            found.append(("", f"of the {percent(spent['split_share'])}% of that time in which the two can be told apart"))
    return found


def rank_table(job: dict[str, Any], most: int | None = None) -> Shown:
    """At most `most` ranks: stragglers, those that lack something, and then those that are slowest."""
    slow = {entry["rank"] for entry in job["stragglers"]}
    ranks = job["by_rank"]
    if most is not None and len(ranks) > most:
        def order(row: dict[str, Any]) -> tuple:
            step = row.get("step") or {}
            lacking = row["lost"] or row["state"] != "closed"
            return (row["rank"] not in slow, not lacking, -step.get("excess_ns", step.get("mean_ns", 0)), row["rank"])
        ranks = sorted(sorted(ranks, key=order)[:most], key=lambda row: row["rank"])
    rows = []
    for row in ranks:
        step, spent = row.get("step") or {}, row.get("collectives") or {}
        least, utmost = percent(spent.get("waiting_at_least_share")), percent(spent.get("waiting_at_most_share"))
        rows.append([
            str(row["rank"]), printable(row["host"], 24), str(step.get("iterations", 0)),
            _time(step.get("mean_ns")), _time(step.get("stddev_ns")), _time(step.get("p95_ns")), _time(step.get("excess_ns")),
            str(step.get("slowest", "")), percent(row.get("utilization")),
            percent(spent.get("share")), f"{least}-{utmost}" if least else "",
            _figure(row.get("peak_memory_mb")), str(sum(row["lost"].values()) or ""),
            printable(row["verdict"] or "", 30) + ("" if row["state"] == "closed" else f" ({printable(row['state'], 12)})")])
    note = "" if len(rows) == len(job["by_rank"]) else (
        f"{len(rows)} of {len(job['by_rank'])} ranks: stragglers, ranks that lack something, the slowest")
    columns = ["Rank", "Host", "Steps", "Mean", "StdDev", "P95", "Excess", "Slowest", "Util (%)", "Coll (%)", "Wait (%)", "Peak (MB)",
               "Lost", "Verdict"]
    return Shown("Ranks", columns, rows, note, frozenset(("Host", "Verdict")))


def _operation(row: dict[str, Any]) -> str:
    return printable(" ".join(filter(None, (row["operation"], row["type"], row["reduction"]))), 50)


def _ranks(row: dict[str, Any]) -> str:
    return str(row["ranks"] or "")


def operation_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[_operation(row), _bytes(row["bytes"]), _ranks(row), str(row["made_by"]), str(row["kernels"]), _time(row["time_ns"]),
             _time(row["waiting_at_least_ns"]), _time(row["waiting_at_most_ns"])]
            for row in (job["collectives"] or {}).get("operations", [])[:most]]
    columns = ["Operation", "Bytes", "Ranks", "Made by", "Kernels", "Time", "Wait at least", "Wait at most"]
    title = "Collectives of all ranks: time, and what of it is waiting"
    return Shown(title, columns, rows, "", frozenset(("Operation",))) if rows else None


def communicator_table(job: dict[str, Any], most: int) -> Shown | None:
    """Of one communicator there is nothing to tell apart."""
    found = (job["collectives"] or {}).get("communicators", [])
    rows = [[printable(row["id"], 20), str(row["size"]), row["ranks"] if len(row["ranks"]) <= 40 else f"{row['ranks'][:39]}…",
             str(row["kernels"] or 0), _time(row["time_ns"]), _time(row["waiting_at_least_ns"]), _time(row["waiting_at_most_ns"])]
            for row in found[:most]]
    columns = ["Communicator", "Size", "Ranks", "Kernels", "Time", "Wait at least", "Wait at most"]
    note = "ranks as the job numbers them, those whose folders are here"
    return Shown("Communicators by time", columns, rows, note, frozenset(("Communicator", "Ranks"))) if len(found) > 1 else None


def bus_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[_operation(row), _bytes(row["bytes"]), _ranks(row), _figure(row["best_gbps"]), str(row["best_rank"]),
             _figure(row["median_gbps"]), _figure(row["worst_gbps"]), str(row["worst_rank"])] for row in job["links"]["bus"][:most]]
    columns = ["Operation", "Bytes", "Ranks", "Best", "of rank", "Median", "Worst", "by rank"]
    note = "the best is nearest to what the links carry: the others waited as well"
    return Shown("Bus bandwidths (GB/s), slowest operations first", columns, rows, note, frozenset(("Operation",))) if rows else None


def peer_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[str(row["rank"]), printable(row["operation"], 20), printable(row["peer"], 12), _ranks(row), _figure(row["best_gbps"])]
            for row in job["links"]["peers"][:most]]
    columns = ["Rank", "Operation", "Peer", "Ranks", "Best (GB/s)"]
    note = "the peer is a rank of the communicator, of as many ranks"
    return Shown("Sends and receives, slowest first", columns, rows, note, frozenset(("Operation",))) if rows else None


def copy_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[str(row["rank"]), printable(row["host"], 24), printable(row["device"], 12), printable(row["direction"], 24),
             printable(f"{row['source']} to {row['target']}", 40), str(row["copies"]), _figure(row["total_mb"]), _figure(row["gbps"]),
             _figure(row["link_percent"]), _figure(row["median_gbps"]), "slow" if row["slow"] else ""]
            for row in job["links"]["copies"][:most]
            if row["slow"] or row["link_percent"] is None or row["link_percent"] < 100 * SLOW]
    columns = ["Rank", "Host", "Device", "Direction", "Memory", "Copies", "Size (MB)", "GB/s", "Link (%)", "Median GB/s", ""]
    title = "Large copies below 80% of their link or of the other ranks' rate, worst first"
    note = "slow: less than 80% of the median of the ranks' copies of this kind" if any(row[-1] for row in rows) else ""
    return Shown(title, columns, rows, note, frozenset(("Host", "Direction", "Memory", ""))) if rows else None


def scaling_table(report: dict[str, Any]) -> Shown | None:
    scaling = report["scaling"]
    if not scaling:
        return None
    by_samples = scaling["by"] == "samples_per_s"
    rows = [[row["job"], str(row["ranks"]), _figure(row["steps_per_s"], 3), _figure(row["samples_per_s"]), _figure(row["speedup"], 2),
             percent(row["efficiency"])] for row in scaling["jobs"]]
    columns = ["Job", "Ranks", "Steps/s", "Samples/s", "Speed-up", "Efficiency (%)"]
    title = f"Scaling by {'samples/s' if by_samples else 'steps/s'}, against the smallest job, {printable(scaling['base'])}"
    note = "" if by_samples else "without INJECT_BATCH: right only if a rank's share of a step is the same in all jobs"
    return Shown(title, columns, rows, note, frozenset(("Job",)))


def tables(job: dict[str, Any], ranks: int | None, most: int) -> list[Shown]:
    found = [rank_table(job, ranks), operation_table(job, most), communicator_table(job, most), bus_table(job, most), peer_table(job, most), copy_table(job, most)]
    return [table for table in found if table is not None]
