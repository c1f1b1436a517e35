# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Work on the simulated CUDA for the training scripts torch_*.py, whose first argument is the module that submits it."""

import ctypes
import sys

cuda = ctypes.CDLL(sys.argv[1])


def launch(name, blocks=1):
    if cuda.training_launch(name.encode(), blocks) != 0:
        sys.exit("a launch failed")


def copy(size, to_device):
    if cuda.training_copy(ctypes.c_size_t(size), to_device) != 0:
        sys.exit("a copy failed")
