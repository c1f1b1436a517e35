#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Completes a machine's CUDA toolkit from the vendor's Python packages (scripts/cuda-wheels.txt), into one folder
that is laid out like a toolkit. Takes nothing that the machine has.

usage: fetch_cuda.py OUT [--libraries | --headers]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

TABLE = pathlib.Path(__file__).with_name("cuda-wheels.txt")


def toolkits():
    """The places where cmake/InjectCudaHeaders.cmake looks, in the same order."""
    places = [os.environ.get(name) for name in ("INJECT_CUDA_ROOT", "CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    return [pathlib.Path(place) for place in places if place]


def has_header(header, out):
    folders = [root / sub for root in toolkits() for sub in ("include", "extras/CUPTI/include")]
    folders += [pathlib.Path("/usr/local/include"), pathlib.Path("/usr/include"), out / "include"]
    return any((folder / header).exists() for folder in folders)


def has_nvcc(out):
    return any(os.access(root / "bin/nvcc", os.X_OK) for root in toolkits() + [out]) or shutil.which("nvcc") is not None


def has_library(library, out):
    folders = [root / sub for root in toolkits() + [out] for sub in ("lib64", "lib", "extras/CUPTI/lib64")]
    return any((folder / library).exists() for folder in folders)


def wanted(out, libraries, compiler):
    """package==version -> the part needed from it: "include" (its headers) or "all"."""
    rows = [line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    nvcc = not compiler or has_nvcc(out)
    take, optional = {}, set()
    for need, file, package, version in rows:
        requirement = f"{package}=={version}"
        if need in ("headers", "optional") and not has_header(file, out):
            take.setdefault(requirement, "include")
            if need == "optional":
                optional.add(requirement)
        elif (need == "nvcc" and not nvcc) or (need == "libraries" and libraries and not has_library(file, out)):
            take[requirement] = "all"
    return take, optional


def unpack(wheel, part, out):
    """nvidia/cu13/include/x -> OUT/include/x, nvidia/cudnn/include/x -> OUT/include/x."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = pathlib.PurePosixPath(entry.filename).parts
            if entry.is_dir() or len(path) < 4 or path[0] != "nvidia" or (part == "include" and path[2] != "include"):
                continue
            target = out.joinpath(*path[2:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink)
            if "bin" in path:
                target.chmod(0o755)
            if ".so." in target.name:  # the name that -lNAME looks for
                link = target.with_name(target.name.split(".so.")[0] + ".so")
                link.unlink(missing_ok=True)
                link.symlink_to(target.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--libraries", action="store_true", help="the libraries to run with a GPU as well")
    parts.add_argument("--headers", action="store_true", help="the headers alone, no compiler: what the library is built from")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    if not (arguments.out / "lib64").exists() and not (arguments.out / "lib64").is_symlink():  # a dangling link
        (arguments.out / "lib64").symlink_to("lib")  # nvcc looks in lib64; the packages have lib
    take, optional = wanted(arguments.out, arguments.libraries, not arguments.headers)
    for requirement, part in take.items():
        print(f"setup: fetching {requirement}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                       "--only-binary=:all:", "--dest", folder, requirement]
            if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode != 0:
                if requirement in optional:
                    print(f"setup: no {requirement}: its hooks will be left out", file=sys.stderr)
                    continue
                print(f"setup: {requirement} can't be fetched, and the machine has no CUDA toolkit with its files",
                      file=sys.stderr)
                return 1
            for wheel in pathlib.Path(folder).glob("*.whl"):
                unpack(wheel, part, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
