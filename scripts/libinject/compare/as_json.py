# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A comparison as JSON: docs/compare.md has the members."""

from __future__ import annotations

from collections.abc import Sequence

from libinject import figures
from libinject.compare import describe
from libinject.compare.changes import Comparison
from libinject.compare.conditions import Outcome
from libinject.compare.measures import KINDS, Run


def _run(run: Run) -> dict:
    return {"folder": str(run.result.path), "iterations": run.iterations, "unprofiled_iterations": figures.unprofiled_count(run.result),
            "divisor": run.divisor, "window_s": run.seconds, "problems": run.result.problems}


def comparison_as_dict(comparison: Comparison, outcomes: Sequence[Outcome]) -> dict:
    return {"before": [_run(run) for run in comparison.before], "after": [_run(run) for run in comparison.after],
            "unprofiled": comparison.unprofiled, "differences": describe.differences(comparison.before, comparison.after),
            "caveats": describe.caveats([*comparison.before, *comparison.after]),
            "metrics": [{"unit": metric.unit, **change.as_dict()} for metric, change in comparison.metrics],
            "tables": {kind.name: {"unit": kind.unit, "rows": [change.as_dict() for change in comparison.tables[kind.name]]}
                       for kind in KINDS if comparison.tables[kind.name]},
            "conditions": [outcome.as_dict() for outcome in outcomes], "conclusion": describe.conclusion(comparison, outcomes)}
