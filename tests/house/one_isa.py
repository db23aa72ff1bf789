"""No function that an instruction set's kernels are compiled with is also another object's: the linker keeps one of them for all, which an older CPU may not be able to run."""
import collections
import pathlib
import shutil
import subprocess
import sys

KERNELS = ('matmul_a', 'row_ops_a')  # compiled for more than what every CPU has


def shared_functions(build):
    objects = sorted(pathlib.Path(build).glob('backend/CMakeFiles/backend.dir/**/*.cpp.o'))
    defined = collections.defaultdict(list)
    for path in objects:
        symbols = subprocess.run(['nm', '-C', '--defined-only', path], capture_output=True, text=True, check=True).stdout
        for line in symbols.splitlines():
            _, kind, name = line.split(maxsplit=2)
            if kind == 'W':
                defined[name].append(path.name)
    kernels = [path.name for path in objects if path.name.startswith(KERNELS)]
    return kernels, {name: where for name, where in defined.items() if len(where) > 1 and set(where) & set(kernels)}


def main(build):
    if shutil.which('nm') is None:
        print('nm is not installed')
        return 77
    kernels, shared = shared_functions(build)
    print(f'{len(kernels)} objects of kernels')
    if len(kernels) < 7:
        print(f'found {len(kernels)} objects of kernels, expected at least seven')
        return 1
    for name, where in shared.items():
        print(f'{name}: found in {", ".join(where)}, expected in one alone')
    return 1 if shared else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
