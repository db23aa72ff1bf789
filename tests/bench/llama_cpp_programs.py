"""The programs that llama_cpp.py runs: ours, from the PATH, and those of a build of llama.cpp."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import llama_cpp_figures as figures
import llama_cpp_models as models
from job_start import Failed, seconds_to_first_byte

CONTEXT, TOKENS, PROMPT = 128, 16, 512  # before a pass, generated after it, read in one go


def told(line):
    print(f"llama_cpp.py: {line}", file=sys.stderr, flush=True)


def output_of(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no message"]
        raise models.Unusable(f"{' '.join(command)[:300]}: exit code {done.returncode}: {last[0][:300]}")
    return done.stdout, done.stderr


def read_in_full(command, read, attempts=5):
    """Standard output, and what `read` finds in all that the command prints. llama.cpp's log has a thread of its own, and now and then a program ends before it: then it runs once more."""
    out, err = output_of(command)
    try:
        return out, read(out + "\n" + err)
    except figures.Unreadable:
        if attempts == 1:
            raise
        return read_in_full(command, read, attempts - 1)


class Ours:
    """specdec_dist and its benchmarks, from the PATH, with kernels of an instruction set at most."""

    def __init__(self, isa="auto"):
        self.isa = isa
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
        return figures.of_pass_bench(self.json_of(["pass_bench", "--model", str(folder), "--threads", str(threads), "--context", str(CONTEXT), "--repeats", str(repeats),
                                                    "--isa", self.isa]))

    def generated(self, ranks, settings, config="chinchilla-like.yaml"):
        flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
        # mpirun would bind one rank to one core, whatever its threads are.
        launcher = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
        return self.json_of([*launcher, "specdec_dist", "--config", str(config), "--quiet", "--no-stream", "--set", "interconnect=native",
                              "--set", f"parallel.isa={self.isa}", *flags])

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
                   "--set", f"parallel.isa={self.isa}", "--set", "decode.max_new_tokens=1"]
        try:
            return seconds_to_first_byte(command)
        except Failed as failure:
            raise models.Unusable(str(failure)) from failure

    def logits(self, folder, ids):
        numpy, _ = models.imported()
        with tempfile.TemporaryDirectory() as temporary:
            files = [pathlib.Path(temporary) / name for name in ("ids.txt", "logits.npy")]
            files[0].write_text(" ".join(map(str, ids)), encoding="utf-8")
            output_of(["specdec_score", "--model", str(folder), "--ids", str(files[0]), "--logits", str(files[1]), "--isa", self.isa])
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
        command = [str(self.folder / program), "-m", str(model), "-t", str(threads), "-tb", str(threads), "-c", "4096", "-npp", str(CONTEXT), "-ntg", ",".join(["4"] * repeats),
                   "-npl", rows, "-pps", *self.flags(program, ("-kvu",)), "--output-format", "jsonl"]
        return figures.of_batched_bench("\n".join(output_of(command)))

    def pair(self, program, target, draft, prompts, k, threads, tokens):
        """Over all prompts: (tokens a second, share of drafted tokens that stood, what was printed for each)."""
        totals, printed = [0, 0.0, 0, 0], []
        for prompt in prompts:
            command = [str(self.folder / program), "-m", str(target), "-md", str(draft), "-p", prompt, "-n", str(tokens), "-c", "512", "-t", str(threads), "--temp", "0",
                       "--ignore-eos", *self.flags(program, ("--no-escape",)), *self.flags(program, ("--spec-type", "draft-simple")),
                       *self.flags(program, ("--spec-draft-threads", threads), ("-td", threads)), *self.flags(program, ("--spec-draft-n-max", k), ("--draft-max", k))]
            out, of_loop = read_in_full(command, figures.of_speculation)
            printed.append(out)
            totals = [total + more for total, more in zip(totals, of_loop)]
        return totals[0] / totals[1], totals[3] / totals[2] if totals[2] else None, printed

    def results(self, model, text):
        with tempfile.TemporaryDirectory() as temporary:
            path = pathlib.Path(temporary) / "results.gguf"
            output_of([str(self.folder / "llama-results"), "-m", str(model), "-p", text, "-o", str(path), "-c", "512"])
            return models.results_of(path)
