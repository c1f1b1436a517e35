#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/recovery.md, "Where the file is used, and where not": studies/record_places.py [--build build] [--runs 20] [PART...]

Where could the records of a program live so that they outlive it? A file on a disk, allocated and mapped, as libinject has it; one
on a tmpfs; a memfd that cannot shrink, in the hands of a keeper (a process of its own that has the descriptor); or a memfd whose
contents are written to a file every 5 ms. Without libinject: the program (programs/record_places.cpp) stores numbers there.

cost     nanoseconds a store to each page, mean and longest: the first one, after MADV_POPULATE_WRITE, after a write-back
stall    the longest store in five seconds in which pages are written back and another process writes to the same disk all the time
kill     how often all that was stored is there after a kill of: the process, its process group, its control group, a PID namespace
         (as of a container) in which it is process 1, the same with the container's own /dev/shm
keeper   what the program sees of it
harm     who shortens the place, or copies it where a copy shares its blocks and fills the disk: is the program ended (SIGBUS)?
room     a /dev/shm of 64 MB, and a limit on memory that has room for the program's own alone
watch    what it costs to look whether blocks are shared, and to make them the program's own again

It mounts, and makes control groups and namespaces, so it needs root; what this machine lacks is left out, with the reason.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))
import filesystems

MEGABYTES = 102
BYTES = MEGABYTES << 20
NOBODY = 65534
DISKS = ("ext4", "xfs", "overlay on ext4", "overlay on xfs")
SHM = pathlib.Path("/dev/shm")
program = None


def run(*words, **how):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        raise filesystems.Skipped(done.stderr.strip() or f"status {done.returncode}")
    return json.loads(done.stdout)


def table(title, *rows):
    print(f"\n{title}\n")
    for i, row in enumerate(rows):
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        if i == 0:
            print("|" + "---|" * len(row))


