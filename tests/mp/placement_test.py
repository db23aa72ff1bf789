#!/usr/bin/env python3
"""Where the draft runs decides nothing about the text: every placement says what `rank0` does, token by token, with one seed.

    placement_test.py [CASE ...] --program build/.../specdec_dist --ranks N
"""

import os

import job

CONFIG = ("--config", os.path.join(job.ROOT, "configs", "chinchilla-like-native.yaml"))
PLACEMENTS = ("rank0", "replicated", "sharded")
WAYS = {"greedy": ("decode.temperature=0",), "temperature": ("decode.temperature=1", "decode.top_p=1"),
        "nucleus": ("decode.temperature=0.8", "decode.top_p=0.95"), "top_k": ("decode.temperature=1.2", "decode.top_k=20")}


def runs(done):
    return {run["method"]: run for run in done.report["runs"]}


def tokens(run):
    return [output["token_ids"] for output in run["outputs"]]


def the_text_is_that_of_rank0(options):
    for way, settings in WAYS.items():
        found = {}
        for placement in PLACEMENTS:
            done = job.reported(options, options.ranks, [*CONFIG, *job.sets(f"placement={placement}", "decode.max_new_tokens=40", *settings)])
            done.expect(done.report["config"]["placement"] == placement, "the JSON does not say where the draft is")
            done.expect((f"draft {placement}" in done.err) == (placement != "rank0"), "nor does the report")
            done.expect(way != "greedy" or done.report["comparison"]["identical"] is True, "greedy texts differ")
            run = runs(done)["speculative"]
            done.expect(run["metrics"]["drafted"] > run["metrics"]["loops"], "nothing is drafted")
            found[placement] = tokens(run), run["metrics"]["accepted"], run["metrics"]["acceptance_rate"]
        for placement in PLACEMENTS[1:]:
            assert found[placement] == found["rank0"], f"{way}: {placement} says {found[placement]}, rank0 {found['rank0']}"


def with_a_k_that_adapts(options):
    found = {}
    for placement in PLACEMENTS:
        done = job.reported(options, options.ranks, [*CONFIG, *job.sets(
            f"placement={placement}", "decode.k=8", "decode.draft_length=heuristic", "decode.max_new_tokens=48", "compare=false")])
        found[placement] = tokens(runs(done)["speculative"])
    assert found["replicated"] == found["sharded"] == found["rank0"], found


def with_several_interconnects_and_an_end(options):
    """Prompts end at different tokens, and all ranks begin the next one together, under another interconnect."""
    found = {}
    for placement in PLACEMENTS:
        done = job.reported(options, options.ranks, [*CONFIG, *job.sets(
            f"placement={placement}", "decode.stop=[e]", "interconnect=[native, tpu-v4-chen]", "decode.max_new_tokens=32")])
        found[placement] = [(run["method"], run["interconnect"]["name"], tokens(run)) for run in done.report["runs"]]
        done.expect(len(found[placement]) == 4 and any(len(t) < 32 for _, _, of in found[placement] for t in of), "nothing ends early")
    assert found["replicated"] == found["sharded"] == found["rank0"], found


def the_plan_says_who_holds_the_draft(options):
    held = {}
    for placement in PLACEMENTS:
        done = job.run(options, 0, [*CONFIG, "--set", f"placement={placement}", "--plan", "2"])
        done.expect(done.code == 0 and f", {placement})" in done.out.decode(), "the plan does not say where the draft is")
        held[placement] = [line.split()[1:3] for line in done.out.decode().splitlines() if line.strip().startswith(("0 ", "1 "))]
    assert held["rank0"][0] == held["replicated"][0] == held["replicated"][1] != held["rank0"][1], held
    assert held["sharded"][0] != held["rank0"][0], held


CASES = {case.__name__: case for case in (
    the_text_is_that_of_rank0, with_a_k_that_adapts, with_several_interconnects_and_an_end, the_plan_says_who_holds_the_draft)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
