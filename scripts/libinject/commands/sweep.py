# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject sweep`: runs a command under libinject for each combination of some values, and plots the results."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from libinject import console, environment, files
from libinject.result import BadFile, printable

if TYPE_CHECKING:
    from libinject.sweep.measured import Measured
    from libinject.sweep.points import Point, Sweep

_INCOMPLETE = 1  # exit status if a point neither succeeded nor ran out of memory
_TIMES = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def sweep(
    context: typer.Context,
    command: list[str] = typer.Argument(None, metavar="-- COMMAND [ARGUMENT]…",
                                        help="The command; {NAME} stands for a variable's value, {{ for a brace."),
    var: list[str] = typer.Option([], "--var", metavar="NAME=VALUES", help="BATCH=1,2,4,…,64 or BATCH=1..64*2 or PREC=fp32,bf16. Repeatable: "
                                  "all combinations are run; the first variable is the x axis."),
    out: pathlib.Path = typer.Option(pathlib.Path("inject-sweep"), "--out", "-o", metavar="SWEEPDIR", parser=console.path,
                                     help="Folder of the sweep. Points already finished there are not run again."),
    batch_var: str = typer.Option(None, "--batch-var", metavar="NAME", help="The variable that holds the number of samples per iteration."),
    timeout_each: str = typer.Option(None, "--timeout-each", metavar="TIME", help="End a run that takes longer: 10m."),
    again: bool = typer.Option(False, "--again", help="Also rerun the points that ran out of memory."),
    report: pathlib.Path = typer.Option(None, "--report", metavar="SWEEPDIR", parser=console.path,
                                         help="Run nothing; redraw the report from the existing results."),
    window: str = typer.Option(None, metavar="WHEN", help="INJECT_WINDOW of each run: when to profile."),
    after: str = typer.Option(None, metavar="ACTION", help="INJECT_AFTER: what happens after the last window: continue, interrupt, exit."),
    timeout: str = typer.Option(None, metavar="TIME", help="INJECT_TIMEOUT: end the last window after this time."),
    metrics: str = typer.Option(None, metavar="METRICS", help="INJECT_METRICS: hardware metrics."),
    trace: str = typer.Option(None, metavar="FORMATS", help="INJECT_TRACE: also write raw records."),
    summary: str = typer.Option(None, metavar="PLACE", help="INJECT_SUMMARY: where the text summary goes; stderr is the point's log."),
    setting: list[str] = typer.Option([], "--set", "-s", metavar="NAME=VALUE", help="Any other libinject variable: RING=64M."),
    as_json: bool = console.Json,
) -> None:
    """Run a command for all combinations of values under libinject, one after the other, and draw step time, throughput, utilization, kernel
    families, GEMM rate and memory over them: SWEEPDIR/sweep.html and sweep.csv."""
    from libinject.page import render
    from libinject.sweep import points, variables

    if report is not None:
        others = [parameter.opts[0] for parameter in context.command.params if parameter.param_type_name == "option" and parameter.name not in ("report", "as_json")
                  and getattr(context.get_parameter_source(str(parameter.name)), "name", "") == "COMMANDLINE"]
        if command or others:
            console.fail(f"--report redraws existing results: it takes no {others[0] if others else 'command'}")
        try:
            _show(_as_it_is(points.read(report)), as_json)
        except BadFile as problem:
            console.fail(printable(str(problem), 500))
        return
    if not command:
        console.fail("no command: inject sweep --var BATCH=1,2,4,8 -- python train.py --batch {BATCH}")
    limit = _time(timeout_each)
    try:
        varied = variables.parse_all(var)
        combinations = variables.combinations(varied)
        variables.fill(command, combinations[0])
    except variables.BadVariable as problem:
        console.fail(str(problem))
    if batch_var is not None and (batch_var not in varied or not all(re.fullmatch(r"[1-9]\d{0,17}", value) for value in varied[batch_var])):
        console.fail(f"--batch-var {printable(batch_var, 40)}: not a variable of this sweep whose values are all positive whole numbers")
    unused = [name for name in varied if name not in variables.used(command)]
    if unused:
        console.fail(f"{{{unused[0]}}} does not occur in the command: all its points would be the same")
    settings = _in_environment(batch_var) | environment.variables({"WINDOW": window, "AFTER": after, "TIMEOUT": timeout, "METRICS": metrics, "TRACE": trace, "SUMMARY": summary},
                                                                      setting)
    for name, option in (("INJECT_OUT", "--out"), ("INJECT_BATCH", "--batch-var")):
        if name in {f"INJECT_{text.partition('=')[0].upper().removeprefix('INJECT_')}" for text in setting}:
            console.fail(f"{name} differs from point to point: use {option}")

    render.require_packages()
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        with points.alone(out) as mine:
            if not mine:
                console.fail(f"another inject sweep runs in '{out}'")
            wanted = points.Sweep(out, command, varied, batch_var, settings, [])
            whole = points.with_points(_what_is_there(wanted), combinations)
            whole.variables = {name: list(dict.fromkeys([*varied[name], *(point.values[name] for point in whole.points)])) for name in varied}
            asked = whole.points[: len(combinations)]
            stop = _Stop()
            with stop.installed():
                interrupted = _run(whole, asked, limit, again)
                stop.waits = True  # for the page of what has been run
                _show(whole, as_json)
    except OSError as error:
        console.fail(f"can't write '{error.filename or out}': {(error.strerror or str(error)).lower()}")
    if interrupted or stop.came:
        raise typer.Exit(130)
    if not all(point.status.finished for point in asked):
        raise typer.Exit(_INCOMPLETE)


