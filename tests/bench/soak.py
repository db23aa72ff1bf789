#!/usr/bin/env python3
"""Decodes for many rounds and watches every rank's memory and descriptors: after the warm-up they must not grow.

    soak.py --program build/.../specdec_dist [--rounds 20000] [--ranks 2 8] [--transport auto shm hier mpi]

The smallest shipped pair, so that a round is mostly what the ranks do together; many short prompts. The first quarter is warm-up; the
largest values of the last quarter are compared with those of the second. Heap and stacks (RssAnon) may grow by a fixed slack, on
rank 0 also by the record that it keeps of each round for its report; shared memory (RssShmem) by a slack; descriptors and threads not at
all.
"""

import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mp"))
import job  # noqa: E402

PROMPT = 8
TOKENS = 100
K = 4
SLACK_KB = 128
FEWEST = 3  # samples in a quarter, for its largest values to mean something
LONGER = 3  # times that a job is run, each twice as long, before it is too short for this machine to be watched
RECORD_BYTES = 320  # of a round on rank 0: times and counts (96), its tokens and text, twice where a vector grows
FIELDS = ("RssAnon", "RssShmem", "Threads")


def config(directory, prompts):
    path = os.path.join(directory, "soak.yaml")
    lines = "\n".join(f"  - ids: {[(p * 31 + i * 7) % 255 + 1 for i in range(PROMPT)]}" for p in range(prompts))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"compare: false\nprompts:\n{lines}\n"
                   f"decode: {{k: {K}, temperature: 0.8, top_p: 0.9, seed: 3, max_new_tokens: {TOKENS}, ignore_eos: true}}\n")
    return path


def sample(pid):
    """{what: KB or count} of one process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = file.read()
    found = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M).group(1)) for name in FIELDS}
    found["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    return found


class TooShort(job.Failed):
    """Too few samples, which is nobody's leak: whoever watches has to share the machine's cores with the ranks."""


def quarters(samples):
    """The samples in four, in their order; not by the clock, which would leave a quarter in which the watcher was not let run without any."""
    return [samples[len(samples) * i // 4:len(samples) * (i + 1) // 4] for i in range(4)]


def largest(seen):
    return {name: max(values[name] for values in seen) for name in seen[0]}


def soak(options, ranks, transport):
    for longer in range(LONGER):
        try:
            return soak_for(options, options.rounds << longer, ranks, transport)
        except TooShort:
            if longer + 1 == LONGER:
                raise


def soak_for(options, least_rounds, ranks, transport):
    prompts = max(20, least_rounds * 5 // (2 * TOKENS))  # a round of this pair makes fewer than 2.5 tokens
    with tempfile.TemporaryDirectory() as directory:
        arguments = ["--config", config(directory, prompts), "--set", f"parallel.transport={transport}",
                     "--target", os.path.join(options.assets, "manpy-2m"), "--draft", os.path.join(options.assets, "manpy-0.5m")]
        with job.Job(options, ranks, arguments) as run:
            run.expect(run.read_until(len), "wrote nothing")
            samples = watch(run, ranks)
            run.wait(600)
            run.expect(run.code == 0, "the job failed")
            rounds = int(re.search(r"tokens / loops\s+\d+ / (\d+)", run.err).group(1))
            run.expect(rounds >= least_rounds, f"only {rounds} rounds")
            return rounds, compare(run, samples, rounds)


def watch(run, ranks):
    """{rank: [values]} from now to the end of the job."""
    pids = run.ranks()
    run.expect(len(pids) == ranks, "ended too early")
    samples = {rank: [] for rank in pids}
    going_on = True
    while going_on:
        for rank, pid in pids.items():
            try:
                samples[rank].append(sample(pid))
            except (OSError, AttributeError):  # it has ended, or is about to
                pass
        now = time.monotonic()
        going_on = run.read_until(lambda _, now=now: time.monotonic() > now + 0.02, 600)
    return samples


def compare(run, samples, rounds):
    """Rows for the table; fails where something has grown."""
    rows = []
    for rank, values in samples.items():
        if len(values) < 4 * FEWEST:
            raise TooShort(f"rank {rank} was seen {len(values)} times, expected at least {4 * FEWEST}: the job was too short, give it more --rounds")
        seen = quarters(values)
        early, late = largest(seen[1]), largest(seen[3])
        rows.append((rank, early, late))
        grown = {name: late[name] - early[name] for name in early}
        allowed = SLACK_KB + (rounds * RECORD_BYTES / 1024 if rank == 0 else 0)
        run.expect(grown["RssAnon"] <= allowed, f"rank {rank}: the heap has grown by {grown['RssAnon']} KB, allowed {allowed:.0f}")
        run.expect(grown["RssShmem"] <= SLACK_KB, f"rank {rank}: shared memory has grown by {grown['RssShmem']} KB")
        run.expect(grown["descriptors"] <= 0 and grown["Threads"] <= 0, f"rank {rank}: descriptors or threads have grown: {grown}")
    return rows


def main():
    parser = job.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--transport", nargs="+", default=["auto"])
    options = parser.parse_args()
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
