# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject merge`: invented jobs whose truth is known, hostile folders, a thousand ranks, and a real job on the simulated CUDA."""

import collections
import concurrent.futures
import csv
import html
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import unittest
from unittest import mock

import duckdb
import folders
import ranks
from libinject.merge import collect, page, parquet, report, shown, steps
from libinject.merge.jobs import NotOneJob, divide
from libinject.merge.schema import SUMS
from libinject.merge.statistics import median_of_others, middle
from libinject.merge.store import Store
from libinject.report.icicles import stack_boxes
from libinject.result import BadFile
from libinject.stacks import PHASES
from ranks import MS
from rich.cells import cell_len


def merged(*paths, how="auto", force=False):
    problems = []
    with Store() as store:
        collect.read(store, collect.find(paths, problems), problems)
        return report.build(store, how, problems, force)


def rounded(value):
    """Means depend on the order of their values, in the last digit."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


class Case(folders.TemporaryFolder):
    maxDiff = None

    def merge(self, *paths, how="auto", force=False):
        """Messages about what can't be used go to self.said, without the folder's name."""
        found = merged(*(paths or [self.folder]), how=how, force=force)
        texts = found["problems"] + [text for job in found["jobs"] for text in job["problems"]]
        self.said = [text.replace(f"{self.folder}/", "") for text in texts]
        return found

    def job(self, *paths, force=False):
        (job,) = self.merge(*paths, force=force)["jobs"]
        return job

    def stragglers(self, job):
        return [(entry["rank"], entry["by"]) for entry in job["stragglers"]]


class Statistics(unittest.TestCase):
    def test_median_of_others(self):
        chance = random.Random(1)
        with Store() as store:
            for n in range(1, 12):
                values = [chance.randrange(6) for _ in range(n)]
                store.run("CREATE OR REPLACE TABLE one AS SELECT unnest(?::BIGINT[]) AS v", [values])
                rows = store.rows(f"SELECT v, {median_of_others('v')} AS others FROM one, (SELECT {middle('sorted')} FROM "
                                  "(SELECT list(v ORDER BY v) AS sorted FROM one))")
                self.assertEqual(len(rows), n)
                for row in rows:
                    others = sorted(values)
                    others.remove(row["v"])
                    self.assertEqual(row["others"], statistics.median(others) if others else None, (values, row))


class Steps(Case):
    def test_step_times_and_skew(self):
        ranks.write_rank(self.folder / "a", 0, [100, 200, 300, 400])
        ranks.write_rank(self.folder / "b", 1, [110, 190, 300, 480])
        ranks.write_rank(self.folder / "c", 2, [90, 200, 330, 400])
        job = self.job()
        first = job["by_rank"][0]["step"]
        self.assertEqual((first["iterations"], first["mean_ns"], first["median_ns"], first["min_ns"], first["max_ns"]), (4, 250, 250, 100, 400))
        self.assertAlmostEqual(first["stddev_ns"], statistics.stdev([100, 200, 300, 400]))
        self.assertEqual(job["compared"], {"ranks": 3, "iterations": 4, "first": 100, "last": 103, "left_out": 0})
        skew = job["skew"]
        self.assertEqual((skew["mean_ns"], skew["median_ns"], skew["max_ns"], skew["max_iteration"]), ((20 + 10 + 30 + 80) / 4, 25, 80, 103))
        self.assertAlmostEqual(skew["mean_share"], (20 / 100 + 10 / 200 + 30 / 300 + 80 / 400) / 4)
        # Relative to the median of the other two, in each iteration.
        self.assertEqual([row["step"]["excess_ns"] for row in job["by_rank"]], [(0 + 5 - 15 - 40) / 4, (15 - 10 - 15 + 80) / 4, (-15 + 5 + 30 - 40) / 4])
        self.assertEqual([row["step"]["slowest"] for row in job["by_rank"]], [1, 2, 2])
        self.assertEqual(job["throughput"], {"steps_per_s": (1e9 / 250 + 1e9 / 245 + 1e9 / 265) / 3, "samples_per_s": None, "units_per_s": None, "units_from": None, "step_ns": 250,
                                             "unprofiled": False})
        self.assertEqual((job["step_ns"], job["window_step_ns"]), (250, 250))
        self.assertEqual(self.said, ["4 iterations in common: too few to determine stragglers by step time, 5 are needed"])

    def test_step_times_without_the_profiler(self):
        """The job's step time is that of iterations without the profiler, if each rank has enough of them; comparisons of ranks use the
        others."""
        for rank, unprofiled in enumerate((80 * MS, 90 * MS, 100 * MS)):
            ranks.write_rank(self.folder / f"r{rank}", rank, [120 * MS] * 6, unprofiled=unprofiled, batch=9)
        job = self.job()
        self.assertEqual((job["step_ns"], job["window_step_ns"], job["throughput"]["unprofiled"]), (90 * MS, 120 * MS, True))
        self.assertAlmostEqual(job["throughput"]["samples_per_s"], 9e9 / (80 * MS) + 9e9 / (90 * MS) + 9e9 / (100 * MS), places=2)
        self.assertEqual({row["step"]["median_ns"] for row in job["by_rank"]}, {120 * MS})
        self.assertIn(("step time", "90.000ms, without the profiler, median of the ranks; 11.204 steps/s, 302.5 samples/s; in windows 120.000ms"),
                      shown.lines(job))
        ranks.write_rank(self.folder / "r3", 3, [120 * MS] * 6, batch=9)
        job = self.job()
        self.assertEqual((job["step_ns"], job["throughput"]["unprofiled"]), (120 * MS, False))
        # As many ranks have one kind as the other, but they are not the same ranks.
        ranks.write_rank(self.folder / "r4", 4, [], unprofiled=80 * MS, batch=9)
        job = self.job()
        self.assertEqual((job["step_ns"], job["throughput"]["unprofiled"]), (120 * MS, False))

    def test_where_the_host_runs_ahead(self):
        """Its time is that of the launches. An iteration's own time is known for all but the last, and that is what counts."""
        for rank, step in enumerate((100 * MS, 120 * MS)):
            ranks.write_rank(self.folder / "job" / str(rank), rank, [30 * MS] * 10, steps=[step] * 9 + [""], start=40 * MS * rank, units=("called", 7))
        ahead = "rank 1 starts its iterations 1.3 steps later than other ranks on its host start those with the same numbers"
        folders.invoke("merge", self.folder / "job", "--parquet", self.folder / "copy")
        for place in ("job", "copy"):
            job = self.job(self.folder / place)
            self.assertEqual([(row["step"]["iterations"], row["step"]["median_ns"]) for row in job["by_rank"]], [(9, 100 * MS), (9, 120 * MS)])
            self.assertEqual((job["step_ns"], job["window_step_ns"], job["throughput"]["steps_per_s"]), (110 * MS, 110 * MS, (10 + 1e3 / 120) / 2))
            self.assertIsNone(job["throughput"]["units_per_s"])
            self.assertEqual((job["skew"]["mean_ns"], job["compared"]["iterations"], self.stragglers(job)), (20 * MS, 9, [(1, "step time")]))
            # The host's starts are one host duration apart.
            self.assertEqual([text.partition(":")[0] for text in self.said], [ahead])
        # Older versions only had the host's time.
        with Store() as store:
            path = self.folder / "copy" / "iteration_sum.parquet"
            store.run(f"""COPY (SELECT * EXCLUDE ("Step Time (ns)") FROM '{path}') TO '{path}.new' (FORMAT parquet)""")
            os.replace(f"{path}.new", path)
        job = self.job(self.folder / "copy")
        self.assertEqual((job["step_ns"], job["by_rank"][0]["step"]["iterations"]), (30 * MS, 10))

    def test_gpus_that_ranks_see_of_each_other(self):
        both = [{"id": i, "name": "NVIDIA H200", "uuid": f"GPU-{i}"} for i in (0, 1)]
        for rank in (0, 1):
            ranks.write_rank(self.folder / f"r{rank}", rank, [100 * MS] * 6, devices=both, diagnosis=[])
        ranks.write_rank(self.folder / "r2", 2, [100 * MS] * 6)  # its UUID is unknown
        self.assertEqual(self.job()["gpus"], {"NVIDIA H200": 3})

    def test_a_straggler(self):
        job = self.job(ranks.write_job(self.folder, 8, slow={5: 1.1}))
        self.assertEqual(self.stragglers(job), [(5, "step time")])
        (entry,) = job["stragglers"]
        self.assertAlmostEqual(entry["share"], 0.1, delta=0.01)
        self.assertEqual((entry["slowest"], entry["iterations"]), (20, 20))
        self.assertLess(entry["chance"], 1e-9)
        self.assertAlmostEqual(job["skew"]["mean_ns"] / MS, 11.5, delta=1.5)

    def test_a_host_of_stragglers(self):
        job = self.job(ranks.write_job(self.folder, 16, slow={rank: 1.05 for rank in (4, 5, 6, 7)}, hosts=4))
        self.assertEqual(sorted(self.stragglers(job)), [(rank, "step time") for rank in (4, 5, 6, 7)])

    def test_of_two_ranks(self):
        job = self.job(ranks.write_job(self.folder, 2, iterations=20, slow={1: 1.04}))
        self.assertEqual(self.stragglers(job), [(1, "step time")])

    def of_noise(self, jobs, count, noise):
        """Jobs of equal ranks: each one's deviations from a step are `noise(job)`."""
        with Store() as store:
            for run in range(jobs * count):
                store.add("runs", [(run, "", f"{run // count:03}", run % count, "h", run, 0, "closed", "", "[]", "[]", "", None, "{}", "[]", "", None, "", None, "[]")])
                store.add("iteration_sum", [(run, 1, number, "iteration", 1, "all", 0, *[int(MS * (1 + each))] * 2, *[None] * 8)
                                            for number, each in enumerate(noise(run // count))])
            store.flush()
            divided = divide(store, "folders")
            steps.prepare(store)
            return [steps.of_job(store, number, job) for number, job in enumerate(divided)]

    def test_noise_is_no_straggler(self):
        """One job in a hundred may have one by chance."""
        chance, jobs = random.Random(1), 50
        found = self.of_noise(jobs, 16, lambda job: [chance.gauss(0, (0.02, 0.2)[job % 2]) for _ in range(10)])
        self.assertEqual([job["compared"]["iterations"] for job in found], [10] * jobs)
        self.assertGreater(min(max(row["excess_ns"] for row in job["ranks"].values()) for job in found[1::2]), 0.04 * MS)
        self.assertLessEqual(sum(bool(job["stragglers"]) for job in found), 3)

    def test_noise_that_lasts_is_no_straggler(self):
        """Each iteration's time is correlated with the next one's: as independent ones they made a straggler in one job out of four."""
        chance = random.Random(2)

        def noise(_):
            found = [chance.gauss(0, 0.05)]
            while len(found) < 20:
                found.append(0.5 * found[-1] + chance.gauss(0, 0.05 * math.sqrt(0.75)))
            return found

        self.assertLessEqual(sum(bool(job["stragglers"]) for job in self.of_noise(50, 8, noise)), 4)

    def test_a_hiccup_is_no_straggler(self):
        for rank in range(4):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS + rank * 1000] * 9 + [800 * MS if rank == 2 else 100 * MS])
        job = self.job()
        self.assertGreater(job["by_rank"][2]["step"]["excess_ns"], 0.5 * 100 * MS)
        self.assertEqual(self.stragglers(job), [])

    def test_what_does_not_matter_is_no_straggler(self):
        job = self.job(ranks.write_job(self.folder, 8, noise=0.0001, slow={3: 1.01}))
        self.assertEqual(job["by_rank"][3]["step"]["slowest"], 20)
        self.assertEqual(self.stragglers(job), [])


class Alignment(Case):
    def test_numbers_that_are_one_apart(self):
        """The same iterations by the clock, counted from a different one."""
        for rank in range(3):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 20, first=101 if rank == 1 else 100)
        job = self.job()
        self.assertEqual((job["compared"]["first"], job["compared"]["last"]), (101, 119))
        self.assertEqual(self.said, [("rank 1 starts its iterations 1.0 steps earlier than other ranks on its host start those with the same numbers: "
                                     "the numbers may not correspond, in which case the skew is wrong")])

    def test_clocks_of_hosts(self):
        for rank in range(3):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 20, host=f"node{rank}", start=3000 * MS if rank == 1 else 0)
        self.job()
        self.assertEqual(self.said, ["iterations with the same numbers begin at different times on node1 by 3.000s: these hosts' clocks are off, or the numbers are"])

    def test_other_iterations(self):
        for rank in range(4):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 10, first=500 if rank == 3 else 100 + rank, start=rank * 100 * MS)
        job = self.job()
        self.assertEqual(job["compared"], {"ranks": 3, "iterations": 8, "first": 102, "last": 109, "left_out": 4})
        self.assertEqual(self.said, ["left out of the comparison by iteration: rank 3 has different iterations from most ranks"])
        self.assertNotIn("excess_ns", job["by_rank"][3]["step"])

    def test_nothing_in_common(self):
        for rank in range(2):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 10, first=100 * rank)
        job = self.job()
        self.assertEqual((job["skew"], job["stragglers"]), (None, []))
        self.assertEqual(self.said, ["the ranks have no iteration in common: neither skew nor stragglers can be determined by step time"])

    def test_cut_and_repeated_iterations(self):
        for rank in range(2):
            folder = ranks.write_rank(self.folder / str(rank), rank, [100] * 6)
            rows = [["1", "99", "iteration", 0, "all", 1, 70], ["1", "98", "validation", 1, "all", 1, 70]] + [["2", "105", "iteration", 1, "all", 9, 200]] * (rank == 1)
            with open(folder / "iteration_sum.csv", "a", encoding="utf-8") as file:
                file.writelines(",".join(map(str, row + [""] * (len(ranks.ITERATION) - len(row)))) + "\n" for row in rows)
        job = self.job()
        self.assertEqual([row["step"]["mean_ns"] for row in job["by_rank"]], [100, (5 * 100 + 200) / 6])
        self.assertEqual(self.said, ["iteration numbers occur twice, the later ones count: rank 1"])


