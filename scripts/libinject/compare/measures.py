# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The figures of a run that can be compared with another run's: per iteration if both runs have iterations, each with its error."""

from __future__ import annotations

import dataclasses
import enum
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from libinject import figures
from libinject.compare import noise
from libinject.result import OTHERS, Result, Row, Table

# Time stamps of kernels come in steps of 32 ns on some GPUs: the deviation that alone makes.
_STEP = 32 / math.sqrt(12)
_WHOLE = 0.9  # of the windows' time: where iterations have less, their spread is not that of the windows
_ROUNDED, _ROUNDED_METRIC = 0.05, 0.005  # by how much percentages of one decimal, and those of hardware metrics, may be off
_UNGROUPED = 10  # observations that a row has at most where nothing says what belongs to one iteration


class Basis(enum.Enum):
    """What totals are divided by."""

    ITERATION = "iteration"
    SECOND = "second"
    RUN = "run"

    @property
    def per(self) -> str:
        return {"iteration": "per iteration", "second": "per second of window", "run": "in total"}[self.value]


@dataclasses.dataclass(frozen=True)
class Measure:
    """A figure. `error` is its standard error by the spread within the run, of `freedom` degrees; None where that is not known. Then the
    spread between runs may do instead, `if_repeated`.
    `series` has the values of single iterations (or windows), where `value` is their median."""

    value: float
    error: float | None = None
    freedom: float = 0.0
    count: float | None = None  # instances, per the same unit as `value`
    series: tuple[float, ...] = ()
    if_repeated: bool = False
    rounding: float = 0.0  # the true value may be off by so much, however alike the values are


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str  # ns, %, MB, B, TFLOP/s, 1/s, J, W, MHz or none
    better: int = -1  # 1: more is better, -1: less is, 0: neither
    kind: str = ""  # of the breakdown that it comes from


METRICS = (
    Metric("step_time", "Step time", "ns"),
    Metric("window_step_time", "Step time in windows", "ns", 0),
    Metric("throughput", "Samples per second", "1/s", 1),
    Metric("unit_rate", "Units of work per second", "1/s", 1),
    Metric("utilization", "GPU utilization", "%", 1),
    Metric("kernel_time", "Kernel time", "ns"),
    Metric("gpu_busy", "GPU busy", "ns"),
    Metric("idle_time", "GPU idle", "ns"),
    Metric("gemm_time", "GEMM calls", "ns", kind="gemm"),
    Metric("gemm_rate", "GEMM rate", "TFLOP/s", 1, "gemm"),
    Metric("conv_time", "Convolution calls", "ns", kind="conv"),
    Metric("attention_time", "Attention calls", "ns", kind="attention"),
    Metric("rnn_time", "RNN calls", "ns", kind="rnn"),
    Metric("collective_time", "NCCL calls", "ns", kind="nccl"),
    Metric("flop_rate", "Library calls' rate", "TFLOP/s", 1, "library"),
    Metric("copies", "Copy time", "ns"),
    Metric("copy_size", "Copied", "MB"),
    Metric("launches", "Launches", ""),
    Metric("kernels", "Kernels", ""),
    Metric("peak_memory", "Peak allocated memory", "MB", kind="memory"),
    # Only with PyTorch's caching allocator.
    Metric("torch_reserved", "Peak reserved by PyTorch", "MB"),
    # Only where PyTorch was asked.
    Metric("torch_peak", "Peak of PyTorch's tensors", "B", kind="purposes"),
    Metric("activations", "Activations at that peak", "B", kind="purposes"),
    # Only where NVML tells.
    Metric("memory_in_use", "Peak memory in use", "MB"),
    Metric("energy", "Energy", "J"),
    Metric("energy_per_sample", "Energy per sample", "J"),
    Metric("energy_per_unit", "Energy per unit of work", "J"),
    Metric("power", "Power", "W", 0),
    Metric("sm_clock", "SM clock", "MHz", 0),
    Metric("processors", "Processors used", "", 0),
    Metric("processors_wanted", "Processors wanted", "", 0),
    # Only with INJECT_METRICS.
    Metric("sm_active", "SM active", "%", 1),
    Metric("occupancy", "Achieved occupancy", "%", 1),
    Metric("tensor_pipe", "Tensor pipe", "%", 0),
    Metric("dram_read", "DRAM read", "%", 0),
    Metric("dram_write", "DRAM write", "%", 0),
)
METRIC_OF = {metric.name: metric for metric in METRICS}


