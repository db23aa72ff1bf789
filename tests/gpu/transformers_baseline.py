#!/usr/bin/env python3
"""What passes of a model cost with Hugging Face's transformers, at batch 1 over a static KV cache: what pass_bench measures of this program.

    tests/gpu/transformers_baseline.py [MODEL ...] [--device cuda] [--dtype bf16] [--ways eager,graph] [--rows 1,2,5,9,16] [--json F]

MODEL is a folder in Hugging Face's layout, assets/manpy-11m unless named; one without a checkpoint gets random weights, made on the device. A pass of one
row is a token of plain decoding, one of K + 1 rows is what checking K drafted tokens costs. The ways: `eager` calls the model, `graph` replays a CUDA graph
of that call, `compiled` calls torch.compile(model, mode="reduce-overhead"), which takes minutes for a large model.

Method: as pass_bench. All rows and ways take turns within each repeat, in rotated order; a figure is the median of the host's times from the call until the
device is done, of passes after `--context` tokens, with the logits of all rows. The plain read is torch.sum of as many bytes as a pass multiplies with, in
the same turns; with --read-gbps what product_bench has measured counts where it is faster. Every way's logits are compared with those of one
pass without a cache; exit code 1 if they are others. The JSON is a list with one object of pass_bench's fields, and some more, for each model and way.
"""

import argparse
import inspect
import json
import math
import os
import statistics
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
WAYS = ("eager", "graph", "compiled")
DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
WARM_UP = 5
ROUNDINGS = 10  # of the hidden state and what is added to it, in a layer
MOST_READ = 1 << 31  # bytes of the plain read, for a device that holds little more than the weights


def rotated(count, repeat):
    """The order of `count` things in the repeat of that number."""
    return [(i + repeat) % count for i in range(count)]


def median_ratio(numerators, denominators):
    """Of times that were taken in turns: repeat by repeat, as pass_bench has them."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def summary(about, size, seconds, read_seconds, read_gbps=None):
    """pass_bench's object, from {rows: [seconds]}, seconds of reading `size` bytes, and what to say beside. Rows are those of one way."""
    one = seconds[1]
    read = statistics.median(read_seconds)
    given = read_gbps is not None and size / (read_gbps * 1e9) < read
    read = size / (read_gbps * 1e9) if given else read
    rows = [{"rows": count, "ms": median * 1e3, "over_one_row": median_ratio(seconds[count], one), "roofline_ms": None, "over_roofline": None, "GBps": size / median * 1e-9,
             "share_of_read": read / median}
            for count, median in ((count, statistics.median(seconds[count])) for count in sorted(seconds))]
    return {**about, "bytes": size, "plain_read_ms": read * 1e3, "plain_read_by": "--read-gbps" if given else "torch.sum",
            "one_row_over_plain_read": statistics.median(one) / read if given else median_ratio(one, read_seconds), "fp32_multiply_adds_a_second": None, "rows": rows, "places": []}


def table(result):
    lines = [f"{os.path.basename(result['model'])}, {result['way']}: {result['backend']}, {result['dtype']} after {result['context']} tokens of context, "
             f"weights: {result['weights']}", f"{'rows':>5} {'ms':>10} {'over 1 row':>12} {'GB/s':>8} {'of read':>8}"]
    lines += [f"{row['rows']:>5} {row['ms']:>10.3f} {row['over_one_row']:>12.2f} {row['GBps']:>8.0f} {row['share_of_read']:>8.1%}" for row in result["rows"]]
    lines.append(f"plain read ({result['plain_read_by']}) of {result['bytes'] * 1e-6:.1f} MB: {result['plain_read_ms']:.3f} ms "
                 f"({result['bytes'] / result['plain_read_ms'] * 1e-6:.0f} GB/s); logits differ from those without a cache by {result['differs_by']:.2%} (may by {result['may_differ_by']:.1%})")
    return "\n".join(lines)


def may_differ(eps, layers, width):
    """What two ways of the same arithmetic may be apart, of the logits' norm: each rounding is off by up to eps / 2, evenly, so is each of the about `width`
    additions in fp32 before it by its own, and they add up as a random walk, on both sides. A pass that sees one key too many, or other tokens, is further
    away."""
    each = math.hypot(eps, math.sqrt(width) * 2 ** -23) / 2
    return each * math.sqrt(2 * ROUNDINGS * layers / 3)


