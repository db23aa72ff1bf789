#!/usr/bin/env python3
"""Which transport to take from which payload on, of what allreduce_bench has measured.

    launch/gpu-node.sh -np 8 allreduce_bench --transport ipc,nccl,nccl-fast --bytes 1K..16M --json sums.json
    python3 tests/bench/crossovers.py sums.json [MORE.json ...]

For each rank count and type: P50 of every transport and size, and "take" lines: the two transports and the size between them that cost least over all sizes
together (the least product of the times), once among those with the bits of the tree and once among all. On GPUs what counts is one all-reduce among
many in a CUDA graph, as in a pass (rows replay/N), else the host's time of one (rows all_reduce). Modelled interconnects do not count. Exit code 1 for
wrong sums, 2 for a file that has nothing to compare.
"""

import argparse
import collections
import itertools
import json
import math
import sys

LIBRARIES = ("MPI_Allreduce", "mpi-fast", "nccl-fast")  # they add in an order of their own
IN_GRAPH = "+graph"


class Unusable(Exception):
    """A file, and why nothing can be said of it."""


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        wrong = sum(row["wrong"] for row in rows)
        needed = [(row["what"], row["transport"], row["ranks"], row["dtype"], row["bytes"], row["p50_us"], row["interconnect"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{path}: found no JSON of allreduce_bench ({error or type(error).__name__})") from error
    if wrong:
        sys.exit(f"crossovers.py: {path}: {wrong} elements were not the sum")
    return needed


def curves(rows):
    """{(ranks, dtype, kind): {transport: {bytes: us}}}, kind "replay" where the ranks have such rows and "all_reduce" elsewhere."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    for what, transport, ranks, dtype, size, microseconds, interconnect in rows:
        kind = what.partition("/")[0]
        if kind in ("replay", "all_reduce") and interconnect == "native":
            name = transport.removesuffix(IN_GRAPH) if kind == "replay" else transport
            found[ranks, dtype, kind][name][size] = microseconds
    return {key: dict(of) for key, of in found.items() if key[2] == "replay" or (*key[:2], "replay") not in found}


def common_sizes(of):
    return sorted(set.intersection(*(set(times) for times in of.values())))


def best_split(of, sizes):
    """(low, high, size): low below that size and high from it on; all of one transport when both are the same. Cheapest over all sizes together; among
    equals the one that has the fewest changes, then the first names."""
    def cost(low, high, at):
        return sum(math.log(of[low if i < at else high][size]) for i, size in enumerate(sizes))

    alone = [(cost(name, name, 0), 0, name, name, 0) for name in of]
    pairs = [(cost(low, high, at), 1, low, high, at) for low, high in itertools.permutations(of, 2) for at in range(1, len(sizes))]
    _, _, low, high, at = min(alone + pairs)
    return low, high, sizes[at]


def advice(of, sizes):
    """One line, with what it costs where it is not the fastest."""
    low, high, size = best_split(of, sizes)
    at_worst = max(of[low if s < size else high][s] / min(times[s] for times in of.values()) for s in sizes) - 1
    which = f"{low} at every size" if low == high else f"{low} below {short(size)}, {high} from there on"
    return f"{which} (at most {at_worst:.0%} over the fastest at any size)"


def short(size):
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def report(key, of):
    ranks, dtype, kind = key
    sizes = common_sizes(of)
    names = sorted(of)
    how = "one all-reduce among many in a CUDA graph, the GPU's clock" if kind == "replay" else "one all-reduce, the host's clock"
    lines = [f"{ranks} ranks, {dtype}: {how}, P50 in us", " ".join([f"{'bytes':>9}", *(f"{name:>13}" for name in names)]) + "  fastest"]
    for size in sizes:
        fastest = min(names, key=lambda name, at=size: of[name][at])
        lines.append(" ".join([f"{short(size):>9}", *(f"{of[name][size]:>13.2f}" for name in names)]) + f"  {fastest}")
    exact = {name: times for name, times in of.items() if name not in LIBRARIES}
    if exact:
        lines.append(f"take {ranks} ranks, {dtype}, the tree's bits: {advice(exact, sizes)}")
    lines.append(f"take {ranks} ranks, {dtype}, any bits: {advice(of, sizes)}")
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+")
    paths = parser.parse_args(arguments).json
    try:
        found = curves([row for path in paths for row in load(path)])
        comparable = {key: of for key, of in found.items() if len(of) > 1 and common_sizes(of)}
        if not comparable:
            raise Unusable(f"{', '.join(paths)}: found no size that two transports were measured with")
    except Unusable as why:
        print(f"crossovers.py: {why}", file=sys.stderr)
        return 2
    print("\n\n".join(report(key, comparable[key]) for key in sorted(comparable)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
