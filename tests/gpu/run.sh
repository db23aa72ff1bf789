#!/usr/bin/env bash
# Builds what needs a GPU, checks it on the one that is here, and writes every step's output to a file: for whoever has a GPU for
# ten minutes. Each step has a time limit; one that fails does not keep the next from running.
#
#   tests/gpu/run.sh [FOLDER]     results go to FOLDER, build/gpu-results unless named
#
# The last line is N passed, N failed; a step that this machine has no tool for is counted as failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cd "$here/../.." || exit 1
out=${1:-build/gpu-results}
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin  # compute-sanitizer, nvcc
mkdir -p "$out"
passed=0 failed=0

# step NAME SECONDS COMMAND...
step() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  if timeout --kill-after=5 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null; then
    passed=$((passed + 1))
    printf '%-12s passed  %4d s\n' "$name" $((SECONDS - begin))
  else
    failed=$((failed + 1))
    printf '%-12s FAILED  %4d s  (%s/%s.txt)\n' "$name" $((SECONDS - begin)) "$out" "$name"
  fi
}

tests=build/cuda/bin/gpu_tests
# Launches of all kernels, small enough for a checker that runs them a hundred times slower.
few='--gtest_filter=*Norms*:*Elementwise*:*Moved*:*RanksAddUp*:*RandomWeights*'

build() { cmake --preset cuda -DSPECDEC_CUDA_ARCHITECTURES=native && cmake --build build/cuda --target gpu_tests product_bench specdec_dist -j "$(nproc)"; }
# Greedy: with speculation the same text as without.
greedy() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  mpirun -np 1 specdec_dist --config chinchilla-like-native.yaml --set backend=cuda --set decode.temperature=0 --json "$out/greedy.json" &&
    python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["comparisons"][0]["identical"] is not True)' "$out/greedy.json"
}
# A token of a large model, one GPU: ms per token is in the table.
shape() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  mpirun -np 1 specdec_dist --config configs/gpu/llama-3-8b.yaml --json "$out/llama-3-8b.json"
}
export -f build greedy shape
export out

step machine 20 nvidia-smi
step build 300 bash -c build
step tests 90 "$tests"
step products 90 build/cuda/bin/product_bench --json "$out/products.json"
step memcheck 90 compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" "$few"
step racecheck 90 compute-sanitizer --tool racecheck --error-exitcode 1 "$tests" "$few"
step resources 60 python3 tests/gpu/resources.py
step greedy 60 bash -c greedy
step shape 90 bash -c shape

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
