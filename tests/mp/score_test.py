#!/usr/bin/env python3
"""Runs specdec_score over transports that are named, and compares what it refuses with what specdec_dist refuses.

    score_test.py [CASE ...] --program build/.../specdec_score --ranks 2
"""

import os
import re
import tempfile

import job
import tiny_model


def scored(options, ranks, directory, *more):
    """(stdout, the file of all logits) of a run that must end well."""
    ids = os.path.join(directory, "ids")
    logits = os.path.join(directory, "logits.npy")
    tiny_model.write_text(ids, " ".join(str(7 * i % 4096) for i in range(200)))  # three blocks and a part
    done = job.run(options, ranks, ["--model", os.path.join(options.assets, "manpy-11m"), "--ids", ids, "--logits", logits, *more])
    done.expect(done.code == 0 and done.err == "", "failed, or is not quiet")
    with open(logits, "rb") as file:
        return done, (done.out, file.read())


def same_bits_over_every_transport(options):
    with tempfile.TemporaryDirectory() as directory:
        _, alone = scored(options, 0, directory)
        for transport in ("auto", "shm", "hier", "mpi"):
            done, cut = scored(options, options.ranks, directory, "--transport", transport)
            done.expect(cut == alone, "the logits are not those of one rank")


def refusal(done, place):
    lines = done.error_lines()
    done.expect(done.code == 2 and len(lines) == 1 and done.out == b"", "not one line and exit code 2")
    found = re.search(r"error: (?:--set: )?" + re.escape(place) + ": (.*)", lines[0])
    done.expect(found, f"the line does not name {place}")
    return found[1]


def refuses_what_specdec_dist_refuses(options):
    """In the same words, for names that nobody knows and for those that do not suit."""
    main = job.with_program(options, "specdec_dist")
    model = os.path.join(options.assets, "manpy-0.5m")
    with tempfile.TemporaryDirectory() as directory:
        ids = os.path.join(directory, "ids")
        tiny_model.write_text(ids, "1 2 3")
        for ranks, transport, said in (
                (0, "smh", "did you mean 'shm'?"), (0, "nccl2", "nccl-fast, ipc"), (0, "nccl", "nccl with backend cpu"),
                (0, "ipc", "ipc with backend cpu"), (options.ranks, "self", f"self with {options.ranks} ranks")):
            done = job.run(options, ranks, ["--model", model, "--ids", ids, "--transport", transport])
            other = job.run(main, ranks, ["--target", model, "--prompt", "a", *job.sets(f"parallel.transport={transport}")])
            mine = refusal(done, "--transport")
            done.expect(mine == refusal(other, "parallel.transport"), f"specdec_dist says\n{other.err}")
            done.expect(said in mine, f"{said!r} is not in {mine!r}")


CASES = {case.__name__: case for case in (same_bits_over_every_transport, refuses_what_specdec_dist_refuses)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