def _in_environment(batch_var: str | None) -> dict[str, str]:
    """Variables that each point inherits from the environment, and on which its results depend just like on options."""
    own = {"INJECT_OUT", "INJECT_LOG", "INJECT_LOG_FILE", *(["INJECT_BATCH"] if batch_var is not None else [])}
    return {name: value for name, value in os.environ.items() if name.startswith("INJECT_") and name not in own}


def _as_it_is(sweep: Sweep) -> Sweep:
    """A point that was running when its sweep was killed has been interrupted."""
    from libinject.sweep import points

    with points.alone(sweep.folder) as dead:
        for point in sweep.points:
            if dead and point.status is points.Status.RUNNING:
                point.status, point.why = points.Status.INTERRUPTED, "the sweep was killed"
    return sweep


def _what_is_there(wanted: Sweep) -> Sweep:
    """The existing sweep in that folder, if there is one: it must consist of the same runs."""
    from libinject.sweep import points

    for name in (points.FILE, "sweep.csv", "sweep.html"):
        files.remove_unfinished(wanted.folder / name)
    if not (wanted.folder / points.FILE).exists():
        if any(wanted.folder.iterdir()):
            console.fail(f"'{wanted.folder}' is neither empty nor the folder of a sweep")
        return wanted
    try:
        found = points.read(wanted.folder)
    except BadFile as problem:
        console.fail(printable(str(problem), 500))
    # The library may have moved, and other preloaded libraries have no bearing on the points.
    before, now = ({name: value for name, value in each.settings.items() if name != "LD_PRELOAD"} for each in (found, wanted))
    for what, a, b in (("command", found.command, wanted.command), ("variables", sorted(found.variables), sorted(wanted.variables)),
                       ("--batch-var", found.batch_variable, wanted.batch_variable), ("options", before, now)):
        if a != b:
            console.fail(f"'{wanted.folder}' has a sweep with other {what}: {printable(str(a), 200)}; choose a different --out")
    wanted.points = found.points
    return wanted


