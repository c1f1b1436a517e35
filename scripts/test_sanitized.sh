#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Builds the unit tests with a sanitizer and runs them: asan is AddressSanitizer and UndefinedBehaviorSanitizer, tsan is
# ThreadSanitizer. By Clang where there is one: it takes two thirds of GCC's time, and sees other mistakes.
# usage: scripts/test_sanitized.sh asan|tsan
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  asan | tsan) preset=$1 ;;
  *)
    sed -n '7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
jobs=$(nproc)
compiler=()
if command -v clang++ >/dev/null; then
  compiler=(-DCMAKE_CXX_COMPILER=clang++)
  # CMake forgets what the preset says where another compiler was used before.
  if grep -qs '^CMAKE_CXX_COMPILER:' "build-$preset/CMakeCache.txt" &&
    ! grep -qs '^CMAKE_CXX_COMPILER:.*clang++$' "build-$preset/CMakeCache.txt"; then
    rm -rf "build-$preset"
  fi
fi
cmake --preset "$preset" "${compiler[@]}"
# Behind the other tests, which wait much of their time, and before the linter: its tests are to be over by the time that is.
nice -n 10 cmake --build --preset "$preset" -j "$jobs"
ctest --preset "$preset" -j "$jobs"
