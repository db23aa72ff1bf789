#!/usr/bin/env python3
"""Speculative over autoregressive decoding of the shipped pair, for K and rank counts, from the program's own JSON.

    source build/release/env.sh
    python3 tests/bench/decode_bench.py [--interconnect native] [--ranks 1,2,4,8] [--k 0,1,2,3,4,5,6,7,8] [--repeats 3] [--json OUT] [-- --set ...]

Method: one run of specdec_dist with `compare: true` decodes the same prompts with both methods in turn, so the ratio is taken within
one process and a few seconds; the (ranks, K) points are visited in shuffled order, `--repeats` times; printed is the median of the ratios and,
where there are several repeats, their range. On the native interconnect all figures are measured, but for the columns of eq. 1 and theorem 3.8,
which are computed from the same run's alpha and c. What is compared with them comes from loops that no limit or stop cut short. With K = 0
both methods do the same: what its speed-up differs from 1 is the noise of the others. It has no alpha and no c (-).
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile


def run(interconnect, ranks, k, extra):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        command = ["mpirun", "-np", str(ranks), "specdec_dist", "--config", "chinchilla-like.yaml", "--quiet", "--no-stream",
                   "--set", f"interconnect={interconnect}", "--set", f"decode.k={k}", "--json", str(out), *extra]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.decode()}")
        return json.loads(out.read_text())


def figures(report):
    runs = {r["method"]: r["metrics"] for r in report["runs"]}
    spec, base, comparison = runs["speculative"], runs["autoregressive"], report["comparison"]
    split = spec["full_loops_split"]
    return {
        "ar_ms": base["ms_per_token"],
        "spec_ms": spec["ms_per_token"],
        "speedup": comparison["speedup"],
        "predicted": comparison["predicted_speedup"],
        "share_of_predicted": comparison["measured_over_predicted"],
        "alpha": spec["acceptance_rate"],
        "c": comparison["cost_ratio"],
        "tokens_per_loop": spec["tokens_per_loop"],
        "eq1": spec["expected_tokens_per_loop"],
        "score_cost": comparison["score_cost"],
        # Neither drafting nor scoring: broadcast, decision, rest.
        "overhead": sum(split[part]["share"] for part in ("broadcast", "decide", "rest")),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interconnect", default="native", help="one name; the figures of any other than native are modelled")
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--k", default="0,1,2,3,4,5,6,7,8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("extra", nargs="*", help="further arguments of specdec_dist, after --")
    options = parser.parse_args()
    points = [(r, k) for r in map(int, options.ranks.split(",")) for k in map(int, options.k.split(","))]
    samples = {point: [] for point in points}
    for _ in range(options.repeats):
        random.shuffle(points)
        for ranks, k in points:
            samples[ranks, k].append(figures(run(options.interconnect, ranks, k, options.extra)))
            if sys.stderr.isatty():
                print(f"\r{sum(map(len, samples.values()))} of {len(points) * options.repeats} runs", end="", file=sys.stderr)
    columns = ["ar_ms", "spec_ms", "speedup", "predicted", "share_of_predicted", "alpha", "c", "tokens_per_loop", "eq1",
               "score_cost", "overhead"]
    print("native interconnect, measured" if options.interconnect == "native" else f"modelled interconnect {options.interconnect}")
    print("ranks  K " + " ".join(f"{c:>18}" for c in columns) + "   speedup min..max")
    rows = []
    for ranks, k in sorted(samples):
        runs = samples[ranks, k]
        row = {c: None if runs[0][c] is None else statistics.median(r[c] for r in runs) for c in columns}
        low, high = min(r["speedup"] for r in runs), max(r["speedup"] for r in runs)
        print(f"{ranks:>5} {k:>2} " + " ".join(f"{'-':>18}" if row[c] is None else f"{row[c]:>18.3f}" for c in columns) + f"   {low:.2f}..{high:.2f}")
        rows.append({"interconnect": options.interconnect, "ranks": ranks, "k": k, **row, "speedup_min": low, "speedup_max": high, "repeats": len(runs)})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
