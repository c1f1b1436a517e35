# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""torch.profiler beside us: after our window it works; inside it has CUPTI, our window is closed early and one line says why."""

import json
import os
import sys

from gputest import Folder, folders, main, profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_both.py")


def lines_on_cupti(err):
    """Our own messages that mention CUPTI."""
    return [line for line in err.splitlines() if "inject" in line.lower() and "cupti" in line.lower()]


def relus(folder):
    return sum(c for n, c in folder.kernel_counts().items() if "relu" in n or "clamp" in n)


def run_mode(options, report, mode, window="api"):
    out = os.path.join(options.work, mode + ".out")
    result = run([sys.executable, PROGRAM, "--mode", mode], profiled_environment(options.library, out, window, summary="off"), timeout=60,
                 cwd=options.work, log=os.path.join(options.work, mode + ".log"))
    report.check(f"{mode}: program ends well", result.rc == 0, result.why() if result.rc else "")
    seen = json.loads(result.out.strip().splitlines()[-1]) if result.rc == 0 else {"theirs": -1, "count": 0}
    found = folders(out)
    report.data[mode] = {"seen": seen, "stderr": result.err[-3000:], "folders": found}
    return seen, Folder(found[0]) if len(found) == 1 else None, result


def after(options, report):
    seen, folder, _ = run_mode(options, report, "after")
    report.check("after: our window", folder is not None and relus(folder) == seen["count"], folder and relus(folder))
    report.check("after: torch.profiler sees its kernels", seen["theirs"] == seen["count"], seen)


def inside(options, report):
    seen, folder, result = run_mode(options, report, "inside")
    report.check("inside: torch.profiler sees its kernels", seen["theirs"] == seen["count"], seen)
    lines = [line for line in lines_on_cupti(result.err) if "closed early" in line]
    report.check("inside: one line says that it has taken CUPTI", len(lines) == 1, " | ".join(lines) or "none")
    # What ran up to that point.
    ours = relus(folder) if folder else 0
    report.check("inside: our window has all until it came", ours == seen["count"] and folder.lost() == {},
                 f"{ours} of {seen['count']}; torch.profiler saw {seen['theirs']}")


def before(options, report):
    # torch.profiler keeps the subscriber slot after its window; ours can only report that.
    seen, folder, result = run_mode(options, report, "before")
    report.check("before: torch.profiler sees its kernels", seen["theirs"] == seen["count"], seen)
    lines = lines_on_cupti(result.err)
    ours = relus(folder) if folder else 0
    report.check("before: ours records, or one line says who holds CUPTI", ours == seen["count"] or len(lines) == 1,
                 f"{ours} kernels; " + (" | ".join(lines) or "no line"))


def only(options, report):
    # No window of ours opens: the program's own profiler must not be affected.
    seen, folder, _ = run_mode(options, report, "only")
    report.check("only: torch.profiler sees its kernels", seen["theirs"] == seen["count"], seen)
    report.check("only: no output folder without a window", folder is None, folder and folder.path)


def test(options, report):
    for name, function in (("after", after), ("inside", inside), ("before", before), ("only", only)):
        report.guarded(name, function, options, report)


if __name__ == "__main__":
    main("after_inside", test, modules=("torch",))
