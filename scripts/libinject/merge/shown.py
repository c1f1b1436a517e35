# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A job's report as lines and tables: what the terminal prints and the page shows."""

from __future__ import annotations

import dataclasses
from typing import Any

from libinject.console import duration
from libinject.merge.links import SLOW
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
        found.append(("utilization", (f"a kernel runs {percent(sum(share for share, _ in used) / len(used))}% of the time on average; from "
                      f"{percent(min(used)[0])}% (rank {min(used)[1]}) to {percent(max(used)[0])}% (rank {max(used)[1]})")))
    found.append(("verdicts", ", ".join(f"{printable(name, 40)} ({_count(count, 'rank')})" for name, count in job["verdicts"].items())))
    peaks = [(row["peak_memory_mb"], row["rank"]) for row in job["by_rank"] if row.get("peak_memory_mb") is not None]
    if peaks:
        found.append(("memory", (f"peak of what a rank allocated on GPUs: from {min(peaks)[0]:.1f}MB (rank {min(peaks)[1]}) to {max(peaks)[0]:.1f}MB "
                      f"(rank {max(peaks)[1]})")))
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
    return [("skew", (f"{duration(skew['mean_ns'])} on average ({percent(skew['mean_share'])}% of the step), median {duration(skew['median_ns'])}, at "
             f"most {duration(skew['max_ns'])} (iteration {skew['max_iteration']}); slowest less fastest of {compared['ranks']} ranks, "
             f"{_count(compared['iterations'], 'iteration')}, {compared['first']} to {compared['last']}"))]


def _stragglers(job: dict[str, Any]) -> list[tuple[str, str]]:
    hosts = {row["rank"]: row["host"] for row in job["by_rank"]}
    found = []
    for entry in job["stragglers"]:
        who = f"rank {entry['rank']} ({printable(hosts[entry['rank']], 40)})"
        if entry["by"] == "step time":
            text = (f"{who}, by step time: {duration(entry['excess_ns'])} ± {duration(entry['excess_error_ns'])} longer than the others' median "
                    f"({percent(entry['share'])}% of the step), slowest in {entry['slowest']} of {entry['iterations']} iterations")
        else:
            text = (f"{who}, by collectives: the others wait for it, {duration(entry['waited_for_ns'])} in all ({percent(entry['share'])}% of the "
                    f"time; noise at most {duration(entry['noise_ns'])})")
        found.append(("" if found else "stragglers", text))
    if len(found) > 10:
        found[10:] = [("", f"… and {len(found) - 10} more")]
    known = job["skew"] or (job["collectives"] and job["collectives"]["split_share"] > 0)
    return found or [("stragglers", "none" if known else "not known: neither iterations nor collectives to compare")]


def _collectives(job: dict[str, Any]) -> list[tuple[str, str]]:
    spent = job["collectives"]
    if not spent:
        return []
    share = f", {percent(spent['share'])}% of the time" if spent["share"] is not None else ""
    found = [("collectives", f"{duration(spent['collective_ns'])} of kernels on all ranks{share}")]
    if spent["split_share"] > 0:
        split = spent["split_share"] * spent["collective_ns"]
        found.append(("", (f"waiting for the last rank: at least {duration(spent['waiting_at_least_ns'])} "
                      f"({percent(spent['waiting_at_least_ns'] / split)}%), at most {duration(spent['waiting_at_most_ns'])} "
                      f"({percent(spent['waiting_at_most_ns'] / split)}%) of the {duration(split)} that can be told apart; the rest is transfer")))
    return found


def rank_table(job: dict[str, Any], most: int | None = None) -> Shown:
    """At most `most` ranks: stragglers, those that lack something, and then those that are slowest."""
    slow = {entry["rank"] for entry in job["stragglers"]}
    ranks = job["by_rank"]
    if most is not None and len(ranks) > most:
        def order(row: dict[str, Any]) -> tuple:
            step = row.get("step") or {}
            return (row["rank"] not in slow, not row["lost"] and row["state"] == "closed", -step.get("excess_ns", step.get("mean_ns", 0)), row["rank"])
        ranks = sorted(sorted(ranks, key=order)[:most], key=lambda row: row["rank"])
    rows = []
    for row in ranks:
        step, spent = row.get("step") or {}, row.get("collectives") or {}
        least, utmost = percent(spent.get("waiting_at_least_share")), percent(spent.get("waiting_at_most_share"))
        rows.append([
            str(row["rank"]), printable(row["host"] or "", 24), str(step.get("iterations", 0)), _time(step.get("mean_ns")), _time(step.get("stddev_ns")),
            _time(step.get("p95_ns")), _time(step.get("excess_ns")), str(step.get("slowest", "")), percent(row.get("utilization")),
            percent(spent.get("share")), f"{least}-{utmost}" if least else "", _figure(row.get("peak_memory_mb")), str(sum(row["lost"].values()) or ""),
            printable(row["verdict"] or "", 30) + ("" if row["state"] == "closed" else f" ({printable(row['state'], 12)})")])
    note = f"{len(rows)} of {len(job['by_rank'])} ranks: stragglers, ranks that lack something, the slowest" if len(rows) < len(job["by_rank"]) else ""
    return Shown("Ranks", ["Rank", "Host", "Steps", "Mean", "StdDev", "P95", "Excess", "Slowest", "Util (%)", "Coll (%)", "Wait (%)", "Peak (MB)", "Lost",
                           "Verdict"], rows, note, frozenset(("Host", "Verdict")))


