# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For program.py: stacks that another thread reads while the functions below run. Each is run once while Python itself reports every line
and call, and then freely: in the stacks read, no function may be called from a line that doesn't call it. Also, reads where there is no
stack: of threads that have ended, of damaged copies, and where the kernel forbids it."""

import ctypes
import functools
import gc
import itertools
import os
import random
import sys
import threading
import time

import damaged

QUALIFIED = sys.version_info >= (3, 11)
OUTER = ("", 0, "[outer frames]")
MAX_FRAMES = 128
FOR_SECONDS, AT_LEAST, AT_MOST_SECONDS = 0.06, 150, 10.0


def spin(microseconds):
    until = time.perf_counter() + microseconds * 1e-6
    while time.perf_counter() < until:
        pass


def one():
    return 1


def two(value):
    value = value + 1
    return one() + value


def short_calls():
    """Calls that are shorter than the time to read them."""
    total = 0
    for i in range(300):
        one()
        total += two(i)
        total -= 1
        total = total + one()
        two(two(total))


def long_calls():
    spin(100)
    middle()


def middle():
    spin(200)
    inner()


def inner():
    spin(300)


def tree(depth):
    if depth == 0:
        return 1
    left = tree(depth - 1)
    return left + tree(depth - 1)


def recursion():
    return tree(9)


def down(depth, function):
    if depth == 0:
        return function()
    return down(depth - 1, function)


def deep():
    down(60, recursion)
    down(90, middle)


def too_deep():
    """More frames than are read."""
    down(130, recursion)
    down(300, middle)
    down(118, recursion)


def numbers(depth):
    if depth > 0:
        yield from numbers(depth - 1)
    for i in range(3):
        yield two(i)


def generators():
    total = 0
    for _ in range(20):
        for x in numbers(4):
            total += x
        total += sum(two(y) for y in numbers(2))
        total += sum([two(y) for y in range(5)])


class Ready:
    def __await__(self):
        yield one()
        return two(1)


async def awaits(depth):
    if depth == 0:
        return await Ready()
    return await awaits(depth - 1) + one()


async def produces():
    for i in range(3):
        await Ready()
        yield i


async def consumes():
    total = await awaits(5)
    async for x in produces():
        total += x
    return total


def coroutines():
    for _ in range(20):
        coroutine = consumes()
        try:
            while True:
                coroutine.send(None)
        except StopIteration:
            one()


def raises(depth):
    if depth == 0:
        raise ValueError(two(1))
    try:
        raises(depth - 1)
    except ValueError as error:
        one()
        raise KeyError(depth) from error
    except KeyError:
        two(depth)
        raise
    finally:
        one()


def exceptions():
    for depth in range(12):
        try:
            raises(depth)
        except (ValueError, KeyError):
            one()


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
COMPARED = (ctypes.c_int * 8)(*range(8))


def compared(_left, _right):
    return two(-2)


COMPARE = CALLBACK(compared)
SORT = ctypes.CDLL(None).qsort
SORT.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, CALLBACK)


def through_c(depth):
    if depth == 0:
        return spin(50)
    return functools.reduce(lambda _, below: through_c(below), [0, depth - 1])


class Called:
    def __call__(self, value):
        return two(value)

    def __add__(self, other):
        return two(other)

    def __del__(self):
        one()


def callbacks():
    sorted(range(30), key=two)
    sorted(range(30), key=lambda value: one() + value)
    list(map(functools.partial(two), range(30)))
    SORT(ctypes.addressof(COMPARED), 8, 4, COMPARE)
    Called()(1)
    Called() + 1
    # Where C has called Python, there is a frame of the interpreter's own from 3.12 on.
    through_c(50)


MADE = """def made_{0}_inner(value):
{1}    return value


def made_{0}(value):
{2}    return made_{0}_inner(value)


