# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The slowest links: bus bandwidths of collectives, and copies compared with their link."""

from __future__ import annotations

from typing import Any

from libinject.merge.store import Store

_MOST = 20
SLOW = 0.8  # times the median of the ranks
LARGE_COPY_MB = 1.0  # on average; smaller copies are bound by their latency
LARGE_COLLECTIVE = 1 << 20


def of_job(store: Store, number: int) -> dict[str, list[dict[str, Any]]]:
    return {"bus": _bus(store, number), "peers": _peers(store, number), "copies": _copies(store, number)}


def _bus(store: Store, number: int) -> list[dict[str, Any]]:
    """The rank with the best value waited least, so it is closest to the links' bandwidth."""
    return store.rows("""
        SELECT Operation AS operation, Type AS type, Reduction AS reduction, Bytes AS bytes, Ranks AS ranks, count(*) AS rows,
               max(bus) AS best_gbps, arg_max(rank, bus) AS best_rank, median(bus) AS median_gbps, min(bus) AS worst_gbps,
               arg_min(rank, bus) AS worst_rank
        FROM (SELECT *, "Bus BW (GB/s)" AS bus FROM nccl_sum JOIN member USING (run)
              WHERE job = ? AND bus > 0 AND Bytes >= ? AND NOT regexp_full_match(Operation, 'Send|Recv'))
        GROUP BY Operation, Type, Reduction, Bytes, Ranks ORDER BY best_gbps, operation, bytes LIMIT ?
        """, [number, LARGE_COLLECTIVE, _MOST])


def _peers(store: Store, number: int) -> list[dict[str, Any]]:
    return store.rows("""
        SELECT rank, Operation AS operation, "Peer/Root" AS peer, Ranks AS ranks, max("Bus BW (GB/s)") AS best_gbps
        FROM nccl_sum JOIN member USING (run)
        WHERE job = ? AND "Bus BW (GB/s)" > 0 AND Bytes >= ? AND Operation IN ('Send', 'Recv')
        GROUP BY ALL ORDER BY best_gbps, rank, peer LIMIT ?""", [number, LARGE_COLLECTIVE, _MOST])


def _copies(store: Store, number: int) -> list[dict[str, Any]]:
    rows = store.rows("""
        SELECT *, gbps < ? * usual AND alike > 1 AS slow FROM (
          SELECT member.rank AS rank, host, Device AS device, Direction AS direction, Source AS source, Target AS target, "Count" AS copies,
                 "Total (MB)" AS total_mb, "Throughput (GB/s)" AS gbps, "Link (GB/s)" AS link_gbps, "Link (%)" AS link_percent,
                 median(gbps) OVER kind AS usual, count(*) OVER kind AS alike
          FROM copy_sum JOIN member USING (run) JOIN runs USING (run)
          WHERE job = ? AND gbps > 0 AND copies > 0 AND total_mb >= ? * copies
          WINDOW kind AS (PARTITION BY direction, source, target))
        ORDER BY slow DESC, coalesce(link_percent, 1e9), gbps / usual, rank LIMIT ?""", [SLOW, number, LARGE_COPY_MB, _MOST])
    for row in rows:
        row["median_gbps"] = row.pop("usual")
        del row["alike"]
    return rows
