#!/usr/bin/env bash
# Installs what is missing to build and run specdec_dist on Debian 12, and nothing else. A second run finds
# everything there and does nothing.
#
#   launch/bootstrap.sh            what the programs need
#   launch/bootstrap.sh --tests    also what the tests need
#   launch/bootstrap.sh --lint     also what tests/lint.sh needs (clang-tidy: some 400 MB)
#   launch/bootstrap.sh --list     prints the package names instead of installing
set -euo pipefail

# The only list of packages. Libraries: docs/decisions/0001-libraries.md.
tools=(cmake ninja-build g++ pkg-config)
libraries=(openmpi-bin libopenmpi-dev libfmt-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libpcre2-dev
           libsentencepiece-dev libxxhash-dev python3-matplotlib)
tests=(ccache libgtest-dev libgmock-dev python3 python3-jsonschema zsh clang-format shellcheck iproute2)
lint=(clang-tidy-16)

die() { printf 'bootstrap: %s\n' "$1" >&2; exit 1; }

wanted=("${tools[@]}" "${libraries[@]}")
list_only=no
for argument in "$@"; do
  case "$argument" in
    --tests) wanted+=("${tests[@]}") ;;
    --lint) wanted+=("${lint[@]}") ;;
    --list) list_only=yes ;;
    -h|--help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown argument '$argument' (try --help)" ;;
  esac
done
if [ "$list_only" = yes ]; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi

command -v dpkg-query >/dev/null || die "this is not a Debian system; install the counterparts of: ${wanted[*]}"

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    die "missing packages: ${missing[*]}; install them as root (apt-get install ${missing[*]}), or install sudo"
  as_root=(sudo)
fi
printf 'bootstrap: installing %s\n' "${missing[*]}" >&2
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" >&2 </dev/null; }
apt update || die "apt-get update failed: is there a network of Debian packages?"
apt install -y --no-install-recommends "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
