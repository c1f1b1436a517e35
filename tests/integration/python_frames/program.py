# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs in the interpreter under test (3.10 or later): generates programs, and compares their frames as read by libinject with
sys._getframe() at the same call. Prints the results as JSON.

    program.py PROBE SEED COUNT MODE...

MODE: one of the functions below whose names begin with run_."""

import asyncio
import ctypes
import gc
import importlib
import json
import os
import pathlib
import random
import re
import sys
import threading

DEPTH = 1500
MAX_SAMPLED = 128
MISSING = object()


class Entry(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char * 512), ("name", ctypes.c_char * 256), ("qualified_name", ctypes.c_char * 256),
                ("type", ctypes.c_char * 128), ("first_argument", ctypes.c_void_p), ("line", ctypes.c_int)]


# Calls through the first keep the GIL, calls through the second release it.
keeping = ctypes.PyDLL(sys.argv[1])
releasing = ctypes.CDLL(sys.argv[1])
walks = [keeping.frames_walk, releasing.frames_walk]
reads = [keeping.stacks_own, releasing.stacks_own]
result = {"version": sys.version.split()[0], "walks": 0, "frames": 0, "arguments": 0, "differences": []}
QUALIFIED = sys.version_info >= (3, 11)


def no_lines(code, more=0):
    """A line table in which the code's instructions, and `more` beyond them, have no line. (3.11 writes past its memory if there are more
    and it traces.)"""
    left = len(code.co_code) // 2 + more
    table = bytearray()
    while left > 0:
        units = min(left, 8)
        table += bytes((0x80 | 15 << 3 | units - 1,)) if QUALIFIED else bytes((2 * units, 0x80))
        left -= units
    return bytes(table)



def text(name, room):
    """As libinject writes it: UTF-8, '?' for invalid characters, truncated between characters."""
    data = "".join("?" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in name).encode()[:room - 1]
    return data.decode(errors="ignore")


def first_argument(frame):
    code = frame.f_code
    if code.co_argcount > 0:
        return frame.f_locals.get(code.co_varnames[0], MISSING)
    if not code.co_flags & 4:
        return MISSING
    values = frame.f_locals.get(code.co_varnames[code.co_kwonlyargcount], MISSING)
    return values[0] if isinstance(values, tuple) and values else MISSING


def stack_of(frame, line):
    """As in a sample: file, line and name of each frame, innermost first, with the given line for the innermost one."""
    lines = []
    while frame is not None and len(lines) < MAX_SAMPLED:
        code = frame.f_code
        at = frame.f_lineno or 0 if lines else line
        lines.append(f"{text(code.co_filename, 512)}\t{at}\t{text(code.co_qualname if QUALIFIED else code.co_name, 512)}\n")
        frame = frame.f_back
    if frame is not None:
        lines.append("\t0\t[outer frames]\n")
    return "".join(lines)


def compare_sample(sample, frame, line):
    result["samples"] = result.get("samples", 0) + 1
    if sample != stack_of(frame, line):
        result["differences"].append(f"sample {sample!r}, not {stack_of(frame, line)!r}"[:2000])


def compare(entries, count, frame, line):
    """`line`: of the innermost frame at the call; it has moved on since."""
    result["walks"] += 1
    if count < 0:
        result["differences"].append("errno was changed")
    depth = 0
    while frame is not None:
        code = frame.f_code
        value = first_argument(frame)
        expected = {"file": text(code.co_filename, 512), "name": text(code.co_name, 256),
                    "qualified_name": text(code.co_qualname if QUALIFIED else code.co_name, 256),
                    "line": line if depth == 0 else frame.f_lineno or 0,
                    "argument": 0 if value is MISSING else id(value)}
        entry = entries[depth]
        found = {"file": entry.file.decode(), "name": entry.name.decode(), "qualified_name": entry.qualified_name.decode(),
                 "line": entry.line, "argument": entry.first_argument or 0}
        if depth >= count or found != expected:
            result["differences"].append(f"frame {depth} of {count}: {found if depth < count else None}, not {expected}")
        elif value is not MISSING:
            result["arguments"] += 1
            # For C types, tp_name is preceded by the module.
            if entry.type.decode().rpartition(".")[2] != type(value).__name__.rpartition(".")[2]:
                result["differences"].append(f"type {entry.type.decode()} of {value!r}")
        result["frames"] += 1
        depth += 1
        frame = frame.f_back
    if depth != count:
        result["differences"].append(f"{count} frames, not {depth}")


buffers = threading.local()


def probe(how=0):
    """Compares the caller's frames; reads them before Python creates frame objects for them."""
    if not hasattr(buffers, "entries"):
        buffers.entries = (Entry * DEPTH)()
        buffers.sample = ctypes.create_string_buffer(1 << 18)
        buffers.busy = False
    if buffers.busy:  # called by a callback in the meantime
        return 0
    buffers.busy = True
    entries, walk = buffers.entries, walks[how % 2]
    count, line = walk(entries, DEPTH), sys._getframe().f_lineno
    compare(entries, count, sys._getframe(), line)
    sample = buffers.sample
    _, line = reads[how % 2](sample, len(sample)), sys._getframe().f_lineno
    compare_sample(sample.value.decode(), sys._getframe(), line)
    buffers.busy = False
    return 0


