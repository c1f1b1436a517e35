#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""If cuDNN's and NCCL's headers are missing, configuring reports it, and the build does without them. Without a compiler it says what to
install.

usage: test_configure.py SOURCE_DIR BUILD_DIR CMAKE
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

source, build, cmake = map(pathlib.Path, sys.argv[1:4])

# From the build to which this test belongs, so that the headers are found in the same places.
KEPT = ("CMAKE_CXX_COMPILER", "CMAKE_GENERATOR", "INJECT_CUDA_ROOT", "INJECT_DEPS_DIR", "INJECT_GLIBC_FLOOR")
# Neither a folder nor a request to search.
MISSING = ("-DINJECT_CUDNN_INCLUDE:STRING=OFF", "-DINJECT_NCCL_INCLUDE:STRING=OFF")


class Configure(unittest.TestCase):
    def test_without_optional_headers(self):
        cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE))
        kept = [f"-D{name}={cache[name]}" for name in KEPT if name in cache and name != "CMAKE_GENERATOR"]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([cmake, "-S", source, "-B", folder, "-G", cache["CMAKE_GENERATOR"], *kept, *MISSING,
                                   "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], capture_output=True, text=True, timeout=120,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            for group in ("CUDNN", "NCCL"):
                self.assertIn(f"no {group} header found: its hooks are left out", done.stdout)
            commands = json.loads(pathlib.Path(folder, "compile_commands.json").read_text())
            compiled = {str(pathlib.Path(entry["file"]).relative_to(source)): entry["command"] for entry in commands
                        if source in pathlib.Path(entry["file"]).parents}
            for file in ("libinject/session/run_writer.cpp", "libinject/model/functions.cpp"):
                self.assertIn("-DINJECT_HAVE_CUDNN=0", compiled[file])
                self.assertIn("-DINJECT_HAVE_NCCL=0", compiled[file])
            for file in ("tests/sim/cudnn.cpp", "tests/sim/nccl.cpp"):
                self.assertNotIn(file, compiled)

    def test_without_a_compiler(self):
        """As in pip's builds, which name a compiler in CXX whether it exists or not."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([cmake, "-S", source, "-B", folder], env={**os.environ, "CXX": f"{folder}/none"}, capture_output=True,
                                  text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("no C++ compiler found: please install", done.stderr)
        self.assertEqual(done.stderr.count("CMake Error"), 1, done.stderr)


if __name__ == "__main__":
    del sys.argv[1:4]
    unittest.main()