def operation_table(job: dict[str, Any], most: int) -> Shown | None:
    operations = (job["collectives"] or {}).get("operations", [])
    rows = []
    for row in operations[:most]:
        name = " ".join(filter(None, (row["operation"], row["type"], row["reduction"])))
        rows.append([printable(name, 50), _bytes(row["bytes"]), str(row["ranks"] or ""), str(row["made_by"]), str(row["kernels"]), _time(row["time_ns"]),
                     _time(row["waiting_at_least_ns"]), _time(row["waiting_at_most_ns"])])
    return Shown("Collectives of all ranks: time, and what of it is waiting", ["Operation", "Bytes", "Ranks", "Made by", "Kernels", "Time", "Wait at least", "Wait at most"],
                 rows, "", frozenset(("Operation",))) if rows else None


def bus_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[printable(" ".join(filter(None, (row["operation"], row["type"], row["reduction"]))), 50), _bytes(row["bytes"]), str(row["ranks"] or ""),
             _figure(row["best_gbps"]), str(row["best_rank"]), _figure(row["median_gbps"]), _figure(row["worst_gbps"]), str(row["worst_rank"])]
            for row in job["links"]["bus"][:most]]
    return Shown("Bus bandwidths (GB/s), slowest operations first", ["Operation", "Bytes", "Ranks", "Best", "of rank", "Median", "Worst", "of rank "], rows,
                 "the best is nearest to what the links carry: the others waited as well", frozenset(("Operation",))) if rows else None


def peer_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[str(row["rank"]), printable(row["operation"], 20), printable(str(row["peer"]), 12), str(row["ranks"] or ""), _figure(row["best_gbps"])]
            for row in job["links"]["peers"][:most]]
    return Shown("Sends and receives, slowest first", ["Rank", "Operation", "Peer", "Ranks", "Best (GB/s)"], rows,
                 "the peer is a rank of the communicator, of as many ranks", frozenset(("Operation",))) if rows else None


def copy_table(job: dict[str, Any], most: int) -> Shown | None:
    rows = [[str(row["rank"]), printable(row["host"] or "", 24), printable(row["device"], 12), printable(row["direction"], 24),
             printable(f"{row['source']} to {row['target']}", 40), str(row["copies"]), _figure(row["total_mb"]), _figure(row["gbps"]),
             _figure(row["link_percent"]), _figure(row["median_gbps"]), "slow" if row["slow"] else ""] for row in job["links"]["copies"][:most]
            if row["slow"] or row["link_percent"] is None or row["link_percent"] < 100 * SLOW]
    return Shown("Large copies below 80% of their link or of the other ranks' rate, worst first", ["Rank", "Host", "Device", "Direction", "Memory", "Copies", "Size (MB)", "GB/s", "Link (%)", "Median GB/s", ""],
                 rows, "slow: less than 80% of the median of the ranks' copies of this kind" if any(row[-1] for row in rows) else "",
                 frozenset(("Host", "Direction", "Memory", ""))) if rows else None


def scaling_table(report: dict[str, Any]) -> Shown | None:
    scaling = report["scaling"]
    if not scaling:
        return None
    by_samples = scaling["by"] == "samples_per_s"
    rows = [[row["job"], str(row["ranks"]), _figure(row["steps_per_s"], 3), _figure(row["samples_per_s"]), _figure(row["speedup"], 2),
             percent(row["efficiency"])] for row in scaling["jobs"]]
    what = "samples/s" if by_samples else "steps/s (without INJECT_BATCH: right only if a rank's share of a step is the same in all jobs)"
    return Shown(f"Scaling: {what}, against the smallest job, {printable(scaling['base'])}", ["Job", "Ranks", "Steps/s", "Samples/s", "Speed-up", "Efficiency (%)"],
                 rows, "", frozenset(("Job",)))


def tables(job: dict[str, Any], ranks: int | None, most: int) -> list[Shown]:
    found = [rank_table(job, ranks), operation_table(job, most), bus_table(job, most), peer_table(job, most), copy_table(job, most)]
    return [table for table in found if table is not None]
