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
    # The analyzer gives a function up at 15,000 states rather than 225,000: less than half the time. Files that are nothing
    # but a table's hooks, one function hundreds of times over, go without it, but for one, and without the search for
    # parameters to be passed by reference: their signatures are the vendor's, and it looks through all of the file for
    # each. They take longest all the same, and so come first.
    # On all processors, but behind whatever else runs: other tests wait much of their time.
    budget=(--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=15000)
    python3 - "$2" <<'EOF' | nice -n 19 xargs -P "$(nproc)" -L 1 "${CLANG:-build/deps/clang-tidy/clang_tidy/data/bin/clang-tidy}" --quiet -p "$2" --extra-arg=-Wthread-safety --extra-arg=-Wno-unknown-warning-option "${budget[@]}" 2> >(grep -v 'warnings generated' >&2 || true)
import json, pathlib, sys
root = pathlib.Path.cwd()
files = {pathlib.Path(entry["file"]) for entry in json.load(open(f"{sys.argv[1]}/compile_commands.json"))}
ours = [file for file in files if any((root / folder) in file.parents for folder in ("libinject", "injectctl"))]
table = lambda file: file.parent.name == "hooks" and (root / "libinject/model" / file.name).with_suffix(".def").exists()
for file in sorted(ours, key=lambda file: (not table(file), -file.stat().st_size)):
    checks = "--checks=-clang-analyzer-*,-performance-unnecessary-value-param"
    print(checks if table(file) and file.stem != "cupti" else "", file)
EOF
    ;;
  python)
    PYTHONPATH=build/deps/python${PYTHONPATH:+:$PYTHONPATH} python3 -m ruff check --no-cache scripts tests/python cmake
    ;;
  *)
    sed -n '5,7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
