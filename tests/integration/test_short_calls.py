#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Short calls of the runtime, of which only the durations are kept, are counted like those with a record of their own.

usage: test_short_calls.py LIBRARY PROGRAMS SIMULATION
"""

import random
import statistics

import simulated

CALLS = {"device:0": ("cudaSetDevice",), "last_error": ("cudaPeekAtLastError", "cudaGetLastError"),
         "record:e:0": ("cudaEventRecord",)}


def program(seed):
    """Windows of calls by several threads, and the number of each call in each window."""
    chance = random.Random(seed)
    text = ["record:e:0"]
    windows = []
    for _ in range(chance.randint(1, 3)):
        text.append("start")
        counts = {}
        for _ in range(chance.randint(1, 5)):
            word, times = chance.choice(list(CALLS)), chance.randint(1, 200)
            threads = chance.choice((1, 1, 3))
            text.append(f"threads:{threads} [ loop:{times} [ {word} ] kernel:k:1 ]" if threads > 1 else
                        f"loop:{times} [ {word} ] kernel:k:1")
            for name in CALLS[word]:
                counts[name] = counts.get(name, 0) + times * threads
        text += ["sync", "stop", "last_error"]
        windows.append(counts)
    return " ".join(text), windows


class ShortCalls(simulated.SimulatedTest):
    def test_all_are_counted(self):
        for seed in range(12):
            text, windows = program(seed)
            for options in ({"TRACE": None}, {"TRACE": None, "RECOVER": "0"}, {"TRACE": "csv"}, {"TRACE": None, "API": "full"}):
                with self.subTest(seed=seed, **options):
                    out = self.script(text, WINDOW="api", **options).out
                    found = {name: count for name, count in out.calls().items() if any(name in counts for counts in windows)}
                    expected = {}
                    for counts in windows:
                        for name, count in counts.items():
                            expected[name] = expected.get(name, 0) + count
                    self.assertEqual(found, expected)
                    self.assertEqual(out.lost(), {})

    def test_their_times_are_those_of_records(self):
        """Approximately, because two runs are compared."""
        medians = {}
        for trace in (None, "csv"):
            runs = []
            for _ in range(3):
                rows = self.script("start loop:2000 [ device:0 ] sync stop", WINDOW="api", TRACE=trace).out.rows("cuda_api_sum.csv")
                (row,) = [row for row in rows if row["Name"] == "cudaSetDevice"]
                self.assertEqual(row["Num Calls"], "2000")
                self.assertLessEqual(int(row["Min (ns)"]), float(row["Med (ns)"]))
                self.assertLess(float(row["Med (ns)"]), int(row["Max (ns)"]))
                self.assertGreater(float(row["StdDev (ns)"]), 0)
                runs.append(float(row["Med (ns)"]))
            medians[trace] = statistics.median(runs)
        self.assertLess(max(medians.values()), 5 * min(medians.values()))

    def test_they_take_little_room(self):
        """A ring with room for a tenth of them as records loses none, even if it is not drained meanwhile."""
        count = 20_000  # 1.3 MB as records, 91 KB together
        out = self.script(f"sync start loop:{count} [ device:0 ] stop", WINDOW="api", TRACE=None, RING="128K").out
        self.assertEqual(out.calls()["cudaSetDevice"], count)
        self.assertEqual(out.lost(), {})


if __name__ == "__main__":
    simulated.main()
