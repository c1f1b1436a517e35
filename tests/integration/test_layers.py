#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What a layer of libinject/ can include: the headers of the layers on which it depends, and no others. Checked with the compiler and the
build's own commands.

usage: test_layers.py SOURCE BUILD [TEST...]
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])

# Each layer and the layers on which it depends; it sees what these see as well.
DEPENDS = {name: depends.split() for name, depends in re.findall(
    r"inject_layer\((\w+)(?: DEPENDS ([\w ]+))? SOURCES", "\n".join(
        path.read_text() for path in sorted((source / "libinject").glob("*/CMakeLists.txt"))))}


def below(layer):
    """The layer, and all that it sees."""
    return {layer}.union(*(below(lower) for lower in DEPENDS[layer]))


class Layers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["file"])
            if source / "libinject" in path.parents:
                cls.commands.setdefault(path.relative_to(source / "libinject").parts[0], (entry["command"], entry["directory"]))

    def test_every_folder_is_a_layer(self):
        folders = {path.name for path in (source / "libinject").iterdir() if path.is_dir()}
        self.assertEqual(folders, set(DEPENDS))
        self.assertEqual({path.name for path in (source / "libinject").iterdir() if path.is_file()}, {"CMakeLists.txt", "inject.map"})

    def test_no_cycle(self):
        for layer, lower in DEPENDS.items():
            for other in lower:
                self.assertNotIn(layer, below(other))

    def test_injectctl_has_no_part_in_capturing(self):
        linked = re.search(r"target_link_libraries\(injectctl PRIVATE ([^)]*)\)", (source / "injectctl/CMakeLists.txt").read_text())[1]
        for layer in linked.replace("inject_", "").split():
            self.assertEqual(below(layer) & {"capture", "session", "shutdown", "entry"}, set())

    def test_a_layer_sees_those_below_it_alone(self):
        headers = {layer: min((source / "libinject" / layer).rglob("*.h")).relative_to(source) for layer in DEPENDS}
        asked = "".join(f'#if __has_include("{header}")\nsees {layer};\n#endif\n' for layer, header in headers.items())
        for layer, (command, directory) in self.commands.items():
            words = shlex.split(command)
            if words[0].endswith("ccache"):
                words = words[1:]
            flags = [word for at, word in enumerate(words[1:], 1) if word.startswith(("-I", "-std", "-D"))]
            done = subprocess.run([words[0], *flags, "-E", "-P", "-x", "c++", "-"], input=asked, cwd=directory,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(set(re.findall(r"sees (\w+)\s*;", done.stdout)), below(layer), layer)


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main()
