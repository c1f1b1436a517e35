#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""INJECT_CONTROL=1 and injectctl: who is answered, the answers, and what is left behind.

usage: test_control.py LIBRARY PROGRAMS SIMULATION INJECTCTL
"""

import concurrent.futures
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

import simulated

injectctl = pathlib.Path(sys.argv.pop(4)).resolve()
TRAINING = pathlib.Path(__file__).resolve().parent / "training.py"
NOBODY = 65534
# Runs for half a minute unless it is killed.
LONG = "print:up loop:6000 [ kernel:k:1 sync sleep:5 ]"

FORKS = """
import ctypes, os, time
ctypes.CDLL("libcuda.so.1").cuInit(0)
print("up", flush=True)
while not os.path.exists("fork"): time.sleep(0.01)
child = os.fork()
if child == 0:
    os.close(1)
    os.close(2)
    time.sleep(30)
    os._exit(0)
print(child, flush=True)
time.sleep(30)
"""

CLOSES = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
print("up", flush=True)
while not os.path.exists("close"): time.sleep(0.01)
os.closerange(3, 1024)
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
time.sleep(0.3)
[os.fstat(number) for number in kept]
print("unharmed", flush=True)
"""

REUSES = """
import ctypes, os
ctypes.CDLL("libcuda.so.1").cuInit(0)
print("up", flush=True)
input()
(listening,) = [number for number in range(3, 64) if os.path.exists(f"/proc/self/fd/{number}")
                and os.readlink(f"/proc/self/fd/{number}").startswith("socket:")]
os.close(listening)
os.dup2(os.open("/dev/null", os.O_RDONLY), listening)
child = os.fork()
if child == 0:
    try: os.fstat(listening)
    except OSError: os._exit(1)
    os._exit(0)
print("unharmed" if os.waitpid(child, 0)[1] == 0 else "closed in the child", flush=True)
"""


