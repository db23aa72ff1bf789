#!/usr/bin/env bash
# Makes a CUDA 13.0 toolkit with cuBLAS and NCCL in a folder, from wheels of the Python package index: for machines that have none, and
# nothing else of them changes. It takes 1.1 GB and no root; the driver of a GPU is no part of it (docs/gpu.md). A second run finds it there.
#
#   launch/cuda-from-wheels.sh [FOLDER]     build/cuda-toolkit unless one is named: there the preset cuda looks for it
#
# For another folder: CUDA_HOME=FOLDER cmake --preset cuda
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

# Wheels of CUDA 12 have no nvcc. What is not the toolkit's own has versions of its own.
wheels=(nvidia-cuda-nvcc==13.0.* nvidia-cuda-crt==13.0.* nvidia-nvvm==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.*
        nvidia-nvtx==13.0.* nvidia-cublas==13.0.* nvidia-nccl-cu13==2.28.*)

die() { printf 'cuda-from-wheels: %s\n' "$1" >&2; exit 2; }

case "${1:-}" in
  -h|--help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) die "unknown argument '$1' (try --help)" ;;
esac
[ $# -le 1 ] || die "found $# arguments, expected at most one folder (try --help)"
folder=${1:-$here/../build/cuda-toolkit}
if [ -x "$folder/bin/nvcc" ]; then
  printf 'cuda-from-wheels: %s is there\n' "$folder" >&2
  exit 0
fi
[ ! -e "$folder" ] || die "$folder is there and has no bin/nvcc, expected a folder to be made"
python3 -m pip --version >/dev/null 2>&1 || die "found no pip for python3, expected it (Debian: python3-pip)"

# Beside the folder and renamed at the end, so that nobody ever finds half a toolkit.
mkdir -p "$(dirname "$folder")"
scratch=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$scratch" "${wheels[@]}" >&2 ||
  die "pip could not install ${wheels[*]}"

toolkit=$scratch/nvidia/cu13
[ -x "$toolkit/bin/nvcc" ] || die "the wheels have no bin/nvcc"
cp -r "$scratch/nvidia/nccl/include/." "$toolkit/include"
mv "$scratch"/nvidia/nccl/lib/* "$toolkit/lib"
mkdir "$toolkit/licenses"
mv "$scratch"/*.dist-info "$toolkit/licenses"
# Wheels have neither the names that linkers look for nor the folder that nvcc does.
ln -s lib "$toolkit/lib64"
for library in "$toolkit"/lib/lib*.so.*; do
  name=${library##*/}
  ln -sf "$name" "$toolkit/lib/${name%%.so.*}.so"
done
chmod 755 "$toolkit"
mv -T "$toolkit" "$folder"
printf 'cuda-from-wheels: made %s\n' "$folder" >&2
