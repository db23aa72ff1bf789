#!/usr/bin/env bash
# mpirun for processes that share one GPU over NCCL, which takes one rank a GPU: each says that it is a host of its own, and payloads go through sockets. For
# correctness only.
#
#   tests/gpu/sharing-mpirun.sh -np N PROGRAM [ARGUMENT ...]
set -euo pipefail
export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_WIN_ENABLE=0 NCCL_MAX_NCHANNELS=1
# shellcheck disable=SC2016
exec mpirun "$1" "$2" bash -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"' rank "${@:3}"
