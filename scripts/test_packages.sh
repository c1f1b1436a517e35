#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Makes the packages (scripts/package.sh), installs each one where nothing else is, profiles the C++ example of build/ on the
# simulated CUDA with it, and removes it again. Not a part of scripts/test.sh: compiling takes minutes.
# usage: scripts/test_packages.sh [wheel]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
[[ -x build/examples/inject-train ]] || { echo "test_packages: build the example first: cmake --preset dev && cmake --build build" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { echo "test_packages: $*" >&2; exit 1; }

# profiled LABEL COMMAND...: the command has profiled the example, and left its tables in $scratch/LABEL.
profiled() {
  local out=$scratch/$1
  (cd "$scratch" && env INJECT_OUT="$out" INJECT_SUMMARY=off LD_LIBRARY_PATH="$root/build/sim" "${@:2}" "$root/build/examples/inject-train")
  grep -q '"state": "closed"' "$out/run.json" || fail "$1: no complete run.json"
  [[ $(wc -l <"$out/cuda_gpu_kern_sum.csv") -gt 1 ]] || fail "$1: no kernels"
}

# Files, without what Python leaves as it imports.
listing() { (cd "$1" && find . -name __pycache__ -prune -o -print | sort); }

test_wheel() {
  scripts/package.sh wheel
  local wheel=(build-packages/*.whl) venv=$scratch/venv
  build-packages/tools/bin/auditwheel show "${wheel[0]}"
  [[ ${wheel[0]} == *manylinux_2_28_* ]] || fail "${wheel[0]} is not for glibc 2.28"
  [[ ${wheel[0]} == *-py3-none-manylinux* ]] || fail "${wheel[0]} is tied to a Python version"
  python3 -m venv "$venv"
  # What the package depends on comes first, so that the lists differ by the package alone.
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheel[0]}"
  "$venv/bin/pip" uninstall --quiet --yes libinject
  listing "$venv" >"$scratch/before"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${wheel[0]}"
  local page
  for page in man1/inject.1.gz man1/injectctl.1.gz man7/libinject.7.gz; do
    [[ -f $venv/share/man/$page ]] || fail "no manual page $page"
  done
  [[ $("$venv/bin/inject" --version) == "inject $("$venv/bin/pip" show libinject | sed -n 's/^Version: //p')" ]] || fail "versions differ"
  "$venv/bin/injectctl" --help >/dev/null
  profiled wheel "$venv/bin/inject" run --
  "$venv/bin/pip" uninstall --quiet --yes libinject
  listing "$venv" >"$scratch/after"
  diff "$scratch/before" "$scratch/after" || fail "uninstalling leaves something, or takes more than its own"
  echo "wheel: $(basename "${wheel[0]}"), $(stat -c %s "${wheel[0]}") bytes: passed"
}

case "${1:-all}" in
  all | wheel) test_wheel ;;
  *)
    sed -n '7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
