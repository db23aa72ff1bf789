#!/usr/bin/env bash
# Installs into an empty prefix, builds and runs a project that only says find_package(specdec), and runs the installed programs from
# there, with nothing of the build tree on PATH.
#   run.sh BUILD-TREE
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
tree=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A space, because people have them.
prefix="$scratch/a prefix"

cmake --install "$tree" --prefix "$prefix" >"$scratch/log" || { cat "$scratch/log"; exit 1; }

fail() { echo "FAILED: $1"; exit 1; }
for path in include/specdec/backend/backend.h include/specdec/runtime/verifier.h share/specdec/assets/manpy-11m/config.json \
            share/specdec/configs/chinchilla-like.yaml share/doc/specdec_dist/LICENSE share/doc/specdec_dist/NOTICE; do
  [ -e "$prefix/$path" ] || fail "not installed: $path"
done
[ -z "$(find "$prefix" -name '*test*' -not -path '*/assets/*')" ] || fail "tests were installed"

# The program finds configs and models beside itself, wherever the shell stands.
for start in "" "mpirun -np 2 "; do
  (cd / && env -i HOME="$HOME" PATH=/usr/local/bin:/usr/bin:/bin bash -c ". '$prefix/share/specdec/env.sh'
    ${start}specdec_dist --config minimal.yaml --set decode.max_new_tokens=8 --set decode.ignore_eos=true") \
    >"$scratch/out" 2>"$scratch/log" </dev/null || { cat "$scratch/log"; fail "the installed program does not run (${start:-alone})"; }
  [ -s "$scratch/out" ] || fail "the installed program wrote no text (${start:-alone})"
  grep -q 'Greedy texts identical: yes' "$scratch/log" || fail "the installed program does not report (${start:-alone})"
done

cmake -G Ninja -S "$here" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1 &&
  cmake --build "$scratch/consumer" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "the consumer does not build"; }
"$scratch/consumer/consumer" | tee "$scratch/out"
grep -q 'as meant' "$scratch/out" || fail "the consumer printed something else"

cd "$scratch"
for program in specdec_dist specdec_score specdec_tokenize allreduce_bench; do
  "$prefix/bin/$program" --version | tee "$scratch/out"
  grep -Eq "^$program [0-9]+\.[0-9]+\.[0-9]+" "$scratch/out" || fail "$program --version"
  grep -q '^compiler: ' "$scratch/out" || fail "$program --version names no compiler"
  grep -q '^mpi: ' "$scratch/out" || fail "$program --version names no MPI"
  grep -q '^cuda: ' "$scratch/out" || fail "$program --version does not say whether it was built for GPUs"
done
