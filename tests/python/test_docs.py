# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The documents: their links and words, the reference pages against what they describe, the commands of the guides on the simulated
CUDA, and the site that MkDocs makes of them."""

import ctypes
import html.parser
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import urllib.parse

import commands_page
import folders
import ranks
from libinject.compare.measures import METRICS

ROOT = folders.ROOT
DOCS = ROOT / "docs"
TEXTS = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("tests/gpu/*.md"), *ROOT.glob("studies/*.md")])
# Those with blocks of shell, which are run here as they stand, and how many runs each leaves at least.
TRIED = {"README.md": 2, "docs/ci.md": 2, "docs/commands.md": 2, "docs/compare.md": 0, "docs/cpp.md": 5, "docs/deployment.md": 4, "docs/distributed.md": 2,
         "docs/get_started.md": 2, "docs/install.md": 0, "docs/jax.md": 1, "docs/merge.md": 2, "docs/metrics_collection.md": 1, "docs/notebook.md": 0,
         "docs/prometheus.md": 2, "docs/pytorch.md": 4, "docs/report.md": 0, "docs/run_json.md": 0, "docs/sweep.md": 21, "docs/timeline.md": 1, "docs/windows.md": 3}
# Folders that they name as runs of the reader's.
THERE = ("inject-node-28228", "before", "after", "after1", "after2", "a1", "a2", "a3", "b1", "b2", "b3", "again", "again2", "fp32")
OPTIONS = re.findall(r"^INJECT_OPTION\((\w+), \w+, \"((?:[^\"\\]|\\.)*)\"", (ROOT / "libinject/config/options.def").read_text(), re.MULTILINE)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text):
    """The text without blocks of code and what stands in backticks."""
    text = re.sub(r"^ *(```+).*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?:(?!\1).)+?\1", "", text)


def anchors(text):
    """What the headings of a page are called in links, as GitHub has it."""
    text = re.sub(r"^ *(```+).*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = []
    for heading in re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Texts(unittest.TestCase):
    def test_links_lead_somewhere(self):
        count = 0
        for path in TEXTS:
            for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
                if re.match(r"[a-z]+:", target):
                    continue
                count += 1
                with self.subTest(path=path.name, target=target):
                    file, _, anchor = target.partition("#")
                    found = (path.parent / file).resolve() if file else path
                    self.assertTrue(found.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(found.read_text(encoding="utf-8")))
        self.assertGreater(count, 150)

    def test_pages_that_are_named_exist(self):
        for path in TEXTS:
            for name in re.findall(r"`docs/(\w+\.\w+)`", path.read_text(encoding="utf-8")):
                self.assertTrue((DOCS / name).exists(), f"{path.name}: docs/{name}")

    def test_the_index_has_every_page(self):
        linked = set(re.findall(r"\]\((\w+\.md)(?:#[\w-]+)?\)", read("docs/index.md")))
        self.assertEqual(linked, {path.name for path in DOCS.glob("*.md")} - {"index.md"})

    def test_readme_is_short(self):
        readme = read("README.md")
        self.assertLessEqual(len(readme.split()), 900)
        self.assertLess((DOCS / "report.png").stat().st_size, 200_000)
        # The repository's two commands.
        self.assertRegex(readme, r"(?m)^    scripts/demo\.sh +# .+\n    scripts/test\.sh +# ")

    def test_variables_exist(self):
        names = {name for name, _ in OPTIONS}
        for path in [ROOT / "README.md", *DOCS.glob("*.md")]:
            named = set(re.findall(r"\bINJECT_[A-Z_]+\b", path.read_text(encoding="utf-8")))
            self.assertEqual(named - names, set(), path.name)

    def test_blocks_of_shell_are_run(self):
        """Those of every page, and no command stands where it would not be."""
        pages = [ROOT / "README.md", *DOCS.glob("*.md")]
        self.assertEqual({str(path.relative_to(ROOT)) for path in pages if blocks(path.read_text(encoding="utf-8"), "sh")}, set(TRIED))
        for path in pages:
            self.assertNotRegex(re.sub(r"^ *(```+).*?^ *\1 *$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL),
                                r"(?m)^ {4,}(?:inject |injectctl |export |pip |LD_PRELOAD=|INJECT_\w+=\S+ .*(?:python|inject|torchrun) )", path.name)

    def test_blocks_of_python_run(self):
        """As a program's, whose own names are stand-ins."""
        names = {"torch": unittest.mock.MagicMock(), "nvtx": unittest.mock.MagicMock(), "train_step": lambda *batch: None, "model": None, "tokens": 7, "batch": 7,
                 "loader": [unittest.mock.MagicMock()], "ctypes": ctypes}
        if not importlib.util.find_spec("pandas"):
            self.skipTest("no pandas: scripts/setup.sh")
        holder = tempfile.TemporaryDirectory(prefix="inject-test-")
        self.addCleanup(holder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(holder.name)
        folders.profile_example("inject-node-28228", "--steps", "400", "--no-profiler-api", WINDOW="iter:20+10")
        ranks.write_job(pathlib.Path("out"), 4)
        for rank in pathlib.Path("out").iterdir():
            rank.rename(rank.with_name(f"rank-{rank.name}"))
        for path in TEXTS:
            own = dict(names)
            for block in blocks(path.read_text(encoding="utf-8"), "python"):
                own["evaluate"] = lambda model: None
                exec(compile(block, path.name, "exec"), own)  # noqa: S102 - it is ours

    def test_blocks_of_cpp_compile(self):
        for path in TEXTS:
            for block in blocks(path.read_text(encoding="utf-8"), "cpp"):
                includes, body = re.findall(r"(?m)^#.*$", block), re.sub(r"(?m)^#.*$", "", block)
                program = "\n".join([*includes, "void train(int);", "void program(double tokens) { (void)tokens;", body, "}"])
                done = subprocess.run(["g++", "-Wall", "-Werror", "-fsyntax-only", "-I", ROOT / "include", "-x", "c++", "-"], input=program, capture_output=True,
                                      text=True, timeout=100, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), path.name)

    def test_versions(self):
        """The changes begin with the version that is being worked on."""
        version = re.search(r"^## \[?(\d+\.\d+\.\d+)\]? - (unreleased|\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
        self.assertTrue(version)
        self.assertEqual(version[1], re.search(r"project\(libinject VERSION ([0-9.]+)", read("CMakeLists.txt"))[1])


class Reference(folders.TemporaryFolder):
    def test_variables(self):
        rows = re.findall(r"^\| (INJECT_[A-Z_]+) \| (?:`([^`]*)`|–) \| .+ \|$", read("docs/variables.md"), re.MULTILINE)
        self.assertEqual(rows, OPTIONS)

    def test_options_of_the_commands(self):
        page = read("docs/commands.md")
        self.assertTrue(page == commands_page.page(page), "docs/commands.md is not as scripts/commands_page.py writes it")
        self.assertEqual(set(re.findall(r"^<!-- options of (\w+) -->$", page, re.MULTILINE)), set(commands_page.commands()))

    def test_commands_of_injectctl(self):
        usage = subprocess.run([folders.BUILD / "injectctl" / "injectctl", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        there = {" ".join(line.split("  ")[0].split()) for line in re.findall(r"^(?:usage:)? +(injectctl [^\n]+)", usage, re.MULTILINE)}
        self.assertEqual(there, set(re.findall(r"^\| `(injectctl [^`]+)` \|", read("docs/commands.md"), re.MULTILINE)))

    def test_files(self):
        """All that a run can leave, and nothing else."""
        with unittest.mock.patch.dict(os.environ, CUDASIM_POWER="step_us=20000"):
            out = folders.profile_example(self.folder / "out", TRACE="csv,chrome", METRICS="auto", METRICS_TIMELINE="1")
        listed = set()
        for row in re.findall(r"^\| (`.+?`) \| ", read("docs/files.md"), re.MULTILINE):
            listed |= set(re.findall(r"`([^`]+)`", row))
        # Of PyTorch's programs, and of programs that are killed.
        elsewhere = {"op_sum.csv", "module_sum.csv", "line_sum.csv", "gap_line_sum.csv", "gpu_stacks.folded", "memory_purpose.csv", "oom.json", "records",
                     "records.at"}
        self.assertEqual({path.name for path in out.iterdir()} | elsewhere, listed)

    def test_metrics_of_compare(self):
        """Those that a gate can name, of a whole run."""
        row = next(line for line in read("docs/compare.md").splitlines() if line.startswith("| `step_time`, "))
        self.assertEqual(re.findall(r"`([a-z_]+)`", row.split("|")[1]), [metric.name for metric in METRICS])

    def test_windows(self):
        """Each window that the documents name is one."""
        named = set()
        for path in [ROOT / "README.md", *DOCS.glob("*.md")]:
            text = path.read_text(encoding="utf-8")
            named |= set(re.findall(r"(?:INJECT_WINDOW=|--window )'?((?:iter|time|launch|nvtx|signal):[^\s'`)]+|auto|api|always|off)\b", text))
            if path.name == "windows.md":
                named |= {value for value in re.findall(r"`((?:iter|time|launch|nvtx|signal):[^`]+)`", text) if not re.search("[A-Z]{5}|^[a-z]+:$", value)
                          or value.startswith("signal:")}
        named = {value for value in named if "…" not in value and not value.endswith(":")}
        self.assertGreater(len(named), 15)
        for value in sorted(named):
            with self.subTest(value):
                done = subprocess.run([folders.BUILD / "examples" / "inject-train", "--steps", "1"], capture_output=True, text=True, timeout=60, check=True,
                                      env={"LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "LD_PRELOAD": str(folders.BUILD / "libinject.so"),
                                           "INJECT_OUT": str(self.folder / "out"), "INJECT_WINDOW": value})
                self.assertNotIn("profiling is off", done.stderr)


class Commands(folders.TemporaryFolder):
    """The blocks of shell in the guides, one after the other, in a folder like the repository's. The training script is the C++
    example on the simulated CUDA; what installs something or starts jobs elsewhere has a stand-in."""

    def setUp(self):
        super().setUp()
        (self.folder / "bin").mkdir()
        for name in ("build", "examples"):
            (self.folder / name).symlink_to(folders.BUILD if name == "build" else ROOT / name)
        for script in ROOT.glob("scripts/*.sh"):
            self.stand_in(f"scripts/{script.name}", "")
        self.stand_in("scripts/inject", f'exec "{sys.executable}" "{ROOT}/scripts/inject" "$@"')
        shutil.copy(self.folder / "scripts" / "inject", self.bin("inject"))
        self.bin("injectctl").symlink_to(folders.BUILD / "injectctl" / "injectctl")
        for name in ("apt-get", "cmake", "docker", "pip"):
            self.stand_in(f"bin/{name}", "")
        self.stand_in("bin/kubectl", '[[ -f $3 ]]')
        self.stand_in("bin/sbatch", '[[ -f $1 ]]')
        self.stand_in("train", "exec python train.py")
        # Windows by the clock come sooner than in a real training, and end the program.
        self.stand_in("bin/python", f"""
            case "$1" in
              -m) mkdir -p "$3/bin" && touch "$3/bin/activate"; exit ;;
              -c) exec "{sys.executable}" "$@" ;;
              *.py) ;;
              *) exit 2 ;;
            esac
            options=(--steps 2000)
            case "${{INJECT_WINDOW:-api}}" in
              api) options=() ;;
              time:*) export INJECT_WINDOW=time:50ms+50ms INJECT_AFTER=exit; options=(--steps 1000000 --no-profiler-api) ;;
              *) options+=(--no-profiler-api) ;;
            esac
            exec "{folders.BUILD}/examples/inject-train" "${{options[@]}}" >/dev/null""")
        self.bin("python3").symlink_to("python")
        self.stand_in("bin/torchrun", """
            while [[ $1 == --* ]]; do shift; done
            for RANK in 0 1; do export RANK; python "$@" & done
            wait -n && wait -n""")
        self.stand_in("bin/mpirun", """
            while [[ $1 == -* ]]; do [[ $1 != -x ]] || export "$2"; [[ $1 != -np ]] || count=$2; shift 2; done
            for ((OMPI_COMM_WORLD_RANK = 0; OMPI_COMM_WORLD_RANK < count; OMPI_COMM_WORLD_RANK++)); do export OMPI_COMM_WORLD_RANK; "$@" || exit; done""")

    def bin(self, name):
        return self.folder / "bin" / name

    def stand_in(self, name, text):
        place = self.folder / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/bash\n{text}\n")
        place.chmod(0o755)

    def try_page(self, name):
        found = blocks(read(name), "sh")
        run = folders.profile_example(self.folder / "run") if name in ("docs/compare.md", "docs/report.md") else None
        for there in THERE if run else ():
            (self.folder / there).symlink_to(run)
        for count in (8, 16, 32) if name == "docs/merge.md" else ():
            ranks.write_job(self.folder / f"job-{count}", count)
        # A gate may go either way on a machine that others use.
        script = "inject() { local status=0; command inject \"$@\" || status=$?; [[ $1 == compare && $status == [13] ]] || return $status; }\n"
        script += "set -x\n" + "\n".join(found) + "\nwait\n"
        for path, there in (("/path/to/libinject.so", folders.BUILD / "libinject.so"), ("/var/lib/node_exporter/textfile", self.folder)):
            script = script.replace(path, str(there))
        env = {variable: value for variable, value in os.environ.items() if not variable.startswith("INJECT_")}
        env |= {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(folders.BUILD / "sim"),
                "LIBINJECT": str(folders.BUILD / "libinject.so"), "PYTHONDONTWRITEBYTECODE": "1", "BROWSER": "true"}
        done = subprocess.run(["bash", "-e"], input=script, cwd=self.folder, env=env, capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        runs = {path: json.loads(path.read_text()) for path in self.folder.glob("**/run.json")
                if path.parent.name not in (*THERE, "run") and not re.match(r"job-\d", path.parent.parent.name)}
        for path, run in runs.items():
            self.assertEqual(run["state"], "closed", path)
            self.assertGreaterEqual(len(run["windows"]), 1, f"{path}\n{done.stderr}")
        return len(runs)


def _try(name):
    return lambda self: self.assertGreaterEqual(self.try_page(name), TRIED[name])


for _name in TRIED:
    setattr(Commands, f"test_{pathlib.Path(_name).stem}", _try(_name))


class _Resources(html.parser.HTMLParser):
    """What a page loads, the links it has, and the anchors."""

    def __init__(self):
        super().__init__()
        self.loaded, self.links, self.ids, self.paragraphs = [], [], set(), []
        self._in = []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        elif tag != "a":
            self.loaded += [attrs[name] for name in ("src", "href", "srcset", "data", "poster") if attrs.get(name)]
        if tag == "p":
            self.paragraphs.append("")
            self._in.append(tag)

    def handle_endtag(self, tag):
        if tag == "p" and self._in:
            self._in.pop()

    def handle_data(self, data):
        if self._in:
            self.paragraphs[-1] += data


class Site(folders.TemporaryFolder):
    def test_it_is_whole_and_loads_nothing_from_elsewhere(self):
        for package in ("mkdocs", "material"):
            if importlib.util.find_spec(package) is None:
                self.skipTest(f"no {package}: scripts/setup.sh installs what the site is made with")
        site = self.folder / "site"
        # Whatever would ask a network fails.
        env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", **{name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}}
        done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site], cwd=ROOT, env=env,
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        pages = {}
        for path in site.rglob("*.html"):
            pages[path] = _Resources()
            pages[path].feed(path.read_text(encoding="utf-8"))
        self.assertLessEqual({path.stem for path in DOCS.glob("*.md")}, {path.stem for path in pages})
        for path, page in pages.items():
            for address in page.loaded:
                self.assertFalse(urllib.parse.urlsplit(address).netloc, f"{path.name} loads {address}")
            # Left as they are by a reader of Markdown that wants an empty line there.
            for paragraph in page.paragraphs:
                self.assertNotRegex(paragraph, r"(?m)^\s*(?:\|.*\|$|- )", path.name)
            for link in page.links if path.name != "404.html" else ():
                parts = urllib.parse.urlsplit(link)
                if parts.scheme or parts.netloc:
                    continue
                found = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
                found = found / "index.html" if found.is_dir() else found
                self.assertTrue(found.is_file(), f"{path.name}: {link}")
                if parts.fragment and found in pages:
                    self.assertIn(urllib.parse.unquote(parts.fragment), pages[found].ids, f"{path.name}: {link}")
        for style in site.rglob("*.css"):
            self.assertNotRegex(style.read_text(encoding="utf-8"), r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
