# Shared by quickstart.sh and tests/run.sh: where the repository is, and how a preset is configured and built.
# To be sourced, not run.
# shellcheck shell=bash

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# say TEXT: progress goes to stderr, so that stdout is the program's own.
say() { printf '== %s\n' "$*" >&2; }

# Compilers want up to 1.5 GB each in the template-heavy files; more jobs than memory only thrash.
build_jobs() {
  local cores memory_kb by_memory
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null)
  by_memory=$(( ${memory_kb:-1572864} / 1572864 ))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $(( cores < by_memory ? cores : by_memory ))
}

# Where there is a ccache, files that presets compile alike (release and cuda, for most of them) are compiled once: the build folder in which an object was
# made is not part of what it is kept under, and a miss runs the compiler only.
export CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_BASEDIR="$repository"

# configure PRESET [-DNAME=VALUE ...]: only when something changed; a build folder that belongs to a checkout at another
# path is configured from nothing.
configure() {
  local preset=$1 tree="$repository/build/$1" fresh=() wanted
  shift
  wanted="$preset $*"
  if [ -f "$tree/build.ninja" ] && [ "$(cat "$tree/.configured" 2>/dev/null)" = "$wanted" ] &&
     grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$repository" "$tree/CMakeCache.txt"; then
    return 0
  fi
  if [ -f "$tree/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$repository" "$tree/CMakeCache.txt"; then
    fresh=(--fresh)
  fi
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    if [ "$preset" = cuda ]; then launcher+=(-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache); fi
  fi
  say "configuring build/$preset"
  (cd "$repository" && cmake "${fresh[@]}" --preset "$preset" "${launcher[@]}" "$@" >&2 </dev/null) || return 1
  printf '%s\n' "$wanted" > "$tree/.configured"
}

# build PRESET TARGET...
build() {
  local preset=$1 jobs
  shift
  jobs=$(build_jobs)
  say "building $* (preset $preset, $jobs at a time)"
  cmake --build "$repository/build/$preset" --parallel "$jobs" --target "$@" >&2 </dev/null
}
