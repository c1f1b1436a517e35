#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# The integration tests with a library, programs and simulated CUDA that a sanitizer watches: what the unit tests under
# sanitizers can't reach. Slow, so that what is said of durations does not hold: not a part of scripts/test.sh.
# usage: scripts/sanitize.sh address|thread [CTEST_REGEX]
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  address) preset=asan-library ;;
  thread) preset=tsan-library ;;
  *)
    sed -n '7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
# Left out, and why:
#   test_binary, test_hosts, test_install, test_configure, resolver.shims: what the shipped library is made of, and other
#     people's programs
#   test_faults: what lets malloc fail takes the place of the sanitizer's own
#   test_metrics, test_kernel_metrics, test_diagnosis: at a sanitizer's pace samples are lost, and time is spent elsewhere
#   resolver.deep_binding: sanitizers refuse RTLD_DEEPBIND
#   process.unharmed: other people's programs, without the sanitizer's run-time library
#   cancelled_inside_a_hook: a cancelled thread leaves functions by another way than their check of the stack knows
# Single cases are skipped by the tests themselves, which print why (INJECT_TEST_SANITIZER).
left_out='^(test_(binary|hosts|install|configure|faults|metrics|kernel_metrics|diagnosis)'
left_out+='|resolver\.(shims|deep_binding.*)|process\.unharmed|cancelled_inside_a_hook)$'

cmake --preset "$preset"
cmake --build "build-$preset" -j "$(nproc)"
# Preloaded, the library comes before the sanitizer's run-time library, which minds that though it need not here.
export INJECT_TEST_SANITIZER=$1
export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:abort_on_error=1:second_deadlock_stack=1
exec ctest --test-dir "build-$preset" --output-on-failure -j "$(nproc)" -L integration -E "$left_out" ${2:+-R "$2"}
