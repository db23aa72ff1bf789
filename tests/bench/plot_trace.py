#!/usr/bin/env python3
"""One round of a trace as a picture: every rank's compute and communication on the common clock. Needs matplotlib.

    mpirun -np 2 specdec_dist --config chinchilla-like.yaml --trace traces
    python3 tests/bench/plot_trace.py traces/trace.json --output docs/trace.svg

The round is the one of median length among those of the last prompt that drafted, or --round N of that prompt.
"""
import argparse
import json

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first

COMPUTE, COMMUNICATION = 0, 1
COLOURS = {"draft pass": "#d1791c", "attention": "#0b6fb8", "mlp": "#6fb1e0", "head": "#2f8f4e", "decide": "#9a4fa3",
           "commit": "#444444", "all_reduce": "#b5382c", "all_gather": "#e08a80", "broadcast": "#7a1f16", "wait": "#d9d9d9"}


def inside(spans, outer):
    end = outer["ts"] + outer["dur"]
    return [s for s in spans if outer["ts"] <= s["ts"] and s["ts"] + s["dur"] <= end]


def choose(spans, number):
    """Rank 0's span of the round."""
    rank_0 = [s for s in spans if s["pid"] == 0 and s["tid"] == COMPUTE]
    drafts = [s for s in rank_0 if s["name"] == "draft pass"]
    prompts = [s for s in rank_0 if s["name"].startswith("prompt ")]
    prompt = next((p for p in reversed(prompts) if inside(drafts, p)), prompts[-1])
    rounds = [s for s in inside(rank_0, prompt) if s["name"].startswith("round ")]
    if number is not None:
        return next(s for s in rounds if s["name"] == f"round {number}")
    rounds = [s for s in rounds if inside(drafts, s)] or rounds
    return sorted(rounds, key=lambda s: s["dur"])[len(rounds) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--round", type=int)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        trace = json.load(file)
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    whole = choose(spans, options.round)
    begin, end = whole["ts"], whole["ts"] + whole["dur"]
    ranks = trace["otherData"]["size"]

    figure, axes = plt.subplots(figsize=(11, 0.9 + 0.75 * ranks), constrained_layout=True)
    for name, colour in COLOURS.items():
        for lane, height in ((COMPUTE, 0.42), (COMMUNICATION, 0.3)):
            found = [s for s in spans if s["name"] == name and s["tid"] == lane and s["ts"] < end and s["ts"] + s["dur"] > begin]
            for rank in range(ranks):
                bars = [(max(s["ts"], begin) - begin, min(s["ts"] + s["dur"], end) - max(s["ts"], begin)) for s in found
                        if s["pid"] == rank]
                # On the compute line a broadcast is what the line below shows.
                if bars and (lane == COMMUNICATION or name != "broadcast"):
                    axes.broken_barh(bars, (rank + (0.05 if lane == COMPUTE else 0.5), height), facecolors=colour, linewidth=0)
    shown = [n for n in COLOURS if any(s["name"] == n for s in spans)]
    axes.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=COLOURS[n]) for n in shown], labels=shown, ncols=len(shown),
                loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=8, handlelength=1, columnspacing=1)
    axes.set_yticks([r + 0.42 for r in range(ranks)], [f"rank {r}" for r in range(ranks)])
    axes.set_ylim(ranks, 0)
    axes.set_xlim(0, end - begin)
    axes.set_xlabel("microseconds; upper bars compute, lower bars communication")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    plt.rcParams["svg.hashsalt"] = "specdec"
    figure.savefig(options.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
