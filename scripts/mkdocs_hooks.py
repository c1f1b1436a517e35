# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The pages of docs/ are written for GitHub. What MkDocs interprets differently is adjusted here as it reads them."""

import re

_LIST = re.compile(r" *(?:[-*+]|\d+\.) +\S")
_PAGE = re.compile(r"`docs/(\w+)\.md`")


def _lines(text):
    """(line, whether it is code) for each line."""
    fence, indented, before = "", False, ""
    for line in text.split("\n"):
        mark = re.match(r" *(```+)", line)
        if fence:
            yield line, True
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            fence = mark[1]
            yield line, True
        else:
            # Four spaces mean code, except within a list.
            indented = line.startswith("    ") and (indented or not before.strip() or before.startswith("#"))
            yield line, indented
        before = line


def on_page_markdown(markdown, **_):
    """GitHub allows a list or a table directly after a paragraph, without an empty line; `docs/NAME.md` becomes a
    link."""
    written, before = [], ""
    for line, code in _lines(markdown):
        if not code:
            list_begins = _LIST.match(line) and not before.startswith(" ") and not _LIST.match(before)
            table_begins = line.startswith("|") and not before.startswith("|")
            if before.strip() and (list_begins or table_begins):
                written.append("")
            line = _PAGE.sub(r"[\1.md](\1.md)", line)
        written.append(line)
        before = line
    return "\n".join(written)
