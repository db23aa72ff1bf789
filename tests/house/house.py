#!/usr/bin/env python3
"""Checks the order of the house and prints one line for each breach; exit status 1 when there is one.

    house.py ROOT

The rules are docs/architecture.md's. Each is a function from (path, lines) to messages, so that house_test.py can plant a
breach of each and see it found.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOMS = ["backend", "parallel", "models", "runtime", "launch"]
CODE = {".h", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".sh", ".py", ".cmake"}
MAX_LINES = 600
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Written by CMake into the build tree.
GENERATED = {"specdec_build.h", "specdec_commit.h"}
# Header -> the only folders that may see it.
RESTRICTED = [
    (re.compile(r"mpi\.h$"), ("parallel/", "tests/mp/")),
    (re.compile(r"nccl\.h$"), ("parallel/",)),
    (re.compile(r"nvtx3/"), ("parallel/", "tests/gpu/")),
    (re.compile(r"yaml-cpp/"), ("runtime/", "tests/")),
    (re.compile(r"(cuda|cublas|cublasLt)\w*\.h$"), ("backend/cuda/", "parallel/", "tests/gpu/")),
]


def includes(lines):
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def room_of(path):
    room = path.split("/", 1)[0]
    return room if room in ROOMS else None


def check_direction(path, lines):
    """backend <- parallel <- models <- runtime <- launch, and project headers by their path from the root."""
    room = room_of(path)
    if room is None or Path(path).suffix not in CODE:
        return
    for number, bracket, header in includes(lines):
        target = room_of(header)
        if target is not None and ROOMS.index(target) > ROOMS.index(room):
            yield f"{path}:{number}: back edge {room} -> {target}: {header}"
        if bracket == '"' and target is None and header not in GENERATED:
            yield f"{path}:{number}: project headers are included by their path from the root, found \"{header}\""


def check_restricted(path, lines):
    """mpi.h, nccl.h, YAML and CUDA headers stay in their rooms."""
    if Path(path).suffix not in CODE:
        return
    for number, _, header in includes(lines):
        for pattern, folders in RESTRICTED:
            if pattern.match(header) and not path.startswith(folders):
                yield f"{path}:{number}: <{header}> is seen only in {', '.join(folders)}"


def check_cuda_switch(path, lines):
    """With CUDA off a stub is linked; no code asks the preprocessor."""
    if Path(path).suffix not in CODE:
        return
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*#\s*(el)?if.*CUDA", line) and not path.startswith("backend/cuda/"):
            yield f"{path}:{number}: CUDA is chosen by CMake, not by the preprocessor"


def check_guard(path, lines):
    """A header may be included twice."""
    if path.endswith(".h") and not any(line.rstrip() == "#pragma once" for line in lines):
        yield f"{path}: no #pragma once"


def check_length(path, lines):
    if Path(path).suffix in CODE | SCRIPTS and len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines, more than {MAX_LINES}: is it still one room?"


def check_machine_paths(path, lines):
    """Nothing that only one machine has."""
    if path.startswith(("assets/", "tests/data/")):
        return
    pattern = re.compile(r"(?<![\w.}/])/(?:work|root|home|opt)/")
    for number, line in enumerate(lines, 1):
        if pattern.search(line):
            yield f"{path}:{number}: a path of one machine: {line.strip()[:80]}"


def check_leftovers(path, lines):
    if Path(path).suffix not in CODE | SCRIPTS:
        return
    pattern = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for number, line in enumerate(lines, 1):
        if pattern.search(line):
            yield f"{path}:{number}: a leftover: {line.strip()[:80]}"


RULES = [check_direction, check_restricted, check_cuda_switch, check_guard, check_length, check_machine_paths, check_leftovers]


def breaches(path, text):
    lines = text.splitlines()
    return [message for rule in RULES for message in rule(path, lines)]


def project_files(root):
    """Tracked files and new ones that git does not ignore; without git, everything outside of build/."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True)
    if listed.returncode == 0 and listed.stdout:
        return sorted({name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()})
    return sorted(str(path.relative_to(root)) for path in root.rglob("*")
                  if path.is_file() and path.relative_to(root).parts[0] not in {"build", ".git", ".cache"})


def main():
    root = Path(sys.argv[1])
    found, read = [], 0
    for name in project_files(root):
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        read += 1
        found += breaches(name, text)
    for message in found:
        print(message)
    print(f"{read} files read, {len(found)} breaches")
    return 1 if found or read < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
