#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What libinject.so exposes to the process that loads it: names, needed libraries, versions, thread-local storage.

usage: test_binary.py LIBRARY SOURCE_DIR CXX [--without GROUP]... [--floor 2.28]
"""

import argparse
import pathlib
import re
import subprocess
import sys
import unittest

from sanitized import unsanitized

NEEDED = re.compile(r"(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-[a-z0-9-]+\.so\.\d)")
# dlclose: hooks have to learn of unloading. The functions called by PyTorch's caching allocator, as named in PyTorch 2.11 and in 1.13.
ENTRY_POINTS = {"InitializeInjection", "InitializeInjectionNvtx2", "dlclose", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
                "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"}

arguments = None


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def hook_names():
    """The names in libinject/model/*.def, as the compiler sees them."""
    names = set()
    for table in sorted((arguments.source / "libinject/model").glob("*.def")):
        if table.stem in arguments.without:
            continue
        text = output(arguments.compiler, "-x", "c++", "-E", "-P", "-DINJECT_HOOK(name,arity,category)=HOOK name END",
                      str(table))
        names |= set(re.findall(r"HOOK (\w+) END", text))
    return names


def public_api():
    """The functions that include/inject/inject.h declares."""
    text = output(arguments.compiler, "-x", "c", "-E", "-P", str(arguments.source / "include/inject/inject.h"))
    return set(re.findall(r"\b(inject_\w+)\s*\([^)]*\)\s*;", text))


def dynamic_symbols():
    """(name, version, defined) of every dynamic symbol."""
    for line in output("readelf", "--dyn-syms", "-W", str(arguments.library)).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            name, _, version = fields[7].partition("@")
            yield name, version.lstrip("@"), fields[6] != "UND"


class Binary(unittest.TestCase):
    def test_exports_the_hooks_the_entry_points_and_nothing_else(self):
        exported = {name for name, _, defined in dynamic_symbols() if defined}
        expected = hook_names() | ENTRY_POINTS | public_api()
        self.assertGreater(len(expected), 100, "the tables of hooks were not read")
        self.assertEqual(sorted(exported - expected), [], "exported, and in no table")
        self.assertEqual(sorted(expected - exported), [], "in a table, and not exported")

    def test_exported_names_have_no_version(self):
        # A versioned definition does not satisfy a reference to the vendor's version.
        self.assertEqual([name for name, version, defined in dynamic_symbols() if defined and version], [])

    def test_needs_the_c_library_alone(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", str(arguments.library)))
        self.assertIn("libc.so.6", needed)
        self.assertEqual([name for name in needed if not NEEDED.fullmatch(name)], [])
        # Only of this architecture, because a machine may have libraries for another one.
        c_library = output(arguments.compiler, "-print-file-name=libc.so.6").strip()
        self.assertLessEqual({name for name in needed if name.startswith("ld-linux")},
                             set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", c_library))))

    def test_needs_the_libraries_that_older_glibcs_keep_threads_and_loading_in(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", str(arguments.library)))
        self.assertIn("libpthread.so.0", needed)
        self.assertIn("libdl.so.2", needed)

    def test_needs_no_glibc_above_the_floor(self):
        floor = tuple(int(part) for part in arguments.floor.split("."))
        text = output("objdump", "-T", str(arguments.library))
        versions = {tuple(int(part) for part in found.split(".")) for found in re.findall(r"GLIBC_([\d.]+)", text)}
        self.assertTrue(versions, "objdump -T shows no GLIBC version")
        above = [line for line in text.splitlines() for found in re.findall(r"GLIBC_([\d.]+)", line)
                 if tuple(int(part) for part in found.split(".")) > floor]
        self.assertEqual(above, [])
        self.assertNotRegex(text, r"GLIBCXX_|CXXABI_|GCC_")

    def test_every_unversioned_need_is_weak(self):
        # A strong symbol that an older C library lacks ends the process.
        strong = [line for line in output("objdump", "-T", str(arguments.library)).splitlines()
                  if "*UND*" in line and "GLIBC" not in line and not re.match(r"[0-9a-f]+ +w ", line)]
        self.assertEqual(strong, [])

    def test_thread_local_storage_is_small_and_at_a_fixed_place(self):
        segments = re.findall(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)", output("readelf", "-lW", str(arguments.library)),
                              re.MULTILINE)
        self.assertLess(sum(int(size, 16) for size in segments), 256,
                        "a program that loads the library with dlopen has about 512 bytes left")

    def test_needs_no_initialiser_of_its_own(self):
        # Hooks are called before initialisers run, which would then erase what the hooks stored; and each page that an initialiser touches
        # costs every process 2 µs. The C++ runtime's own initialisers are named after its sources, *.cc.
        names = re.findall(r"_GLOBAL__sub_I_\S+", output("nm", str(arguments.library)))
        self.assertEqual([name for name in names if not name.endswith(".cc")], [])

    def test_leaves_nothing_to_be_destroyed_at_exit(self):
        # The last window is settled at exit, by a thread that may outlive the handlers: no object may be destroyed by then.
        callers, function = [], ""
        for line in output("objdump", "-dC", "--no-show-raw-insn", str(arguments.library)).splitlines():
            if line.endswith(">:"):
                function = line
            elif "<__cxa_atexit@plt>" in line or "<__cxa_thread_atexit" in line:
                callers.append(function)
        self.assertTrue(callers, "objdump was not understood: the C++ runtime has such calls of its own")
        self.assertEqual([caller for caller in callers if "inject::" in caller], [])

    @unsanitized("a sanitizer's checks make the code several times as long")
    def test_what_calls_in_a_window_run_through_lies_together(self):
        """By the next call the program has evicted our code from the caches, so it should be on few pages."""
        shared, hooks = {}, []
        for line in output("nm", "-C", "--defined-only", str(arguments.library)).splitlines():
            address, _, name = line.split(maxsplit=2)
            if name.endswith(".cold]"):
                continue
            if re.search(r"ShortCallFrame::(begin|end)\(|CallFrame::~?CallFrame\(|inject::on_cupti_callback\(", name):
                shared[name] = int(address, 16)
            elif "::slow_hot(" in name:
                hooks.append(int(address, 16))
        self.assertGreaterEqual(len(shared), 5)
        self.assertLess(max(shared.values()) - min(shared.values()), 16 << 10, shared)
        self.assertGreater(len(hooks), 50)
        places = [*shared.values(), *hooks]
        self.assertLess(max(places) - min(places), 96 << 10)

    def test_stays_loaded(self):
        self.assertRegex(output("readelf", "-d", str(arguments.library)), r"FLAGS_1.*NODELETE")

    def test_has_no_text_relocations_and_no_writable_code(self):
        dynamic = output("readelf", "-d", str(arguments.library))
        self.assertNotIn("TEXTREL", dynamic)
        headers = output("readelf", "-lW", str(arguments.library))
        flags = re.findall(r"^\s+(\w+)\s+(?:0x\S+\s+){5}([RWE ]{3})", headers, re.MULTILINE)
        self.assertTrue(any(kind == "LOAD" for kind, _ in flags), "readelf -l was not understood")
        self.assertEqual([kind for kind, access in flags if "W" in access and "E" in access], [])
        self.assertIn(("GNU_STACK", "RW "), flags)
        self.assertIn("GNU_RELRO", headers)

    def test_is_relocatable(self):
        # No path of the build machine affects where it looks for libraries.
        self.assertNotRegex(output("readelf", "-d", str(arguments.library)), r"RPATH|RUNPATH")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("compiler")
    parser.add_argument("--without", action="append", default=[], help="a group of hooks that was not built")
    parser.add_argument("--floor", default="2.28")
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
