# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A headless Chromium, driven by selenium. No test of its own."""

import base64
import json
import os
import shutil
import time


def missing():
    """What there is no browser test without, or nothing."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        return "chromium"
    return "" if shutil.which("chromedriver") else "chromedriver (Debian's chromium-driver)"


class Browser:
    def __init__(self, width=1280, height=900):
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        options.binary_location = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        # No sandbox: tests run as root in containers. No /dev/shm: it is small there.
        for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
                         f"--window-size={width},{height}", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # With its path nothing is looked for in the network.
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(60)

    def quit(self):
        self.driver.quit()

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def look(self, width=1280, height=900, dark=False):
        """The screen, and what the user prefers; before a page is opened, or while one is shown."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def until(self, condition, seconds=60):
        """Until the JavaScript `condition` holds."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def open(self, page):
        """Until all plots are drawn. Returns what the console says, and what was asked of a network."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.resolve().as_uri())
        self.until("['drawn', 'failed'].includes(document.documentElement.dataset.plots)")
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        return console, self.requests()

    def requests(self):
        """Addresses since the last look, but for files, and what is in the page itself."""
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                asked.append(message["params"].get("request", message["params"])["url"])
        return [address for address in asked if not address.startswith(("file:", "data:", "blob:", "about:", "chrome:"))]

    def png(self):
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
