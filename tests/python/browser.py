# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A headless Chromium, driven by selenium, and the checks that all pages share. Not a test itself."""

import base64
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import unittest

HOSTILE = ("</script><img src=x onerror=\"window.hacked=1\"><b>bold</b>&lt;&amp;<a href=\"http://evil.example/\">a</a>"
           "<svg/onload=window.hacked=1>{{7*7}}${7*7}%{x}" + "long" * 60)
PLOTS = "[...document.querySelectorAll('[data-plot]')]"
# Colours of texts, and of their backgrounds.
_COLOURS = """
  const found = new Set();
  for (const element of document.querySelectorAll("main *, nav *")) {
    const written = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!written || !element.getClientRects().length || element.closest(".modebar")) continue;
    let ground = element;
    while (ground !== document.body && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
    const style = getComputedStyle(element);
    found.add(`${element.closest("svg") ? style.fill : style.color}|${getComputedStyle(ground).backgroundColor}`);
  }
  return [...found].map((pair) => pair.split("|"))"""
# For each numeric axis: its plot, its letter, its type, and the visible labels.
_LABELS = f"""
  return {PLOTS}.flatMap((plot) => ["x", "y", "y2", "y3", "y4"].flatMap((letter) => {{
    const name = letter.replace(/^./, "$&axis");
    const axis = plot._fullLayout[name];
    if (!axis) return [];
    if (!axis.showticklabels || (axis.tickmode === "array" && axis.type !== "log") || (axis.type === "log" && plot.layout.meta.most[name] === 0)) return [];
    return [[plot.dataset.plot, letter, axis.type, [...plot.querySelectorAll(`.${{letter}}tick text`)].map((text) => text.textContent)]];
  }}))"""
# Texts in plots that overlap, or extend beyond the plot's edge.
_MISPLACED = f"""
  return {PLOTS}.flatMap((plot) => {{
    const edge = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")].map((text) => [text.textContent.trim(), text.getBoundingClientRect()]).filter(([text, box]) => text && box.width);
    const over = texts.flatMap(([text, box], at) => texts.slice(0, at).filter(([, other]) => Math.min(box.right, other.right) - Math.max(box.left, other.left) > 1
      && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 2).map(([other]) => [plot.dataset.plot, text, "over", other]));
    const beyond = texts.filter(([, box]) => box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 || box.bottom > edge.bottom + 1);
    return [...over, ...beyond.map(([text]) => [plot.dataset.plot, text, "is cut off"])];
  }})"""

def missing():
    """What is missing for browser tests; empty if nothing is."""
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
        # No sandbox, because tests run as root in containers. No /dev/shm, because it is small there.
        for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
                         f"--window-size={width},{height}", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # With its path given, nothing is searched in the network.
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(120)
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def new_tab(self):
        """Replaces the current tab: a process that has compiled no script yet."""
        self.driver.switch_to.new_window("tab")
        new = self.driver.current_window_handle
        for other in self.driver.window_handles:
            if other != new:
                self.driver.switch_to.window(other)
                self.driver.close()
        self.driver.switch_to.window(new)
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def quit(self):
        self.driver.quit()

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def look(self, width=1280, height=900, dark=False):
        """Sets the screen and the user's preferences, before a page is opened or while one is shown. Smooth scrolling is off, because a
        click goes to the previous position of an element."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                  {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def until(self, condition, seconds=60):
        """Waits until the JavaScript `condition` holds."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def open(self, page):
        """Waits until the plots near the top are drawn. Returns the console's messages, and the network requests."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.resolve().as_uri())
        self.until("['drawn', 'failed'].includes(document.documentElement.dataset.plots)")
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        return console, self.requests()

    def see_every_plot(self):
        """Scrolls to each of them like a reader, and back to the top."""
        self.run(f"""return (async () => {{
          for (const plot of {PLOTS}) {{
            plot.scrollIntoView({{ block: "center", behavior: "instant" }});
            while (plot.dataset.drawn === undefined) await new Promise((resume) => setTimeout(resume, 5));
          }}
          scrollTo({{ top: 0, behavior: "instant" }});
        }})()""")
        self.until("document.documentElement.dataset.plots === 'drawn'")

    def requests(self):
        """Requested addresses since the last call, except for files and the page's own content."""
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                asked.append(message["params"].get("request", message["params"])["url"])
        return [address for address in asked if not address.startswith(("file:", "data:", "blob:", "about:", "chrome:"))]

    def processor_time(self):
        """CPU seconds of the page's main thread since the page was requested, which hardly depend on the machine's load."""
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def png(self):
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


