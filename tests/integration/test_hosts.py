#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Programs that never use CUDA behave the same under the preload: same output, same exit status, no file, no thread.

usage: test_hosts.py LIBRARY
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

library = None

# The two variables are the library's only trace, visible only in programs that print their environment.
PROGRAMS = {
    "true": ["true"],
    "false": ["false"],
    "cat": ["cat", "input.txt"],
    "sort": ["sort", "-r", "input.txt"],
    "ls of nothing": ["ls", "no-such-file"],
    "bash": ["bash", "-c", "for i in 1 2 3; do echo $i $((i * i)); done; echo problem >&2; (exit 3) | cat; exit 7"],
    "bash pipeline": ["bash", "-c", "sort input.txt | uniq -c | tr a-z A-Z; echo ${PIPESTATUS[@]}"],
    "bash killed": ["bash", "-c", "kill -TERM $$"],
    "dash": ["sh", "-c", "trap 'echo bye' EXIT; echo hi"],
    "python": ["python3", "-c", "import sys, json, threading; print(json.dumps(sorted(sys.argv)), threading.active_count())"],
    "python error": ["python3", "-c", "raise SystemExit(5)"],
    "python traceback": ["python3", "-c", "1 / 0"],
    "python processes": ["python3", "-c",
                         "import multiprocessing as m\nfor how in ('fork', 'spawn'):\n"
                         "    with m.get_context(how).Pool(2) as p: print(how, p.map(abs, range(-3, 3)))"],
    "python subprocess": ["python3", "-c",
                          "import subprocess as s; print(s.run(['sh', '-c', 'echo x; exit 4'], capture_output=True))"],
    "perl": ["perl", "-e", "print map { $_ * 2, qq(\\n) } 1 .. 5; warn qq(careful\\n); exit 9"],
    "awk": ["awk", "{ n += length($0) } END { print n, NR }", "input.txt"],
    "git": ["bash", "-c", "git init -q r && cd r && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m first "
                          "--date 2020-01-01T00:00:00Z && git log --format=%s && git status --short && rm -rf ../r"],
    "compiler": ["bash", "-c", "c++ -O1 -std=c++20 -o hello hello.cpp && ./hello; e=$?; rm -f hello; exit $e"],
    "compiler error": ["c++", "-c", "broken.cpp"],
    "cmake": ["bash", "-c", "cmake -S project -B out >log 2>&1 && cmake --build out >>log 2>&1 && out/tiny; e=$?; "
                            "[ $e = 3 ] || cat log; rm -rf out log; exit $e"],
    "tar": ["bash", "-c", "tar cf - input.txt | tar tvf - | awk '{ print $3, $6 }'"],
    "missing program": ["bash", "-c", "no-such-program"],
}

FILES = {
    "input.txt": "pear\napple\nfig\napple\n",
    "hello.cpp": "#include <iostream>\n#include <stdexcept>\n#include <thread>\nint main() {\n  std::thread t([] {\n"
                 "    try { throw std::runtime_error(\"thrown\"); } catch (const std::exception& e) { std::cout << e.what(); }\n"
                 "  });\n  t.join();\n  std::cout << \" and caught\\n\";\n  return 42;\n}\n",
    "broken.cpp": "int main() { return nothing; }\n",
    "project/CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(tiny C)\nadd_executable(tiny tiny.c)\n",
    "project/tiny.c": "#include <stdio.h>\nint main(void) { puts(\"tiny\"); return 3; }\n",
}


def environment(preload):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("INJECT_") and name not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")}
    kept["LC_ALL"] = "C"
    if preload:
        kept["LD_PRELOAD"] = str(library)
    return kept


class Hosts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-hosts-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name, text in FILES.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def run_program(self, command, preload):
        done = subprocess.run(command, cwd=self.folder, env=environment(preload), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120, check=False)
        files = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return done.returncode, done.stdout, done.stderr, files

    def test_same_behaviour(self):
        for name, command in PROGRAMS.items():
            if shutil.which(command[0]) is None:
                continue
            with self.subTest(name):
                self.assertEqual(self.run_program(command, preload=True), self.run_program(command, preload=False))

    def test_is_loaded_and_starts_no_thread(self):
        code = ("import os; maps = open('/proc/self/maps').read(); "
                "print('libinject' in maps, len(os.listdir('/proc/self/task')))")
        done = subprocess.run(["python3", "-c", code], cwd=self.folder, env=environment(True), capture_output=True,
                              text=True, timeout=60, check=True)
        self.assertEqual(done.stdout.split(), ["True", "1"])
        self.assertEqual(done.stderr, "")

    @unittest.skipIf(shutil.which("valgrind") is None, "there is no Valgrind")
    def test_leaves_no_memory(self):
        done = subprocess.run(["valgrind", "--leak-check=full", "--show-leak-kinds=all", shutil.which("true")], cwd=self.folder,
                              env=environment(True), capture_output=True, text=True, timeout=300, check=True)
        self.assertNotIn("libinject", done.stderr)
        self.assertIn("in use at exit: 0 bytes", done.stderr)

    def test_points_cuda_and_nvtx_at_itself(self):
        # In a spelling that children distinguish from one set by a user (test_coexistence.py Children).
        for already, expected in ((None, f"{library.parent}/././{library.name}"), ("/somebody/else.so", "/somebody/else.so")):
            for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
                env = environment(True)
                if already:
                    env[variable] = already
                done = subprocess.run(["printenv", variable], env=env, capture_output=True, text=True, timeout=60,
                                      check=False)
                self.assertEqual(done.stdout.strip(), expected, variable)

    def test_loads_by_dlopen_into_a_running_program(self):
        code = f"import ctypes; ctypes.CDLL({str(library)!r}); print('loaded')"
        done = subprocess.run(["python3", "-c", code], cwd=self.folder, env=environment(False), capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "loaded\n", ""))

    def test_a_probe_for_cuda_gets_an_error(self):
        # Under the preload the names exist, and the calls report that there is no CUDA.
        probes = {"cudaGetDeviceCount": 302, "cudaMalloc": 302, "cublasCreate_v2": 1, "cuptiSubscribe": 15}
        code = ("import ctypes, os; found = ctypes.CDLL(None); empty = [None] * 3\n"
                f"for name in {list(probes)}: print(name, [getattr(found, name)(*empty) for _ in range(2)])\n"
                "print(len(os.listdir('/proc/self/task')))")
        done = subprocess.run(["python3", "-c", code], cwd=self.folder, env=environment(True), capture_output=True,
                              text=True, timeout=60, check=False)
        answers = [f"{name} [{status}, {status}]" for name, status in probes.items()]
        self.assertEqual((done.returncode, done.stdout.splitlines()), (0, [*answers, "1"]))
        said = [line.partition("] ")[2] for line in done.stderr.splitlines()]
        self.assertEqual(said, [f"error: no loaded library provides {name}; the call fails" for name in probes])
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"input.txt", "hello.cpp", "broken.cpp", "project"})

    def test_an_inaccessible_stderr_or_stdout_changes_nothing(self):
        for closing in (">&-", "2>&-", ">&- 2>&-", ">/dev/full"):
            with self.subTest(closing):
                script = f"/bin/echo text {closing}; echo $? >status"
                results = []
                for preload in (True, False):
                    self.run_program(["bash", "-c", script], preload)
                    results.append((self.folder / "status").read_text())
                self.assertEqual(*results)


if __name__ == "__main__":
    library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
