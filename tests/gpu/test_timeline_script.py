# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The arithmetic of torch_timeline.py, on events written down here."""

import unittest

import torch_timeline
from torch_timeline import timeline


def span(category, name, **arguments):
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": 1.0, "dur": 1.0, "args": arguments}


class Counts(unittest.TestCase):
    def test_kernels_and_copies(self):
        found = timeline.Timeline({"traceEvents": [
            span("kernel", "burn(float *)"), span("kernel", "burn(float*)"), span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
            span("gpu_memset", "Memset (Device)"), span("cuda_runtime", "cudaMemcpy"), {"ph": "M", "name": "process_name"}]})
        self.assertEqual(torch_timeline.kernel_counts(found), {"burn(float*)": 2})
        self.assertEqual(torch_timeline.copy_counts(found), {"Memcpy HtoD (Pinned -> Device)": 1, "Memset (Device)": 1})


class Arguments(unittest.TestCase):
    THEIRS = [span("kernel", "a", stream=7, correlation=1, queued=0, grid=[1, 1, 1]),
              span("kernel", "b", stream=7, correlation=2, queued=0, grid=[1, 1, 1], priority=0),
              span("cpu_op", "aten::add", **{"Fwd thread id": 0})]

    def test_what_is_always_there_is_asked_for(self):
        ours = [span("kernel", "a", stream=7, correlation=1, grid=[1, 1, 1])]
        self.assertEqual(torch_timeline.missing_arguments(ours, self.THEIRS), {})

    def test_what_is_missing_once_is_missing(self):
        ours = [span("kernel", "a", stream=7, correlation=1, grid=[1, 1, 1]), span("kernel", "a", stream=7, grid=[1, 1, 1])]
        self.assertEqual(torch_timeline.missing_arguments(ours, self.THEIRS), {"kernel": ["correlation"]})
        self.assertEqual(torch_timeline.missing_arguments([], self.THEIRS), {"kernel": ["correlation", "grid", "stream"]})


if __name__ == "__main__":
    unittest.main()
