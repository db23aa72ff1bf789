#!/usr/bin/env bash
# From a fresh clone to the verdict of all tests: installs what is missing, builds, and runs
#   release  every ctest label: unit, golden, mp; then, with each weaker instruction set of the machine forced, what holds whole models to their bits and golden values
#   asan     the unit tests of kernels and parsers under the address and undefined-behaviour sanitizers
#   tsan     the tests of the threads and shared-memory transports and of threaded kernels under the thread sanitizer
#   cuda     where there is an nvcc: the programs and tests for GPUs build (SPECDEC_CUDA_ARCHITECTURES, one is enough), and what needs none runs
# The last line is the sum of all stages: N passed, N failed[, N skipped].
#
#   tests/run.sh              everything
#   tests/run.sh --quick      release only, without label mp
#   tests/run.sh --label X    release only, label X
#   tests/run.sh --build S... only builds what stages S test
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=launch/build.sh
. "$here/../launch/build.sh"

# Which files of tests/unit the sanitizers build and run: kernels and whatever parses bytes from outside; and, with some cases taken from them by their ctest
# name (Suite.Case), what uses threads.
asan_files='acceptance adaptive_draft_length agreement aligned_array bench_.* calibration checkpoint config cpu_.* crafted_payload dedicated_draft delays dtype elementary gpu_backend gpu_products gpu_random_weights head interconnect_load kv_cache lane_sum linear matmul.*'
asan_files+=' model_.* npy pass_times.* peer_sum philox random_weights rank_sum reference_backend rope round row_sampler rows_in_place sampler sentencepiece_fuzz shapes simulation'
asan_files+=' shard_plan shm_communicator staging study study_results tensor_layout text_stream thread_.* timed_model tokenizer.* tree vector_math weights'
tsan_files='aligned_array bench_results core_distance cpu_attention crafted_payload doorbell gpu_backend gpu_products greedy_bits lane_sum latency matmul_bits peer_sum report row_sampler shm_communicator thread_.* timed_model'
tsan_tests='AlignedArray|Announcement|CoreDistance|ThreadCommunicator|Doorbell|ShmSteps|ShareOut|ThreadPool|SelfCommunicator|ShmCommunicator.*ranks3_|Journal|BenchTurns|AllReduceBench|DecodeBench|LlamaWithGroupedQueries/(2ranks2|4ranks1)|GpuBackendTest|GpuProductsTest.RanksAddUp|TensorMatmul.(EveryShape|GatesAct)|GpuRowSamplerTest.(Broken|Residuals|TheHostsTokenIs)|LaneSum|PeerSum|TimedRanksTest|MatmulBits.ThreadsChangeNothing|CpuAttention[.]'

label="" build_only=false
under_mpirun='^mp$'
stages="release asan tsan cuda"
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) stages=release; label='unit|golden' ;;
    --label) [ $# -ge 2 ] || { echo "run.sh: --label needs a name" >&2; exit 2; }
             stages=release; label="^$2\$"; shift ;;
    --build) shift; build_only=true stages=${*:-none}
             for stage in $stages; do
               case "$stage" in release | asan | tsan | cuda) ;;
                 *) echo "run.sh: --build needs stages (release, asan, tsan, cuda), not '$stage'" >&2; exit 2 ;;
               esac
             done
             break ;;
    -h|--help) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1' (try --help)" >&2; exit 2 ;;
  esac
  shift
done

# What holds whole models to their bits and their golden values: with each instruction set of the machine in turn, weaker ones than the strongest after all else. What takes minutes more, by hand:
#   SPECDEC_TEST_ISA=scalar ctest --test-dir build/release -R 'SamplingDistribution|Perplexity'
exactness='SameBits|OtherRanks|Transformers|/GreedyBits\.|LedAstray'

passed=0 failed=0 skipped=0
failures=()
isa=""  # that is forced
finish() {
  [ $((passed + failed)) -gt 0 ] || { say "no test ran"; failed=1; }
  # Once more and together, since each stands among thousands of lines.
  if [ "${#failures[@]}" -gt 0 ]; then printf 'failed: %s\n' "${failures[@]}"; fi
  if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
  else
    echo "$passed passed, $failed failed"
  fi
  [ "$failed" -eq 0 ]
  exit
}
# give_up WHAT: without it nothing after it can run.
give_up() { say "FAILED: $1"; failed=$((failed + 1)); failures+=("$1"); finish; }

# run_tests PRESET TESTS-AT-A-TIME CTEST-ARGUMENTS...
run_tests() {
  local preset=$1 at_a_time=$2 tree="$repository/build/$1" status suite total bad left_out
  shift 2
  say "testing (preset $preset, $at_a_time at a time)"
  rm -f "$tree/junit.xml"
  "${launcher[@]}" ctest --test-dir "$tree" --output-on-failure --no-tests=error --parallel "$at_a_time" \
    --output-junit "$tree/junit.xml" "$@" </dev/null
  status=$?
  suite=$(tr '\n' ' ' < "$tree/junit.xml" 2>/dev/null | grep -o '<testsuite [^>]*>')
  count() { local number; number=$(grep -o "[[:space:]]$1=\"[0-9]*\"" <<<"$suite" | tr -dc 0-9); echo "${number:-0}"; }
  total=$(count tests) bad=$(count failures) left_out=$(( $(count skipped) + $(count disabled) ))
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
    bad=1 total=$((total + 1)) failures+=("ctest itself ($preset)")
  fi
  while IFS= read -r name; do failures+=("$name ($preset${isa:+, $isa})"); done < <(
    sed -n 's/^[[:space:]]*<testcase name="\([^"]*\)".* status="fail".*/\1/p' "$tree/junit.xml" 2>/dev/null)
  passed=$((passed + total - bad - left_out)) failed=$((failed + bad)) skipped=$((skipped + left_out))
}

