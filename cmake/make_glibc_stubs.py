#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes stand-ins of the C library to link against: the symbols that an older glibc had, nothing newer.

A preloaded library that needs a newer glibc than the machine has ends every command there. glibc keeps the old
versions of its symbols, but a linker takes the newest. The stand-ins define, for each name, the newest version that
the floor allows, so the linker can take no other; a name that the floor lacks is an undefined symbol at link time.

usage: make_glibc_stubs.py CC READELF FLOOR OUT   (FLOOR as in 2.28)
"""

import pathlib
import re
import shutil
import subprocess
import sys

# libpthread and libdl are empty since glibc 2.34 but must stay needed: before it they are where the functions are.
LIBRARIES = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"]
TYPES = {"FUNC": "function", "IFUNC": "function", "OBJECT": "object"}


def version_key(version):
    """GLIBC_2.2.5 -> (2, 2, 5); None for GLIBC_PRIVATE and other people's versions."""
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def symbols_of(library, readelf, floor):
    """name -> (version, assembler type), each at the newest version that is not above the floor."""
    listing = subprocess.run([readelf, "--dyn-syms", "-W", library], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[3] not in TYPES or fields[6] == "UND" or "@" not in fields[7]:
            continue
        name, version = re.split("@+", fields[7], maxsplit=1)
        if name == version:
            continue  # the version's own symbol, which the linker makes
        key = version_key(version)
        if key and key <= floor and (name not in found or key > version_key(found[name][0])):
            found[name] = (version, TYPES[fields[3]])
    return found


def path_of(library, compiler):
    return subprocess.run([compiler, f"-print-file-name={library}"], check=True, capture_output=True, text=True).stdout.strip()


def loaders(libc, readelf):
    """The C library's own. A machine may have another architecture's as well, which the compiler finds by name too."""
    listing = subprocess.run([readelf, "-d", "-W", libc], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(ld-linux[^]]*)\]", listing)


def write_stub(library, symbols, compiler, out):
    assembly = ["\t.data"]
    for index, (name, (version, kind)) in enumerate(sorted(symbols.items())):
        assembly += [f"\t.globl s{index}", f"\t.type s{index}, @{kind}", f"\t.size s{index}, 8", f"s{index}: .quad 0",
                     f"\t.symver s{index}, {name}@@{version}"]
    assembly.append('\t.section .note.GNU-stack, "", @progbits')
    versions = sorted({version for version, _ in symbols.values()}, key=version_key)
    (out / f"{library}.s").write_text("\n".join(assembly) + "\n")
    # "local: *" in a node of its own: in a version's node it would hide that version's symbols as well.
    nodes = ["HIDDEN { local: *; };"] + [f"{version} {{ }};" for version in versions]
    (out / f"{library}.map").write_text("\n".join(nodes) + "\n")
    subprocess.run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library}",
                    f"-Wl,--version-script,{out / (library + '.map')}", "-o", out / library, out / f"{library}.s"],
                   check=True)


def main():
    compiler, readelf, floor, out = sys.argv[1:]
    floor = tuple(int(part) for part in floor.split("."))
    out = pathlib.Path(out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for library in LIBRARIES + loaders(path_of("libc.so.6", compiler), readelf):
        write_stub(library, symbols_of(path_of(library, compiler), readelf, floor), compiler, out)


if __name__ == "__main__":
    main()
