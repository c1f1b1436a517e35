# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes articles into one self-contained HTML file: no network, no other file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.resources
import importlib.util
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import libinject
from libinject import console
from libinject.page.parts import Article, as_data

_HERE = pathlib.Path(__file__).resolve().parent
_SCRIPTS = ("format.js", "tables.js", "plots.js", "icicle.js", "timeline.js", "histogram.js", "page.js")


def _hash(source: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


def packed(text: str) -> str:
    """Compressed, for the page's scripts to unpack. Whatever the text, the result can't end an element. The same text gives the same page,
    hence the fixed mtime."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def embedded(data: Any) -> str:
    try:
        text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except ValueError:  # division by nearly nothing: rare, and searching for it takes a while
        text = json.dumps(console.finite(data), ensure_ascii=True, separators=(",", ":"))
    return packed(text)


def require_packages() -> None:
    """Raises ModuleNotFoundError if a page can't be written, for commands that first run programs for a long time."""
    for name in ("jinja2", "markupsafe", "plotly"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(name=name)


def articles_page(title: str, kind: str, articles: Sequence[Article], problems: Sequence[str] = (), note: str = "") -> str:
    """A page that consists of articles. `kind` describes the page in a word or two; `note` is at its end."""
    shown = [as_data(article) for article in articles]
    return render(_HERE / "articles.html", [article["sections"] for article in shown], title=title, kind=kind, articles=shown,
                  problems=problems, note=note)


def render(template: pathlib.Path, sections: Sequence[Sequence[dict[str, Any]]], **values: Any) -> str:
    """`sections` of each article, which the scripts find by `data-table`, `data-plot`, `data-icicle`, `data-timeline` and
    `data-histogram`."""
    import jinja2
    import markupsafe

    plotly = (importlib.resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    script = "(() => {\n" + "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS) + "})();"
    # Only these two scripts may run, and nothing may be requested from a network, even if a name was not escaped properly.
    policy = (f"default-src 'none'; script-src {_hash(script)} {_hash(plotly)}; style-src 'unsafe-inline'; img-src data: blob:; "
              "base-uri 'none'; form-action 'none'")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     loader=jinja2.FileSystemLoader([_HERE, template.parent], encoding="utf-8"))
    environment.filters["duration"] = console.duration
    environment.filters["grouped"] = lambda value: f"{value:,}"
    ours = {name: markupsafe.Markup(text) for name, text in (
        ("css", (_HERE / "page.css").read_text(encoding="utf-8")), ("script", script), ("plotly", packed(plotly)), ("data", embedded(sections)),
        ("policy", policy))}
    return environment.get_template(template.name).render(version=libinject.__version__, **ours, **values)