class Collectives(Case):
    CALLS, TRANSFER = 100, 2 * MS

    def write(self, waits, world=None, **more):
        """waits: for each rank, those of each call."""
        for rank, of_rank in enumerate(waits):
            rows = [ranks.collective(len(of_rank), self.TRANSFER, of_rank, world=world or len(waits), **more)]
            ranks.write_rank(self.folder / f"r{rank}", rank, [100 * MS] * 20, nccl=rows)
        return self.job()

    def test_one_rank_is_last(self):
        chance = random.Random(1)
        late = [2 * MS + chance.randrange(MS) for _ in range(self.CALLS)]
        job = self.write([late, late, [0] * self.CALLS, late])
        spent = job["collectives"]
        self.assertEqual(spent["collective_ns"], 4 * self.CALLS * self.TRANSFER + 3 * sum(late))
        # Always the same rank: its kernels are the transfer, and both bounds are exact.
        self.assertEqual((spent["waiting_at_least_ns"], spent["waiting_at_most_ns"], spent["split_share"]), (3 * sum(late), 3 * sum(late), 1))
        self.assertEqual([row["collectives"]["waiting_at_least_ns"] for row in job["by_rank"]], [sum(late), sum(late), 0, sum(late)])
        self.assertEqual(self.stragglers(job), [(2, "collectives")])
        self.assertEqual(job["stragglers"][0]["waited_for_ns"], sum(late))
        self.assertAlmostEqual(job["stragglers"][0]["share"], sum(late) / (2000 * MS))
        self.assertEqual(self.said, [])

    def test_ranks_take_turns(self):
        """What sums can't determine is given as a bound: no rank always has the shortest time, but each has its shortest call."""
        waits = [[0 if call % 4 == rank else 3 * MS for call in range(self.CALLS)] for rank in range(4)]
        job = self.write(waits)
        spent = job["collectives"]
        self.assertEqual((spent["waiting_at_least_ns"], spent["waiting_at_most_ns"]), (0, 4 * 75 * 3 * MS))
        self.assertEqual(self.stragglers(job), [])

    def test_a_hiccup_is_no_straggler(self):
        once = [900 * MS] + [0] * (self.CALLS - 1)
        job = self.write([once, [0] * self.CALLS, once])
        self.assertEqual(job["collectives"]["waiting_at_least_ns"], 2 * 900 * MS)
        self.assertEqual(self.stragglers(job), [])

    def test_windows_of_which_not_all_is_known(self):
        """What ran in them is in nccl_sum.csv, and their time, or some of it, in no table: no share of that, and no straggler by it."""
        late = [3 * MS] * self.CALLS
        for number, (device_time, known) in enumerate(((500 * MS, True), ("", False), (1999 * MS, False), (2000 * MS, True))):
            for rank, waits in enumerate((late, [0] * self.CALLS, late)):
                folder = ranks.write_rank(self.folder / f"{number}" / f"r{rank}", rank, [100 * MS] * 20, nccl=[ranks.collective(self.CALLS, self.TRANSFER, waits, world=3)])
                if rank == 1:
                    duration = 500 * MS if number == 0 else 2000 * MS
                    with open(folder / "window_sum.csv", "a", encoding="utf-8") as file:
                        for device in ("all", "0"):
                            cells = {"Window": 2, "Device": device, "State": "closed", "Duration (ns)": duration, "Device Time (ns)": device_time,
                                     "Kernel Busy (ns)": device_time and 0}
                            file.write(",".join(str(cells.get(column, "")) for column in ranks.WINDOW) + "\n")
            job = self.job(self.folder / str(number))
            shares = [row["collectives"]["share"] is not None for row in job["by_rank"]]
            self.assertEqual((shares, job["collectives"]["share"] is not None, self.stragglers(job)), ([True, known, True], known, [(1, "collectives")] if known else []), device_time)
            self.assertEqual(self.said, [] if known else ["shares of the time in collectives, and stragglers by them, are not known, as not all of the windows' GPU time is: rank 1"])

    def test_what_can_not_be_split(self):
        late = [MS] * self.CALLS
        job = self.write([late, [0] * self.CALLS], world=2, operation="Broadcast")
        self.assertEqual((job["collectives"]["split_share"], job["collectives"]["waiting_at_least_ns"]), (0, 0))
        self.assertRegex(self.said[0], r"^100\.0% of the collectives' time is not split ")

    def test_communicators_of_some_ranks(self):
        job = self.write([[MS] * self.CALLS, [0] * self.CALLS] * 2, world=2)
        self.assertEqual(job["collectives"]["split_share"], 0)
        self.assertIsNone(job["by_rank"][0]["collectives"]["waiting_at_least_ns"])

    def test_other_numbers_of_calls(self):
        self.assertEqual(self.write([[MS] * 10, [0] * 11])["collectives"]["split_share"], 0)

    def test_calls_that_share_a_kernel(self):
        """Three in a group, with a third of its time each."""
        for rank in range(2):
            row = ranks.collective(30, MS, [rank * 300] * 30, world=2)
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, nccl=[{**row, "Grouped": "yes", "Kernels": 10}])
        spent = self.job()["collectives"]
        self.assertEqual((spent["waiting_at_least_ns"], spent["waiting_at_most_ns"]), (9000, 9000))

    def test_none(self):
        self.assertIsNone(self.job(ranks.write_job(self.folder, 2))["collectives"])


