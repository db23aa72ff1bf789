#!/usr/bin/env bash
# From a fresh clone to generated text: installs what is missing, builds the programs into build/release/bin, and runs the
# main job. A second run only does what changed. Takes no arguments and asks nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=launch/build.sh
. "$here/build.sh"

bash "$here/bootstrap.sh"
# A tree that tests/run.sh has configured keeps its tests.
tests=OFF
if grep -qs '^SPECDEC_TESTS:BOOL=ON' "$repository/build/release/CMakeCache.txt"; then tests=ON; fi
configure release -DSPECDEC_TESTS=$tests
build release programs

environment="build/release/env.sh"
# shellcheck disable=SC1090
. "$repository/$environment"
say "mpirun -np 8 specdec_dist --config chinchilla-like.yaml"
mpirun -np 8 specdec_dist --config chinchilla-like.yaml </dev/null

[ "$PWD" -ef "$repository" ] || environment="$repository/$environment"
cat >&2 <<END

To run it yourself, once in each shell:
  source $(printf '%q' "$environment")
and then, in any folder:
  mpirun -np 8 specdec_dist --config chinchilla-like.yaml
END
