#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Python's frames as read by libinject, in each interpreter on this machine (program.py): file, name, line and first argument of every
frame of generated programs equal those of sys._getframe(). Also libraries that look like Python, but are not."""

import ast
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
probe, beside, libraries = map(pathlib.Path, sys.argv[1:4])
READ = range(10, 15)  # minor versions of 3.x
SEED, PROGRAMS = 1, 60


def interpreters():
    """The executables by their version; those in PATH may be scripts that choose one of the others."""
    candidates = [sys.executable, "/usr/bin/python3", *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))),
                  *filter(None, (shutil.which(f"python3.{minor}{kind}") for minor in range(10, 20) for kind in ("", "t", "d")))]
    ask = """if True:
        import os, sys, sysconfig
        without_gil, debug = sysconfig.get_config_var("Py_GIL_DISABLED") or 0, hasattr(sys, "gettotalrefcount")
        print(sys.implementation.name, *sys.version_info[:2], without_gil, sys.version_info[3], debug, sys.version.split()[0],
              os.path.realpath(sys.executable))
        """
    found = {}
    for candidate in candidates:
        try:
            said = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            continue
        name, *rest = said.stdout.split(maxsplit=7) or [""]
        if said.returncode == 0 and name == "cpython":
            found.setdefault(said.stdout, (candidate, rest))
    for candidate, (major, minor, no_gil, level, debug, version, _) in found.values():
        why_not = ("it is not 3.10 to 3.14" if int(major) != 3 or int(minor) not in READ else "it has no GIL" if no_gil != "0" else
                   f"it is of level {level}" if level != "final" else "it is a debug build" if debug != "False" else "")
        yield candidate, version, int(minor), why_not


INTERPRETERS = list(interpreters())
KNOWN = [(python, version, minor) for python, version, minor, why_not in INTERPRETERS if not why_not]


class Interpreters(unittest.TestCase):
    def run_program(self, python, *modes):
        done = subprocess.run([python, str(HERE / "program.py"), str(probe), str(SEED), str(PROGRAMS), *modes], capture_output=True,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        said, *last = done.stdout.splitlines()
        return json.loads(said), done.stderr.decode(errors="replace"), b"".join(last).decode()

    def test_frames(self):
        self.assertNotEqual(KNOWN, [], "no Python here whose frames are read")
        print("tried:", ", ".join(f"{python} ({version})" for python, version, _ in KNOWN), flush=True)
        print("not read:", ", ".join(f"{python} ({version}: {why})" for python, version, _, why in INTERPRETERS if why), flush=True)
        for python, version, minor in KNOWN:
            with self.subTest(python=python, version=version):
                said, told, _ = self.run_program(python, "programs", "traced", "in_callbacks", "deep", "threads", "texts", "interpreters")
                self.assertEqual(said["differences"], [])
                self.assertEqual((said["found"], said["still_found"]), (1, 1))
                self.assertRegex(told, rf"is CPython 3\.{minor}\n")
                self.assertEqual(said["unused"], [])
                for figure, least in (("walks", 500), ("frames", 10000), ("arguments", 8000), ("traced", 1000), ("callbacks", 1000),
                                      ("samples", 500), ("texts", 1000)):
                    self.assertGreater(said[figure], least, figure)
                self.assertEqual((said["child"], said["unknown_thread"]), (0, 0))
                # Since 3.12 a thread's state is that of the interpreter that it is in; before, that of the first one.
                counts, sampled = zip(*ast.literal_eval(said["second"]))
                self.assertEqual(counts, sampled)
                self.assertEqual(counts, tuple(range(2, 52)) if minor >= 12 else counts[:1] * 50)

    def test_modules(self):
        """Paths of PyTorch's modules; memory that is none of theirs does no harm."""
        for python, version, minor in KNOWN:
            with self.subTest(python=python, version=version):
                said, _, _ = self.run_program(python, "modules")
                self.assertEqual(said["differences"], [])
                for figure, least in (("modules", 500), ("named", 100), ("strangers", 1000), ("damaged", 10000),
                                      ("damaged_and_read", 1000), ("with_dictionary", 10), ("without_dictionary", 5 if minor > 10 else -1)):
                    self.assertGreater(said[figure], least, figure)
                print(f"{python}: {said['modules']} modules, {said['damaged']} damaged, {said['torch']} of the real PyTorch's; "
                      f"{said['milliseconds_of_2000']} ms to look through 2000", flush=True)

    def test_stacks(self):
        """Stacks of running threads, read by another one."""
        for python, version, _ in KNOWN:
            with self.subTest(python=python, version=version):
                said, _, _ = self.run_program(python, "stacks")
                self.assertEqual(said["differences"], [])
                threads, work = said["stacks"]["threads"], said["stacks"]
                # While the state is that of a thread that has ended, there is no stack.
                self.assertGreater(threads["samples"] - threads["empty"], 0)
                total = {figure: sum(each[figure] for each in work.values()) for figure in threads}
                total["empty"] -= threads["empty"]
                total["samples"] -= threads["empty"]
                print(f"{python}: {total['samples']} stacks, {total['empty']} empty, {total['wrong']} wrong; of long calls "
                      f"{work['long_calls']['in_spin']} of {work['long_calls']['samples']} with the innermost frame; "
                      f"{said['nanoseconds']} ns by depth, {said.get('nanoseconds_forbidden')} where it is forbidden", flush=True)
                self.assertLessEqual(total["wrong"], 2 + total["samples"] * 0.002, said["faults"])
                for name, figures in work.items():
                    if name != "threads":
                        self.assertGreater(figures["samples"], 100, name)
                        self.assertLess(figures["empty"], figures["samples"] * 0.4, name)
                self.assertGreater(work["long_calls"]["in_spin"], work["long_calls"]["samples"] * 0.1)
                for figure in ("damaged", "damaged_and_read", "damaged_and_empty"):
                    self.assertGreater(said[figure], 300, figure)
                self.assertLess(said["longest"], 0.25)
                self.assertLess(said.get("nanoseconds_forbidden", 0), 100000)

    def test_layouts_of_other_versions(self):
        for python, version, own in KNOWN:
            with self.subTest(python=python, version=version):
                said, _, _ = self.run_program(python, "layouts")
                for frames in ("layouts", "layouts_bare", "layouts_without_lines"):
                    self.assertEqual([minor for minor in READ if said[frames][str(minor)] == 0], [own], said)
                self.assertEqual([which for which, passed in said["shifted"].items() if passed == 0], [])
                self.assertEqual(len(said["shifted"]), 16)

    def test_end_of_the_interpreter(self):
        for python, version, _ in KNOWN:
            with self.subTest(python=python, version=version):
                said, _, last = self.run_program(python, "ending")
                self.assertGreater(said["before"], 0)
                self.assertEqual(last, "at the end: 0 0")

    def test_others_are_refused(self):
        for python, version, _, why_not in INTERPRETERS:
            if not why_not:
                continue
            with self.subTest(python=python, version=version):
                code = "import ctypes, sys; lib = ctypes.PyDLL(sys.argv[1]); print(lib.frames_find(), lib.frames_count())"
                done = subprocess.run([python, "-c", code, str(probe)], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stdout), (0, "0 0\n"), done.stderr)
                self.assertIn("whose frames are not read", done.stderr)


