# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The variables that put a command under libinject."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from libinject import console, library


def preload(library_path: str, before: str | None) -> str:
    """LD_PRELOAD with `library_path` in front of its present value, unless it is in there already."""
    others = [part for part in (before or "").replace(" ", ":").split(":") if part and part != library_path]
    return ":".join([library_path, *others])


def variables(chosen: Mapping[str, str | None], settings: Sequence[str]) -> dict[str, str]:
    """`chosen`: values by name without INJECT_, None if not given; `settings`: NAME=VALUE. Exits on a wrong value."""
    found = library.find_library()
    if found is None:
        console.fail("libinject.so is neither in this package nor in the source tree's build folder: build it or install the package")
    result = {f"INJECT_{name}": value for name, value in chosen.items() if value is not None}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.upper().removeprefix("INJECT_")
        if not equals or not name.isidentifier():
            console.fail(f"'{text}' is not NAME=VALUE, such as RING=64M")
        result[f"INJECT_{name}"] = value
    if ":" in str(found) or " " in str(found):
        console.fail(f"the dynamic loader cannot preload '{found}': its path has a space or a colon")
    result["LD_PRELOAD"] = preload(str(found), os.environ.get("LD_PRELOAD"))
    return result
