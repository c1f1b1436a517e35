# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Reads gpu_stacks.folded: kernel time by phase and Python stack, in the format of flame graph tools. Invalid lines are left out and
counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from libinject.result import BadFile, Result

FILE = "gpu_stacks.folded"
UNATTRIBUTED = "[unattributed]"
PHASES = ("forward", "backward", "recomputation", "optimizer", "other", UNATTRIBUTED)
_PHASE_NUMBERS = {name: number for number, name in enumerate(PHASES)}
_LONGEST = 1 << 20  # characters of a line
_LONGEST_NUMBER = 19  # digits of 63 bits


class Stack(NamedTuple):
    """`names`: the frames, outermost first, and then the kernel."""

    phase: int  # of PHASES
    names: list[str]
    time: int  # ns


def stack_of(line: str) -> Stack | None:
    """None if the line is not a stack."""
    text, _, digits = line.rpartition(" ")
    if not (0 < len(digits) <= _LONGEST_NUMBER and digits.isascii() and digits.isdigit()) or (time := int(digits)) >= 2**63:
        return None
    first, *names = text.split(";")
    phase = _PHASE_NUMBERS.get(first)
    return None if phase is None or not names or not all(names) else Stack(phase, names, time)


def read_stacks(result: Result) -> Iterator[Stack]:
    """Yields nothing if the run does not have the file. Adds a line to the result's `problems` if any line was left out."""
    count = wrong = first = 0
    for line in result.lines(FILE, _LONGEST):
        count += 1
        stack = stack_of(line) if line is not None else None
        if stack:
            yield stack
        else:
            wrong += 1
            first = first or count
    if wrong:
        result.add_problem(BadFile(result.path / FILE, f"not a phase, a stack and a time: {wrong:,} of {count:,} lines are left out", first))
