#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Builds library, injectctl and unit tests for aarch64 on another machine, and runs the unit tests under emulation (qemu-user).
# Not a part of scripts/test.sh, for the time that it takes (CONTRIBUTING.md).
# usage: scripts/test_aarch64.sh
set -euo pipefail
cd "$(dirname "$0")/.."

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v "$program" >/dev/null; then
    echo "test_aarch64: no $program: please install g++-aarch64-linux-gnu and qemu-user (Debian's names)" >&2
    exit 1
  fi
done
# The cross compiler brings a C library of its own, and no other.
if [[ ! -f $(aarch64-linux-gnu-g++ -print-file-name=libz.a) ]]; then
  echo "test_aarch64: no libz.a for aarch64: please install zlib1g-dev:arm64 (Debian: dpkg --add-architecture arm64 && apt-get update first)" >&2
  exit 1
fi
cmake --preset aarch64
cmake --build --preset aarch64 -j "$(nproc)"

# It loads, and speaks, in a program of that architecture.
libraries=/usr/aarch64-linux-gnu/lib
cat >build-aarch64/bare.c <<<'int main(void) { return 0; }'
aarch64-linux-gnu-gcc -o build-aarch64/bare build-aarch64/bare.c "-Wl,--dynamic-linker=$libraries/ld-linux-aarch64.so.1,--disable-new-dtags,-rpath=$libraries"
shown=$(qemu-aarch64 -E LD_PRELOAD="$PWD/build-aarch64/libinject.so" -E INJECT_HELP=1 build-aarch64/bare 2>&1)
[[ $shown == *INJECT_WINDOW* ]] || { echo "test_aarch64: libinject.so does not load: $shown" >&2; exit 1; }
qemu-aarch64 build-aarch64/injectctl/injectctl --help >/dev/null

ctest --preset aarch64 -j "$(nproc)"