def contrast(first, second):
    """WCAG contrast of two colours rgb(…) or #rrggbb."""
    def luminance(colour):
        found = re.findall(r"\d+", colour) if colour.startswith("rgb") else [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        parts = [int(part) / 255 for part in found]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


class PageCase(unittest.TestCase):
    """`pages`: by name, made by make_pages() once for all tests."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.pages = {}
        cls.shown = None
        cls.make_pages()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.quit)

    def opened(self, name, changed=False, **look):
        """The page as it was made, unless the test modifies it (`changed`)."""
        before, type(self).shown = self.shown, None if changed else (name, look)
        if before == (name, look) and not changed:
            return
        self.browser.look(**look)
        self.assertEqual(self.browser.open(self.pages[name]), ([], []), "what the console says, and what was asked of a network")
        self.assertEqual(self.browser.run("return document.documentElement.dataset.plots"), "drawn")
        self.browser.see_every_plot()

    def element(self, selector):
        return self.browser.run("return document.querySelector(arguments[0])", selector)

    def cells(self, table, column):
        """The texts of a column."""
        return self.browser.run("const at = [...arguments[0].querySelectorAll('th')].findIndex((head) => head.textContent === arguments[1]);"
                                "return [...arguments[0].querySelectorAll('tbody tr')].map((row) => row.children[at].textContent)", table, column)

    def click(self, element):
        from selenium.webdriver.common.action_chains import ActionChains

        self.browser.run("arguments[0].scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'})", element)
        ActionChains(self.browser.driver).move_to_element(element).click().perform()

    def header(self, table, column):
        return self.browser.run("return [...arguments[0].querySelectorAll('th button')].find((button) => button.textContent === arguments[1])", table, column)

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser.driver).send_keys(*keys).perform()

    def every_plot_is_drawn(self, least):
        drawn = self.browser.run(f"return {PLOTS}.map((plot) => [plot.dataset.plot, plot.querySelectorAll('.trace, .bars .point, .heatmaplayer image').length])")
        self.assertGreaterEqual(len(drawn), least)
        self.assertEqual([plot for plot, traces in drawn if traces == 0], [])
        self.assertEqual(self.browser.run(f"return {PLOTS}.filter((plot) => plot.querySelector('.main-svg').clientWidth > plot.clientWidth).length"), 0)

    def every_axis_is_readable(self):
        """At least three labels, except for categorical axes, which have one for each category. No texts overlap, and none is cut off."""
        axes = self.browser.run(_LABELS)
        self.assertTrue(any(kind == "log" for _, _, kind, _ in axes) or not any("roofline" in plot for plot, *_ in axes))
        for plot, axis, kind, texts in axes:
            self.assertGreaterEqual(len(set(texts)), 3, (plot, axis, kind, texts))
        self.assertEqual(self.browser.run(_MISPLACED), [])

    def looks(self, **look):
        """The current page, on another screen."""
        self.browser.run("document.documentElement.dataset.plots = 'old'")
        self.browser.look(**look)
        self.browser.until("document.documentElement.dataset.plots === 'drawn'")
        self.browser.see_every_plot()

    def every_text_is_readable(self):
        found = self.browser.run(_COLOURS)
        self.assertGreater(len(found), 3)
        self.assertEqual([pair for pair in found if contrast(*pair) < 4.5], [])

    def fits_a_phone(self):
        self.assertEqual(self.browser.run("return [document.documentElement.scrollWidth, document.body.scrollWidth]"), [400, 400])
        # Tables scroll by themselves.
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('main table')].filter((table) => !table.closest('.scroll')).length"), 0)

    def nothing_hostile_ran(self):
        self.assertEqual(self.browser.run("return [typeof window.hacked, document.querySelectorAll('img, b, main a[href^=http], .plot a').length]"),
                         ["undefined", 0])
        hovers = self.browser.run(f"return {PLOTS}.flatMap((plot) => plot.data.flatMap((trace) => [trace.hovertext, trace.text, trace.name]).flat()).filter(Boolean)")
        self.assertLessEqual({tag for hover in hovers for tag in re.findall("<[^>]*>", str(hover))}, {"<br>"})
        self.assertTrue(any("&lt;/script&gt;&lt;img" in str(hover) for hover in hovers))


def main():
    if missing():
        print(f"skipped: there is no {missing()}, which scripts/setup.sh installs as root")
        raise SystemExit(77)
    unittest.main()
