#!/usr/bin/env python3
"""Registers, spills and memory of every kernel, from the compiler: no GPU is needed.

    tests/gpu/resources.py [--arch 90] [--nvcc nvcc] [--json F] [FILE.cu]

Compiles FILE.cu, backend/cuda/cuda_backend.cu unless named, with `ptxas -v`. `warps` is how many of a multiprocessor's 64 warps its 65,536 registers hold; shared memory that a launch asks
for is not in it. Exit code 1 if a kernel spills registers.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FLAGS = ["-std=c++20", "-O2", "--expt-relaxed-constexpr", "-fmad=false", "-ftz=true", "-DFMT_USE_CONSTEXPR=1"]
REGISTERS, WARPS, GRAIN = 65536, 64, 256  # of a multiprocessor; registers are given to a warp by the GRAIN


def kernels(log):
    """(mangled name, registers, spilled bytes, stack bytes) of what ptxas says."""
    entry = None
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            entry = {"symbol": found[1]}
        elif entry and (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            entry.update(stack=int(found[1]), spilled=int(found[2]) + int(found[3]))
        elif entry and (found := re.search(r"Used (\d+) registers", line)):
            yield {**entry, "registers": int(found[1])}
            entry = None


TYPES = {"1": "fp16", "2": "bf16"}


def name_of(symbol):
    """The kernel and what it is made for: what TensorShape (tensor_shape.h) has beside a type, in its order."""
    text = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout
    found = re.search(r"cuda::(\w+)<specdec::cuda::CudaGpu", text) or re.search(r"4cuda\d+([a-z_]+)INS0_7CudaGpuE", symbol)
    if not found:
        return text.strip()
    name = found[1]
    if kind := re.search(r"CudaGpu, (?:specdec::cuda::TensorShape\{)?\(specdec::DType\)(\d)(?:, ([^}]*)\})?", text):
        name += f" {TYPES[kind[1]]}"
        if kind[2]:
            warps, tiles, columns, depth, *words = kind[2].split(", ")
            flags = [n for n, word in zip(["shared", "packed", "vector"], words) if word == "true"]
            name += f" {warps} warps, {tiles}x{columns}, {depth} ahead, {' '.join(flags)}"
    if sum_of := re.search(r"CudaGpu, (float|specdec::BF16), (\d+)>", text):
        name += f" {'fp32' if sum_of[1] == 'float' else 'bf16'}, up to {sum_of[2]} ranks"
    return name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="90")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--json")
    parser.add_argument("file", nargs="?", default=os.path.join(SOURCE, "backend/cuda/cuda_backend.cu"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([options.nvcc, *FLAGS, "-I", SOURCE, f"-arch=sm_{options.arch}", "-Xptxas", "-v", "-c",
                               options.file, "-o", os.path.join(directory, "o")],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"resources.py: {options.nvcc}: {done.stderr.strip()}")
    found = sorted(({"kernel": name_of(k["symbol"]), "warps": min(WARPS, REGISTERS // (-(-k["registers"] * 32 // GRAIN) * GRAIN)), **k}
                    for k in kernels(done.stderr)), key=lambda k: k["kernel"])
    if not found:
        sys.exit("resources.py: ptxas named no kernel")
    width = max(len(k["kernel"]) for k in found)
    print(f"{'kernel':<{width}} {'registers':>9} {'warps':>6} {'stack':>6} {'spilled':>8}   sm_{options.arch}")
    for k in found:
        print(f"{k['kernel']:<{width}} {k['registers']:>9} {k['warps']:>6} {k['stack']:>6} {k['spilled']:>8}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"arch": options.arch, "kernels": found}, file, indent=1)
    sys.exit(any(k["spilled"] for k in found))


if __name__ == "__main__":
    main()