def patterns():
    """The patterns in patterns.txt by name: the lines between two lines that begin with "# ", several of which are at its top."""
    text = (pathlib.Path(__file__).parent / "patterns.txt").read_text(encoding="utf-8")
    for part in text.split("\n# "):
        title, _, lines = part.partition("\n")
        name, _, remark = title.partition(":")
        if lines != "":
            yield name, lines.splitlines(), "twice" in remark


PATTERNS = list(patterns())
STRANGE = ("größe", "имя", "名前", "𝔘𝔫𝔦", "ordinary", "ﬁn")
FILES = ("<string>", "", "a/ö.py", "文件.py", "𝔘.py", "x" * 600, "\udcff.py")
MAX_TWICE = 3


def generate(seed):
    """A program of functions that call each other in all the ways that Python has: F0 calls F1, the last one calls the probe. Returns its
    text and the patterns in it."""
    choice = random.Random(seed)
    chosen = choice.choices(PATTERNS, k=choice.randint(2, 14))
    lines, used, twice = [], [], 0
    for number, (name, pattern, is_twice) in enumerate(chosen):
        twice += is_twice
        if is_twice and twice > MAX_TWICE:
            name, pattern, _ = PATTERNS[0]
        used.append(name)
        lines += [choice.choice(("", "# nothing", "unused = 1"))] * choice.choice((0, 1, 3, 40))
        call = f"F{number + 1}(value)" if number + 1 < len(chosen) else f"probe({choice.randint(0, 1)})"
        changes = {"STRANGE_": choice.choice(STRANGE), "FILE": ascii(choice.choice(FILES)), "RANDOM": str(choice.randint(0, 60)),
                   "CALL": call}
        for line in pattern:
            times = choice.randint(100, 400) if line.startswith("MANY") else 1
            line = re.sub(r"F\b(?!\w)", f"F{number}", line.removeprefix("MANY"))
            for before, after in changes.items():
                line = line.replace(before, after)
            lines += [line.replace("NUMBER", str(k)) for k in range(times)]
    return "\n".join([*lines, "F0(['value'])", ""]), used


