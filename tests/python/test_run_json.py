# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""run.json and its schema: each has what the other has, `inject check` validates like JSON Schema, and later versions are refused."""

import copy
import json
import os
import random
import re
import subprocess
import time
import unittest
import unittest.mock

import folders
import jsonschema
import run_json_page
from libinject.check import schema
from libinject.result import SCHEMA_VERSION, BadFile, Result

import libinject

SCHEMA = json.loads(schema.SCHEMA.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def parts(part):
    """All parts of the schema, including itself first."""
    yield part
    for inner in (*part.get("properties", {}).values(), *part.get("$defs", {}).values(),
                  *(part[key] for key in ("items", "additionalProperties") if isinstance(part.get(key), dict))):
        yield from parts(inner)


def places(value, path=()):
    """The paths of all values in it."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def written(folder):
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


class Schema(unittest.TestCase):
    def test_it_is_one(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_it_uses_nothing_that_the_check_does_not_know(self):
        for part in parts(SCHEMA):
            self.assertLessEqual(set(part), schema.JUDGED | schema.TELLING)

    def test_no_object_of_fixed_members_allows_others(self):
        for part in parts(SCHEMA):
            if "properties" in part:
                self.assertIs(part["additionalProperties"], False)
                self.assertLessEqual(set(part.get("required", ())), set(part["properties"]))

    def test_each_member_has_a_meaning(self):
        for part in parts(SCHEMA):
            for name, member in part.get("properties", {}).items():
                self.assertTrue(member.get("description"), name)

    def test_it_has_the_names_that_the_library_writes(self):
        source = (folders.ROOT / "libinject/output/run_json.cpp").read_text(encoding="utf-8")
        losses = re.search(r"kMetricLossNames\{(.*?)\}", source, re.DOTALL)[1]
        names = {*re.findall(r'(?:member|name|texts|number|pairs_json|lost_json)\((?:json, )?"(\w+)"', source),
                 *re.findall(r'\{"(\w+)", [a-z]', source), *re.findall(r'"(\w+)"', losses)}
        causes = set(at(SCHEMA, ("$defs", "diagnosis", "properties", "idle_ns", "properties")))
        in_schema = {name for part in parts(SCHEMA) for name in part.get("properties", {})}
        self.assertEqual(in_schema - causes, names)

    def test_it_has_the_words_that_the_library_writes(self):
        def words(path, function):
            text = (folders.ROOT / "libinject" / path).read_text(encoding="utf-8")
            return set(re.findall(r'"([^"]*)"', re.search(rf"{function}\(.*?kNames\{{(.*?)\}};", text, re.DOTALL)[1]))

        diagnosis = SCHEMA["$defs"]["diagnosis"]["properties"]
        self.assertEqual(set(diagnosis["idle_ns"]["properties"]), words("analysis/idle_time.cpp", "idle_cause_name"))
        for member in (diagnosis["verdict"], SCHEMA["$defs"]["evidence"]["properties"]["kind"]):
            self.assertEqual(set(member["enum"]), words("analysis/diagnosis.cpp", "bottleneck_name"))

    def test_the_versions_agree(self):
        header = (folders.ROOT / "libinject/output/run_json.h").read_text(encoding="utf-8")
        self.assertEqual({SCHEMA["properties"]["schema_version"]["const"], SCHEMA_VERSION, int(re.search(r"kRunSchemaVersion = (\d+);", header)[1])},
                         {SCHEMA_VERSION})

    def test_the_page_is_made_of_it(self):
        page = run_json_page.PAGE.read_text(encoding="utf-8")
        self.assertTrue(page == run_json_page.page(page), "docs/run_json.md is not as scripts/run_json_page.py writes it")


class Runs(folders.TemporaryFolder):
    """Whatever a run has: `inject check`, which checks all folders of all tests, and JSON Schema accept it."""

    def valid(self, folder):
        run = written(folder)
        self.assertEqual([f"{list(error.path)}: {error.message}" for error in VALIDATOR.iter_errors(run)], [])
        self.assertEqual(list(schema.violations(run)), [])
        return run

    def test_of_several_kinds(self):
        prometheus = str(self.folder / "a.prom")
        for name, more, options in (
                ("plain", set(), {}), ("metrics", {"metrics", "prometheus"}, {"METRICS": "auto", "METRICS_TIMELINE": "1", "PROM": prometheus}),
                ("records", set(), {"TRACE": "csv,chrome", "API": "off"}), ("always", set(), {"WINDOW": "always"}),
                ("iterations", set(), {"WINDOW": "iter:200+5/10x2"})):
            with self.subTest(name):
                run = self.valid(folders.profile_example(self.folder / name, "--steps", "3000", SUMMARY="off", **options))
                self.assertEqual({member for member in ("metrics", "prometheus") if member in run}, more)

    def test_of_ranks(self):
        for name, environment in (("torchrun", {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}), ("bare", {"RANK": "1"}),
                                  ("words", {"RANK": "first"})):
            with self.subTest(name), unittest.mock.patch.dict(os.environ, environment):
                self.valid(folders.profile_example(self.folder / name, SUMMARY="off"))

    def test_recovered(self):
        out = self.folder / "out"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "LD_PRELOAD": str(folders.BUILD / "libinject.so"),
                       "INJECT_OUT": str(out), "INJECT_WINDOW": "always", "INJECT_LOG": "off"}
        with subprocess.Popen([folders.BUILD / "examples" / "inject-train", "--steps", "100000000"], env=environment, stdout=subprocess.DEVNULL) as program:
            while not (out / "run.json").exists() and program.poll() is None:
                time.sleep(0.01)
            program.kill()
        self.assertEqual(self.valid(out)["state"], "open")
        subprocess.run([folders.BUILD / "injectctl" / "injectctl", "recover", out], capture_output=True, timeout=60, check=True)
        self.assertEqual(self.valid(out)["state"], "recovered")


class Judging(folders.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        holder = folders.tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.run_of_all = written(folders.profile_example(f"{holder.name}/out", METRICS="auto", PROM=f"{holder.name}/a.prom", SUMMARY="off"))

    def test_each_member_that_is_wrong_is_found(self):
        values = (None, True, 1, -1, 1.0, 1.5, 2**64, "", "open", "high", "1.2", [], ["x"], [1], [{}], {}, {"x": 1}, {"x": "y"})
        chance = random.Random(7)
        counts = {True: 0, False: 0}
        for path in [path for path in places(self.run_of_all) if path]:
            for value in chance.sample(values, 3):
                run = copy.deepcopy(self.run_of_all)
                at(run, path[:-1])[path[-1]] = value
                right = VALIDATOR.is_valid(run)
                self.assertEqual(not list(schema.violations(run)), right, (path, value))
                counts[right] += 1
        self.assertGreater(min(counts.values()), 30)

    def test_a_member_too_many_or_too_few(self):
        for path in places(self.run_of_all):
            value = at(self.run_of_all, path)
            if isinstance(value, dict) and path not in (("versions",), ("options",)):
                for name in (*value, "another"):
                    run = copy.deepcopy(self.run_of_all)
                    object_there = at(run, path)
                    object_there.pop(name) if name in value else object_there.update({name: 1})
                    self.assertEqual(not list(schema.violations(run)), VALIDATOR.is_valid(run), (path, name))
                    if name == "another":
                        self.assertEqual([why for _, why in schema.violations(run)], ["no member of this schema version"])
                        self.assertEqual(list(schema.violations(run, strict=False)), [])

    def test_changes_at_random(self):
        chance = random.Random(7)
        paths = [path for path in places(self.run_of_all) if path]
        for _ in range(100):
            run = copy.deepcopy(self.run_of_all)
            for _ in range(chance.randrange(1, 4)):
                path, other = chance.choice(paths), chance.choice(paths)
                try:
                    at(run, path[:-1])[path[-1]] = copy.deepcopy(at(self.run_of_all, other))
                except (KeyError, IndexError, TypeError):
                    pass  # it has disappeared by now
            self.assertEqual(not list(schema.violations(run)), VALIDATOR.is_valid(run))

    def folder_with(self, **members):
        folder = self.folder / "out"
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(json.dumps({**self.run_of_all, "files": [], "windows": [], **members}), encoding="utf-8")
        return folder

    def found(self, **members):
        return [str(finding) for finding in schema.run_schema(schema.Folder(self.folder_with(**members)))]

    def test_what_the_check_says(self):
        self.assertEqual(self.found(), [])
        self.assertRegex(self.found(another=1)[0], r"another: no member of this schema version")
        self.assertRegex(self.found(lost={**self.run_of_all["lost"], "names": -1})[0], r"lost\.names: -1 is below 0")
        done = folders.invoke("check", self.folder / "out")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"run\.json:\d+: lost: run-schema: lost\.names: -1 is below 0\n")

    def test_a_later_libinject_may_write_more(self):
        self.assertEqual(self.found(libinject="99.0.0", another=1), [])
        self.assertNotEqual(self.found(libinject="99.0.0", pid="x"), [])

    def test_an_earlier_one_wrote_no_version(self):
        run = {name: value for name, value in self.run_of_all.items() if name != "schema_version"}
        folder = folders.write_run(self.folder / "old", **{**run, "libinject": "0.1.0", "another": 1})
        self.assertEqual(list(schema.run_schema(schema.Folder(folder))), [])
        folder = folders.write_run(self.folder / "same", **{**run, "libinject": libinject.__version__})
        self.assertEqual([place.text for place in schema.run_schema(schema.Folder(folder))], ["schema_version: missing"])

    def test_versions_that_are_not_understood(self):
        for version, why in ((SCHEMA_VERSION + 1, "has schema version 2, but this inject reads versions up to 1: use the inject of libinject 9"), ("1", "is a text, but must be a whole number"),
                             (True, "is a truth value"), (0, "must be a whole number, 1 or more"), (None, "is null")):
            with self.subTest(version=version), self.assertRaisesRegex(BadFile, why):
                Result(self.folder_with(schema_version=version, libinject="9"))


if __name__ == "__main__":
    unittest.main()
