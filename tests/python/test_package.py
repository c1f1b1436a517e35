# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The Python package's metadata, and that the command finds the files next to it. scripts/test_packages.sh builds one."""

import ast
import gzip
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import fetch_cuda
import folders

import libinject
from libinject import library

PYPROJECT = (folders.ROOT / "pyproject.toml").read_text(encoding="utf-8")


def run_python(package, *arguments):
    """Runs Python with the package in folder `package`, and with what scripts/setup.sh has installed."""
    path = os.pathsep.join([str(package), str(folders.ROOT / "build" / "deps" / "python"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, *map(str, arguments)], env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
                          capture_output=True, text=True, timeout=100, check=False)


def install(folder):
    """CMake's part of the package, moved to where pyproject.toml puts it: the files below `folder`."""
    subprocess.run([folders.CMAKE, "--install", folders.BUILD, "--component", "runtime", "--prefix", folder], check=True, capture_output=True,
                   timeout=100)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class Metadata(unittest.TestCase):
    def test_version_stands_in_cmake(self):
        pattern = re.search(r"^regex = '(.*)'$", PYPROJECT, re.MULTILINE)[1]
        version = re.search(pattern, (folders.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))["value"]
        self.assertEqual(libinject.__version__, version)
        self.assertIn('dynamic = ["version"]', PYPROJECT)

    def test_scripts_are_functions(self):
        scripts = dict(re.findall(r'^(\w+) = "([\w.]+:\w+)"$', PYPROJECT, re.MULTILINE))
        self.assertEqual(sorted(scripts), ["inject", "injectctl"])
        for target in scripts.values():
            module, function = target.split(":")
            self.assertTrue(callable(getattr(importlib.import_module(module), function)), target)

    def test_dependencies_are_tested_ones(self):
        """The package's requirements are those that the tests run with, with no older version."""
        block = re.search(r"^dependencies = \[\n(.*?)^\]", PYPROJECT, re.MULTILINE | re.DOTALL)[1]
        block += re.search(r"^notebook = .*\n", PYPROJECT, re.MULTILINE)[0]
        needed = dict(re.findall(r'"([\w.-]+) >= ([\d.]+)"', block))
        self.assertEqual(len(needed), len([line for line in block.splitlines() if '"' in line]), "not NAME >= VERSION")
        # Some have different versions for two ranges of Python's versions.
        tested = re.findall(r"^([\w.-]+)==([\d.]+)(?:;.*)?$", (folders.ROOT / "scripts" / "python-requirements.txt").read_text().lower(),
                            re.MULTILINE)

        def numbers(version):
            return [int(part) for part in version.split(".")]

        for name, version in needed.items():
            with_it = [with_version for other, with_version in tested if other == name.lower()]
            self.assertTrue(with_it, name)
            for with_version in with_it:
                self.assertGreaterEqual(numbers(with_version), numbers(version), name)


def newer_than_39(tree):
    """Code that requires a Python newer than 3.9 and that ruff does not report: (line, what)."""
    def called(node, name):
        return isinstance(node.func, ast.Name) and node.func.id == name

    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    values = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Assign) for part in ast.walk(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node, "zip") and any(word.arg == "strict" for word in node.keywords):
            yield node.lineno, "zip(strict=…)"
        elif isinstance(node, ast.Call) and called(node, "isinstance") and any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr) for part in ast.walk(node.args[1])):
            yield node.lineno, "isinstance(…, A | B)"
        elif isinstance(node, ast.Attribute) and node.attr == "pairwise":
            yield node.lineno, "itertools.pairwise"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) in values and any(
                isinstance(side, ast.Name) and side.id in ("str", "int", "float", "bool") for side in (node.left, node.right)):
            yield node.lineno, "A | B as a value"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Annotated" and lazy:
            yield node.lineno, "Annotated, which Typer does not find in a module with lazy annotations"


