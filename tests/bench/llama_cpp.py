#!/usr/bin/env python3
"""specdec_dist beside llama.cpp on this machine: the same numbers, the same prompts, in turns A B B A, as one table of ratios and as JSON.

    pip install gguf
    source build/release/env.sh && python3 tests/bench/llama_cpp.py PATH-TO-A-BUILD-OF-LLAMA.CPP [--json F] [--only decode,rows,prefill,pair,start]

The build is made by whoever runs this (cmake -DGGML_NATIVE=ON; targets llama-bench, llama-batched-bench, llama-speculative-simple and, for the check of the
numbers, llama-results); what is not there leaves its rows empty. Models are written to --work once: a 1.1B and a 134M Llama of random weights, the shipped
pair, each as safetensors and as GGUF.

  decode   one row: pass_bench after 128 tokens beside llama-bench -n 16 -d 128, both without sampling, and beside roof_bench's best plain read; whole
           decoding by specdec_dist with one rank, two threads, and two ranks
  rows     2, 5, 9, 16 rows over one: pass_bench beside llama-batched-bench, as many sequences of one token each behind a shared prompt of 128. That is what a
           pass that verifies costs there: as many rows through each matrix, the logits of all of them (llama-bench -p would make only the last one's)
  prefill  512 tokens: to the first token (its pass of one row included) beside llama-bench -p 512
  pair     the shipped pair, greedy, on the main job's prompts: tokens a second of the loop, each program with the K and the threads that are best for it
  start    from starting mpirun -np 8 to the first byte of text, files in the cache

Exit code 0 when it measured, whatever came out; 1 when the two programs have different numbers; 2 when there is nothing to measure with.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import llama_cpp_figures as figures
import llama_cpp_models as models

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUPS = ("decode", "rows", "prefill", "pair", "start")
TARGET, DRAFT = "manpy-11m", "manpy-2m"
SETUPS = ((1, 1), (1, 2), (2, 1))  # ranks, threads of each
CONTEXT, TOKENS, PROMPT = 128, 16, 512
SAME_NUMBERS = 1e-2  # where rows of q and k change places and should not, a tenth or more


def told(line):
    print(f"llama_cpp.py: {line}", file=sys.stderr, flush=True)


def output_of(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no message"]
        raise models.Unusable(f"{' '.join(command)[:300]}: exit code {done.returncode}: {last[0][:300]}")
    return done.stdout, done.stderr


class Ours:
    """specdec_dist and its benchmarks, from the PATH."""

    def __init__(self):
        for program in ("specdec_dist", "pass_bench", "roof_bench", "mpirun"):
            if not shutil.which(program):
                raise models.Unusable(f"found no {program} on the PATH, expected it after `source build/release/env.sh`")

    def json_of(self, command, flag="--json"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            output_of([*command, flag, str(path)])
            return json.loads(path.read_text(encoding="utf-8"))

    def roofs(self, threads):
        return figures.of_roof_bench(self.json_of(["roof_bench", "--threads", ",".join(map(str, sorted({1, 2, threads})))]))

    def passes(self, folder, threads, repeats):
        return figures.of_pass_bench(self.json_of(["pass_bench", "--model", str(folder), "--threads", str(threads), "--context", str(CONTEXT), "--repeats", str(repeats)]))

    def generated(self, ranks, settings, config="chinchilla-like.yaml"):
        flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
        return self.json_of(["mpirun", "-np", str(ranks), "specdec_dist", "--config", str(config), "--quiet", "--no-stream", "--set", "interconnect=native", *flags])

    def alone(self, folder, ranks, threads, prompt, tokens):
        """Greedy decoding after a prompt of random tokens."""
        with tempfile.TemporaryDirectory() as temporary:
            config = pathlib.Path(temporary) / "job.yaml"
            config.write_text(json.dumps({"target": str(folder.resolve()), "prompts": [{"random": prompt}], "decode": {
                "method": "autoregressive", "temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}, "parallel": {"threads": threads}}), encoding="utf-8")
            return figures.of_specdec_dist(self.generated(ranks, {}, config), "autoregressive")

    def pair(self, k, ranks, threads):
        return self.generated(ranks, {"decode.temperature": 0, "decode.k": k, "parallel.threads": threads})

    def seconds_to_first_byte(self, ranks):
        command = ["mpirun", "-np", str(ranks), "specdec_dist", "--config", "chinchilla-like.yaml", "--quiet", "--set", "interconnect=native", "--set", "compare=false",
                   "--set", "decode.max_new_tokens=1"]
        start = time.monotonic()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
            first = job.stdout.read(1)
            seconds = time.monotonic() - start
            job.stdout.read()
        if not first or job.returncode != 0:
            raise models.Unusable(f"{' '.join(command)}: exit code {job.returncode}, expected text")
        return seconds

    def logits(self, folder, ids):
        numpy, _ = models.imported()
        with tempfile.TemporaryDirectory() as temporary:
            files = [pathlib.Path(temporary) / name for name in ("ids.txt", "logits.npy")]
            files[0].write_text(" ".join(map(str, ids)), encoding="utf-8")
            output_of(["specdec_score", "--model", str(folder), "--ids", str(files[0]), "--logits", str(files[1])])
            return numpy.load(files[1])


class Theirs:
    """The programs of a build of llama.cpp."""

    def __init__(self, build):
        self.folder = next((folder for folder in (build / "bin", build) if (folder / "llama-bench").exists()), None)
        if self.folder is None:
            raise models.Unusable(f"{build}: found no llama-bench there nor in its bin, expected a build of llama.cpp")
        self.helps = {}

    def has(self, program):
        return (self.folder / program).exists()

    def flags(self, program, *choices):
        """The first of the choices, each (flag, value ...), that this version of the program has; none of them is none."""
        if program not in self.helps:
            done = subprocess.run([self.folder / program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
            self.helps[program] = set((done.stdout + done.stderr).replace(",", " ").split())
        return next((list(map(str, choice)) for choice in choices if choice[0] in self.helps[program]), [])

    def version(self, model):
        test = figures.read("llama-bench", self.bench(model, ["-p", "1", "-n", "0", "-r", "1"], 1))[0]
        return {key: test.get(key) for key in ("build_commit", "build_number", "cpu_info", "model_type", "backends")}

    def bench(self, model, arguments, threads):
        return output_of([str(self.folder / "llama-bench"), "-m", str(model), "-t", str(threads), *arguments, "-o", "json"])[0]

    def one_row(self, model, threads, repeats):
        times = figures.of_llama_bench(self.bench(model, ["-p", "0", "-n", str(TOKENS), "-d", str(CONTEXT), "-r", str(repeats)], threads))
        return times[0, TOKENS, CONTEXT] / TOKENS

    def prefill(self, model, threads):
        return figures.of_llama_bench(self.bench(model, ["-p", str(PROMPT), "-n", "0", "-r", "2"], threads))[PROMPT, 0, 0]

    def rows(self, model, threads, repeats):
        program = "llama-batched-bench"
        rows = ",".join(map(str, (1, *figures.ROWS)))
        command = [str(self.folder / program), "-m", str(model), "-t", str(threads), "-tb", str(threads), "-c", "8192", "-npp", str(CONTEXT), "-ntg", ",".join(["4"] * repeats),
                   "-npl", rows, "-pps", *self.flags(program, ("-kvu",)), "--output-format", "jsonl"]
        return figures.of_batched_bench("\n".join(output_of(command)))

    def pair(self, program, target, draft, prompts, k, threads, tokens):
        """Over all prompts: (tokens a second, share of drafted tokens that stood, what was printed for each)."""
        totals, printed = [0, 0.0, 0, 0], []
        for prompt in prompts:
            command = [str(self.folder / program), "-m", str(target), "-md", str(draft), "-p", prompt, "-n", str(tokens), "-c", "512", "-t", str(threads), "--temp", "0",
                       "--ignore-eos", *self.flags(program, ("--no-escape",)), *self.flags(program, ("--spec-type", "draft-simple")),
                       *self.flags(program, ("--spec-draft-threads", threads), ("-td", threads)), *self.flags(program, ("--spec-draft-n-max", k), ("--draft-max", k))]
            out, err = output_of(command)
            printed.append(out)
            totals = [total + more for total, more in zip(totals, figures.of_speculation(out + "\n" + err))]
        return totals[0] / totals[1], totals[3] / totals[2] if totals[2] else None, printed

    def results(self, model, text):
        with tempfile.TemporaryDirectory() as temporary:
            path = pathlib.Path(temporary) / "results.gguf"
            output_of([str(self.folder / "llama-results"), "-m", str(model), "-p", text, "-o", str(path), "-c", "512"])
            return models.results_of(path)


class Bench:
    """The groups of the table, and what they found beside it."""

    def __init__(self, options, ours, theirs):
        self.options, self.ours, self.theirs = options, ours, theirs
        self.rows, self.same, self.pairs, self.roof_runs = [], {}, {}, []
        self.model = {name: models.prepared(name, ROOT / "assets", options.work) for name in options.shapes}
        flags = next((line.split() for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("flags")), [])
        self.features = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]

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
        bytes_read = a[0][0]
        roof = self.roofs[threads]
        of_one = figures.row(f"decode, one row, {threads} threads", name, "tokens/s", [1e3 / ms[1] for _, ms in a], [1e3 / one for one, _ in b])
        of_one["GBps"] = bytes_read * of_one["ours"] / 1e9
        share = of_one["GBps"] / roof["read_GBps"]
        one_row_met = False
        if name == "llama-1.1b":
            of_one["goal"] = f">= min(1.25 x theirs, 95% of {roof['read_GBps']:.1f} GB/s; is {share:.0%})"
            of_one = figures.with_verdict(of_one, lambda ratio: figures.decode_verdict(ratio, share))
            one_row_met = of_one["verdict"] == "met"
        if "decode" in groups:
            self.rows.append(of_one)
        if "rows" not in groups:
            return
        for rows in figures.ROWS:
            over = [ms[rows] / ms[1] for _, ms in a]
            line = figures.row(f"{rows} rows over one", name, "x", over, [of[rows] / of[1] for _, of in b] if batched else None)
            if name == "llama-1.1b":
                milliseconds = sorted(ms[rows] for _, ms in a)[len(a) // 2]
                roofline = figures.roofline_ms(bytes_read, rows, roof["read_GBps"], roof["GFLOPs"])
                line["goal"], line["verdict"] = figures.rows_verdict(self.features, rows, line["ours"], milliseconds, roofline, one_row_met)
            self.rows.append(line)

    def decode_alone(self, name):
        """Whole decoding, sampling and sums of ranks included."""
        folder, _ = self.model[name]
        speeds = {}
        for ranks, threads in [*SETUPS, *reversed(SETUPS)]:
            told(f"{name}: decoding, {ranks} ranks of {threads} threads")
            speeds.setdefault((ranks, threads), []).append(1e3 / self.ours.alone(folder, ranks, threads, CONTEXT, 32)["ms"])
        scaling = self.roofs[2]["read_GBps"] / self.roofs[1]["read_GBps"]
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
            same = [figures.same_beginning(prompt + text, printed[max(printed.find(prompt), 0):]) for prompt, text, printed in zip(prompts, a[0]["texts"], b[0][2])]
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
                self.measure_roofs()
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


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=pathlib.Path, help="the folder of a build of llama.cpp, or its bin")
    parser.add_argument("--json", type=pathlib.Path, help="also write everything here")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "llama_cpp_models", help="where models are written to, 5 GB (default: %(default)s)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(GROUPS), help=f"of {','.join(GROUPS)}")
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=[*models.SHAPES, TARGET, DRAFT], help=f"of {','.join([*models.SHAPES, TARGET, DRAFT])}")
    parser.add_argument("--threads", type=int, default=2, help="of a pass, both programs")
    parser.add_argument("--rounds", type=int, default=1, help="of A B B A")
    options = parser.parse_args(arguments)
    for chosen, known in ((options.only, GROUPS), (options.shapes, (*models.SHAPES, TARGET, DRAFT))):
        for name in set(chosen) - set(known):
            parser.error(f"found {name}, expected some of {','.join(known)}")
    load = os.getloadavg()[0]
    try:
        theirs = Theirs(options.llama_cpp)
        models.imported()
        bench = Bench(options, Ours(), theirs)
        build = theirs.version(bench.model[options.shapes[0]][1])
        bench.run()
    except (models.Unusable, figures.Unreadable) as why:
        told(why)
        return 2
    about = machine(bench, load)
    print(f"{about['cpu']}, {about['cores']} cores, {' '.join(about['features'])}; load {about['load'][0]:.1f} at first, {about['load'][1]:.1f} at last; {about['date']}")
    for threads, roof in about["roofs"].items():
        print(f"{threads} thread{'s' * (threads > 1)}: best plain read {roof['read_GBps']:.1f} GB/s ({roof['read_by']}), products {roof['GFLOPs']:.0f} GFLOP/s")
    print(f"llama.cpp {build['build_commit']} ({build['build_number']}); medians of A B B A, {options.rounds} round{'s' * (options.rounds > 1)}\n")
    print(figures.table(bench.rows))
    if options.json:
        with contextlib.suppress(FileNotFoundError):
            options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": about, "llama_cpp": build, "same_numbers": bench.same, "rows": bench.rows, "pair": bench.pairs}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
