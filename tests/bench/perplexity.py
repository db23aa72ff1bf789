#!/usr/bin/env python3
"""What the type of the weights costs in perplexity: specdec_score over HumanEval's problems, each with its canonical solution.

    source build/release/env.sh
    python3 tests/bench/perplexity.py [--model assets/manpy-11m ...] [--dtype f32,bf16,int8] [--problems 164] [-- --backend reference ...]

A problem is one text, scored alone; the perplexity is exp(-log-likelihood / predicted tokens) over all of them. The last column is the mean of the
differences to the first type in nats a token, with its standard error over the problems. A problem longer than the model's context is left out, and counted.
"""

import argparse
import gzip
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOO_LONG = re.compile(r"found \d+ tokens, expected 1 to")


def texts(count):
    with gzip.open(ROOT / "assets" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines]
    return [problem["prompt"] + problem["canonical_solution"] for problem in problems[:count]]


def score(model, dtype, text, extra):
    """(nats, predicted tokens), or None where the text is longer than the context."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.write(text)
        file.flush()
        done = subprocess.run(["specdec_score", "--model", model, "--text-file", file.name, "--dtype", dtype, *extra], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if TOO_LONG.search(done.stderr):
        return None
    if done.returncode != 0:
        sys.exit(f"perplexity.py: {done.stderr.strip()}")
    return float(re.search(r"log-likelihood +(\S+)", done.stdout)[1]), int(re.search(r"\((\d+) predicted\)", done.stdout)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="default: the shipped ones")
    parser.add_argument("--dtype", default="f32,bf16,int8")
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("extra", nargs="*", help="flags of specdec_score")
    options = parser.parse_args()
    dtypes = options.dtype.split(",")
    print(f"{'model':<12} {'weights':<8} {'tokens':>7} {'perplexity':>11} {'/ ' + dtypes[0]:>9}   nats a token more")
    for model in options.model or [str(ROOT / "assets" / f"manpy-{size}") for size in ("11m", "2m", "0.5m")]:
        found = {dtype: [score(model, dtype, text, options.extra) for text in texts(options.problems)] for dtype in dtypes}
        found = {dtype: [one for one in scores if one] for dtype, scores in found.items()}
        base = found[dtypes[0]]
        tokens = sum(predicted for _, predicted in base)
        first = sum(nats for nats, _ in base)
        for dtype in dtypes:
            nats = sum(one for one, _ in found[dtype])
            # Of a sum over problems, whose parts have unequal lengths: the deviations of the parts from their share.
            more = [b[0] - a[0] for a, b in zip(found[dtype], base)]
            mean = sum(more) / tokens
            error = math.sqrt(sum((d - mean * b[1]) ** 2 for d, b in zip(more, base))) / tokens
            print(f"{pathlib.Path(model).name:<12} {dtype:<8} {tokens:>7} {math.exp(-nats / tokens):>11.4f} {math.exp((first - nats) / tokens):>9.5f}   {mean:+.5f} +- {error:.5f}", flush=True)
        left_out = options.problems - len(base)
        if left_out:
            print(f"{pathlib.Path(model).name:<12} {left_out} problems left out: longer than its context")


if __name__ == "__main__":
    main()
