# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""ResNet-50, a bf16 transformer and a DeepSpeech-2-like RNN: ours and torch.profiler alternating in one process.

Windows of ten steps with synchronised edges. Kernel, copy and memset counts must be equal name by name in every
window, kernel times within 2 %, and our tables the sums of our raw records.
"""

from compare import compare_model
from gputest import main


def arguments(parser):
    parser.add_argument("--models", default="resnet50,transformer,deepspeech2")
    parser.add_argument("--rounds", type=int, default=3)


def test(options, report):
    for model in options.models.split(","):
        report.guarded(model, compare_model, options, report, model, options.rounds)


if __name__ == "__main__":
    main("compare_torch", test, modules=("torch", "torchvision"), arguments=arguments)
