# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The report as one page that needs no network."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any

from libinject.merge import shown
from libinject.result import BadFile

_INK, _GRID = "#444", "#ddd"


def write(path: pathlib.Path, report: dict[str, Any], heat_maps: list[dict[str, Any]], version: str) -> None:
    """Raises BadFile. The page is there whole or not at all."""
    try:
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".inject-", suffix=".html")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(render(report, heat_maps, version))
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise
    except OSError as error:
        raise BadFile(path, (error.strerror or "can't be written").lower()) from None


def render(report: dict[str, Any], heat_maps: list[dict[str, Any]], version: str) -> str:
    import jinja2
    import markupsafe
    import plotly.offline

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jobs, figures = [], {}
    for number, (job, heat_map) in enumerate(zip(report["jobs"], heat_maps, strict=True)):
        plots = []
        for kind, figure in (("heat", _heat(heat_map)), ("steps", _step_bars(job)), ("shares", _share_bars(job))):
            if figure is not None:
                name = f"{kind}-{number}"
                figures[name] = figure
                plots.append({"id": name, "title": figure["title"], "alternative": figure["alternative"]})
        jobs.append({"title": shown.title(job), "lines": shown.lines(job), "tables": shown.tables(job, None, 50), "plots": plots,
                     "problems": job["problems"]})
    # Within <script> nothing but "<" can end it.
    data = json.dumps(figures, allow_nan=False).replace("<", "\\u003c")
    return environment.get_template("page.html.j2").render(
        jobs=jobs, scaling=shown.scaling_table(report), problems=report["problems"], version=version, data=markupsafe.Markup(data),
        plotly=markupsafe.Markup(plotly.offline.get_plotlyjs()))


def _layout(across: str, up: str, **more: Any) -> dict[str, Any]:
    axis = {"gridcolor": _GRID, "zeroline": False, "automargin": True}
    return {"margin": {"t": 32, "r": 10}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": _INK},
            "xaxis": {**axis, "title": {"text": across}}, "yaxis": {**axis, "title": {"text": up}}, **more}


def _heat(heat_map: dict[str, Any]) -> dict[str, Any] | None:
    if not heat_map["iterations"]:
        return None
    cells = [[None if ns is None else ns / 1e6 for ns in row] for row in heat_map["ns"]]
    # One very slow step, as a first one is, would make all others look the same.
    ordered = sorted(cell for row in cells for cell in row if cell is not None)
    title = "Step time by rank and iteration"
    if len(heat_map["iterations"]) < heat_map["of"]:
        title += f", the latest {len(heat_map['iterations'])} of {heat_map['of']}"
    trace = {"type": "heatmap", "x": heat_map["iterations"], "y": heat_map["ranks"], "z": cells, "colorscale": "Viridis",
             "zmin": ordered[0], "zmax": min(ordered[-1], 2 * ordered[len(ordered) // 2]), "colorbar": {"title": {"text": "ms"}},
             "hovertemplate": "rank %{y}, iteration %{x}: %{z:.3f} ms<extra></extra>"}
    return {"title": title, "alternative": "Heat map; the table of ranks has means and excesses.", "data": [trace],
            "layout": _layout("iteration", "rank", height=min(900, 160 + 18 * len(heat_map["ranks"])))}


def _step_bars(job: dict[str, Any]) -> dict[str, Any] | None:
    rows = [(row["rank"], row["step"]) for row in job["by_rank"] if row.get("step")]
    if not rows:
        return None
    trace = {"type": "bar", "x": [rank for rank, _ in rows], "y": [step["mean_ns"] / 1e6 for _, step in rows],
             "error_y": {"type": "data", "array": [(step["stddev_ns"] or 0) / 1e6 for _, step in rows], "visible": len(rows) <= 64},
             "hovertemplate": "rank %{x}: %{y:.3f} ms<extra></extra>"}
    return {"title": "Mean step time by rank" + (", with the iterations' standard deviation" if len(rows) <= 64 else ""),
            "alternative": "Bars; the figures are in the table of ranks.", "data": [trace], "layout": _layout("rank", "ms", height=320)}


def _share_bars(job: dict[str, Any]) -> dict[str, Any] | None:
    rows = [row for row in job["by_rank"] if row.get("utilization") is not None]
    if not rows:
        return None
    ranks = [row["rank"] for row in rows]
    series = [("a kernel runs", [row["utilization"] for row in rows])]
    spent = [row.get("collectives") or {} for row in rows]
    names = {"share": "collectives", "waiting_at_least_share": "waiting in them, at least", "waiting_at_most_share": "at most"}
    for key, name in names.items():
        if any(row.get(key) is not None for row in spent):
            series.append((name, [row.get(key) for row in spent]))
    data = [{"type": "bar", "name": name, "x": ranks, "y": [None if share is None else 100 * share for share in shares],
             "hovertemplate": "rank %{x}: %{y:.1f} %"} for name, shares in series]
    return {"title": "Shares of the time by rank", "alternative": "Bars; the figures are in the table of ranks.", "data": data,
            "layout": _layout("rank", "%", height=320, barmode="group", legend={"orientation": "h", "y": 1.15})}
