#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Makes the packages (scripts/package.sh), installs each one where nothing else is, profiles the C++ example of build/ on the
# simulated CUDA with it, and removes it again. Not a part of scripts/test.sh: compiling takes minutes.
# usage: scripts/test_packages.sh [wheel | deb]
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

# Files, without what Python leaves as it imports, and without folders: pip leaves share/man where it made it.
listing() { (cd "$1" && find . -name __pycache__ -prune -o ! -type d -print | sort); }

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

test_deb() {
  scripts/package.sh deb
  local deb=(build-packages/*.deb) place=$scratch/deb triplet file
  dpkg-deb -c "${deb[0]}"
  dpkg-deb -x "${deb[0]}" "$place"
  triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
  for file in usr/bin/injectctl usr/include/inject/inject.h usr/share/man/man7/libinject.7.gz usr/share/man/man1/injectctl.1.gz \
    usr/share/doc/libinject/{README.md,diagnosis.md,copyright} "usr/lib/$triplet/"{libinject.so,cmake/inject/injectConfig.cmake}; do
    [[ -f $place/$file ]] || fail "no $file in ${deb[0]}"
  done
  [[ $(dpkg-deb -f "${deb[0]}" Depends) =~ ^libc6\ \(\>=\ 2\.[0-9]+\)$ ]] || fail "depends on $(dpkg-deb -f "${deb[0]}" Depends)"
  "$place/usr/bin/injectctl" --help >/dev/null
  profiled deb-files env LD_PRELOAD="$place/usr/lib/$triplet/libinject.so"

  # Installed and removed by dpkg itself, into a root of its own.
  if [[ $(id -u) == 0 ]]; then
    local root=$scratch/root
    mkdir -p "$root/var/lib/dpkg/"{info,updates} && : >"$root/var/lib/dpkg/status"
    dpkg --root="$root" --force-depends --force-script-chrootless --no-triggers -i "${deb[0]}" >/dev/null 2>&1
    listing "$root/usr" | grep libinject.so >/dev/null || fail "dpkg has not installed the library"
    dpkg --root="$root" --force-script-chrootless --no-triggers --purge libinject >/dev/null
    [[ -z $(listing "$root" | grep -v '^./var/') ]] || fail "removing leaves $(listing "$root" | grep -v '^./var/')"
  fi
  # It has no address to write to and no changelog, as nothing has been released.
  if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning --suppress-tags malformed-contact,no-changelog "${deb[0]}"
  fi
  echo "deb: $(basename "${deb[0]}"), $(stat -c %s "${deb[0]}") bytes: passed"
}

case "${1:-all}" in
  all) test_wheel && test_deb ;;
  wheel) test_wheel ;;
  deb) test_deb ;;
  *)
    sed -n '7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
