# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The report's plots, one by one, in a notebook's cell."""

from __future__ import annotations

import html
import importlib
import pathlib
from typing import Any, NamedTuple

from libinject.notebook.tables import NotInRun
from libinject.page import render
from libinject.page.parts import Plot, as_data
from libinject.page.values import clean
from libinject.result import Result

_TEMPLATE = pathlib.Path(__file__).resolve().parent / "plot.html"


class Source(NamedTuple):
    """Where a plot comes from: the function of libinject.report that makes its section, and the prefix of its id."""

    module: str
    section: str
    id: str
    about: str
    needs: str


SOURCES = {
    "steps": Source("steps", "section", "steps", "How long each iteration in windows took.", "no iterations were found in windows"),
    "over_time": Source("steps", "section", "over-time", "Steps, memory, power and clocks over one axis of time.", "neither memory nor power is known"),
    "iterations": Source("steps", "section", "iterations-", "Where each iteration's time went on the device.", "no times of complete iterations on a device are known"),
    "windows": Source("steps", "section", "windows", "Where each window's time went on the device.", "fewer than two windows ran anything"),
    "idle": Source("idle", "section", "idle", "Why neither kernels nor copies ran.", "no idle time is known"),
    "idle_lines": Source("idle", "section", "idle-lines", "Lines that the GPU waited for.", "no lines are known, see docs/code.md"),
    "kernels": Source("kernels", "top", "kernels", "The kernels that take the most time.", "no kernels ran"),
    "kernel_share": Source("kernels", "top", "kernels-share", "How few kernels take how much of the time.", "fewer than 20 kernels ran"),
    "families": Source("kernels", "top", "families", "Kernel time by family of kernels.", "no kernels ran"),
    "lost_time": Source("kernels", "detail", "lost-time", "Time lost in grids that do not fill the GPU.", "none is known to be lost"),
    "unused_time": Source("kernels", "measured", "unused", "Time that long kernels leave unused.",
                          "kernels were not measured: INJECT_METRICS"),
    "modules": Source("code_places", "section", "code-modules", "Modules that launch the most.",
                      "no modules are known, see docs/code.md"),
    "lines": Source("code_places", "section", "code-lines", "Lines of the program that launch the most.",
                    "no lines are known, see docs/code.md"),
    "roofline": Source("library", "roofline", "roofline", "Library calls of known shape under the roofline.", "no such calls"),
    "gemms": Source("library", "gemm", "gemm", "The rate of matrix products over their size.", "no matrix products of known shape"),
    "copies": Source("transfers", "copies", "copies", "Throughput of copies against the link.", "no copies"),
    "metrics": Source("metrics", "section", "metrics-", "Hardware metrics over time.", "no samples: INJECT_METRICS_TIMELINE=1"),
    "phases": Source("phases", "phases", "phases", "Kernel time by phase of the training step.", "no phases are known"),
    "collectives": Source("transfers", "collectives", "collectives", "Bus bandwidth of collectives over their size.",
                          "no collectives of known size"),
}


class Figure:
    """Plots of a run, shown if they are the last value of a notebook's cell. `html` is a complete page of some 2 MB, since it includes the
    plotting library; `data` is the plotted data, in the tables' units (ns, MB)."""

    def __init__(self, title: str, plots: list[Plot]) -> None:
        self._title, self._plots = title, plots

    @property
    def data(self) -> list[dict[str, Any]]:
        return [as_data(plot) for plot in self._plots]

    @property
    def html(self) -> str:
        return render.render(_TEMPLATE, [[{"plots": self.data, "tables": []}]], title=self._title, plots=self._plots)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes a page that opens offline. Raises OSError."""
        from libinject import files

        files.write_named(pathlib.Path(path), self.html)

    def _repr_html_(self) -> str:
        """In a frame without the notebook's origin, so that nothing in the page can access the notebook, and neither affects the other's
        style or scripts."""
        height = sum(map(_height, self._plots)) + 16
        return (f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(self._title)}" srcdoc="{html.escape(self.html)}" '
                f'style="width: 100%; height: {height}px; border: 0"></iframe>')

    def __repr__(self) -> str:
        return f"<libinject plot: {self._title}>"


def _height(plot: Plot) -> int:
    """In pixels, with the title, approximately as in plots.js; taller plots scroll within the frame."""
    title, legend = 90 if plot.note else 66, 20 * (len(plot.series) // 4)
    if plot.kind != "bars":
        return title + 380 + legend + 130 * max(0, len(plot.panels) - 1)
    bars = len([series for series in plot.series if not series.get("mark")])
    groups = 1 if plot.stacked else bars
    return title + max(136, 86 + len(plot.series[0]["names"]) * max(26, 16 * groups + 10) + (30 + legend if len(plot.series) > 1 else 0))


def figure(result: Result, name: str) -> Figure:
    """Raises NotInRun if there is nothing to plot."""
    source = SOURCES[name]
    section = getattr(importlib.import_module(f"libinject.report.{source.module}"), source.section)(result)
    plots = [plot for plot in section.plots if (plot.id.startswith(source.id) if source.id.endswith("-") else plot.id == source.id)]
    if not plots:
        raise NotInRun(result.path, f"nothing to plot: {source.needs}")
    return Figure(f"{plots[0].title if len(plots) == 1 else section.title}, {clean(result.name, 120)}", plots)
