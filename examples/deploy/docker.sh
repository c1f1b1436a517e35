#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# A container whose image knows nothing of libinject; its tables come into ./profile.
# usage: docker.sh IMAGE COMMAND [ARGUMENT]...     docker.sh my-training-image python train.py
set -euo pipefail

library=${LIBINJECT:-/opt/libinject/lib/libinject.so}
mkdir -p profile
exec docker run --rm --gpus all \
  -v "$library:/libinject/libinject.so:ro" -v "$PWD/profile:/profile" \
  -e LD_PRELOAD=/libinject/libinject.so -e INJECT_OUT=/profile/%h-%p -e INJECT_WINDOW="${INJECT_WINDOW:-iter:100+10}" \
  "$@"
