#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""How often the stated certainty is right: recorded launch streams (tests/data/iterations), changed a little and begun anywhere.

Each stream is perturbed (seeded): its times are scaled by 0.5 to 2 and jittered by a fifth; 0.1 to 1 % of its signs are doubled, and
equal neighbours become one as often; a kernel that the program does not have comes in three to twelve places; neighbours of different
threads change places, one in fifty. In every other perturbation as many signs are lost, whatever they are, and the search is told so,
as it would be. Steps (T) are neither lost nor doubled. Each of these begins at five places. Every stream of PyTorch's is taken with
its steps and without.

A case is right if, from the last lock on, the iterations found are those that the program marked. A true iteration is found if one
begins within a tolerance of its first sign: two signs, or the rate of changed signs times the signs of an iteration if that is more;
what runs between two iterations (phases) may belong to the following one. Those that are missed, or those that begin elsewhere,
whichever are more, may be 5 % of the true ones, and three times the rate of changed signs, as a lost mark moves a boundary; or one.
So iterations that are regularly split or joined are wrong. Cases with fewer than five true iterations after the lock are not judged.
Where several passes of a loop repeat together (two_optimizers), these are the iterations.

usage: calibration.py REPLAY DATA [--perturbations N] [--cuts N] [--sample N] [--only NAMES] [--jobs N] [--promise]
"""

import argparse
import concurrent.futures
import functools
import lzma
import math
import pathlib
import random
import subprocess
import sys

import test_streams

EVENTS = "KGHDPSYLT"
FRACTIONS = (0.0, 0.12, 0.24, 0.36, 0.48)  # of the signs, where a stream begins
LEVELS = ("high", "medium", "low")
# Each program has the same weight.
TARGETS = {"high": 0.995, "medium": 0.95, "low": 0.70}

FAMILIES = {
    "vision": "amp compile dataloader lightning mlp multistream resnet50 timm_lamb validation validation_often",
    "language": "accelerate_plain dynamic_shapes grad_accum hf_trainer hf_trainer_eval lora lstm_fixed lstm_lm lstm_variable "
                "scaler_skips transformer",
    "GAN": "gan gan_two_one wgan_gp",
    "reinforcement": "dqn",
    "diffusion": "diffusion",
    "graphs": "gnn",
    "speech": "speech_ctc",
    "experts": "experts",
    "line search": "lbfgs",
    "several optimizers": "per_parameter two_optimizers",
    "sharded": "ddp ddp_no_sync fsdp2 pipeline zero",
    "JAX": "flax jax jax_async",
    "Python kernels": "cupy numba",
    "CUDA graph": "cudagraph",
}
FAMILY = {program: family for family, programs in FAMILIES.items() for program in programs.split()}


# --- cases -----------------------------------------------------------------------------------------------------------

def members(lines):
    """{line of a step: lines of the signs in it}."""
    of_thread, found = {}, {}
    for i, line in enumerate(lines):
        if line[0] not in EVENTS:
            continue
        _, _, thread, stream, _ = line.split(" ", 4)
        own = of_thread.setdefault(thread, [])
        if line[0] == "T":
            found[i] = own[len(own) - int(stream):] if int(stream) else []
        else:
            own.append(i)
    return found


def perturbed(lines, in_steps, fraction, draw, lossy):
    """The perturbed stream from there on, and the rate of signs that were dropped or doubled. `lossy`: any sign may be lost."""
    rate, scale = draw.uniform(0.001, 0.01), math.exp(draw.uniform(-math.log(2), math.log(2)))
    events = [i for i, line in enumerate(lines) if line[0] in EVENTS]
    start = events[int(fraction * len(events))]
    rare = set(draw.sample(range(start, len(lines)), draw.randint(3, 12)))
    times, out, last = {}, [], None  # copies of each sign in the output
    for i, line in enumerate(lines):
        letter = line[0]
        if letter in "FE":
            out.append(line)
        elif i >= start and letter == "M":
            out.append("M 0" + line[line.index(" ", 2):])
        elif i >= start and letter in EVENTS:
            chance = draw.random() if letter != "T" else 1
            _, passed, thread, stream, rest = line.split(" ", 4)
            gone = chance < rate and (lossy or (letter, rest) == last)
            times[i], last = 0 if gone else 2 if rate <= chance < 2 * rate else 1, (letter, rest)
            if letter == "T":
                stream = str(sum(times.get(member, 0) for member in in_steps[i]))
            passed = int(int(passed) * scale * draw.uniform(0.8, 1.2))
            out += [f"{letter} {passed} {thread} {stream} {rest}"] * times[i]
            if i in rare:
                out.append(f"K 1000 {thread} 1 999999 999999")
                for step in range(i + 1, len(lines)):  # it may be in a step of that thread
                    if lines[step][0] == "T" and lines[step].split(" ", 3)[2] == thread:
                        if in_steps[step] and in_steps[step][0] <= i:
                            in_steps = {**in_steps, step: [*in_steps[step], i + 0.5]}
                            times[i + 0.5] = 1
                        break
    for i in range(1, len(out)):
        a, b = out[i - 1], out[i]
        if a[0] in EVENTS and b[0] in EVENTS and a.split(" ", 3)[2] != b.split(" ", 3)[2] and draw.random() < 0.02:
            out[i - 1], out[i] = b, a
    return "\n".join(out) + "\n", 2 * rate


def truth(text):
    """[(earliest beginning, first sign)] of the iterations, the number of signs in one, and where the last one ends."""
    position, marks = 0, []
    for line in text.splitlines():
        if line[0] in EVENTS:
            position += 1
        elif line[0] == "M":
            marks.append((position, line.split(" ", 3)[3].lstrip(":")))
    found, early, end = [], None, position
    for (begin, mark), (following, _) in zip(marks, marks[1:] + [(position, "")]):
        if mark.startswith("phase:"):
            early = begin if early is None else early
        elif mark.removeprefix("truth:").isdigit():
            found.append((begin if early is None else early, begin))
            early, end = None, following
    lengths = sorted(b[0] - a[1] for a, b in zip(found, found[1:])) or [1]
    return found, max(1, lengths[len(lengths) // 2]), end


def is_right(begins, true, each, end, rate):
    """Whether the iterations found are the true ones, see above; None if too few are left."""
    tolerance = max(2, rate * each)
    if len(true) < 5:
        return None
    begins = [begin for begin in begins if true[0][0] - tolerance <= begin < min(end, true[-1][1] + tolerance + 1)]
    used, missed = set(), 0
    for early, first in true:
        near = [b for b in begins if early - tolerance <= b <= first + tolerance and b not in used]
        if near:
            used.add(min(near, key=lambda b: abs(b - first)))
        else:
            missed += 1
    return max(missed, len(begins) - len(used)) <= max(1.0, (0.05 + 3 * rate) * len(true))


def judge(replay, text, rate, passes, lossy):
    """(level or None, evidence, right or None)."""
    command = [replay, *(["lost"] if lossy else [])]
    output = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120).stdout
    locked, begins, level, evidence = 0, [], None, None
    for line in output.splitlines():
        kind, *fields = line.split(" ")
        if kind == "lock":
            locked, begins = int(fields[0]), []
        elif kind == "span" and fields[4] == "0":
            begins.append(int(fields[1]))
        elif kind == "certainty":
            level, (steps, optimizer, doubtful, rough, by_shape, _) = fields[0], fields[1:]
            evidence = ("steps" if steps != "0" else "names" if optimizer == "1" else "repetition",
                        "doubtful" if doubtful == "1" else "", "guess" if rough == "1" else "",
                        "" if by_shape == "1" else "by function", "signs lost" if lossy else "")
    if level is None:
        return None, None, None
    true, each, end = truth(text)
    # The iteration in progress at the lock was counted backwards.
    true = [iteration for iteration in true if iteration[0] > locked]
    # The last one may have no end.
    verdicts = [is_right(begins, true[offset::passes][:-1], each * passes, end, rate) for offset in range(passes)]
    if passes > 1:
        verdicts.append(is_right(begins, true[:-1], each, end, rate))
    judged = [verdict for verdict in verdicts if verdict is not None]
    return level, " ".join(word for word in evidence if word), any(judged) if judged else None


def cases_of(name, path, options):
    """[(program, its stream, number of the perturbation, index of its beginning, whether with steps)]."""
    told = [True] if name in test_streams.WITHOUT_STEPS else [True, False]
    return [(name, path, number, cut, with_steps) for number in range(options.perturbations)
            for cut in range(options.cuts) for with_steps in told]


def run_case(options, case):
    name, path, number, cut, with_steps = case
    whole = lzma.decompress(path.read_bytes()).decode(errors="replace")
    lines = [line for line in whole.splitlines() if line and line[0] in EVENTS + "FEM"]
    if not with_steps:
        lines = [line for line in lines if line[0] not in "ET"]
    draw = random.Random(f"{name} {number} {cut}")
    # Somewhere between two of the fractions.
    fraction = FRACTIONS[cut] + (draw.uniform(0, 0.1) if cut else 0)
    text, rate = perturbed(lines, members(lines), fraction, draw, number % 2 == 1)
    expected = test_streams.PROGRAMS.get(name, test_streams.Expected())
    level, evidence, right = judge(options.replay, text, rate, expected.passes, number % 2 == 1)
    # A stream only begins in the middle with triggers that see nothing but windows, and libinject reports that.
    return case, (("low", evidence + " in windows", right) if cut and level is not None else (level, evidence, right))


# --- figures ---------------------------------------------------------------------------------------------------------

def wilson(share, n):
    """The 95 % interval of a share among n independent cases."""
    if n == 0:
        return 0.0, 1.0
    z = 1.96
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def share_of(results):
    """(share right, number of programs) of [(program, right)], with equal weight for each program."""
    programs = {}
    for program, right in results:
        programs.setdefault(program, []).append(right)
    shares = [sum(verdicts) / len(verdicts) for verdicts in programs.values()]
    return (sum(shares) / len(shares) if shares else 0.0), len(shares)


def row(title, results):
    share, programs = share_of(results)
    low, high = wilson(share, programs)
    families = len({FAMILY[program] for program, _ in results})
    right = sum(right for _, right in results)
    return (f"| {title} | {programs} | {families} | {right} of {len(results)} | {100 * share:.1f} % | "
            f"{100 * low:.0f} to {100 * high:.0f} % |")


def chosen(results, stated):
    """The highest level, at most the stated one, that the results with this evidence meet; needs at least three programs."""
    share, programs = share_of(results)
    for level in LEVELS[LEVELS.index(stated):-1]:
        if programs >= 3 and share >= TARGETS[level]:
            return level
    return "low"


def unseen_families(judged):
    """{level: [(program, right)]}, with the level for each kind of evidence chosen without the family that is judged."""
    found = {level: [] for level in LEVELS}
    for family in FAMILIES:
        others = {}
        for program, _, evidence, right in judged:
            if FAMILY[program] != family:
                others.setdefault(evidence, []).append((program, right))
        for program, level, evidence, right in judged:
            if FAMILY[program] == family:
                found[chosen(others.get(evidence, []), level)].append((program, right))
    return found


HEADER = "| {} | programs | families | cases right | right, programs alike | interval |\n|---|---|---|---|---|---|"


def report(done):
    judged = [(case[0], level, evidence, right) for case, (level, evidence, right) in done if right is not None]
    stated = {level: [(program, right) for program, its, _, right in judged if its == level] for level in LEVELS}
    print(HEADER.format("certainty"))
    for level in LEVELS:
        print(row(f"`{level}`", stated[level]))
    print("\n" + HEADER.format("certainty, and where the stream begins"))
    for inside in (False, True):
        for level in LEVELS:
            title = f"`{level}`, " + ("somewhere inside" if inside else "with the program")
            print(row(title, [(case[0], right) for case, (its, _, right) in done
                              if right is not None and its == level and bool(case[3]) == inside]))
    print("\n" + HEADER.format("on families not seen"))
    for level, results in unseen_families(judged).items():
        print(row(f"`{level}`", results))
    print("\n" + HEADER.format("evidence"))
    for level, evidence in sorted({(level, evidence) for _, level, evidence, _ in judged}, key=lambda key: (LEVELS.index(key[0]), key[1])):
        print(row(f"`{level}`: {evidence}", [(p, right) for p, its, what, right in judged if (its, what) == (level, evidence)]))
    print("\n" + HEADER.format("family, with its steps"))
    for family in FAMILIES:
        print(row(family, [(case[0], right) for case, (_, _, right) in done
                           if right is not None and case[4] and FAMILY[case[0]] == family]))
    wrong = {}
    for case, (level, evidence, right) in done:
        if right is False:
            key = (level, evidence, case[0])
            wrong[key] = wrong.get(key, 0) + 1
    print("\nwrong: " + "; ".join(f"{level} {program} ({evidence}) {count}" for (level, evidence, program), count in sorted(wrong.items())))
    print(f"{len(done)} cases; {sum(level is None for _, (level, _, _) in done)} without iterations found, "
          f"{sum(level is not None and right is None for _, (level, _, right) in done)} with too few left to judge")
    return {level: [((case[0], right), case[3] != 0) for case, (its, _, right) in done if right is not None and its == level]
            for level in LEVELS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("replay", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--perturbations", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=len(FRACTIONS))
    parser.add_argument("--sample", type=int, help="so many cases of each program instead of all")
    parser.add_argument("--only", default="", help="comma-separated names of programs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--promise", action="store_true", help="fail if a level is right less often than the documentation says")
    options = parser.parse_args()
    names = {path.name.removesuffix(".stream.xz"): path for path in sorted(options.data.glob("*.stream.xz"))}
    names = {name: path for name, path in names.items() if not name.endswith("_300")}  # longer runs of the same programs
    missing = sorted(set(names) ^ set(FAMILY))
    if missing:
        sys.exit(f"without a family, or without a stream: {', '.join(missing)}")
    cases = []
    for name, path in names.items():
        own = cases_of(name, path, options) if not options.only or name in options.only.split(",") else []
        cases += random.Random(name).sample(own, options.sample) if options.sample and options.sample < len(own) else own
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        done = list(pool.map(functools.partial(run_case, options), cases, chunksize=4))
    stated = report(done)
    if not options.promise:
        return
    for cases in ("that begin with the program", "in all"):
        for level, promised in TARGETS.items():
            results = [result for result, inside in stated[level] if not inside or cases == "in all"]
            share, programs = share_of(results)
            if programs == 0 or share < promised:
                sys.exit(f"{level}, of those {cases}: {100 * share:.1f} % of {programs} programs, {100 * promised:.1f} % are promised")


if __name__ == "__main__":
    main()