class Communicators(Case):
    """Collectives are compared within their communicator, if nccl_sum.csv has it."""

    CALLS, TRANSFER = 100, 2 * MS

    def row(self, communicator, size, wait, calls=CALLS, **more):
        return ranks.collective(calls, self.TRANSFER, [wait] * calls, world=size, Communicator=communicator, **more)

    def write(self, rows, **more):
        for rank, of_rank in enumerate(rows):
            ranks.write_rank(self.folder / f"r{rank}", rank, [100 * MS] * 20, nccl=of_rank, **more)
        return self.job()

    def test_tensor_and_data_parallel(self):
        # Tensor parallel: 0-3 and 4-7, the latter with twice the work; data parallel: pairs across. Rank 2 is last among the first four.
        late = MS
        job = self.write([[self.row(f"0xt{rank // 4}", 4, 0 if rank == 2 or rank > 3 else late, calls=100 if rank < 4 else 200),
                           self.row(f"0xd{rank % 4}", 2, 0)] for rank in range(8)])
        spent = job["collectives"]
        self.assertEqual((spent["split_share"], spent["waiting_at_least_ns"], spent["waiting_at_most_ns"]), (1, 300 * late, 300 * late))
        self.assertEqual([row["collectives"]["waiting_at_least_ns"] // late for row in job["by_rank"]], [100, 100, 0, 100, 0, 0, 0, 0])
        self.assertEqual(self.stragglers(job), [(2, "collectives")])
        self.assertEqual(job["stragglers"][0]["waited_for_ns"], 100 * late)
        found = {entry["id"]: (entry["size"], entry["given"], entry["ranks"], entry["kernels"], entry["waiting_at_least_ns"])
                 for entry in spent["communicators"]}
        self.assertEqual(found, {"0xt0": (4, 4, "0-3", 400, 300 * late), "0xt1": (4, 4, "4-7", 800, 0),
                                 **{f"0xd{index}": (2, 2, f"{index}, {index + 4}", 200, 0) for index in range(4)}})
        # Equal calls are one row of the table of operations, whatever their communicator.
        self.assertEqual([(row["ranks"], row["made_by"], row["kernels"]) for row in spent["operations"]], [(4, 8, 1200), (2, 8, 800)])
        self.assertEqual(self.said, [])

    def test_two_communicators_of_all_ranks(self):
        def rows(rank, **more):
            return [{**self.row("0xa", 2, 0 if rank == 0 else MS), **more}, {**self.row("0xb", 2, 0 if rank == 1 else MS), **more}]

        job = self.write([rows(0), rows(1)])
        self.assertEqual([row["collectives"]["waiting_at_least_ns"] for row in job["by_rank"]], [100 * MS, 100 * MS])
        # As in older folders: sums over both, in which neither waits.
        other = self.folder / "older"
        for rank in range(2):
            ranks.write_rank(other / str(rank), rank, [100 * MS] * 20, nccl=[
                {name: cell for name, cell in ranks.collective(200, self.TRANSFER, [0, MS] * 100, world=2).items() if name != "Communicator"}])
        (job,) = self.merge(other)["jobs"]
        self.assertEqual([row["collectives"]["waiting_at_least_ns"] for row in job["by_rank"]], [0, 0])
        self.assertEqual((job["collectives"]["communicators"], job["collectives"]["split_share"]), ([], 1))

    def test_some_of_the_ranks(self):
        # Three of a communicator of four are present, as is one of another communicator.
        job = self.write([[self.row("0xa", 4, rank * MS)] for rank in range(3)] + [[self.row("0xb", 4, 0)]], job=ranks.place(0, 8))
        self.assertEqual((job["collectives"]["waiting_at_least_ns"], job["collectives"]["split_share"]), (300 * MS, 9 / 11))
        self.assertEqual([(entry["ranks"], entry["given"], entry["split_ns"]) for entry in job["collectives"]["communicators"]],
                         [("0-2", 3, 900 * MS), ("3", 1, None)])
        self.assertRegex(self.said[-1], r"^18\.2% of the collectives' time is not split .* only one of them is here")

    def test_calls_that_not_all_make(self):
        # One of its ranks has other calls than the other.
        job = self.write([[self.row("0xa", 2, 0), self.row("0xa", 2, 0, bytes=4096)], [self.row("0xa", 2, MS), self.row("0xa", 2, 0, calls=99, bytes=4096)]])
        self.assertEqual(job["collectives"]["waiting_at_least_ns"], 100 * MS)
        job = self.job(ranks.write_rank(self.folder / "x", 0, [MS], nccl=[self.row("0xa", 2, 0)]),
                       ranks.write_rank(self.folder / "y", 1, [MS], nccl=[self.row("", 2, MS)]))
        self.assertEqual(job["collectives"]["split_share"], 0)

    def test_shown(self):
        self.write([[self.row("0xa", 2, rank * MS), self.row("0xb<i>\x1b[31m", 2, 0)] for rank in range(2)])
        done = folders.invoke("merge", self.folder, "-o", self.folder / "page.html")
        self.assertRegex(done.stdout, r"Communicators by time\n *\n Communicator +Size +Ranks")
        self.assertRegex(done.stdout, r"0xa +2 +0-1 +200 +500\.000ms +100\.000ms +100\.000ms")
        self.assertNotIn("\x1b", done.stdout)
        self.assertNotIn("0xb<i>", (self.folder / "page.html").read_text())


class Links(Case):
    def test_bus_bandwidth(self):
        for rank, wait in enumerate((0, 2 * MS)):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, nccl=[
                ranks.collective(10, 2 * MS, [wait] * 10, world=2), ranks.collective(10, 8 * MS, [wait] * 10, world=2, operation="AllGather"),
                ranks.collective(10, 8 * MS, [wait] * 10, world=2, operation="Send", **{"Peer/Root": str(1 - rank)}),
                ranks.collective(10, 1000, [0] * 10, world=2, bytes=64)])
        links = self.job()["links"]
        self.assertEqual([(row["operation"], row["best_gbps"], row["best_rank"], row["worst_gbps"], row["worst_rank"]) for row in links["bus"]],
                         [("AllGather", 4.194, 0, 3.355, 1), ("AllReduce", 33.554, 0, 16.777, 1)])
        self.assertEqual([(row["rank"], row["peer"], row["best_gbps"]) for row in links["peers"]], [(1, "0", 6.711), (0, "1", 8.389)])

    def test_copies(self):
        for rank in range(4):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, link=40.0 if rank == 2 else 85.0)
        first, *others = self.job()["links"]["copies"]
        self.assertEqual((first["rank"], first["link_percent"], first["slow"], first["median_gbps"]), (2, 40.0, True, 53.55))
        self.assertEqual([row["slow"] for row in others], [False] * 3)


CODE_KEYS = {"op_sum": ("Operator",), "module_sum": ("Module",), "line_sum": ("File", "Line", "Function"), "gap_line_sum": ("File", "Line", "Function")}
CODE_NAMES = {"op_sum": "operators", "module_sum": "modules", "line_sum": "lines", "gap_line_sum": "gap_lines"}