@contextlib.contextmanager
def mounted(kind, size=1024):
    """A folder on a file system of its own, which can be filled up."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="inject-places-"))
    try:
        with contextlib.ExitStack() as stack:
            work.chmod(0o755)
            base = kind.rpartition(" ")[2]
            folder, image = work / "mount", work / "image"
            folder.mkdir()
            stack.callback(filesystems.unmount, folder)
            if base == "tmpfs":
                filesystems.command("mount", "-t", "tmpfs", "-o", f"size={size}M", "none", folder)
            else:
                filesystems.demand(base)
                with open(image, "wb") as file:
                    file.truncate(size << 20)
                filesystems.command(f"mkfs.{base}", "-q", image)
                filesystems.command("mount", "-o", "loop", image, folder)
            if kind.startswith("overlay"):
                for name in ("lower", "upper", "work"):
                    (folder / name).mkdir()
                merged = work / "merged"
                merged.mkdir()
                filesystems.command("mount", "-t", "overlay", "-o",
                                    f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work", "none", merged)
                stack.callback(filesystems.unmount, merged)
                folder = merged
            yield filesystems.Place(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def places(*more):
    """Yields (name, PLACE) one after the other; each file is removed after use."""
    def each():
        for kind in (*DISKS, "tmpfs"):
            try:
                with mounted(kind) as place:
                    yield kind, f"file:{place.folder}/records", place.folder
            except filesystems.Skipped as reason:
                print(f"{kind}: left out: {reason}", file=sys.stderr)
        for name in ("memfd", *more):
            yield name, name, None
    yield each()


def fresh(place):
    if ":" in place:
        pathlib.Path(place.partition(":")[2]).unlink(missing_ok=True)
    return place


def both(found, name):
    """Median of the means, and the overall maximum."""
    means, longest = zip(*(one[name] for one in found))
    return f"{statistics.median(means):,.0f}, {max(longest) / 1e6:,.2f} ms"


def cost(given):
    rows = [("place", "made (ms)", "first store to a page (ns)", "made ready, a page (ns)", "store after that (ns)",
             "store after write-back (ns)")]
    with places("anonymous") as all_of_them:
        for name, place, _ in all_of_them:
            found = [run("costs", fresh(place), BYTES) for _ in range(max(given.runs // 4, 3))]
            rows.append((name, f"{statistics.median(one['made_ms'] for one in found):.1f}", both(found, "first"),
                         f"{statistics.median(one['populate_ns'] for one in found):,.0f}", both(found, "populated"), both(found, "again")))
    table("Cost: mean of a run's pages, median of the runs; the longest of all", *rows)


def stall(given):
    rows = [("place", "median (ns)", "one in 1,000 (us)", "longest (ms), of each run")]
    with mounted("ext4") as elsewhere, places() as all_of_them:
        for name, place, folder in all_of_them:
            found = []
            for _ in range(max(given.runs // 4, 3)):
                beside = subprocess.Popen([program, "load", str((folder or elsewhere.folder) / "load"), "6"], stdout=subprocess.DEVNULL)
                time.sleep(0.5)
                found.append(run("stall", fresh(place), BYTES, 5))
                beside.wait()
            rows.append((name, statistics.median(one["median_ns"] for one in found),
                         f"{statistics.median(one['p999_ns'] for one in found) / 1e3:,.0f}",
                         ", ".join(f"{one['max_ms']:.1f}" for one in found)))
    table("The longest store under write-back and load", *rows)


class Held:
    """A program that stores until it is killed."""

    def __init__(self, place, *more, before=(), start=None):
        self.place, self.work = place, pathlib.Path(tempfile.mkdtemp(prefix="inject-places-"))
        self.progress, self.said = self.work / "progress", self.work / "said"
        self.progress.write_bytes(bytes(4096))
        self.work.chmod(0o755)
        self.progress.chmod(0o666)
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen([*before, program, "hold", fresh(place), str(BYTES), str(self.progress), *more], stdout=said,
                                            stderr=said, start_new_session=True, preexec_fn=start)  # noqa: PLW1509

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for keeper_of_ours in self.keepers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper_of_ours, signal.SIGKILL)
        fresh(self.place)
        shutil.rmtree(self.work)

    def lines(self):
        return [json.loads(line) for line in self.said.read_text(encoding="utf-8").splitlines() if line.startswith("{") and line.endswith("}")]

    def ready(self):
        for _ in range(1000):
            found = [line for line in self.lines() if "ready" in line]
            if found:
                return found[0]
            if self.process.poll() is not None:
                raise filesystems.Skipped(self.said.read_text(encoding="utf-8").strip())
            time.sleep(0.01)
        raise filesystems.Skipped("never ready")

    def stored(self):
        return struct.unpack("<Q", self.progress.read_bytes()[:8])[0]

    def wait_for(self, count):
        while self.stored() < count and self.process.poll() is None:
            time.sleep(0.002)

    @staticmethod
    def keepers():
        found = []
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and os.readlink(process / "exe") == program and \
                        (process / "cmdline").read_bytes().startswith(b"keeper\0"):
                    found.append(int(process.name))
        return found

    def kept(self):
        """The last number in the place after the program has gone; None: the place has gone."""
        path = self.place.partition(":")[2]
        if self.place == "memfd":
            path = next((f"/proc/{pid}/fd/10" for pid in self.keepers()), "")
        if not os.path.exists(path):
            return None
        with open(path, "rb") as file:
            content = file.read()
        step = "<Q56x" if self.place.startswith("pwrite:") else "<Q4088x"
        whole = len(content) // struct.calcsize(step) * struct.calcsize(step)
        return max((number for number, in struct.iter_unpack(step, content[:whole])), default=0)


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()


@contextlib.contextmanager
def control_group(parent):
    group = next((folder / f"inject-places-{os.getpid()}" for folder in parent if (folder / "cgroup.procs").exists()), None)
    if group is None:
        raise filesystems.Skipped("no such control group")
    group.mkdir()
    try:
        yield group
    finally:
        for _ in range(200):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.02)


UNIFIED = [pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup")]
LIMITED = [pathlib.Path("/sys/fs/cgroup/memory")]


def joins(group):
    return lambda: (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def kills(how, place, count):
    """The number of runs in which everything stored is there, and what was lost in the others."""
    survived, lost = 0, []
    for i in range(count):
        with contextlib.ExitStack() as stack:
            start, before = None, ()
            if how == "control group":
                group = stack.enter_context(control_group(UNIFIED))
                start = joins(group)
            elif how == "PID namespace":
                before = ("unshare", "--pid", "--fork", "--kill-child")
            elif how == "its own /dev/shm":
                before = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "sh", "-c",
                          f'mount -t tmpfs -o size={2 * MEGABYTES}M none /dev/shm && exec "$@"', "sh")
            held = stack.enter_context(Held(place, *(["keeper"] if place == "memfd" else []), before=before, start=start))
            held.ready()
            held.wait_for(2000 + 131 * i)
            if how == "control group":
                (group / "cgroup.kill").write_text("1", encoding="ascii")
            elif how == "process group":
                os.killpg(held.process.pid, signal.SIGKILL)
            elif how == "process":
                held.process.kill()
            else:  # process 1 of the namespace
                os.kill(int(children_of(held.process.pid)[0]), signal.SIGKILL)
            held.process.wait()
            time.sleep(0.05)
            kept, stored = held.kept(), held.stored()
            survived += kept is not None and kept >= stored
            lost.append(stored if kept is None else max(stored - kept, 0))
    gone = "all" if survived == 0 and kept is None else f"{statistics.median(lost):,.0f}, at most {max(lost):,}, stores"
    return f"{survived} of {count}" + (f" ({gone} lost)" if survived < count else "")


def or_why(function, *arguments):
    try:
        return function(*arguments)
    except filesystems.Skipped as reason:
        return f"left out: {reason}"


def kill(given):
    ways = ("process", "process group", "control group", "PID namespace", "its own /dev/shm")
    with mounted("ext4") as disk:
        table("Kills after which all that was stored is there", ("place", *ways), *(
            (name, *(or_why(kills, how, place, given.runs) for how in ways))
            for name, place in (("file on ext4", f"file:{disk.folder}/records"), ("file in /dev/shm", f"file:{SHM}/inject-records"),
                                ("memfd and keeper", "memfd"), ("memfd, written every 5 ms", f"pwrite:{disk.folder}/written"))))


def keeper(given):
    rows = [("program", "start (ms)", "children", "waitpid(-1, …, WNOHANG)", "keeper's own memory (KB)")]
    for name, more, before in (("as it is", [], ()), ("PR_SET_CHILD_SUBREAPER", ["subreaper"], ()),
                               ("process 1 of a PID namespace", [], ("unshare", "--pid", "--fork", "--kill-child"))):
        found = []
        for _ in range(max(given.runs // 4, 3)):
            with Held("memfd", "keeper", *more, before=before) as held:
                said = held.ready()
                process = int(children_of(held.process.pid)[0]) if before else held.process.pid
                memory = pathlib.Path(f"/proc/{held.keepers()[0]}/smaps_rollup").read_text(encoding="ascii")
                private = sum(int(line.split()[1]) for line in memory.splitlines() if line.startswith("Private_"))
                found.append((said["keeper_ms"], len(children_of(process)), said["wait"], private))
        starts = [one[0] for one in found]
        rows.append((name, f"{statistics.median(starts):.1f}, at most {max(starts):.1f}",
                     *(", ".join(sorted({str(one[i]) for one in found})) for i in (1, 2)), max(one[3] for one in found)))
    table("What the program sees of a keeper", *rows)


def outcome(held, seconds=2):
    """What happens to a program that continues to store to all pages."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        held.process.wait(seconds)
    status = held.process.poll()
    return "goes on" if status is None else signal.Signals(-status).name if status < 0 else f"status {status}"


