#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Pictures for the documents: the verdict at the top of the page that `inject report` makes of a folder, or the whole of a page.

usage: scripts/screenshot_report.py FOLDER|PAGE [PICTURE]     (docs/report.png; needs chromium and its driver)
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "build" / "deps" / "python")]

from browser import Browser, missing

WIDTH = 1280
LARGEST = 320_000
# The first image in README.md: no wider than it is shown there, so that it loads quickly.
VERDICT_WIDTH = 1100
LARGEST_VERDICT = 200_000


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if missing():
        sys.exit(f"there is no {missing()}")
    picture = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs" / "report.png")
    with tempfile.TemporaryDirectory(prefix="inject-picture-") as folder:
        page = pathlib.Path(sys.argv[1])
        whole = page.is_file()
        if not whole:
            page = pathlib.Path(folder) / "report.html"
            subprocess.run([ROOT / "scripts" / "inject", "report", sys.argv[1], "-o", page], check=True)
        browser = Browser()
        try:
            width = WIDTH if whole else VERDICT_WIDTH
            browser.look(width)
            browser.open(page)
            # Paths of the machine on which it is made are removed.
            if not whole:
                browser.run("document.querySelectorAll('.facts .wide, nav').forEach((part) => part.remove())")
            else:
                browser.see_every_plot()
            bottom = "document.documentElement.scrollHeight" if whole else "document.querySelector('section').getBoundingClientRect().bottom + 16"
            browser.look(width, browser.run(f"return Math.ceil({bottom})"))
            data = browser.png()
        finally:
            browser.quit()
    largest = LARGEST if whole else LARGEST_VERDICT
    if len(data) > largest:
        sys.exit(f"the picture has {len(data):,} bytes: more than {largest:,}")
    picture.write_bytes(data)
    print(f"{picture}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
