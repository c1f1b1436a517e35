#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Builds the fuzz targets (Clang with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer) and runs each for a while, from
# what is kept in tests/fuzz/corpus on; new inputs stay in build-fuzz/corpus.
# usage: scripts/fuzz.sh [SECONDS [TARGET...]]     (60 seconds each by default, all targets)
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
if [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
  sed -n '8s/^# //p' "$0" >&2
  exit 2
fi
targets=("$@")
((${#targets[@]})) || targets=($(cd tests/fuzz/corpus && echo *))

cmake --preset fuzz
cmake --build --preset fuzz -j "$(nproc)"
for target in "${targets[@]}"; do
  echo "== $target"
  mkdir -p "build-fuzz/corpus/$target" build-fuzz/findings
  # Several processes, each begun anew before it has grown large; the first finding ends them and is kept.
  "build-fuzz/tests/fuzz/fuzz_$target" -fork="$(nproc)" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
    -rss_limit_mb=4096 -artifact_prefix="build-fuzz/findings/$target-" -print_funcs=0 \
    "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" 2>&1 | grep -v 'NEW_FUNC' | tail -n 12
done
