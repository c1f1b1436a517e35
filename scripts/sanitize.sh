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
cache() { sed -n "s/^$1:[A-Z]*=//p" "build-$preset/CMakeCache.txt"; }
compiler=$(cache CMAKE_CXX_COMPILER)

# Findings go to files of their own: some tests look away from how a program ends, or close its stderr. Any file there fails
# the run.
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
chmod 1777 "$reports"
export INJECT_TEST_SANITIZER=$1
if [[ $1 == address ]]; then
  runtime=libasan.so
  # Programs that are watched themselves have its run-time library behind ours, which it minds though it need not here.
  export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:abort_on_error=1:log_path=$reports/report
  export UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports/report
else
  runtime=libtsan.so
  # Programs of these tests end while threads of theirs run, call exit() and CUDA in signal handlers, and start threads in
  # forked children, all on purpose. (tests/tsan.supp has the rest that is not to be reported.)
  TSAN_OPTIONS=report_thread_leaks=0:report_signal_unsafe=0:die_after_fork=0:second_deadlock_stack=1
  # A second at the end of each program, of which there are thousands; and its findings leave what the program does alone.
  TSAN_OPTIONS+=:atexit_sleep_ms=0:halt_on_error=0:exitcode=0:suppressions=$PWD/tests/tsan.supp:log_path=$reports/report
  export TSAN_OPTIONS
fi
# libstdc++ as well, which has it initialised where nothing is watched: it does not wait for that in sh, which then falls over.
INJECT_TEST_SANITIZER_RUNTIME="$("$compiler" -print-file-name=$runtime) $("$compiler" -print-file-name=libstdc++.so)"
export INJECT_TEST_SANITIZER_RUNTIME

failed=0
ctest --test-dir "build-$preset" --output-on-failure -j "$(nproc)" -L integration -E "$left_out" ${2:+-R "$2"} || failed=1
for report in "$reports"/*; do
  [[ -e $report ]] || continue
  failed=1
  cat "$report"
done
exit $failed