# What INJECT_HOOKS and INJECT_API may leave out.
_LIBRARIES, _NAMES = ("cublas", "cublaslt", "cudnn", "nccl"), ("torch", "python")
_API = {"off": (), "cuda": ("API calls",), "full": ("API calls", "driver calls")}
_CALLS = ("cudart", *_API["full"])
_ALL = ("cudart", *_LIBRARIES, *_NAMES)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A breakdown: rows by name."""

    name: str
    title: str
    unit: str = "ns"
    prefix: str = ""  # prefix in conditions: kernel:NAME
    needs: tuple[str, ...] = ()  # what it is made of that may not be recorded
    named: bool = False  # by what is asked after a window: of windows that nothing was asked after, all is UNNAMED


UNNAMED = "[unattributed]"
KINDS = (
    Kind("kernels", "Kernels", prefix="kernel"),
    Kind("gemm", "Matrix products by shape", prefix="gemm", needs=_LIBRARIES),
    Kind("conv", "Convolutions by shape", prefix="conv", needs=_LIBRARIES),
    Kind("attention", "Attention by shape", prefix="attention", needs=_LIBRARIES),
    Kind("rnn", "RNN layers by shape", prefix="rnn", needs=_LIBRARIES),
    Kind("nccl", "Collectives by size", prefix="nccl", needs=("nccl",)),
    Kind("families", "Kernel families", prefix="family", needs=_LIBRARIES),
    Kind("phases", "Phases (kernel time)", prefix="phase"),
    Kind("modules", "Modules (time of the kernels that they launch themselves)", prefix="module", needs=_NAMES, named=True),
    Kind("functions", "Functions of the program (kernel time)", prefix="function", needs=_NAMES, named=True),
    Kind("operators", "Operators (time of the kernels that they launch themselves)", prefix="op", needs=_NAMES, named=True),
    Kind("library", "Library calls (GPU time, with the calls inside)", prefix="library", needs=_LIBRARIES),
    Kind("library_host", "Library calls (host time)", prefix="library_host", needs=_LIBRARIES),
    Kind("nvtx", "NVTX ranges (host time)", prefix="nvtx"),
    Kind("nvtx_gpu", "NVTX ranges (time of their kernels)", prefix="nvtx_gpu"),
    Kind("api", "API calls (host time)", prefix="api", needs=_CALLS),
    Kind("copies", "Copies and memsets", prefix="copy"),
    Kind("idle", "GPU idle by cause", prefix="idle", needs=(*_CALLS, *_LIBRARIES)),
    Kind("gaps", "GPU idle by function of the program that it waited for", prefix="gap", needs=(*_CALLS, *_LIBRARIES, *_NAMES), named=True),
    Kind("memory", "Peak of allocations", "MB", "memory", ("cudart",)),
    Kind("purposes", "PyTorch's memory by purpose", "B", "purpose", (*_NAMES, "nccl")),
    Kind("processors", "Processor time by role", prefix="host"),
)
_OF_HOST = ("library_host", "nvtx", "api", "memory", "purposes", "processors")

_SERIES = (("kernel_time", "Kernel Time (ns)"), ("gpu_busy", "GPU Busy (ns)"), ("copies", "Copy Time (ns)"),
           ("copy_size", "Copy Size (MB)"), ("launches", "Launches"), ("kernels", "Kernels"), ("flop_rate", "TFLOP/s"))
_HARDWARE = (("sm_active", "SM Active (%)"), ("occupancy", "Occupancy (%)"), ("tensor_pipe", "Tensor Pipe (%)"), ("dram_read", "DRAM Read (%)"),
             ("dram_write", "DRAM Write (%)"))
# Of windows; those with a factor are divided by the window's time.
_WINDOW_SERIES = (("kernel_time", "Kernel Time (ns)", True),
                  ("gpu_busy", "GPU Busy (ns)", True), ("copies", "Copy Time (ns)", True), ("copy_size", "Copy Size (MB)", True),
                  ("launches", "Submissions", True), ("kernels", "Kernels", True), ("flop_rate", "TFLOP/s", False))


def number(row: Row, column: str) -> float:
    value = row.get(column)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _series(rows: list[Row], column: str) -> tuple[float, ...]:
    return tuple(figures.numbers(rows, column))


def _total(rows: list[Row], column: str) -> float:
    return math.fsum(_series(rows, column))


def of_series(series: tuple[float, ...]) -> Measure:
    found = noise.median_with_error(series)
    if found is None:
        return Measure(statistics.median(series), series=series)
    return Measure(*found, series=series)


def _rate(work: float, time: Measure) -> Measure:
    """Work by its time: their relative errors are the same."""
    rate = work / time.value
    return Measure(rate, None if time.error is None else rate * time.error / time.value, time.freedom, series=tuple(work / each for each in time.series))


@dataclasses.dataclass(frozen=True)
class Shape:
    """What is asked of a library, without the call and the types by which it is."""

    size: str
    call: str
    types: tuple[str, ...]

    @classmethod
    def of(cls, row: Row, keys: list[str]) -> Shape:
        types = [key for key in keys if key.startswith("Type") or key.endswith(" Type")]
        size = {key: value for key, value in row.items() if key != "API" and key not in types}
        return cls(_shape_name(size, [key for key in keys if key in size]), str(row.get("API") or ""), tuple(str(row.get(key) or "") for key in types))

    def to(self, other: Shape) -> str:
        """The name of a row that was this shape and is now the other."""
        types = (_from_to(a, b) for a, b in zip(self.types, other.types))
        return " ".join(filter(None, (_from_to(self.call, other.call), self.size, ", ".join(filter(None, dict.fromkeys(types))))))


@dataclasses.dataclass(frozen=True)
class _Common:
    """How iterations differ as a whole: relative deviation, by what factor correlation inflates its mean's variance, and that mean's error with
    its degrees of freedom."""

    deviation: float
    inflation: float
    error: float
    freedom: float

    @classmethod
    def of(cls, series: Sequence[float]) -> _Common | None:
        mean = math.fsum(series) / len(series)
        if mean <= 0:
            return None
        deviation, (error, freedom) = noise.deviation(series), noise.error_of_mean(series)
        inflation = error * error * len(series) / (deviation * deviation) if deviation > 0 else 1.0
        return cls(deviation / mean, max(1.0, inflation), error / mean, freedom)

    def inflation_of(self, relative: float) -> float:
        """Of what deviates so much: as far as it is by as much as all do."""
        share = min(1.0, (self.deviation / relative) ** 2) if relative > 0 else 0.0
        return 1 + share * (self.inflation - 1)


class Lacking(Exception):
    """A kind's rows are not known. `str()` says why."""


