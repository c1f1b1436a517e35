#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Fetches the CUDA 12 runtime and CUPTI from the vendor's wheels and builds programs/cuda12.cpp against them:
#   cuda12_fetch.sh FOLDER
# Leaves FOLDER/cuda12 (the program) and FOLDER/nvidia/{cuda_runtime,cuda_cupti}/lib, laid out as the wheels are.
set -eu
folder=${1:?usage: cuda12_fetch.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder/wheels" "$folder/nvidia/cuda_cupti/lib" "$folder/nvidia/cuda_runtime/lib"
for package in nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cupti-cu12==12.9.79; do
  python3 -m pip download -q --no-deps --only-binary=:all: -d "$folder/wheels" "$package"
done
python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
folder = sys.argv[1]
for wheel in glob.glob(os.path.join(folder, "wheels", "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith((".h", ".hpp", "libcudart.so.12", "libcupti.so.12")):
                archive.extract(name, folder)
PY
${CXX:-c++} -std=c++20 -O2 -Wall -Wextra -s -isystem "$folder/nvidia/cuda_runtime/include" -o "$folder/cuda12" \
  "$here/programs/cuda12.cpp" "$folder/nvidia/cuda_runtime/lib/libcudart.so.12" "-Wl,-rpath,\$ORIGIN/nvidia/cuda_runtime/lib"
# What is left is what a run needs.
rm -rf "$folder/wheels" "$folder/nvidia/cuda_runtime/include" "$folder/nvidia/cuda_cupti/include"
