# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Checks a folder against all rules."""

from __future__ import annotations

import pathlib

# Importing a module adds its rules to the list.
from libinject.check import formats, kernels, losses, rows, schema, shapes, sums, times  # noqa: F401
from libinject.check.folder import Folder, Place
from libinject.check.rules import RULES, Finding, Rule


def findings(path: pathlib.Path | str) -> list[Finding]:
    """Findings in the order of the rules. Raises BadFile if this is not a folder of libinject's."""
    folder = Folder(path)
    return [Finding(rule.name, rule.severity, place) for rule in RULES.values() for place in _places(rule, folder)]


def _places(rule: Rule, folder: Folder) -> list[Place]:
    folder.asked.clear()
    places = list(rule.look(folder))
    return [] if rule.compares and folder.asked & folder.stale else places
