#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Sets the machine up, builds, and runs every test: the unit tests under AddressSanitizer, UndefinedBehaviorSanitizer
# and ThreadSanitizer, and everything else, linters included. Needs no GPU; tests that need one say that they skip.
# usage: scripts/test.sh [--quick]     (--quick: no sanitizers, no linters)
set -euo pipefail
cd "$(dirname "$0")/.."

quick=0
case "${1:-}" in
  "") ;;
  --quick) quick=1 ;;
  *)
    sed -n '7s/^# //p' "$0" >&2
    exit 2
    ;;
esac

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }
jobs=$(nproc)

step "set-up"
scripts/setup.sh

step "build"
# The unit tests are built and run by tests of their own, with sanitizers, or here.
cmake --preset dev -DINJECT_JOIN=OFF -DINJECT_BUILD_UNIT_TESTS="$( ((quick)) && echo ON || echo OFF)"
# Several files at once; the linters still see the commands of single ones.
cmake build -DINJECT_JOIN=ON
cmake --build build -j "$jobs"

step "tests"
exclude=()
((!quick)) || exclude=(-LE lint)
# More than there are processors: many of them wait for time to pass, and the linters and the sanitizers' builds, which
# are nicer than the rest, fill the gaps.
exec ctest --test-dir build --output-on-failure -j "$((jobs + 4))" "${exclude[@]}"
