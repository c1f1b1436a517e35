#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Programs that do not use CUDA, bare and under the preload: the same status, the same stdout and stderr byte for byte, the same files, and
no output of ours. PyTorch, JAX, CuPy, Numba and Triton are in tests/gpu/unharmed.py.

usage: test_process_unharmed.py LIBRARY PROGRAMS SIMULATION
"""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

HELLO = """#include <stdio.h>
#include <stdlib.h>
int main(int count, char** words) {
  long sum = 0;
  for (int i = 0; i < 1000; ++i) sum += i * (long)count;
  void* memory = malloc(100);
  printf("%ld %s\\n", sum, words[count - 1]);
  free(memory);
  return 7;
}
"""
JAVA = """import java.util.stream.*;
class Hello {
  public static void main(String[] words) throws Exception {
    System.out.println(IntStream.range(0, 100000).parallel().mapToLong(i -> (long) i * i).sum());
    System.out.println(new String(new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim());
    System.exit(5);
  }
}
"""
PYTHON = """
import ctypes, hashlib, multiprocessing, os, subprocess, sys, threading
def square(x): return x * x
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool: print(method, pool.map(square, range(5)))
    print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True))
    threads = [threading.Thread(target=hashlib.sha256, args=(b"x" * 1000,)) for _ in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    child = os.fork()
    if child == 0: os._exit(9)
    print(os.waitpid(child, 0)[1], ctypes.CDLL(None).abs(-4), file=sys.stderr)
    sys.exit(4)
"""
NODE = """const {execSync} = require('child_process'); const crypto = require('crypto');
console.log(crypto.createHash('sha256').update('x').digest('hex'), execSync('echo child').toString());
setTimeout(() => { console.error('late'); process.exit(6); }, 5);"""
CMAKE = """cmake_minimum_required(VERSION 3.20)
project(hello C)
enable_testing()
add_executable(hello hello.c)
add_test(NAME hello COMMAND hello x)
set_tests_properties(hello PROPERTIES WILL_FAIL ON)
"""
MAKE = "all: a b\na:\n\t@echo one > a\nb: a\n\t@sed s/one/two/ a > b && cat b\n"
# Commands of one program each, run by a shell in a folder with the files below; programs that may be missing on a machine come first.
PROGRAMS = {
    "bash": (["bash"], "bash -c 'a=(1 2 3); echo ${a[@]} | while read x; do echo $((x)); done 2>&1; trap \"echo bye\" EXIT; (exit 3); exit $?'"),
    "sh": (["sh"], "sh -c 'echo $0 $LD_LIBRARY_PATH; kill -TERM $$'"),
    "git": (["git"], "git init -q . && git add hello.c && git commit -qm first && git log --format=%H && git status --short && git gc -q && git fsck"),
    "gcc": (["gcc"], "gcc -g -O2 -o hello hello.c && ./hello a b c"),
    "clang": (["clang"], "clang -O1 -o hello hello.c && ./hello a b c"),
    "cmake and ctest": (["cmake", "ninja", "gcc"], "mkdir build && cd build && cmake -G Ninja .. > /dev/null && ninja > /dev/null && ctest | grep -c Passed; cd .. && rm -r build"),
    "make": (["make"], "make"),
    "node": (["node"], "node hello.js"),
    "java": (["java", "javac"], "javac Hello.java && java -XX:TieredStopAtLevel=1 Hello"),
    "gdb": (["gdb", "gcc"], "gcc -g -o hello hello.c && gdb -nx -q -batch -ex 'break 9' -ex run -ex 'print sum' -ex continue --args ./hello a 2>&1 | grep -v '^\\[' | sed 's/words=0x[0-9a-f]*//'"),
    "valgrind": (["valgrind", "gcc"], "gcc -g -o hello hello.c && valgrind -q --error-exitcode=99 --leak-check=full ./hello a"),
    "perl": (["perl"], "perl -e 'my %h = map { $_ => $_ ** 2 } 1 .. 9; print join(q(,), map { $h{$_} } sort keys %h), qq(\\n); print `echo child`; exit 3'"),
    "python": ([], f"{sys.executable} hello.py"),
    "awk, sed and sort": (["awk", "sed", "sort"], "awk '{ print NR, length($0) }' hello.c | sed 's/ /:/' | sort -r -t: -k2 -n"),
    "tar and gzip": (["tar", "gzip"], "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar hello.c hello.py && gzip -n a.tar && tar -tzf a.tar.gz"),
    "xz": (["xz"], "xz -T2 -k hello.c && xz -dc hello.c.xz | cmp - hello.c"),
    "openssl": (["openssl"], "openssl dgst -sha256 hello.c; openssl enc -aes-128-cbc -K 00 -iv 00 -in hello.c -out hello.enc 2>/dev/null"),
    "sqlite3": (["sqlite3"], "sqlite3 a.db 'create table t(a); insert into t values (1), (2); select sum(a), count(*) from t; select x from t'"),
    "curl": (["curl"], "curl -s file://$PWD/hello.c; curl -s http://127.0.0.1:1/"),
    "find and xargs": (["find", "xargs"], "find . -name 'hello*' | LC_ALL=C sort | xargs -n 1 -P 1 wc -c"),
    "tclsh": (["tclsh"], "echo 'puts [expr {6 * 7}]; puts [exec echo child]; exit 3' | tclsh"),
    "bc": (["bc"], "echo 'scale = 50; 4 * a(1)' | bc -l"),
    "jq": (["jq"], "echo '{\"a\": [1, 2, 3]}' | jq -c '.a | map(. * 2)'"),
    "strace": (["strace"], "strace -f -e trace=none -o /dev/null sh -c 'echo traced; exit 3'"),
}
FILES = {"hello.c": HELLO, "Hello.java": JAVA, "hello.py": PYTHON, "hello.js": NODE, "CMakeLists.txt": CMAKE, "Makefile": MAKE}


@dataclasses.dataclass
class Seen:
    status: int
    output: bytes
    errors: bytes
    files: dict


class Unharmed(unittest.TestCase):
    def setUp(self):
        # The same folder for all runs, because compilers and git record its name.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-unharmed-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_shell(self, text, preload):
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for name, contents in FILES.items():
            (work / name).write_text(contents)
            os.utime(work / name, (0, 0))
        environment = {"PATH": os.environ["PATH"], "HOME": str(work), "LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": "0",
                       "PYTHONDONTWRITEBYTECODE": "1", "JAVA_TOOL_OPTIONS": "-Xshare:auto"}
        for who in ("AUTHOR", "COMMITTER"):
            environment.update({f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@b", f"GIT_{who}_DATE": "2026-01-01T00:00:00Z"})
        if preload:
            environment.update(LD_PRELOAD=str(harness.library), INJECT_WINDOW="always", INJECT_OUT=str(self.folder / "ours"),
                               INJECT_METRICS="auto", INJECT_TRACE="csv", INJECT_PROM=str(self.folder / "ours.prom"))
        # The shell is preloaded as well.
        done = subprocess.run(["/bin/sh", "-c", text], cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=120, check=False)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["work"], "something of ours")
        # git's index has the times and inode numbers of its files.
        files = {str(path.relative_to(work)): hashlib.sha256(path.read_bytes()).hexdigest()
                 for path in sorted(work.rglob("*")) if path.is_file() and path.name != "index"}
        return Seen(done.returncode, done.stdout, done.stderr, files)


def add_test(name, needed, text):
    def test(self):
        lacking = [program for program in needed if shutil.which(program) is None]
        if lacking:
            self.skipTest(f"not on this machine: {', '.join(lacking)}")
        bare = self.run_shell(text, preload=False)
        again = self.run_shell(text, preload=False)
        if bare != again:
            self.skipTest("two runs without the preload differ")
        self.assertEqual(self.run_shell(text, preload=True), bare)

    setattr(Unharmed, "test_" + "".join(letter if letter.isalnum() else "_" for letter in name), test)


for _name, (_needed, _text) in PROGRAMS.items():
    add_test(_name, _needed, _text)


if __name__ == "__main__":
    harness.main()
