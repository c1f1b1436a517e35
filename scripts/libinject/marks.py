# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Windows and units of work that a Python program reports: the functions of include/inject/inject.h, if libinject is preloaded.

Only the standard library is imported here: the program's environment need not have the packages that the command `inject` needs."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Self

Function = TypeVar("Function", bound=Callable[..., Any])


class _Library(NamedTuple):
    start: Callable[[], int]
    stop: Callable[[], int]
    units: Callable[[float], int] | None  # missing in older libraries


@functools.cache
def _library() -> _Library | None:
    """The preloaded library's functions, looked up among the process's symbols: nothing is loaded. None if it is not preloaded."""
    try:
        import ctypes

        symbols = ctypes.CDLL(None)
        say = getattr(symbols, "inject_units", None)
        if say is not None:
            say.argtypes = [ctypes.c_double]
        return _Library(symbols.inject_start, symbols.inject_stop, say)
    except (ImportError, OSError, AttributeError):  # a Python without ctypes; no preload
        return None


def _push_range(name: str) -> Callable[[], object] | None:
    """Opens an NVTX range through a package that the program has already imported, and returns the function that closes it."""
    for module, push, pop in (("torch.cuda.nvtx", "range_push", "range_pop"), ("nvtx", "push_range", "pop_range"),
                              ("cupy.cuda.nvtx", "RangePush", "RangePop")):
        # Not imported, or built without NVTX: in no case is a range worth an exception in the program.
        with contextlib.suppress(Exception):
            there = sys.modules[module]
            close: Callable[[], object] = getattr(there, pop)
            getattr(there, push)(name)
            return close
    return None


def units(count: float) -> bool:
    """Reports that the GPU work which follows is of so many units: samples, tokens, seconds of audio. They add up to those of the training
    iteration that the next launch belongs to, whichever thread reports them:

        for batch in loader:
            libinject.units(batch["attention_mask"].sum().item())
            train_step(batch)

    Does nothing without the preload. Returns False if `count` is ignored: libinject is not preloaded, INJECT_BATCH sets the number of units
    per iteration, or `count` is neither 0 nor between 1e-12 and 1e12, which leaves the iteration without a number."""
    number = float(count)
    library = _library()
    return library is not None and library.units is not None and library.units(number) == 0


class _Open(NamedTuple):
    """What has to be undone at the end of a block."""

    library: _Library | None
    pop: Callable[[], object] | None
    opened: bool


_NOTHING = _Open(None, None, False)


class window:
    """Profiles a block, or every call of a function:

        with libinject.window("evaluation"):
            evaluate(model)

        @libinject.window("evaluation")
        def evaluate(model): ...

    Without the preload (`inject run`, LD_PRELOAD) it does nothing, which takes a microsecond or two. It never loads libinject.

    The block opens a window as it begins, which takes some 10 ms if CUPTI is not attached, and closes it as it ends, whether by an
    exception or not; exceptions pass through. Closing does not wait for the GPU; opening may wait for kernels that are already running, if
    CUPTI is not attached yet. Work submitted in the block belongs to the window whenever the GPU executes it. If a window is open already,
    by a block around this one, in another thread, or by INJECT_WINDOW, the block opens none and closes none. Neither does it open one where
    none is allowed: INJECT_WINDOW=off or launch:…, xN used up, profiling over. With INJECT_WINDOW=auto no window opens by itself after the
    first block; with `api`, only blocks, cudaProfilerStart and injectctl open windows.

    `name`: the library's interface takes no name, so `Reason` in window_sum.csv is `inject_start` whatever the name. It is the name of an
    NVTX range around the block (nvtx_sum.csv, nvtx_kern_sum.csv), in nested blocks as well, if PyTorch, CuPy or the package nvtx has been
    imported by then. Without a name, or without one of these packages, there is no range.

    As a decorator it takes functions, coroutine functions, and generator functions, whose window is open from the first value to the end.
    An object may be reused, also by several threads.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError("a window's name must be a string: @libinject.window() or @libinject.window(\"name\")")
        self.name = name
        self._blocks = threading.local()  # the blocks of this object that this thread is in, innermost last

    def __enter__(self) -> Self:
        opened = _NOTHING
        library = _library()
        if library is not None:
            did = library.start() == 0
            opened = _Open(library, _push_range(self.name) if self.name else None, did)
        try:
            self._blocks.open.append(opened)
        except AttributeError:
            self._blocks.open = [opened]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        opened = self._blocks.open.pop()
        if opened.pop is not None:
            with contextlib.suppress(Exception):  # the program's own exception, if any, takes precedence
                opened.pop()
        if opened.opened and opened.library is not None:
            opened.library.stop()

    def __call__(self, function: Function) -> Function:
        import inspect  # slow to import, and not needed for blocks

        # A separate block for each call: calls may nest, and coroutines take turns.
        name = self.name
        if inspect.isasyncgenfunction(function):
            raise TypeError("an asynchronous generator can't be a window: put a block around what it does")
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def in_window(*arguments: Any, **named: Any) -> Any:
                with window(name):
                    return await function(*arguments, **named)
        elif inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def in_window(*arguments: Any, **named: Any) -> Any:
                with window(name):
                    return (yield from function(*arguments, **named))
        else:
            @functools.wraps(function)
            def in_window(*arguments: Any, **named: Any) -> Any:
                with window(name):
                    return function(*arguments, **named)
        return cast(Function, in_window)
