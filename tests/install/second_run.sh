#!/usr/bin/env bash
# launch/quickstart.sh once more in the tree that it, or tests/run.sh, has built: nothing is installed, configured or compiled, and the main
# job's text comes, the same as from one rank.
#   second_run.sh BUILD-TREE
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
tree=$1
[ "$tree" -ef "$repository/build/release" ] || { echo "not the tree that quickstart.sh builds: $tree"; exit 77; }
[ -f "$tree/.configured" ] || { echo "neither quickstart.sh nor tests/run.sh has configured $tree"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $1"; echo "--- stdout"; cat "$scratch/out"; echo "--- stderr"; cat "$scratch/err"; exit 1; }

# What was edited or committed since the build is no second run's to compile.
cmake --build "$tree" --target programs >"$scratch/out" 2>"$scratch/err" || fail "the tree does not build"

mkdir "$scratch/bin"
printf '#!/bin/sh\necho "apt-get was called" >&2\nexit 1\n' >"$scratch/bin/apt-get"
chmod +x "$scratch/bin/apt-get"
status=0
(cd "$scratch" && env -i HOME="$HOME" PATH="$scratch/bin:/usr/local/bin:/usr/bin:/bin" bash "$repository/launch/quickstart.sh") \
  >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
[ "$status" -eq 0 ] || fail "exit status $status"
! grep -Eq 'configuring|\] (Building|Linking|Re-running CMake)' "$scratch/err" || fail "it did again what was done"
grep -q 'Speed-up' "$scratch/err" || fail "no report on stderr"
grep -qF "source $repository/build/release/env.sh" "$scratch/err" || fail "it does not say how to go on from another folder"

"$tree/bin/specdec_dist" --config chinchilla-like.yaml --quiet >"$scratch/alone" </dev/null
[ -s "$scratch/alone" ] || fail "one rank wrote no text"
cmp "$scratch/out" "$scratch/alone" || fail "stdout is not the main job's text"
echo "the second run did nothing twice"
