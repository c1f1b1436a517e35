#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Copies what the GPU tests need out of a build, stripped, for a machine that cannot build:
#   stage.sh BUILD FOLDER; there: run_all.sh -b FOLDER
set -eu
build=${1:?usage: stage.sh BUILD FOLDER}
folder=${2:?usage: stage.sh BUILD FOLDER}
mkdir -p "$folder/injectctl" "$folder/tests/bench" "$folder/tests/gpu/contract" "$folder/tests/gpu/iterations" "$folder/studies" "$folder/examples"
for file in libinject.so injectctl/injectctl tests/gpu/iterations/libtruth_mark.so tests/gpu/contract/script_cuda tests/gpu/inject-occupancy studies/inject-cupti-cycles studies/libfloor_client.so tests/bench/bench_launch tests/bench/bench_search tests/bench/bench_shapes tests/bench/bench_allocations tests/bench/bench_spawn tests/bench/bench_hook tests/bench/bench_driver tests/bench/bench_stats examples/inject-train \
            examples/inject-train-static; do
  if [ -e "$build/$file" ]; then
    # What is dynamic stays: the exported names are what the library is for.
    strip --strip-unneeded -o "$folder/$file" "$build/$file"
    chmod +x "$folder/$file"
  else
    echo "not built: $file" >&2
  fi
done
for library in "$build"/tests/bench/libbench_hook_*.so $(ldd "$build/tests/bench/bench_stats" 2>/dev/null | awk '/libbenchmark/ { print $3 }'); do
  [ -e "$library" ] && cp -L "$library" "$folder/tests/bench/"
done
if [ -d "$build/cuda12" ]; then
  rm -rf "$folder/cuda12"
  cp -r "$build/cuda12" "$folder/cuda12"
else
  echo "no $build/cuda12; cuda12_fetch.sh makes it" >&2
fi
# What the command inject needs, for the Python that is there.
packages() {
  python3 -m pip install --quiet --no-compile --target "$folder/python" --upgrade --only-binary=:all: --python-version "${INJECT_GPU_PYTHON:-3.12}" "$@" ||
    echo "without $*: studies in folders need them there" >&2
}
packages typer jinja2
packages --no-deps plotly
# Pages embed its script. The rest is 30 MB of Python that nothing imports.
if [ -d "$folder/python/plotly" ]; then
  find "$folder/python/plotly" -mindepth 1 -maxdepth 1 ! -name package_data ! -name __init__.py -exec rm -rf {} +
fi
du -sh "$folder"
