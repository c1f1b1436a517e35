# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A run in a notebook's cell, as a small table. It has no scripts, and none of the program's text is markup."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from libinject import figures
from libinject.console import duration
from libinject.page.parts import numbers
from libinject.page.values import clean, share, text_of
from libinject.report import losses, overview
from libinject.result import Result, Row

_HERE = pathlib.Path(__file__).resolve().parent
_MOST = 5
_LONGEST = 90  # characters of a kernel's name
_MOST_RUNS = 100


def _template(file: str, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                                     loader=jinja2.FileSystemLoader(_HERE, encoding="utf-8"))
    return environment.get_template(file).render(**values)


def _line(row: Row) -> str:
    file = str(row["File"] or "")
    return f"{file.rpartition('/')[2]}:{text_of(row['Line'])} {row['Function']}" if file else str(row["Function"])


def _top(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    """What takes the most kernel time: for each kind, its title and (name, values)."""
    kernels = result.rows("cuda_gpu_kern_sum", "Total Time (ns)", "Name")
    modules = result.rows("module_sum", "Module", "Self Time (ns)")
    lines = result.rows("line_sum", "File", "Line", "Function", "In Library", "User Code Time (ns)")
    total = sum(numbers(kernels, "Total Time (ns)"))

    def told(rows: list[Row], time: str, name: Callable[[Row], str]) -> list[tuple[str, str]]:
        """The largest ones."""
        timed = [(times[0], row) for row in rows if (times := numbers([row], time)) and times[0] > 0]
        timed = sorted(timed, key=lambda each: -each[0])[:_MOST]
        return [(clean(name(row), _LONGEST), duration(ns) + (f", {share(ns, total)}%" if total > 0 else "")) for ns, row in timed]

    shown = [("Top kernels", told(kernels, "Total Time (ns)", lambda row: str(row["Name"]))),
             ("Top modules", told(modules, "Self Time (ns)", lambda row: str(row["Module"]))),
             ("Top lines", told([row for row in lines if row["In Library"] == 0], "User Code Time (ns)", _line))]
    return [(title, rows) for title, rows in shown if rows]


def _place(rank: int | None, host: str) -> str:
    return ", ".join(([f"rank {rank}"] if rank is not None else []) + ([host] if host else []))


def of_run(result: Result, rank: int | None, host: str, problems: Sequence[str]) -> str:
    found = overview.verdicts(result)
    tiles = overview.tiles(result, found)
    lost = losses.losses(result)["counts"]
    top = _top(result)
    bad = [clean(problem) for problem in dict.fromkeys([*problems, *result.problems])]
    return _template("run.html", name=clean(result.name), place=_place(rank, host), complete=result.complete, verdicts=found[:_MOST],
                     more=max(0, len(found) - _MOST), tiles=tiles, top=top, problems=bad[:_MOST], further=max(0, len(bad) - _MOST),
                     lost=[f"{count['count']:,} {count['meaning']}" for count in lost][:_MOST])


def of_runs(runs: Sequence[tuple[str, Result, int | None, str]], problems: Sequence[str]) -> str:
    rows = []
    for name, result, rank, host in runs[:_MOST_RUNS]:
        steps, utilization = overview.step_times(result), figures.utilization(result)
        rows.append({"name": name, "rank": "" if rank is None else rank, "host": host, "steps": duration(steps["median"]) if steps else "",
                     "verdict": ", ".join(dict.fromkeys(verdict["verdict"] for verdict in overview.verdicts(result))),
                     "utilization": "" if utilization is None else f"{utilization:.1f}%",
                     "note": "" if result.complete and not result.problems else "incomplete" if not result.complete else "damaged"})
    return _template("runs.html", rows=rows, count=len(runs), problems=[clean(problem) for problem in problems[:_MOST]],
                     further=max(0, len(problems) - _MOST))
