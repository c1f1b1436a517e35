# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The figures of a sweep as a page that opens offline."""

from __future__ import annotations

import html
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from libinject.compare import describe
from libinject.result import printable
from libinject.sweep.measured import Measured
from libinject.sweep.points import Status, Sweep

_MOST_FAMILIES = 9
_LINES = (("Step time", "ms", "step_time_ns", 1e-6), ("Samples per second", "1/s", "samples_per_s", 1.0),
          ("GPU utilization", "%", "gpu_utilization_pct", 1.0), ("Occupancy (theoretical, mean over kernel time)", "%", "occupancy_pct", 1.0),
          ("Occupancy (achieved)", "%", "achieved_occupancy_pct", 1.0), ("GEMM rate", "TFLOP/s", "gemm_tflops", 1.0),
          ("Peak of allocated memory", "GB", "peak_memory_mb", 1e-3))
_COLORS = ("#3b6fb6", "#d1702a", "#3d8f5f", "#8b5fb0", "#b5473c", "#7f6a4f", "#c45c9a", "#6f7680", "#a39a2b", "#2aa0b0")


def page(sweep: Sweep, measured: Sequence[Measured]) -> str:
    import jinja2

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    charts: list[dict[str, str]] = []
    for title, figure in _figures(sweep, measured):
        charts.append({"title": title, "chart": figure.to_html(full_html=False, include_plotlyjs=not charts,
                                                               config={"displaylogo": False, "responsive": True})})
    return environment.get_template("page.html.j2").render(
        command=printable(shlex.join(sweep.command), 2000), charts=charts, variables=[printable(name, 40) for name in sweep.variables],
        rows=[table_row(sweep, item) for item in measured],
        problems=[problem for item in measured for problem in item.problems])


def table_row(sweep: Sweep, item: Measured) -> dict[str, Any]:
    figures = item.figures
    return {"values": [printable(item.point.values[name], 60) for name in sweep.variables], "status": item.point.status.value,
            "why": printable(item.point.why, 200), "good": item.point.status is Status.DONE, "verdict": item.verdict,
            "cells": [(figures.get(name), describe.figure(figures.get(name), unit)) for name, unit in (
                ("step_time_ns", "ns"), ("samples_per_s", ""), ("gpu_utilization_pct", "%"), ("occupancy_pct", "%"), ("gemm_tflops", ""),
                ("peak_memory_mb", "MB"))]}


def _figures(sweep: Sweep, measured: Sequence[Measured]):
    lines = _lines(sweep, measured)
    for title, unit, name, factor in _LINES:
        if any(item.figures.get(name) is not None for item in measured):
            yield title, _line_chart(sweep, lines, title, unit, name, factor)
    if any(item.families for item in measured):
        for others, items in lines.items():
            if any(item.families for item in items):
                yield "Share of kernel time by family" + (f": {others}" if others else ""), _stacked(sweep, items, measured)


