# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The examples of examples/deploy, as far as they can be run without a cluster, and the workflow files."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import folders

DEPLOY = folders.ROOT / "examples" / "deploy"
WORKFLOWS = folders.ROOT / ".github" / "workflows"
TRAIN = folders.BUILD / "examples" / "inject-train"
OPTIONS = set(re.findall(r"^INJECT_OPTION\((\w+),", (folders.ROOT / "libinject" / "config" / "options.def").read_text(), re.MULTILINE))


def yaml_of(test, path):
    try:
        import yaml
    except ModuleNotFoundError:
        test.skipTest("no PyYAML: scripts/setup.sh")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


class Texts(unittest.TestCase):
    def test_scripts_parse(self):
        scripts = sorted(DEPLOY.glob("*.sh"))
        self.assertGreater(len(scripts), 2)
        for script in scripts:
            done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_variables_exist(self):
        for path in DEPLOY.iterdir():
            with self.subTest(path.name):
                named = set(re.findall(r"INJECT_\w+", path.read_text()))
                self.assertTrue(named)
                self.assertLessEqual(named, OPTIONS)

    def test_kubernetes_mounts_what_it_names(self):
        job = yaml_of(self, DEPLOY / "kubernetes.yaml")
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        pod = job["spec"]["template"]["spec"]
        [first], [train] = pod["initContainers"], pod["containers"]
        environment = {entry["name"]: entry["value"] for entry in train["env"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in train["volumeMounts"]}
        volumes = {volume["name"] for volume in pod["volumes"]}
        self.assertEqual(set(mounts.values()), volumes)
        for variable in ("LD_PRELOAD", "INJECT_OUT"):
            self.assertIn(str(pathlib.PurePosixPath(environment[variable]).parent), mounts)
        [brought] = first["volumeMounts"]
        self.assertEqual(mounts[brought["mountPath"]], brought["name"])
        self.assertIn(f"{brought['mountPath']}/", first["command"][-1])

    def test_workflows(self):
        """Each parses, pins its actions to one version, and calls scripts that exist."""
        files = sorted(WORKFLOWS.glob("*.yml"))
        self.assertGreater(len(files), 2)
        for file in files:
            with self.subTest(file.name):
                workflow = yaml_of(self, file)
                self.assertIn(True, workflow)  # "on", which YAML parses as a boolean
                self.assertTrue(workflow["name"])
                for job in workflow["jobs"].values():
                    self.assertIn("runs-on", job)
                    self.assertGreater(job["timeout-minutes"], 0)
                    for step in job["steps"]:
                        if "uses" in step:
                            self.assertRegex(step["uses"], r"^[\w.-]+/[\w.-]+@v\d+\.\d+\.\d+$")
                            continue
                        done = subprocess.run(["bash", "-n"], input=step["run"], capture_output=True, text=True, check=False)
                        self.assertEqual((done.returncode, done.stderr), (0, ""))
                        for script in re.findall(r"scripts/[\w/]+\.sh", step["run"]):
                            self.assertTrue(os.access(folders.ROOT / script, os.X_OK), script)


class Runs(folders.TemporaryFolder):
    def stand_in(self, name, text):
        place = self.folder / "bin" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/bash\n{text}\n")
        place.chmod(0o755)

    def run_script(self, name, *arguments, **env):
        full = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")},
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "LIBINJECT": str(folders.BUILD / "libinject.so"),
                "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "INJECT_WINDOW": "api", "INJECT_SUMMARY": "off", **env}
        done = subprocess.run([DEPLOY / name, *map(str, arguments)], env=full, cwd=self.folder, capture_output=True, text=True, timeout=100,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ranks(self, folder):
        return sorted(path.parent.name for path in (self.folder / folder).glob("*/run.json"))

    def test_mpirun(self):
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout if shutil.which("mpirun") else ""
        if "Open MPI" not in version:
            self.skipTest("no Open MPI: scripts/setup.sh")
        self.run_script("mpirun.sh", "--oversubscribe", "-np", 2, "-x", "LD_LIBRARY_PATH", TRAIN, OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.assertEqual(self.ranks("profile"), ["rank-0", "rank-1"])

    def test_slurm(self):
        """srun starts a task on each host, whose torchrun starts a worker for each GPU."""
        # With a pause between two hosts: a reader that exits after the first would end it by SIGPIPE.
        self.stand_in("scontrol", "echo first; sleep 0.2; echo second")
        self.stand_in("srun", 'for SLURM_PROCID in 0 1; do SLURM_PROCID=$SLURM_PROCID "$@" || exit; done; '
                              '[[ ! ${LD_PRELOAD:-} ]]')
        self.stand_in("torchrun", 'echo "$*" >>torchrun.log; while [[ $1 == --* ]]; do shift; done\n'
                                  'for gpu in 0 1; do RANK=$((2 * SLURM_PROCID + gpu)) "$@" || exit; done')
        self.run_script("slurm_torchrun.sh", TRAIN, SLURM_SUBMIT_DIR=str(self.folder), SLURM_JOB_ID="7", SLURM_JOB_NODELIST="node[1-2]",
                        SLURM_NNODES="2", SLURM_GPUS_ON_NODE="2")
        self.assertEqual(self.ranks("profile-7"), ["rank-0", "rank-1", "rank-2", "rank-3"])
        self.assertIn("--nnodes=2 --nproc-per-node=2 --rdzv-id=7 --rdzv-backend=c10d --rdzv-endpoint=first:29500",
                      (self.folder / "torchrun.log").read_text())

    def test_docker(self):
        self.stand_in("docker", 'printf "%s\\n" "$@"')
        words = self.run_script("docker.sh", "image", "python", "train.py").splitlines()
        self.assertEqual(words[-3:], ["image", "python", "train.py"])
        volumes = [words[index + 1].split(":") for index, word in enumerate(words) if word == "-v"]
        environment = dict(words[index + 1].split("=", 1) for index, word in enumerate(words) if word == "-e")
        inside = {volume[1]: volume[0] for volume in volumes}
        self.assertEqual(inside[environment["LD_PRELOAD"]], str(folders.BUILD / "libinject.so"))
        self.assertEqual(inside[str(pathlib.PurePosixPath(environment["INJECT_OUT"]).parent)], str(self.folder / "profile"))
        self.assertEqual(environment["INJECT_WINDOW"], "api")


if __name__ == "__main__":
    unittest.main()
