#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes the manual pages, compressed: man/*.in, with the variables of libinject/config/options.def and the commands of scripts/libinject
put in, so that they can't say anything else. inject(1) is left out where the Python packages of the command are missing.

usage: make_man_pages.py SOURCE_DIR OUT VERSION
"""

import gzip
import pathlib
import re
import sys

LITERAL = r'"((?:[^"\\]|\\.)*)"'
OPTION = re.compile(rf"^INJECT_OPTION\((\w+), \w+, {LITERAL}, {LITERAL}, {LITERAL}\)$", re.MULTILINE)


def roff(text):
    """Plain text as roff: no character of it is an instruction."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return re.sub(r"^(?=\.)", r"\\&", text, flags=re.MULTILINE)


def entry(head, *paragraphs):
    return "\n".join([".TP", head, "\n.br\n".join(paragraphs)])


def sentence(text):
    return roff(text[0].upper() + text[1:].removesuffix(".") + ".")


def environment(table):
    """One entry a variable of options.def."""
    found = OPTION.findall(table)
    if len(found) != len(re.findall(r"^INJECT_OPTION\(", table, re.MULTILINE)):
        sys.exit('make_man_pages.py: a line of options.def is not INJECT_OPTION(name, parse, "default", "accepted", "meaning")')
    entries = []
    for fields in found:
        name, default, accepted, meaning = (re.sub(r"\\(.)", r"\1", field) for field in fields)
        head = rf"\fB{name}\fR" + (rf" (default \fB{roff(default)}\fR)" if default else "")
        entries.append(entry(head, sentence(meaning), f"Accepted: {roff(accepted)}."))
    return "\n".join(entries)


def commands(source):
    """One entry a subcommand, or None where Typer is not installed."""
    sys.path[:0] = [str(source / "scripts")]
    sys.path.append(str(source / "build" / "deps" / "python"))
    sys.dont_write_bytecode = True
    try:
        import typer.main
        from libinject.cli import app
    except ModuleNotFoundError:
        return None
    group = typer.main.get_command(app)
    return "\n".join(entry(rf"\fB{roff(name)}\fR", sentence(" ".join((command.help or name).split())))
                     for name, command in sorted(group.commands.items()) if not command.hidden)


def main():
    source, out, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    out.mkdir(parents=True, exist_ok=True)
    values = {"VERSION": version, "COMMANDS": commands(source),
              "ENVIRONMENT": environment((source / "libinject" / "config" / "options.def").read_text(encoding="utf-8"))}
    for template in sorted((source / "man").glob("*.in")):
        text = template.read_text(encoding="utf-8")
        used = re.findall(r"@(\w+)@", text)
        page = out / f"{template.stem}.gz"
        page.unlink(missing_ok=True)
        if all(values[name] is not None for name in used):
            text = re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
            page.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
