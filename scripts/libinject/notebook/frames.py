# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""DataFrames of pandas or polars, which are imported when the first one is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libinject.notebook.tables import REAL, TEXT, WHOLE, Column

LIBRARIES = ("pandas", "polars")


def make(columns: Sequence[Column], library: str) -> Any:
    """Raises ImportError with a text of one line."""
    return _in_polars(columns) if library == "polars" else _in_pandas(columns)


def _in_pandas(columns: Sequence[Column]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(_missing("pandas", error), name="pandas") from None
    types = {WHOLE: "Int64", REAL: "float64", TEXT: "string"}
    return pandas.DataFrame({column.name: pandas.Series(column.cells, dtype=types[column.kind]) for column in columns})


def _in_polars(columns: Sequence[Column]) -> Any:
    try:
        import polars
    except ImportError as error:
        raise ImportError(_missing("polars", error), name="polars") from None
    types = {WHOLE: polars.Int64, REAL: polars.Float64, TEXT: polars.String}
    return polars.DataFrame([polars.Series(column.name, column.cells, dtype=types[column.kind]) for column in columns])


def _missing(library: str, error: ImportError) -> str:
    other = f", or load(…, frames=\"{'polars' if library == 'pandas' else 'pandas'}\")"
    if isinstance(error, ModuleNotFoundError) and error.name == library:
        return f"libinject makes tables into DataFrames of {library}, which is not installed: pip install {library}{other}"
    return f"libinject can't import {library}: {' '.join(str(error).split())[:200]}"
