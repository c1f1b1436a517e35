# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of graph_times.py's judgement: correct iterations pass, and a kernel with another one's end is found."""

import unittest

import graph_times


def iterations(count=10, longest=40_000):
    """Three kernels per iteration of 100 us, the second of which takes most of it."""
    kernels = []
    for begin in range(0, count * 100_000, 100_000):
        kernels += [("first", begin + 1000, begin + 2300), ("second", begin + 3000, begin + 3000 + longest),
                    ("third", begin + 80_000, begin + 81_300)]
    return kernels


BEGINS = list(range(0, 1_000_000, 100_000))


class Overlong(unittest.TestCase):
    def test_as_it_should_be(self):
        self.assertEqual(graph_times.overlong(iterations(), BEGINS), [])
        # A kernel that takes most of an iteration does so in all of them.
        self.assertEqual(graph_times.overlong(iterations(longest=95_000), BEGINS), [])

    def test_the_end_of_the_next_replay(self):
        for place, (name, start, end) in enumerate(iterations()[-3:], len(iterations()) - 3):
            kernels = iterations()
            kernels[place] = (name, start, end + 100_000)
            # A kernel "second" that takes several times its usual duration does not.
            found = graph_times.overlong(kernels, BEGINS)
            self.assertEqual(found, [] if name == "second" else [kernels[place]], name)

    def test_several_of_them(self):
        kernels = iterations()
        for place in (-3, -1):
            name, start, end = kernels[place]
            kernels[place] = (name, start, end + 100_000)
        self.assertEqual(graph_times.overlong(kernels, BEGINS), [kernels[-3], kernels[-1]])

    def test_a_collective_may_wait(self):
        kernels = iterations()
        kernels[-1] = ("ncclDevKernel_AllReduce", kernels[-1][1], kernels[-1][2] + 100_000)
        self.assertEqual(graph_times.overlong(kernels, BEGINS), [])


if __name__ == "__main__":
    unittest.main()
