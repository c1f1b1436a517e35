# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""How a verdict and its parts are determined: docs/diagnosis.md in short, so that the page can be read without it."""

from __future__ import annotations

from typing import NamedTuple

_LARGEST = "It is the verdict if no other part is larger, it takes 10% of the time, and kernels run for less than 80% of it."


class Rule(NamedTuple):
    name: str
    what: str  # what is counted for it
    when: str  # when it is the verdict


RULES = (
    Rule("GPU-bound", "Time with at least one kernel that is not a collective. Each of these kernels is judged separately: limited by latency if it "
         "takes less than 5 us on average or its grid has fewer blocks than half of the multiprocessors; compute for products, convolutions, attention and "
         "recurrent layers, unless the roofline shows that they are memory-bound; memory for kernels that move data. Where hardware metrics were "
         "collected, they decide.",
         "It is the verdict if such kernels run for 80% of the time or more, or if nothing else takes 10%. The potential gain is the share of the kernels with "
         "that limit; for compute it is known only where 90% of them or more do not use tensor cores."),
    Rule("launch-bound", "Idle time in which the host was in the launch call or in another call, or computed on its way to the next launch, and the time "
         "that the GPU takes from one piece of work to the next (within a CUDA graph, that is not part of it).", _LARGEST),
    Rule("synchronization-bound", "Idle time because the host had waited for the GPU, and so launched the next work late.", _LARGEST),
    Rule("input-bound", "Idle time in which the host waited for something other than the GPU, or did work of its own: 1 ms or more without any call.", _LARGEST),
    Rule("copy-bound", "Time with copies and no kernel, and idle time in which the host was in a copy call.", _LARGEST),
    Rule("communication-bound", "Time with collectives and no other kernel, and idle time spent waiting for a collective. The potential gain includes the "
         "multiprocessors that collectives take from concurrent kernels.", _LARGEST),
)
GENERAL = ("Each moment of a GPU's time belongs to one part. A remedy can save at most its part of the time, excluding what the profiler added where "
           "that is known; how much it will actually save is not predicted. If the second part takes 10% and half of the largest, the verdict is mixed; so it is if it depends on where the profiler's own time is. "
           "It is undetermined if waiting for other streams and unknown causes take 10% together, and more than each of the others, and too short if start-up takes half of the time. "
           "docs/diagnosis.md has every rule in full.")


def anchor(kind: str) -> str:
    """Where the page explains it; empty if it does not."""
    name = "GPU-bound" if kind.startswith("GPU-bound") else kind
    return f"rule-{name.lower()}" if any(name == rule.name for rule in RULES) else ""
