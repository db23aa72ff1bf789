#!/usr/bin/env bash
# clang-tidy over the project's sources, or over the files given: tests/lint.sh [FILE...]. Some ten seconds a file on one core, so all of it takes
# minutes; that is why it is not a stage of tests/run.sh. Needs `launch/bootstrap.sh --tests --lint`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=launch/build.sh
. "$here/../launch/build.sh"
bash "$here/../launch/bootstrap.sh" --tests --lint
configure release -DSPECDEC_TESTS=ON

if [ $# -gt 0 ]; then
  files=("$@")
else
  cd "$repository"
  # What only a build for GPUs compiles is not in this one's list.
  mapfile -t files < <(find backend parallel models runtime launch -name '*.cpp' | sort |
    while read -r file; do if grep -qF "/$file\"" build/release/compile_commands.json; then echo "$file"; fi; done)
fi
# clang-tidy 14, Debian 12's default, cannot read the standard library's <source_location>.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-16 --quiet -p "$repository/build/release"
say "${#files[@]} files, no findings"
