#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Runs the first block of README.md as it stands, line by line, in fresh Debian root file systems: as a user who is not root, with
# Python and no compiler, on the simulated CUDA. Needs root, mmdebstrap, and a network for Debian's packages and for what the wheel
# depends on, so it is not a part of scripts/test.sh. Opens each page in Chromium if there is one.
# usage: scripts/test_fresh.sh [SUITE…]   (bullseye bookworm trixie)
set -euo pipefail
cd "$(dirname "$0")/.."
roots=$PWD/build-packages/roots
suites=("$@")
((${#suites[@]})) || suites=(bullseye bookworm trixie)

fail() { echo "test_fresh: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || fail "needs root, to change the root folder"
command -v mmdebstrap >/dev/null || fail "needs mmdebstrap"
[[ -d build/deps ]] || fail "set the machine up first: scripts/setup.sh"
wheel=(build-packages/libinject-*.whl)
[[ -e ${wheel[0]} ]] || fail "make the wheel first: scripts/package.sh wheel"
mapfile -t lines < <(awk '/^```/ { if (inside) exit; inside = /^```sh$/; next } inside' README.md)
((${#lines[@]} == 3)) || fail "README.md begins with ${#lines[@]} lines of shell, not with three"

# The simulated CUDA for old systems as well, in a build folder of its own.
sim=build-packages/sim-build
cmake --preset dev -B "$sim" -DINJECT_SIM_GLIBC_FLOOR=ON -DINJECT_JOIN=ON >/dev/null
cmake --build "$sim" --target simulated_cuda >/dev/null

make_root() {
  [[ -d $roots/$1 ]] && return
  mkdir -p "$roots"
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates \
    --customize-hook='chroot "$1" useradd --create-home --shell /bin/bash user' "$1" "$roots/$1.new" http://deb.debian.org/debian
  ! chroot "$roots/$1.new" sh -c 'command -v gcc cc g++ clang' || fail "$1 has a compiler"
  mv "$roots/$1.new" "$roots/$1"
}

# inside SUITE FILE: the script FILE as the user, in a mount and process namespace of its own.
inside() {
  unshare --mount --pid --fork --propagation private bash -euc '
    cd "$1"
    mount -t proc proc proc
    mount --rbind /dev dev
    # Where a company has its own name servers and certificates.
    for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do touch ".$file" && mount --bind "$file" ".$file"; done
    exec chroot --userspec=user:user . /usr/bin/env -i HOME=/home/user PATH=/usr/bin:/bin LANG=C.UTF-8 \
      LD_LIBRARY_PATH=/home/user/sim bash -eu "$2"' bash "$roots/$1" "$2"
}

for suite in "${suites[@]}"; do
  make_root "$suite"
  home=$roots/$suite/home/user
  rm -rf "${home:?}"/* "$home"/.[!.]*
  cp -r "$sim/sim" tests/packages/train.py "${wheel[0]}" "$home"
  {
    echo 'cd; . /etc/os-release; echo "$PRETTY_NAME, $(python3 --version), $(ldd --version | sed -n "1s/.* /glibc /p")"'
    # One shell for all lines, as a user has it.
    for line in "${lines[@]}"; do
      printf 'TIMEFORMAT=%q\ntime {\n%s\n}\n' "== %1R s, %1U s of a processor: ${line//%/%%}" "$line"
    done
    echo 'inject check result'
  } >"$home/lines.sh"
  chown -R --no-dereference --reference="$home" "$home"
  inside "$suite" /home/user/lines.sh >"$roots/$suite.log" 2>&1 || { cat "$roots/$suite.log"; fail "$suite: a line failed"; }
  sed -n '1p; /^== /p' "$roots/$suite.log"
  grep -q '^  tables: ' "$roots/$suite.log" || fail "$suite: no summary"
  awk -v suite="$suite" '/^== .*pip install/ && $2 > 20 { print "test_fresh: " suite ": installing took more than 20 s" }' "$roots/$suite.log" >&2
  if command -v chromium >/dev/null; then
    drawn=$(chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --virtual-time-budget=60000 --dump-dom \
      "file://$home/report.html" 2>/dev/null | grep -o 'data-plots="[a-z]*"' | head -1)
    [[ $drawn == 'data-plots="drawn"' ]] || fail "$suite: the page's plots: ${drawn:-nothing}"
    echo "== the page is open, its plots are drawn"
  fi
done