# weaker_isas: by name, those of this machine but the strongest.
weaker_isas() {
  "$repository/build/release/bin/unit_tests" --gtest_list_tests --gtest_filter='Machine/TestIsa.IsForced/*' |
    sed -n 's|^ *IsForced/\([a-z0-9_]*\).*|\1|p' | head -n -1
}

# Where CMake looks for it too (cmake/SpecdecCuda.cmake).
has_nvcc() { PATH="${CUDA_HOME:-/usr/local/cuda}/bin:$repository/build/cuda-toolkit/bin:$PATH" command -v "${CUDACXX:-nvcc}" >/dev/null; }

# refuses_without_gpu SCRIPT CASE PROGRAM RANKS: the tests of a GPU build that need no GPU.
refuses_without_gpu() {
  # shellcheck disable=SC1091
  if (. "$repository/build/cuda/env.sh" && python3 "$here/mp/$1" "$2" --program "$repository/build/cuda/bin/$3" --ranks "$4" \
        --mpirun "$(command -v mpirun)") </dev/null; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1)) failures+=("$2 (cuda)")
  fi
}

# make_ready STAGE: configured and built.
make_ready() {
  case "$1" in
    release) configure release -DSPECDEC_TESTS=ON && build release all ;;
    asan) configure asan -DSPECDEC_BENCHMARKS=OFF -DSPECDEC_UNIT_TESTS="${asan_files// /;}" && build asan unit_tests ;;
    tsan) configure tsan -DSPECDEC_BENCHMARKS=OFF -DSPECDEC_UNIT_TESTS="${tsan_files// /;}" && build tsan unit_tests ;;
    cuda)
      has_nvcc || return 0
      configure cuda -DSPECDEC_TESTS=ON -DSPECDEC_CUDA_ARCHITECTURES="${SPECDEC_CUDA_ARCHITECTURES:-90}" &&
        build cuda programs gpu_tests product_bench pass_bench nvtx_test nvtx_listener ;;
  esac
}

# build_meanwhile STAGE...: while tests wait for one another. Where the kernel has autogroups (each session is one) a compiler weighs as much as a whole job of
# the tests however nice it is, and their deadlines are of two seconds: so it is the session that is made nice, and where that cannot be, nothing is done.
meanwhile=""
build_meanwhile() {
  mkdir -p "$repository/build"
  # shellcheck disable=SC2016
  nice -n 19 setsid bash -c 'echo 19 > /proc/self/autogroup && exec bash "$0" --build "$@"' "$here/run.sh" "$@" \
    > "$repository/build/meanwhile.log" 2>&1 </dev/null &
  meanwhile=$!
  trap 'kill -TERM -- "-$meanwhile" 2>/dev/null' EXIT
}
# Whether it built or failed, the stages themselves ask again, and say what is amiss.
await_builds() {
  [ -n "$meanwhile" ] || return 0
  say "waiting for what is built meanwhile (build/meanwhile.log)"
  wait "$meanwhile"
  meanwhile=""
  trap - EXIT
}

bash "$here/../launch/bootstrap.sh" --tests || give_up "installing what the tests need"
launcher=(env)
cores=$(nproc)
for stage in $stages; do
  [ "$stage" = release ] || await_builds
  make_ready "$stage" || give_up "building $stage"
  if $build_only; then continue; fi
  case "$stage" in
    release)
      if [ "$label" != "$under_mpirun" ]; then run_tests release "$cores" -LE "$under_mpirun" ${label:+-L "$label"}; fi
      # Jobs under mpirun start, end, and let deadlines pass: most of the time they compute nothing.
      if [ -z "$label" ]; then build_meanwhile asan tsan cuda; fi
      if [ -z "$label" ] || [ "$label" = "$under_mpirun" ]; then run_tests release $((2 * cores)) -L "$under_mpirun"; fi
      if [ -z "$label" ]; then
        for isa in $(weaker_isas); do
          say "forcing $isa"
          launcher=(env "SPECDEC_TEST_ISA=$isa")
          run_tests release "$cores" -L 'unit|golden' -R "$exactness" -E '_reference_'
        done
        launcher=(env) isa=""
      fi ;;
    asan)
      # Minutes each, of kernels and passes that other cases go through.
      run_tests asan "$cores" -L unit -LE house -E 'GpuBackendTest.SplitAttention|GpuProductsTest.OfGates|PassTimes.AreOfTheThreadsThatARankHas' ;;
    tsan)
      # The thread sanitizer of gcc 12 cannot place its shadow when the kernel spreads addresses widely.
      if setarch "$(uname -m)" -R true 2>/dev/null; then launcher=(setarch "$(uname -m)" -R); fi
      run_tests tsan "$cores" -L unit -LE house -R "$tsan_tests" ;;
    cuda)
      if has_nvcc; then
        run_tests cuda "$cores" -R '^nvtx$'
        refuses_without_gpu bad_input_test.py backend_without_a_gpu specdec_dist 0
        refuses_without_gpu bad_input_test.py transport_on_gpus_without_gpus specdec_dist 2
        refuses_without_gpu allreduce_bench_test.py without_gpus allreduce_bench 2
      else
        say "no nvcc here: the preset cuda is not built (docs/gpu.md)"
      fi ;;
  esac
done
if ! $build_only; then finish; fi