class Code(Case):
    """What launches the kernels, with ranks that each have a part of the model."""

    def write(self, folder, rank, chance, *, without=()):
        """Writes the rows of each table, and the stacks."""
        places = [("", "", name) for name in ("[none]", "[unattributed]")] + [(f"/me/m{at % 3}.py", at, f"F{at}.forward") for at in range(1, 9)]
        names = {"op_sum": [(name,) for name in ("aten::mm", "aten::add", f"Own{rank}", "[none]")],
                 "module_sum": [(name,) for name in ("Net", "Net.first", f"Net.layers.{rank}", "[none]")], "line_sum": places,
                 "gap_line_sum": [*places, ("", "", "[device]")]}
        found = {}
        for table, keys in names.items():
            keys = chance.sample(keys, chance.randrange(2, len(keys) + 1))
            rows = [{**dict(zip(CODE_KEYS[table], key, strict=True)), **{column: chance.randrange(10**6) for column in SUMS[table]}} for key in keys]
            for row in rows:
                row |= {"FLOPs": chance.randrange(100) * 10**15} if "FLOPs" in row else {}
                row |= {"Class": "Linear", "Depth": 1, "Parent": "" if row["Module"] in ("Net", "[none]") else "Net"} if table == "module_sum" else {}
                row |= {"In Library": 0} if table == "line_sum" else {}
            folders.write_table(folder, table, [{column: cell for column, cell in row.items() if column not in without} for row in rows])
            found[table] = rows
        stacks = [(chance.choice(PHASES), f"train (/me/m.py:{at}) {rank % 2}", f"kernel{chance.randrange(3)}", chance.randrange(10**6)) for at in range(30)]
        (folder / "gpu_stacks.folded").write_text("".join(f"{phase};{frame};{kernel} {time}\n" for phase, frame, kernel, time in stacks), encoding="utf-8")
        return found, stacks

    def of_ranks(self, job, having):
        chance = random.Random(7)
        ranks.write_job(job, having + 1)
        return [self.write(job / f"rank-{rank}", rank, chance) for rank in range(having)]

    def test_sums(self):
        written = self.of_ranks(self.folder / "job", 5)
        job = self.job(self.folder / "job")
        self.assertIn("no operators, modules and lines: rank 5", self.said)
        for table, name in CODE_NAMES.items():
            expected = collections.defaultdict(collections.Counter)
            having = collections.Counter()
            most = {}
            time = SUMS[table][0]
            for rank, (tables, _) in enumerate(written):
                for row in tables[table]:
                    key = tuple(row[column] or None for column in CODE_KEYS[table])
                    expected[key].update({column: row[column] for column in SUMS[table]})
                    having[key] += 1
                    most[key] = max(most.get(key, (-1, 0)), (row[time], -rank))
            found = {tuple(row[column.lower()] or None for column in CODE_KEYS[table]): row for row in job["code"][name]["rows"]}
            self.assertEqual(set(found), set(expected))
            total = sum(sums[time] for sums in expected.values())
            for key, row in found.items():
                for column, value in expected[key].items():
                    shown_as = column.removeprefix("Idle: ").replace(" (ns)", "_ns").replace(" ", "_").replace("-", "_").lower()
                    self.assertEqual(row[shown_as], float(value) if column == "FLOPs" else value, column)
                self.assertEqual((row["ranks"], row["most_ns"], -row["most_rank"]), (having[key], *most[key]))
                self.assertAlmostEqual(row["share"], expected[key][time] / total)
            self.assertEqual((job["code"][name]["ranks"], job["code"][name]["time_ns"], job["code"][name]["of"]), (5, total, len(expected)))
        # Some cells of one rank are as in an older version: the sum is unknown, rather than too low.
        self.write(self.folder / "job" / "rank-2", 2, random.Random(1), without=("Own Work (ns)", "Memory-bound (ns)"))
        with open(self.folder / "job" / "rank-2" / "gap_line_sum.csv", newline="", encoding="utf-8") as file:
            old = {tuple(row[column] for column in CODE_KEYS["gap_line_sum"]) for row in csv.DictReader(file)}
        for row in self.job(self.folder / "job")["code"]["gap_lines"]["rows"]:
            self.assertEqual(row["own_work_ns"] is None, (row["file"], str(row["line"] or ""), row["function"]) in old, row)

    def test_none(self):
        self.assertIsNone(self.job(ranks.write_job(self.folder, 2))["code"])
        self.assertEqual([text for text in self.said if "modules" in text], [])

    def test_page_and_copies(self):
        written = self.of_ranks(self.folder / "job", 3)
        done = folders.invoke("merge", self.folder / "job", "-o", self.folder / "job.html", "--parquet", self.folder / "copy", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        (sections,) = folders.sections_of(self.folder / "job.html")
        icicles = {each["id"]: each for each in sections["code"]["icicles"]}
        times = collections.Counter()
        for _, stacks in written:
            for phase, _, _, took in stacks:
                times[phase] += took
        self.assertEqual(icicles["stack-icicle"]["boxes"][0][3:], [times[phase] for phase in PHASES])
        kernels = collections.Counter()
        for _, stacks in written:
            for _, frame, kernel, took in stacks:
                kernels[frame, kernel] += took
        texts = [text for text, _ in icicles["stack-icicle"]["names"]]
        found = collections.Counter()
        for around, name, count, *by_phase in icicles["stack-icicle"]["boxes"]:
            if name >= 0 and texts[name].startswith("kernel"):
                self.assertEqual(count, 1)
                found[texts[icicles["stack-icicle"]["boxes"][around][1]], texts[name]] += sum(by_phase)
        self.assertEqual(found, kernels)
        self.assertIn("module-icicle", icicles)
        self.assertEqual([table["id"] for table in sections["code"]["tables"]], ["modules", "lines", "operators", "gap_lines"])
        self.assertEqual(rounded(self.merge(self.folder / "copy")), rounded(json.loads(done.stdout)))
        # Copies of a version without these tables.
        for table in SUMS:
            (self.folder / "copy" / f"{table}.parquet").unlink()
        self.assertIsNone(self.job(self.folder / "copy")["code"])
        self.assertEqual([text for text in self.said if "missing" in text], [])
        self.assertIn("Lines of the program that the GPUs waited for", folders.invoke("merge", self.folder / "job").stdout)


class Scaling(Case):
    def write(self, batch, without=()):
        """`without`: the jobs with known step times without the profiler, which are nine tenths of the others."""
        for world, step in ((2, 100), (8, 125), (4, 110)):
            for rank in range(world):
                ranks.write_rank(self.folder / f"n{world}" / str(rank), rank, [step * MS] * 10, batch=batch,
                                 unprofiled=step * MS * 9 // 10 if world in without else None)
        return self.merge(*(self.folder / f"n{world}" for world in (2, 4, 8)))["scaling"]

    def test_by_samples(self):
        scaling = self.write(32)
        self.assertEqual((scaling["by"], scaling["base"]), ("samples_per_s", "n2"))
        for row, (world, step) in zip(scaling["jobs"], ((2, 0.1), (4, 0.11), (8, 0.125)), strict=True):
            self.assertEqual(row["ranks"], world)
            self.assertAlmostEqual(row["samples_per_s"], 32 * world / step)
            self.assertAlmostEqual(row["efficiency"], 0.1 / step)
            self.assertAlmostEqual(row["speedup"], world / 2 * 0.1 / step)

    def test_slow_steps(self):
        """The tables' rates may have a single decimal: 0.5 and 0.6 samples a second."""
        for unprofiled in (False, True):
            for world, step in ((2, 1830), (4, 1810)):
                for rank in range(world):
                    ranks.write_rank(self.folder / f"{unprofiled}" / f"n{world}" / str(rank), rank, [step * MS] * 10, batch=1,
                                     unprofiled=step * MS if unprofiled else None)
            scaling = self.merge(*(self.folder / f"{unprofiled}" / f"n{world}" for world in (2, 4)))["scaling"]
            self.assertEqual(scaling["by"], "samples_per_s")
            self.assertAlmostEqual(scaling["jobs"][1]["efficiency"], 1830 / 1810)

    def test_by_units(self):
        for unprofiled in (None, 90 * MS):
            for world in (2, 4):
                for rank in range(world):
                    ranks.write_rank(self.folder / f"n{world}" / str(rank), rank, [100 * MS] * 10, units=("called", 1000 + rank), unprofiled=unprofiled)
            scaling = self.merge(self.folder / "n2", self.folder / "n4")["scaling"]
            self.assertEqual(scaling["by"], "units_per_s")
            for row, world in zip(scaling["jobs"], (2, 4), strict=True):
                self.assertAlmostEqual(row["units_per_s"], sum(1000 + rank for rank in range(world)) / (0.09 if unprofiled else 0.1), places=4)
            for world in (2, 4):
                shutil.rmtree(self.folder / f"n{world}")

    def test_units_of_several_kinds_do_not_add_up(self):
        for rank, units in enumerate((("called", 10), ("payload", 10), ("called", 10))):
            ranks.write_rank(self.folder / "kinds" / str(rank), rank, [100 * MS] * 10, units=units)
            ranks.write_rank(self.folder / "some" / str(rank), rank, [100 * MS] * 10, units=units if rank != 1 else None)
            ranks.write_rank(self.folder / "all" / str(rank), rank, [100 * MS] * 10, units=("payload", 10))
        for name, rate in (("kinds", None), ("some", None), ("all", 300)):
            (job,) = self.merge(self.folder / name)["jobs"]
            self.assertEqual(job["throughput"]["units_per_s"], rate, name)

    def test_jobs_whose_units_are_others_are_compared_by_steps(self):
        data, tokens = {"INJECT_BATCH": "nvtx:data"}, {"INJECT_BATCH": "nvtx:tokens"}
        for number, (kinds, by) in enumerate((
                ((("called", 1e5, {}), ("payload", 64, data)), "steps_per_s"),
                ((("payload", 1e5, tokens), ("payload", 64, data)), "steps_per_s"),
                ((("payload", 64, data), ("payload", 64, data)), "units_per_s"),
                ((("stated", 64, {"INJECT_BATCH": "64"}), ("stated", 32, {"INJECT_BATCH": "32"})), "samples_per_s"),
                ((("called", 0, {}), ("called", 0, {})), "steps_per_s"))):
            places = [self.folder / f"{number}" / name for name in ("n2", "n4")]
            for place, world, (source, units, options) in zip(places, (2, 4), kinds, strict=True):
                for rank in range(world):
                    ranks.write_rank(place / str(rank), rank, [100 * MS] * 10, units=(source, units), unprofiled=90 * MS if number % 2 else None,
                                     options=options)
            for copies in (False, True):
                with self.subTest(kinds=kinds, copies=copies):
                    scaling = self.merge(*places)["scaling"]
                    self.assertEqual((scaling["by"], [round(row["efficiency"], 6) for row in scaling["jobs"]]),
                                     (by, [1, 0.5] if number == 3 else [1, 1]))
                for place in () if copies else places:
                    folders.invoke("merge", place, "--parquet", place.parent / f"{place.name}.copy")
                places = [place.parent / f"{place.name}.copy" for place in places]

    def test_ranks_whose_units_are_others_have_no_sum(self):
        for rank, name in enumerate(("data", "data", "tokens")):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 10, units=("payload", 64), options={"INJECT_BATCH": f"nvtx:{name}"})
        self.assertIsNone(self.job()["throughput"]["units_per_s"])

    def test_by_steps(self):
        scaling = self.write(None)
        self.assertEqual((scaling["by"], [row["speedup"] for row in scaling["jobs"]]), ("steps_per_s", [None] * 3))
        self.assertEqual([round(row["efficiency"], 6) for row in scaling["jobs"]], [1, round(100 / 110, 6), 0.8])

    def test_all_jobs_by_step_times_of_the_same_kind(self):
        for without, kind, said in (((2, 4, 8), True, []), ((2, 8), False, [
                "scaling is by step times in windows, which include the profiler's overhead: not every rank has seven step times without it in n4"])):
            scaling = self.write(32, without)
            self.assertEqual(([row["unprofiled"] for row in scaling["jobs"]], self.said), ([kind] * 3, said))
            for row, step in zip(scaling["jobs"], (100, 110, 125), strict=True):
                self.assertAlmostEqual(row["step_ns"], step * MS * (0.9 if kind else 1))
                self.assertAlmostEqual(row["efficiency"], 100 / step, places=4)
            for world in (2, 4, 8):
                shutil.rmtree(self.folder / f"n{world}")

    def test_missing_ranks_count_as_average_ones(self):
        for rank in (0, 1, 3):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 10, batch=10)
        job = self.job()
        self.assertAlmostEqual(job["throughput"]["samples_per_s"], 400)
        self.assertEqual(self.said, ["1 of 4 ranks is missing: 2"])

    def test_one_size_is_no_scaling(self):
        for job in "ab":
            ranks.write_job(self.folder / job, 2)
        self.assertIsNone(self.merge(self.folder / "a", self.folder / "b")["scaling"])


