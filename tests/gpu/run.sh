#!/usr/bin/env bash
# Builds what needs a GPU, checks it on the one that is here, and writes every step's output to a file: for whoever has a GPU for
# ten minutes. Each step has a time limit, and all of them together nine minutes; one that fails does not keep the next from running.
#
#   tests/gpu/run.sh [--only STEP,...] [FOLDER]     results go to FOLDER, build/gpu-results unless named
#
#   --only STEP,...   those steps alone, as the lines name them: without `build`, of what build/cuda has
#
# The last line is N passed, N failed; a step that this machine has no tool for, or that no time was left for, is counted as failed. Two are
# said to be not here, and not counted: the baseline of transformers where python3 has no torch or no transformers, and what needs several GPUs where
# there is one.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cd "$here/../.." || exit 1
only=""
if [ "${1-}" = --only ]; then
  only=,${2:?--only: expected steps},
  shift 2
fi
out=${1:-build/gpu-results}
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin  # compute-sanitizer, nvcc
mkdir -p "$out"
passed=0 failed=0
all=540  # seconds

wanted() { [ -z "$only" ] || [[ $only == *",$1,"* ]]; }
# line NAME SECONDS COMMAND...: runs it and says in a line how it came out.
line() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  [ "$limit" -le $((all - begin)) ] || limit=$((all - begin))
  if [ "$limit" -le 0 ]; then
    printf '%-12s FAILED  no time left\n' "$name"
  elif timeout --kill-after=5 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null; then
    printf '%-12s passed  %4d s\n' "$name" $((SECONDS - begin))
  else
    printf '%-12s FAILED  %4d s  (%s/%s.txt)\n' "$name" $((SECONDS - begin)) "$out" "$name"
  fi
}
# Of these nothing is timed, so they run side by side until `joined`.
steps=()
beside() {
  wanted "$1" || return 0
  steps+=("$1")
  line "$@" >"$out/$1.line" &
}
joined() {
  wait
  local name
  for name in "${steps[@]}"; do
    cat "$out/$name.line"
    if grep -q "^$name *passed" "$out/$name.line"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    rm "$out/$name.line"
  done
  steps=()
}
# step NAME SECONDS COMMAND...: by itself.
step() {
  beside "$@"
  joined
}

tests=build/cuda/bin/gpu_tests
# Launches of all kernels, small enough for a checker that runs them a hundred times slower.
few='--gtest_filter=*Norms*:*ALittleSplit*:*Elementwise*:*Moved*:*RanksAddUp*:*RandomWeights*:*BrokenRows*:*Residuals*'

build() { cmake --preset cuda -DSPECDEC_CUDA_ARCHITECTURES=native && cmake --build build/cuda --target gpu_tests product_bench pass_bench programs -j "$(nproc)"; }
# A process for each test: one whose kernel has failed has no GPU any more.
tests() {
  "$tests" --gtest_list_tests | awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }' >"$out/tests.list" && [ -s "$out/tests.list" ] &&
    xargs -P 4 -I TEST bash -c '"$tests" --gtest_brief --gtest_filter=TEST' <"$out/tests.list"
}
# Greedy: with speculation the same text as without.
greedy() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  mpirun -np 1 specdec_dist --config chinchilla-like-native.yaml --set backend=cuda --set decode.temperature=0 --json "$out/greedy.json" &&
    python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["comparisons"][0]["identical"] is not True)' "$out/greedy.json"
}
# The same for every K that one block of rows holds.
lengths() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  # Most of a short job is its start.
  seq 0 15 | xargs -P 4 -I K mpirun -np 1 specdec_dist --config chinchilla-like-native.yaml --set backend=cuda --set decode.temperature=0 --set decode.k=K \
    --set decode.max_new_tokens=48 --no-stream --json "$out/lengths-K.json" || return
  python3 - "$out"/lengths-*.json <<'END'
