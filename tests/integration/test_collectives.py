#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""nccl_sum.csv: NCCL's calls by the data that they move, groups, bandwidths, and concurrent computation.

usage: test_collectives.py LIBRARY PROGRAMS SIMULATION
"""

import collections
import unittest

import simulated

Row = collections.namedtuple("Row", "bytes ranks peer grouped calls failed kernels")


class Collectives(simulated.SimulatedTest):
    def script(self, text, **options):
        # Communicators are created before the window.
        done = super().script(text, **{"WINDOW": "api", **options})
        for folder in done.folders():
            self.check_kernels(simulated.Folder(folder))
        return done

    def check_kernels(self, out):
        """Every kernel of NCCL's is in one row."""
        rows = out.rows("nccl_sum.csv")
        kernels = [row for row in out.rows("cuda_gpu_kern_sum.csv") if row["Name"].startswith("ncclDevKernel")]
        self.assertEqual(self.sum(rows, "Kernels"), self.sum(kernels, "Instances"))
        self.assertEqual(self.sum(rows, "GPU Time (ns)"), self.sum(kernels, "Total Time (ns)"))

    def rows(self, done):
        """{(operation, type, reduction, bytes, grouped): row}"""
        found = {}
        for row in done.out.rows("nccl_sum.csv"):
            key = row["Operation"], row["Type"], row["Reduction"], row["Bytes"], row["Grouped"]
            self.assertNotIn(key, found)
            found[key] = Row(row["Bytes"], row["Ranks"], row["Peer/Root"], row["Grouped"], int(row["Calls"] or 0),
                             int(row["Failed Calls"] or 0), int(row["Kernels"]))
        return found

    def row(self, done, operation, **which):
        (row,) = [row for row in done.out.rows("nccl_sum.csv")
                  if row["Operation"] == operation and all(row[name] == value for name, value in which.items())]
        return row

    def asked(self, done):
        return done.simulated_calls()["ncclCommCount"]