class Passes:
    """A model on the device with a cache that holds `context` tokens, and passes of some rows after them."""

    def __init__(self, folder, options, torch, transformers):
        self.torch, self.device = torch, torch.device(options.device)
        self.context, self.most = options.context, max(options.rows)
        self.random = not os.path.exists(os.path.join(folder, "model.safetensors"))
        dtype = getattr(torch, DTYPES[options.dtype])
        config = transformers.AutoConfig.from_pretrained(folder)
        if options.context + self.most > config.max_position_embeddings:
            sys.exit(f"transformers_baseline.py: {folder}: found {options.context} tokens and {self.most} rows, expected at most "
                     f"{config.max_position_embeddings} positions")
        torch.manual_seed(options.seed)
        auto = transformers.AutoModelForCausalLM
        if self.random:
            with self.device:
                self.model = auto.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
        else:
            self.model = auto.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(self.device).eval()
        self.ids = torch.randint(config.vocab_size, (1, self.context + self.most), device=self.device)
        # No longer than it needs to be: masked keys would be read too.
        self.cache = transformers.StaticCache(config=config, max_cache_len=self.context + self.most)
        decoder = inspect.signature(self.model.base_model.forward).parameters
        self.takes_position = "cache_position" in decoder and decoder["cache_position"].kind is not inspect.Parameter.VAR_KEYWORD
        self.after = {rows: self.inputs(self.context, self.context + rows) for rows in options.rows}
        self.model(**self.inputs(0, self.context))

    def bytes(self):
        """Of the matrices that a pass multiplies with; embeddings are looked up, unless the head is one."""
        lookups = (self.torch.nn.Embedding,)
        return sum(module.weight.numel() * module.weight.element_size() for module in self.model.modules()
                   if getattr(module, "weight", None) is not None and module.weight.dim() == 2 and not isinstance(module, lookups))

    def rewind(self, tokens):
        """The cache holds so many, and what lies behind them is overwritten."""
        for layer in self.cache.layers:
            length = getattr(layer, "cumulative_length", None)
            if self.torch.is_tensor(length):
                length.fill_(tokens)
            elif length is not None:
                layer.cumulative_length = tokens

    def inputs(self, begin, end):
        """What a pass over the tokens [begin, end) is told, made once. Without a mask transformers makes one in each pass, and for several rows asks the device
        first whether the cache is empty."""
        position = self.positions(begin, end)
        visible = self.positions(0, self.context + self.most) <= position.T
        more = {"cache_position": position[0]} if self.takes_position else {}
        return {"input_ids": self.ids[:, begin:end], "position_ids": position, "attention_mask": visible[None, None], "past_key_values": self.cache,
                "use_cache": True, **more}

    def positions(self, begin, end):
        return self.torch.arange(begin, end, device=self.device).unsqueeze(0)

    def once(self, rows, call=None):
        self.rewind(self.context)
        return (self.model if call is None else call)(**self.after[rows]).logits

    def way(self, name, rows):
        """What does one pass and returns its logits."""
        if name == "eager":
            return lambda: self.once(rows)
        if name == "compiled":
            compiled = self.torch.compile(self.model, mode="reduce-overhead", dynamic=False)
            return lambda: self.once(rows, compiled)
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):  # what is captured has run before
            for _ in range(3):
                self.once(rows)
        self.torch.cuda.current_stream().wait_stream(side)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            logits = self.once(rows)

        def replay():
            graph.replay()
            return logits

        return replay

    def without_cache(self):
        tokens = self.context + self.most
        return self.model(input_ids=self.ids, position_ids=self.positions(0, tokens), use_cache=False).logits[0, self.context:].float()


