# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Recorded launch streams (INJECT_ITER_RECORD): reading, comparing with the true iterations, writing a small copy.

The format is that of libinject/iterations/iteration_search.h. A position in a stream is the number of events before it.
"""

import lzma

KINDS = {"K": "kernel", "G": "graph", "H": "h2d", "D": "d2h", "P": "copy", "S": "memset", "Y": "sync", "L": "call", "T": "step"}
LETTERS = {kind: letter for letter, kind in KINDS.items()}


class Stream:
    """events: [(time, kind, function, shape, stream, thread)], times in ns from the first line on; marks: [(position, text)]; boundaries,
    opens, closes: [(position, number)], boundaries as seen while the program ran; locks: [Lock], whenever iterations were recognised;
    restarts: positions at which the search started over, without a lock; names: {function: text}; unread: lines of unknown form."""

    def __init__(self):
        self.events, self.marks, self.boundaries, self.opens, self.closes = [], [], [], [], []
        self.locks, self.restarts, self.names, self.unread = [], [], {}, []

    def lock(self):
        """The lock in effect at the end, or None."""
        return self.locks[-1] if self.locks and not (self.restarts and self.restarts[-1] >= self.locks[-1].position) else None


class Lock:
    """position: where in the stream it was found; before: iterations that were over by its own count; spans: [(number, position of the
    first event, whether it is a phase between iterations)], including those before `position`."""

    def __init__(self, position, before, optimizer, by_shape, rough, events, begin, anchor):
        self.position, self.before, self.optimizer, self.by_shape, self.rough = position, before, optimizer, by_shape, rough
        self.events, self.begin, self.anchor, self.spans = events, begin, anchor, []


def read(lines):
    stream, time, edges, base = Stream(), 0, [], 0
    for line in lines:
        letter, _, rest = line.rstrip("\n").partition(" ")
        fields = rest.split(" ")
        try:
            if letter in KINDS:
                time += int(fields[0])
                thread, cuda_stream, function, shape = map(int, fields[1:5])
                stream.events.append((time, KINDS[letter], function, shape, cuda_stream, thread))
            elif letter == "F":
                number, _, name = rest.partition(" ")
                stream.names[int(number)] = name
            elif letter in ("M", "B"):
                time += int(fields[0])
                text = rest.split(" ", 2)[2]
                if letter == "M":
                    stream.marks.append((len(stream.events), text))
                else:
                    stream.boundaries.append((len(stream.events), int(text)))
            elif letter in ("O", "C"):
                edges.append((letter, int(fields[0]), int(fields[1]), len(stream.events)))
            elif letter == "X":
                begin, _, anchor = rest.split(" ", 6)[6].partition(" | ")
                stream.locks.append(Lock(base + int(fields[0]), int(fields[1]), *(field == "1" for field in fields[2:5]),
                                         int(fields[5]), begin, anchor))
            elif letter == "I":
                stream.locks[-1].spans.append((int(fields[0]), base + int(fields[1]), fields[2] == "1"))
            elif letter == "E":
                pass  # the program reports its optimizers' steps: each is an event
            elif letter == "R":
                base = len(stream.events)
                stream.restarts.append(base)
            else:
                stream.unread.append(line)
        except (ValueError, IndexError):
            stream.unread.append(line)
    # A window's edge is at the boundary that it names, whenever it was recorded.
    positions = {number: position for position, number in stream.boundaries}
    for letter, boundary, window, position in edges:
        (stream.opens if letter == "O" else stream.closes).append((positions.get(boundary, position), window))
    return stream


def read_file(path):
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", errors="replace") as file:
        return read(file)


# --- against the truth -----------------------------------------------------------------------------------------------

def iterations(marks):
    """{K: (position of its first event, position after its last)} and [(name, begin, end)] of the phases, from [(position, text)] in
    order."""
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
    """The first of three consecutive iterations that do what most iterations do: the functions that they share with the usual ones are at
    least `share` of both together. None if there is none."""
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

    expected: number of true beginnings from there; exact: those with a boundary between the same two events; early, late: those with one
    elsewhere within half an iteration, offsets: by how many events (negative: early); missed: without any; extra: boundaries that belong to
    no iteration; in_phases: those of them inside a validation or the like; shift: {number - K: count} over the exact ones."""
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


def span_verdict(spans, steps, first=0):
    """How a lock's spans match the true iterations from `first` on. expected: their number; exact: those for which an iteration of the same
    number begins with the same event; wrong: the others; elsewhere: [(number, position)] of iterations that begin where no true one does,
    between the first and the last true one."""
    order = sorted(k for k in steps if k >= first)
    begins = {position: number for number, position, phase in spans if not phase}
    wrong = [k for k in order if begins.get(steps[k][0]) != k]
    true = {begin for begin, _ in steps.values()}
    elsewhere = [(number, position) for position, number in sorted(begins.items())
                 if order and steps[order[0]][0] <= position < steps[order[-1]][1] and position not in true]
    return {"expected": len(order), "exact": len(order) - len(wrong), "wrong": wrong, "elsewhere": elsewhere}


def covered(begin, end, steps, phases):
    """What lies between two positions: full: complete iterations, partial: {K: (events inside, events in total)}, phases: {name: events
    inside}, other: events that belong to neither."""
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

def compact_lines(lines, resolution):
    """The same recording with times in steps of `resolution` ns, and only the program's own marks."""
    time = written = 0
    for line in lines:
        letter, _, rest = line.rstrip("\n").partition(" ")
        if letter in KINDS or letter in ("M", "B"):
            passed, _, rest = rest.partition(" ")
            time += int(passed)
            # A framework may push a range for each of its own launches.
            if letter == "M" and not rest.partition(" ")[2].lstrip(":").startswith(("truth:", "phase:")):
                continue
            step = (time - written) // resolution * resolution
            written += step
            yield f"{letter} {step} {rest}"
        else:
            yield line.rstrip("\n")


def write_compact(lines, path, limit=60_000):
    """Writes a small copy of a recording, which can be read like any other: xz, with a time resolution just coarse enough to stay under
    `limit` bytes, but no coarser than 1 ms. Returns the size of the file."""
    for resolution in (1000, 10_000, 100_000, 1_000_000):
        data = lzma.compress(("\n".join(compact_lines(lines, resolution)) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
        if len(data) <= limit:
            break
    with open(path, "wb") as file:
        file.write(data)
    return len(data)
