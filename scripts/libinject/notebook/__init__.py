# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs for notebooks and scripts (docs/notebook.md): tables.py lists the tables and reads them, frames.py makes DataFrames, plots.py shows
the report's plots in a cell, runs.py has the public interface."""
