# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The command `inject`; a reader of the folders that libinject writes (result.py); and, for notebooks and scripts (docs/notebook.md):

load      a run's tables as DataFrames, its verdict, its step time, its plots
window    marks a window in the program that is profiled
units     says there how many units of work follow
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libinject.marks import units, window
    from libinject.notebook.runs import Run, Runs, load
    from libinject.notebook.tables import NotInRun
    from libinject.result import BadFile

__version__ = "0.2.0"
__all__ = ["BadFile", "NotInRun", "Run", "Runs", "__version__", "load", "units", "window"]

# On first use, so that a training program that marks a window does not import more than it needs.
_PLACES = {"BadFile": "result", "NotInRun": "notebook.tables", "Run": "notebook.runs", "Runs": "notebook.runs", "load": "notebook.runs",
           "units": "marks", "window": "marks"}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'libinject' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"libinject.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
