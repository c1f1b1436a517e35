#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Draws docs/gemm_curve.svg from docs/gemm_curve.csv, which tests/gpu/gemm_sweep.py writes: the rate of matrix products
over N, one panel for each data type, one line for each M = K, operations TN. Needs matplotlib.

usage: plot_gemm_curve.py [CSV [SVG]]
"""
import csv
import os
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "gemm"  # the same data gives the same file
from matplotlib import pyplot

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs")
TYPES = ["fp32", "tf32", "fp16", "bf16", "fp8"]


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(DOCS, "gemm_curve.csv")
    target = sys.argv[2] if len(sys.argv) > 2 else os.path.join(DOCS, "gemm_curve.svg")
    with open(source, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["operations"] == "TN"]
    figure, panels = pyplot.subplots(1, len(TYPES), figsize=(15, 3.6), sharey=True, layout="constrained")
    for panel, kind in zip(panels, TYPES):
        mine = [row for row in rows if row["type"] == kind]
        for size in sorted({int(row["M = K"]) for row in mine}):
            line = sorted((int(row["N"]), float(row["TFLOP/s"])) for row in mine if int(row["M = K"]) == size)
            panel.plot(*zip(*line), marker="o", markersize=3, label=str(size))
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_title(kind)
        panel.set_xlabel("N")
        panel.grid(True, which="major", linewidth=0.4)
    panels[0].set_ylabel("TFLOP/s")
    panels[-1].legend(title="M = K", fontsize=8)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
