# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The command `inject`; a reader of the folders that libinject writes (result.py); and `window`, which marks a window in the program that is
profiled.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libinject.marks import window

__version__ = "0.1.0"
__all__ = ["__version__", "window"]

# On first use: a training program that marks a window imports nothing that it does not need.
_PLACES = {"window": "marks"}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'libinject' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"libinject.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
