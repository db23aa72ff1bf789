"""Kernels that stream weights, keys and values still ask for them once they are compiled: the compiler may find that a prefetch has no effect, and no result would show it."""
import pathlib
import shutil
import subprocess
import sys

KERNELS = ['matmul_avx2', 'matmul_avx512', 'matmul_avx512_bf16', 'matmul_avx512_vnni', 'matmul_amx_bf16', 'matmul_amx_int8', 'row_ops_avx2', 'row_ops_avx512']


def main(build):
    if shutil.which('objdump') is None:
        print('objdump is not installed')
        return 77
    wrong = []
    for kernel in KERNELS:
        objects = list(pathlib.Path(build).glob(f'backend/CMakeFiles/backend.dir/**/{kernel}.cpp.o'))
        if len(objects) != 1:
            wrong.append(f'{kernel}: found {len(objects)} object files, expected one')
            continue
        code = subprocess.run(['objdump', '-d', '--no-show-raw-insn', objects[0]], capture_output=True, text=True, check=True).stdout
        count = code.count('prefetcht')
        print(f'{kernel}: {count} prefetches')
        if count == 0:
            wrong.append(f'{kernel}: found no prefetch, expected some in its loops')
    print('\n'.join(wrong))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
