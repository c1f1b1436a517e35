#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Sets the machine up, builds, and runs the C++ training example under the preload: on the GPU if there is one, else on
# the simulated CUDA. The summary and the folder with the CSV files are what it prints last.
set -euo pipefail
cd "$(dirname "$0")/.."

# A driver alone is no GPU, and a GPU that the driver can't reach is none either.
gpu=$( (nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true) | head -n 1)

options=()
[[ -z $gpu ]] || options=(--libraries)
scripts/setup.sh "${options[@]}"
targets=(inject inject_train)
[[ -n $gpu ]] || targets+=(simulated_cuda)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "demo: building (the first time takes some minutes)"
if ! { cmake --preset dev && cmake --build build --target "${targets[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi

out=build/demo/$(date +%Y%m%d-%H%M%S)
if [[ -n $gpu ]]; then
  echo "demo: on the GPU: $gpu"
  libraries=build/deps/cuda/lib  # used for what the machine itself has not: last in the search
  libraries=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$PWD/$libraries
else
  echo "demo: no GPU here: on the simulated CUDA, whose kernel times are made up"
  libraries=$PWD/build/sim
fi
echo "demo: LD_PRELOAD=build/libinject.so build/examples/inject-train"
LD_LIBRARY_PATH=$libraries LD_PRELOAD=$PWD/build/libinject.so INJECT_OUT=$PWD/$out build/examples/inject-train

echo
echo "demo: the CSV files are in $out:"
ls "$out"