def _lines(sweep: Sweep, measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The first variable is the x axis; each combination of the others is a line, or a chart."""
    first, *others = sweep.variables
    order = {value: place for place, value in enumerate(sweep.variables[first])}
    found: dict[str, list[Measured]] = {}
    for item in measured:
        found.setdefault(" ".join(f"{printable(name, 40)}={printable(item.point.values[name], 40)}" for name in others), []).append(item)
    for items in found.values():
        items.sort(key=lambda item: order.get(item.point.values[first], len(order)))
    return found


def _numbers(sweep: Sweep) -> dict[str, float] | None:
    """The first variable's values, where all are numbers above 0 that span more than an axis shows evenly."""
    name = next(iter(sweep.variables))
    try:
        numbers = {value: float(value) for value in sweep.variables[name]}
    except ValueError:
        return None
    return numbers if numbers and min(numbers.values()) > 0 and max(numbers.values()) < 1e18 else None


def _layout(sweep: Sweep, figure: Any, unit: str) -> None:
    name = next(iter(sweep.variables))
    numbers = _numbers(sweep)
    figure.update_layout(height=380, margin={"l": 60, "r": 20, "t": 20, "b": 50}, template="plotly_white", font_color="#888",
                         paper_bgcolor="rgba(0,0,0,0)", modebar_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", legend={"orientation": "h", "y": 1.12},
                         xaxis_title=html.escape(printable(name, 40)), yaxis_title=unit)
    if numbers:
        log = max(numbers.values()) / min(numbers.values()) >= 8
        figure.update_xaxes(type="log" if log else "linear", tickmode="array", tickvals=list(numbers.values()), ticktext=list(numbers))
    else:
        figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")


def _x(sweep: Sweep, item: Measured) -> float | str:
    name = next(iter(sweep.variables))
    numbers = _numbers(sweep)
    value = item.point.values[name]
    return numbers[value] if numbers and value in numbers else html.escape(printable(value, 40))


def _value(item: Measured, name: str, factor: float) -> float | None:
    value = item.figures.get(name) if item.point.status is Status.DONE else None
    return None if value is None else value * factor


def _line_chart(sweep: Sweep, lines: dict[str, list[Measured]], title: str, unit: str, name: str, factor: float):
    import plotly.graph_objects as graph

    figure = graph.Figure()
    for place, (others, items) in enumerate(lines.items()):
        # A point without a figure interrupts the line.
        shown = items
        values = [_value(item, name, factor) for item in shown]
        error = None
        if name == "step_time_ns":
            parts = [(item.figures.get("step_time_q1_ns"), item.figures.get("step_time_q3_ns")) for item in shown]
            error = {"type": "data", "symmetric": False, "thickness": 1,
                     "array": [max(0.0, q3 * factor - value) if q3 is not None and value is not None else 0.0
                               for value, (_, q3) in zip(values, parts, strict=True)],
                     "arrayminus": [max(0.0, value - q1 * factor) if q1 is not None and value is not None else 0.0
                                    for value, (q1, _) in zip(values, parts, strict=True)]}
        color = _COLORS[place % len(_COLORS)]
        figure.add_trace(graph.Scatter(x=[_x(sweep, item) for item in shown], y=values, mode="lines+markers", error_y=error, connectgaps=False,
                                       name=html.escape(others) or title, line_color=color, showlegend=bool(others)))
        lacking = [item for item in items if item.point.status not in (Status.DONE, Status.WAITING)]
        if lacking:
            figure.add_trace(graph.Scatter(x=[_x(sweep, item) for item in lacking], y=[0.0] * len(lacking), mode="markers+text",
                                           text=[item.point.status.value for item in lacking], textposition="top center",
                                           hovertext=[html.escape(printable(item.point.why, 200)) for item in lacking],
                                           marker={"symbol": "x", "size": 9, "color": color}, cliponaxis=False, showlegend=False))
    _layout(sweep, figure, unit)
    return figure


def _stacked(sweep: Sweep, items: list[Measured], measured: Sequence[Measured]):
    import plotly.graph_objects as graph

    # The same families in the same colours in all charts.
    total: dict[str, float] = {}
    for item in measured:
        for name, share in item.families.items():
            total[name] = total.get(name, 0.0) + share
    ordered = sorted(total, key=lambda name: (-total[name], name))
    largest, rest = ordered[:_MOST_FAMILIES], ordered[_MOST_FAMILIES:]
    shown = [item for item in items if item.families]
    first = next(iter(sweep.variables))
    x = [html.escape(printable(item.point.values[first], 40)) for item in shown]
    figure = graph.Figure()
    for place, name in enumerate(largest):
        figure.add_trace(graph.Bar(x=x, y=[item.families.get(name, 0.0) for item in shown], name=html.escape(name), marker_color=_COLORS[place]))
    if rest:
        figure.add_trace(graph.Bar(x=x, y=[sum(item.families.get(name, 0.0) for name in rest) for item in shown],
                                   name=f"{len(rest)} other families", marker_color=_COLORS[-1]))
    _layout(sweep, figure, "% of kernel time")
    figure.update_layout(barmode="stack", legend={"orientation": "v", "y": 1})
    figure.update_xaxes(type="category", tickmode="auto", tickvals=None, ticktext=None)
    figure.update_yaxes(range=[0, 100])
    return figure
