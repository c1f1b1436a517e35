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
# The type, and which operands are transposed. Products in fp8 only exist as TN.
KINDS = (*(f"{name}-{layout}" for name in ("fp32", "tf32", "bf16", "fp16") for layout in ("NN", "NT", "TN")), "fp8-TN")
LAYERS = tuple(f"{cell}-{name}" for cell in ("LSTM", "GRU") for name in ("fp32", "tf32", "fp16"))
NONE = "–"
Size = tuple[int, int, int]


def products(run: Run) -> dict[Size, dict]:
    """By M, N and K: the row with most calls, among products requested by a library call."""
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
    """The rounds' most frequent text."""
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
    """The gain of one product for all gates over one for each: the speed-up for the same work."""
    rows = []
    for point in points:
        there = set(sizes([point]))
        for m, k in sorted({(m, k) for m, _, k in there if m > k and m % k == 0}):
            pairs = [(n, ratio(rate(point, (m, n, k)), rate(point, (k, n, k)))) for n in sorted({n for _, n, _ in there}) if {(m, n, k), (k, n, k)} <= there]
            rows.append({**named(point), "Gates": str(m // k), "State": str(k), **{f"N = {n}": won.text(2) or NONE for n, won in pairs}})
    columns = list(dict.fromkeys(column for row in rows for column in row))
    study.rows("combined", [{column: row.get(column, NONE) for column in columns} for row in rows])


def rule(study: Study, points: list[Point]) -> None:
    """For each N at the largest square product: the share of the peak, with tensor cores or without, and the hint."""
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
                found.setdefault((int(size[0]), int(size[1]), int(size[2])), {})[str(row["Direction"])] = row
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


def rounds_differ(points: list[Point]) -> str:
    """The largest difference between a product's rounds, relative to their median; empty with a single round."""
    spreads = [rate(point, size) for point in points for size in sizes([point])]
    found = [100 * (max(spread.values) - min(spread.values)) / spread.median for spread in spreads if len(spread.values) > 1 and spread.median]
    return f"; the rounds of a product differ by {max(found):.0f} % at most" if found else ""


# --- what the tables say ---------------------------------------------------------------------------------------------

def middle(ratios: Iterable[float], unit: str = "") -> str:
    """`1.50 (0.82 … 2.92)`, over different sizes."""
    return Spread(tuple(ratios)).text(2) + unit


def of_gates(rates_of: dict[tuple[str, str], dict[Size, float]]) -> str:
    """All gates in one product."""
    won: dict[int, list[float]] = {}
    for found in rates_of.values():
        for (m, n, k), single in found.items():
            if m == k and (4 * m, n, k) in found:
                won.setdefault(k, []).append(found[4 * m, n, k] / single)
    every = [ratio for ratios in won.values() for ratio in ratios]
    if not every:
        return ""
    text = f"One product of four gates is {middle(every)} times as fast as four products of one gate: faster in {sum(ratio > 1 for ratio in every)} of {len(every)} cases"
    if len(won) > 1:
        text += f", by {middle(won[min(won)])} with a state of {min(won)} and by {middle(won[max(won)])} with one of {max(won)}"
    return text + " (*Gates combined*)."


def of_alignment(rates_of: dict[tuple[str, str], dict[Size, float]], misaligned: dict[tuple[str, str], int]) -> str:
    """A batch of 33, relative to 32."""
    told = []
    for op in ("NN", "NT", "TN"):
        ratios = [found[m, 33, k] / found[m, 32, k] for (name, of), found in rates_of.items() if of == op and name in ("bf16", "fp16")
                  for m, n, k in found if n == 33 and (m, 32, k) in found]
        hints = sum(count for (name, of), count in misaligned.items() if of == op and name in ("bf16", "fp16"))
        if ratios:
            told.append(f"{op} {middle(ratios)} times (`Eligible` says `misaligned` for {hints} of {len(ratios)})")
    return f"In half precision the rate with N = 33 is, relative to N = 32: {', '.join(told)} (*Rates*). What matters is whether N is a leading dimension." if told else ""


def of_types(rates_of: dict[tuple[str, str], dict[Size, float]]) -> str:
    """Gains of narrower types at the largest product."""
    found = {name: rates for (name, op), rates in rates_of.items() if op == "TN"}
    told = []
    for slow, fast in (("fp32", "tf32"), ("tf32", "bf16"), ("bf16", "fp8")):
        both = set(found.get(slow, {})) & set(found.get(fast, {}))
        if both:
            largest = max(both, key=lambda size: size[0] * size[1] * size[2])
            told.append(f"{fast} is {found[fast][largest] / found[slow][largest]:.2f} times as fast as {slow} ({' × '.join(map(str, largest))})")
    return f"TN, at the largest product: {', '.join(told)} (*Rates*)." if told else ""


def of_batches(points: list[Point]) -> str:
    """Share of the peak with the smallest and the largest batch."""
    best: dict[int, float] = {}
    for point in points:
        for m, n, k in sizes([point]):
            share = point.spread(lambda run, size=(m, n, k): products(run).get(size, {}).get("Peak (%)"))
            if share.values:
                best[n] = max(best.get(n, 0), share.median)
    if len(best) < 2:
        return ""
    return f"No product reaches more than {best[min(best)]:.1f} % of its peak with N = {min(best)}; with N = {max(best)} the best one reaches {best[max(best)]:.1f} %."


def of_persistent(points: list[Point]) -> str:
    """cuDNN's two algorithms for the same sizes, one layer and two."""
    ratios: dict[str, list[float]] = {}
    sizes_seen = set()
    for point in points:
        for run in point.rounds:
            rows = {(row["Hidden Size"], row["Layers"], row["B"], row["Direction"]): row for row in run.rows("rnn_sum")}
            for (hidden, count, batch, direction), row in rows.items():
                other = rows.get((hidden, "2", batch, direction))
                if count == "1" and other and "persistent" in str(row["Algorithm"]) and other["Algorithm"] == "standard" and row["TFLOP/s"] and other["TFLOP/s"]:
                    ratios.setdefault(str(direction), []).append(row["TFLOP/s"] / other["TFLOP/s"])
                    sizes_seen.add((point.values["KIND"], hidden, batch))
    if not ratios:
        return ""
    told = ", ".join(f"{direction} {middle(found)}" for direction, found in sorted(ratios.items(), reverse=True))
    return f"The persistent algorithm's rate, relative to the standard one's with two layers, at {len(sizes_seen)} sizes: {told} (*Recurrent layers*)."


def told_by(points: list[Point], layer_points: list[Point]) -> tuple[str, ...]:
    rates_of = {(point.values["KIND"].split("-")[0], point.values["KIND"].split("-")[1]):
                {size: rate(point, size).median for size in sizes([point]) if rate(point, size).values} for point in points}
    misaligned = {(point.values["KIND"].split("-")[0], point.values["KIND"].split("-")[1]):
                  sum(n == 33 and text_of(point, (m, n, k), "Eligible").startswith("misaligned") for m, n, k in sizes([point])) for point in points}
    return of_gates(rates_of), of_alignment(rates_of, misaligned), of_types(rates_of), of_batches(points), of_persistent(layer_points)


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    swept = study.sweep("kinds", {"KIND": ",".join(KINDS + LAYERS)}, [sys.executable, str(HERE / "program.py"), "{KIND}"], OPTIONS)
    points = [point for point in swept if point.values["KIND"] in KINDS]
    rates(study, points)
    combined(study, points)
    rule(study, points)
    of_layers = [point for point in swept if point not in points]
    layers(study, of_layers)
    study.figures.update(conditions=study.conditions(swept), rounds_differ=rounds_differ(points))
    study.findings(told_by(points, of_layers))
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