class Ranks(Case):
    def test_hosts_in_folders_of_their_own(self):
        for rank in range(4):
            ranks.write_rank(self.folder / f"node{rank // 2}" / f"r{rank}", rank, [100 * MS] * 5)
        paths = self.folder / "node0", self.folder / "node1"
        (job,) = self.merge(*paths)["jobs"]
        self.assertEqual((job["ranks"], job["name"]), (4, self.folder.name))
        self.assertEqual([job["name"] for job in self.merge(*paths, how="folders")["jobs"]], ["node0", "node1"])

    def test_gpus_are_those_that_a_rank_worked_on(self):
        seen = [{"id": device, "name": "NVIDIA H200"} for device in range(8)] + [{"id": 8, "name": "NVIDIA T400"}]
        for rank in range(2):
            ranks.write_rank(self.folder / "job" / str(rank), rank, [100 * MS] * 5, devices=seen,
                             diagnosis=[{"device": rank, "verdict": "launch-bound", "device_time_ns": 500 * MS, "potential_gain_ns": MS}])
        self.assertEqual(self.job(self.folder / "job")["gpus"], {"NVIDIA H200": 2})
        # Nothing worked: the tables have what was seen.
        for rank in range(2):
            ranks.write_rank(self.folder / "idle" / str(rank), rank, [100 * MS] * 5, devices=seen, diagnosis=[])
        self.assertEqual(self.job(self.folder / "idle")["gpus"], {"NVIDIA H200": 16, "NVIDIA T400": 2})

    def test_folders_by_name(self):
        ranks.write_job(self.folder, 12)
        paths = [self.folder / f"rank-{rank}" for rank in (3, 0, 1, 2)]
        self.assertEqual(self.job(*paths, self.folder / "rank-0", self.folder)["ranks"], 12, "each once")
        self.assertEqual(self.job(*paths)["ranks"], 4)

    def test_missing(self):
        for rank in (1, 2, 5):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, nccl=[ranks.collective(5, MS, [0] * 5, world=16)])
        job = self.job()
        self.assertEqual((job["world"], job["missing"]), (16, "0, 3-4, 6-15"))
        self.assertEqual(self.said[0], "13 of 16 ranks are missing: 0, 3-4, 6-15: NCCL's communicators have 16")

    def test_missing_by_the_launchers_word(self):
        for rank in (0, 1, 2, 4, 6, 7):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, job=ranks.place(rank, 8))
        job = self.job()
        self.assertEqual((job["ranks"], job["world"], job["missing"], job["id"]), (6, 8, "3, 5", "torchrun:training slurm:4711"))
        self.assertEqual(self.said[0], "2 of 8 ranks are missing: 3, 5")
        self.assertIn("6 of 8 ranks on 1 host", folders.invoke("merge", self.folder).stdout)

    def test_jobs_by_id(self):
        # Side by side in one folder, with the same ranks or not.
        for number, id in enumerate(("slurm:1.0", "slurm:2.0", "slurm:3.0")):
            for rank in range(2):
                rank += 2 * (number == 2)
                ranks.write_rank(self.folder / f"j{number}-{rank}", rank, [100 * MS] * 5, job=ranks.place(rank, 2 + 2 * (number == 2), id=id))
        jobs = self.merge()["jobs"]
        self.assertEqual([(job["ranks"], job["world"], job["id"]) for job in jobs], [(2, 2, "slurm:1.0"), (2, 2, "slurm:2.0"), (2, 4, "slurm:3.0")])
        self.assertEqual([job["name"] for job in jobs], [f"{self.folder.name} (slurm:{number}.0)" for number in (1, 2, 3)])
        (job,) = self.merge(how="one", force=True)["jobs"]
        self.assertEqual(job["ranks"], 4)
        self.assertIn("the ranks' run.json do not agree on how many ranks the job has: 2 (rank 0-1), 4 (rank 2-3)", self.said)

    def test_one_id_for_several_jobs(self):
        # One after another in an allocation, the second one in two folders; only the ranks distinguish them.
        for name, world in (("n2", 2), ("n4", 4)):
            ranks.write_job(self.folder / name, world, job=lambda rank, world=world: ranks.place(rank, world, id="slurm:4711"))
        jobs = self.merge(self.folder / "n2", self.folder / "n4")["jobs"]
        self.assertEqual([(job["name"], job["ranks"], job["world"]) for job in jobs], [("n2", 2, 2), ("n4", 4, 4)])

    def test_who_shares_a_communicator_is_of_one_job(self):
        def write(name, rank, communicator, **more):
            row = ranks.collective(5, MS, [0] * 5, world=4, Communicator=communicator)
            ranks.write_rank(self.folder / name / str(rank), rank, [100 * MS] * (5 + (name == "b")), nccl=[row], **more)

        # Two nodes' own ids, two pairs of one job.
        write("a", 0, "0x1", job=ranks.place(0, 4, id="one"))
        write("b", 1, "0x1", job=ranks.place(1, 4, id="other"))
        write("b", 2, "0x2", job=ranks.place(2, 4, id="other"))
        write("c", 0, "0x3", job=ranks.place(0, 4, id="third"))
        paths = [self.folder / name for name in "abc"]
        self.assertEqual([(job["ranks"], job["missing"]) for job in self.merge(*paths)["jobs"]], [(3, "3"), (1, "1-3")])
        # Without ids, a rank that occurs twice separates folders into jobs, except for those that share communicators.
        write("d", 0, "0x4")
        write("e", 0, "0x5")
        write("e", 1, "0x4")
        self.assertEqual([job["ranks"] for job in self.merge(self.folder / "d", self.folder / "e", force=True)["jobs"]], [2])
        self.assertIn("rank 0 occurs twice", self.said[0])
        self.assertEqual(len(self.merge(*(self.folder / name for name in "cde"), how="folders")["jobs"]), 3)

    def test_odd_places(self):
        places = (7, [], {"id": 7, "world_size": "2"}, {"id": "\x1b[31m<b>" + 5000 * "x", "world_size": 2**64 - 1}, {"world_size": -1},
                  {"id": "\ud800", "world_size": True}, {"world_size": 2**40, "id": None})
        for rank, odd in enumerate(places):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, job=odd)
        jobs = self.merge()["jobs"]
        self.assertEqual([(job["ranks"], job["world"]) for job in self.merge(how="one", force=True)["jobs"]], [(7, 7)])
        self.assertEqual(sum(job["ranks"] for job in jobs), 7)
        done = folders.invoke("merge", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_duplicates(self):
        for name, rank, count in (("a", 0, 5), ("b", 1, 3), ("b.1", 1, 9)):
            ranks.write_rank(self.folder / name, rank, [100 * MS] * count)
        job = self.job(force=True)
        self.assertEqual([row["step"]["iterations"] for row in job["by_rank"]], [5, 9])
        self.assertEqual(self.said, ["b: left out: rank 1 occurs twice, and b.1 has more complete iterations, or is newer"])

    def test_none(self):
        for name in "ab":
            ranks.write_rank(self.folder / name, None, [100 * MS] * 5, host=f"h{'ba'.index(name)}")
        job = self.job()
        self.assertEqual([(row["rank"], row["host"]) for row in job["by_rank"]], [(0, "h0"), (1, "h1")])
        self.assertRegex(self.said[0], "^no rank in any run.json .*: ranks are numbered by host and start time$")

    def test_some_without(self):
        for name, rank in (("a", 0), ("b", None), ("c", 1)):
            ranks.write_rank(self.folder / name, rank, [100 * MS] * 5)
        self.assertEqual(self.job()["ranks"], 2)
        self.assertEqual(self.said, ["b: left out: it has no rank, while others of the job have one"])

    def test_odd_ranks(self):
        for index, rank in enumerate((0, "-1", "1e3", [], "99999999999999999999", True)):
            ranks.write_rank(self.folder / str(index), 0, [100 * MS] * 5, rank=rank)
        self.assertEqual(self.job()["ranks"], 1)
        self.assertIn("1/run.json: '-1' is not a rank: a number is expected", self.said)
        self.assertEqual(len(self.said), 10)

    def test_usage(self):
        ranks.write_rank(self.folder / "0", 0, [100 * MS] * 5, lost={"host_records": 7, "names": 0}, utilization=0.5, verdict="input-bound", peak=100.0)
        ranks.write_rank(self.folder / "1", 1, [100 * MS] * 5, state="open", messages=["no CUPTI"],
                         diagnosis=[{"device": 0, "verdict": "GPU-bound (compute)", "device_time_ns": 500 * MS}])
        job = self.job()
        first, second = job["by_rank"]
        self.assertEqual((first["utilization"], first["peak_memory_mb"], first["device_memory_in_use_mb"], first["potential_gain"]), (0.5, 100, 600, 0.1))
        self.assertEqual((first["lost"], job["lost"], second["messages"]), ({"host_records": 7}, {"host_records": 7}, ["no CUPTI"]))
        self.assertNotIn("cores_used", first)
        self.assertIsNone(second["potential_gain"])
        self.assertEqual(job["verdicts"], {"input-bound": 1, "GPU-bound (compute)": 1})
        self.assertEqual(self.said, ["cut off, or still running ('injectctl recover' completes the tables of a killed process): rank 1"])

    def test_what_recovery_could_not_complete(self):
        for rank, recovered in enumerate(({"calls_not_kept": 5, "records_refused": 0, "bytes_unread": 8, "journal_cut": True},
                                          {"journal_cut": True, "tables_kept": True}, {"journal_cut": False})):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5, state="recovered", recovered=recovered)
        job = self.job()
        self.assertEqual((job["lost"], job["by_rank"][0]["gaps"]), ({"calls_not_kept": 5, "bytes_unread": 8}, ["journal_cut"]))
        self.assertEqual(self.said, [("killed, and not recovered completely: the journal is damaged: rank 0-1; "
                                      "the tables are those that the process last wrote: rank 1")])
        shutil.rmtree(self.folder / "0")
        self.assertIn("not counted: recovery was not complete", folders.inject("merge", self.folder).stdout)

    def test_processors(self):
        """Weighted by the time of the windows that were read; the tighter limit counts."""
        header = ["Window", "Role", "Total", "Span (ns)", "Processor Time (ns)", "Cores by Affinity", "Cores by Quota", "Cores Used", "Cores Wanted"]
        for rank, quota in ((0, ""), (1, "2.000")):
            folder = ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 5)
            ranks.write(folder / "host_sum.csv", header, [
                [1, "main", "no", 100, 50, "", "", "", ""], [1, "process", "yes", 100, 60, 4, quota, "1.000", "2.000"],
                [2, "process", "yes", 300, 60, 4, quota, "3.000", "4.000"]])
            run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            (folder / "run.json").write_text(json.dumps({**run, "files": [*run["files"], "host_sum.csv"]}), encoding="utf-8")
        job = self.job()
        self.assertEqual([(row["cores_used"], row["cores_wanted"], row["cores_allowed"]) for row in job["by_rank"]], [(2.5, 3.5, 4), (2.5, 3.5, 2)])
        shown = folders.inject("merge", self.folder).stdout
        self.assertIn("used by a rank and its children: from 2.50 (rank 0) to 2.50 (rank 1)", shown)
        self.assertIn("more wanted than allowed on 1 rank, rank 1 first", shown)