def shortened(place, user=None):
    with Held(place, start=user) as held:
        held.ready()
        held.wait_for(2000)
        path = place[5:]
        if place == "memfd":
            path = next(str(file) for file in pathlib.Path(f"/proc/{held.process.pid}/fd").iterdir() if "memfd" in os.readlink(file))
        done = subprocess.run(["sh", "-c", ': > "$1"', "sh", path], capture_output=True, text=True, check=False, preexec_fn=user)
        return outcome(held) + (f" ({done.stderr.strip().rpartition(': ')[2]})" if done.returncode else "")


def copied(place, watched, first):
    """`first`: the disk is full before the copy is made, or after it. The program stores to all pages within six seconds."""
    with Held(f"file:{place.folder}/records", "slow", *watched) as held:
        held.ready()
        held.wait_for(2 * BYTES // 4096)
        copy = place.folder / "copy"
        copy.touch()
        try:
            if first:
                place.fill()
            filesystems.command("cp", "--reflink=always", place.folder / "records", copy)
            if not first:
                time.sleep(2)  # it checks once a second
                place.fill()
            return outcome(held, 9)
        finally:
            copy.unlink()
            place.make_room()


def immutable(folder):
    with Held(f"file:{folder}/records") as held:
        held.ready()
        filesystems.command("chattr", "+i", folder / "records")
        try:
            subprocess.run(["sync", "-f", str(folder)], check=True)
            return outcome(held)
        finally:
            filesystems.command("chattr", "-i", folder / "records")


def as_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def times(count, function, *arguments):
    found = [or_why(function, *arguments) for _ in range(count)]
    return ", ".join(f"{one} {found.count(one)} of {count}" for one in dict.fromkeys(found))


def harm(given):
    count = max(given.runs // 4, 3)
    rows = [("place", "shortened by root", "by the owner", "copied (reflink), then the disk is full", "the same, watched",
             "full, then copied, watched", "chattr +i, then written back")]
    for kind in (*DISKS, "tmpfs"):
        try:
            with mounted(kind, 400) as place:
                place.folder.chmod(0o777)
                where = f"file:{place.folder}/records"
                row = [kind, times(count, shortened, where), times(count, shortened, where, as_nobody)]
                row += [times(count, copied, place, *how) for how in (((), False), (("watch",), False), (("watch",), True))] \
                    if kind.endswith("xfs") else ["no such copies"] * 3
                rows.append((*row, times(count, immutable, place.folder)))
        except filesystems.Skipped as reason:
            rows.append((kind, f"left out: {reason}", "", "", "", "", ""))
    rows.append(("memfd", times(count, shortened, "memfd"), times(count, shortened, "memfd", as_nobody), "", "", "", ""))
    table("What ends the program", *rows)
    with mounted("ext4") as place:
        print(f"\nLeases: {or_why(run, 'lease', place.folder / 'records')}")


def limited(place, limit):
    with control_group(LIMITED) as group:
        (group / "memory.limit_in_bytes").write_text(str(limit << 20), encoding="ascii")
        with Held(place, "eat=100", start=joins(group)) as held:
            with contextlib.suppress(filesystems.Skipped):
                held.ready()
            return outcome(held, 1)


def room(given):
    own = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64M none /dev/shm && exec "$@"', "sh", program)
    small = [("place", "made where /dev/shm has 64 MB", f"program of 100 MB, records of {MEGABYTES} MB, a limit of 160 MB")]
    with mounted("ext4") as disk:
        for name, place in (("file on ext4", f"file:{disk.folder}/records"), ("file in /dev/shm", f"file:{SHM}/inject-records"),
                            ("memfd", "memfd")):
            done = subprocess.run([*own, "costs", fresh(place), str(BYTES)], capture_output=True, text=True, check=False)
            small.append((name, "yes" if done.returncode == 0 else done.stderr.strip(), times(max(given.runs // 4, 3), limited, place, 160)))
            fresh(place)
    table("Room", *small)


def watch(given):
    rows = [("place", "extents", "a look (us)", "pages made our own again (ms)", "longest store meanwhile (ms)")]
    for kind in DISKS:
        try:
            with mounted(kind) as place:
                looks, unshared, longest = [], [], []
                for _ in range(max(given.runs // 4, 3)):
                    with Held(f"file:{place.folder}/records", "watch") as held:
                        held.ready()
                        held.wait_for(2 * BYTES // 4096)
                        time.sleep(2)
                        if kind.endswith("xfs"):
                            filesystems.command("cp", "--reflink=always", place.folder / "records", place.folder / "copy")
                            with open(held.progress, "r+b") as file:
                                file.seek(8)
                                file.write(bytes(8))
                            time.sleep(2.5)
                            longest.append(struct.unpack("<Q", held.progress.read_bytes()[8:16])[0] / 1e6)
                            fresh(f"file:{place.folder}/copy")
                        said = [line for line in held.lines() if "look_us" in line]
                        looks += [(line["extents"], line["look_us"]) for line in said if line["shared"] != 1]
                        unshared += [line["unshare_ms"] for line in said if line["shared"] == 1][:1]
                if not looks:
                    raise filesystems.Skipped("no look")
                rows.append((kind, max(extents for extents, _ in looks),
                             f"{statistics.median(us for _, us in looks):.1f}, at most {max(us for _, us in looks):.0f}",
                             f"{statistics.median(unshared):.0f}, at most {max(unshared):.0f}" if unshared else "",
                             f"{statistics.median(longest):.1f}, at most {max(longest):.1f}" if longest else ""))
        except filesystems.Skipped as reason:
            rows.append((kind, f"left out: {reason}", "", "", ""))
    table("A look whether blocks are shared", *rows)


PARTS = {"cost": cost, "stall": stall, "kill": kill, "keeper": keeper, "harm": harm, "room": room, "watch": watch}


def main():
    global program
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder (build)")
    parser.add_argument("--runs", type=int, default=20, help="kills of each kind, and a quarter of it runs of the other parts (20)")
    parser.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS), help=", ".join(PARTS))
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("it mounts file systems, and needs root for that")
    program = str((given.build / "studies" / "inject-record-places").resolve())
    print(f"{datetime.date.today()}, Linux {platform.release()}, {os.cpu_count()} processors, records of {MEGABYTES} MB", flush=True)
    for part in given.parts:
        PARTS[part](given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
