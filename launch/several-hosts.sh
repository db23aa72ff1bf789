#!/usr/bin/env bash
# Runs an MPI program on N emulated hosts of this machine: each has a network and a host name of its own (host1 ... hostN), and a link
# (eth0) to the bridge that joins them. mpirun runs on host1. Nothing outlives it, not even when it is killed.
#
#   launch/several-hosts.sh N [options] [--] PROGRAM [ARGUMENT ...]
#
#   --ranks R            ranks on each host (default 2)
#   --map-by slot|node   fill host after host, or deal the ranks out in turn (default slot)
#   --login              mpirun runs on a host of its own without ranks (host0), as on a login node
#
#   source build/release/env.sh
#   launch/several-hosts.sh 2 --ranks 2 specdec_dist --config minimal.yaml
#   launch/several-hosts.sh 4 --map-by node specdec_dist --config minimal.yaml
#
# It returns what mpirun returns. Variables OMPI_MCA_... are heeded as always. To cut a host off while the job runs: take the process id
# of a rank there and, in another shell, `nsenter --net --target PID ip link set eth0 down`. Needs root, and iproute2.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

die() { printf 'several-hosts: %s\n' "$1" >&2; exit 2; }

# --- Inside: this is process 1 of a machine that consists of namespaces, and ends with it. --------------------------------------------

on_host() { # HOST COMMAND...
  local host=$1
  shift
  nsenter --net="$work/$host.net" --uts="$work/$host.uts" -- "$@"
}

make_host() { # NUMBER
  local host=host$1 address=10.0.$(($1 / 250)).$(($1 % 250 + 1))
  touch "$work/$host.net" "$work/$host.uts" &&
    unshare --net="$work/$host.net" --uts="$work/$host.uts" hostname "$host" &&
    on_host "$host" ip link set lo up &&
    on_host "$host" ip link add eth0 type veth peer name "port$1" netns 1 &&
    on_host "$host" ip address add "$address/16" dev eth0 &&
    on_host "$host" ip link set eth0 up &&
    ip link set "port$1" master bridge0 up &&
    printf '%s %s\n' "$address" "$host" >> "$work/hosts"
}

make_hosts() { # FIRST LAST
  local number
  mount -t tmpfs -o mode=0700 tmpfs "$work" || return
  ip link set lo up || return
  ip link add bridge0 type bridge || return
  ip link set bridge0 up || return
  printf '127.0.0.1 localhost\n' > "$work/hosts" || return
  for ((number = $1; number <= $2; ++number)); do make_host "$number" || return; done
  mount --bind "$work/hosts" /etc/hosts || return
  # What mpirun takes for ssh.
  cat > "$work/enter" <<END && chmod +x "$work/enter"
#!/bin/sh
host=\$1
shift
exec nsenter --net="$work/\$host.net" --uts="$work/\$host.uts" -- sh -c "\$*"
END
}

machine() { # DIRECTORY COUNT RANKS MAPPING LAUNCHER COMMAND...
  work=$1
  local count=$2 ranks=$3 mapping=$4 launcher=$5 number hosts=""
  shift 5
  make_hosts "$launcher" "$count" || die "cannot make the hosts: the commands above say why"
  for ((number = 1; number <= count; ++number)); do hosts+="${hosts:+,}host$number:$ranks"; done
  # More ranks than cores, and no rank bound: every host takes all cores of this machine for its own.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_hwloc_base_binding_policy="${OMPI_MCA_hwloc_base_binding_policy:-none}"
  export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
  export OMPI_MCA_pml="${OMPI_MCA_pml:-ob1}" OMPI_MCA_btl="${OMPI_MCA_btl:-tcp,self}"
  on_host "host$launcher" bash "$here/mpirun.sh" -np $((count * ranks)) --host "$hosts" --map-by "$mapping" \
    --mca plm_rsh_agent "$work/enter" --mca orte_tmpdir_base "$work" \
    --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
    "$@"
}

if [ "${1-}" = --machine ]; then
  shift
  trap : INT TERM HUP  # mpirun.sh gets them too, and answers
  machine "$@"
  exit
fi

# --- Outside ----------------------------------------------------------------------------------------------------------------------------

number() { # WHAT TEXT LIMIT
  if ! [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] || [ "$2" -gt "$3" ]; then die "$1: found '$2', expected a number from 1 to $3"; fi
}

case "${1-}" in
  -h|--help) sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  "") die "no number of hosts (try --help)" ;;
esac
number "hosts" "$1" 1000
hosts=$1 ranks=2 mapping=slot launcher=1
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --ranks) number --ranks "${2-}" 1000; ranks=$2; shift 2 ;;
    --map-by) case "${2-}" in slot|node) ;; *) die "--map-by: found '${2-}', expected slot or node" ;; esac
              mapping=$2; shift 2 ;;
    --login) launcher=0; shift ;;
    --) shift; break ;;
    -*) die "unknown option '$1' (try --help)" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || die "no program to run (try --help)"
[ "$(id -u)" -eq 0 ] || die "needs root, to make network namespaces (sudo -E env PATH=\"\$PATH\" $0 ...)"
for program in ip unshare nsenter setpriv mpirun; do
  command -v "$program" >/dev/null || die "$program is missing (launch/bootstrap.sh --tests installs it)"
done
command -v "$1" >/dev/null || die "found no program '$1' (source build/release/env.sh first?)"
unshare --mount --net --uts --pid --fork true 2>/dev/null ||
  die "root may not make namespaces here (a container without CAP_SYS_ADMIN?)"

# A former run that was killed has left an empty directory and nothing else.
for stale in /tmp/specdec-hosts.*; do
  owner=${stale#/tmp/specdec-hosts.}
  if [ -O "$stale" ] && ! kill -0 "${owner%.*}" 2>/dev/null; then rmdir "$stale"; fi
done
work=$(mktemp -d "/tmp/specdec-hosts.$$.XXXXXX") || die "cannot make a directory in /tmp"

# In a session of its own, so that Ctrl-C comes to the job once: from here. If this script is killed the machine's process 1 is, and with
# it go its processes, networks and mounts.
env --default-signal setpriv --pdeathsig KILL setsid \
  unshare --mount --net --uts --pid --kill-child=KILL --mount-proc \
  bash "${BASH_SOURCE[0]}" --machine "$work" "$hosts" "$ranks" "$mapping" "$launcher" "$@" <&0 &
machine=$!
# shellcheck disable=SC2064  # $machine is known
for signal in INT TERM HUP; do trap "kill -s $signal -- -$machine 2>/dev/null" "$signal"; done
ended="" code=0
while [ "${ended-}" != "$machine" ]; do
  wait -n -p ended "$machine"
  code=$?
done
trap '' INT TERM HUP
rmdir "$work"
exit "$code"
