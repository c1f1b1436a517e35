# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What was found, and what to do about it."""

from __future__ import annotations

import dataclasses

GOOD, NOTE, WARNING, BAD = "good", "note", "warning", "bad"


@dataclasses.dataclass(frozen=True)
class Finding:
    """`state`: GOOD; NOTE: something is less than it could be; WARNING: a part of libinject will not work; BAD: nothing will."""

    state: str
    subject: str
    text: str
    remedy: str = ""