# Members of _Py_DebugOffsets, in the headers of 3.13.0 and 3.14.10: the index of the word, and its meaning.
OFFSETS = {
    13: {23: 72, 29: 8, 30: 0, 31: 56, 32: 72, 33: 70, 35: 112, 36: 120, 37: 128, 38: 136, 39: 68, 40: 52, 41: 96, 42: 104, 43: 200,
         45: 8, 47: 24, 51: 24, 52: 16, 65: 16, 66: 32, 68: 32, 69: 16, 70: 40},
    14: {26: 72, 32: 8, 33: 0, 34: 56, 35: 80, 36: 74, 40: 112, 41: 120, 42: 128, 43: 136, 44: 68, 45: 52, 46: 96, 47: 104, 48: 208,
         51: 8, 53: 24, 57: 32, 58: 16, 75: 16, 76: 32, 78: 32, 79: 16, 80: 40},
}


class Others(unittest.TestCase):
    """An unknown Python is not read, and one that differs from what it reports does no harm."""

    def look(self, library="WHOLE", version="030b04f0", **env):
        done = subprocess.run([str(beside), str(libraries / f"other_{library}.so")], capture_output=True, text=True, timeout=60,
                              check=False, env={"OTHER_VERSION": version, **env})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr

    def check_refused(self, why, *arguments, **env):
        said, told = self.look(*arguments, **env)
        self.assertEqual(said, "0 0 0", told)
        self.assertIn(why, told)
        self.assertEqual(told.count("\n"), 1, told)

    def test_versions(self):
        for version in ("030900f0", "030f00f0", "040a00f0", "020a00f0"):
            self.check_refused("whose frames are not read: only 3.10 to 3.14 are supported", "WHOLE", version)
        for version in ("030b00c1", "030c00b4", "030e00a7", "00000000"):
            self.check_refused("it is not a final release", "WHOLE", version)
        self.check_refused("older than 3.10", "VERSION_3_9")

    def test_builds(self):
        self.check_refused("it is a debug build", "DEBUG_BUILD")
        self.check_refused("it lacks symbols", "INCOMPLETE")

    def test_debug_offsets(self):
        self.check_refused("it has no debug offsets", "WHOLE", "030d00f0")
        for minor, known in OFFSETS.items():
            version = 0x030001F0 + (minor << 16)

            def offsets(head=(version, 0), other=None, known=known):
                words = [0] * 100
                words[1:3] = head
                for number, offset in known.items():
                    words[number] = offset + (number == other)
                return {"OTHER_OFFSETS": " ".join(map(str, words[1:]))}

            self.assertEqual(self.look("WHOLE", f"{version:08x}", **offsets())[0], "1 0 1")
            self.check_refused("of another version", "WHOLE", f"{version:08x}", **offsets((version + 0x100, 0)))
            self.check_refused("it has no GIL", "WHOLE", f"{version:08x}", **offsets((version, 1)))
            for number in known:
                self.check_refused("debug offsets are unknown", "WHOLE", f"{version:08x}", **offsets(other=number))

    def test_memory_that_is_not_there(self):
        for library in ("WHOLE", "VERSION_3_10"):
            with self.subTest(library=library):
                self.assertEqual(self.look(library)[0], "1 0 1")
                self.assertEqual(self.look(library, OTHER_STATE="nowhere")[0], "1 0 1")
                said, told = self.look(library, OTHER_STATE="itself")
                self.assertEqual(said, "1 0 0")
                self.assertIn("Python's frames are not read, its layout is unknown: its types have other names", told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
