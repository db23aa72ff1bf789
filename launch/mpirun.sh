#!/usr/bin/env bash
# mpirun for jobs on several hosts: it notices when a host is cut off, and does not hang when it has noticed.
#
#   launch/mpirun.sh MPIRUN-ARGUMENT ...
#   launch/mpirun.sh --hostfile hosts -np 8 specdec_dist --config chinchilla-like-native.yaml
#
# Returns what mpirun returns. docs/several-hosts.md
set -uo pipefail

patience=10  # seconds for mpirun to end its job after a signal; a second or two is the rule
last_words=3 # seconds for ranks that are told to end because mpirun cannot go on

case "${1-}" in
  -h|--help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  "") echo "mpirun.sh: no arguments for mpirun (try --help)" >&2; exit 2 ;;
esac
command -v mpirun >/dev/null || { echo "mpirun.sh: mpirun is missing (launch/bootstrap.sh installs it)" >&2; exit 2; }

# The keepalives find a silent host in 4 s. In a session of its own, so that Ctrl-C comes to mpirun once: from here, as any signal does
# (a second one would make it leave without its ranks). If this script is killed mpirun is, and its daemons end with it.
env --default-signal setpriv --pdeathsig KILL setsid mpirun \
  --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2 "$@" <&0 &
mpirun=$!

# Whether the kernel has sent something of mpirun's five times and no answer has come (6 s). Keepalives rest meanwhile, and TCP would
# go on like that for a quarter of an hour.
unanswered() {
  awk -v sockets="$(find "/proc/$mpirun/fd" -lname 'socket:*' -printf '%l ' 2>/dev/null)" \
    'index(sockets, "socket:[" $10 "]") && $4 == "01" && $7 >= "00000005" { found = 1 } END { exit !found }' \
    "/proc/$mpirun/net/tcp" "/proc/$mpirun/net/tcp6" 2>/dev/null
}

end_local_ranks() {
  local child children
  read -r -d "" -a children < <(cat "/proc/$mpirun/task/"*/children 2>/dev/null)
  for child in "${children[@]}"; do
    if grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$child/environ"; then kill -TERM "$child" 2>/dev/null; fi
  done
}

limit=0  # when mpirun is killed, in seconds of this script's life; 0: not decided
set_limit() { [ "$limit" -gt 0 ] || limit=$((SECONDS + $1)); }
# shellcheck disable=SC2317  # reached by the traps
pass_on() { set_limit "$patience"; kill -s "$1" "$mpirun" 2>/dev/null; }
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM HUP

ended="" code=0
while [ "${ended-}" != "$mpirun" ]; do
  setpriv --pdeathsig KILL sleep 1 & tick=$!
  { wait -n -p ended "$mpirun" "$tick"; } 2>/dev/null
  code=$?
  kill "$tick" 2>/dev/null
  if [ "$limit" -eq 0 ] && unanswered; then
    echo "mpirun.sh: a host does not answer mpirun any more: the job ends" >&2
    end_local_ranks
    set_limit "$last_words"
  elif [ "$limit" -gt 0 ] && [ "$SECONDS" -ge "$limit" ]; then
    kill -KILL "$mpirun" 2>/dev/null
  fi
done
exit "$code"