made_{0}(1)
"""
SOURCES = [MADE.format(i, f"    value = {i}\n" * (i % 4), f"    value += {i}\n" * (i % 3)) for i in range(60)]


def compiled():
    """Code that is freed at once: the next one may be at the same address."""
    for i, source in enumerate(SOURCES):
        exec(compile(source, f"<made {i}>", "exec"), {})


class Node:
    def __init__(self):
        self.itself = self

    def __del__(self):
        one()


def on_collection(_phase, _info):
    two(1)


def collections():
    gc.callbacks.append(on_collection)
    for _ in range(40):
        Node()
    gc.collect(0)
    gc.callbacks.remove(on_collection)


WORK = (short_calls, long_calls, recursion, deep, too_deep, generators, coroutines, exceptions, callbacks, compiled, collections)
# The collector calls them from anywhere.
FROM_ANYWHERE = ("on_collection", "Node.__del__" if QUALIFIED else "__del__")


def name_of(code):
    return code.co_qualname if QUALIFIED else code.co_name


class Truth:
    """Which functions each line calls, and which lines exist."""

    def __init__(self):
        self.codes, self.calls, self.lines = set(), set(), {}

    def __call__(self, frame, _event, _argument):
        code, caller = frame.f_code, frame.f_back
        function = code.co_filename, name_of(code)
        if code not in self.codes:
            self.codes.add(code)
            lines = self.lines.setdefault(function, {0, code.co_firstlineno})
            lines.update(line for _, _, line in code.co_lines() if line is not None)
        if caller is not None:
            self.calls.add(((caller.f_code.co_filename, caller.f_lineno or 0, name_of(caller.f_code)), function))
        return self


def drive(count, work, seconds):
    started, first = time.perf_counter(), count()
    while True:
        work()
        spent = time.perf_counter() - started
        if spent > seconds and (count() >= first + AT_LEAST or spent > AT_MOST_SECONDS or seconds == 0):
            break


def stacks_of(said):
    """How often each stack was read, with the outermost frame first."""
    for part in said.split("\f")[:-1]:
        count, *frames = part.splitlines()
        yield int(count), [(file, int(line), name) for file, line, name in (frame.split("\t") for frame in reversed(frames))]


def fault_in(stack, truth, base):
    """What is impossible in the stack; None if it is valid. `base`: the outermost frame."""
    if len(stack) > MAX_FRAMES + 1:
        return "it is too long"
    if stack[0] == OUTER:
        stack = stack[1:]
    elif (stack[0][0], stack[0][2]) != base:
        return f"it begins with {stack[0]}"
    for caller, (file, _, name) in itertools.pairwise(stack):
        within_threading = caller[0] == file == threading.__file__
        if (caller, (file, name)) not in truth.calls and name not in FROM_ANYWHERE and not within_threading:
            return f"{caller} does not call {name}"
    file, line, name = stack[-1]
    if line not in truth.lines.get((file, name), (line,)):
        return f"there is no line {stack[-1]}"
    return None


def base_of(frame):
    frames = []
    while frame is not None:
        frames.insert(0, (frame.f_code.co_filename, frame.f_lineno, name_of(frame.f_code)))
        frame = frame.f_back
    return frames


def sampled(probe, work, seconds, text):
    probe.stacks_offer(1)
    probe.stacks_start(0)
    drive(probe.stacks_count, work, seconds)
    probe.stacks_stop(text, len(text))


def run_freely(probe, work, result, text):
    truth = Truth()
    base = base_of(sys._getframe().f_back)
    truth.calls.update((caller, (file, name)) for caller, (file, _, name) in itertools.pairwise([*base, (__file__, 0, "run_freely")]))
    for seconds in (0, FOR_SECONDS):
        sys.settrace(truth if seconds == 0 else None)
        sampled(probe, work, seconds, text)
    judge(work.__name__, text, truth, (base[0][0], base[0][2]), result)


def judge(name, text, truth, base, result):
    figures = {"samples": 0, "empty": 0, "wrong": 0, "in_spin": 0}
    for count, stack in stacks_of(text.value.decode()):
        fault = fault_in(stack, truth, base) if stack else None
        figures["samples"] += count
        figures["empty"] += 0 if stack else count
        figures["in_spin"] += count if stack and stack[-1][2] == "spin" else 0
        if fault is not None:
            figures["wrong"] += count
            result["faults"].append(f"{name}: {count} times {fault}")
    result["stacks"][name] = figures


def thread_work(probe, index):
    probe.stacks_offer(index)
    until = time.perf_counter() + (0.004 if index % 3 == 0 else 0)
    while True:
        tree(4)
        generators()
        through_c(3)
        if time.perf_counter() > until:
            break


def start_threads(probe, first, count):
    threads = [threading.Thread(target=thread_work, args=(probe, first + k)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_threads(probe, result, text):
    """The thread state that is read is of a thread that has ended, and then of another one."""
    truth = Truth()
    threading.settrace(truth)
    start_threads(probe, 0, 1)
    threading.settrace(None)
    probe.stacks_clear()
    probe.stacks_start(0)
    started, index = time.perf_counter(), 0
    while time.perf_counter() < started + 2 * FOR_SECONDS or index < 20:
        if index % 3 == 0:
            probe.stacks_clear()
        start_threads(probe, index, 1 + index % 2)
        index += 1 + index % 2
    probe.stacks_stop(text, len(text))
    probe.stacks_clear()
    # Nothing was recorded of threading until it has called the function.
    judge("threads", text, truth, (threading.__file__, "Thread._bootstrap" if QUALIFIED else "_bootstrap"), result)
    result["threads"] = index


def run_for_ever(probe):
    probe.stacks_clear()
    probe.stacks_offer(1)
    while True:
        tree(4)
        generators()


def run_offers(probe, result):
    """Which thread is chosen: the first one, then the main one; if it has a new state, that one."""
    index, states = ctypes.c_uint(), []

    def chosen():
        return probe.stacks_chosen(ctypes.byref(index)), index.value

    def offer(number):
        probe.stacks_offer(number)
        states.append(chosen())

    def in_thread(*numbers):
        thread = threading.Thread(target=lambda: [offer(number) for number in numbers])
        thread.start()
        thread.join()

    probe.stacks_clear()
    # Two threads that run at once have different states.
    going = threading.Event()
    first = threading.Thread(target=lambda: (offer(3), going.wait()))
    first.start()
    while not states:
        time.sleep(0.001)
    in_thread(4)
    in_thread(3)
    going.set()
    first.join()
    offer(5)
    in_thread(3)
    numbers = [number for _, number in states]
    if numbers != [3, 3, 3, 5, 5] or states[0] != states[1] or states[0] == states[2] or states[3] != states[4]:
        result["differences"].append(f"chosen were {states}")
    probe.stacks_clear()
    if chosen()[0] is not None:
        result["differences"].append("one is chosen after all")


class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("if_true", ctypes.c_uint8), ("if_not", ctypes.c_uint8), ("value", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filters", ctypes.POINTER(Filter))]


def run_forbidden(probe, result, text):
    """With the kernel set to refuse process_vm_readv(), as in some containers."""
    number = {"x86_64": 310, "aarch64": 270}.get(os.uname().machine)
    if number is None:
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        filters = (Filter * 4)((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        is_set = libc.prctl(22, 2, ctypes.byref(Program(4, filters)), 0, 0)  # PR_SET_SECCOMP
        os.write(writing, repr((is_set, probe.stacks_own(text, len(text)), probe.stacks_duration(1000))).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    is_set, length, duration = eval(said)
    if is_set == 0:
        result["nanoseconds_forbidden"] = round(duration)
        if length != 0:
            result["differences"].append("where it is forbidden there is a stack")


def run_damaged(probe, choice, count, result, text):
    """Whatever is in the place of a stack: nothing crashes, and it doesn't take long."""
    index, parked, may_end = ctypes.c_uint(), [], threading.Lock()

    def park():
        probe.stacks_offer(1)
        parked.append(True)
        may_end.acquire()

    probe.stacks_clear()
    may_end.acquire()
    thread = threading.Thread(target=lambda: down(4, lambda: through_c(0) or functools.reduce(lambda _, each: each(), [0, park])))
    thread.start()
    while not parked:
        time.sleep(0.001)
    time.sleep(0.01)
    layout = damaged.Layout()
    probe.stacks_layout(ctypes.byref(layout))
    state = probe.stacks_chosen(ctypes.byref(index))

    def read(address):
        started = time.thread_time()
        length = probe.stacks_of(ctypes.c_void_p(address), text, len(text))
        result["longest"] = max(result["longest"], time.thread_time() - started)
        return text.value[:length].decode() if length >= 0 else ""

    result["longest"] = 0
    copy, whole = damaged.Stack(state, layout), read(state)
    if whole.count("\n") < 10 or read(copy.state) != whole:
        result["differences"].append(f"the copy has {read(copy.state)!r}, not {whole!r}")
    for _ in range(count):
        changes = copy.damage(choice)
        result["damaged"] += 1
        said = read(copy.state)
        result["damaged_and_read"] += said == whole
        result["damaged_and_empty"] += said == ""
        copy.repair(changes)
    if read(copy.state) != whole:
        result["differences"].append(f"the repaired copy has {read(copy.state)!r}")
    # A stack without end.
    for frame in list(copy.copied.values()):
        ctypes.c_uint64.from_address(copy.last_caller).value = frame
        if read(copy.state).count("\n") not in (0, MAX_FRAMES + 1):
            result["differences"].append(f"a ring has {text.value!r}")
    copy.free()
    may_end.release()
    thread.join()
    probe.stacks_clear()


def run_durations(probe, result):
    result["nanoseconds"] = {depth: round(down(depth - len(base_of(sys._getframe())) - 2, lambda: probe.stacks_duration(200)))
                             for depth in (12, 60, 128)}


def run(probe, seed, count, result):
    probe.stacks_duration.restype, probe.stacks_chosen.restype = ctypes.c_double, ctypes.c_void_p
    result.update(stacks={}, faults=[], damaged=0, damaged_and_read=0, damaged_and_empty=0)
    text = ctypes.create_string_buffer(1 << 24)
    for work in WORK:
        run_freely(probe, work, result, text)
    run_threads(probe, result, text)
    run_offers(probe, result)
    run_forbidden(probe, result, text)
    run_damaged(probe, random.Random(seed), count * 30, result, text)
    run_durations(probe, result)
