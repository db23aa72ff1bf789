#!/usr/bin/env python3
"""Leads one rank of a real job astray, every rank in turn, and checks that the job ends in that round and names it (docs/protocol.md,
"Agreement").

    disagreement_test.py [CASE ...] --program build/.../disagree_job --ranks N [--transport T]
"""

import os
import re
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


def none(options):
    with tempfile.TemporaryDirectory() as directory:
        done = start(options, "none", "1", "0", directory)
        done.expect(done.code == 0 and done.out == b"done 60\n" and done.err == "", "a job of ranks that agree failed")


def token(options):
    for rank in range(1, options.ranks):
        expect_found(options, "token", rank, 3 * rank)


def cache(options):
    for rank in range(1, options.ranks):
        expect_found(options, "cache", rank, 2 * rank)


def prompt(options):
    expect_found(options, "prompt", options.ranks - 1, 0)


def seed(options):
    for rank in (options.ranks - 1, 0):
        expect_found(options, "seed", rank, 0)


CASES = {case.__name__: case for case in (none, token, cache, prompt, seed)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
