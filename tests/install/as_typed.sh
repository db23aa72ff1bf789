#!/usr/bin/env bash
# The README's main job, exactly as typed: in a shell that has nothing but a plain PATH and the one source line, from a folder that has
# nothing to do with the repository.
#   as_typed.sh BUILD-TREE [SHELL]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
tree=$1
shell=${2:-bash}
command -v "$shell" >/dev/null || { echo "no $shell here"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

status=0
env -i HOME="$HOME" PATH=/usr/local/bin:/usr/bin:/bin "$shell" -c ". '$tree/env.sh'
mpirun -np 8 specdec_dist --config chinchilla-like.yaml --set decode.max_new_tokens=8 --json report.json" \
  >out 2>err </dev/null || status=$?

fail() { echo "FAILED: $1"; echo "--- stdout"; cat out; echo "--- stderr"; cat err; exit 1; }
[ "$status" -eq 0 ] || fail "exit status $status"
[ -s err ] || fail "no report on stderr"
grep -qi 'acceptance' err || fail "the report does not name the acceptance rate"
! grep -qiE 'warning|open-rte|orte_|vader|btl:' err || fail "Open MPI has something to say"

# stdout is text alone: what the speculative run says it generated, and no line of the report.
python3 - "$here/../mp" <<'END' || fail "stdout is not the generated text of 8 ranks alone"
import sys

sys.path.insert(0, sys.argv[1])
import job

report = job.load("report.json")
assert report["machine"]["ranks"] == 8, report["machine"]
[speculative] = [run for run in report["runs"] if run["method"] == "speculative"]
assert speculative["outputs"] and all(len(output["token_ids"]) == 8 for output in speculative["outputs"]), "not 8 tokens each"
text = job.streamed({"runs": [speculative]})
with open("out", "rb") as file:
    out = file.read()
assert out == text, f"{out} is not {text}"
END
echo "ran as typed in $shell"
