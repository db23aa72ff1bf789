#!/usr/bin/env python3
"""specdec_dist beside llama.cpp on this machine: the same numbers, the same prompts, in turns A B B A, as one table of ratios and as JSON.

    pip install gguf
    source build/release/env.sh && python3 tests/bench/llama_cpp.py PATH-TO-A-BUILD-OF-LLAMA.CPP [--json F] [--only decode,rows,prefill,pair,start]
                                                                        [--isa avx512_bf16]

The build is made by whoever runs this (cmake -DGGML_NATIVE=ON; targets llama-bench, llama-batched-bench, llama-speculative-simple and, for the check of the
numbers, llama-results); what is not there leaves its rows empty. Models are written to --work once: a 1.1B and a 134M Llama of random weights, the shipped
pair, each as safetensors and as GGUF.

  decode   one row: pass_bench after 128 tokens beside llama-bench -n 16 -d 128, both without sampling, and beside roof_bench's best plain read; whole
           decoding by specdec_dist with one rank, two threads, and two ranks
  rows     2, 5, 9, 16 rows over one, and over pass_bench's own rooflines: pass_bench beside llama-batched-bench, as many sequences of one token each behind a shared prompt of 128. That is what a
           pass that verifies costs there: as many rows through each matrix, the logits of all of them (llama-bench -p would make only the last one's)
  prefill  512 tokens: to the first token (its pass of one row included) beside llama-bench -p 512
  pair     the shipped pair, greedy, on the main job's prompts: tokens a second of the loop, each program with the K and the threads that are best for it
  start    from starting mpirun -np 8 to the first byte of text, files in the cache

Exit code 0 when it measured, whatever came out; 1 when the two programs have different numbers; 2 when there is nothing to measure with. Interrupted (130), or when
a program fails on the way, it still prints what was measured.
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import signal
import statistics
import sys
import time

import llama_cpp_figures as figures
import llama_cpp_models as models
from llama_cpp_programs import CONTEXT, PROMPT, TOKENS, Ours, Theirs, told

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUPS = ("decode", "rows", "prefill", "pair", "start")
TARGET, DRAFT = "manpy-11m", "manpy-2m"
SETUPS = ((1, 1), (1, 2), (2, 1))  # ranks, threads of each
DECODE_ROUNDS = 3  # of whole decoding: seconds a run, and a shared host takes a core away now and then
SAME_NUMBERS = 1e-2  # a pass in bf16 differs from one in fp32 by 1e-4 to 3e-4; with rows of q and k left where they were it is 0.2 to 0.5


class Bench:
    """The groups of the table, and what they found beside it."""

    def __init__(self, options, ours, theirs):
        self.options, self.ours, self.theirs = options, ours, theirs
        self.rows, self.same, self.pairs, self.roof_runs, self.bytes = [], {}, {}, [], {}
        self.unjudged = []  # what is called once the best read of the whole run is known
        self.model = {name: models.prepared(name, ROOT / "assets", options.work) for name in options.shapes}
        flags = next((line.split() for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("flags")), [])
        self.features = figures.used_features(flags, options.isa)

    def in_turns(self, what, ours, theirs, rounds=None):
        """[ours], [theirs]; theirs is None where the program is not there."""
        told(what)
        if theirs is None:
            return [ours(), ours()], None
        return figures.in_turns(ours, theirs, rounds or self.options.rounds)

    def measure_roofs(self):
        told("roofs")
        self.roof_runs.append(self.ours.roofs(self.options.threads))

    @property
    def roofs(self):
        return figures.best_roofs(self.roof_runs)

    def check_numbers(self):
        """That both programs have the same numbers, by the logits of a text."""
        if not self.theirs.has("llama-results"):
            told("found no llama-results: whether both programs have the same numbers shows only in the pair's texts")
            return
        for name, (folder, gguf) in self.model.items():
            ids, logits = self.theirs.results(gguf, "def read_lines(path): return open(path).read().splitlines()")
            apart, agreed = models.difference(self.ours.logits(folder, ids), logits)
            self.same[name] = {"tokens": len(ids), "squared_difference_over_squares": apart, "same_greatest_logit": agreed}
            told(f"{name}: logits of {len(ids)} tokens differ by {apart:.1e} of their squares; the greatest is the same in {agreed:.0%}")
            if apart > SAME_NUMBERS:
                sys.exit(f"llama_cpp.py: {name}: found logits that differ by {apart:.1e} of their squares, expected at most {SAME_NUMBERS}: the programs have different numbers")

    def hold_against_the_roof(self, line):
        """Gives a line of tokens a second of one row the share of the best plain read that they are, and the 1.1B model's its verdict. That read is of the best moment of the run,
        and memory's pace changes from second to second: where a read took turns with the passes themselves, the share of that one stands beside it, and judges nothing."""
        read = self.roofs[self.options.threads]["read_GBps"]
        line["GBps"] = self.bytes[line["shape"]] * line["ours"] / 1e9
        line["of_read"] = line["GBps"] / read
        if line["shape"] == "llama-1.1b":
            in_turns = line.get("of_read_in_turns")
            line["goal"] = f">= min(1.25 x theirs, 95% of {read:.1f} GB/s; is {line['of_read']:.0%}{f', in turns {in_turns:.0%}' if in_turns else ''})"
            line.update(figures.with_verdict(line, lambda ratio: figures.decode_verdict(ratio, line["of_read"])))

    def hold_rows_against_the_roof(self, line, rows, ms, over_roofline, of_one):
        """The same of a pass over several rows, whose goals count only where that of one row is met."""
        roof = self.roofs[self.options.threads]
        line["over_longer_roof"] = ms / figures.longer_roof_ms(self.bytes[line["shape"]], rows, roof["read_GBps"], roof["GFLOPs"])
        line["over_roofline"] = over_roofline
        line["goal"], line["verdict"] = figures.rows_verdict(self.features, rows, line["ours"], over_roofline, line["over_longer_roof"], of_one["verdict"] == "met")

    def judge(self):
        """Of the same run, whenever in it a figure was measured: memory gives more at one time than at another."""
        for of_line in self.unjudged:
            of_line()
        self.unjudged = []

    def repeats(self, name):
        return 10 if name == "llama-1.1b" else 60

    def one_row_and_more(self, name, groups):
        folder, gguf = self.model[name]
        threads, repeats = self.options.threads, self.repeats(name)
        batched = self.theirs.has("llama-batched-bench")

        def ours():
            return self.ours.passes(folder, threads, repeats)

        def theirs():
            return self.theirs.one_row(gguf, threads, max(3, repeats // 3)), self.theirs.rows(gguf, threads, 5) if batched and "rows" in groups else None
        a, b = self.in_turns(f"{name}: passes, {threads} threads", ours, theirs)
        self.measure_roofs()
        of_one = figures.row(f"decode, one row, {threads} threads", name, "tokens/s", [1e3 / of.ms[1] for of in a], [1e3 / one for one, _ in b],
                            of_read_in_turns=statistics.median(of.of_read for of in a))
        self.bytes[name] = a[0].bytes
        self.unjudged.append(lambda: self.hold_against_the_roof(of_one))
        if "decode" in groups:
            self.rows.append(of_one)
        if "rows" not in groups:
            return
        for rows in figures.ROWS:
            over = [of.over_one[rows] for of in a]
            line = figures.row(f"{rows} rows over one", name, "x", over, [of[rows] / of[1] for _, of in b] if batched else None)
            if name == "llama-1.1b":
                self.unjudged.append(functools.partial(self.hold_rows_against_the_roof, line, rows, statistics.median(of.ms[rows] for of in a),
                                                       statistics.median(of.over_roofline[rows] for of in a) if a[0].over_roofline[rows] else None, of_one))
            self.rows.append(line)
            if name == "llama-1.1b":
                self.rows += [figures.rows_line_of_place(self.features, rows, place) for place in figures.by_place(a)]

    def decode_alone(self, name):
        """Whole decoding, sampling and sums of ranks included."""
        folder, gguf = self.model[name]
        speeds = {}

        def measure(setups):
            for ranks, threads in setups:
                told(f"{name}: decoding, {ranks} ranks of {threads} threads")
                speeds.setdefault((ranks, threads), []).append(1e3 / self.ours.alone(folder, ranks, threads, CONTEXT, 2 * TOKENS)["ms"])
        theirs = []
        first_roof = len(self.roof_runs)
        for _ in range(DECODE_ROUNDS * self.options.rounds):
            measure(SETUPS)
            theirs += [1e3 / self.theirs.one_row(gguf, self.options.threads, 3) for _ in range(2)]
            self.measure_roofs()
            measure(reversed(SETUPS))
        of_two = figures.row("decode, two ranks of one thread", name, "tokens/s", speeds[2, 1], theirs)
        self.rows.append(of_two)
        self.unjudged.append(lambda: self.hold_against_the_roof(of_two))
        scaling = figures.scaling_of_reads(self.roof_runs[first_roof:])
        for title, above, below, goal, worth in (
                ("two ranks over one, one core each", (2, 1), (1, 1), f">= 0.97 x the plain read's {scaling:.2f}", figures.OF_SCALING * scaling),
                ("two ranks over two threads", (2, 1), (1, 2), ">= 0.97", figures.OF_TWO_THREADS)):
            ratios = [a / b for a, b in zip(speeds[above], speeds[below])]
            line = figures.row(title, name, "x", ratios, None, goal)
            self.rows.append({**line, "verdict": figures.verdict(line["ours"] >= worth), "tokens_per_second": {f"{r} ranks of {t}": of for (r, t), of in speeds.items()}})

    def prefill(self, name):
        folder, gguf = self.model[name]
        threads = self.options.threads
        a, b = self.in_turns(f"{name}: prefill", lambda: PROMPT / self.ours.alone(folder, 1, threads, PROMPT, 1)["ttft_ms"] * 1e3,
                             lambda: PROMPT / self.theirs.prefill(gguf, threads) * 1e3)
        goal = name == "llama-1.1b"
        line = figures.row(f"prefill of {PROMPT}", name, "tokens/s", a, b, ">= theirs" if goal else "reported")
        self.rows.append(figures.with_verdict(line, lambda ratio: figures.verdict(ratio >= 1)) if goal else line)

    def pair(self):
        """Each program first finds the K, ranks and threads that suit it, once through all; then both run theirs in turns."""
        found, program = {}, next((name for name in ("llama-speculative-simple", "llama-speculative") if self.theirs.has(name)), None)
        target, draft = (models.prepared(name, ROOT / "assets", self.options.work)[1] for name in (TARGET, DRAFT))
        for k in range(1, 9):
            told(f"pair: K = {k}")
            for setup in SETUPS:
                found[k, setup] = self.ours.pair(k, *setup)
        outputs = found[1, (1, 1)]["runs"][0]["outputs"]
        prompts, tokens = [output["prompt"] for output in outputs], len(outputs[0]["token_ids"])
        speeds = {key: figures.of_specdec_dist(of, "speculative")["tokens_per_second"] for key, of in found.items()}
        plain = {setup: max(figures.of_specdec_dist(found[k, setup], "autoregressive")["tokens_per_second"] for k in range(1, 9)) for setup in SETUPS}
        best = figures.best_k(speeds)
        best_plain = figures.best_k(plain)
        their_speeds, theirs = {}, None
        if program:
            for k in range(1, 9):
                told(f"pair: {program}, K = {k}")
                for threads in (1, 2):
                    their_speeds[k, threads] = self.theirs.pair(program, target, draft, prompts, k, threads, tokens)[0]
            k, threads = figures.best_k(their_speeds)
            theirs = lambda: self.theirs.pair(program, target, draft, prompts, k, threads, tokens)  # noqa: E731 pylint: disable=unnecessary-lambda-assignment
        a, b = self.in_turns("pair: the best of each", lambda: figures.of_specdec_dist(self.ours.pair(best[0], *best[1]), "speculative"), theirs, 3)
        where = f"{TARGET}, {DRAFT}"
        line = figures.row("speculative, each at its best K", where, "tokens/s", [of["tokens_per_second"] for of in a], [of[0] for of in b] if b else None, ">= 2 x theirs")
        self.rows.append(figures.with_verdict(line, lambda ratio: figures.verdict(ratio >= figures.PAIR_FASTER)))
        of_threads = {threads: self.theirs_alone(target, threads) for threads in (1, 2)}
        fewest = min(of_threads, key=of_threads.get)
        a_plain, b_plain = self.in_turns("pair: plain decoding", lambda: figures.of_specdec_dist(self.ours.pair(0, *best_plain), "autoregressive")["tokens_per_second"],
                                         lambda: 1e3 / self.theirs_alone(target, fewest), 3)
        line = figures.row("plain decoding, best threads of each", TARGET, "tokens/s", a_plain, b_plain, ">= theirs")
        self.rows.append(figures.with_verdict(line, lambda ratio: figures.verdict(ratio >= 1)))
        self.pairs = {"ours": {"k": best[0], "ranks": best[1][0], "threads": best[1][1], "accepted": a[0]["accepted"],
                               "tokens_per_second": {f"K={k}, {r} ranks of {t}": of for (k, (r, t)), of in speeds.items()}},
                      "theirs": {"program": program, "tokens_per_second": {f"K={k}, {t} threads": of for (k, t), of in their_speeds.items()}}}
        if b:
            same = [figures.same_beginning(text, printed.partition(prompt)[2]) for prompt, text, printed in zip(prompts, a[0]["texts"], b[0][2])]
            self.pairs["theirs"] |= {"k": k, "threads": threads, "accepted": b[0][1], "same_text": same}
            told(f"pair: ours K={best[0]} on {best[1]}, theirs K={k} with {threads} threads; texts are the same for {', '.join(f'{share:.0%}' for share in same)}")

    def theirs_alone(self, model, threads):
        """ms a token, over the depths of the main job's texts."""
        return figures.of_llama_bench(self.theirs.bench(model, ["-p", "0", "-n", "96", "-d", "32", "-r", "5"], threads))[0, 96, 32] / 96

    def start(self):
        told("start")
        self.ours.seconds_to_first_byte(8)  # files into the cache
        line = figures.row("start, 8 ranks to the first token", f"{TARGET}, {DRAFT}", "s", [self.ours.seconds_to_first_byte(8) for _ in range(5)], None, "<= 1 s")
        self.rows.append({**line, "verdict": figures.verdict(line["ours"] <= figures.START_SECONDS)})

    def run(self):
        groups = self.options.only
        self.check_numbers()
        self.measure_roofs()
        for name in self.options.shapes:
            if {"decode", "rows"} & set(groups):
                self.one_row_and_more(name, groups)
            if "decode" in groups and name == "llama-1.1b":
                self.decode_alone(name)
            if "prefill" in groups and name in models.SHAPES:
                self.prefill(name)
        if "rows" in groups:
            self.rows += figures.not_here(self.features)
        for group in ("pair", "start"):
            if group in groups:
                getattr(self, group)()


def machine(bench, load):
    name = next((line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("model name")), "")
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "features": bench.features, "system": platform.release(), "load": [load, os.getloadavg()[0]],
            "date": time.strftime("%Y-%m-%d"), "roofs": bench.roofs}


def interrupted(number, _):
    raise KeyboardInterrupt(number)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=pathlib.Path, help="the folder of a build of llama.cpp, or its bin")
    parser.add_argument("--json", type=pathlib.Path, help="also write everything here")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "llama_cpp_models", help="where models are written to, 5 GB (default: %(default)s)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(GROUPS), help=f"of {','.join(GROUPS)}")
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=[*models.SHAPES, TARGET, DRAFT], help=f"of {','.join([*models.SHAPES, TARGET, DRAFT])}")
    parser.add_argument("--threads", type=int, default=2, help="of a pass, both programs")
    parser.add_argument("--isa", choices=["auto", *figures.FEATURES], default="auto", help="of our programs at most; llama.cpp has what it was built for (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of A B B A")
    options = parser.parse_args(arguments)
    for chosen, known in ((options.only, GROUPS), (options.shapes, (*models.SHAPES, TARGET, DRAFT))):
        for name in set(chosen) - set(known):
            parser.error(f"found {name}, expected some of {','.join(known)}")
    load = os.getloadavg()[0]
    try:
        theirs = Theirs(options.llama_cpp)
        models.imported()
        bench = Bench(options, Ours(options.isa), theirs)
        build = theirs.version(bench.model[options.shapes[0]][1])
    except (models.Unusable, figures.Unreadable) as why:
        told(why)
        return 2
    code = 0
    signal.signal(signal.SIGTERM, interrupted)
    try:
        bench.run()
    except (models.Unusable, figures.Unreadable) as why:
        told(why)
        code = 2
    except KeyboardInterrupt as why:
        told("interrupted: the table has what was measured so far")
        code = 128 + (why.args[0] if why.args else signal.SIGINT)
    if bench.rows:
        report(bench, build, load, options)
    return code


def report(bench, build, load, options):
    bench.judge()
    about = machine(bench, load)
    if options.isa != "auto":
        print(f"our programs with {options.isa} at most")
    print(f"{about['cpu']}, {about['cores']} cores, {' '.join(about['features'])}; load {about['load'][0]:.1f} at first, {about['load'][1]:.1f} at last; {about['date']}")
    for threads, roof in about["roofs"].items():
        print(f"{threads} thread{'s' * (threads > 1)}: best plain read {roof['read_GBps']:.1f} GB/s ({roof['read_by']}), products {roof['GFLOPs']:.0f} GFLOP/s")
    print(f"llama.cpp {build['build_commit']} ({build['build_number']}); medians of A B B A, {options.rounds} round{'s' * (options.rounds > 1)}\n")
    print(figures.table(bench.rows))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": about, "isa": options.isa, "llama_cpp": build, "same_numbers": bench.same, "rows": bench.rows, "pair": bench.pairs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
