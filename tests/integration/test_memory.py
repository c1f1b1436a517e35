#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Allocations, which hooks count at all times, the devices' memory at the windows' edges, and both over time.

usage: test_memory.py LIBRARY PROGRAMS SIMULATION
"""

import os
import unittest

import simulated

BASE = 500.0  # MB in use on each simulated device, in addition to the program's
RESERVED = 600.0  # in addition, in the result of NVML's older function


def lines(done):
    return [line for line in done.stderr.splitlines() if "memory:" in line]


class MemoryTest(simulated.SimulatedTest):
    def memory(self, done):
        """{(device, API): row}"""
        rows = {(row["Device"], row["API"]): row for row in done.out.rows("memory_sum.csv")}
        self.assertEqual(len(rows), len(done.out.rows("memory_sum.csv")))
        for device in {device for device, _ in rows}:
            each = [row for (of, api), row in rows.items() if of == device and api != "[all]"]
            total = rows[device, "[all]"]
            for column in ("Allocations", "Frees", "Failed"):
                self.assertEqual(self.sum(each, column), int(total[column]), column)
            for column in ("Allocated (MB)", "Live (MB)", "Failed Size (MB)"):
                self.assertAlmostEqual(self.sum(each, column, float), float(total[column]), delta=0.001 * len(each))
            peaks = [float(row["Peak (MB)"]) for row in each]
            self.assertLessEqual(float(total["Peak (MB)"]), sum(peaks) + 0.001 * len(each))
            self.assertGreaterEqual(float(total["Peak (MB)"]), max(peaks))
        return rows

    def counts(self, row):
        """(allocations, frees, MB allocated, live, peak)"""
        return (int(row["Allocations"]), int(row["Frees"]), *(float(row[f"{name} (MB)"]) for name in ("Allocated", "Live", "Peak")))

    def edges(self, done):
        """[(MB at the start, at the end)] of device 0; None if missing."""
        rows = [row for row in done.out.rows("window_sum.csv") if row["Device"] == "0"]
        return [tuple(float(row[f"Memory at {edge} (MB)"]) if row[f"Memory at {edge} (MB)"] else None
                      for edge in ("Start", "End")) for row in rows]

    def check_edges(self, done, wanted):
        """A reading may be missing: on a busy machine it may come too late for its edge."""
        found = self.edges(done)
        self.assertEqual(len(found), len(wanted))
        for sizes, (start, end) in zip(found, wanted):
            self.assertIn(sizes[0], (start, None), found)
            self.assertIn(sizes[1], (end, None), found)


class Allocations(MemoryTest):
    def test_before_in_and_after_a_window(self):
        text = ("malloc:a:1000000 start malloc:b:2000000 kernel:k:1 free:a stop malloc:c:4000000 free:b malloc:d:500000 "
                "sync")
        done = self.script(text, WINDOW="api")
        rows = self.memory(done)
        self.assertEqual(set(rows), {("0", "[all]"), ("0", "cudaMalloc")})
        self.assertEqual(self.counts(rows["0", "cudaMalloc"]), (4, 2, 7.5, 4.5, 6.0))
        self.assertEqual(rows["0", "cudaMalloc"]["Largest (MB)"], "4.000")
        self.assertEqual(rows["0", "cudaMalloc"]["Kind"], "device")
        # The window's calls are unchanged.
        self.assertEqual(done.out.calls(), {"__cudaLaunchKernel": 1, "cudaFree": 1, "cudaMalloc": 1})
        self.assertEqual(done.out.run["unknown_frees"], 0)
        self.check_unharmed(done, text)

    def test_each_function(self):
        text = ("malloc:a:1000:async malloc:b:2000:async_ptsz malloc:c:3000:managed malloc:d:40000:pitch malloc:e:50000:3d "
                "malloc:f:6000:pool malloc:g:7000:host malloc:h:8000:host_alloc start kernel:k:1 stop "
                "free:a:async free:b free:c free:d free:e free:f free:g:host free:h:host")
        done = self.script(text, WINDOW="api")
        # The pitches that the program got.
        pitches = [int(line.split()[1]) for line in done.stdout.splitlines()]
        self.assertEqual(len(pitches), 2)
        sizes = {"cudaMallocAsync": 1000, "cudaMallocAsync_ptsz": 2000, "cudaMallocManaged": 3000,
                 "cudaMallocPitch": 10 * pitches[0], "cudaMalloc3D": 10 * pitches[1], "cudaMallocFromPoolAsync": 6000}
        rows = self.memory(done)
        found = {api: row for (device, api), row in rows.items() if device == "0" and api != "[all]"}
        self.assertEqual(set(found), set(sizes))
        for api, bytes_ in sizes.items():
            self.assertEqual(self.counts(found[api]), (1, 1, round(bytes_ / 1e6, 3), 0.0, round(bytes_ / 1e6, 3)), api)
            self.assertEqual(found[api]["Kind"], "managed" if api == "cudaMallocManaged" else "device")
        self.assertEqual(self.counts(rows["host", "cudaMallocHost"]), (1, 1, 0.007, 0.0, 0.007))
        self.assertEqual(self.counts(rows["host", "cudaHostAlloc"]), (1, 1, 0.008, 0.0, 0.008))
        self.assertEqual({row["Kind"] for (device, api), row in rows.items() if device == "host" and api != "[all]"},
                         {"pinned host"})
        self.assertEqual(done.out.run["unknown_frees"], 0)
        self.check_unharmed(done, text)

    def test_two_devices(self):
        text = ("malloc:a:1000000 device:1 malloc:b:2000000 malloc:c:3000000 kernel:k:1 device:0 free:c start kernel:k:1 stop "
                "malloc:d:500000")
        rows = self.memory(self.script(text, WINDOW="api"))
        self.assertEqual(self.counts(rows["0", "[all]"]), (2, 0, 1.5, 1.5, 1.5))
        self.assertEqual(self.counts(rows["1", "[all]"]), (2, 1, 5.0, 2.0, 5.0))

    def test_threads(self):
        text = "start kernel:k:1 stop threads:8 [ mallocs:2000:1000 ] threads:8 [ mallocs:500:1000 ] malloc:a:1000"
        done = self.script(text, WINDOW="api")
        row = self.memory(done)["0", "cudaMalloc"]
        self.assertEqual(self.counts(row)[:4], (20001, 20000, 20.001, 0.001))
        self.assertLessEqual(float(row["Peak (MB)"]), 0.008)
        self.assertEqual((done.out.run["unknown_frees"], done.out.lost()), (0, {}))

    def test_an_address_that_is_given_again(self):
        # The simulation's allocator reuses freed addresses, as the device's does.
        done = self.script("start kernel:k:1 stop mallocs:70000:4096 malloc:a:4096", WINDOW="api", timeout=120)
        row = self.memory(done)["0", "cudaMalloc"]
        self.assertEqual((int(row["Allocations"]), int(row["Frees"])), (70001, 70000))
        self.assertEqual((row["Live (MB)"], row["Peak (MB)"]), ("0.004", "0.004"))
        self.assertEqual(done.out.lost(), {})

    def test_frees_of_what_no_hook_has_seen(self):
        text = "malloc:b:1000 malloc:a:1000000:driver start kernel:k:1 stop free:a free:b:twice"
        done = self.script(text, WINDOW="api")
        self.assertEqual(done.out.run["unknown_frees"], 1)
        # The second free of b failed, and does not count.
        self.assertEqual(self.counts(self.memory(done)["0", "[all]"]), (1, 1, 0.001, 0.0, 0.001))
        self.check_unharmed(done, text)

    def test_a_free_that_fails(self):
        text = "malloc:a:1000000 start kernel:k:1 stop fault:api_fail:cudaFree:700 free:a"
        done = self.script(text, WINDOW="api")
        self.assertEqual(done.stdout, "free: 700\n")
        self.assertEqual(self.counts(self.memory(done)["0", "[all]"]), (1, 0, 1.0, 1.0, 1.0))

    def test_cudaDeviceReset(self):
        text = ("malloc:a:1000000 malloc:h:3000000:host device:1 malloc:b:2000000 device:0 start kernel:k:1 sync stop "
                "until_calls:cuptiFinalize:1 reset malloc:c:500000")
        done = self.script(text, WINDOW="api")
        rows = self.memory(done)
        self.assertEqual(self.counts(rows["0", "[all]"]), (2, 1, 1.5, 0.5, 1.0))
        self.assertEqual(self.counts(rows["1", "[all]"]), (1, 0, 2.0, 2.0, 2.0))
        self.assertEqual(self.counts(rows["host", "[all]"]), (1, 1, 3.0, 0.0, 3.0))

    def test_a_forked_child(self):
        text = "malloc:a:1000000 start kernel:k:1 fork_malloc stop malloc:b:1000000 fork_malloc free:a"
        done = self.script(text, WINDOW="api")
        self.assertEqual(self.counts(self.memory(done)["0", "[all]"]), (2, 1, 2.0, 1.0, 2.0))
        self.assertEqual(len(done.folders()), 1)
        self.check_unharmed(done, text)

    def test_driver_calls_of_ours_are_nobodys(self):
        text = "start malloc:a:1000 kernel:k:1 free:a stop"
        done = self.script(text, WINDOW="api", API="full")
        self.assertFalse([name for name in done.out.calls() if name.startswith(("cuCtxGetDevice", "nvml"))], done.out.calls())

    def test_without_the_hooks_of_the_runtime(self):
        done = self.script("malloc:a:1000 start kernel:k:1 stop free:a", WINDOW="api", HOOKS="cublas")
        self.assertEqual(done.out.rows("memory_sum.csv"), [])

    def test_no_window_no_folder(self):
        for window in ("api", "off"):
            text = "malloc:a:1000 kernel:k:1 free:a print:done"
            done = self.script(text, WINDOW=window)
            self.assertEqual((done.folders(), done.stdout), ([], "done\n"))


class Failures(MemoryTest):
    def test_more_than_there_is(self):
        text = ("malloc:a:1000000 start kernel:k:1 malloc:b:99000000000 stop malloc:c:2000000 malloc:d:98000000000 "
                "malloc:e:99000000000:managed last_error")
        done = self.script(text, WINDOW="api", SUMMARY="stderr")
        self.assertTrue(done.stdout.startswith("malloc: 2\nmalloc: 2\n"), done.stdout)
        row = self.memory(done)["0", "cudaMalloc"]
        self.assertEqual(self.counts(row), (2, 0, 3.0, 3.0, 3.0))
        self.assertEqual([row[name] for name in ("Failed", "Failed Size (MB)", "Largest Failed (MB)", "Last Failed (MB)")],
                         ["2", "197000.000", "99000.000", "98000.000"])
        (line,) = lines(done)
        self.assertIn("; 2 failed, the largest of 99.000GB", line)
        self.check_unharmed(done, text)

    def test_a_fault(self):
        for how, api, device in (("plain", "cudaMalloc", "0"), ("host", "cudaMallocHost", "host"),
                                 ("pitch", "cudaMallocPitch", "0"), ("3d", "cudaMalloc3D", "0")):
            text = f"malloc:a:1000:async start kernel:k:1 stop fault:api_fail:{api}:2 malloc:b:3000:{how}"
            done = self.script(text, WINDOW="api", SUMMARY="stderr")
            self.assertEqual(done.stdout, "malloc: 2\n")
            row = self.memory(done)[device, api]
            self.assertEqual(self.counts(row), (0, 0, 0.0, 0.0, 0.0), api)
            self.assertEqual((row["Failed"], row["Failed Size (MB)"]), ("1", "0.003"), api)
            (line,) = lines(done)
            self.assertEqual("1 failed, of 3.000kB" in line, device == "0")

    def test_a_context_that_is_not_there(self):
        # Without an answer from the driver, it is assigned to no device.
        done = self.script("kernel:k:1 fault:api_fail:cuCtxGetDevice:201 malloc:a:1000 start kernel:k:1 stop", WINDOW="api")
        self.assertEqual(self.counts(self.memory(done)["[unknown]", "cudaMalloc"]), (1, 0, 0.001, 0.001, 0.001))


class Timeline(MemoryTest):
    def timeline(self, done, of="allocated", device="0"):
        return [row for row in done.out.rows("memory_timeline.csv") if (row["Of"], row["Device"]) == (of, device)]

    def levels(self, rows):
        return [(float(row["Lowest (MB)"]), float(row["Highest (MB)"])) for row in rows]

    def test_each_change_and_the_windows_edges(self):
        text = ("malloc:a:1000000 malloc:b:2000000 free:a start kernel:k:1 sync stop malloc:c:5000000 free:c start kernel:k:1 malloc:d:500000 "
                "sync free:d stop")
        done = self.script(text, WINDOW="api")
        rows = self.timeline(done)
        self.assertEqual([(*level, row["Window"]) for level, row in zip(self.levels(rows), rows)],
                         [(1.0, 1.0, ""), (3.0, 3.0, ""), (2.0, 2.0, ""), (2.0, 2.0, "1"), (2.0, 2.0, ""), (7.0, 7.0, ""), (2.0, 2.0, ""),
                          (2.0, 2.0, "2"), (2.5, 2.5, "2"), (2.0, 2.0, "2"), (2.0, 2.0, "")])
        windows = done.out.run["windows"]
        self.assertEqual((int(rows[3]["Start (ns)"]), int(rows[4]["Start (ns)"]), int(rows[7]["Start (ns)"])),
                         (windows[0]["start_ns"], windows[0]["end_ns"], windows[1]["start_ns"]))
        self.assertEqual(rows[5]["Start (ns)"], self.memory(done)["0", "[all]"]["Peak at (ns)"])
        self.check_unharmed(done, text)

    def test_the_peak_between_two_readings(self):
        # Only the hooks can have seen it.
        done = self.script("malloc:a:1000000 start kernel:k:1 sync malloc:b:900000000 free:b malloc:c:1000000 stop", WINDOW="api")
        top = max(self.timeline(done), key=lambda row: float(row["Highest (MB)"]))
        total = self.memory(done)["0", "[all]"]
        self.assertEqual((top["Highest (MB)"], top["Highest at (ns)"], top["Window"]), ("901.000", total["Peak at (ns)"], "1"))
        self.assertEqual(total["Peak (MB)"], "901.000")

    def test_places(self):
        done = self.script("malloc:a:1000:host malloc:b:2000:managed device:1 malloc:c:3000 start kernel:k:1 stop", WINDOW="api")
        self.assertEqual({row["Device"]: row["Highest (MB)"] for row in done.out.rows("memory_timeline.csv") if row["Of"] == "allocated"},
                         {"0": "0.002", "1": "0.003", "host": "0.001"})

    def test_many_changes_of_many_threads(self):
        done = self.script("malloc:a:5000000 start kernel:k:1 threads:8 [ mallocs:3000:1000000 ] stop threads:4 [ mallocs:3000:1000000 ] "
                           "malloc:b:1000000", WINDOW="api", timeout=120)
        rows = self.timeline(done)
        self.assertTrue(200 < len(rows) < 2060, len(rows))
        self.assertEqual(self.levels(rows)[0], (5.0, 5.0))
        self.assertEqual(self.levels(rows)[-1], (6.0, 6.0))
        self.assertEqual((min(self.levels(rows))[0], max(high for _, high in self.levels(rows))),
                         (5.0, float(self.memory(done)["0", "[all]"]["Peak (MB)"])))
        self.assertEqual(done.out.lost(), {})

    def test_iterations(self):
        step = "malloc:x:1000000 kernel:forward:3 sync sleep:2 kernel:backward:3 kernel:adam_step:1 sync free:x"
        done = self.script(f"malloc:a:4000000 start kernel:k:1 loop:30 [ {step} ] stop sleep:200", WINDOW="api")
        rows = self.timeline(done)
        known = {(row["Iteration"], int(row["Start (ns)"]), int(row["Duration (ns)"])) for row in done.out.rows("iteration_sum.csv")
                 if row["Device"] == "all" and row["Label"] == "iteration" and row["Duration (ns)"]}
        self.assertTrue(known)
        for row in rows:
            start = int(row["Start (ns)"])
            inside = [number for number, begin, duration in known if begin <= start < begin + duration]
            self.assertEqual((row["Iteration"], row["Label"]), (inside[0], "iteration") if inside else ("", "outside"))
        self.assertGreater(len({row["Iteration"] for row in rows}), 10)

    # Read while windows are open; two readings come before and after each change.
    WATCHED = "until_more_calls:nvmlDeviceGetMemoryInfo_v2:8"

    def test_in_use(self):
        text = (f"malloc:a:1000000 start kernel:k:1 sync {self.WATCHED} malloc:b:7000000:driver {self.WATCHED} malloc:c:20000000 {self.WATCHED} free:c "
                f"{self.WATCHED} stop")
        done = self.script(text, WINDOW="api")
        rows = [row for row in self.timeline(done, "in use") if row["Window"] == "1"]
        levels = [high for low, high in self.levels(rows)]
        self.assertEqual([level for index, level in enumerate(levels) if index == 0 or levels[index - 1] != level],
                         [BASE + 1, BASE + 8, BASE + 28, BASE + 8])
        # Device 1 is not used.
        self.assertEqual({row["Device"] for row in done.out.rows("memory_timeline.csv")}, {"0"})
        # The driver's allocations are in use, but not among the counted ones.
        self.assertEqual(max(high for _, high in self.levels(self.timeline(done))), 21.0)
        self.check_unharmed(done, text)

    def test_readings_that_fail(self):
        done = self.script("malloc:a:1000000 start kernel:k:1 sync sleep:300 stop", WINDOW="api",
                           faults=["api_fail=nvmlDeviceGetMemoryInfo_v2:3", "api_fail=nvmlDeviceGetMemoryInfo:3"])
        self.assertEqual({row["Of"] for row in done.out.rows("memory_timeline.csv")}, {"allocated"})

    def test_nothing_at_all(self):
        done = self.script("start kernel:k:1 stop", WINDOW="api", HOOKS="cublas", faults="api_fail=nvmlInit_v2:9")
        self.assertEqual(done.out.rows("memory_timeline.csv"), [])


class Edges(MemoryTest):
    # The reading at each edge is waited for, for both devices. The link is queried four times, the memory more often.
    READ = "until_calls:nvmlDeviceGetMaxPcieLinkWidth:{}"
    TEXT = (f"malloc:a:1000000 start kernel:k:1 sync {READ.format(2)} malloc:b:2000000 sleep:30 stop {READ.format(4)} "
            "malloc:c:4000000 ")

    def script(self, text, *arguments, faults=(), **options):
        # Whether CUPTI has been detached between two windows depends on the machine's speed.
        faults = [faults] if isinstance(faults, str) else list(faults)
        return super().script(text, *arguments, faults=["finalize_keeps_nothing", *faults], **options)

    def test_the_first_window_and_the_next(self):
        text = self.TEXT + f"start kernel:k:1 {self.READ.format(6)} free:a stop {self.READ.format(8)} malloc:d:8000000"
        done = self.script(text, WINDOW="api", SUMMARY="stderr")
        self.check_edges(done, [(BASE + 1, BASE + 3), (BASE + 7, BASE + 6)])
        for row in done.out.windows():
            self.assertEqual((row["Memory at Start (MB)"], row["Memory at End (MB)"]), ("", ""))
        (line,) = lines(done)
        self.assertEqual(line.removesuffix(", 506.00MB in use on the GPU at the end"), "    memory: peak 14.000MB allocated by 4 calls")
        self.assertGreater(done.out.run["overhead"]["device_readings_ns"], 0)
        self.check_unharmed(done, text)

    def test_a_window_that_ends_with_the_program(self):
        done = self.script(f"malloc:a:1000000 kernel:k:1 malloc:b:2000000 {self.READ.format(2)} free:b", WINDOW="always")
        self.assertIn(self.edges(done)[0][1], (BASE + 1, None))

    def test_what_the_driver_allocates_is_in_there(self):
        done = self.script(f"malloc:a:1000000 malloc:b:5000000:driver start kernel:k:1 {self.READ.format(2)} stop", WINDOW="api")
        self.check_edges(done, [(BASE + 6, BASE + 6)])
        self.assertEqual(self.counts(self.memory(done)["0", "[all]"])[3], 1.0)

    def test_many_windows(self):
        # Readings are shared, and nothing waits for them.
        done = self.script("malloc:a:1000000 loop:300 [ start kernel:k:1 stop ] sleep:100", WINDOW="api")
        self.check_edges(done, [(BASE + 1, BASE + 1)] * 300)
        readings = done.simulated_calls()["nvmlDeviceGetMemoryInfo_v2"]
        self.assertTrue(2 <= readings <= 600, readings)

    def test_windows_of_launches(self):
        done = self.script("malloc:a:1000000 loop:20 [ kernel:k:1 sleep:20 ]", WINDOW="launch:2+5/10x2")
        self.check_edges(done, [(BASE + 1, BASE + 1)] * 2)

    def test_the_link(self):
        done = self.script(self.TEXT, WINDOW="api")
        for device in done.out.run["devices"]:
            self.assertEqual([device[f"pcie_{name}"] for name in ("generation", "width", "max_generation", "max_width")],
                             [4, 8, 4, 16])

    def test_an_older_library(self):
        # Its `used` includes the driver's own memory.
        done = self.script(self.TEXT, WINDOW="api", faults="api_fail=nvmlDeviceGetMemoryInfo_v2:25")
        self.check_edges(done, [(BASE + RESERVED + 1, BASE + RESERVED + 3)])

    # The same, if no reading comes.
    UNREAD = "malloc:a:1000000 start kernel:k:1 sync malloc:b:2000000 stop malloc:c:4000000"

    def check_nothing_read(self, done, why):
        self.assertEqual(self.edges(done), [(None, None)])
        self.assertEqual({device["pcie_width"] for device in done.out.run["devices"]}, {0})
        self.assertEqual(done.warnings(), [])
        said = [text for level, text in done.messages() if level == "debug" and "memory in use are not read" in text]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertIn(why, said[0])
        (line,) = lines(done)
        self.assertEqual(line, "    memory: peak 7.000MB allocated by 3 calls")

    def test_a_library_that_fails(self):
        done = self.script(self.UNREAD, WINDOW="api", faults="api_fail=nvmlInit_v2:9", SUMMARY="stderr", LOG="debug")
        self.check_nothing_read(done, "nvmlInit_v2 failed (9)")

    def test_no_library(self):
        without = self.folder / "without"
        without.mkdir()
        for file in simulated.simulation.glob("lib*"):
            if file.name != "libnvidia-ml.so.1":
                os.link(file, without / file.name) if file.stat().st_dev == without.stat().st_dev else (
                    (without / file.name).symlink_to(file))
        done = self.script(self.UNREAD, WINDOW="api", SUMMARY="stderr", LOG="debug", env={"LD_LIBRARY_PATH": str(without)})
        self.check_nothing_read(done, "libnvidia-ml.so.1")

    def test_a_device_that_is_not_known(self):
        done = self.script(self.UNREAD, WINDOW="api", faults="api_fail=nvmlDeviceGetHandleByPciBusId_v2:6", LOG="debug")
        self.assertEqual(self.edges(done), [(None, None)])
        self.assertIn("NVML does not know device 0 at 0000:01:00.0 (6)", done.stderr)


if __name__ == "__main__":
    simulated.main()