class _Stop:
    """Handles signals as Ctrl+C. While `waits`, the first one only sets `came`."""

    def __init__(self) -> None:
        self.waits = self.came = False

    def __call__(self, number: int, frame: object) -> None:
        first, self.came = not self.came, True
        if not (self.waits and first):
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """For all but those that are ignored, as by nohup."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        before = [(number, signal.signal(number, self)) for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


class _Clock:
    """Elapsed and remaining time, from the mean of the points that were run. Redrawn with current values."""

    def __init__(self, points: int):
        self.begin = time.monotonic()
        self.seconds: list[float] = []
        self.left = points
        self.point = ""

    def start(self, point: str) -> None:
        self.point = point
        self.point_begin = time.monotonic()

    def end(self) -> None:
        self.seconds.append(time.monotonic() - self.point_begin)
        self.left -= 1

    def times(self, running: float = 0.0) -> str:
        elapsed = f"{_clock_text(time.monotonic() - self.begin)} elapsed"
        if not self.seconds or self.left <= 0:
            return elapsed
        mean = sum(self.seconds) / len(self.seconds)
        return f"{elapsed}, about {_clock_text(mean * self.left - min(running, mean))} left"

    def __rich__(self) -> str:
        return f"{self.point} … {self.times(time.monotonic() - self.point_begin)}"


def _clock_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02}s" if whole < 3600 else f"{whole // 3600}h{whole // 60 % 60:02}m"


def _run(whole: Sweep, asked: list[Point], limit: float | None, again: bool) -> bool:
    """Runs the unfinished points of those `asked` for. Returns True if it was interrupted."""
    from libinject.sweep import runner
    from libinject.sweep.points import Status

    todo = [point for point in asked if not point.status.finished or (again and point.status is not Status.DONE)]
    if len(todo) < len(asked):
        console.err.print(f"inject: {len(asked) - len(todo)} of {len(asked)} points are finished")
    try:
        for point in whole.points:
            if point.status is Status.RUNNING and (count := runner.end_earlier(whole, point)):
                console.err.print(f"inject: {point.title}: ended what was still running from its last run, {count} process{'' if count == 1 else 'es'}")
        whole.write()
        clock = _Clock(len(todo))
        for number, point in enumerate(todo, 1):
            place = f"[{number}/{len(todo)}] {point.title}"
            clock.start(place)
            try:
                with console.err.status(clock):
                    runner.run_point(whole, point, limit)
            except KeyboardInterrupt:
                clock.left = 0  # nothing follows
                raise
            finally:
                clock.end()
                whole.write()
                seconds = "" if point.seconds is None else f" ({point.seconds:.1f}s)"
                why = f": {printable(point.why, 200)}" if point.why else ""
                console.err.print(f"inject: {place}: {point.status.value}{why}{seconds}; {clock.times()}")
    except KeyboardInterrupt:
        console.err.print("inject: interrupted: run the same command again to continue")
        return True
    return False


def _show(whole: Sweep, as_json: bool) -> None:
    from libinject.sweep import measured, page

    found = measured.measure_all(whole)
    for problem in dict.fromkeys(problem for item in found for problem in item.problems):
        console.warn(problem)
    unwritten = ""
    try:
        files.write_whole(whole.folder / "sweep.csv", measured.as_csv(whole, found))
        files.write_whole(whole.folder / "sweep.html", page.page(whole, found))
    except OSError as error:
        unwritten = f"can't write to '{printable(str(whole.folder), 500)}': {(error.strerror or str(error)).lower()}"
    if as_json:
        console.print_json({"folder": str(whole.folder), "variables": whole.variables, "points": [item.as_dict() for item in found]})
    else:
        _print(whole, found)
    if unwritten:
        console.fail(unwritten)
    console.err.print(f"inject: {printable(str(whole.folder / 'sweep.html'), 500)}, sweep.csv")


def _print(whole: Sweep, found: list[Measured]) -> None:
    import rich.box
    import rich.console
    from rich.table import Table
    from rich.text import Text

    from libinject.sweep.page import table_row

    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for name in whole.variables:
        table.add_column(Text(printable(name, 40)), justify="right", overflow="ellipsis")
    for header in ("Step time", "Samples/s", "GPU util.", "Occup.", "TFLOP/s", "Peak mem."):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("Status", overflow="ellipsis")
    for item in found:
        row = table_row(whole, item)
        status = row["status"] if row["good"] else f"{row['status']}: {row['why']}" if row["why"] else row["status"]
        table.add_row(*(Text(value) for value in row["values"]), *(text for _, text in row["cells"]),
                      Text(status + (f"; {row['verdict']}" if row["verdict"] else "")), style="" if row["good"] else "red")
    rich.console.Console(highlight=False, markup=False, emoji=False, width=console.width()).print(table)


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    form = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if form is None or float(form[1]) <= 0:
        console.fail(f"--timeout-each '{printable(text, 40)}': not a time; accepted: 90s, 10m, 2h and the like")
    return float(form[1]) * _TIMES[form[2]]


def add_to(app: typer.Typer) -> None:
    app.command(name="sweep", short_help="Run a command for all combinations of some values.", context_settings={"allow_interspersed_args": False})(sweep)
