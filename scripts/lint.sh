#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# usage: scripts/lint.sh format            every C++ and CUDA source is as clang-format 14 writes it
#        scripts/lint.sh tidy BUILD_DIR    clang-tidy over libinject and injectctl, with the checks of .clang-tidy
#        scripts/lint.sh python            ruff over the command inject, its tests and the scripts; its settings are in pyproject.toml
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  format)
    find libinject injectctl include tests studies examples \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 |
      xargs -0 "${CLANG:-clang-format}" --dry-run --Werror -ferror-limit=1
    ;;
  tidy)
    python3 scripts/tidy.py "${CLANG:-build/deps/clang-tidy/clang_tidy/data/bin/clang-tidy}" "$2"
    ;;
  python)
    PYTHONPATH=build/deps/python${PYTHONPATH:+:$PYTHONPATH} python3 -m ruff check --no-cache scripts tests/python cmake libinject
    ;;
  *)
    sed -n '5,7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
