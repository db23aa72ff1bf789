#!/usr/bin/env bash
# Runs a program on the GPUs of this machine: one rank for each GPU, on the cores next to it.
#
#   launch/gpu-node.sh [-np N] PROGRAM [ARGUMENT ...]
#
#   -np N   so many ranks; without it as many as there are GPUs, those of CUDA_VISIBLE_DEVICES where it is set
#
#   source build/cuda/env.sh
#   launch/gpu-node.sh -np 8 specdec_dist --config configs/gpu/chinchilla-70b.yaml
#
# Returns what mpirun returns. docs/gpu.md
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

die() { printf 'gpu-node.sh: %s\n' "$1" >&2; exit 2; }

case "${1-}" in
  -h|--help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
command -v nvidia-smi >/dev/null || die "nvidia-smi is missing: is there a GPU with its driver?"
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  IFS=, read -r -a listed <<< "$CUDA_VISIBLE_DEVICES"
  gpus=${#listed[@]}
else
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | grep -c '^[0-9]')
fi
[ "$gpus" -gt 0 ] || die "found no GPU (nvidia-smi shows why)"
ranks=$gpus
case "${1-}" in
  -n|-np)
    if ! [[ ${2-} =~ ^[1-9][0-9]{0,3}$ ]]; then die "$1: found '${2-}', expected a number of ranks"; fi
    ranks=$2
    shift 2 ;;
esac
[ $# -gt 0 ] || die "no program to run (try --help)"
[ "$ranks" -le "$gpus" ] || die "found $gpus GPUs for $ranks ranks, expected one for each"
exec "$here/mpirun.sh" -np "$ranks" --bind-to none "$here/gpu-rank.sh" "$@"
