# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The pages of `inject compare`, `sweep` and `merge` in a headless Chromium, for folders whose names try to be HTML: drawn, offline,
sorted, searched, dark, narrow, and harmless. What all pages have in common is tested with that of `inject report` (test_report_page.py)."""

import json

import folders
import ranks
from browser import HOSTILE, PageCase, main
from libinject.cli import app
from typer.testing import CliRunner

MS = 1_000_000


def run_of(folder, step, kernels, **fields):
    """Twelve iterations of `step` ns, give or take 1 %; kernels: {name: ns in each}."""
    folders.write_run(folder, host=HOSTILE, devices=[{"id": 0, "name": HOSTILE}], diagnosis=[{"device": 0, "verdict": HOSTILE}], **fields)
    steps = [int(step * (1 + 0.01 * (at % 3 - 1))) for at in range(12)]
    folders.write_table(folder, "iteration_sum", [
        {"Window": 1, "Iteration": at, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": 2 * step * at, "Duration (ns)": time,
         "Kernels": len(kernels), "Kernel Time (ns)": sum(kernels.values()), "GPU Utilization (%)": 90.0} for at, time in enumerate(steps)])
    folders.write_table(folder, "window_sum", [{"Window": 1, "Device": "all", "Duration (ns)": sum(steps), "Kernels": 12 * len(kernels),
                                               "Device Time (ns)": sum(steps), "Kernel Busy (ns)": int(0.9 * sum(steps))}])
    for table in ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum"):
        folders.write_table(folder, table, [{"Name": name, "Total Time (ns)": 12 * time, "Instances": 12, "StdDev (ns)": 20.0}
                                            for name, time in kernels.items()])
    folders.write_table(folder, "family_sum", [{"Family": name, "Total Time (ns)": 12 * time, "Instances": 12} for name, time in kernels.items()])
    return folder


def kernels_of(factor):
    """Some take `factor` times as long: every third one, and the one with the hostile name."""
    return {HOSTILE: int(90_000 * factor), **{f"kernel_{at}": int(1000 * (at + 1) * (factor if at % 3 == 0 else 1)) for at in range(30)}}


class Pages(PageCase):
    @classmethod
    def make_pages(cls):
        a = run_of(cls.folder / "a", 2 * MS, kernels_of(1.0))
        b = run_of(cls.folder / "<b>b", 3 * MS, kernels_of(1.5), options={HOSTILE: HOSTILE}, lost={HOSTILE: 2})
        sweep = cls.folder / "sweep"
        ends = ["done", "done", "out of memory"]
        points = [{"values": {HOSTILE: batch, "P": precision}, "folder": f"{precision == HOSTILE}{batch}", "status": status, "why": "" if status == "done" else HOSTILE,
                   "exit_status": 0, "seconds": 1} for precision in ("fp32", HOSTILE) for batch, status in zip(("1", "8", "64"), ends, strict=True)]
        for point in points:
            run_of(sweep / point["folder"] / "tables", MS * int(point["values"][HOSTILE]), kernels_of(1.0))
        (sweep / "points.json").write_text(json.dumps({
            "inject_sweep": 1, "command": ["train", HOSTILE], "variables": {HOSTILE: ["1", "8", "64"], "P": ["fp32", HOSTILE]},
            "batch_variable": None, "settings": {}, "points": points}))
        for count in (4, 8):
            ranks.write_job(cls.folder / f"job{count}<b>", count, slow={3: 1.1}, batch=8, host=HOSTILE, link=60.0, verdict=HOSTILE, command_line=[HOSTILE],
                            nccl=[ranks.collective(20, MS, [5000] * 20, world=count, bytes=1 << size) for size in range(20, 26)])
        cls.pages = {"compare": cls.folder / "c.html", "sweep": sweep / "sweep.html", "merge": cls.folder / "m.html"}
        for arguments in (("compare", a, b, "-o", cls.pages["compare"]), ("sweep", "--report", sweep),
                          ("merge", cls.folder / "job4<b>", cls.folder / "job8<b>", "-o", cls.pages["merge"])):
            done = CliRunner().invoke(app, [str(argument) for argument in arguments])
            if done.exit_code:
                raise RuntimeError(done.output) from done.exception

    def sorted_and_searched(self, selector, column, ascending, words, left):
        """By mouse and by keyboard: `ascending` is the column in order, and `words` are searched for."""
        from selenium.webdriver.common.keys import Keys

        table = self.element(selector)
        more = self.browser.run("const more = arguments[0].querySelector('.more'); return more.hidden ? null : more", table)
        if more:
            self.click(more)
        empty = [""] * (len(self.cells(table, column)) - len(ascending))  # come last in either order
        self.click(self.header(table, column))
        self.assertEqual(self.cells(table, column), ascending[::-1] + empty)
        self.click(self.header(table, column))
        self.assertEqual(self.cells(table, column), ascending + empty)
        self.press(Keys.SPACE)
        self.assertEqual(self.cells(table, column), ascending[::-1] + empty)
        self.browser.run("arguments[0].querySelector('input').focus()", table)
        self.press(words, Keys.TAB, Keys.TAB)
        self.assertTrue(self.browser.run("return arguments[0].contains(document.activeElement)", table), "from the field on into the table")
        self.assertEqual(self.cells(table, column), left)

    def dark_and_narrow(self):
        self.every_text_is_readable()
        self.looks(dark=True)
        self.every_text_is_readable()
        self.looks(width=400, height=850, dark=True)
        self.fits_a_phone()
        self.nothing_hostile_ran()

    def test_compare(self):
        self.opened("compare", changed=True)
        self.every_plot_is_drawn(3)
        self.nothing_hostile_ran()
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.headline, .alert')].map((part) => part.innerText)"),
                         ["Step time 2.000ms → 3.000ms: +50.0%, slower", f"<b>b: lost: 2 {HOSTILE.replace('_', ' ')}"])
        bars = self.browser.run("const [bars] = document.querySelector('#run-0-kernels .plot').data; return [bars.x, bars.marker.color]")
        self.assertEqual([round(1000 * change) for change in bars[0]], [45_000, *range(14_000, 0, -1500)])
        self.assertEqual(set(bars[1]), {"#ad3306"}, "all take longer")
        self.assertEqual(self.browser.run("return document.querySelector('#run-0-steps .plot, #run-0-run .plot').data.map((line) => [line.name, line.y.length])"),
                         [["A: a", 12], ["B: &lt;b&gt;b", 12]])
        # By the value, not by its text; a difference within noise is not a change.
        changes = [f"+{change:.3f}us" if change >= 1 else f"+{1000 * change:.0f}ns" for change in (0, *(0.5 + 1.5 * at for at in range(10)), 45)]
        changes = ["0ns"] * 20 + changes[1:]
        self.sorted_and_searched("#run-0-kernels-kernels", "Change", changes, "KERNEL_3 more", ["+2.000us"])
        self.dark_and_narrow()

    def test_sweep(self):
        self.opened("sweep", changed=True)
        self.every_plot_is_drawn(4)
        self.nothing_hostile_ran()
        lines = self.browser.run("return document.querySelector('[data-plot]').data.map((line) => [line.x, line.y, line.mode])")
        self.assertEqual(lines, [[[1, 8, 64], [1, 8, None], "lines+markers"], [[64], [0], "markers"]] * 2)
        self.assertEqual(self.browser.run("const axis = document.querySelector('[data-plot]').layout.xaxis; return [axis.type, axis.tickvals, axis.ticktext]"),
                         ["log", [1, 8, 64], ["1", "8", "64"]])
        self.sorted_and_searched("#run-0-points-points", "Step time", ["1.000ms", "1.000ms", "8.000ms", "8.000ms"], "fp32 done", ["8.000ms", "1.000ms"])
        self.dark_and_narrow()

    def test_merge(self):
        self.opened("merge", changed=True)
        self.every_plot_is_drawn(7)
        self.nothing_hostile_ran()
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.headline')].map((part) => part.innerText)"), ["Straggler: rank 3"] * 2)
        heat = self.browser.run("const [heat] = document.querySelector('#run-2-ranks .plot').data;"
                                "return [heat.customdata[0].map(([iteration]) => iteration), heat.customdata.map(([[, rank]]) => rank), heat.z]")
        self.assertEqual((heat[:2], len(heat[2]), len(heat[2][0])), ([list(range(100, 120)), list(range(8))], 8, 20))
        self.assertEqual(max(range(8), key=lambda rank: heat[2][rank][10]), 3)
        self.assertEqual(self.browser.run("return document.querySelectorAll('#run-2-ranks .errorbar').length"), 8)
        self.sorted_and_searched("#run-2-collectives-operations", "Bytes", ["1.049MB", "2.097MB", "4.194MB", "8.389MB", "16.777MB", "33.554MB"], "16.7", ["16.777MB"])
        self.dark_and_narrow()


if __name__ == "__main__":
    main()
