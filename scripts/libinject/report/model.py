# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The model of a page: what it shows of each folder, as plain data. `absent` names what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libinject
from libinject import figures
from libinject.page.parts import Section, as_data, made_table
from libinject.page.values import clean, object_of, text_of
from libinject.report import code_places, energy, idle, kernels, library, losses, metrics, one_step, overview, phases, steps, transfers
from libinject.result import Result

_SECTIONS = (steps.section, idle.section, kernels.top, code_places.section, kernels.detail, kernels.measured, library.roofline, library.gemm, transfers.copies,
             transfers.memory, energy.section, metrics.section, phases.phases, transfers.collectives, phases.processors, phases.host)

_SETTINGS = {"Kind": "option: a variable, with its default where it is not set (docs/variables.md); version: what the program runs with; own cost: what libinject took.",
             "Setting": "The name in run.json's options, versions or overhead.", "Value": "As run.json has it."}


def _settings(result: Result) -> Section:
    part = Section("settings", "Settings and versions", "The options that libinject was given, and what it found.")
    rows: list[list[Any]] = []
    for kind, key in (("option", "options"), ("version", "versions")):
        rows += [[kind, clean(str(name)), text_of(value)] for name, value in object_of(result.run.get(key)).items()]
    own = [["own cost", clean(str(name)), text_of(value)] for name, value in object_of(result.run.get("overhead")).items()]
    return part.add(made_table("settings", "Settings, versions, and libinject's own cost", "run.json", list(_SETTINGS), rows + own, meanings=_SETTINGS)
                    if rows + own else None)


def run_model(result: Result) -> dict[str, Any]:
    sections = [make(result) for make in _SECTIONS] + [_settings(result)]
    step, durations = one_step.sections(result)
    for part, after in ((step, "steps"), (durations, "kernels")):
        sections.insert(1 + [section.id for section in sections].index(after), part)
    found = overview.verdicts(result)
    model = {"name": clean(result.name), "facts": overview.facts(result), "complete": result.complete, "verdicts": found,
             "tiles": overview.tiles(result, found), "steps": overview.step_times(result), "utilization": figures.utilization(result),
             "sections": [as_data(section) for section in sections if not section.empty],
             "absent": [section.title for section in sections if section.empty], "lost": losses.losses(result), "has_lines": any(result.table(name) is not None for name in ("gap_line_sum", "line_sum"))}
    # At the end, when every table has been read.
    model["problems"] = [clean(problem) for problem in result.problems]
    return model


def page_model(results: Sequence[Result], problems: Sequence[str]) -> dict[str, Any]:
    """`problems`: a line for each folder that can't be shown."""
    runs = [run_model(result) for result in results]
    if len({run["name"] for run in runs}) < len(runs):  # folders named out/, of several jobs
        for run, result in zip(runs, results):
            run["name"] = clean(str(result.path))
    return {"libinject": libinject.__version__, "problems": [clean(problem) for problem in problems], "runs": runs}