class OfOneJob(Case):
    """Folders that are not ranks of one job are refused, in one line that says which and why."""

    def refusal(self, *arguments):
        done = folders.invoke("merge", self.folder, *arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        line = done.stderr.replace(f"{self.folder}/", "")
        self.assertEqual(line.count("\n"), 1, line)
        self.assertTrue(line.startswith("inject: ") and line.endswith("; --force merges them anyway\n"), line)
        return line.removeprefix("inject: ").partition("; --force")[0]

    def three(self, **by_folder):
        for number, name in enumerate("abc"):
            ranks.write_rank(self.folder / name, None, [(100 + 10 * number) * MS] * 9, **{key: values[number] for key, values in by_folder.items()})

    def test_three_programs(self):
        self.three(command_line=[["python3", f"{name}.py"] for name in ("resnet", "transformer", "speech")])
        self.assertEqual(self.refusal(), "a and b are not ranks of one job: they ran 'python3 resnet.py' and 'python3 transformer.py'")
        done = folders.invoke("merge", self.folder, "--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 ranks", done.stdout)

    def test_one_program_three_times(self):
        zero = 1_795_000_000_000_000_000
        self.three(time_zero=[{"utc_ns": zero + number * 3600 * 1000 * MS} for number in range(3)])
        self.assertEqual(self.refusal(), "a and b are not ranks of one job: one had ended 3579.100s before the other began")

    def test_clocks_and_ranks_in_commands(self):
        """Two hosts, a minute apart by their clocks, and what an old launcher adds to the commands."""
        for rank in range(2):
            ranks.write_rank(self.folder / str(rank), rank, [100 * MS] * 9, host=f"node{rank}", command_line=["train", f"--local_rank={rank}", "--rank", str(rank)],
                             time_zero={"utc_ns": 1_795_000_000_000_000_000 + rank * 60_000 * MS})
        self.assertEqual(self.job()["ranks"], 2)

    def test_a_rank_that_is_there_twice(self):
        for name, rank in (("a", 0), ("b", 1), ("c", 1)):
            ranks.write_rank(self.folder / name, rank, [100 * MS] * 9)
        self.assertEqual(self.refusal("--jobs", "one"), "b and c are not ranks of one job: both are rank 1")
        self.assertEqual(self.job(force=True)["ranks"], 2)

    def test_a_run_that_is_there_twice(self):
        """Without ranks in one job, with them in two."""
        same = {"pid": 7, "host": "node3", "time_zero": {"utc_ns": 1_795_000_000_000_000_000}}
        for job, rank in (("without", None), ("with", 0)):
            for name in "ab":
                folder = self.folder / job / name
                ranks.write_rank(folder if rank is None else folder / "0", rank, [100 * MS] * 9, **same)
        for paths, names in (([self.folder / "without"], ("without/a", "without/b")), ([self.folder / "with" / name for name in "ab"], ("with/a/0", "with/b/0"))):
            with self.assertRaises(NotOneJob) as caught:
                self.merge(*paths)
            self.assertEqual(str(caught.exception).replace(f"{self.folder}/", ""),
                             f"{names[0]} and {names[1]} are not ranks of one job: both are the one run of process 7 on node3; --force merges them anyway")
            self.assertEqual(sum(job["ranks"] for job in self.merge(*paths, force=True)["jobs"]), 2)
        # One thing differs: several processes, or unknown.
        for other in ({"pid": 8}, {"host": "node4"}, {"time_zero": {"utc_ns": 1_795_000_000_000_000_001}}, {"time_zero": {}}):
            shutil.rmtree(self.folder / "without" / "b")
            ranks.write_rank(self.folder / "without" / "b", None, [100 * MS] * 9, **{**same, **other})
            self.assertEqual(self.job(self.folder / "without")["ranks"], 2, other)

    def test_other_ids_and_sizes(self):
        for rank, id in enumerate(("slurm:1.0", "slurm:2.0")):
            ranks.write_rank(self.folder / "ids" / str(rank), rank, [100 * MS] * 9, job=ranks.place(rank, 2, id=id))
            ranks.write_rank(self.folder / "sizes" / str(rank), rank, [100 * MS] * 9, job=ranks.place(rank, 2 + rank))
        with self.assertRaisesRegex(NotOneJob, "ids/0 and .*ids/1 are not ranks of one job: jobs 'slurm:1.0' and 'slurm:2.0';"):
            self.merge(self.folder / "ids", how="one")
        with self.assertRaisesRegex(NotOneJob, "sizes/0 and .*sizes/1 are not ranks of one job: of 2 and of 3 ranks;"):
            self.merge(self.folder / "sizes")

    def test_who_shares_a_communicator(self):
        """Several programs can be one job: the same id, or a communicator in common, also through others."""
        for rank, met in enumerate((("0x1",), ("0x2",), ("0x1", "0x2"))):
            ranks.write_rank(self.folder / "met" / str(rank), rank, [100 * MS] * 9, command_line=[f"program{rank}"],
                             nccl=[ranks.collective(9, MS, [0] * 9, world=2, Communicator=each) for each in met])
            ranks.write_rank(self.folder / "id" / str(rank), rank, [100 * MS] * 9, command_line=[f"program{rank}"], job=ranks.place(rank, 3))
        for name in ("met", "id"):
            self.assertEqual(self.job(self.folder / name)["ranks"], 3)


class NotProfiled(Case):
    def test_iterations_that_were_not_profiled_are_blank(self):
        """Two windows; rank 1 has less of the second, and an iteration that its window's edge cut."""
        for rank in range(4):
            folder = ranks.write_rank(self.folder / "job" / str(rank), rank, [100 * MS] * 12)
            path = folder / "iteration_sum.csv"
            with open(path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            for row in rows:
                if row["Iteration"]:
                    row["Iteration"] = int(row["Iteration"]) + 1000 * (int(row["Iteration"]) >= 106)
                    row["Complete"] = 0 if rank == 2 and row["Iteration"] == 103 else 1
            folders.write_table(folder, "iteration_sum", [row for row in rows if not (rank == 1 and row["Iteration"] in (1109, 1110))])
        with Store() as store:
            collect.read(store, collect.find([self.folder / "job"], []), [])
            built = report.build(store, "auto", [])
            heat = report.heat_map(store, 0)
            page.page(built, [heat], [stack_boxes([])])
            drawn = page._heat(heat)
        self.assertEqual(heat["iterations"], [*range(100, 106), None, *range(1106, 1112)])
        missing = {(rank, iteration) for rank, row in enumerate(heat["ns"]) for iteration, cell in zip(heat["iterations"], row, strict=True) if cell is None}
        self.assertEqual(missing, {*((rank, None) for rank in range(4)), (1, 1109), (1, 1110), (2, 103)})
        self.assertEqual({cell for row in heat["ns"] for cell in row}, {100 * MS, None})
        self.assertEqual((heat["blank"], drawn.note), (3, "3 are blank: iterations that a rank has no step time of"))
        (job,) = built["jobs"]
        self.assertEqual([row["step"]["iterations"] for row in job["by_rank"]], [12, 10, 11, 12])
        self.assertEqual((job["compared"]["iterations"], job["compared"]["left_out"]), (9, 3))
        self.assertIn("9 iterations, 100 to 1111; 3 are left out because some ranks have no step time for them", dict(shown.lines(job)).get("", ""))


class Hostile(Case):
    EVIL = "<script>alert(1)</script>\x1b[31m\u202e\nx" + "y" * 5000

    def test_files(self):
        ranks.write_job(self.folder, 12, hosts=12)
        table = self.folder / "rank-1" / "iteration_sum.csv"
        whole = table.read_bytes()
        table.write_bytes(whole[: whole.rindex(b"iteration")])  # truncated within the last iteration's row
        lines = whole.count(b"\n", 0, whole.rindex(b"iteration")) + 1
        (self.folder / "rank-2" / "window_sum.csv").write_bytes(b"Window,Device,State,Duration (ns)\n1,all,closed,5\n1,all,closed,\x1b[31m\n")
        (self.folder / "rank-3" / "nccl_sum.csv").write_bytes(b"Operation,Bytes\nAllReduce,1\n")
        (self.folder / "rank-4" / "copy_sum.csv").unlink()
        (self.folder / "rank-5" / "memory_sum.csv").write_bytes(b'Device,Kind,API,Peak (MB)\n0,[all],"\xff')
        (self.folder / "rank-6" / "run.json").write_text('{"libinject": "0.1.0",\n"rank": ')
        (self.folder / "rank-7" / "run.json").write_text("[]")
        (self.folder / "rank-8" / "iteration_sum.csv").unlink()
        os.mkfifo(self.folder / "rank-8" / "iteration_sum.csv")
        (self.folder / "rank-9" / "memory_sum.csv").unlink()
        (self.folder / "rank-9" / "memory_sum.csv").mkdir()
        os.truncate(self.folder / "rank-10" / "window_sum.csv", 1 << 40)
        (self.folder / "rank-11" / "window_sum.csv").write_bytes(b"Window,Device,State,Duration (ns)\n1,all,closed,1e30\n")
        (self.folder / "foreign").mkdir()
        job = self.job(self.folder, self.folder / "none", self.folder / "foreign", self.folder / "rank-0" / "run.json")
        self.assertEqual((job["ranks"], job["missing"]), (10, "6-7"))
        self.assertEqual(self.said, [
            "none: no such folder", "foreign: neither a libinject folder (it has no run.json) nor one that contains such folders",
            "rank-0/run.json: not a folder",
            f"rank-1/iteration_sum.csv:{lines}: 3 cells, the header has {len(ranks.ITERATION)}",
            "rank-2/window_sum.csv:3: '\N{REPLACEMENT CHARACTER}[31m' in column 'Duration (ns)' is not a number",
            "rank-3/nccl_sum.csv:1: no column 'Type'", "rank-4/copy_sum.csv: missing, though run.json lists it",
            "rank-5/memory_sum.csv:1: not UTF-8 (invalid start byte)",
            "rank-6/run.json:2: not JSON: Expecting value", "rank-7/run.json:1: not written by libinject: it does not say which version wrote it",
            "rank-8/iteration_sum.csv: not a regular file", "rank-9/memory_sum.csv: not a regular file", "rank-10/window_sum.csv: far too large: 1099511627776 bytes, at most 134217728 are read",
            "rank-11/window_sum.csv:2: '1e30' in column 'Duration (ns)' is not a number", "2 of 12 ranks are missing: 6-7",
            "no window: rank 2, 10-11", "no complete iteration with a step time: rank 1, 8"])
        self.assertEqual(job["compared"]["ranks"], 8)

    def test_tables_of_an_earlier_moment_are_named(self):
        for rank in range(2):
            ranks.write_rank(self.folder / f"rank-{rank}", rank, [100 * MS] * 5, **({"stale_files": ["iteration_sum.csv"]} if rank else {}))
        done = folders.inject("merge", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank-1: iteration_sum.csv older than the other tables", done.stderr)
        self.assertNotIn("rank-0:", done.stderr)

    def test_names(self):
        """Patterns for DuckDB, markup, escape sequences: in names of folders, hosts and columns' texts."""
        evil = self.folder / os.fsdecode(b"job[0]*?'\"<b>\x1b[31m\xff\n")
        for rank in range(2):
            ranks.write_rank(evil / f"r*[{rank}]", rank, [100 * MS] * 5, host=self.EVIL, verdict=self.EVIL, devices=[{"name": self.EVIL}, 7, None],
                             command_line=[self.EVIL, 7], messages=[self.EVIL, {}], lost={self.EVIL: 3, "x": "y"}, diagnosis=[7, {"verdict": self.EVIL}],
                             nccl=[ranks.collective(5, MS, [rank * MS] * 5, world=2, Type=self.EVIL)], link=20.0 * (rank + 1), time_zero=7)
        copies = self.folder / "copies [1]"
        (evil / "r*[0]" / "copy_sum.csv").unlink()
        done = folders.inject("merge", evil, "-o", self.folder / "a.html", "--parquet", copies)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("copy_sum.csv: missing", done.stderr)
        for text in (done.stdout, f"{done.stderr}\n", folders.inject("merge", copies).stdout):
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\u202e", text)
            self.assertLess(max(map(len, text.splitlines())), 400)
        page = (self.folder / "a.html").read_text(encoding="utf-8")
        self.assertNotIn("<script>alert", page)
        self.assertNotIn("<b>", page)
        self.assertIn(html.escape("<script>alert(1)</script>"), page)
        as_json = json.loads(folders.inject("merge", "--json", evil).stdout)
        self.assertEqual(as_json["jobs"][0]["by_rank"][1]["host"], self.EVIL)

    def test_numbers(self):
        """Sums and products of the largest accepted numbers, and one that is refused."""
        for rank in range(3):
            ranks.write_rank(self.folder / str(rank), rank, [1 << 53] * 6, nccl=[
                {**ranks.collective(1, 1, [0], world=3), "Kernels": 1 << 53, "GPU Time (ns)": 1 << 53, "GPU Min (ns)": 1 << 53,
                 "GPU Max (ns)": -(1 << 53)}], time_zero={"utc_ns": (1 << 62) - 1}, start=-(1 << 50))
        # The starts add up to more than that.
        self.job()
        self.assertRegex(self.said[0], r"^0/iteration_sum\.csv: [0-9]{17} in column 'Start \(ns\)' is too large$")
        for rank in range(3):
            path = self.folder / str(rank) / "iteration_sum.csv"
            path.write_text(re.sub(r"(,(?:all|0)),-?[0-9]+", rf"\1,{1 << 53}", path.read_text()))
        job = self.job()
        self.assertEqual((job["step_ns"], job["skew"]["max_ns"]), (1 << 53, 0))
        self.assertEqual(job["collectives"]["collective_ns"], 3 << 53)

    def test_surrogates(self):
        folder = ranks.write_rank(self.folder / "a", 0, [100 * MS] * 5)
        text = (folder / "run.json").read_text().replace('"node0"', '"\\ud800"')
        (folder / "run.json").write_text(text)
        self.assertEqual(self.job()["by_rank"][0]["host"], "?")

    def test_folders_without_run_json(self):
        """Processes that were killed early: they are reported, not skipped."""
        ranks.write_job(self.folder / "job", 6)
        for rank, left in ((1, "records"), (2, "records.at"), (3, "window_sum.csv"), (4, "notes")):
            folder = self.folder / "job" / f"rank-{rank}"
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / left).touch()
        said = [f"job/rank-{rank}: left out: it has no run.json; if its process was killed, 'injectctl recover' makes it" for rank in (1, 2, 3)]
        self.assertEqual(self.job(self.folder / "job")["ranks"], 2)
        self.assertEqual(self.said, [*said, "4 of 6 ranks are missing: 1-4"])
        # Named explicitly, whatever it contains.
        (self.folder / "job" / "rank-1" / ".recovering").mkdir()
        (self.folder / "job" / "rank-1" / ".recovering" / "window_sum.csv").touch()
        done = folders.invoke("merge", self.folder / "job" / "rank-1")
        self.assertEqual((done.returncode, done.stderr.replace(f"{self.folder}/", "").splitlines()), (2, [f"inject: {said[0]}", "inject: no result folders to merge"]))

    def test_no_window_has_a_number(self):
        folder = ranks.write_rank(self.folder / "a", 0, [100 * MS] * 5, unprofiled=80 * MS)
        path = folder / "window_sum.csv"
        path.write_text(path.read_text().replace("\n1,", "\n[other],"))
        done = folders.invoke("merge", self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("step time    100.000ms, median of 5 complete iterations in windows", done.stdout)

    def test_nothing_is_left(self):
        (self.folder / "empty").mkdir()
        done = folders.invoke("merge", self.folder, "-o", "-", "--json")
        self.assertEqual((done.returncode, done.stderr), (2, "inject: -o - and --json both write to stdout\n"))
        done = folders.invoke("merge", self.folder / "empty", self.folder / "none")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.splitlines()[-1], "inject: no result folders to merge")
        self.assertEqual(len(done.stderr.splitlines()), 3)

    def test_bad_use(self):
        ranks.write_job(self.folder / "job", 1)
        (self.folder / "full").mkdir()
        (self.folder / "full" / "x").touch()
        for arguments, said in ((["--jobs", "x"], "--jobs x: accepted are auto, one, folders"),
                                (["--parquet", self.folder / "full"], f"{self.folder}/full: not empty: Parquet copies need a new folder"),
                                (["-o", self.folder / "none" / "x.html"], f"can't write '{self.folder}/none/x.html': no such file or directory"),
                                (["-o", self.folder / "full"], f"can't write '{self.folder}/full': is a directory")):
            done = folders.invoke("merge", self.folder / "job", *arguments)
            self.assertEqual((done.returncode, done.stderr), (2, f"inject: {said}\n"))
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.startswith(".")], [])


