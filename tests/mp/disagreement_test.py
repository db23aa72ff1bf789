#!/usr/bin/env python3
"""Leads one rank of a real job astray, every rank in turn, and checks that the job ends in that round and names it (docs/protocol.md,
"Agreement").

    disagreement_test.py --program build/.../disagree_job [--ranks 4] [--transport shm]
"""

import argparse
import os
import re
import sys
import tempfile

import job

SAID = {"token": "the round's message is not what rank 0 sent", "prompt": "the token history is not rank 0's",
        "cache": r"the KV cache holds \d+ tokens, rank 0's \d+", "seed": r"the configuration \(.*\) is not rank 0's"}


def start(options, kind, rank, number, directory):
    return job.run(options, options.ranks, [directory, options.transport, kind, rank, number, os.path.join(directory, "on_failure")])


def expect_found(options, kind, rank, number):
    with tempfile.TemporaryDirectory() as directory:
        done = start(options, kind, str(rank), str(number), directory)
        done.expect(done.code == 3, "another status than 3")
        done.expect(done.out == b"", "the text was finished")
        lines = done.error_lines()
        who = rf"rank {rank} on \S+ disagrees with {'all other ranks: for them' if rank == 0 else 'rank 0:'}"
        where = rf"\(sequence 0, round {number}\)$"
        done.expect(len(lines) == 1 and re.search(f"error: {who} {SAID[kind]} {where}", lines[0]), f"expected: {who} {SAID[kind]} {where}")
        with open(os.path.join(directory, "on_failure"), encoding="utf-8") as file:
            done.expect(file.read() == f"rank {rank} code 3\n", "on_failure wrote something else")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--transport", default="auto")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as directory:
            done = start(options, "none", "1", "0", directory)
            done.expect(done.code == 0 and done.out == b"done 60\n" and done.err == "", "a job of ranks that agree failed")
        for rank in range(1, options.ranks):
            expect_found(options, "token", rank, 3 * rank)
            expect_found(options, "cache", rank, 2 * rank)
        expect_found(options, "prompt", options.ranks - 1, 0)
        expect_found(options, "seed", options.ranks - 1, 0)
        expect_found(options, "seed", 0, 0)
    except job.Failed as why:
        sys.exit(f"FAILED: {why}")


if __name__ == "__main__":
    main()
