# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""PyTorch ResNet-50: ten steps between torch.cuda.profiler.start and stop, counted by us and by torch.profiler."""

from compare import compare_model
from gputest import main


def test(options, report):
    compare_model(options, report, "resnet50", rounds=options.rounds)


if __name__ == "__main__":
    main("slice1_resnet", test, modules=("torch", "torchvision"),
         arguments=lambda p: p.add_argument("--rounds", type=int, default=1))
