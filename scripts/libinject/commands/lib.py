# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject lib`: where libinject.so is."""

from __future__ import annotations

import sys

import typer

from libinject import environment


def lib() -> None:
    """Print the path of libinject.so, to preload it without inject run: LD_PRELOAD=$(inject lib) python train.py."""
    sys.stdout.write(environment.library_to_preload() + "\n")


def add_to(app: typer.Typer) -> None:
    app.command(name="lib", short_help="Print libinject.so's path, for LD_PRELOAD.")(lib)
