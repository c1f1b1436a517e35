#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`cmake --install` puts the library, its header and its documents where they belong; the library works from there, and
a C or C++ program uses the header without linking anything.

usage: test_install.py BUILD_DIR CMAKE CXX
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

build, cmake, compiler = sys.argv[1:4]

PROGRAM = """
#include <inject/inject.h>
#include <stdio.h>
int main(void) {
  printf("%s %d\\n", inject_is_open ? "loaded" : "not loaded", inject_is_open_if_loaded());
  return 0;
}
"""


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        first = cls.folder / "first"
        subprocess.run([cmake, "--install", build, "--prefix", str(first)], check=True, capture_output=True)
        # Somewhere else than where it was installed to: nothing in it may depend on the place.
        cls.prefix = first.rename(cls.folder / "moved")

    def library(self):
        found = list(self.prefix.rglob("libinject.so"))
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_files(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}
        files.remove(str(self.library().relative_to(self.prefix)))
        self.assertRegex(str(self.library().relative_to(self.prefix)), r"^lib[^/]*/([^/]+/)?libinject\.so$")
        files -= {file for file in files if file.startswith("share/doc/libinject/") and file.endswith(".md")}
        self.assertEqual(sorted(files), ["bin/injectctl", "include/inject/inject.h", "share/doc/libinject/LICENSE",
                                         "share/doc/libinject/gemm_curve.csv", "share/doc/libinject/gemm_curve.svg"])

    def test_injectctl_runs(self):
        done = subprocess.run([self.prefix / "bin/injectctl", "--help"], env={}, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("usage: injectctl list"), done.stdout)

    def test_programs_use_the_header_without_linking(self):
        for language, standard in (("c", "c99"), ("c++", "c++11")):
            with self.subTest(language):
                program = self.folder / ("program-" + language.replace("+", "p"))
                subprocess.run([compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic",
                                f"-I{self.prefix / 'include'}", "-o", str(program), "-"], input=PROGRAM, text=True,
                               check=True)
                for preload, expected in (("", "not loaded 0\n"), (str(self.library()), "loaded 0\n")):
                    done = subprocess.run([program], env=dict(os.environ, LD_PRELOAD=preload), capture_output=True,
                                          text=True, timeout=60, check=False)
                    self.assertEqual((done.returncode, done.stdout, done.stderr), (0, expected, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
