#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Runs GPU tests and benchmarks on a machine that may have nothing but a build folder:
#   tests/gpu/run_all.sh [-b BUILD] [-o OUT] [-t SECONDS] SET...
# SET: slice1 compare frameworks graphs graph_times code_places after_inside unharmed starts coexistence processes torchrun iterations endings nccl merge shapes gemm_sweep memory memory_purpose energy metrics
# diagnosis occupancy copies timeline recovery soak contract cuda12 cpp examples bench, or all (the default), or a study, which all leaves
# out: utilization cupti_cycles first_window hints paired_windows step_marks convnets deepspeech2 exercises gemm_rnn training. SET:ARGUMENTS passes arguments to one of them, such as 'compare:--models transformer --rounds 2'.
# BUILD (default build) holds libinject.so, tests/bench/ and examples/; a folder with the bare binaries will do too.
# All output goes to OUT/gpu.log, details after each SET into OUT/gpu-results.tar.gz (so a run cut short leaves those of
# the sets before); the end of the output is a table. Exits 1 if anything failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=build
out=${OUT:-gpu-out}
limit=280
while getopts b:o:t: option; do
  case $option in
    b) build=$OPTARG ;;
    o) out=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ] || [ "$1" = all ]; then
  set -- slice1 compare frameworks graphs graph_times code_places after_inside unharmed starts coexistence processes torchrun iterations endings nccl merge shapes gemm_sweep memory memory_purpose energy \
    metrics diagnosis occupancy copies timeline recovery soak contract cuda12 cpp examples bench
fi
build=$(cd "$build" && pwd) || exit 2
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The command `inject` of the source tree takes the library from there.
[ -e "$root/build" ] || ln -s "$build" "$root/build"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 INJECT_BUILD=$build

# The C++ programs need the toolkit's libraries; the Python ones bring their own.
cuda_libraries() {
  for folder in "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")/../lib64" \
                /usr/local/cuda/lib64 $(python3 -c 'import sys, os
print(*[os.path.join(p, "nvidia", "cu13", "lib") for p in sys.path if os.path.isdir(os.path.join(p, "nvidia", "cu13", "lib"))])'); do
    if [ -e "$folder/libcudart.so.13" ] && [ -e "$folder/libcublas.so.13" ]; then
      (cd "$folder" && pwd)
      return
    fi
  done
}
cuda=$(cuda_libraries)

find_program() { # the first of the names that exists under BUILD
  for name in "$@"; do
    for file in "$build/$name" "$build/$(basename "$name")"; do
      [ -x "$file" ] && echo "$file" && return
    done
  done
  return 1
}

with_cuda() { # a script whose programs need the toolkit's libraries, CUPTI among them
  LD_LIBRARY_PATH=$cuda:$(dirname "$cuda")/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} python3 "$@" --out "$work"
}

run_set() {
  local set=$1
  shift
  case $set in
    slice1) python3 "$here/slice1_resnet.py" "$@" --out "$work" ;;
    compare) python3 "$here/compare_torch.py" "$@" --out "$work" ;;
    frameworks | graphs | graph_times | code_places | after_inside | unharmed | starts | coexistence | processes | torchrun | endings | merge | shapes | gemm_sweep | memory | memory_purpose | energy | diagnosis | copies | recovery | soak)
      python3 "$here/$set.py" "$@" --out "$work"
      ;;
    timeline) python3 "$here/torch_timeline.py" "$@" --out "$work" ;;
    metrics) python3 "$here/metrics_collection.py" "$@" --out "$work" ;;
    nccl) python3 "$here/nccl_ddp.py" "$@" --out "$work" ;;
    iterations) python3 "$here/iterations/truth_table.py" "$@" --out "$work" ;;
    cuda12) python3 "$here/cuda12.py" --cuda12 "${INJECT_CUDA12:-$build/cuda12}" "$@" --out "$work" ;;
    cpp) LD_LIBRARY_PATH=$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} python3 "$here/cpp_example.py" "$@" --out "$work" ;;
    occupancy | contract) with_cuda "$here/$set.py" "$@" ;;
    cupti_cycles) with_cuda "$root/studies/$set.py" "$@" ;;
    utilization | first_window | hints | paired_windows | step_marks) python3 "$root/studies/$set.py" "$@" --out "$work" ;;
    convnets | deepspeech2 | exercises | gemm_rnn | training) PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} python3 "$root/studies/$set/run.py" "$@" --out "$work/$set" ;;
    examples) python3 "$here/examples.py" "$@" --out "$work" ;;
    bench)
      local launch
      launch=$(find_program tests/bench/bench_launch) || { echo "no bench_launch under $build"; return 77; }
      LD_LIBRARY_PATH=$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        python3 "$root/tests/bench/bench.py" --build "$build" --programs "$(dirname "$launch")" "$@" --out "$work"
      ;;
    *) echo "no such set: $set"; return 2 ;;
  esac
}

declare -a table
status=0
: >"$out/gpu.log"
export -f run_set with_cuda find_program
export here root build work cuda
echo "CUDA libraries: ${cuda:-none found}; $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)"
for word in "$@"; do
  set_name=${word%%:*}
  arguments=${word#"$set_name"}
  arguments=${arguments#:}
  begin=$(date +%s)
  # shellcheck disable=SC2086  # the arguments of a set are words
  timeout -k 10 "$limit" bash -c 'run_set "$@"' run_set "$set_name" $arguments >"$work/$set_name.log" 2>&1
  rc=$?
  took=$(($(date +%s) - begin))
  case $rc in
    0) verdict=PASS ;;
    77) verdict=skip ;;
    124 | 137) verdict="FAIL (over $limit s)"; status=1 ;;
    *) verdict=FAIL; status=1 ;;
  esac
  echo "---- $set_name: $verdict, $took s"
  # The tests end with their table: what stands before it is in the log.
  tail -n 45 "$work/$set_name.log" | cut -c1-230
  { echo "---- $set_name: $verdict, $took s"; cat "$work/$set_name.log"; } >>"$out/gpu.log"
  # Raw records are large and can be had again; the tables, the logs and the verdicts are what one looks at.
  find "$work" \( -name '*_trace.csv' -o -name 'theirs.*.json*' -o -name 'trace.json.gz' \) -size +2M -delete 2>/dev/null
  tar -C "$work" -czf "$out/gpu-results.tar.gz" . 2>/dev/null
  table+=("$(printf '%-22s %5s s  %s' "$verdict" "$took" "$set_name")")
done
echo "==== $(date -u +%FT%TZ)"
printf '%s\n' "${table[@]}"
exit $status
