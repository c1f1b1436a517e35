#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Builds the fuzz targets (Clang with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer) and runs each for a while,
# from what is kept in tests/fuzz/corpus on; new inputs stay in build-fuzz/corpus, what ends a target in build-fuzz/findings.
# usage: scripts/fuzz.sh [SECONDS | --runs N] [TARGET...]     (60 seconds each by default, all targets)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'fuzz: %s\n' "$1" >&2
  grep -m 1 '^# usage:' scripts/fuzz.sh | cut -c 3- >&2
  exit 2
}
end=-max_total_time=60
if [[ ${1:-} == --runs ]]; then
  [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "'${2:-}' is not a number of executions"
  end=-runs=$2
  shift 2
elif (($# > 0)); then
  [[ $1 =~ ^[1-9][0-9]*$ ]] || fail "'$1' is not a number of seconds"
  end=-max_total_time=$1
  shift
fi
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
  # Several processes, each begun anew before it has grown large; the first finding ends them and is kept. Entropic scheduling
  # would spend a third of the time.
  "build-fuzz/tests/fuzz/fuzz_$target" -fork="$(nproc)" "$end" -max_len=1024 -entropic=0 -timeout=10 \
    -rss_limit_mb=4096 -artifact_prefix="build-fuzz/findings/$target-" -print_funcs=0 \
    "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" 2>&1 | grep -v 'NEW_FUNC' | tail -n 12
done