def in_loop(coroutine):
    """asyncio.run() can't be nested: inner coroutines are driven by hand."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value


def run_some(seed, count):
    used = set()
    for number in range(seed, seed + count):
        source, names = generate(number)
        used.update(names)
        space = {"probe": probe, "in_loop": in_loop, "no_lines": no_lines, "__name__": "generated"}
        try:
            exec(compile(source, f"/generated/{number}.py", "exec"), space)
        except Exception as error:
            result["differences"].append(f"program {number} of {names} raised {error!r}")
        if len(result["differences"]) > 20:
            break
    return used


def run_programs(seed, count):
    result["unused"] = sorted({name for name, *_ in PATTERNS} - run_some(seed, count))


def run_traced(seed, count):
    """While functions are traced and profiled, their instructions and bookkeeping differ."""
    calls = []

    def trace(frame, event, argument):
        calls.append(event)
        return trace

    for setter in (sys.settrace, sys.setprofile):
        setter(trace)
        run_some(seed, count // 8 + 1)
        setter(None)
    result["traced"] = len(calls)


def run_in_callbacks(seed, count):
    """From the tracing and profiling functions, and from those that the garbage collector calls."""
    inside = [0, 0]

    def watch(*event):
        if inside[0] == 0:
            inside[0] = 1
            inside[1] += 1
            if inside[1] % 7 == 0:
                probe(inside[1])
            inside[0] = 0

    sys.setprofile(watch)
    run_some(seed, count // 8 + 1)
    sys.setprofile(None)
    gc.callbacks.append(watch)
    threshold = gc.get_threshold()
    gc.set_threshold(10)
    run_some(seed, count // 8 + 1)
    gc.set_threshold(*threshold)
    gc.callbacks.remove(watch)
    result["callbacks"] = inside[1]


def run_deep(_seed, _count):
    """A stack that is deeper than most."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(DEPTH + 1000)

    def down(value, depth):
        return probe(depth) if depth == 0 else down([value], depth - 1)

    for depth in (DEPTH - 100, DEPTH - 101, 700):
        down(0, depth)
    sys.setrecursionlimit(limit)


