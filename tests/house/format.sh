#!/usr/bin/env bash
# The code is as clang-format 14 leaves it. Exit status 77 (skipped) without that version: others lay out differently.
#   format.sh ROOT
set -euo pipefail
cd "$1"
format=$(command -v clang-format-14 || command -v clang-format || true)
[ -n "$format" ] && "$format" --version | grep -q 'version 14\.' || { echo "no clang-format 14"; exit 77; }
find backend parallel models runtime launch tests -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 "$format" --dry-run -Werror