class Parquet(Case):
    def test_a_full_disk(self):
        full = '{"exception_type":"IO","exception_message":"Could not write file","errno":"28"}'
        with Store() as store, mock.patch.object(store, "connection", mock.Mock(table=mock.Mock(side_effect=duckdb.IOException(full)))), \
                self.assertRaisesRegex(BadFile, f"^{self.folder}/copy: no space left on device$"):
            parquet.write(store, self.folder / "copy")

    def test_same_figures(self):
        for world in (2, 4):
            ranks.write_job(self.folder / f"n{world}", world, batch=4, slow={1: 1.2}, nccl=[ranks.collective(40, MS, [5000] * 40, world=world)])
        paths = [self.folder / "n2", self.folder / "n4"]
        done = folders.invoke("merge", *paths, "--parquet", self.folder / "copies", "--json")
        expected = json.loads(done.stdout)
        self.assertEqual(len(expected["jobs"]), 2)
        self.assertEqual(rounded(merged(self.folder / "copies")), rounded(expected))
        # A copy and folders together.
        done = folders.invoke("merge", self.folder / "n2", "--parquet", self.folder / "copy2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(rounded(merged(self.folder / "copy2", self.folder / "n4")), rounded(expected))
        done = folders.invoke("merge", self.folder / "n2", self.folder / "copy2")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(done.stderr, r"n2/\S* and a copy of it are not ranks of one job: both are rank \d; --force merges them anyway")
        # Permissions carry over: files that others may not read remain unreadable for them.
        self.assertEqual((self.folder / "copies").stat().st_mode & 0o777, 0o700)

    def test_copies_of_an_older_version(self):
        ranks.write_job(self.folder / "job", 3, nccl=lambda rank: [ranks.collective(40, MS, [5000 * rank] * 40, world=3, Communicator="0x1")],
                        job=lambda rank: ranks.place(rank, 4))
        folders.invoke("merge", self.folder / "job", "--parquet", self.folder / "copy")
        job = self.job(self.folder / "copy")
        self.assertEqual((job["world"], len(job["collectives"]["communicators"])), (4, 1))
        with Store() as store:
            for table, left_out in (("runs", "job_id, world_size, unit_ranges"), ("nccl_sum", "Communicator")):
                path = self.folder / "copy" / f"{table}.parquet"
                store.run(f"COPY (SELECT * EXCLUDE ({left_out}) FROM '{path}') TO '{path}.new' (FORMAT parquet)")
                os.replace(f"{path}.new", path)
        job = self.job(self.folder / "copy")
        self.assertEqual((job["world"], job["id"], job["collectives"]["communicators"], job["collectives"]["split_share"]), (3, "", [], 1))
        self.assertEqual(self.said, [])

    def test_damaged(self):
        ranks.write_job(self.folder / "job", 3)
        folders.invoke("merge", self.folder / "job", "--parquet", self.folder / "copy")
        (self.folder / "copy" / "window_sum.parquet").write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
        (self.folder / "copy" / "copy_sum.parquet").unlink()
        job = self.job(self.folder / "copy")
        self.assertEqual(job["compared"]["ranks"], 3)
        self.assertRegex(self.said[0], r"^copy/window_sum\.parquet: not Parquet of this kind: ")
        self.assertEqual(self.said[1:], ["copy/copy_sum.parquet: missing", "no window: rank 0-2"])
        with Store() as store:
            store.run(f"COPY (SELECT * REPLACE (7 AS run) FROM '{self.folder}/copy/runs.parquet') TO '{self.folder}/copy/other' (FORMAT parquet)")
        os.replace(self.folder / "copy" / "other", self.folder / "copy" / "runs.parquet")
        self.assertEqual(self.merge(self.folder / "copy", ranks.write_job(self.folder / "good", 1))["jobs"][0]["ranks"], 1)
        self.assertIn("copy/runs.parquet: its runs are not numbered from 0", self.said)
        (self.folder / "copy" / "runs.parquet").write_text("no")
        done = folders.invoke("merge", self.folder / "copy")
        self.assertEqual(done.returncode, 2)
        self.assertIn("copy/runs.parquet: not Parquet of this kind: ", done.stderr)


class Shown(Case):
    def test_terminal_and_page(self):
        ranks.write_job(self.folder / "job", 24, slow={7: 1.1}, batch=8, lost={"host_records": 1},
                        nccl=[ranks.collective(40, MS, [5000] * 40, world=24)])
        done = folders.inject("merge", self.folder / "job", "--ranks", 4, "-o", self.folder / "job.html", env={"COLUMNS": "60"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("job: 24 ranks on 3 hosts, 24 NVIDIA H200\n  command      python3 train.py\n"), done.stdout)
        # Lines are laid out for at least 80 columns.
        self.assertRegex(re.sub(r"\n {15}", " ", done.stdout), r"\n  stragglers   rank 7 \(node0\): a step takes 10\.\d{3}ms ± \S+us "
                         r"\(\d+\.\d%\) longer than the others' median; slowest in 20 of 20\n")
        self.assertIn("  4 of 24 ranks: stragglers, incomplete ranks, the slowest\n", done.stdout)
        self.assertEqual(len(re.findall(r"^ +\d+ +node\d ", done.stdout, re.MULTILINE)), 4)
        (sections,) = folders.sections_of(self.folder / "job.html")
        plots = {plot["id"]: plot["series"] for plot in sections["ranks"]["plots"]}
        self.assertEqual([*plots], ["heat", "steps", "shares"])
        heat = plots["heat"][0]
        self.assertEqual((len(heat["z"]), len(heat["z"][0]), heat["x"][0], heat["y"]), (24, 20, 100, list(range(24))))
        self.assertAlmostEqual(statistics.mean(heat["z"][7]), 110e6, delta=2e6)
        self.assertAlmostEqual(plots["steps"][0]["y"][7], statistics.median(heat["z"][7]), places=3)
        self.assertEqual([len(table["rows"]) for table in sections["ranks"]["tables"]], [24])


    def job_of_all_tables(self, host="node0", verdict="communication-bound"):
        """Two jobs for the scaling, one with collectives of two communicators, sends, and slow copies."""
        for name in ("one", "four"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name, world in (("one", 1), ("four", 4)):
            for rank in range(world):
                calls = [ranks.collective(40, MS, [5000 * rank] * 40, world=world, Communicator="0x1"),
                         ranks.collective(40, MS, [0] * 40, world=2, operation="ReduceScatter", Communicator=f"0x{2 + rank // 2}"),
                         ranks.collective(40, MS, [0] * 40, world=2, operation="Send", **{"Peer/Root": 1})]
                ranks.write_rank(self.folder / name / f"rank-{rank}", rank, [100 * MS, 110 * MS, 123 * MS] * 5, host=host, batch=8, verdict=verdict,
                                 nccl=calls if world > 1 else [], link=1.5 if rank == 3 else 86.0, lost={"host_records": 10**12})
        return ["one", "four", "--jobs", "folders"]

    def test_tables_fit_the_terminal(self):
        for host, verdict in (("node0", "communication-bound"), ("a-host-with-a-long-name.of-a-cluster.example", "synchronization-bound (and more)"), ("節点" * 20, "x" * 300)):
            with self.subTest(host=host):
                arguments = self.job_of_all_tables(host, verdict)
                printed = {}
                for columns in (80, 100, 132, 300):
                    done = folders.inject("merge", *arguments, "--force", cwd=self.folder, env={"COLUMNS": str(columns)})
                    self.assertEqual(done.returncode, 0, done.stderr)
                    printed[columns] = done.stdout
                    wide = [line for line in done.stdout.splitlines() if cell_len(line.rstrip()) > columns]
                    self.assertEqual(wide, [], columns)
                    titles = ("Ranks", "Collectives of all ranks", "Communicators by time", "Bus bandwidths", "Sends and receives", "Large copies", "Scaling by")
                    self.assertEqual([title for title in titles if f"  {title}" not in done.stdout], [], columns)
                # Omitted columns are listed, and those that identify a rank stay.
                self.assertRegex(printed[80], r"\n  left out: [^\n]*StdDev")
                self.assertRegex(printed[80], r"\n +Rank +")
                for name in ("Excess", "Verdict", "Wait"):
                    self.assertRegex(printed[80], rf"(?m)^ .*\b{name}\b")
                self.assertNotIn("left out:", printed[300])
                figures = {columns: re.findall(r"\d+\.\d{3}(?:ms|us|s)\b", text) for columns, text in printed.items()}
                self.assertLessEqual(set(figures[80]), set(figures[300]), "figures are whole")

    def test_a_file_has_all_columns(self):
        arguments = self.job_of_all_tables()
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        done = subprocess.run([sys.executable, folders.ROOT / "scripts" / "inject", "merge", *arguments, "--force"], cwd=self.folder, env=environment,
                              capture_output=True, text=True, timeout=60, check=True)
        self.assertNotIn("left out:", done.stdout)
        self.assertRegex(done.stdout, r"StdDev +P95")


class Thousand(Case):
    def test_a_thousand_ranks(self):
        ranks.write_whole(self.folder, 1000)
        self.assertEqual(len(list((self.folder / "rank-999").iterdir())), 23)
        begin = time.monotonic()
        with open(self.folder / "out.json", "wb") as out, subprocess.Popen([sys.executable, folders.ROOT / "scripts" / "inject", "merge", "--json", self.folder],
                                                                           stdout=out) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds, processors, megabytes = time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6
        print(f"1,000 ranks: {seconds:.1f} s, {processors:.1f} s of processors, {megabytes:.0f} MB")
        self.assertEqual(process.returncode, 0)
        (job,) = json.loads((self.folder / "out.json").read_text())["jobs"]
        self.assertEqual((job["ranks"], job["world"], self.stragglers(job)), (1000, 1000, [(700, "step time")]))
        self.assertEqual((job["collectives"]["split_share"], len(job["collectives"]["communicators"])), (1, 50))
        # What two CPUs do in ten seconds, however busy the machine is.
        self.assertLess(processors, 20)
        self.assertLess(megabytes, 1000)


class Real(Case):
    """Jobs on the simulated CUDA, a process for each of three ranks."""

    def ranks(self, command, **variables):
        def run(rank):
            env = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")},
                   "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "LD_PRELOAD": str(folders.BUILD / "libinject.so"), "RANK": str(rank),
                   "INJECT_OUT": str(self.folder / "out-%r"), "INJECT_SUMMARY": "off", **variables}
            subprocess.run(command(rank), env=env, capture_output=True, timeout=100, check=True)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(run, range(3)))
        # Nothing synchronizes them: on a busy machine one may have ended before another begins, which never happens to ranks of one job.
        job = self.job(force=True)
        self.assertEqual((job["ranks"], job["world"]), (3, 3))
        self.assertEqual([row["folder"].rpartition("/")[2] for row in job["by_rank"]], ["out-0", "out-1", "out-2"])
        for row in job["by_rank"]:
            run = json.loads((self.folder / f"out-{row['rank']}" / "run.json").read_text())
            self.assertEqual((row["windows"], row["window_ns"]), (len(run["windows"]), sum(window["duration_ns"] for window in run["windows"])))
            self.assertEqual((row["lost"], row["state"]), ({}, "closed"))
        return job

    def test_training(self):
        job = self.ranks(lambda _: [folders.BUILD / "examples" / "inject-train"])
        for row in job["by_rank"]:
            self.assertGreater(row["utilization"], 0)
            self.assertGreater(row["peak_memory_mb"], 0)
        # There may be messages about iterations, as nothing synchronizes these ranks; all tables were read.
        self.assertEqual([text for text in self.said if ".csv" in text or "missing" in text], [])

    def test_collectives(self):
        program = folders.BUILD / "tests" / "integration" / "script" / "script_cuda"
        if not program.exists():
            self.skipTest("the tests' programs are not built")
        # The second rank comes last: its kernels are only the transfer.
        job = self.ranks(lambda rank: [program, f"duration:AllReduce:{40_000 if rank == 1 else 90_000}", "comm:A:3:all", "comm_split:B:A:0", "start",
                                       "loop:20", "[", "nccl:AllReduce:A:1000000", "]", "nccl:AllReduce:B:1000000", "stop", "sync"],
                         INJECT_WINDOW="api", WORLD_SIZE="3", TORCHELASTIC_RUN_ID="real")
        spent = job["collectives"]
        if spent is None:
            self.skipTest("built without NCCL's header")
        self.assertEqual((spent["collective_ns"], spent["waiting_at_least_ns"], spent["waiting_at_most_ns"], spent["split_share"]),
                         (21 * (40_000 + 2 * 90_000), 21 * 2 * 50_000, 21 * 2 * 50_000, 1))
        self.assertEqual([row["collectives"]["waiting_at_least_ns"] for row in job["by_rank"]], [1_050_000, 0, 1_050_000])
        self.assertEqual([(entry["size"], entry["ranks"], entry["kernels"]) for entry in spent["communicators"]], [(3, "0-2", 60), (3, "0-2", 3)])
        self.assertEqual(job["id"], "torchrun:real")
        self.assertEqual(self.said, ["no complete iteration with a step time: rank 0-2"])
        (bus,) = job["links"]["bus"]
        self.assertEqual((bus["best_rank"], bus["best_gbps"]), (1, 133.333))


if __name__ == "__main__":
    unittest.main()