class Case(simulated.SimulatedTest):
    def setUp(self):
        super().setUp()
        self.runtime = self.folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.sockets = self.runtime / "libinject"
        self.folder.chmod(0o755)

    def environment(self):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("INJECT_", "CUDASIM_", "CUDA_", "NVTX_", "LD_"))}
        return {**kept, "LC_ALL": "C", "XDG_RUNTIME_DIR": str(self.runtime)}

    def begin(self, text=LONG, command=None, control="1", ready=True, stdin=subprocess.DEVNULL, **options):
        """Starts a program that prints "up" once CUDA is initialised; returns when it is listening."""
        work = self.folder / f"process{len(list(self.folder.iterdir()))}"
        work.mkdir()
        given = {"OUT": "out", "SUMMARY": "off", "WINDOW": "api", "CONTROL": control, **options}
        env = {**self.environment(), "LD_LIBRARY_PATH": str(simulated.simulation), "LD_PRELOAD": simulated.preload_of(simulated.library),
               **{f"INJECT_{name}": value for name, value in given.items() if value is not None}}
        program = subprocess.Popen(command or [str(simulated.programs / "script_cuda"), "sync", *text.split()], cwd=work, env=env,
                                   stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        program.work = work
        self.addCleanup(self.end, program)
        self.assertEqual(program.stdout.readline(), "up\n")
        if ready:
            self.await_true(self.socket_of(program.pid).exists)
        return program

    @staticmethod
    def end(program, number=signal.SIGKILL):
        """Returns its stderr."""
        if program.poll() is None:
            program.send_signal(number)
        if program.stdout.closed:
            return ""
        return program.communicate(timeout=20)[1]

    def socket_of(self, pid):
        return self.sockets / f"{pid}.sock"

    def call(self, *words, **options):
        return subprocess.run([str(injectctl), *map(str, words)], env=self.environment(), capture_output=True, text=True,
                              timeout=30, check=False, **options)

    def ask(self, *words):
        """{key: value} of a successful answer."""
        done = self.call(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    def refused(self, *words, status=1):
        done = self.call(*words)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        return done.stderr

    @staticmethod
    def strangers():
        """Process ids that listen in the folders shared by all of this user's processes: another run of this test, where it skips an
        unsuitable folder."""
        shared = (f"/run/user/{os.geteuid()}/libinject", f"/tmp/libinject-{os.geteuid()}")
        return {path.stem for folder in shared for path in pathlib.Path(folder).glob("*.sock")}

    def listed(self):
        """[(PID, STATE, WINDOWS)] of the list, without strangers; and the rest of its output."""
        strangers = self.strangers()
        done = self.call("list")
        strangers |= self.strangers()
        rows = [line.split()[:3] for line in done.stdout.splitlines()]
        if rows:
            self.assertEqual(rows.pop(0), ["PID", "STATE", "WINDOWS"])
        elif not strangers:
            self.assertIn("none of your processes is listening", done.stderr)
        self.assertEqual(done.returncode, 0)
        return [row for row in rows if row[0] not in strangers]

    def connect(self, pid):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(connection.close)
        connection.settimeout(10)
        connection.connect(str(self.socket_of(pid)))
        return connection

    @staticmethod
    def read_all(connection):
        text = b""
        try:
            while part := connection.recv(65536):
                text += part
        except ConnectionResetError:
            pass  # the data sent had not been read
        return text.decode()

    def await_true(self, condition):
        deadline = time.monotonic() + 20
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(condition())

    def await_state(self, pid, state):
        deadline = time.monotonic() + 20
        while (found := self.ask("status", pid))["state"] != state and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(found["state"], state)
        return found


class Commands(Case):
    def test_a_window(self):
        program = self.begin("print:up until_open loop:10 [ kernel:k:1 sync ] print:launched loop:100000 [ kernel:k:1 sync sleep:2 ]")
        status = self.ask("status", program.pid)
        self.assertEqual({key: status[key] for key in ("state", "window", "windows_opened", "trigger", "output", "pid")},
                         {"state": "waiting", "window": "none", "windows_opened": "0", "trigger": "api", "output": "none yet",
                          "pid": str(program.pid)})
        self.assertIn("script_cuda sync print:up until_open", status["command"])
        self.assertNotRegex(status["lost"], "[1-9]")
        self.assertIn("no window is open", self.refused("stop", program.pid))
        self.assertEqual(self.ask("start", program.pid)["window"], "1 (injectctl)")
        self.assertIn("a window is already open", self.refused("start", program.pid))
        self.assertEqual(program.stdout.readline(), "launched\n")
        self.assertEqual(self.ask("stop", program.pid)["window"], "none")
        self.assertIn("no window is open", self.refused("stop", program.pid))
        status = self.await_state(program.pid, "waiting")
        self.assertEqual((status["windows_opened"], status["output"]), ("1", str(program.work / "out")))
        out = simulated.Folder(program.work / "out")
        self.await_true(lambda: "cuda_gpu_kern_sum.csv" in out.files())
        self.assertEqual(self.ask("start", program.pid)["window"], "2 (injectctl)")
        self.assertEqual(self.ask("stop", program.pid)["windows_opened"], "2")
        self.end(program, signal.SIGTERM)
        self.assertGreaterEqual(out.kernels()["k"], 10)
        self.assertEqual(out.reasons()[0], "injectctl")

    def test_windows_of_another_trigger(self):
        program = self.begin(WINDOW="always")
        self.assertEqual(self.ask("status", program.pid)["window"], "1 (always)")
        self.assertEqual(self.ask("stop", program.pid)["window"], "none")
        self.await_state(program.pid, "finished")
        self.assertIn("INJECT_WINDOW=always allows no further window", self.refused("start", program.pid))
        program = self.begin(WINDOW="launch:100000000+5")
        self.assertIn("opens its windows by itself", self.refused("start", program.pid))
        self.assertIn("no window is open", self.refused("stop", program.pid))
        program = self.begin(WINDOW="apix1")
        self.ask("start", program.pid)
        self.ask("stop", program.pid)
        self.assertIn("allows no further window", self.refused("start", program.pid))

    def test_the_last_window_closed_from_outside_ends_the_program(self):
        program = self.begin(WINDOW="apix1", AFTER="exit")
        self.ask("start", program.pid)
        self.ask("stop", program.pid)
        self.assertEqual(program.wait(30), 0)
        self.assertFalse(self.socket_of(program.pid).exists())

    def test_list(self):
        self.assertEqual(self.listed(), [])
        programs = [self.begin() for _ in range(3)]
        self.ask("start", programs[1].pid)
        self.assertEqual(sorted(self.listed()), sorted([str(program.pid), "open" if i == 1 else "waiting", "1" if i == 1 else "0"]
                                                       for i, program in enumerate(programs)))
        for program in programs:
            self.end(program)

    def test_command_line(self):
        for words in ((), ("begin",), ("status",), ("status", "self"), ("status", "-1"), ("status", "0"), ("status", "1x"),
                      ("status", "99999999999999999999"), ("start", "1", "2"), ("list", "1"), ("recover",), ("recover", "--keep"), ("\x1b[31m",)):
            with self.subTest(words):
                problem = self.refused(*words, status=2)
                self.assertIn("usage: injectctl list", problem)
                self.assertNotIn("\x1b", problem)
        for word in ("--help", "-h", "help"):
            done = self.call(word)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("injectctl stop PID", done.stdout)

    def test_a_process_that_does_not_listen(self):
        program = self.begin(control=None, ready=False)
        self.assertIn("INJECT_CONTROL=1", self.refused("status", program.pid))
        self.assertFalse(self.sockets.exists())
        self.assertEqual(os.listdir(f"/proc/{program.pid}/task"), [str(program.pid)])

    def test_before_cuda_is_initialised_nothing_listens(self):
        program = self.begin(command=["sh", "-c", "echo up; exec sleep 30"], ready=False)
        self.assertFalse(self.sockets.exists())
        self.end(program, signal.SIGTERM)

    def test_hostile_names_stay_on_their_line(self):
        program = self.begin(command=[str(simulated.programs / "script_cuda"), "sync", "print:up", "sleep:30000",
                                      "print:a\x1b[2J\nok\nstate: open\n"])
        done = self.call("list")
        self.assertEqual(len(self.listed()), 1)
        self.assertNotRegex(done.stdout.replace("\n", ""), r"[\x00-\x1f]")
        self.end(program)


class Clients(Case):
    def test_many_at_once(self):
        program = self.begin()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            starts = list(pool.map(lambda _: self.call("start", program.pid), range(6)))
            stops = list(pool.map(lambda _: self.call("stop", program.pid), range(6)))
        for answers, other in ((starts, "a window is already open"), (stops, "no window is open")):
            self.assertEqual(sorted(done.returncode for done in answers), [0, 1, 1, 1, 1, 1])
            for done in answers:
                if done.returncode:
                    self.assertIn(other, done.stderr)

    def test_stuck_ones_block_nobody(self):
        program = self.begin()
        stuck = [self.connect(program.pid) for _ in range(5)]
        begin = time.monotonic()
        self.ask("status", program.pid)
        # Each connection is waited for for two seconds.
        self.assertLess(time.monotonic() - begin, 8)
        # More connections than it serves at once: the next one waits until they are dropped.
        stuck += [self.connect(program.pid) for _ in range(5)]
        self.ask("status", program.pid)
        for connection in stuck[:5]:
            self.assertEqual(self.read_all(connection), f"libinject-control 1 {program.pid}\n")

    def test_garbage(self):
        program = self.begin()
        for sent, answer in ((b"\n", "error: '' is not one of"), (b"\0\xff\x1b[31m\n", r"error: '\x00\xff\x1b[31m' is not one of"),
                             (b"STATUS\n", "error: 'STATUS' is not"), (b"status \n", "error: 'status ' is not"),
                             (b"status\r\n", r"error: 'status\x0d' is not"), (b"GET / HTTP/1.1\r\n\r\n", "error: "),
                             (b"x" * 64 + b"\n", "error: 'xxx"), (b"x" * 65 + b"\n", "error: the request is too long"),
                             (b"x" * 66, "error: the request is too long"), (b"status\nstart\n", "ok\nstate: waiting\n")):
            with self.subTest(sent):
                connection = self.connect(program.pid)
                connection.sendall(sent)
                text = self.read_all(connection)
                self.assertTrue(text.startswith(f"libinject-control 1 {program.pid}\n{answer}"), text)
                self.assertTrue(text.endswith("\nend\n"), text)
        self.assertEqual(self.ask("status", program.pid)["windows_opened"], "0")

    def test_huge_input_and_early_ends(self):
        program = self.begin()
        for part in (b"", b"sta", b"x" * 10_000_000):
            with self.subTest(len(part)):
                connection = self.connect(program.pid)
                try:
                    connection.sendall(part)
                    connection.shutdown(socket.SHUT_WR)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.read_all(connection)
        connection = self.connect(program.pid)
        connection.sendall(b"status\n")
        connection.close()
        for byte in (b"s", b"t", b"a", b"t", b"u", b"s", b"\n"):
            if byte == b"s" and connection.fileno() < 0:
                connection = self.connect(program.pid)
            connection.sendall(byte)
            time.sleep(0.01)
        self.assertIn("state: waiting", self.read_all(connection))
        self.ask("status", program.pid)
        self.assertIsNone(program.poll())

    def serve(self, pid, greeting, reply):
        """Serves something other than libinject at `pid`'s socket."""
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(server.close)
        server.bind(str(self.socket_of(pid)))
        server.listen()

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.sendall(greeting)
                connection.settimeout(20)
                try:
                    while connection.recv(4096):
                        connection.sendall(reply)
                except OSError:
                    pass

        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        pool.submit(answer)

    def test_servers_that_speak_otherwise(self):
        for pid, (greeting, reply, problem) in enumerate((
                (b"libinject-control 2 1\n", b"", "another version of the protocol: libinject-control 2 1"),
                (b"libinject-control 1 7\n", b"", "another version"), (b"\x1b[2J\n", b"", "another version of the protocol: ?[2J"),
                (b"libinject-control 1 1000000003\n", b"what\nend\n", "not understood"),
                (b"libinject-control 1 1000000004\n", b"error: \x1b[2J\nend\n", "1000000004: ?[2J"),
                (b"libinject-control 1 1000000005\n", b"ok\n" + b"x" * 100_000, "it does not answer"),
                (b"x" * 100_000, b"", "it does not answer"), (b"", b"", "it does not answer")), start=1_000_000_000):
            with self.subTest(pid):
                self.serve(pid, greeting, reply)
                self.assertIn(problem, self.refused("status", pid))


class Files(Case):
    def test_only_its_user_can_reach_it(self):
        program = self.begin()
        self.assertEqual(stat.S_IMODE(self.sockets.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(self.socket_of(program.pid).stat().st_mode), 0o600)

    def test_removed_at_exit(self):
        for text in ("print:up until_text:go:yes", "print:up until_text:go:yes exit:3"):
            program = self.begin(text)
            (program.work / "go").write_text("yes")
            self.end(program, 0)
            self.assertEqual(list(self.sockets.iterdir()), [])

    def test_left_by_a_dead_process(self):
        first, second, third = self.begin(), self.begin(), self.begin()
        for program in (first, second):
            self.end(program, signal.SIGKILL)
        self.assertTrue(self.socket_of(first.pid).exists())
        self.assertIn("it has ended", self.refused("status", first.pid))
        self.assertFalse(self.socket_of(first.pid).exists())
        # (It removed the second's as well.) A new process does so, too, and so does a list.
        self.end(third, signal.SIGKILL)
        self.assertTrue(self.socket_of(third.pid).exists())
        fourth = self.begin()
        self.assertEqual([path.name for path in self.sockets.iterdir()], [f"{fourth.pid}.sock"])
        self.end(fourth, signal.SIGKILL)
        (self.sockets / "keep.txt").write_text("not a socket")
        (self.sockets / "12.sock").write_text("not a socket either")
        self.assertEqual(self.listed(), [])
        self.assertEqual(sorted(path.name for path in self.sockets.iterdir()), ["12.sock", "keep.txt"])

    def test_a_forked_child_does_not_answer_for_its_parent(self):
        program = self.begin(command=[sys.executable, "-c", FORKS])
        (program.work / "fork").touch()
        child = int(program.stdout.readline())
        self.assertEqual(self.ask("status", program.pid)["pid"], str(program.pid))
        self.assertIn("does not listen", self.refused("status", child))
        program.kill()
        program.wait()
        try:
            self.assertIn("it has ended", self.refused("status", program.pid))
        finally:
            os.kill(child, signal.SIGKILL)

    def test_a_program_that_closes_every_descriptor(self):
        program = self.begin(command=[sys.executable, "-c", CLOSES])
        connection = self.connect(program.pid)
        (program.work / "close").touch()
        # Wakes the listener, whose descriptor has become a file of the program's.
        try:
            connection.sendall(b"status\n")
        except BrokenPipeError:
            pass
        self.assertEqual((program.stdout.readline(), program.wait(30)), ("unharmed\n", 0))

    def test_a_forked_child_keeps_the_program_s_file_with_a_number_of_ours(self):
        program = self.begin(command=[sys.executable, "-c", REUSES], stdin=subprocess.PIPE)
        program.stdin.write("\n")
        program.stdin.flush()
        self.assertEqual((program.stdout.readline(), program.wait(30)), ("unharmed\n", 0))

    def test_an_unfit_folder_is_passed_over(self):
        self.sockets.mkdir()
        for mode in (0o755, 0o770, 0o701):
            self.sockets.chmod(mode)
            program = self.begin("print:up loop:6000 [ sleep:5 ]", ready=False)
            time.sleep(0.1)
            self.assertIn(f"{self.sockets} is open to other users; skipped", self.call("list").stderr)
            self.assertEqual(list(self.sockets.iterdir()), [])
            self.end(program, signal.SIGKILL)
        self.sockets.rmdir()
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        self.sockets.symlink_to(elsewhere)
        program = self.begin("print:up loop:6000 [ sleep:5 ]", ready=False)
        time.sleep(0.1)
        self.assertIn(f"{self.sockets} is not a folder; skipped", self.call("list").stderr)
        self.assertEqual(list(elsewhere.iterdir()), [])
        self.end(program, signal.SIGKILL)
        subprocess.run([str(injectctl), "list"], env=self.environment(), capture_output=True, check=True)

    def test_a_long_path(self):
        self.runtime = self.runtime / ("long" * 50)
        self.runtime.mkdir(mode=0o700)
        self.sockets = self.runtime / "libinject"
        program = self.begin()
        self.assertEqual(self.ask("status", program.pid)["state"], "waiting")


@unittest.skipIf(os.geteuid() != 0, "only root can be another user")
class OtherUsers(Case):
    def as_nobody(self, *words):
        return subprocess.run(words, env=self.environment(), user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                              text=True, timeout=30, check=False)

    def test_cannot_reach_it(self):
        self.runtime.chmod(0o755)
        program = self.begin()
        copy = self.folder / "injectctl"
        copy.write_bytes(injectctl.read_bytes())
        copy.chmod(0o755)
        done = self.as_nobody(str(copy), "start", str(program.pid))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "Permission denied|belongs to another user")

    def test_are_not_answered_where_they_do(self):
        self.runtime.chmod(0o755)
        program = self.begin()
        self.sockets.chmod(0o777)
        self.socket_of(program.pid).chmod(0o777)
        # The test's interpreter may be in a folder that others can't read.
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.settimeout(10)
                connection.connect(str(self.socket_of(program.pid)))
                try:
                    connection.sendall(b"start\n")
                    text = connection.recv(100)
                except OSError as error:
                    text = str(type(error).__name__).encode()
                os.write(told, b"got " + text)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(told)
        text = os.read(ready, 200)
        os.close(ready)
        self.assertIn(text, (b"got ", b"got BrokenPipeError", b"got ConnectionResetError"))
        self.sockets.chmod(0o700)
        self.assertEqual(self.ask("status", program.pid)["windows_opened"], "0")

    def test_are_not_believed(self):
        self.runtime.chmod(0o755)
        self.sockets.mkdir()
        self.sockets.chmod(0o777)
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.bind(str(self.socket_of(4321)))
                server.listen()
                os.write(told, b".")
                server.settimeout(10)
                connection, _ = server.accept()
                connection.sendall(b"libinject-control 1 4321\nok\nstate: open\nend\n")
                time.sleep(10)
            finally:
                os._exit(0)
        try:
            self.assertEqual(os.read(ready, 1), b".")
            self.sockets.chmod(0o700)
            self.assertIn("another user's", self.refused("status", 4321))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    simulated.main()
