#!/usr/bin/env bash
# Every shell script parses, and shellcheck has nothing to say where it is installed.
#   scripts.sh ROOT
set -euo pipefail
cd "$1"
mapfile -t scripts < <(find . -path ./build -prune -o -path ./.git -prune -o -type f \( -name '*.sh' -o -name '*.sbatch' -o -path './.ci/run' \) -print | sort)
[ ${#scripts[@]} -ge 4 ] || { echo "found only ${#scripts[@]} scripts"; exit 1; }
for script in "${scripts[@]}"; do bash -n "$script"; done
if command -v shellcheck >/dev/null; then
  shellcheck --external-sources --severity=warning "${scripts[@]}"
fi
echo "${#scripts[@]} scripts"
