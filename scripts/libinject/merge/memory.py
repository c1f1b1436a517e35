# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What PyTorch's memory is used for on the ranks of a job (docs/memory_purpose.md)."""

from __future__ import annotations

import statistics
from typing import Any

from libinject.merge.store import Store

PEAK, ACTIVATIONS = "peak of PyTorch's tensors", "activations at that peak"
# Others come last, since a folder may contain any name.
_ORDER = ("parameters", "gradients", "optimizer state", "buffers", "other tensors", "workspaces", "communication buffers", "[no tensor]", "[rounding]", "[private pools]", "[cached]", "[outside of the allocator]",
          PEAK, ACTIVATIONS)
# Peaks may be at different times, and memory of other processes is included for every rank on a GPU.
_NO_SUM = frozenset((PEAK, ACTIVATIONS, "[outside of the allocator]"))
_MOST_PURPOSES = 32


def of_job(store: Store, number: int) -> dict[str, Any]:
    """`purposes`: for each, the amounts over the ranks; `ranks`: {rank: {purpose: bytes}}. A rank's GPUs are added up: a value that is
    unknown for one of them is unknown for the rank, and makes the sum unknown."""
    ranks: dict[int, dict[str, int | None]] = {}
    found: dict[str, dict[int, int | None]] = {}
    for row in store.rows(f"""
            SELECT rank, what, CASE WHEN count(*) = count(size) THEN sum(size) END AS size FROM (
              SELECT rank, Purpose AS what, "Memory (B)" AS size FROM memory_purpose JOIN member USING (run) WHERE job = $1 AND Total <> 'yes'
              UNION ALL SELECT rank, '{PEAK.replace("'", "''")}', "Peak Allocated (B)" FROM memory_purpose JOIN member USING (run) WHERE job = $1 AND Total = 'yes'
              UNION ALL SELECT rank, '{ACTIVATIONS}', "Activations at Peak (B)" FROM memory_purpose JOIN member USING (run) WHERE job = $1 AND Total = 'yes')
            GROUP BY ALL ORDER BY rank, what""", [number]):
        size = None if row["size"] is None else int(row["size"])
        ranks.setdefault(row["rank"], {})[row["what"]] = size
        found.setdefault(row["what"], {})[row["rank"]] = size
    ordered = sorted(found, key=lambda what: (_ORDER.index(what) if what in _ORDER else len(_ORDER), what))
    return {"ranks": ranks, "purposes": [row for what in ordered[:_MOST_PURPOSES] if (row := _row(what, found[what])) is not None]}


def _row(what: str, sizes: dict[int, int | None]) -> dict[str, Any] | None:
    known = [(size, rank) for rank, size in sizes.items() if size is not None]
    if not known:
        return None
    # Of equal maxima, the first rank.
    least, most = min(known), max(known, key=lambda each: (each[0], -each[1]))
    return {"purpose": what, "ranks": len(known), "least_b": least[0], "least_rank": least[1], "median_b": statistics.median(size for size, _ in known),
            "most_b": most[0], "most_rank": most[1],
            "sum_b": sum(size for size, _ in known) if len(known) == len(sizes) and what not in _NO_SUM else None}
