#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What a course on efficient training has its students mend: nine training loops with a fault each, and the same without it. The verdict on the
wrong one, what the tables promise at most for its remedy, and what was won. Needs PyTorch and one GPU.

    studies/exercises/run.py --out results     # tables and README.md; some ten minutes

The same command goes on where it was ended.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from study import Point, Run, Spread, Study, ratio  # noqa: E402

from libinject.report.remedies import gains  # noqa: E402

# For each exercise, the kinds of diagnosis to which the fault belongs, as in docs/diagnosis.md.
KINDS = {"tensor_cores": ("GPU-bound (compute)",), "precision": ("GPU-bound (compute)",), "padding": ("GPU-bound (compute)",),
         "logging": ("synchronization-bound",), "copies": ("copy-bound",), "loading": ("input-bound",), "optimizer": ("launch-bound",),
         "fusion": ("GPU-bound (memory)",), "bucketing": ()}
# Compilation is not included: it happens before the window.
ITERATIONS = "300"
OPTIONS = ["--window", "iter:40+10", "--after", "exit", "--timeout-each", "4m", "--summary", "off"]
WRONG, MENDED = "wrong", "mended"


def entry(run: Run) -> dict:
    """The diagnosis of the first GPU, since only one is used."""
    return next((found for result in run.results for found in result.run.get("diagnosis") or []), {})


def verdict(point: Point) -> str:
    return ", ".join(dict.fromkeys(entry(run).get("verdict", "") for run in point.rounds if run.results))


def promised(point: Point, kinds: tuple[str, ...]) -> Spread:
    """Maximum gain of the remedies of these kinds, in percent of the device time."""
    def most(run: Run) -> float | None:
        found = [gains(entry(run)).percent(kind) for kind in kinds]
        known = [gain for gain in found if gain is not None]
        return min(100.0, sum(known)) if known else None
    return point.spread(most)


def won(wrong: Spread, mended: Spread) -> Spread:
    """Gain in percent of the wrong version's time."""
    return Spread(tuple(100 - share for share in ratio(mended, wrong, 100).values))


def unit_time(point: Point) -> Spread:
    """Time per unit of work, in nanoseconds."""
    return point.spread(lambda run: 1e9 / run.figures["units_per_s"] if run.figures.get("units_per_s") else None)


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    swept = study.sweep("exercises", {"EXERCISE": ",".join(KINDS), "VERSION": f"{WRONG},{MENDED}"},
                        [sys.executable, str(HERE / "train.py"), "{EXERCISE}", "{VERSION}", ITERATIONS], OPTIONS)
    pairs = {(point.values["EXERCISE"], point.values["VERSION"]): point for point in swept}
    broken: list[str] = []

    def cells(wrong: Point) -> dict[str, str]:
        name = wrong.values["EXERCISE"]
        mended = pairs[name, MENDED]
        # If the work per step differs, step times can't be compared.
        before, after = (unit_time(wrong), unit_time(mended)) if name == "bucketing" else (wrong.figure("step_time_ns"), mended.figure("step_time_ns"))
        most, gain = promised(wrong, KINDS[name]), won(before, after)
        if len(most.values) == len(gain.values):
            above = sum(gained > bound + 1 for bound, gained in zip(most.values, gain.values, strict=True))
            if above:
                broken.append(f"{name} ({above} of {len(gain.values)} rounds)")
        memory = ratio(mended.figure("peak_memory_mb"), wrong.figure("peak_memory_mb"), 100)
        return {"Runs": ", ".join(dict.fromkeys([wrong.status, mended.status])), "Verdict": verdict(wrong), "Promised at most (%)": most.text() or "–", "Won (%)": gain.text(),
                "Step before (ms)": wrong.figure("step_time_ns", 1e-6).text(2), "Step after (ms)": mended.figure("step_time_ns", 1e-6).text(2),
                "Verdict after": verdict(mended), "Memory after (%)": memory.text()}

    study.table("exercises", [point for point in swept if point.values["VERSION"] == WRONG], cells)
    study.figures.update(conditions=study.conditions(swept), broken=", ".join(broken) or "none")
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
