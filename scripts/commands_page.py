#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes the tables of options in docs/commands.md anew, from the commands themselves. A test compares.

usage: scripts/commands_page.py
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "build" / "deps" / "python")]

_TABLE = re.compile(r"(?<=<!-- options of )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def commands():
    """The subcommands of `inject`, by name."""
    import typer.main
    from libinject.cli import app

    return {name: command for name, command in typer.main.get_command(app).commands.items() if not command.hidden}


def options(command):
    """[(name, meaning, default)] of the command's arguments, as in its --help."""
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        flag = getattr(parameter, "is_flag", False)
        if parameter.param_type_name == "argument":
            name = parameter.metavar or f"{parameter.human_readable_name}…"
        else:
            name = ", ".join([*parameter.opts, *parameter.secondary_opts])
            if parameter.metavar and not flag:
                name += f" {parameter.metavar}"
        default = "" if flag or parameter.default in (None, [], ()) else str(parameter.default)
        # A default that depends on this machine, not on the command.
        rows.append((name, " ".join((parameter.help or "").split()), "" if default == sys.executable else default))
    return rows


def table(command):
    if not options(command):
        return "It takes none.\n"
    lines = ["| option | meaning |", "|---|---|"]
    for name, meaning, default in options(command):
        meaning = (meaning + (f" Default: `{default}`." if default else "")).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
        lines.append(f"| `{name}` | {meaning} |")
    return "\n".join(lines) + "\n"


def page(text):
    """`text` with the tables replaced by those generated from the commands."""
    found = commands()
    return _TABLE.sub(lambda match: match[1] + match[2] + table(found[match[1]]), text)


def main():
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
