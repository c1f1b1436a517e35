# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs every example with the command line of examples/README.md and keeps what it printed.

examples-outputs.json then holds the outputs; `examples.py --fill examples-outputs.json` puts them into the README, each between its
markers, so that no table there was typed by hand.
"""

import json
import os
import re
import shlex
import shutil
import sys

from gputest import Folder, clean_environment, folders, main, module_missing, run

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
README = os.path.join(EXAMPLES, "README.md")
SECTION = re.compile(r"^    (?P<command>LD_PRELOAD=[^\n]*)$\n+<!-- output: (?P<name>\w+) -->\n(?P<output>.*?)<!-- end -->", re.M | re.S)
MODULES = {"train": (), "jax_train": ("jax",), "numba_saxpy": ("numba",), "cupy_gemm": ("cupy",),
           "triton_softmax": ("torch", "triton"), "resnet50": ("torch", "torchvision")}
# Part of the name of a kernel that the example must have run.
KERNELS = {"numba_saxpy": "saxpy", "cupy_gemm": "leaky_relu", "triton_softmax": "softmax_kernel"}


def command_of(line, options):
    """The README's command line as (argv, environment), with this build's library and programs."""
    words = shlex.split(line.replace("$PWD/build/libinject.so", options.library))
    environment = clean_environment()
    while re.match(r"^\w+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if words[0] == "python3":
        if shutil.which(words[0]) != sys.executable:
            words[0] = sys.executable
    elif not os.path.exists(os.path.join(options.work, words[0])):
        # A folder with only the binaries.
        words[0] = os.path.join("build", os.path.basename(words[0]))
    return words, environment


def one(options, report, name, line, outputs):
    reason = module_missing(*MODULES.get(name, ("torch",)))
    argv, environment = command_of(line, options)
    if not reason and "/" in argv[0] and not os.path.exists(os.path.join(options.work, argv[0])):
        reason = f"{argv[0]} is not built"
    if reason:
        report.skip(name, reason)
        return
    out = os.path.join(options.work, name)
    environment["INJECT_OUT"] = out
    environment["INJECT_SUMMARY"] = os.path.join(options.work, name + ".txt")
    result = run(argv, environment, timeout=90, cwd=options.work, log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    if not report.check(f"{name}: ends well, one output folder", result.rc == 0 and len(found) == 1,
                        result.why() if result.rc or not found else f"{result.seconds:.0f} s"):
        return
    folder = Folder(found[0])
    kernels = folder.kernel_counts()
    part = KERNELS.get(name, "")
    report.check(f"{name}: kernels in the tables", any(part in k for k in kernels), f"{sum(kernels.values())} of {len(kernels)} names")
    summary = environment["INJECT_SUMMARY"]
    text = open(summary).read() if os.path.exists(summary) else ""
    report.check(f"{name}: summary written", bool(text.strip()), f"{len(text.splitlines())} lines")
    widest = max((len(row) for row in text.splitlines()), default=0)
    report.check(f"{name}: summary fits 120 columns", widest <= 120, f"{widest}")
    outputs[name] = {"stdout": result.out, "summary": text.replace(out, "inject-HOST-PID"), "files": folder.files()}


def test(options, report):
    outputs = {}
    # Commands are run as in the README, so that their output has its paths.
    for name, folder in (("examples", EXAMPLES), ("build", os.path.dirname(options.library))):
        link = os.path.join(options.work, name)
        if not os.path.lexists(link):
            os.symlink(os.path.abspath(folder), link)
    with open(README) as file:
        sections = [(m["name"], m["command"]) for m in SECTION.finditer(file.read())]
    only = options.only.split(",") if options.only else [name for name, _ in sections]
    for name, line in sections:
        if name in only:
            report.guarded(name, one, options, report, name, line, outputs)
    with open(os.path.join(options.out, "examples-outputs.json"), "w") as file:
        json.dump(outputs, file, indent=1)


def fill(path):
    with open(path) as file:
        outputs = json.load(file)
    with open(README) as file:
        text = file.read()

    def section(match):
        output = outputs.get(match["name"])
        if output is None:
            return match[0]
        printed = (output["stdout"].rstrip() + "\n" + output["summary"].rstrip("\n")).strip("\n")
        return match[0].replace(f"-->\n{match['output']}<!-- end -->", f"-->\n```text\n{printed}\n```\n<!-- end -->")

    with open(README, "w") as file:
        file.write(SECTION.sub(section, text))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--fill":
        fill(sys.argv[2])
    else:
        main("examples", test, arguments=lambda p: p.add_argument("--only", help="names, separated by commas"))