class Run:
    """A folder's figures. `notes` has caveats for the reader, one per line."""

    def __init__(self, result: Result):
        self.result = result
        self.notes: list[str] = []
        rows = [row for row in result.rows("iteration_sum", "Device", "Label", "Complete", "Duration (ns)") if row["Device"] == "all"]
        self._iterations = [row for row in rows if row.get("Window") != OTHERS]
        self._older = [row for row in rows if row.get("Window") == OTHERS]
        self.complete = figures.complete_iterations(result)
        self.steps = figures.unprofiled_steps(result)
        self.windows = figures.windows(result)
        self.iterations = self._count_iterations()
        self.seconds = _total(self.windows, "Duration (ns)") / 1e9
        self.metrics: dict[str, Measure] = {}
        self.tables: dict[str, dict[str, Measure]] = {}
        self.lacking: dict[str, str] = {}  # why the tables are empty whose rows are not known
        self.shapes: dict[str, Shape] = {}  # of the tables' rows that have one, by name

    @property
    def unit(self) -> tuple[str, str]:
        """What says of the units of work, and by which name."""
        return figures.unit_source(self.result), str(self.result.run["options"].get("INJECT_BATCH", ""))

    def bases(self) -> list[Basis]:
        """What its totals can be divided by, in order of preference."""
        usable = [Basis.RUN]
        if self.seconds > 0:
            usable.insert(0, Basis.SECOND)
        if self.complete and (not self._has_kernels() or _total(self.complete, "Kernels") > 0):
            usable.insert(0, Basis.ITERATION)
        return usable

    def work(self) -> tuple[float, float]:
        """How much was done in all windows: kernels, and all submissions."""
        return _total(self.windows, "Kernels"), _total(self.windows, "Submissions")

    def measure(self, basis: Basis, unprofiled: bool, same_work: bool = False) -> None:
        """`unprofiled`: step times are those of the iterations that ran without CUPTI. `same_work`: the runs that it is compared with did
        exactly as much in their windows."""
        self.basis = basis
        self.unprofiled = unprofiled
        self._cuts = 0
        self._cut_deviation = 0.0
        # Whether what runs once in an iteration does so in each.
        self._regular = len(set(_series(self.complete, "Kernels"))) <= 1
        self._same_work = same_work
        if basis is Basis.ITERATION:
            self.divisor = self._iterations_worth()
            self.observations = self.iterations
        elif basis is Basis.SECOND:
            self.divisor, self.observations = self.seconds, _UNGROUPED
        else:
            self.divisor, self.observations = 1.0, _UNGROUPED
        self._divided_by = "iteration_sum" if basis is Basis.ITERATION else "window_sum"
        self._measure_metrics()
        series = _series(self.complete, "Kernel Time (ns)")
        self._of_kernels = self._common(series)
        # Of the kernels' total time, from its variation between iterations: one kernel's time varies no more.
        self._most_error = (math.inf, 0.0)
        if (common := self._of_kernels) is not None:
            self._most_error = common.error * math.fsum(series) / len(series) * self.divisor, common.freedom
        step = self.metrics.get("window_step_time" if self.unprofiled else "step_time")
        self._of_host = self._common(step.series if step is not None else ())
        self.tables, self.lacking = {}, {}
        self._read("kernels", self._kernels)
        # Where a table says nothing of spread: as much as the kernels have on average, as if all rose and fell together.
        kernels = self.tables["kernels"]
        known = [m for m in kernels.values() if m.error is not None]
        time = math.fsum(m.value for m in known)
        most = time > 0 and time >= 0.5 * math.fsum(m.value for m in kernels.values())
        self._typical = None
        if most and self.observations >= 3:
            whole = together(known)
            self._typical = (whole.error or 0.0) / time, whole.freedom
        for name in ("gemm", "conv", "attention", "rnn", "nccl"):
            self._read(name, self._shapes, f"{name}_sum")
        for name, table, key, time_column, count in (
                ("families", "family_sum", "Family", "Total Time (ns)", "Instances"), ("phases", "phase_sum", "Phase", "Kernel Time (ns)", "Kernels"),
                ("modules", "module_sum", "Module", "Self Time (ns)", "Self Instances"), ("operators", "op_sum", "Operator", "Self Time (ns)", "Self Instances"),
                ("nvtx_gpu", "nvtx_kern_sum", "NVTX Range", "Total Time (ns)", "Kern Inst")):
            self._read(name, self._sums, table, key, time_column, count)
        for name, table, key, count in (("nvtx", "nvtx_sum", "Range", "Instances"), ("api", "cuda_api_sum", "Name", "Num Calls")):
            self._read(name, self._spread, table, key, count)
        for name, read in (("functions", self._functions), ("library", self._library), ("library_host", self._library_host), ("copies", self._copies),
                           ("idle", self._idle), ("gaps", self._gaps), ("memory", self._memory), ("purposes", self._purposes),
                           ("processors", self._processors)):
            self._read(name, read)
        self._measure_tables()

    def _read(self, kind: str, read: Callable[..., dict[str, Measure]], *arguments: str) -> None:
        try:
            if kind not in _OF_HOST and any("Kernels" in row and row["Kernels"] is None for row in self.windows):
                raise Lacking("there are windows without records of GPU work")
            self.tables[kind] = read(*arguments)
        except Lacking as why:
            self.tables[kind], self.lacking[kind] = {}, str(why)

    def _rows(self, table: str, *needed: str, divided: bool = True) -> list[Row]:
        """What is not there is not known to be nothing. `divided`: the rows are totals."""
        rows, found = self.result.rows(table, *needed), self.result.table(table)
        if found is None or not {*needed} <= {*found.columns}:
            raise Lacking(f"{table}.csv is missing, or can't be used")
        old = self._stale(table, *([self._divided_by] if divided else []))
        if old:
            raise Lacking(f"{old[0]}.csv is older than other tables")
        return rows

    def _stale(self, *tables: str) -> list[str]:
        """Those older than others."""
        return [table for table in tables if f"{table}.csv" in self.result.stale]

    def recorded(self) -> set[str]:
        """What INJECT_HOOKS and INJECT_API let be recorded, in the words of `Kind.needs`."""
        options = self.result.run["options"]
        hooks = [each.strip() for each in str(options.get("INJECT_HOOKS", "all")).split(",")]
        return {*(_ALL if "all" in hooks else hooks), *_API.get(str(options.get("INJECT_API")), _API["cuda"])}

    # What totals are divided by

    def _has_kernels(self) -> bool:
        return _total(self.windows, "Kernels") > 0

    def _count_iterations(self) -> int:
        """How many complete iterations the windows had. Of more than 10,000 rows the older ones are one row, which does not say: the windows
        do. Where not all of these have a row, the older iterations are taken to be like the others, by their kernels."""
        count = len(self.complete)
        if not self._older:
            return count
        known = figures.numbers([row for row in self.windows if row.get("Window") != OTHERS], "Iterations")
        if known and len(known) == len(self.windows):
            return max(count, round(math.fsum(known)))
        latest = _total(self._iterations, "Kernels")
        return count + round(count * _total(self._older, "Kernels") / latest) if latest > 0 else count

    def _iterations_worth(self) -> float:
        """The number of complete iterations, plus what the windows' edges cut off, by its share of a complete iteration's kernels."""
        count = len(self.complete)
        each = _total(self.complete, "Kernels") / count
        if each <= 0:
            return self.iterations
        cut = [row for row in self._iterations if row["Label"] == "outside" or (row["Label"] == "iteration" and row["Complete"] != 1)]
        parts = [number(row, "Kernels") / each for row in cut]
        parts = [part for part in parts if part > 0]
        # How many the older rows have is not known: as many as the others.
        all_by_latest = self.iterations / count
        # A kernel that comes once is in such a part whole, or not at all.
        self._cuts = round(len(parts) * all_by_latest)
        self._cut_deviation = 0.5 * math.sqrt(self._cuts)
        phases = [row for row in self._iterations if row["Label"] in ("validation", "checkpoint")]
        share = _total(phases, "Kernel Time (ns)") / max(1.0, _total(self._iterations, "Kernel Time (ns)"))
        if share >= 0.01:
            self.notes.append(f"{share:.0%} of the kernels' time is in validation or checkpoints: the tables include it, iterations do not")
        if math.fsum(parts) > 0.05 * count:
            self.notes.append("iterations that a window's edge cut, or of which records were lost, count by their kernels: "
                              f"{self.iterations} complete, and parts worth {math.fsum(parts) * all_by_latest:.1f}")
        return self.iterations + math.fsum(parts) * all_by_latest

    # Figures of the whole run

    def _measure_metrics(self) -> None:
        if self.basis is Basis.ITERATION:
            found = {name: _series(self.complete, column) for name, column in (*_SERIES, *_HARDWARE)}
            # Rates that can't be are left out, the highest ones: a median of the rest would be too low.
            if any(number(row, "FLOPs") > 0 and row.get("TFLOP/s") is None for row in self.complete):
                found["flop_rate"] = ()
            found["window_step_time" if self.unprofiled else "step_time"] = tuple(figures.window_step_times(self.result))
        else:
            found = {}
            for name, column, over_time in (*_WINDOW_SERIES, *((name, column, False) for name, column in _HARDWARE)):
                if over_time and self.basis is Basis.RUN:
                    values = _series(self.windows, column)
                    found[name] = (math.fsum(values),) if values and len(values) == len(self.windows) else ()
                elif over_time:
                    found[name] = tuple(number(row, column) / (number(row, "Duration (ns)") / 1e9) for row in self.windows
                                        if number(row, "Duration (ns)") > 0 and figures.numbers([row], column))
                else:
                    found[name] = _series(self.windows, column)
        if self.unprofiled:
            found["step_time"] = tuple(figures.unprofiled_step_times(self.result))
        self.metrics = {name: of_series(series) for name, series in found.items() if series}
        for name, _ in _HARDWARE:
            if name in self.metrics:
                self.metrics[name] = dataclasses.replace(self.metrics[name], rounding=_ROUNDED_METRIC)
        batch = figures.stated_batch(self.result.run["options"])
        if batch and (step := self.metrics.get("step_time")) is not None:
            self.metrics["throughput"] = _rate(batch * 1e9, step)
        self._measure_units()
        utilization = figures.utilization(self.result)
        if utilization is not None:
            self.metrics["utilization"] = self._utilization(utilization)
        if "flop_rate" in self.metrics and not any(self.metrics["flop_rate"].series):
            del self.metrics["flop_rate"]

    def with_units(self) -> list[Row]:
        """The iterations that a step time is of, as far as their units of work are known."""
        steps = figures.with_units(self.result.rows("step_times") if self.unprofiled else self.complete)
        return steps if not self.unprofiled or len(steps) >= figures.FEWEST_STEPS else []

    def _measure_units(self) -> None:
        rows = self.with_units()
        rate = figures.unit_rate(rows)
        # Where the user states how many each iteration has, they are the samples.
        if rate is None or figures.unit_source(self.result) == "stated":
            return
        # Of a ratio of means, by what each iteration is above or below it.
        beyond = [number(row, "Units") - rate * number(row, "Duration (ns)") / 1e9 for row in rows]
        time = _total(rows, "Duration (ns)") / 1e9
        error = noise.deviation(beyond) * math.sqrt(len(rows) * noise.inflation(noise.blocks(beyond))) / time if len(rows) >= 3 else None
        self.metrics["unit_rate"] = Measure(rate, error, len(rows) - 1)

    def _utilization(self, value: float) -> Measure:
        """Of the windows; what it would be in other windows is told by how the iterations differ, if these fill the windows."""
        series = _series(self.complete, "GPU Utilization (%)")
        if len(series) < 3 or _total(self.complete, "Duration (ns)") < _WHOLE * _total(self.windows, "Duration (ns)"):
            return Measure(value)
        # The column has a single decimal: where it is small, its spread is lost in that. The value itself is not rounded.
        error, freedom = noise.error_of_mean(series)
        return Measure(value, error, freedom, rounding=_ROUNDED)

    def _measure_tables(self) -> None:
        for metric, kind in (("gemm_time", "gemm"), ("conv_time", "conv"), ("attention_time", "attention"), ("rnn_time", "rnn"),
                             ("collective_time", "nccl")):
            if self.tables[kind]:
                self.metrics[metric] = together(self.tables[kind].values())
        if self.tables["idle"]:
            self.metrics["idle_time"] = self._host_error(math.fsum(m.value for m in self.tables["idle"].values()))
        rate = figures.mean([row for row in self.result.rows("gemm_sum", "TFLOP/s", "GPU Time (ns)") if number(row, "TFLOP/s") > 0 and not row.get("Derived")], "TFLOP/s", "GPU Time (ns)")
        if rate is not None:
            part = together(self.tables["gemm"].values())
            error = None if part.error is None or part.value <= 0 else rate * part.error / part.value
            self.metrics["gemm_rate"] = Measure(rate, error, part.freedom)
        peaks = [m.value for name, m in self.tables["memory"].items() if not name.startswith("host")]
        if peaks:
            self.metrics["peak_memory"] = Measure(max(peaks), 0.0, 1)
        if (reserved := figures.torch_reserved(self.result)) is not None and not self._stale("memory_timeline"):
            self.metrics["torch_reserved"] = Measure(reserved, 0.0, 1)
        for of_most in figures.memory_purposes(self.result)[:1]:
            for name, size in (("torch_peak", of_most.peak), ("activations", of_most.activations)):
                if size is not None:
                    self.metrics[name] = Measure(size, 0.0, 1)
        host = figures.processors(self.result)
        in_use = None if self._stale("memory_timeline", "window_sum") else figures.memory_in_use(self.result)
        # Of readings: how far they may be off is not known.
        for name, value in (("memory_in_use", in_use), ("processors", host.used), ("processors_wanted", host.wanted)):
            if value is not None:
                self.metrics[name] = Measure(value)
        self._measure_energy()

    def _measure_energy(self) -> None:
        energy, clock = figures.energy(self.result), figures.clock(self.result)
        if clock is not None:
            self.metrics["sm_clock"] = Measure(clock)
        if energy is None or energy.seconds <= 0:
            return
        # A longer iteration takes more, and where the GPU waits in it, at less power. Where the steps' spread is not known, the meter's error
        # alone would make the spread between windows a change.
        error: float | None = None
        freedom = 0.0
        if self.basis is Basis.ITERATION and (spread := self._spread_of_steps()) is not None:
            relative, freedom = spread
            # What is within the stated error is as likely anywhere in it.
            error = math.hypot(energy.error / math.sqrt(3), energy.joules * relative)

        def with_error(value: float) -> Measure:
            return Measure(value, None if error is None or energy.joules <= 0 else value * error / energy.joules, freedom, if_repeated=True)

        self.metrics["power"] = with_error(energy.joules / energy.seconds)
        # A part of the windows is no total, nor is what was used up to a window's end where the work went on.
        iterations_done = self.basis is not Basis.ITERATION or not figures.may_outlast(self.result)
        if energy.whole and iterations_done and not self._stale("energy_sum", self._divided_by):
            self.metrics["energy"] = with_error(energy.joules / self.divisor)
        for name, of in (("energy_per_sample", "Sample"), ("energy_per_unit", "Unit")):
            if (each := figures.joules_per(of, self.result)) is not None and energy.joules > 0:
                self.metrics[name] = with_error(each)

    # Tables

    def _row(self, total: float, count: float, error: float | None, freedom: float, of_kernels: bool = True) -> Measure:
        """`error` is the total's; the uncertainty of how often a row occurs is added."""
        if error is not None:
            deviation = math.sqrt(max(0.0, count))  # as if at random
            if self.basis is not Basis.ITERATION:
                if 0 < count < 3:
                    error = None
                elif not self._same_work:
                    spread, freedom = self._spread_of_windows()
                    error = None if spread is None else math.hypot(error, total * spread, total / count * deviation if count > 0 else 0.0)
            elif self.observations < 3:
                error = None
            elif count > 0:
                error = math.hypot(error, 0.0 if self._comes_regularly(count, of_kernels) else total / count * deviation,
                                   total / self.divisor * self._cut_deviation)
        return Measure(total / self.divisor, None if error is None else error / self.divisor, freedom, count / self.divisor, if_repeated=True)

    def _comes_regularly(self, count: float, of_kernels: bool = True) -> bool:
        """Whether it may come equally often in each iteration. Parts of iterations may have it as often as whole ones, or not at all; that
        iterations are alike is known of kernels only."""
        if count % self.observations == 0:
            return True
        each = count // self.observations
        return of_kernels and self._regular and each > 0 and count <= each * (self.observations + self._cuts)

    def _spread_of_windows(self) -> tuple[float | None, float]:
        """Relative error of how much a window does in its time, and its degrees of freedom."""
        busy = [number(row, "Kernel Time (ns)") / number(row, "Duration (ns)") for row in self.windows if number(row, "Duration (ns)") > 0]
        mean = math.fsum(busy) / max(1, len(busy))
        if len(busy) < 3 or mean <= 0:
            return None, 0
        error, freedom = noise.error_of_mean(busy)
        return error / mean, freedom

    def _spread_of_steps(self) -> tuple[float, float] | None:
        """Relative error of the windows' steps' sum, and its degrees of freedom."""
        step = self.metrics.get("window_step_time" if self.unprofiled else "step_time")
        if step is None or len(step.series) < 3:
            return None
        mean = math.fsum(step.series) / len(step.series)
        error, freedom = noise.error_of_mean(step.series)
        return (error / mean, freedom) if mean > 0 else None

    def _error_of_total(self, count: float, deviation: float) -> float:
        """Error of the sum of `count` values: those of one iteration count as one observation."""
        return count * deviation / math.sqrt(max(1.0, min(count, self.observations)))

    def _inflated(self, parts: Iterable[tuple[float, float, float]], common: _Common | None) -> tuple[float, float]:
        """Error of the sum of times whose parts each have a total, a count and a deviation, and its degrees of freedom. The part of their
        variance that all have in common, as where a clock changes, is correlated from one iteration to the next."""
        found = list(parts)
        plain = math.fsum(self._error_of_total(count, deviation) for _, count, deviation in found)
        if common is None or plain <= 0:
            return plain, max(0, self.observations - 1)
        error = 0.0
        for total, count, deviation in found:
            relative = count * deviation / total if total > 0 else 0.0
            error += self._error_of_total(count, deviation) * math.sqrt(common.inflation_of(relative))
        return error, max(1.0, self.observations * (plain / error) ** 2 - 1)

    def _common(self, series: Sequence[float]) -> _Common | None:
        return _Common.of(series) if self.basis is Basis.ITERATION and len(series) >= 3 else None

    def _error_on_gpu(self, parts: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
        """As _inflated(), of GPU times."""
        found = list(parts)
        error, freedom = min(self._inflated(found, self._of_kernels), self._most_error)
        return max(error, math.fsum(self._error_of_total(count, _STEP) for _, count, _ in found)), freedom

    def _kernels(self) -> dict[str, Measure]:
        """Deviations are taken per launch shape, as differences between shapes are not noise, if each iteration has the same ones."""
        needed = ("Name", "Total Time (ns)", "Instances", "StdDev (ns)")
        names = {row["Name"]: row for row in self._rows("cuda_gpu_kern_sum", *needed)}
        table: Table | None = self.result.table("cuda_gpu_kern_gb_sum")
        shapes = self.result.rows("cuda_gpu_kern_gb_sum", *needed) if table is not None else []
        parts: dict[object, list[tuple[float, float, float]]] = {}
        times: dict[object, float] = {}
        for row in shapes:
            parts.setdefault(row["Name"], []).append((number(row, "Total Time (ns)"), number(row, "Instances"), number(row, "StdDev (ns)")))
            times[row["Name"]] = times.get(row["Name"], 0.0) + number(row, "Total Time (ns)")
        found = {}
        for name, row in names.items():
            total, count = number(row, "Total Time (ns)"), number(row, "Instances")
            if total <= 0 or count <= 0:
                continue
            # Shapes for which there was no room are in a row with another name.
            whole = times.get(name, 0.0) >= 0.999 * total
            apart = whole and (self.basis is not Basis.ITERATION or all(self._comes_regularly(each) for _, each, _ in parts[name]))
            found[str(name)] = self._row(total, count, *self._error_on_gpu(parts[name] if apart else [(total, count, number(row, "StdDev (ns)"))]))
        return found

    def _shapes(self, table: str) -> dict[str, Measure]:
        groups: dict[str, list[Row]] = {}
        source = self._rows(table, "Calls", "GPU Time (ns)", "GPU Avg (ns)", "GPU Min (ns)", "GPU Max (ns)")
        columns = [*source[0]] if source else ["Calls"]
        keys = [column for column in columns[: columns.index("Calls")]
                if column not in ("Lda", "Ldb", "Ldc", "Engine", "Algorithm", "Fused", "Source", "Derived")]
        for row in source:
            if row.get("Derived"):  # parts of other tables' calls
                continue
            name = _shape_name(row, keys)
            groups.setdefault(name, []).append(row)
            self.shapes[name] = Shape.of(row, keys)
        found = {}
        for name, rows in groups.items():
            total = _total(rows, "GPU Time (ns)")
            ran = [(number(row, "GPU Time (ns)") / number(row, "GPU Avg (ns)"), row) for row in rows if number(row, "GPU Avg (ns)") > 0]
            if total <= 0 or not ran:
                continue
            found[name] = self._row(total, round(math.fsum(count for count, _ in ran)), *self._error_on_gpu(
                (number(row, "GPU Time (ns)"), count, noise.largest_deviation(*(number(row, f"GPU {which} (ns)") for which in ("Avg", "Min", "Max"))))
                for count, row in ran), of_kernels=False)
        return found

    def _typical_error(self, total: float) -> tuple[float | None, float]:
        if self._typical is None:
            return None, 0.0
        error, freedom = self._typical
        return min((error * total, freedom), self._most_error)

    def _sums(self, table: str, key: str, time: str, count: str) -> dict[str, Measure]:
        groups: dict[str, list[Row]] = {}
        for row in self._rows(table, key, time, count):
            groups.setdefault(str(row[key]), []).append(row)
        found = {}
        for name, rows in groups.items():
            total = _total(rows, time)
            if name and total > 0:
                found[name] = self._row(total, _total(rows, count), *self._typical_error(total))
        return found

    def _by_function(self, table: str, time: str) -> dict[str, float]:
        """Of lines: they move when a program is edited."""
        times: dict[str, float] = {}
        for row in self._rows(table, "File", "Function", time):
            file = str(row["File"] or "").rpartition("/")[2]
            name = f"{file} {row['Function']}" if file else str(row["Function"])
            times[name] = times.get(name, 0.0) + number(row, time)
        return {name: each for name, each in times.items() if each > 0}

    def _functions(self) -> dict[str, Measure]:
        return {name: self._row(time, 0, *self._typical_error(time)) for name, time in self._by_function("line_sum", "User Code Time (ns)").items()}

    def _gaps(self) -> dict[str, Measure]:
        if self._share_of(self._whole_windows()) < 1:
            raise Lacking("for some windows it is not known how long the GPU was idle")
        return {name: self._host_error(time / self.divisor) for name, time in self._by_function("gap_line_sum", "Idle Time (ns)").items()}

    def _library(self) -> dict[str, Measure]:
        found = {}
        for row in self._rows("library_sum", "Call", "Depth", "GPU Time incl. Nested (ns)", "Calls"):
            total = number(row, "GPU Time incl. Nested (ns)")
            if row["Depth"] == 0 and total > 0:
                found[str(row["Call"])] = self._row(total, number(row, "Calls"), *self._typical_error(total), of_kernels=False)
        return found

    def _library_host(self) -> dict[str, Measure]:
        found = {}
        for row in self._rows("library_sum", "Call", "Depth", "Host Time (ns)", "Host Avg (ns)", "Host Min (ns)", "Host Max (ns)", "Calls"):
            total, count = number(row, "Host Time (ns)"), number(row, "Calls")
            if row["Depth"] == 0 and total > 0 and count > 0:
                deviation = noise.largest_deviation(number(row, "Host Avg (ns)"), number(row, "Host Min (ns)"), number(row, "Host Max (ns)"))
                found[str(row["Call"])] = self._row(total, count, *self._inflated([(total, count, deviation)], self._of_host), of_kernels=False)
        return found

    def _spread(self, table: str, key: str, count: str) -> dict[str, Measure]:
        groups: dict[str, list[Row]] = {}
        for row in self._rows(table, key, count, "Total Time (ns)", "StdDev (ns)"):
            groups.setdefault(str(row[key]), []).append(row)
        found = {}
        for name, rows in groups.items():
            total, instances = _total(rows, "Total Time (ns)"), _total(rows, count)
            if total > 0 and instances > 0:
                error = self._inflated([(number(row, "Total Time (ns)"), number(row, count), number(row, "StdDev (ns)")) for row in rows], self._of_host)
                found[name] = self._row(total, instances, *error, of_kernels=False)
        return found

    def _copies(self) -> dict[str, Measure]:
        """A row mixes copies of all sizes, so its deviation is meaningless: the error is that of the iterations' copy time."""
        part = self.metrics.get("copies")
        relative = None if part is None or part.error is None or not part.value else part.error / abs(part.value)
        found = {}
        for row in self._rows("cuda_gpu_mem_time_sum", "Operation", "Total Time (ns)", "Count", "StdDev (ns)"):
            total, count = number(row, "Total Time (ns)"), number(row, "Count")
            if total <= 0 or count <= 0:
                continue
            error, freedom = self._inflated([(total, count, number(row, "StdDev (ns)"))], self._of_kernels)
            if part is not None and relative is not None and "memset" not in str(row["Operation"]):
                error, freedom = min((error, freedom), (max(relative * total, self._error_of_total(count, _STEP)), part.freedom))
            found[str(row["Operation"])] = self._row(total, count, error, freedom, of_kernels=False)
        return found

    def _host_error(self, value: float) -> Measure:
        """The host causes idle time: all of the steps' spread may be its own, outliers included, as it is a sum."""
        step = self.metrics.get("window_step_time" if self.unprofiled else "step_time")
        if step is None or len(step.series) < 3:
            return Measure(value)
        return Measure(value, *noise.error_of_mean(step.series))

    def _idle(self) -> dict[str, Measure]:
        found: dict[str, Measure] = {}
        windows = self._whole_windows()
        causes = [figures.idle_causes(row) for row in windows]
        if None in causes:
            raise Lacking("the causes of idle time do not add up to it in window_sum.csv")
        for cause in sorted({cause for row in causes for cause in row or ()}):
            total = math.fsum((row or {}).get(cause, 0.0) for row in causes)
            if total > 0:
                found[cause] = self._host_error(total / (self.divisor * self._share_of(windows)))
        if found and self._share_of(windows) < 1:
            self.notes.append(f"GPU idle time covers {len(windows)} windows; it is not fully known for the others")
        return found

    def _whole_windows(self) -> list[Row]:
        self._rows("window_sum", "Device Time (ns)")
        windows = figures.whole_windows(self.result)
        if self.windows and not self._share_of(windows):
            raise Lacking("it is not known for any window how long the GPU was idle")
        return windows

    def _share_of(self, windows: list[Row]) -> float:
        """What part of the divisor is these windows': of iterations, which count by their kernels where they are not whole, or of time."""
        column = "Duration (ns)" if self.basis is Basis.SECOND or not self._has_kernels() else "Kernels"
        whole = _total(self.windows, column)
        return _total(windows, column) / whole if whole > 0 else 1.0

    def _processors(self) -> dict[str, Measure]:
        """Windows are as long as their readings are apart: by their share of a core, per what totals are divided by."""
        found: dict[str, float] = {}
        rows = self._rows("host_sum", "Window", "Role", "Processor Time (ns)", "Span (ns)")
        lengths = {row.get("Window"): number(row, "Duration (ns)") for row in self.windows}
        if not rows:
            raise Lacking("no processor time was read")
        read = math.fsum(lengths.get(row["Window"], 0.0) for row in rows if row["Role"] == "process")
        for row in rows:
            if row["Role"] != "process" and (span := number(row, "Span (ns)")) > 0:
                time = number(row, "Processor Time (ns)") / span * lengths.get(row["Window"], 0.0)
                found[str(row["Role"])] = found.get(str(row["Role"]), 0.0) + time
        # Of windows that were not read nothing is known: as if they were like the others.
        return {name: self._host_error(time * math.fsum(lengths.values()) / read / self.divisor) for name, time in found.items() if time > 0 and read > 0}

    def _memory(self) -> dict[str, Measure]:
        found = {}
        for row in self._rows("memory_sum", "Device", "Kind", "API", "Peak (MB)", divided=False):
            if row["API"] == "[all]" and number(row, "Peak (MB)") > 0:
                device = str(row["Device"])
                found["host (pinned)" if device == "host" else f"GPU {device}"] = Measure(number(row, "Peak (MB)"), 0.0, 1)
        return found

    def _purposes(self) -> dict[str, Measure]:
        self._rows("memory_purpose", divided=False)
        return {f"GPU {each.device} {purpose}": Measure(size, 0.0, 1)
                for each in figures.memory_purposes(self.result) for purpose, size in each.bytes.items() if size > 0}


def together(measures: Iterable[Measure]) -> Measure:
    """Their sum; errors are added, not their squares: what makes one slower may make all slower."""
    parts = list(measures)
    known = all(part.error is not None for part in parts)
    error = math.fsum(part.error or 0.0 for part in parts)
    # As well known as the parts that make it up.
    freedom = (math.fsum((part.error or 0.0) * part.freedom for part in parts) / error if error > 0 else
               min((part.freedom for part in parts), default=0.0))
    return Measure(math.fsum(part.value for part in parts), error if known else None, freedom, math.fsum(part.count or 0.0 for part in parts))


def _from_to(a: str, b: str) -> str:
    return a if a == b else f"{a or 'nothing'} → {b or 'nothing'}"


def _shape_name(row: Row, keys: list[str]) -> str:
    """One line for a shape: 'cublasGemmEx 512x256x128 NN fp32 …', other tables' cells with their columns' names."""
    if "Op A" in row:
        size = "x".join(str(row.get(key)) for key in ("M", "N", "K"))
        batch = row.get("Batch")
        parts = [str(row.get("API")), size, f"{row.get('Op A')}{row.get('Op B')}", *dict.fromkeys(str(row.get(f'Type {x}')) for x in "ABC"),
                 str(row.get("Compute Type")), f"batch {batch}" if batch not in (None, 1) else "", str(row.get("Epilogue") or "")]
        return " ".join(part for part in parts if part and part != "None") if row.get("M") is not None else str(row.get("API") or "")
    texts = []
    if "Stride" in row:
        # Usual values are not mentioned.
        keys = [key for key in keys if not (key == "Dilation" and set(str(row.get(key))) <= {"1", "x"}) and not (key == "Groups" and row.get(key) == 1)]
        types = [key for key in keys if key.startswith("Type") or key.endswith(" Type")]
        keys = [*(key for key in keys if key not in types), "Types"]
        row = {**row, **{key: f"{key.lower()} {row[key]}" for key in ("Stride", "Padding", "Dilation") if row.get(key)},
               "Types": ", ".join(dict.fromkeys(str(row[key]) for key in types if row[key]))}
    for key in keys:
        value = row.get(key)
        if value is None or value == "":
            continue
        texts.append(f"{key}={value}" if isinstance(value, (int, float)) or len(key) == 1 else str(value))
    return " ".join(texts) or "[no name]"
