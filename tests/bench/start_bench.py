#!/usr/bin/env python3
"""Time to the first token with the cache of packed weights off, empty and full, in turns.

    start_bench.py [--ranks 8] [--rounds 9] [--target DIR] [--draft DIR] [--json F]   (after `source build/release/env.sh`)

Each run is a job of its own, greedy, with nothing on its prompt's way but the start: from starting mpirun until the first byte of text. A round is one
job of each kind in rotated order; "first" finds an empty folder and fills it, "second" finds it full. All files are in the page cache. Printed are
medians, and the medians of each round's ratios to the cache off.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile

from job_start import Failed, seconds_to_first_byte

ASSETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "assets")
KINDS = ("off", "first", "second")


def first_byte(options, cache):
    words = ["mpirun", "-np", str(options.ranks), "specdec_dist", "--target", options.target, "--prompt-ids", "1 2 3",
             "--set", "decode.max_new_tokens=8", "--set", "decode.ignore_eos=true", "--set", "decode.temperature=0",
             "--set", f"weights_cache={cache}"]
    if options.draft:
        words += ["--draft", options.draft, "--set", "compare=false"]
    return seconds_to_first_byte(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--target", default=os.path.join(ASSETS, "manpy-11m"))
    parser.add_argument("--draft", default=os.path.join(ASSETS, "manpy-2m"), help="'' for none")
    parser.add_argument("--json")
    options = parser.parse_args()
    seconds = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as directory:
        full, empty = (os.path.join(directory, name) for name in ("full", "empty"))
        for cache in ("off", full):  # the page cache, and what "second" finds
            first_byte(options, cache)
        for number in range(options.rounds):
            for kind in KINDS[number % 3:] + KINDS[:number % 3]:
                shutil.rmtree(empty, ignore_errors=True)
                seconds[kind].append(first_byte(options, {"off": "off", "first": empty, "second": full}[kind]))
    ratios = {kind: statistics.median(a / b for a, b in zip(seconds[kind], seconds["off"])) for kind in KINDS}
    print(f"{options.ranks} ranks, {options.rounds} rounds, {os.path.basename(options.target)}")
    print(f"{'cache':<8} {'ms':>10} {'over off':>10}")
    for kind in KINDS:
        print(f"{kind:<8} {statistics.median(seconds[kind]) * 1e3:>10.1f} {ratios[kind]:>10.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": options.ranks, "target": options.target, "seconds": seconds, "over_off": ratios}, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"start_bench.py: {failure}")
