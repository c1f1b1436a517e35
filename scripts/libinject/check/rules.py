# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What a rule is, and the list of all rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from libinject.check.folder import Folder, Place

ERROR, WARNING = "error", "warning"


@dataclasses.dataclass(frozen=True)
class Finding:
    rule: str
    severity: str
    place: Place

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.row}: {self.place.column}: {self.rule}: {self.place.text}"


@dataclasses.dataclass(frozen=True)
class Rule:
    name: str
    severity: str
    says: str  # the condition that must hold, in one line
    look: Callable[[Folder], Iterator[Place]]
    compares: bool = False  # tables or run.json with each other; from different moments they may differ


RULES: dict[str, Rule] = {}


def rule(
    name: str, severity: str, says: str, compares: bool = False
) -> Callable[[Callable[[Folder], Iterator[Place]]], Callable[[Folder], Iterator[Place]]]:
    """Adds a function to the list; it yields the places where the condition `says` does not hold."""

    def enter(look: Callable[[Folder], Iterator[Place]]) -> Callable[[Folder], Iterator[Place]]:
        if name in RULES:
            raise ValueError(f"two rules '{name}'")
        RULES[name] = Rule(name, severity, says, look, compares)
        return look

    return enter
