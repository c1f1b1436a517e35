# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The report as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libinject.merge import shown
from libinject.page.parts import Article, Plot, Section, Table
from libinject.page.render import articles_page
from libinject.report.icicles import Box, icicle, module_boxes
from libinject.result import Row, printable
from libinject.stacks import FILE, PHASES

_MOST_ROWS = 50  # of all tables except that of the ranks
_MOST_ERRORS = 64  # number of ranks up to which deviations can be told apart
_SHARES = (("share", "collectives"), ("waiting_at_least_share", "waiting in them, at least"), ("waiting_at_most_share", "waiting in them, at most"))


def page(report: dict[str, Any], heat_maps: Sequence[dict[str, Any]], stacks: Sequence[Box]) -> str:
    articles = [_article(job, *more) for job, *more in zip(report["jobs"], heat_maps, stacks)]
    scaling = shown.scaling_table(report)
    if scaling is not None:
        articles.insert(0, _scaling(scaling, report["scaling"]))
    title = shown.title(report["jobs"][0]) if len(report["jobs"]) == 1 else f"{len(report['jobs'])} jobs"
    return articles_page(title, "merge", articles, report["problems"], "docs/merge.md explains each figure.")


def _article(job: dict[str, Any], heat_map: dict[str, Any], stacks: Box) -> Article:
    facts = [(what[:1].upper() + what[1:], text) for what, text in shown.lines(job)]
    tables = {table.id: table for table in shown.tables(job, None, _MOST_ROWS)}
    sections = [Section("ranks", "Ranks", "Who is slow, and who waits.").add(_heat(heat_map), _step_plot(job), _share_plot(job), tables.get("ranks")),
                Section("memory", "Memory", "What PyTorch's memory is for, on the rank that has least of it and on the one that has most.").add(tables.get("memory")),
                Section("collectives", "Collectives", "What the ranks exchange, and how long they wait for each other while doing so.").add(
                    *(tables.get(name) for name in ("operations", "communicators"))),
                Section("links", "Links", "The slowest links between and into the GPUs.").add(*(tables.get(name) for name in ("bus", "peers", "copies"))),
                Section("code", "Modules, lines and operators", "What in the program launches the kernels, and what the GPUs waited for: all ranks together.").add(
                    icicle(module_boxes(_modules(job)), "module-icicle", "Kernel time by module", "module_sum.csv"),
                    icicle(stacks, "stack-icicle", "Kernel time by Python stack", FILE),
                    *(tables.get(name) for name in ("modules", "lines", "operators", "gap_lines")))]
    headline, mood = _headline(job)
    return Article(shown.title(job), facts, [section for section in sections if not section.empty], headline, mood, job["problems"])


def _modules(job: dict[str, Any]) -> list[Row]:
    """Modules as in a single run's table."""
    times = ("Total Time (ns)", *(f"{phase.capitalize()} (ns)" for phase in PHASES[:-1]))
    return [{"Module": row["module"], "Class": row["class"], "Parent": row["parent"], **{time: row[time.lower().replace(" (ns)", "_ns").replace(" ", "_")] for time in times}}
            for row in (job["code"] or {}).get("modules", {}).get("rows", [])]


def _headline(job: dict[str, Any]) -> tuple[str, str]:
    slow = [str(entry["rank"]) for entry in job["stragglers"]]
    if slow:
        return f"{'Straggler' if len(slow) == 1 else 'Stragglers'}: rank {', '.join(slow[:8])}{' …' if len(slow) > 8 else ''}", "bad"
    return ("No straggler", "good") if shown.stragglers_known(job) else ("", "")


def _heat(heat_map: dict[str, Any]) -> Plot | None:
    if not heat_map["iterations"]:
        return None
    ordered = sorted(cell for row in heat_map["ns"] for cell in row if cell is not None)
    title, blank = "Step time in windows by rank and iteration", heat_map["blank"]
    if heat_map["shown"] < heat_map["of"]:
        title += f", the latest {heat_map['shown']} of {heat_map['of']}"
    # One very slow step, such as the first, would make all others look the same.
    most = min(ordered[-1], 2 * ordered[len(ordered) // 2])
    return Plot("heat", title, "heat", {"title": "iteration"}, [{"x": heat_map["iterations"], "y": heat_map["ranks"], "z": heat_map["ns"], "most": most}],
                {"title": "rank"}, unit="ns", note=f"{blank} {'is' if blank == 1 else 'are'} blank: iterations that a rank has no step time of" if blank else "")


def _labels(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"rank {row['rank']} ({printable(row['host'], 40)})" for row in rows]


def _step_plot(job: dict[str, Any]) -> Plot | None:
    rows = [row for row in job["by_rank"] if row.get("step")]
    if not rows:
        return None
    series: dict[str, Any] = {"name": "step time in windows", "x": [row["rank"] for row in rows], "y": [row["step"]["median_ns"] for row in rows],
                              "labels": _labels(rows)}
    if len(rows) <= _MOST_ERRORS:
        series["errors"] = [[row["step"]["stddev_ns"] or 0 for row in rows]] * 2
    return Plot("steps", "Step time in windows by rank", "points", {"title": "rank"}, [series], {"title": "step time in windows", "unit": "ns"},
                note=f"medians of the iterations{'; the bars are their standard deviation' if 'errors' in series else ''}; the axis does not begin at 0")


def _share_plot(job: dict[str, Any]) -> Plot | None:
    rows = [row for row in job["by_rank"] if row.get("utilization") is not None]
    if not rows:
        return None
    values = {"a kernel runs": [row["utilization"] for row in rows]}
    values |= {name: [(row.get("collectives") or {}).get(key) for row in rows] for key, name in _SHARES}
    series = [{"name": name, "x": [row["rank"] for row in rows], "y": [None if share is None else round(100 * share, 3) for share in shares],
               "labels": _labels(rows)} for name, shares in values.items() if any(share is not None for share in shares)]
    return Plot("shares", "Shares of the time by rank", "points", {"title": "rank"}, series, {"title": "% of the time", "unit": "", "zero": True})


def _scaling(table: Table, scaling: dict[str, Any]) -> Article:
    rows = sorted(scaling["jobs"], key=lambda row: row["ranks"])
    ranks = [row["ranks"] for row in rows]
    base = min(ranks)
    plot = Plot("speedup", "Speed-up over the number of ranks", "points", {"title": "ranks", "ticks": [str(count) for count in ranks], "places": ranks, "log": True}, [
        {"name": "speed-up", "x": ranks, "y": [row["speedup"] for row in rows], "lines": True, "labels": [printable(row["job"], 60) for row in rows]},
        {"name": "ideal", "x": ranks, "y": [count / base for count in ranks], "lines": True, "plain": True, "dash": True}],
        {"title": "speed-up", "unit": "", "log": True})
    return Article("Scaling", [], [Section("scaling", "Speed-up and efficiency", "").add(plot if len(set(ranks)) > 1 else None, table)])
