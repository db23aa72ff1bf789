#!/usr/bin/env bash
# The README's main job, exactly as typed: in a shell that has nothing but a plain PATH and the one source line, from a folder that has
# nothing to do with the repository.
#   as_typed.sh BUILD-TREE [SHELL]
set -euo pipefail
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
python3 - <<'END' || fail "stdout is not the generated text alone"
import json
report = json.load(open("report.json"))
out = open("out", encoding="utf-8").read()
runs = {run["method"]: run for run in report["runs"]}
outputs = runs["speculative"]["outputs"]
assert outputs and all(output["token_ids"] for output in outputs), "nothing was generated"
assert all(len(output["token_ids"]) <= 8 for output in outputs), "--set was not obeyed"
for output in outputs:
    assert output["text"] in out, output["text"]
left = out
for run in report["runs"]:
    for output in run["outputs"]:
        left = left.replace(output["text"], "", 1)
for output in outputs:
    left = left.replace(output["prompt"], "", 1)
assert not any(word in left for word in ("acceptance", "tokens/s", "ms/token", "speed-up")), left
END
echo "ran as typed in $shell"