def run_threads(seed, count):
    """Several threads at once, in a child as well; and a thread that Python does not know."""
    threads = [threading.Thread(target=run_some, args=(seed + 1000 * k, count // 8 + 1)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if child == 0:
        run_some(seed, 5)
        os._exit(1 if result["differences"] else 0)
    result["child"] = os.waitpid(child, 0)[1]
    result["unknown_thread"] = keeping.frames_of_another_thread()


def run_texts(_seed, _count):
    """Every buffer size from zero to more than enough, for names with one to four bytes per character."""
    kinds = ("ascii", "größe", "имя", "名前のある", "𝔘𝔫𝔦", "a𝔘é名", "x" * 300)
    result["texts"] = 0
    for which in range(4):
        for name in kinds:
            space = {"copy": keeping.frames_copy, "buffer": ctypes.create_string_buffer}
            source = f"def run(value, room):\n    data = buffer(b'~' * 400)\n    return copy({which}, data, room), data.raw\n"
            exec(compile(source, name, "exec"), space)
            run = space["run"]
            run.__code__ = run.__code__.replace(co_name=name, **({"co_qualname": name} if QUALIFIED else {}))
            value = type(name, (), {})()
            for room in (*range(40), 299, 300, 301, 302, 390):
                length, data = run(value, room)
                expected = b"" if room == 0 else text(name, room).encode() + b"\0"
                result["texts"] += 1
                if length != max(len(expected) - 1, 0) or data != expected + (b"~" * 400)[len(expected):] + b"\0":
                    result["differences"].append(f"{name} in {room} bytes, {which}: {length}, {data[:room + 2]}")


def run_layouts(_seed, _count):
    """The test of the layout's assumptions, with the layout of each version."""
    def forced(value, minor):
        return keeping.frames_force_layout(minor)

    def without_lines(value, minor):
        return keeping.frames_force_layout(minor)

    without_lines.__code__ = without_lines.__code__.replace(co_linetable=no_lines(without_lines.__code__, 8))
    result["layouts"] = {minor: forced([minor], minor) for minor in range(10, 15)}
    result["layouts_without_lines"] = {minor: without_lines([minor], minor) for minor in range(10, 15)}
    moved = [(member, offset) for member in range(8) for offset in (-8, 8)]

    def shifted(value, first, second, minor):
        return [keeping.frames_shift_layout(minor, *each) for each in moved]

    result["shifted"] = dict(zip(map(str, moved), shifted([1], [2], [3], sys.version_info[1])))
    # And from module-level code.
    exec("for minor in range(10, 15):\n    said[minor] = force(minor)",
         {"force": keeping.frames_force_layout, "said": (bare := {})})
    result["layouts_bare"] = bare


def run_modules(seed, count):
    """Modules like PyTorch's, and PyTorch's own."""
    result.update(modules=0, named=0, strangers=0, damaged=0, damaged_and_read=0, with_dictionary=0, without_dictionary=0,
                  torch=0)
    importlib.import_module("modules").run(keeping, seed, count, result)


def run_stacks(seed, count):
    """Stacks of a running thread, read by another one."""
    importlib.import_module("stacks").run(keeping, seed, count, result)


class AtEnd:
    """Queries the number of frames of a thread that continues in C, when the interpreter has freed the states of such threads."""

    def __init__(self):
        self.write, self.depth = os.write, releasing.frames_of_endless_walk
        self.stack, self.room = keeping.stacks_own, ctypes.create_string_buffer(1 << 16)

    def __del__(self):
        self.write(1, b"at the end: %d %d\n" % (self.depth(), self.stack(self.room, 1 << 16)))


def run_ending(_seed, _count):
    """A thread continues in C while the interpreter ends, and with it the thread's state; a thread in Python is read until the process
    ends."""
    threading.Thread(target=lambda: releasing.frames_for_ever(), daemon=True).start()
    while (depth := releasing.frames_of_endless_walk()) == 0:
        pass
    result["before"] = depth
    threading.Thread(target=importlib.import_module("stacks").run_for_ever, args=(keeping,), daemon=True).start()
    until = keeping.stacks_count() + 100
    keeping.stacks_start(0)
    while keeping.stacks_count() < until:
        pass
    keeping.stacks_leave()
    # One of the last modules to be cleared; this module's variables are kept alive by the thread.
    sys.at_end = AtEnd()


def run_interpreters(_seed, _count):
    """A second interpreter, and the number of frames counted in it."""
    if sys.version_info < (3, 13):
        interpreters = importlib.import_module("_xxsubinterpreters")
        second, execute = interpreters.create(isolated=False), interpreters.run_string
    else:
        interpreters = importlib.import_module("_interpreters")
        second, execute = interpreters.create("legacy"), interpreters.exec
    reading, writing = os.pipe()
    failure = execute(second, f"""if True:
        import ctypes, os
        probe, text = ctypes.PyDLL({sys.argv[1]!r}), ctypes.create_string_buffer(1 << 16)
        probe.stacks_offer(2)
        def down(depth):
            if depth > 0:
                return down(depth - 1)
            probe.stacks_own(text, len(text))
            return probe.frames_count(), text.value.count(b"\\n")
        os.write({writing}, repr([down(depth) for depth in range(50)]).encode())
        """)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result["second"] = pipe.read() or str(failure)
    # Reading continues while the state of its thread is freed.
    keeping.stacks_start(0)
    interpreters.destroy(second)
    keeping.stacks_stop(ctypes.create_string_buffer(1 << 20), 1 << 20)
    keeping.stacks_clear()
    probe()


if __name__ == "__main__":
    modes = sys.argv[4:]
    # The layouts' test looks for the interpreter itself.
    if "layouts" not in modes:
        result["found"] = keeping.frames_find()
    for mode in modes:
        globals()["run_" + mode](int(sys.argv[2]), int(sys.argv[3]))
    if "layouts" not in modes:
        result["still_found"] = keeping.frames_find()
    print(json.dumps(result), flush=True)