import json, sys
runs = [json.load(open(path)) for path in sys.argv[1:]]
tokens = [[output["token_ids"] for run in job["runs"] for output in run["outputs"]] for job in runs]
sys.exit(len(runs) != 16 or not all(job["comparisons"][0]["identical"] for job in runs) or tokens.count(tokens[0]) != 16)
END
}
# A token of a large model, one GPU: ms per token is in the table. With and without what can be switched off.
shape() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  local off
  for off in nothing graphs=false overlap=false fuse=false prefetch=0; do
    local without=()
    [ "$off" = nothing ] || without=(--set "cuda.$off")
    mpirun -np 1 specdec_dist --config configs/gpu/llama-3-8b.yaml "${without[@]}" --json "$out/llama-3-8b-without-${off%=*}.json" || return
  done
}
# The same over all GPUs of this machine: what weights that come ahead of an all-reduce bring.
ahead() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  local transport mib
  for transport in ipc nccl; do
    for mib in 0 8 16 32; do
      launch/gpu-node.sh specdec_dist --config configs/gpu/llama-3-8b.yaml --set "parallel.transport=$transport" --set "cuda.prefetch=$mib" \
        --no-stream --json "$out/llama-3-8b-$transport-ahead-$mib.json" || return
    done
  done
}
# Words for --read-gbps, if products has run.
read_measured() { python3 -c 'import json, sys; print("--read-gbps", max(r["bytes_per_second"] for r in json.load(open(sys.argv[1]))["read"]) / 1e9)' "$out/products.json" 2>/dev/null; }
# Passes of 1 to 16 rows, ours and below those of transformers: of the shapes of the large pair and of the shipped models.
passes() {
  local model more
  for model in shapes/llama-3-8b shapes/llama-3.2-1b manpy-11m manpy-2m; do
    more=$(read_measured)
    [ -e "assets/$model/model.safetensors" ] || more="$more --weights random"
    # shellcheck disable=SC2086
    build/cuda/bin/pass_bench --backend cuda --model "assets/$model" $more --json "$out/passes-${model##*/}.json" || return
  done
}
baseline() {
  # shellcheck disable=SC2046
  python3 tests/gpu/transformers_baseline.py assets/shapes/llama-3-8b assets/shapes/llama-3.2-1b assets/manpy-11m assets/manpy-2m \
    $(read_measured) --json "$out/transformers.json"
}
# ranks_alike EXACT [MORE]: 2 and 4 processes that share this GPU sum right over each of the transports EXACT,MORE, and over EXACT their tokens are those of one
# rank. For correctness only: processes that share a GPU take turns of milliseconds, and every sum waits for all of them.
ranks_alike() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  local exact=$1 more=${2:+,$2} ranks largest
  for ranks in 1 2 4; do
    largest=4M
    [ "$ranks" -lt 4 ] || largest=1M  # several pieces of ipc in any case
    [ "$ranks" -eq 1 ] || tests/gpu/sharing-mpirun.sh -np "$ranks" allreduce_bench --transport "$exact$more" --share-gpus \
      --bytes "40,64K,$largest" --dtype fp32,bf16 --iterations 3 --warmup 1 --json "$out/$exact-sums$ranks.json" || return
    tests/gpu/sharing-mpirun.sh -np "$ranks" specdec_dist --config chinchilla-like-native.yaml --set backend=cuda \
      --set "parallel.transport=$([ "$ranks" -eq 1 ] && echo auto || echo "$exact")" --set parallel.share_gpus=true \
      --set decode.max_new_tokens=16 --no-stream --json "$out/$exact-ranks$ranks.json" || return
  done
  python3 - "$out/$exact-ranks"{1,2,4}.json <<'END'
import json, sys
tokens = [[output["token_ids"] for run in json.load(open(path))["runs"] for output in run["outputs"]] for path in sys.argv[1:]]
sys.exit(not tokens[0] or tokens.count(tokens[0]) != len(tokens))
END
}
# Wherever the draft runs, the text is the same: 2 processes, or 3, that share this GPU.
placement() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  python3 tests/mp/placement_test.py the_text_is_that_of_rank0 --program build/cuda/bin/specdec_dist --ranks 2 --set backend=cuda --set parallel.share_gpus=true
}
# lost_rank TRANSPORT: of 2 processes that share this GPU one dies or hangs while the other waits for it on the GPU.
lost_rank() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  python3 tests/mp/lost_rank_test.py kill_worker stop_worker kill_rank_0 terminate --program build/cuda/bin/specdec_dist --ranks 2 --transport "$1" \
    --mpirun tests/gpu/sharing-mpirun.sh --set backend=cuda --set parallel.share_gpus=true
}
# Which transport to take from which payload on: of all GPUs of this machine.
crossovers() {
  # shellcheck source=/dev/null
  . build/cuda/env.sh
  launch/gpu-node.sh allreduce_bench --transport ipc,nccl,nccl-fast --bytes 1K..16M --json "$out/crossovers.json" >"$out/allreduce.txt" &&
    python3 tests/bench/crossovers.py "$out/crossovers.json"
}
export -f build tests greedy lengths shape read_measured passes baseline ranks_alike placement lost_rank crossovers ahead
export out tests

step machine 20 nvidia-smi
step build 300 bash -c build
step shape 120 bash -c shape
step products 90 build/cuda/bin/product_bench --json "$out/products.json"
step passes 60 bash -c passes
if ! wanted transformers; then
  :
elif python3 -c 'import torch, transformers' 2>"$out/transformers.txt"; then
  step transformers 90 bash -c baseline
else
  printf '%-12s not here  (%s)\n' transformers "$(tail -n 1 "$out/transformers.txt")"
fi
if ! wanted crossovers && ! wanted ahead; then
  :
elif [ "$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]')" -gt 1 ]; then
  step crossovers 60 bash -c crossovers
  wanted crossovers && grep '^take ' "$out/crossovers.txt"
  step ahead 90 bash -c ahead
else
  printf '%-12s not here  (needs several GPUs: ranks that share one say nothing of links)\n' crossovers
fi
step overlapped 60 build/cuda/bin/product_bench --overlap --ranks 1 --rows 1,5,9 --json "$out/products-overlapped.json"
step carveout 60 build/cuda/bin/product_bench --carveout 100 --ranks 1 --rows 1,5 --json "$out/products-carveout.json"
beside tests 150 bash -c tests
beside memcheck 150 compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" "$few"
beside racecheck 150 compute-sanitizer --tool racecheck --error-exitcode 1 "$tests" "$few"
beside greedy 60 bash -c greedy
beside lengths 120 bash -c lengths
beside placement 120 bash -c placement
beside resources 60 python3 tests/gpu/resources.py
beside sums 60 python3 tests/gpu/resources.py backend/cuda/device_sums.cu
joined
step nccl 150 bash -c 'ranks_alike nccl nccl-fast'
step ipc 150 bash -c 'ranks_alike ipc'
step lost_nccl 60 bash -c 'lost_rank nccl'
step lost_ipc 60 bash -c 'lost_rank ipc'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
