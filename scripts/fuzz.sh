#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Builds the fuzz targets (Clang with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer) and runs each for a while,
# from what is kept in tests/fuzz/corpus on; new inputs stay in build-fuzz/corpus, what ends a target in build-fuzz/findings.
# usage: scripts/fuzz.sh [SECONDS [TARGET...]]     (60 seconds each by default, all targets)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'fuzz: %s\n' "$1" >&2
  grep -m 1 '^# usage:' scripts/fuzz.sh | cut -c 3- >&2
  exit 2
}
seconds=${1:-60}
shift || true
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "'$seconds' is not a number of seconds"
all=(tests/fuzz/corpus/*)
all=("${all[@]##*/}")
targets=("${@:-${all[@]}}")
for target in "${targets[@]}"; do
  [[ " ${all[*]} " == *" $target "* ]] || fail "'$target' is not a target: ${all[*]}"
done
command -v clang++ >/dev/null || fail "clang++ is not installed (Debian's packages: clang, libclang-rt-14-dev)"

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
