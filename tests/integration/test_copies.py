#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""copy_sum.csv: what copies moved between which memory, what ran concurrently, and for which copies the host waited.

usage: test_copies.py LIBRARY PROGRAMS SIMULATION
"""

import unittest

import simulated

# The simulated link moves 10 bytes per nanosecond, the devices' memories 1,000, the link between devices 100.
MB = 1_000_000


class Copies(simulated.SimulatedTest):
    def rows(self, text, **options):
        """{(device, direction, source, target): row}"""
        # Memory is allocated, and streams are created, before the window.
        done = self.script(text, **{"WINDOW": "api", "devices": 2, **options})
        self.assertEqual(done.out.lost(), {})
        found = {}
        for row in done.out.rows("copy_sum.csv"):
            key = row["Device"], row["Direction"], row["Source"], row["Target"]
            self.assertNotIn(key, found)
            found[key] = row
        return found

    def cells(self, row, *columns):
        return tuple(row[column] for column in columns)

    def test_each_kind_has_a_row(self):
        rows = self.rows(f"copy:p2p:8 device:1 copy:p2p:8 device:0 start copy:h2d:{MB} copy:h2d:{MB} copy:h2d:{2 * MB}::pageable "
                         f"copy:d2h:{3 * MB} copy:d2h:{4 * MB}::pageable copy:d2d:{MB} copy:p2p:{MB} memset:{MB} "
                         f"device:1 copy:h2d:{MB} copy:p2p:{2 * MB} device:0 sync stop")
        self.assertEqual({key: self.cells(row, "Count", "Total Time (ns)", "Avg (ns)", "Total (MB)", "Avg (MB)", "Throughput (GB/s)")
                          for key, row in rows.items()}, {
            ("0", "Device-to-Host", "Device", "Pageable"): ("1", "400000", "400000.0", "4.000", "4.000", "10.000"),
            ("0", "Device-to-Host", "Device", "Pinned"): ("1", "300000", "300000.0", "3.000", "3.000", "10.000"),
            ("0", "Host-to-Device", "Pinned", "Device"): ("2", "200000", "100000.0", "2.000", "1.000", "10.000"),
            ("0", "Host-to-Device", "Pageable", "Device"): ("1", "200000", "200000.0", "2.000", "2.000", "10.000"),
            ("1", "Host-to-Device", "Pinned", "Device"): ("1", "100000", "100000.0", "1.000", "1.000", "10.000"),
            ("1", "Peer-to-Peer", "Device 1", "Device 0"): ("1", "20000", "20000.0", "2.000", "2.000", "100.000"),
            ("0", "Peer-to-Peer", "Device 0", "Device 1"): ("1", "10000", "10000.0", "1.000", "1.000", "100.000"),
            ("0", "Device-to-Device", "Device", "Device"): ("1", "1000", "1000.0", "1.000", "1.000", "1000.000")})
        # From its memory's clock and width, and from NVML; the link between two devices is unknown.
        for (_, direction, _, _), row in rows.items():
            link = {"Device-to-Device": ("1676.160", "59.7"), "Peer-to-Peer": ("", "")}.get(direction, ("15.754", "63.5"))
            self.assertEqual(self.cells(row, "Link (GB/s)", "Link (%)"), link)

    def test_small_copies(self):
        (row,) = self.rows("copy:h2d:8 start loop:3 [ copy:h2d:65535 ] copy:h2d:65536 sync stop").values()
        self.assertEqual(self.cells(row, "Small Copies", "Small Copies (%)"), ("3", "75.0"))

    def test_copies_that_the_host_waits_for(self):
        # After a long kernel. Copies without a stream return when they have ended, and so do those into pageable
        # memory.
        rows = self.rows("duration:a:500000000 copy:h2d:8:1 kernel:b:1:1 sync start kernel:a:1:1 loop:3 [ copy:h2d:80:1 ] "
                         "copy:h2d:80 copy:d2h:80:1 loop:2 [ copy:d2h:80:1:pageable ] sync stop")
        self.assertEqual({key[1:]: self.cells(row, "Count", "Synchronizing", "Synchronizing (%)") for key, row in rows.items()},
                         {("Host-to-Device", "Pinned", "Device"): ("4", "1", "25.0"),
                          ("Device-to-Host", "Device", "Pageable"): ("2", "2", "100.0"),
                          ("Device-to-Host", "Device", "Pinned"): ("1", "0", "0.0")})

    def test_copies_that_are_waited_for_at_once(self):
        # As PyTorch does it: an asynchronous copy, then a stream synchronization.
        text = "duration:a:500000000 copy:d2h:80:1 kernel:b:1:1 sync start {} sync stop"
        for body, waited in (("kernel:a:1:1 copy:d2h:80:1 stream_sync:1", "1"), ("kernel:a:1:1 copy:d2h:80:1 last_error stream_sync:1", "1"),
                             ("kernel:a:1:1 copy:d2h:80:1 kernel:b:1:1 stream_sync:1", "0"),
                             ("kernel:a:1:1 copy:d2h:80:1 background:1 [ stream_sync:1 ] join kernel:b:1:1", "0")):
            (row,) = self.rows(text.format(body)).values()
            self.assertEqual(row["Synchronizing"], waited, body)

    def test_overlap(self):
        # A copy stream beside a kernel that lasts until they are over; then copies that follow a kernel on its stream.
        rows = self.rows(f"duration:free:1 copy:h2d:8:2 kernel:b:1:1 kernel:b:1:3 sync start kernel:held:1:1 loop:5 [ copy:h2d:{MB}:2 ] "
                         f"stream_sync:2 kernel:free:1:3 sync kernel:a:1:1 loop:5 [ copy:d2h:{MB}:1 ] sync stop",
                         faults="wait_for=held/free")
        overlap = {key[1]: row["Overlap with Kernels (%)"] for key, row in rows.items()}
        self.assertEqual(overlap, {"Host-to-Device": "100.0", "Device-to-Host": "0.0"})

    def test_a_kernel_on_another_device_is_no_overlap(self):
        rows = self.rows(f"copy:h2d:8:2 device:1 kernel:b:1 copy:h2d:8 sync device:0 sync start kernel:a:1 sync device:1 kernel:held:1 "
                         f"device:0 loop:5 [ copy:h2d:{MB}:2 ] sync device:1 kernel:free:1:5 sync stop", faults="wait_for=held/free")
        self.assertEqual([row["Overlap with Kernels (%)"] for row in rows.values()], ["0.0"])

    def test_several_windows(self):
        rows = self.rows(f"copy:h2d:8 loop:3 [ start copy:h2d:{MB} stop sync copy:h2d:{MB} ]")
        (row,) = rows.values()
        self.assertEqual(self.cells(row, "Count", "Total Time (ns)"), ("3", "300000"))

    def test_copies_of_graphs(self):
        rows = self.rows(f"copy:h2d:8:1 capture:1 copy:h2d:{MB}:1 end_capture:1:g start loop:4 [ graph:g:1 ] sync stop")
        (row,) = rows.values()
        self.assertEqual(self.cells(row, "Count", "Total (MB)", "Source"), ("4", "4.000", "Pinned"))

    def hints(self, text, **options):
        return {key[1:]: row["Hint"] for key, row in self.rows(text, **options).items()}

    def test_hints_for_what_takes_time(self):
        # Over a slow link, so that nearly all of the time is spent in copies: 40 ms each.
        size = 4 * MB
        self.assertEqual(self.hints(f"copy:h2d:8 start copy:h2d:{size}::pageable copy:d2h:{size}::pageable copy:h2d:{size} sync stop",
                                    env={"CUDASIM_RATES": "h2d=100,d2h=100"}), {
            ("Host-to-Device", "Pageable", "Device"): "pageable memory: pin it (pin_memory=True) and copy with non_blocking=True",
            ("Device-to-Host", "Device", "Pageable"): "pageable memory: copy into pinned memory with non_blocking=True",
            ("Host-to-Device", "Pinned", "Device"): "the host waits for the copies: non_blocking=True; slower than the link: "
                                                    "memory of another NUMA node, or a link that is shared"})

    def test_hints_for_many_small_copies(self):
        self.assertEqual(self.hints("copy:d2h:8 start loop:500 [ kernel:a copy:d2h:4::pageable ] sync stop"), {
            ("Device-to-Host", "Device", "Pageable"):
                "values read one by one (.item(), .cpu()): collect them on the device and read them together"})
        self.assertEqual(self.hints("copy:d2d:8:1 start loop:5000 [ copy:d2d:64:1 ] sync stop"), {
            ("Device-to-Device", "Device", "Device"): "small copies: batch them"})


if __name__ == "__main__":
    simulated.main()
