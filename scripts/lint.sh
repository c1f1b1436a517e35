#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# usage: scripts/lint.sh format            every C++ and CUDA source is as clang-format 14 writes it, below the license's two lines
#        scripts/lint.sh tidy BUILD_DIR    clang-tidy over libinject and injectctl, with the checks of .clang-tidy
#        scripts/lint.sh python            ruff over the command inject, its tests and the scripts; its settings are in pyproject.toml.
#                                          All Python files begin with the license's two lines.
set -euo pipefail
cd "$(dirname "$0")/.."

# Reads a list of files, each name ended by a zero.
check_license() {
  xargs -0 awk '
    FNR == 1 { first = /^#!/ ? 2 : 1 }
    FNR == first && !/^(#|\/\/|\/\*) SPDX-License-Identifier: Apache-2\.0$/ ||
    FNR == first + 1 && !/^(#|\/\/| \*) SPDX-FileCopyrightText: The libinject authors$/ {
      print FILENAME ":" FNR ": not the SPDX line of the license"; wrong = 1
    }
    END { exit wrong }' >&2
}

case "${1:-}" in
  format)
    sources=(find libinject injectctl include tests studies examples \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0)
    "${sources[@]}" | check_license
    "${sources[@]}" | xargs -0 "${CLANG:-clang-format}" --dry-run --Werror -ferror-limit=1
    ;;
  tidy)
    python3 scripts/tidy.py "${CLANG:-build/deps/clang-tidy/clang_tidy/data/bin/clang-tidy}" "$2"
    ;;
  python)
    find cmake examples libinject scripts studies tests -name '*.py' -print0 | check_license
    PYTHONPATH=build/deps/python${PYTHONPATH:+:$PYTHONPATH} python3 -m ruff check --no-cache scripts tests/python cmake libinject
    ;;
  *)
    sed -n '5,8s/^# //p' "$0" >&2
    exit 2
    ;;
esac
