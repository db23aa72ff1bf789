#!/usr/bin/env python3
"""Decodes for many rounds and watches every rank's memory and descriptors: after the warm-up they must not grow.

    soak.py --program build/.../specdec_dist [--rounds 20000] [--ranks 2 8] [--transport auto shm hier mpi]

A pair of random models, a few rows and layers wide, so that a round is mostly what the ranks do together. The first quarter is warm-up;
the largest values of the last quarter are compared with those of the second. Heap and stacks (RssAnon) may grow by a fixed slack, on
rank 0 also by the record that it keeps of each round for its report; shared memory (RssShmem) by a slack; descriptors and threads not at
all.
"""

import argparse
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mp"))
import job  # noqa: E402
import tiny_model  # noqa: E402

CONTEXT = 512
PROMPT = 8
TOKENS = 100
K = 4
SLACK_KB = 128
RECORD_BYTES = 320  # of a round on rank 0: times and counts (96), its tokens and text, twice where a vector grows
FIELDS = ("RssAnon", "RssShmem", "Threads")


def config(directory, prompts):
    path = os.path.join(directory, "soak.yaml")
    lines = "\n".join(f"  - ids: {[(p * 31 + i * 7) % 255 + 1 for i in range(PROMPT)]}" for p in range(prompts))
    tiny_model.write_text(path, f"target: target\ndraft: draft\ncompare: false\nprompts:\n{lines}\n"
                                f"decode: {{k: {K}, temperature: 0.7, top_p: 0.9, seed: 3, max_new_tokens: {TOKENS}, ignore_eos: true}}\n")
    return path


def sample(pid):
    """{what: KB or count} of one process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = file.read()
    found = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M).group(1)) for name in FIELDS}
    found["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    return found


def largest(samples, begin, end):
    """Of the samples taken while the part [begin, end) of the prompts was done."""
    chosen = [values for done, values in samples if begin <= done < end]
    return {name: max(values[name] for values in chosen) for name in chosen[0]} if chosen else None


def soak(options, ranks, transport):
    prompts = max(20, options.rounds // (TOKENS // 2))  # a round of these models makes little more than one token
    with tempfile.TemporaryDirectory() as directory:
        tiny_model.write(os.path.join(directory, "target"), seed=1, tokenizer=False, max_position_embeddings=CONTEXT)
        tiny_model.write(os.path.join(directory, "draft"), seed=2, tokenizer=False, max_position_embeddings=CONTEXT)
        arguments = ["--config", config(directory, prompts), "--set", f"parallel.transport={transport}"]
        samples = {rank: [] for rank in range(ranks)}
        with job.Job(options, ranks, arguments) as run:
            for target in range(prompts - 1):
                if not run.read_until(lambda out: done_prompts(out) > target, 600):
                    break
                done = done_prompts(run.out)
                for rank, pid in run.ranks().items():
                    try:
                        samples[rank].append((done / prompts, sample(pid)))
                    except (OSError, AttributeError):
                        pass  # it has ended
            run.wait(600)
            run.expect(run.code == 0, "the job failed")
            rounds = int(re.search(r"tokens / loops\s+\d+ / (\d+)", run.err).group(1))
            run.expect(rounds >= options.rounds, f"only {rounds} rounds")
            return rounds, compare(run, samples, rounds)


def done_prompts(out):
    """Each text is a line: without a tokenizer it is ids."""
    return out.count(b"\n")


def compare(run, samples, rounds):
    """Rows for the table; fails where something has grown."""
    rows = []
    for rank, values in samples.items():
        run.expect(values and largest(values, 0.25, 0.5) and largest(values, 0.75, 1.01), f"rank {rank} was not seen often enough")
        early, late = largest(values, 0.25, 0.5), largest(values, 0.75, 1.01)
        rows.append((rank, early, late))
        grown = {name: late[name] - early[name] for name in early}
        allowed = SLACK_KB + (rounds * RECORD_BYTES / 1024 if rank == 0 else 0)
        run.expect(grown["RssAnon"] <= allowed, f"rank {rank}: the heap has grown by {grown['RssAnon']} KB, allowed {allowed:.0f}")
        run.expect(grown["RssShmem"] <= SLACK_KB, f"rank {rank}: shared memory has grown by {grown['RssShmem']} KB")
        run.expect(grown["descriptors"] <= 0 and grown["Threads"] <= 0, f"rank {rank}: descriptors or threads have grown: {grown}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rounds", type=int, default=20000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--transport", nargs="+", default=["auto"])
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    failed = False
    print("| transport | ranks | rounds | rank | heap, KB, 2nd and last quarter | shared, KB | descriptors | threads |")
    print("|---|---|---|---|---|---|---|---|")
    for transport in options.transport:
        for ranks in options.ranks:
            try:
                rounds, rows = soak(options, ranks, transport)
            except job.Failed as why:
                print(f"FAILED {transport}, {ranks} ranks: {why}", flush=True)
                failed = True
                continue
            for rank, early, late in rows:
                cells = [f"{early[name]} -> {late[name]}" for name in ("RssAnon", "RssShmem", "descriptors", "Threads")]
                print(f"| {transport} | {ranks} | {rounds} | {rank} | " + " | ".join(cells) + " |", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
