# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The model as a page."""

from __future__ import annotations

import pathlib
from typing import Any

from libinject.page import render as page
from libinject.report import rules


def render(model: dict[str, Any]) -> str:
    return page.render(pathlib.Path(__file__).resolve().parent / "report.html", [run["sections"] for run in model["runs"]], model=model,
                       rules=rules.RULES, general_rule=rules.GENERAL, rule_of=rules.anchor)
