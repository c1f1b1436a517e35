# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A comparison as a page of its own that opens offline."""

from __future__ import annotations

import html
import pathlib
from collections.abc import Sequence

from libinject.compare import describe
from libinject.compare.changes import Change, Comparison
from libinject.compare.measures import KINDS

_BARS = 20
_MOST_ROWS = 2000  # of a table, those with the largest changes


def page(comparisons: Sequence[Comparison]) -> str:
    import jinja2

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # plotly's script comes with the first chart.
    shown = []
    has_script = False
    for comparison in comparisons:
        view = _view(comparison, not has_script)
        has_script = has_script or bool(view["chart"])
        shown.append(view)
    return environment.get_template("page.html.j2").render(comparisons=shown)


def _view(comparison: Comparison, with_script: bool) -> dict:
    tables = []
    for kind in KINDS:
        changes = comparison.tables[kind.name]
        if changes:
            tables.append({"title": kind.title, "changed": sum(change.real for change in changes), "rows_in_all": len(changes),
                           "per": comparison.basis.per if kind.unit == "ns" else "",
                           "rows": [_row(change, change.name, kind.unit, -1) for change in changes[:_MOST_ROWS]]})
    return {"before": [describe.run_line(run) for run in comparison.before], "after": [describe.run_line(run) for run in comparison.after],
            "differences": describe.differences(comparison.before[0].result, comparison.after[0].result),
            "caveats": describe.caveats([*comparison.before, *comparison.after]), "normalised": describe.how_normalised(comparison),
            "metrics": [_row(change, metric.title, metric.unit, metric.better) for metric, change in comparison.metrics],
            "tables": tables, "chart": _chart(comparison, with_script)}


def _row(change: Change, name: str, unit: str, better: int) -> dict:
    mood = "" if not change.real or not better else "better" if (change.difference > 0) == (better > 0) else "worse"
    return {"name": describe.printable(name, 1 << 11), "before": describe.figure(change.before, unit), "after": describe.figure(change.after, unit),
            "before_value": change.before, "after_value": change.after, "difference": describe.difference(change, unit),
            "difference_value": change.difference, "relative": describe.percent(change.relative), "relative_value": change.relative,
            "interval": describe.interval(change), "counts": describe.counts(change), "verdict": describe.VERDICTS[change.verdict],
            "mood": mood}


def _chart(comparison: Comparison, with_script: bool) -> str:
    """The kernels whose time changed most, longest bar on top."""
    changes = [change for change in comparison.tables["kernels"] if change.real][:_BARS]
    if not changes:
        return ""
    import plotly.graph_objects

    changes.reverse()
    # Labels are taken for HTML by plotly.
    figure = plotly.graph_objects.Figure(plotly.graph_objects.Bar(
        orientation="h", x=[change.difference / 1e3 for change in changes], y=list(range(len(changes))),
        marker_color=["#c0392b" if change.difference > 0 else "#27855a" for change in changes],
        hovertext=[html.escape(describe.shorten(change.name, 300)) for change in changes], hoverinfo="x+text"))
    figure.update_layout(height=120 + 24 * len(changes), margin={"l": 10, "r": 10, "t": 40, "b": 40}, template="plotly_white",
                         paper_bgcolor="rgba(0,0,0,0)", modebar_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font_color="#888",
                         xaxis_title=f"change of time (us) {comparison.basis.per}",
                         yaxis={"tickvals": list(range(len(changes))), "automargin": True,
                                "ticktext": [html.escape(describe.shorten(change.name, 48)) for change in changes]})
    return figure.to_html(full_html=False, include_plotlyjs=with_script, config={"displaylogo": False, "responsive": True})
