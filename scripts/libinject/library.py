# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Where libinject.so and injectctl are."""

from __future__ import annotations

import os
import pathlib
import sys
import sysconfig

_HERE = pathlib.Path(__file__).resolve().parent


def _places(folder_in_package: str, name: str) -> list[pathlib.Path]:
    tree = _HERE.parent.parent  # the source tree, if this file is in its scripts/libinject
    places = [_HERE / folder_in_package / name]
    if (tree / "libinject" / "session" / "session.h").exists():
        inside = name if name.endswith(".so") else f"{name}/{name}"
        places += [tree / build / inside for build in ("build-release", "build")]
    # As installed by CMake and Debian's package: PREFIX/lib/libinject.so beside PREFIX/lib/python3/…/libinject, or the system's.
    for prefix in (*list(_HERE.parents)[3:4], pathlib.Path("/usr/local"), pathlib.Path("/usr")):
        triplet = sysconfig.get_config_var("MULTIARCH") or ""
        places += [prefix / folder_in_package / name, prefix / folder_in_package / triplet / name]
    return places


def find_library() -> pathlib.Path | None:
    """libinject.so from this package, from the source tree's build, or installed."""
    return next((place for place in _places("lib", "libinject.so") if place.is_file()), None)


def find_injectctl() -> pathlib.Path | None:
    return next((place for place in _places("bin", "injectctl") if place.is_file()), None)


def run_injectctl() -> None:
    """The command `injectctl` of the Python package: replaces this process with the binary inside the package."""
    found = find_injectctl()
    if found is None:
        sys.exit("injectctl: the binary is neither in this package nor installed: reinstall the package")
    os.execv(found, ["injectctl", *sys.argv[1:]])