class Operations(Collectives):
    def test_each_operation(self):
        done = self.script("comm:A:4 start nccl:AllReduce:A:1000:7:0 nccl:AllReduce:A:1000:6:4 nccl:Broadcast:A:1000:7:2 "
                           "nccl:Bcast:A:1000:7:2 nccl:Reduce:A:1000:8:3 nccl:AllGather:A:1000:9 nccl:ReduceScatter:A:1000:7:2 "
                           "nccl:Send:A:1000:0:1 nccl:Recv:A:1000:4:3 stop sync")
        self.assertEqual(self.rows(done), {
            ("AllReduce", "fp32", "sum", "4000", "no"): Row("4000", "4", "", "no", 1, 0, 1),
            ("AllReduce", "fp16", "avg", "2000", "no"): Row("2000", "4", "", "no", 1, 0, 1),
            # Two functions, one operation; the call that Bcast makes inside is not counted separately.
            ("Broadcast", "fp32", "", "4000", "no"): Row("4000", "4", "2", "no", 2, 0, 2),
            ("Reduce", "fp64", "max", "8000", "no"): Row("8000", "4", "3", "no", 1, 0, 1),
            # Total of all ranks.
            ("AllGather", "bf16", "", "8000", "no"): Row("8000", "4", "", "no", 1, 0, 1),
            ("ReduceScatter", "fp32", "max", "16000", "no"): Row("16000", "4", "", "no", 1, 0, 1),
            # They use groups internally.
            ("Send", "int8", "", "1000", "no"): Row("1000", "4", "1", "no", 1, 0, 1),
            ("Recv", "int64", "", "8000", "no"): Row("8000", "4", "3", "no", 1, 0, 1),
        })

    def test_bandwidths(self):
        done = self.script("duration:AllReduce:40000 duration:AllGather:20000 comm:A:8 comm:B:2 start "
                           "loop:3 [ nccl:AllReduce:A:1000000 nccl:AllGather:A:100000 nccl:AllReduce:B:1000000 ] stop sync")
        row = self.row(done, "AllReduce", Ranks="8")
        # 4 MB in 40 us.
        self.assertEqual((row["GPU Avg (ns)"], row["Algorithm BW (GB/s)"], row["Bus BW (GB/s)"]), ("40000.0", "100.000", "175.000"))
        row = self.row(done, "AllReduce", Ranks="2")
        self.assertEqual((row["Algorithm BW (GB/s)"], row["Bus BW (GB/s)"]), ("100.000", "100.000"))
        row = self.row(done, "AllGather")
        self.assertEqual((row["Bytes"], row["Algorithm BW (GB/s)"], row["Bus BW (GB/s)"]), ("3200000", "160.000", "140.000"))
        self.assertAlmostEqual(self.sum(done.out.rows("nccl_sum.csv"), "GPU Time (%)", float), 100, delta=0.2)

    def test_ranks_are_asked_for_once(self):
        text = "comm:A:4 comm:B:2 nccl:AllReduce:A:5 start loop:20 [ nccl:AllReduce:A:5 nccl:AllReduce:B:5 ] stop"
        done = self.script(text + " sync")
        self.assertEqual(self.asked(done), 2)
        # It leaves a range open that is not the program's.
        self.assertEqual(done.out.ranges(), {})
        self.check_unharmed(done, text + " sync")
        # Between windows, what happens to a communicator is not seen.
        done = self.script(text + " nccl:AllReduce:B:5 start loop:20 [ nccl:AllReduce:A:5 ] stop sync")
        self.assertEqual(self.asked(done), 3)
        done = self.script("comm:A:4 start loop:5 [ nccl:AllReduce:A:5 comm_destroy:A comm:A:8:later ] stop sync")
        self.assertEqual({row["Ranks"]: row["Calls"] for row in done.out.rows("nccl_sum.csv")}, {"4": "1", "8": "4"})

    def test_hooks_that_do_not_record_ask_nothing(self):
        done = self.script("comm:A:4 start loop:5 [ nccl:AllReduce:A:5 ] stop sync", HOOKS="cudart")
        self.assertEqual(self.asked(done), 0)
        (row,) = done.out.rows("nccl_sum.csv")
        self.assertEqual((row["Operation"], row["Calls"], row["Kernels"], row["Bus BW (GB/s)"]), ("[unknown]", "", "5", ""))

    def test_threads(self):
        done = self.script("comm:A:4 start threads:6 [ loop:10 [ group_start nccl:AllReduce:A:7 group_end nccl:AllGather:A:7 ] ] "
                           "stop sync")
        rows = self.rows(done)
        self.assertEqual(rows["AllReduce", "fp32", "sum", "28", "yes"].calls, 60)
        self.assertEqual(rows["AllReduce", "fp32", "sum", "28", "yes"].kernels, 60)
        self.assertEqual(rows["AllGather", "fp32", "", "112", "no"].kernels, 60)
        self.assertEqual(len(rows), 2)


