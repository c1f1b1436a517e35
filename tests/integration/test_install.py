#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`cmake --install` puts the library, its header and its documents where they belong; the library works from there, and
a C or C++ program uses the header without linking anything.

usage: test_install.py BUILD_DIR CMAKE CXX
"""

import gzip
import os
import pathlib
import re
import shutil
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

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES CXX)
find_package(inject {version} REQUIRED)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE inject::inject)
enable_testing()
add_test(NAME bare COMMAND program)
add_test(NAME preloaded COMMAND ${{CMAKE_COMMAND}} -E env LD_PRELOAD=${{inject_LIBRARY}} $<TARGET_FILE:program>)
set_tests_properties(bare PROPERTIES PASS_REGULAR_EXPRESSION "^not loaded 0\n$")
set_tests_properties(preloaded PROPERTIES PASS_REGULAR_EXPRESSION "^loaded 0\n$")
add_test(NAME injectctl COMMAND ${{inject_INJECTCTL}} --help)
"""


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        first = cls.folder / "first"
        subprocess.run([cmake, "--install", build, "--prefix", str(first)], check=True, capture_output=True)
        # Moved after installation: nothing in it may depend on the location.
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
        package = {file for file in files if re.match(r"lib[^/]*/([^/]+/)?cmake/inject/", file)}
        self.assertEqual(sorted(pathlib.Path(file).name for file in package), ["injectConfig.cmake", "injectConfigVersion.cmake"])
        files -= package
        self.assertEqual(sorted(files), ["bin/injectctl", "include/inject/inject.h", "share/doc/libinject/LICENSE",
                                         "share/doc/libinject/gemm_curve.csv", "share/doc/libinject/gemm_curve.svg", "share/doc/libinject/report.png",
                                         "share/doc/libinject/sweep_deepspeech2.csv", "share/doc/libinject/sweep_deepspeech2.png",
                                         "share/man/man1/injectctl.1.gz", "share/man/man7/libinject.7.gz"])

    def test_injectctl_runs(self):
        done = subprocess.run([self.prefix / "bin/injectctl", "--help"], env={}, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("usage: injectctl list"), done.stdout)

    def page(self, name):
        return gzip.decompress((self.prefix / "share" / "man" / f"man{name[-1]}" / f"{name}.gz").read_bytes()).decode()

    def test_manual_page_has_the_variables(self):
        """As INJECT_HELP=1 prints them: name, default, meaning, accepted values."""
        shown = subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(self.library()), "INJECT_HELP": "1"}, capture_output=True, text=True,
                               timeout=60, check=True).stderr
        shown = shown[shown.index("INJECT_WINDOW"):]
        page = re.sub(r"\\([-e])", lambda match: {"-": "-", "e": "\\"}[match[1]], self.page("libinject.7")).replace(r"\(aq", "'")
        entries = re.findall(r"^\.TP\n\\fB(INJECT_\w+)\\fR(?: \(default \\fB(.*)\\fR\))?\n(.*)\.\n\.br\nAccepted: (.*)\.$", page, re.MULTILINE)
        self.assertGreater(len(entries), 15)
        written = " ".join(f"{name} {default or '-'} {meaning} [{accepted}]" for name, default, meaning, accepted in entries)
        self.assertEqual(written.lower().split(), shown.lower().split())

    def test_manual_page_has_the_commands(self):
        usage = subprocess.run([self.prefix / "bin/injectctl", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        named = set(re.findall(r"^(?:usage:)? +injectctl ([\w-]+)", usage, re.MULTILINE))
        page = self.page("injectctl.1").replace("\\-", "-")
        self.assertEqual(named, set(re.findall(r"^\.TP\n\.BI?R? \"?(\w+)", page, re.MULTILINE)) | {"--help"})

    def test_manual_pages_are_well_formed(self):
        if not shutil.which("groff"):
            self.skipTest("no groff")
        for name in ("injectctl.1", "libinject.7"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8"], input=self.page(name), capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

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

    def configure(self, version):
        source = self.folder / "consumer"
        source.mkdir(exist_ok=True)
        (source / "program.cpp").write_text(PROGRAM)
        (source / "CMakeLists.txt").write_text(PROJECT.format(version=version))
        return source / "build", subprocess.run(
            [cmake, "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={compiler}"],
            capture_output=True, text=True, timeout=120, check=False)

    def test_cmake_package(self):
        ours = re.search(r"^CMAKE_PROJECT_VERSION:\w+=(\d+)\.(\d+)", (pathlib.Path(build) / "CMakeCache.txt").read_text(), re.MULTILINE)
        major, minor = map(int, ours.groups())
        folder, done = self.configure(f"{major}.{minor + 1}")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"compatible\s+with\s+requested\s+version")
        folder, done = self.configure(f"{major}.{minor}")
        self.assertEqual(done.returncode, 0, done.stderr)
        subprocess.run([cmake, "--build", folder], check=True, capture_output=True, timeout=120)
        done = subprocess.run([pathlib.Path(cmake).with_name("ctest"), "--output-on-failure"], cwd=folder, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("100% tests passed, 0 tests failed out of 3", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
