# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Recorded launch streams (INJECT_ITER_RECORD): reading, comparing with the true iterations, writing a small copy.

A recording is lines of text in the order of their times. An event is `time,kind,function,shape,stream,thread`; the other
lines begin with `# `: `name HASH TEXT`, `mark TIME THREAD TEXT`, `boundary TIME NUMBER`, `open TIME WINDOW`,
`close TIME WINDOW`. Times are in ns, hashes in hexadecimal. A position in a stream is the number of events before it.
"""

import bisect
import lzma

KINDS = ("kernel", "graph", "h2d", "d2h", "copy", "memset", "sync", "call")


class Stream:
    """events: [(time, kind, function, shape, stream, thread)]; marks: [(position, text)]; boundaries, opens, closes:
    [(position, number)]; names: {function: text}; notes: the other comment lines."""

    def __init__(self):
        self.events, self.marks, self.boundaries, self.opens, self.closes = [], [], [], [], []
        self.names, self.notes = {}, []

    def position(self, time):
        """Events before this time."""
        return bisect.bisect_left(self.events, time, key=lambda event: event[0])


def read(lines):
    stream, others = Stream(), []
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("#"):
            words = line[1:].split(None, 1)
            word, rest = (words + ["", ""])[:2]
            fields = rest.split(None, 2)
            if word == "name" and fields:
                stream.names[int(fields[0], 16)] = rest[len(fields[0]):].strip()
            elif word == "mark" and len(fields) == 3:
                others.append((int(fields[0]), "mark", fields[2]))
            elif word in ("boundary", "open", "close") and len(fields) >= 2:
                others.append((int(fields[0]), word, int(fields[1])))
            elif line:
                stream.notes.append(line)
        elif line[:1].isdigit():
            time, kind, function, shape, cuda_stream, thread = line.split(",")[:6]
            stream.events.append((int(time), kind, int(function, 16), int(shape, 16), cuda_stream, thread))
        elif line:
            stream.notes.append(line)
    # Each thread brings its own in order; of equal times, a boundary stands before the event that made it one.
    stream.events.sort(key=lambda event: event[0])
    target = {"mark": stream.marks, "boundary": stream.boundaries, "open": stream.opens, "close": stream.closes}
    for time, word, value in sorted(others, key=lambda other: other[0]):
        target[word].append((stream.position(time), value))
    return stream


def read_file(path):
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", errors="replace") as file:
        return read(file)


# --- against the truth -----------------------------------------------------------------------------------------------

def iterations(marks):
    """{K: (position of its first event, position behind its last)} and [(name, begin, end)] of the phases, from
    [(position, text)] in order."""
    steps, phases = {}, []
    ends = [position for position, _ in marks[1:]] + [None]
    for (position, text), end in zip(marks, ends):
        kind, _, what = text.partition(":")
        if kind == "truth" and what.isdigit() and end is not None:
            steps[int(what)] = (position, end)
        elif kind == "phase" and end is not None:
            phases.append((what, position, end))
    return steps, phases


def steady_from(stream, steps, share=0.9):
    """The first iteration from which on three in a row do what most do: the functions that they have in common with the
    usual ones are at least `share` of both together. None if there is none."""
    functions = {k: frozenset(event[2] for event in stream.events[begin:end]) for k, (begin, end) in steps.items()}
    if not functions:
        return None
    seen = {}
    for own in functions.values():
        for function in own:
            seen[function] = seen.get(function, 0) + 1
    usual = {function for function, count in seen.items() if 2 * count > len(functions)}

    def alike(k):
        union = functions[k] | usual
        return bool(union) and len(functions[k] & usual) >= share * len(union)

    order = sorted(functions)
    for at, k in enumerate(order):
        if all(alike(other) for other in order[at:at + 3]):
            return k
    return None


def boundary_verdict(boundaries, steps, phases, first=0):
    """How [(position, number)] match the true beginnings from iteration `first` on.

    expected: true beginnings from there; exact: those with a boundary between the same two events; early, late: those
    that have one elsewhere within half an iteration, offsets: by how many events (negative: early); missed: without any;
    extra: boundaries that belong to no iteration; in_phases: those of them inside of a validation or the like; shift:
    {number - K: count} over the exact ones."""
    order = sorted(k for k in steps if k >= first)
    positions = sorted(set(position for position, _ in boundaries))
    number_at = dict(boundaries)
    taken, exact, offsets, missed, shift = set(), 0, {}, [], {}
    for at, k in enumerate(order):
        begin, end = steps[k]
        if begin in number_at:
            taken.add(begin)
            exact += 1
            difference = number_at[begin] - k
            shift[difference] = shift.get(difference, 0) + 1
            continue
        before = begin - (steps[k - 1][0] + steps[k - 1][1]) // 2 if k - 1 in steps else 0
        after = (end - begin) // 2
        near = [p for p in positions if p not in taken and -before < p - begin <= after]
        # Another iteration's own boundary is not this one's.
        near = [p for p in near if not any(p == steps[other][0] for other in order)]
        if near:
            nearest = min(near, key=lambda p: abs(p - begin))
            taken.add(nearest)
            offsets[nearest - begin] = offsets.get(nearest - begin, 0) + 1
        else:
            missed.append(k)
    start = steps[order[0]][0] if order else 0
    last = steps[order[-1]][1] if order else 0
    extra = [p for p in positions if p not in taken and start <= p < last]
    return {"expected": len(order), "exact": exact, "offsets": offsets, "missed": missed, "extra": len(extra),
            "extra_positions": extra[:20],
            "in_phases": sum(any(begin <= p < end for _, begin, end in phases) for p in extra), "shift": shift}


def covered(begin, end, steps, phases):
    """What lies between two positions: full: iterations wholly in, partial: {K: (events in, events it has)},
    phases: {name: events in}, other: events that belong to neither."""
    full, partial, inside, counted = [], {}, {}, 0

    def common(a, b):
        return max(0, min(b, end) - max(a, begin))

    for k in sorted(steps):
        a, b = steps[k]
        events = common(a, b)
        counted += events
        if events == b - a and events > 0:
            full.append(k)
        elif events > 0:
            partial[k] = (events, b - a)
    for name, a, b in phases:
        if common(a, b):
            inside[name] = inside.get(name, 0) + common(a, b)
            counted += common(a, b)
    return {"full": full, "partial": partial, "phases": inside, "other": end - begin - counted}


def ranges_text(numbers):
    """[50, 51, 52, 54] -> '50-52,54'."""
    parts, numbers = [], sorted(numbers)
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in parts) or "none"


def covered_text(verdict):
    text = ranges_text(verdict["full"])
    text += "".join(f" +{events}/{of} of {k}" for k, (events, of) in verdict["partial"].items())
    text += "".join(f" +{events} of {name}" for name, events in verdict["phases"].items())
    return text + (f" +{verdict['other']} other" if verdict["other"] else "")


# --- a small copy ----------------------------------------------------------------------------------------------------

def write_compact(stream, path, title, longest_name=120):
    """The same stream, small: times from 0 on in whole µs (written as ns), hashes, streams and threads replaced with
    small numbers in order of their appearance. Reads as any recording does. Returns the size of the file."""
    # Functions and shapes are hashes of one space, in which equal values mean equal things; 0 is none.
    hashes, streams, threads = {0: 0}, {}, {}

    def small(numbers, value):
        return numbers.setdefault(value, len(numbers) + (numbers is not hashes))

    zero = stream.events[0][0] if stream.events else 0
    lines = [f"# stream {title}"]
    others = sorted([(p, f"# mark {{}} 1 {text}") for p, text in stream.marks] +
                    [(p, f"# boundary {{}} {n}") for p, n in stream.boundaries] +
                    [(p, f"# close {{}} {n}") for p, n in stream.closes] +
                    [(p, f"# open {{}} {n}") for p, n in stream.opens], key=lambda other: other[0])
    named, last, at = set(), -1000, 0
    for position, (time, kind, function, shape, cuda_stream, thread) in enumerate(stream.events):
        # Strictly ascending, so that what stands between two events is still there when the file is read.
        moment = max((time - zero) // 1000 * 1000, last + 1000)
        while at < len(others) and others[at][0] <= position:
            lines.append(others[at][1].format(moment))
            at += 1
        if function not in named:
            named.add(function)
            if function in stream.names:
                lines.append(f"# name {small(hashes, function):x} {stream.names[function][:longest_name]}")
        lines.append(f"{moment},{kind},{small(hashes, function):x},{small(hashes, shape):x},"
                     f"{small(streams, cuda_stream)},{small(threads, thread)}")
        last = moment
    lines += [text.format(last + 1000) for _, text in others[at:]]
    data = lzma.compress(("\n".join(lines) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
    with open(path, "wb") as file:
        file.write(data)
    return len(data)
