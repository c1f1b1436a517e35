# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Checks the folders made by a test against the documentation's promises, as `inject check` does."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
sys.dont_write_bytecode = True

from libinject.check.check import findings  # pylint: disable=wrong-import-position
from libinject.check.rules import ERROR  # pylint: disable=wrong-import-position
from libinject.result import BadFile  # pylint: disable=wrong-import-position


def broken(root, expected=()):
    """{folder: its violations, one line each} of the folders under `root`. `expected`: rules that may be broken there."""
    found = {}
    for run in sorted(pathlib.Path(root).rglob("run.json")):
        try:
            lines = [str(finding) for finding in findings(run.parent) if finding.severity == ERROR and finding.rule not in expected]
        except BadFile as problem:
            lines = [str(problem)]
        if lines:
            found[str(run.parent.relative_to(root))] = lines
    return found


def hold(test, root, expected=()):
    """Fails the test with the violations in the folders under `root`."""
    found = broken(root, expected)
    if found:
        lines = [f"{folder}/{line}" for folder, lines in found.items() for line in lines]
        test.fail("\n".join(["a folder breaks what the documentation promises:", *lines[:20], f"({len(lines)} in all)"]))