class Reader:
    """The plain read: torch.sum of `size` bytes, or of as many as MOST_READ."""

    def __init__(self, torch, device, size):
        self.torch, self.device = torch, device
        elements = max(min(size, MOST_READ) // 4, 1)
        self.scale = size / (elements * 4)
        self.buffer = torch.ones(elements, dtype=torch.float32, device=device)

    def seconds(self):
        if self.device.type != "cuda":
            start = time.perf_counter()
            self.buffer.sum()
            return (time.perf_counter() - start) * self.scale
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.buffer.sum()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 * self.scale


def measure(folder, options, torch, transformers):
    """One object for each way that this machine has."""
    passes = Passes(folder, options, torch, transformers)
    finish = torch.cuda.synchronize if passes.device.type == "cuda" else lambda: None
    reader = Reader(torch, passes.device, passes.bytes())
    expected = passes.without_cache()
    calls, differs = {}, {}
    for way in options.ways:
        try:
            calls.update({(way, rows): passes.way(way, rows) for rows in options.rows})
            for rows in options.rows:
                found = calls[way, rows]()[0].float()
                differs[way] = max(differs.get(way, 0.0), float((found - expected[:rows]).norm() / expected[:rows].norm()))
        except Exception as error:  # pylint: disable=broad-except  whatever a version of torch may raise there
            if way == "eager":
                raise
            calls = {key: call for key, call in calls.items() if key[0] != way}
            differs.pop(way, None)
            print(f"{os.path.basename(folder)}, {way}: not measured: {str(error).strip().splitlines()[0] if str(error) else type(error).__name__}")
    seconds = {key: [] for key in calls}
    read_seconds = []
    order = list(calls)
    for repeat in range(-WARM_UP, options.repeats):
        for i in rotated(len(order), repeat + WARM_UP):
            finish()
            start = time.perf_counter()
            calls[order[i]]()
            finish()
            if repeat >= 0:
                seconds[order[i]].append(time.perf_counter() - start)
        spent = reader.seconds()
        if repeat >= 0:
            read_seconds.append(spent)
    config = passes.model.config
    limit = may_differ(torch.finfo(passes.model.dtype).eps, config.num_hidden_layers, config.hidden_size)
    name = torch.cuda.get_device_name(passes.device) if passes.device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    cuda = f", CUDA {torch.version.cuda}" if passes.device.type == "cuda" else ""
    about = {"model": folder, "backend": f"transformers {transformers.__version__}, torch {torch.__version__}{cuda}, {passes.model.config._attn_implementation}, {name}",
             "weights": f"random (seed {options.seed})" if passes.random else "checkpoint", "device": name, "dtype": options.dtype, "context": options.context}
    return [summary({**about, "way": way, "differs_by": differs[way], "may_differ_by": limit}, passes.bytes(),
                    {rows: seconds[way, rows] for rows in options.rows}, read_seconds, options.read_gbps)
            for way in differs]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", default=[os.path.join(ROOT, "assets", "manpy-11m")])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16", choices=sorted(DTYPES))
    parser.add_argument("--ways", default="eager,graph", help="some of " + ",".join(WAYS))
    parser.add_argument("--rows", default="1,2,5,9,16", help="1 among them: others are compared with it")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of a CPU")
    parser.add_argument("--read-gbps", type=float, help="the device's bandwidth, as product_bench measures it")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    options.ways = list(dict.fromkeys(options.ways.split(",")))
    if not set(options.ways) <= set(WAYS):
        parser.error(f"--ways: found {','.join(options.ways)}, expected some of {','.join(WAYS)}")
    try:
        options.rows = sorted({int(rows) for rows in options.rows.split(",")})
    except ValueError:
        options.rows = []
    if not options.rows or options.rows[0] != 1:
        parser.error("--rows: expected numbers with commas between them, 1 the smallest")
    if options.context < 1 or options.repeats < 1:
        parser.error("--context and --repeats: expected 1 or more")
    return options


def main():
    options = parse(sys.argv[1:])
    import torch  # the rest of this file is there without it
    import transformers
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("transformers_baseline.py: torch sees no GPU (--device cpu)")
    if not options.device.startswith("cuda"):
        options.ways = [way for way in options.ways if way != "graph"] or ["eager"]
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    results = []
    wrong = False
    with torch.no_grad():
        for folder in options.model:
            found = measure(folder, options, torch, transformers)
            for result in found:
                print(table(result), flush=True)
                wrong = wrong or result["differs_by"] > result["may_differ_by"]
            results += found
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(results, file, indent=1)
    sys.exit("transformers_baseline.py: a pass over the cache is not what it should be" if wrong else 0)


if __name__ == "__main__":
    main()
