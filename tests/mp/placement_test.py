#!/usr/bin/env python3
"""Where the draft runs decides nothing about the text: every placement says what `rank0` does, token by token, with one seed.

    placement_test.py [CASE ...] --program build/.../specdec_dist --ranks N
"""

import os

import job

CONFIG = ("--config", os.path.join(job.ROOT, "configs", "chinchilla-like-native.yaml"))
PLACEMENTS = ("rank0", "replicated", "sharded", "dedicated")
WAYS = {"greedy": ("decode.temperature=0",), "temperature": ("decode.temperature=1", "decode.top_p=1"),
        "nucleus": ("decode.temperature=0.8", "decode.top_p=0.95"), "top_k": ("decode.temperature=1.2", "decode.top_k=20")}


def ranks_of(options, placement):
    """As many for the target in each placement."""
    return options.ranks + (placement == "dedicated")


def runs(done):
    return {run["method"]: run for run in done.report["runs"]}


def tokens(run):
    return [output["token_ids"] for output in run["outputs"]]


def the_text_is_that_of_rank0(options):
    for way, settings in WAYS.items():
        found = {}
        for placement in PLACEMENTS:
            done = job.reported(options, ranks_of(options, placement), [*CONFIG, *job.sets(f"placement={placement}", "decode.max_new_tokens=40", *settings)])
            done.expect(done.report["config"]["placement"] == placement, "the JSON does not say where the draft is")
            done.expect((f"draft {placement}" in done.err) == (placement != "rank0"), "nor does the report")
            done.expect(way != "greedy" or done.report["comparison"]["identical"] is True, "greedy texts differ")
            run = runs(done)["speculative"]
            metrics = run["metrics"]
            done.expect(metrics["drafted"] > metrics["loops"], "nothing is drafted")
            done.expect((0 < metrics["drafted_ahead"] < metrics["loops"]) if placement == "dedicated" else metrics["drafted_ahead"] == 0, "what is drafted ahead")
            done.expect(("loops drafted ahead" in done.err) == (placement == "dedicated"), "nor does the report say how often")
            found[placement] = tokens(run), run["metrics"]["accepted"], run["metrics"]["acceptance_rate"]
        for placement in PLACEMENTS[1:]:
            assert found[placement] == found["rank0"], f"{way}: {placement} says {found[placement]}, rank0 {found['rank0']}"


def with_a_k_that_adapts(options):
    found = {}
    for placement in PLACEMENTS:
        done = job.reported(options, ranks_of(options, placement), [*CONFIG, *job.sets(
            f"placement={placement}", "decode.k=8", "decode.draft_length=heuristic", "decode.max_new_tokens=48", "compare=false")])
        found[placement] = tokens(runs(done)["speculative"])
    assert all(of == found["rank0"] for of in found.values()), found


def with_several_interconnects_and_an_end(options):
    """Prompts end at different tokens, and all ranks begin the next one together, under another interconnect."""
    found = {}
    for placement in PLACEMENTS:
        done = job.reported(options, ranks_of(options, placement), [*CONFIG, *job.sets(
            f"placement={placement}", "decode.stop=[e]", "interconnect=[native, tpu-v4-chen]", "decode.max_new_tokens=32")])
        found[placement] = [(run["method"], run["interconnect"]["name"], tokens(run)) for run in done.report["runs"]]
        done.expect(len(found[placement]) == 4 and any(len(t) < 32 for _, _, of in found[placement] for t in of), "nothing ends early")
    assert all(of == found["rank0"] for of in found.values()), found


def the_plan_says_who_holds_the_draft(options):
    held = {}
    for placement in PLACEMENTS:
        done = job.run(options, 0, [*CONFIG, "--set", f"placement={placement}", "--plan", "2"])
        done.expect(done.code == 0 and f", {placement})" in done.out.decode(), "the plan does not say where the draft is")
        held[placement] = [line.split()[1:3] for line in done.out.decode().splitlines() if line.strip().startswith(("0 ", "1 "))]
    assert held["rank0"][0] == held["replicated"][0] == held["replicated"][1] != held["rank0"][1], held
    assert held["sharded"][0] != held["rank0"][0], held
    done = job.run(options, options.ranks, [*CONFIG, "--plan"])
    done.expect(done.code == 0 and f", {options.ranks} rank" in done.out.decode(), "without a number it is not of the job's own ranks")
    assert held["dedicated"][0] != held["rank0"][0] and held["dedicated"][1] != held["rank0"][1], held


def a_rank_for_the_draft_alone_is_needed(options):
    done = job.run(options, 1, [*CONFIG, "--set", "placement=dedicated"])
    done.expect(done.code == 2 and "placement: found dedicated with 1 rank, expected at least 2" in done.err, "one rank drafts and decodes")
    done = job.run(options, 2, ["--config", CONFIG[1], *job.sets("placement=dedicated", "draft=", "compare=false", "decode.method=autoregressive")])
    done.expect(done.code == 2 and "placement: found dedicated without a draft" in done.err, "a rank is left with nothing to do")


CASES = {case.__name__: case for case in (
    the_text_is_that_of_rank0, with_a_k_that_adapts, with_several_interconnects_and_an_end, the_plan_says_who_holds_the_draft,
    a_rank_for_the_draft_alone_is_needed)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