class Communicators(Collectives):
    """Which calls were on the same communicator, and that its ranks, each a process here, report the same id for it."""

    def ids(self, text, **options):
        """{number of elements: communicator}"""
        rows = self.script(text, **options).out.rows("nccl_sum.csv")
        return {int(row["Bytes"]) // 4: row["Communicator"] for row in rows}

    def test_by_unique_id(self):
        text = ("comm:A:4:here comm:B:4:there:config comm:C:4:there_too:scalable comm:D:4 start nccl:AllReduce:A:1 nccl:AllReduce:B:2 "
                "nccl:AllReduce:C:3 nccl:AllReduce:D:4 stop nccl:AllReduce:A:1 start nccl:AllReduce:A:5 nccl:Broadcast:B:6 stop sync")
        one, other = self.ids(text), self.ids("comm:X:9 " + text)
        for found in one.values():
            self.assertRegex(found, "^0x[0-9a-f]{16}$")
        self.assertEqual(len(set(one.values())), 4)
        self.assertEqual((one[1], one[2]), (one[5], one[6]))
        # D's id is generated by the library, anew in each process; the others' are the same in both.
        self.assertNotEqual(one.pop(4), other.pop(4))
        self.assertEqual(one, other)

    def test_splits(self):
        # Each rank only sees its own color of a split; all of them see all splits.
        one, other = (self.ids(f"comm:A:4:here comm_split:B:A:{color} comm_split:C:A:{first} comm_split:D:A:0 comm_split:E:D:0 start "
                               "nccl:AllReduce:A:1 nccl:AllReduce:B:2 " + ("nccl:AllReduce:C:3 " if first == "0" else "") +
                               "nccl:AllReduce:D:4 nccl:AllReduce:E:5 stop sync") for color, first in (("0", "0"), ("1", "none")))
        self.assertEqual(len(set(one.values())), 5)
        self.assertNotEqual(one.pop(2), other.pop(2))
        self.assertNotIn(one.pop(3), other.values())
        self.assertEqual(one, other)

    def test_all_devices_of_a_process(self):
        found = self.ids("comm_all:A:B start nccl:AllReduce:A:1 nccl:AllReduce:B:2 stop sync", devices=2)
        self.assertEqual(found[1], found[2])
        self.assertNotEqual(found[1], "")

    def test_one_in_the_place_of_another(self):
        # The handle of a destroyed communicator may be reused for the next one.
        for way in ("comm_destroy", "comm_abort"):
            found = self.ids(f"comm:A:4:here start nccl:AllReduce:A:1 {way}:A comm:A:4:there nccl:AllReduce:A:2 stop {way}:A comm:A:4:here "
                             "start nccl:AllReduce:A:3 stop sync")
            self.assertEqual(len(set(found.values())), 2)
            self.assertEqual(found[1], found[3])

    def test_groups(self):
        rows = self.script("comm:A:4:here comm:B:4:there start group_start nccl:AllReduce:A:1000 nccl:AllReduce:A:1000 group_end "
                           "group_start nccl:AllReduce:A:1000 nccl:AllReduce:A:5 group_end "
                           "group_start nccl:AllReduce:A:1000 nccl:AllReduce:B:1000 group_end stop sync").out.rows("nccl_sum.csv")
        of = {(row["Operation"], row["Bytes"], row["Calls"]): row["Communicator"] for row in rows}
        a, b = of["AllReduce", "4000", "4"], of["AllReduce", "4000", "1"]
        self.assertNotEqual(a, b)
        # The calls are the same on both: which kernels belong to which communicator is unknown.
        self.assertEqual(of, {("AllReduce", "4000", "4"): a, ("AllReduce", "20", "1"): a, ("AllReduce", "4000", "1"): b,
                              ("Group of 2 AllReduce", "4020", "1"): a, ("Group of 2 AllReduce", "8000", "1"): ""})

    def test_what_is_not_known(self):
        # The library writes the handle at the group's end. The next split gets its number nevertheless.
        text = "comm:A:4:here {}comm_split:B:A:0{} comm_split:C:A:0 start nccl:AllReduce:B:1 nccl:AllReduce:C:2 stop sync"
        late, known = self.ids(text.format("group_start ", " group_end")), self.ids(text.format("", ""))
        self.assertEqual(late[1], "")
        self.assertEqual(late[2], known[2])
        # A failed split does not count.
        known = self.ids("comm:A:4:here comm_split:B:A:0 start nccl:AllReduce:A:1 nccl:AllReduce:B:2 stop sync")
        after = self.ids("comm:A:4:here fault:api_fail:ncclCommSplit:5 comm_split:B:A:0 fault:api_fail:off comm_split:B:A:0 start "
                         "nccl:AllReduce:A:1 nccl:AllReduce:B:2 stop sync")
        self.assertEqual(after, known)
        self.assertEqual(self.ids("comm:A:0:here start nccl:AllReduce:none:1 stop sync"), {1: ""})


class Groups(Collectives):
    def test_one_call(self):
        # As PyTorch does it.
        done = self.script("duration:AllReduce:8000 comm:A:4 start loop:3 [ group_start nccl:AllReduce:A:1000 group_end ] stop sync")
        row = self.row(done, "AllReduce")
        self.assertEqual((row["Grouped"], row["Calls"], row["Kernels"], row["GPU Avg (ns)"]), ("yes", "3", "3", "8000.0"))
        self.assertEqual(row["Algorithm BW (GB/s)"], "0.500")

    def test_calls_alike(self):
        done = self.script("duration:AllReduce:8000 comm:A:4 start group_start loop:3 [ nccl:AllReduce:A:1000 ] group_end "
                           "group_start nccl:AllReduce:A:1000 group_end stop sync")
        row = self.row(done, "AllReduce")
        self.assertEqual((row["Calls"], row["Kernels"], row["GPU Time (ns)"], row["GPU Avg (ns)"]), ("4", "4", "32000", "8000.0"))
        self.assertEqual((row["GPU Min (ns)"], row["GPU Max (ns)"], row["Algorithm BW (GB/s)"]), ("8000", "8000", "0.500"))

    def test_different_calls(self):
        done = self.script("comm:A:4 start group_start nccl:AllReduce:A:1000 nccl:AllReduce:A:500 group_end "
                           "group_start nccl:AllReduce:A:1000 nccl:AllGather:A:1 group_end stop sync")
        self.assertEqual(self.rows(done), {
            ("Group of 2 AllReduce", "fp32", "sum", "6000", "group"): Row("6000", "4", "", "group", 1, 0, 2),
            ("Group of 2", "fp32", "several", "4016", "group"): Row("4016", "4", "", "group", 1, 0, 2),
            ("AllReduce", "fp32", "sum", "4000", "yes"): Row("4000", "4", "", "yes", 2, 0, 0),
            ("AllReduce", "fp32", "sum", "2000", "yes"): Row("2000", "4", "", "yes", 1, 0, 0),
            ("AllGather", "fp32", "", "16", "yes"): Row("16", "4", "", "yes", 1, 0, 0),
        })
        self.assertEqual(self.row(done, "Group of 2")["Bus BW (GB/s)"], "")

    def test_all_to_all(self):
        done = self.script("duration:Send:10000 duration:Recv:10000 comm:A:2 start group_start nccl:Send:A:1000:7:0 "
                           "nccl:Recv:A:1000:7:0 nccl:Send:A:1000:7:1 nccl:Recv:A:1000:7:1 group_end stop sync")
        row = self.row(done, "Group of 4 AllToAll")
        self.assertEqual((row["Bytes"], row["Kernels"], row["Algorithm BW (GB/s)"], row["Bus BW (GB/s)"]),
                         ("8000", "4", "0.200", "0.100"))

    def test_calls_that_nccl_2_28_brought(self):
        done = self.script("duration:AlltoAll:10000 comm:A:4 start nccl:AlltoAll:A:1000 nccl:Gather:A:1000:7:2 nccl:Scatter:A:1000:7:3 stop sync")
        self.assertEqual(self.rows(done), {
            (name, "fp32", "", "16000", "no"): Row("16000", "4", root, "no", 1, 0, 1) for name, root in (("AllToAll", ""), ("Gather", "2"), ("Scatter", "3"))})
        row = self.row(done, "AllToAll")
        self.assertEqual((row["Algorithm BW (GB/s)"], row["Bus BW (GB/s)"]), ("1.600", "1.200"))

    def test_one_of_these_in_a_group_with_others(self):
        done = self.script("comm:A:4 start group_start nccl:AlltoAll:A:1000 nccl:AllReduce:A:1000 group_end stop sync")
        self.assertEqual(self.rows(done)["Group of 2", "fp32", "several", "20000", "group"].kernels, 2)

    def test_nested_and_empty(self):
        done = self.script("comm:A:4 start group_start group_start nccl:AllReduce:A:1000 group_end nccl:AllReduce:A:1000 group_end "
                           "group_start group_end nccl:AllReduce:A:1000 stop sync")
        self.assertEqual(self.rows(done), {
            ("AllReduce", "fp32", "sum", "4000", "yes"): Row("4000", "4", "", "yes", 2, 0, 2),
            ("AllReduce", "fp32", "sum", "4000", "no"): Row("4000", "4", "", "no", 1, 0, 1),
        })

    def test_a_window_that_begins_inside(self):
        done = self.script("comm:A:4 group_start nccl:AllReduce:A:1000 start nccl:AllReduce:A:1000 group_end "
                           "group_start nccl:AllReduce:A:500 group_end stop sync")
        rows = self.rows(done)
        # The contents of that group are unknown.
        self.assertEqual(rows["[unknown]", "", "", "", ""].kernels, 2)
        self.assertEqual(rows["AllReduce", "fp32", "sum", "2000", "yes"].kernels, 1)

    def test_a_window_that_ends_inside(self):
        done = self.script("comm:A:4 start group_start nccl:AllReduce:A:1000 stop nccl:AllReduce:A:1000 group_end "
                           "start group_start nccl:AllReduce:A:500 group_end nccl:AllReduce:A:500 stop sync")
        rows = self.rows(done)
        self.assertEqual(rows["AllReduce", "fp32", "sum", "4000", "yes"][4:], (1, 0, 0))
        self.assertEqual(rows["AllReduce", "fp32", "sum", "2000", "yes"][4:], (1, 0, 1))
        self.assertEqual(rows["AllReduce", "fp32", "sum", "2000", "no"][4:], (1, 0, 1))

    def test_captured(self):
        done = self.script("comm:A:4 start capture:S loop:2 [ nccl:AllReduce:A:1000:7:0:S ] group_start "
                           "loop:3 [ nccl:AllGather:A:1000:7:0:S ] group_end end_capture:S:G nccl:AllReduce:A:1000 "
                           "nccl:AllReduce:A:2000 stop sync")
        found = {(row["Operation"], row["Bytes"]): (row["Calls"], row["Captured Calls"], row["Kernels"])
                 for row in done.out.rows("nccl_sum.csv")}
        self.assertEqual(found, {("AllReduce", "4000"): ("3", "2", "1"), ("AllReduce", "8000"): ("1", "0", "1"),
                                 ("AllGather", "16000"): ("3", "3", "0")})
        # Bandwidths are those of the calls that ran.
        self.assertEqual(self.row(done, "AllReduce", Bytes="4000")["Algorithm BW (GB/s)"], "0.400")

    def test_replayed(self):
        done = self.script("comm:A:4 start capture:S nccl:AllReduce:A:1000:7:0:S group_start "
                           "loop:3 [ nccl:AllGather:A:1000:7:0:S ] group_end end_capture:S:G graph:G:S graph:G:S stop sync")
        columns = ("Calls", "Captured Calls", "Replayed Calls", "Kernels")
        found = {row["Operation"]: tuple(row[column] for column in columns) for row in done.out.rows("nccl_sum.csv")}
        self.assertEqual(found, {"AllReduce": ("1", "1", "2", "2"), "AllGather": ("3", "3", "6", "6")})
        self.assertEqual(self.row(done, "AllReduce", Bytes="4000")["Algorithm BW (GB/s)"], "0.400")


class BadInput(Collectives):
    def test_rejected_calls(self):
        text = ("comm:A:4 start nccl:AllReduce:none:1000 nccl:AllReduce:A:1000:77 nccl:Send:A:1000:7:9 "
                "nccl:AllReduce:A:1000 stop sync")
        done = self.script(text)
        self.assertEqual(done.stdout, "ncclAllReduce: 4\nncclAllReduce: 4\nncclSend: 4\n")
        self.check_unharmed(done, text)
        found = {(row["Operation"], row["Type"], row["Ranks"]): (row["Calls"], row["Failed Calls"])
                 for row in done.out.rows("nccl_sum.csv")}
        self.assertEqual(found, {("AllReduce", "fp32", ""): ("0", "1"), ("AllReduce", "", "4"): ("0", "1"),
                                 ("Send", "fp32", "4"): ("0", "1"), ("AllReduce", "fp32", "4"): ("1", "0")})

    def test_a_group_with_a_rejected_call(self):
        text = ("comm:A:4 start group_start nccl:AllReduce:A:1000 nccl:AllReduce:A:1000 nccl:AllReduce:A:1000:77 group_end "
                "group_start nccl:AllReduce:A:1000 group_end stop sync")
        done = self.script(text)
        self.assertEqual(done.stdout, "ncclAllReduce: 4\nncclGroupEnd: 4\n")
        self.check_unharmed(done, text)
        # None of its calls has done anything.
        row = self.row(done, "AllReduce", Type="fp32")
        self.assertEqual((row["Calls"], row["Failed Calls"], row["Kernels"]), ("1", "2", "1"))

    def test_one_end_too_many(self):
        text = "comm:A:4 start group_end nccl:AllReduce:A:1000 group_start nccl:AllReduce:A:500 group_end group_end stop sync"
        done = self.script(text)
        self.check_unharmed(done, text)
        self.assertEqual({key[3:]: row.kernels for key, row in self.rows(done).items()}, {("4000", "no"): 1, ("2000", "yes"): 1})

    def test_sizes_beyond_32_and_64_bits(self):
        done = self.script(f"comm:A:4 start nccl:AllReduce:A:{3 << 31} nccl:AllGather:A:{1 << 62} nccl:AllReduce:A:0 stop sync")
        self.assertEqual({key[3]: row.kernels for key, row in self.rows(done).items()},
                         {str(12 << 31): 1, "": 1, "0": 0})


class Overlap(Collectives):
    """Compared with the raw records."""

    def check_overlap(self, done):
        work = [(row["Name"], int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"]), row["Device"])
                for row in done.out.rows("cuda_gpu_trace.csv") if row["GrdX"]]
        shares = {}
        for operation in ("AllReduce", "AllGather"):
            time = overlapped = 0
            for name, start, end, device in work:
                if operation not in name:
                    continue
                time += end - start
                inside = [(max(s, start), min(e, end)) for other, s, e, where in work
                          if where == device and not other.startswith("nccl") and s < end and e > start]
                overlapped += self.union(inside)
            if time:
                shares[operation] = f"{100 * overlapped / time:.1f}"
        listed = {row["Operation"]: row["Overlap with Compute (%)"] for row in done.out.rows("nccl_sum.csv")}
        self.assertEqual(listed, shares)
        return {operation: float(share) for operation, share in shares.items()}

    def test_on_two_streams(self):
        done = self.script("duration:AllReduce:3000000 duration:AllGather:2000000 duration:gemm_kernel:400000 comm:A:2 "
                           "kernel:warm:1:own kernel:gemm_kernel:1:S sync start loop:3 [ nccl:AllReduce:A:1000:7:0:N "
                           "kernel:gemm_kernel:4:S nccl:AllGather:A:1000:7:0:M ] stop sync")
        shares = self.check_overlap(done)
        self.assertGreater(max(shares.values()), 0)

    def test_on_one_stream(self):
        done = self.script("comm:A:2 start loop:3 [ nccl:AllReduce:A:1000 kernel:gemm_kernel:4 ] stop sync")
        self.assertEqual(self.check_overlap(done), {"AllReduce": 0.0})

    def test_other_devices_do_not_count(self):
        done = self.script("duration:AllReduce:2000000 duration:k:2000000 device:0 comm:A:2 start nccl:AllReduce:A:1000 device:1 "
                           "kernel:k:2 sync device:0 stop sync", devices=2)
        self.assertEqual(self.check_overlap(done), {"AllReduce": 0.0})


if __name__ == "__main__":
    simulated.main()
