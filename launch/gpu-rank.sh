#!/usr/bin/env bash
# One rank on a machine with GPUs: runs a program on the cores and in the memory that are next to the GPU which the program will take.
# For mpirun and srun to start:
#
#   mpirun -np 8 --bind-to none launch/gpu-rank.sh PROGRAM [ARGUMENT ...]        (launch/gpu-node.sh does it)
#
# The ranks of a host take its GPUs in order (docs/gpu.md), as CUDA_VISIBLE_DEVICES lists them. Where the place of a GPU cannot be found the
# program runs unbound, and a line says so.
set -uo pipefail
system=${SPECDEC_SYSTEM:-/sys}  # for tests

note() { printf 'gpu-rank: note: %s: rank %s is not bound\n' "$1" "$rank" >&2; }

# INDEX, UUID, PCI ADDRESS of every GPU, in the order of their addresses.
gpus() { nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv,noheader 2>/dev/null | tr -d ' '; }

# The PCI address of the GPU that the rank number $1 of this host takes, as the kernel writes it; nothing when it cannot be told.
address() {
  local listed wanted index uuid bus
  IFS=, read -r -a listed <<< "${CUDA_VISIBLE_DEVICES-}"
  [ ${#listed[@]} -gt 0 ] || mapfile -t listed < <(gpus | cut -d, -f1)
  [ ${#listed[@]} -gt 0 ] || return
  wanted=${listed[$1 % ${#listed[@]}]// /}
  while IFS=, read -r index uuid bus; do
    if [ "$wanted" = "$index" ] || { [[ $wanted == GPU-* ]] && [[ $uuid == "$wanted"* ]]; }; then
      bus=${bus,,}
      echo "${bus: -12}"  # nvidia-smi writes the domain with eight digits
      return
    fi
  done < <(gpus)
}

case "${1-}" in
  -h|--help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  "") echo "gpu-rank.sh: no program to run (try --help)" >&2; exit 2 ;;
esac
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}
# CUDA numbers GPUs as nvidia-smi does, and not the fastest first.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
# NCCL's own connections keep to the interface of everything else; a warning of it is worth reading.
case "${SPECDEC_INTERFACE-}" in
  ""|*/*) ;;
  *) export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-$SPECDEC_INTERFACE}" ;;
esac
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"

gpu=$(address "$rank")
if [ -z "$gpu" ]; then
  note "found no GPU for it in nvidia-smi's list"
  exec "$@"
fi
cores=$(cat "$system/bus/pci/devices/$gpu/local_cpulist" 2>/dev/null)
node=$(cat "$system/bus/pci/devices/$gpu/numa_node" 2>/dev/null)
if [ -z "$cores" ]; then
  note "found no cores that are next to GPU $gpu"
  exec "$@"
fi
# A scheduler may have left this job only some of the machine's cores.
if ! taskset -c "$cores" true 2>/dev/null; then
  note "may not use the cores $cores next to GPU $gpu"
  exec "$@"
fi
if [ "${node:--1}" -ge 0 ] && command -v numactl >/dev/null && numactl --preferred="$node" true 2>/dev/null; then
  exec taskset -c "$cores" numactl --preferred="$node" "$@"
fi
exec taskset -c "$cores" "$@"  # memory comes from the node of the core that first touches it
