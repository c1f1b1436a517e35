#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""How long the page of 10,000 kernels takes to open, as a user opens it: in a Chromium that has just been started, without chromedriver.
Prints the time from navigation until the tables can be sorted, and until the plots near the top are drawn.

usage: time_opening.py [ROUNDS]     where test_report_page.py runs
"""

import http.server
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.parse

import folders
import test_report_page

# Reports to our own server; since the page itself may not connect to anything, its policy is removed.
OBSERVER = """<script>
  const done = {};
  new MutationObserver(() => {
    const { tables, plots } = document.documentElement.dataset;
    if (tables) done.tables ??= performance.now();
    if (plots !== "drawn" || done.plots) return;
    done.plots = performance.now();
    new Image().src = "http://127.0.0.1:PORT/?" + new URLSearchParams(done);
  }).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-tables", "data-plots"] });
</script>"""


class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        self.send_response(204)
        self.end_headers()
        self.server.told = {name: float(value) for name, (value,) in asked.items()}
        self.server.opened.set()

    def log_message(self, *_):
        pass


def main(rounds):
    server = http.server.HTTPServer(("127.0.0.1", 0), Told)
    server.opened = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="opening-", ignore_cleanup_errors=True) as place:
        work = pathlib.Path(place)
        test_report_page.many_kernels_and_plots(work / "full", 10_000)
        made = folders.invoke("report", work / "full", "-o", work / "full.html")
        if made.returncode:
            sys.exit(made.stderr)
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", (work / "full.html").read_text(encoding="utf-8"), count=1)
        page = work / "observed.html"
        page.write_text(text.replace("<head>", "<head>" + OBSERVER.replace("PORT", str(server.server_port)), 1), encoding="utf-8")
        took = []
        for number in range(rounds):
            server.opened.clear()
            with subprocess.Popen(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
                                   f"--user-data-dir={work / f'profile{number}'}", "--window-size=1280,1000", page.as_uri()],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
                opened = server.opened.wait(60)
                browser.terminate()
            if not opened:
                sys.exit("the page's plots were not drawn within a minute")
            took.append(server.told)
    for what in ("tables", "plots"):
        times = [each[what] for each in took]
        print(f"{what}: {statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f}, {rounds} browsers)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