class OldestPython(unittest.TestCase):
    def test_nothing_needs_a_newer_one(self):
        self.assertIn('requires-python = ">=3.9"', PYPROJECT)
        for path in sorted((folders.ROOT / "scripts" / "libinject").rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            self.assertEqual(list(newer_than_39(ast.parse(text, feature_version=(3, 9)))), [], path)

    def test_what_is_found(self):
        for text in ("zip(a, b, strict=True)", "isinstance(a, int | float)", "itertools.pairwise(a)", "Cell = str | int", "from __future__ import annotations\ndef f(a: Annotated[int, 1]): pass"):
            self.assertEqual(len(list(newer_than_39(ast.parse(text)))), 1, text)
        for text in ("zip(a, b)", "isinstance(a, (int, float))", "from __future__ import annotations\ndef f(a: int | None) -> str | None: pass", "a = b | c"):
            self.assertEqual(list(newer_than_39(ast.parse(text))), [], text)


class Layout(folders.TemporaryFolder):
    def package_at(self, place):
        shutil.copytree(folders.ROOT / "scripts" / "libinject", place, ignore=shutil.ignore_patterns("__pycache__"))
        return place

    def preloaded(self, package):
        done = run_python(package.parent, "-m", "libinject", "run", "--json", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["environment"]["LD_PRELOAD"].split(":")[0]

    def test_in_the_package(self):
        package = self.package_at(self.folder / "site-packages" / "libinject")
        files = install(package / "installed")
        self.assertEqual([pathlib.Path(file).name for file in files], ["injectctl", "libinject.so"])
        for folder, file in zip(("bin", "lib"), files):
            (package / folder).mkdir()
            (package / "installed" / file).rename(package / folder / pathlib.Path(file).name)
        self.assertEqual(self.preloaded(package), str(package / "lib" / "libinject.so"))

        script = "import sys; from libinject.library import run_injectctl; sys.argv[0] = 'injectctl'; run_injectctl()"
        done = run_python(package.parent, "-c", script, "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("usage: injectctl"), done.stdout)
        (package / "bin" / "injectctl").unlink()
        place = "import libinject.library as library; library._places = lambda *_: []; library.run_injectctl()"
        done = run_python(package.parent, "-c", place)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("reinstall the package", done.stderr)

    def test_beside_an_installed_library(self):
        """PREFIX/lib/libinject.so and PREFIX/lib/python3/dist-packages/libinject, the layout of distributions."""
        package = self.package_at(self.folder / "lib" / "python3" / "dist-packages" / "libinject")
        there = self.folder / "lib" / "libinject.so"
        there.touch()
        self.assertEqual(self.preloaded(package), str(there))

    def test_in_the_source_tree(self):
        self.assertIsNotNone(library.find_library())


class ManualPage(unittest.TestCase):
    def test_names_every_command(self):
        page = gzip.decompress((folders.BUILD / "man" / "inject.1.gz").read_bytes()).decode()
        shown = folders.inject("--help").stdout.split("Commands")[1]
        commands = re.findall(r"^\W{0,3}([a-z][a-z-]*)  ", shown, re.MULTILINE)
        self.assertIn("run", commands)
        self.assertEqual(re.findall(r"^\.TP\n\\fB(\S+?)\\fR$", page, re.MULTILINE), sorted(commands))


class Headers(folders.TemporaryFolder):
    def wanted(self, *arguments):
        before = fetch_cuda.has_header, fetch_cuda.has_nvcc
        try:
            fetch_cuda.has_header, fetch_cuda.has_nvcc = lambda *_: False, lambda *_: False
            return fetch_cuda.wanted(self.folder, *arguments)[0]
        finally:
            fetch_cuda.has_header, fetch_cuda.has_nvcc = before

    def test_of_a_bare_machine(self):
        """The package's build only fetches headers, not CUDA's compiler, which it does not need."""
        headers = self.wanted(False, False)
        self.assertEqual(set(headers.values()), {"include"})
        self.assertIn("nvidia-cuda-cccl", {requirement.split("==")[0] for requirement in headers})
        self.assertNotIn("nvidia-cuda-nvcc", {requirement.split("==")[0] for requirement in headers})
        self.assertIn("nvidia-cuda-nvcc", {requirement.split("==")[0] for requirement in self.wanted(False, True)})


if __name__ == "__main__":
    unittest.main()
