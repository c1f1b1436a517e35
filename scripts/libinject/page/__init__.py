# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The pages of `inject report`, `compare`, `sweep` and `merge`: parts.py is what one is made of, render.py makes HTML of it by base.html,
and the scripts beside fill it in the browser."""
