#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs programs of the tests with their output folder on different file systems: tmpfs, ext4, XFS, btrfs, NFS, and FUSE with a
server that is slow, fails or hangs. Prints a row of a Markdown table for each file system and case, and exits with 1 if one failed.

Cases: `ten windows` ends by itself, `kill` is killed in an open window and recovered, `full disk` has no room left after its third
window, `stall` compares its steps beside a stalled server with those beside a healthy one, `ranks` starts many processes at once.

It mounts, so it needs root; a file system that this machine lacks is skipped, with the reason. FUSE needs libfuse2 and fusepy
(apt-get install libfuse2 fuse3 xfsprogs btrfs-progs; pip install fusepy). All mounts are gone at the end, after Ctrl+C as well.

usage: scripts/filesystems.py [--build build] [--kills 20] [--stall 8] [--ranks 64] [--only FILE-SYSTEM...] [--cases CASE...]
"""

import argparse
import contextlib
import datetime
import errno
import functools
import itertools
import os
import pathlib
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEADLINE = 5 + 1  # seconds from the program's last line to its end: the library's own limit plus one
WINDOW_MS = 100
TEN_WINDOWS = (f"kernel:beta:1 progress:progress loop:10 [ start kernel:alpha:20 copy:d2d:4096 sleep:{WINDOW_MS} sync stop "
               "print:window sleep:20 ] print:done return:3")
# After the third window, waits until the disk is full.
FILLED = ("progress:progress loop:3 [ start kernel:alpha:20 sync stop print:window sleep:20 ] until_text:full:full "
          "loop:7 [ start kernel:alpha:20 sync stop sleep:20 ] print:done return:3")
# The first window has its record file before it launches, and the others are open before they do, however long that takes.
RANK = ("until_text:../go:go start until_text:out/run.json:time_zero progress:progress stop "
        "loop:3 [ start until_open loop:5 [ kernel:alpha:20 copy:d2d:4096 sleep:2 ] sync stop sleep:10 ]")
STEP_MS = 20
SMALL = {"RING": "256K", "BUFFERS": "1M"}  # a record file of less than 5 MB


class Skipped(Exception):
    """This machine cannot run the case."""


def serve(backing, mount, plan):
    """The FUSE server: forwards each operation to the folder `backing`, as the file `plan` says: ok, slow, fail or hang."""
    import fuse  # pylint: disable=import-outside-toplevel

    def planned():
        return pathlib.Path(plan).read_text(encoding="ascii")

    class Passthrough(fuse.Operations):
        use_ns = True

        def __call__(self, operation, path, *rest):
            if operation not in ("init", "destroy"):
                while planned() == "hang":
                    time.sleep(0.02)
                if planned() == "slow":
                    time.sleep(0.015)
                if planned() == "fail":
                    raise fuse.FuseOSError(errno.EIO)
            if operation in ("rename", "link"):  # these have a second path
                rest = (backing + rest[0], *rest[1:])
            return getattr(self, operation)(backing + path, *rest)

        def getattr(self, path, _file=None):
            found = os.lstat(path)
            fields = {name: getattr(found, name) for name in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")}
            return {**fields, **{name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}}

        def statfs(self, path):
            found = os.statvfs(path)
            return {name: getattr(found, name) for name in dir(found) if name.startswith("f_") and name not in ("f_flag", "f_fsid")}

        create = staticmethod(lambda path, mode: os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode))
        open = staticmethod(lambda path, flags: os.open(path, flags & ~os.O_NOFOLLOW))
        truncate = staticmethod(lambda path, length, _file=None: os.truncate(path, length))
        utimens = staticmethod(lambda path, times=None: os.utime(path, ns=times))
        readdir = staticmethod(lambda path, fh: [".", "..", *os.listdir(path)])
        read = staticmethod(lambda path, size, offset, fh: os.pread(fh, size, offset))
        write = staticmethod(lambda path, data, offset, fh: os.pwrite(fh, data, offset))
        fsync = staticmethod(lambda path, datasync, fh: os.fsync(fh))
        release = staticmethod(lambda path, fh: os.close(fh))
        link = staticmethod(lambda new, old: os.link(old, new))
        symlink = staticmethod(lambda new, target: os.symlink(target, new))
        chmod, chown, mkdir, readlink = map(staticmethod, (os.chmod, os.chown, os.mkdir, os.readlink))
        rename, rmdir, unlink = map(staticmethod, (os.rename, os.rmdir, os.unlink))

    fuse.FUSE(Passthrough(), mount, foreground=True, nothreads=False, fsname="filesystems.py")


class Place:
    """A mounted file system, and how its server behaves."""

    def __init__(self, folder, plan=None):
        self.folder, self._plan = folder, plan

    def behave(self, how):
        if self._plan is not None:
            new = self._plan.with_name("new-plan")
            new.write_text(how, encoding="ascii")
            new.rename(self._plan)

    def fill(self):
        """Takes all of the free space."""
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            for size in (1 << 20, 1 << 16, 4096, 4096, 4096):  # a copy-on-write file system finds some space again after a sync
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))
                with contextlib.suppress(OSError):
                    os.fsync(filler.fileno())

    def make_room(self):
        (self.folder / "filler").unlink()
        subprocess.run(["sync", "-f", str(self.folder)], check=True)


def command(*words):
    """Runs a command that makes or mounts a file system; if it is missing, the cases are skipped."""
    if shutil.which(words[0]) is None:
        raise Skipped(f"there is no {words[0]}")
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"{words[0]}: {(done.stderr.strip() or 'failed').splitlines()[0]}")


def demand(name):
    if name not in pathlib.Path("/proc/filesystems").read_text(encoding="ascii").split():
        raise Skipped(f"the kernel has no {name}")


@contextlib.contextmanager
def disk(kind, work, small):
    """`small`: one that is soon full."""
    demand(kind)
    folder, image = work / "mount", work / "image"
    folder.mkdir()
    size = {"tmpfs": 16, "ext4": 32, "xfs": 300, "btrfs": 128}[kind] if small else 2048  # MB; the minimum of each file system
    try:
        if kind == "tmpfs":
            command("mount", "-t", "tmpfs", "-o", f"size={size}M", "none", folder)
        else:
            with open(image, "wb") as file:
                file.truncate(size << 20)
            command(f"mkfs.{kind}", "-q", image)
            command("mount", "-o", "loop", image, folder)
        yield Place(folder)
    finally:
        unmount(folder)


@contextlib.contextmanager
def nfs(work, _small):
    demand("nfs4")
    folder, export = work / "mount", work / "export"
    folder.mkdir()
    export.mkdir()
    command("exportfs", "-i", "-o", "rw,no_root_squash,insecure,fsid=77", f"127.0.0.1:{export}")  # needs nfs-kernel-server
    try:
        command("mount", "-t", "nfs4", f"127.0.0.1:{export}", folder)
        yield Place(folder)
    finally:
        unmount(folder)
        subprocess.run(["exportfs", "-u", f"127.0.0.1:{export}"], check=False)


@contextlib.contextmanager
def fuse_folder(work, _small):
    folder, backing, plan = work / "mount", work / "backing", work / "plan"
    folder.mkdir()
    backing.mkdir()
    plan.write_text("ok", encoding="ascii")
    with open(work / "server", "wb") as said:
        server = subprocess.Popen([sys.executable, __file__, "--serve", str(backing), str(folder), str(plan)], stdout=said, stderr=said,
                                  start_new_session=True)  # Ctrl+C is meant for this script only
    try:
        while not os.path.ismount(folder):
            if server.poll() is not None:
                said = (work / "server").read_text(encoding="utf-8").splitlines()
                raise Skipped(f"no FUSE: {said[-1] if said else server.returncode}")
            time.sleep(0.02)
        yield Place(folder, plan)
    finally:
        server.kill()  # processes that wait for it get an error
        server.wait()
        unmount(folder)


def unmount(folder):
    mounted = f" {folder} " in pathlib.Path("/proc/mounts").read_text(encoding="utf-8")
    if mounted and subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode != 0:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def load_tests(build):
    """Imports the tests that contain the checks; they read what to test from the command line."""
    paths = [build / name for name in ("libinject.so", "tests/integration/script", "sim", "injectctl/injectctl")]
    sys.path.insert(0, str(ROOT / "tests" / "integration"))
    ours, sys.argv = sys.argv, [sys.argv[0], *map(str, paths)]
    import simulated  # pylint: disable=import-error,import-outside-toplevel
    import test_recovery  # pylint: disable=import-error,import-outside-toplevel,unused-import  # noqa: F401
    sys.argv = ours
    simulated.library, simulated.programs, simulated.simulation = paths[:3]


class Check:
    """Programs of one case, with their output folder in `place` and everything else on this machine's disk."""

    def __init__(self, place, how, work):
        self.place, self.how, self.work = place, how, work
        self.usual = "slow" if how == "slow" else "ok"
        self.recovery = sys.modules["test_recovery"]
        self.case = self.recovery.Case()
        self.case.folder, self.case.runs = work, 0
        (work / "tmp").mkdir(parents=True)

    def end(self):
        self.place.behave("ok")
        self.case.doCleanups()

    def start(self, text, bare=False, out=None, **options):
        self.place.behave(self.usual)
        out = out or self.place.folder / f"out{self.case.runs + 1}"
        env = {"TMPDIR": str(self.work / "tmp"), **({"LD_PRELOAD": ""} if bare else {"CUDASIM_REPORT": "../report" + out.name}),
               **options.pop("env", {})}
        text = text.replace("out/run.json", f"{out}/run.json")
        program = self.recovery.Killed(self.case, text, env=env, stdout=subprocess.PIPE, OUT=str(out), **options)
        program.report = self.work / ("report" + out.name)
        program.device_work = lambda: self.recovery.simulated.Result.device_work(program)
        program.lines = []  # [(time, text)]

        def listen():
            program.lines.extend((time.monotonic(), line.decode().strip()) for line in program.process.stdout)

        program.listener = threading.Thread(target=listen, daemon=True)
        program.listener.start()
        return program

    @staticmethod
    def printed(program, count):
        program.wait_for(lambda: len(program.lines) >= count, f"{count} lines")

    def finish(self, program):
        """Seconds from the last line to the exit, not counting the time for which the process stays a zombie (program.lingers): a thread
        that waits for a FUSE server can't be killed, and wait() on the process returns only once the server answers."""
        state = pathlib.Path(f"/proc/{program.process.pid}/stat")
        limit = time.monotonic() + 120
        while state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < limit, f"does not end: {program.stderr()}"
            time.sleep(0.005)
        ended = time.monotonic()
        program.lingers = False
        while self.how == "hang" and not program.lingers and os.waitid(os.P_PID, program.process.pid,
                                                                       os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            program.lingers = time.monotonic() > ended + 0.5
        self.place.behave(self.usual)
        program.process.wait(60)
        program.listener.join(60)
        return max(0, ended - program.lines[-1][0]) if program.lines else 0

    def unharmed(self, program, text):
        """Checks that status and output are those of a run without libinject."""
        bare = self.start(text, bare=True)
        self.finish(bare)
        found, expected = ((done.process.returncode, [line for _, line in done.lines]) for done in (program, bare))
        assert found == expected, f"{found} where a run without libinject has {expected}"

    @staticmethod
    def warnings(program):
        return [line for line in program.stderr().splitlines() if line.startswith("libinject[") and line.split()[1] != "info:"]

    @staticmethod
    def marked(out):
        """What run.json reports about files that are not final, or a run that is not over; empty if there is nothing."""
        if "run.json" not in out.files():
            return "no run.json"
        run = out.run
        said = [] if run["state"] == "closed" else [f"state {run['state']}"]
        return ", ".join(said + [f"{len(run[name])} {name}" for name in ("stale_files", "write_errors") if run.get(name)])

    def complete(self, program, work, windows):
        """Checks that the tables have this much work and this many windows, as left by the process or recovered. Returns which of the two,
        and the number of GPU records counted as missing."""
        out = program.out
        assert out.path.exists(), f"no folder: {program.stderr()}"
        marked, result = self.marked(out), "complete"
        if marked or {"records", "records.at"} & set(out.files()):
            result = f"recovered ({marked or 'nothing in run.json says so'})"
            assert self.warnings(program), f"{result}, and no line on stderr"
            self.place.behave("ok")
            self.case.recovered(program)
        else:
            self.case.check_folder(out, program)
        lost = out.lost()
        # While a server blocks our thread, no CUPTI buffers are flushed.
        missing = lost.pop("missing_activity_records", 0) if self.how in ("slow", "hang") and result != "complete" else 0
        if missing:
            lost.pop("window_times", None)
        assert not lost, lost
        found = sum(out.kernels().values()) + sum(out.operations().values()) + missing
        assert (found, len(out.windows())) == (work, windows), program.stderr()
        return result, missing


# Cases. Each returns its measurements.

def ten_windows(check, _given):
    program = check.start(TEN_WINDOWS, WINDOW="api")
    if check.how in ("fail", "hang"):
        check.printed(program, 3)
        check.place.behave(check.how)
    seconds = check.finish(program)
    check.unharmed(program, TEN_WINDOWS)
    assert seconds < DEADLINE, f"{seconds:.1f} s to exit: {program.stderr()}"
    result, missing = check.complete(program, 210, 10)
    lengths = sorted(int(row["Duration (ns)"]) / 1e6 for row in program.out.windows())
    assert WINDOW_MS <= lengths[0] and lengths[5] < WINDOW_MS * 1.2, lengths
    zombie = ", then a zombie until the server answers" if program.lingers else ""
    result += f", {missing} GPU records of 210 counted as missing" if missing else ""
    return f"{result}; exit {seconds:.2f} s{zombie}; windows {lengths[0]:.0f} … {lengths[-1]:.0f} ms"


def kill(check, given):
    count = given.kills if check.how is None else max(given.kills // 10, 5)
    returned = counted = 0
    for i in range(count):
        text, window = ((check.recovery.STEADY, "always"), (check.recovery.WINDOWS, "api"))[i % 2 if check.how in (None, "fail") else 0]
        program = check.start(text, WINDOW=window)
        try:
            program.wait_for_submissions()
            time.sleep(random.uniform(0, 0.5))
            if check.how in ("fail", "hang"):
                check.place.behave(check.how)
                time.sleep(random.uniform(0, 0.5))
            program.process.send_signal(signal.SIGKILL)
            check.finish(program)
            assert program.process.returncode == -signal.SIGKILL, program.stderr()
            out = check.case.recovered(program)
        except AssertionError as problem:
            raise AssertionError(f"kill {i + 1}: {problem}") from problem
        returned += check.recovery.numbers(program.work / "progress", 2)[1]
        counted += out.run["lost"]["host_records"] + out.run["recovered"]["calls_not_kept"]
        shutil.rmtree(program.work)
        shutil.rmtree(out.path)
    return f"{count} kills: {returned} calls returned, {counted} of them counted as lost, the others in the tables"


def full_disk(check, _given):
    program = check.start(FILLED, WINDOW="api", **SMALL)
    check.printed(program, 3)
    program.wait_for(lambda: "run.json" in os.listdir(check.place.folder / "out1") and
                     [window["state"] for window in program.out.run["windows"]] == ["closed"] * 3, "three windows")
    check.place.fill()
    (program.work / "full").write_text("full", encoding="ascii")
    seconds = check.finish(program)
    found = (program.process.returncode, [line for _, line in program.lines])
    assert found == (3, ["window"] * 3 + ["done"]), f"{found}: {program.stderr()}"
    assert seconds < DEADLINE, f"{seconds:.1f} s to exit"
    check.place.make_room()
    said = f"{check.complete(program, 200, 10)[0]}; exit {seconds:.2f} s"
    assert "nothing in run.json" not in said, said
    return said


def stall(check, given):
    """The windows are timed: our own thread opens and closes them while the server stalls."""
    steps = int((given.stall + 6) * 1000 / STEP_MS)
    text = f"progress:progress loop:{steps} [ kernel:alpha:10 sync sleep:{STEP_MS} print:step ] print:done return:3"
    figures = []
    for stalled in (False, True):
        program = check.start(text, WINDOW="time:200ms+300ms/1s")
        check.printed(program, 2000 // STEP_MS)
        if stalled:
            check.place.behave("hang")
            time.sleep(given.stall)
            check.place.behave("ok")
        seconds = check.finish(program)
        assert seconds < DEADLINE, f"{seconds:.1f} s to exit"
        assert program.process.returncode == 3 and len(program.lines) == steps + 1, program.stderr()
        out = program.out
        assert check.complete(program, sum(out.window_kernels()), len(out.windows())) == ("complete", 0), program.stderr()
        lengths = [(after - before) * 1000 for (before, _), (after, _) in itertools.pairwise(program.lines[:-1])]
        figures.append((statistics.median(lengths), max(lengths), len(out.windows())))
    (median, longest, windows), (stalled_median, stalled_longest, stalled_windows) = figures
    said = (f"{given.stall:g} s: steps {stalled_median:.1f} ms, at most {stalled_longest:.1f}, in {stalled_windows} windows; without "
            f"the stall {median:.1f}, {longest:.1f}, {windows}")
    assert stalled_median < median * 1.1 and stalled_longest < longest + 50, said
    assert abs(stalled_windows - windows) <= 1, said
    return said


def ranks(check, given):
    def started(rank):
        return check.start(RANK, out=check.place.folder / f"rank{rank}", env={"RANK": str(rank)}, WINDOW="api", **SMALL)

    def counts(out):
        launched = [row["Submissions"] for row in out.windows()]
        # If files take seconds, a rank's GPU records may be missing; complete() counts them.
        return launched if check.how == "slow" else (launched, out.kernels(), out.operations(), out.calls(), out.window_kernels())

    go = check.work / "go"
    alone = started("-alone")
    go.write_text("go", encoding="ascii")
    check.finish(alone)
    check.complete(alone, 315, 4)
    go.unlink()
    programs = [started(rank) for rank in range(given.ranks)]
    go.write_text("go", encoding="ascii")
    begin = time.monotonic()
    for program in programs:
        check.finish(program)
        assert program.process.returncode == 0, program.stderr()
    seconds = time.monotonic() - begin
    results = [check.complete(program, 315, 4) for program in programs]
    for program in programs:
        assert counts(program.out) == counts(alone.out), f"{program.out.path}: {counts(program.out)} for {counts(alone.out)}"
    complete, missing = sum(how == "complete" for how, _ in results), sum(missing for _, missing in results)
    return f"{len(programs)} ranks in {seconds:.1f} s: {complete} complete" + \
        (f", {len(results) - complete} recovered, {missing} GPU records of {315 * len(results)} counted as missing"
         if complete < len(results) else "")


CASES = {"ten windows": ten_windows, "kill": kill, "full disk": full_disk, "stall": stall, "ranks": ranks}
OF_ANY = ["ten windows", "kill"]
OF_A_DISK = [*OF_ANY, "full disk", "ranks"]
FILE_SYSTEMS = {**{kind: (functools.partial(disk, kind), None, OF_A_DISK) for kind in ("tmpfs", "ext4", "xfs", "btrfs")},
                "nfs": (nfs, None, [*OF_ANY, "ranks"]), "fuse-slow": (fuse_folder, "slow", [*OF_ANY, "ranks"]),
                "fuse-fail": (fuse_folder, "fail", OF_ANY), "fuse-hang": (fuse_folder, "hang", [*OF_ANY, "stall"])}


def one(name, case, given):
    """The result of a case, and its measurements."""
    make, how, _ = FILE_SYSTEMS[name]
    work = pathlib.Path(tempfile.mkdtemp(prefix="inject-filesystems-"))
    try:
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(make(work, case == "full disk"))
            check = Check(place, how, work / "runs")
            stack.callback(check.end)
            return "passed", CASES[case](check, given)
    except Skipped as reason:
        return "skipped", str(reason)
    except Exception as problem:  # noqa: BLE001  # pylint: disable=broad-except
        traceback.print_exc()
        return "FAILED", " ".join(str(problem).split())[:500]
    finally:
        shutil.rmtree(work, ignore_errors=True)


def stop(_number, _frame):
    """Runs once, so that its mounts are unmounted without interruption."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder (build)")
    parser.add_argument("--kills", type=int, default=20, help="kills on each file system, a tenth of them on FUSE, but at least 5 (20)")
    parser.add_argument("--stall", type=float, default=8, help="seconds for which the FUSE server stalls (8)")
    parser.add_argument("--ranks", type=int, default=64, help="processes at once (64)")
    parser.add_argument("--only", nargs="+", choices=FILE_SYSTEMS, default=list(FILE_SYSTEMS), metavar="FILE-SYSTEM",
                        help=", ".join(FILE_SYSTEMS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("it mounts file systems, and needs root for that")
    load_tests(given.build.resolve())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print(f"{datetime.date.today()}, Linux {platform.release()}, simulated CUDA\n\n| file system | case | result | figures |\n"
          "|---|---|---|---|", flush=True)
    failed = False
    for name in given.only:
        for case in [case for case in FILE_SYSTEMS[name][2] if case in given.cases]:
            result, figures = one(name, case, given)
            failed |= result == "FAILED"
            print(f"| {name} | {case} | {result} | {figures} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
