# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The pages of `inject report`, `compare`, `sweep` and `merge`: parts.py defines what a page consists of, render.py makes HTML of it with
base.html, and the scripts in this folder fill it in the browser."""
