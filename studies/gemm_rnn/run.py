#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Matrix products of recurrent networks: the rate over M, N and K, layouts and types; the gates' products combined or one by one; sizes off the
powers of two; and cuDNN's persistent against its standard algorithm. Needs PyTorch and one GPU.

    studies/gemm_rnn/run.py --out results     # tables and README.md; some ten minutes

The same command goes on where it was ended.
"""

import pathlib
import sys
from collections.abc import Callable, Iterable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from study import Point, Run, Spread, Study, ratio  # noqa: E402

OPTIONS = ["--window", "api", "--after", "exit", "--timeout-each", "4m", "--summary", "off"]
# The type, and which operands are transposed. Products in fp8 are TN alone.
KINDS = (*(f"{name}-{layout}" for name in ("fp32", "tf32", "bf16", "fp16") for layout in ("NN", "NT", "TN")), "fp8-TN")
LAYERS = tuple(f"{cell}-{name}" for cell in ("LSTM", "GRU") for name in ("fp32", "tf32", "fp16"))
NONE = "–"
Size = tuple[int, int, int]


def products(run: Run) -> dict[Size, dict]:
    """By M, N and K: the row with most calls, of those that a call of a library asked for."""
    found: dict[Size, dict] = {}
    for row in run.rows("gemm_sum"):
        size = (row["M"], row["N"], row["K"])
        if None not in size and not row["Derived"] and (row["Calls"] or 0) > (found.get(size, {}).get("Calls") or 0):
            found[size] = row
    return found


def sizes(points: Iterable[Point]) -> list[Size]:
    return sorted({size for point in points for run in point.rounds for size in products(run)})


def rate(point: Point, size: Size) -> Spread:
    return point.spread(lambda run: products(run).get(size, {}).get("TFLOP/s"))


def text_of(point: Point, size: Size, column: str) -> str:
    """What the rounds say, most often the same."""
    told = [str(products(run)[size][column] or "none") for run in point.rounds if size in products(run)]
    return ", ".join(dict.fromkeys(told))


def named(point: Point, *names: str) -> dict[str, str]:
    return dict(zip(names or ("Type", "Op"), point.values["KIND"].split("-")))


def rates(study: Study, points: list[Point]) -> None:
    """A row for each M and K of a type and layout, a column for each N."""
    found = sizes(points)
    batches = sorted({n for _, n, _ in found})
    rows = []
    for point in points:
        for m, k in sorted({(m, k) for m, _, k in sizes([point])}):
            # Products in fp8 need multiples of 16.
            cells = {n: NONE if n % 16 and named(point)["Type"] == "fp8" else rate(point, (m, n, k)).text(1) for n in batches}
            study.problems += [f"table rates, {point.values['KIND']} {m} x {n} x {k}: no rate" for n, cell in cells.items() if not cell]
            rows.append({**named(point), "M": str(m), "K": str(k), **{f"N = {n}": cell for n, cell in cells.items()}})
    study.rows("rates", rows)


def combined(study: Study, points: list[Point]) -> None:
    """What one product of all gates wins over one for each: as many times faster for the same work."""
    rows = []
    for point in points:
        there = set(sizes([point]))
        for m, k in sorted({(m, k) for m, _, k in there if m > k and m % k == 0}):
            pairs = [(n, ratio(rate(point, (m, n, k)), rate(point, (k, n, k)))) for n in sorted({n for _, n, _ in there}) if {(m, n, k), (k, n, k)} <= there]
            rows.append({**named(point), "Gates": str(m // k), "State": str(k), **{f"N = {n}": won.text(2) or NONE for n, won in pairs}})
    columns = list(dict.fromkeys(column for row in rows for column in row))
    study.rows("combined", [{column: row.get(column, NONE) for column in columns} for row in rows])


def rule(study: Study, points: list[Point]) -> None:
    """Each N at the largest square product: how much of the peak, with tensor cores or without, and what the hint says."""
    rows = []
    for point in points:
        there = sizes([point])
        largest = max((k for m, _, k in there if m == k), default=None)
        for size in (size for size in there if size[0] == size[2] == largest):
            peak = point.spread(lambda run, size=size: products(run).get(size, {}).get("Peak (%)"))
            rows.append({**named(point), "M = K": str(largest), "N": str(size[1]), "TFLOP/s": rate(point, size).text(1), "Peak (%)": peak.text(1) or NONE,
                         "Bound": text_of(point, size, "Bound"), "Tensor cores": text_of(point, size, "Tensor Cores"),
                         "Eligible": text_of(point, size, "Eligible"), "Hint": text_of(point, size, "Hint")})
    study.rows("rule", rows)


Layer = tuple[int, int, int]  # hidden size, layers, batch


def layers(study: Study, points: list[Point]) -> None:
    def by_size(run: Run) -> dict[Layer, dict[str, dict]]:
        found: dict[Layer, dict[str, dict]] = {}
        for row in run.rows("rnn_sum"):
            size = (row["Hidden Size"], row["Layers"], row["B"])
            if None not in size:
                found.setdefault(size, {})[str(row["Direction"])] = row
        return found

    def value(size: Layer, direction: str, column: str) -> Callable[[Run], float | None]:
        return lambda run: by_size(run).get(size, {}).get(direction, {}).get(column)

    rows = []
    for point in points:
        for size in sorted({size for run in point.rounds for size in by_size(run)}):
            told = [row for run in point.rounds for row in by_size(run).get(size, {}).values()]
            directions = sorted({str(row["Direction"]) for row in told}, reverse=True)
            rows.append({**named(point, "Cell", "Type"), **dict(zip(("State", "Layers", "Batch"), map(str, size))), "Algorithm": ", ".join(dict.fromkeys(str(row["Algorithm"]) for row in told)),
                         "TFLOP/s": ", ".join(f"{direction} {point.spread(value(size, direction, 'TFLOP/s')).text(1) or NONE}" for direction in directions),
                         "Peak (%)": ", ".join(point.spread(value(size, direction, "Peak (%)")).text(1) or NONE for direction in directions)})
    study.rows("layers", rows)


def widest(points: list[Point]) -> str:
    """How far the rounds of a product differ at most, in percent of their median."""
    spreads = [rate(point, size) for point in points for size in sizes([point])]
    found = [100 * (max(spread.values) - min(spread.values)) / spread.median for spread in spreads if spread.values and spread.median]
    return f"{max(found):.0f}" if found else NONE


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    swept = study.sweep("kinds", {"KIND": ",".join(KINDS + LAYERS)}, [sys.executable, str(HERE / "program.py"), "{KIND}"], OPTIONS)
    points = [point for point in swept if point.values["KIND"] in KINDS]
    rates(study, points)
    combined(study, points)
    rule(study, points)
    layers(study, [point for point in swept if point not in points])
    study.figures.update(conditions=study.conditions(swept), widest=widest(points))
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
