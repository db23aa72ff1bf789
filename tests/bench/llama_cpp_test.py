#!/usr/bin/env python3
"""llama_cpp.py over output that is made up: no llama.cpp, no numpy and no package gguf are asked for."""

import contextlib
import io
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest
import unittest.mock

import llama_cpp
import llama_cpp_figures as figures
import llama_cpp_models as models
import llama_cpp_programs

LLAMA_BENCH = [{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ns": [3_000_000, 9_000_000, 2_000_000], "avg_ns": 4_666_666},
               {"n_prompt": 0, "n_gen": 16, "n_depth": 128, "samples_ns": [32_000_000], "avg_ns": 32_000_000}]
BATCHED = """
main: n_kv_max = 8192, n_batch = 2048

{"n_kv_max": 8192, "pp": 128, "tg": 4, "pl": 1, "t_pp": 0.5, "t_tg": 0.400000, "speed_tg": 10.0}
{"n_kv_max": 8192, "pp": 128, "tg": 4, "pl": 5, "t_pp": 0.5, "t_tg": 0.700000, "speed_tg": 28.6}
{"n_kv_max": 8192, "pp": 128, "tg": 4, "pl": 1, "t_pp": 0.5, "t_tg": 0.900000, "speed_tg": 10.0}
{"n_kv_max": 8192, "pp": 128, "tg": 4, "pl": 5, "t_pp": 0.5, "t_tg": 0.600000, "speed_tg": 28.6}
{"n_kv_max": 8192, "pp": 128, "tg": 4, "pl": 1, "t_pp": 0.5, "t_tg": 0.440000, "speed_tg": 10.0}

llama_perf_context_print:        load time =    10.00 ms
"""
SPECULATION = """def f(): pass
encoded   24 tokens in    0.011 seconds, speed: 2181.818 t/s
decoded   97 tokens in    0.250 seconds, speed:  388.000 t/s

n_draft   = 4
n_predict = 97
n_drafted = 120
n_accept  = 66
accept    = 55.000%
"""


def dist(method="speculative", drafted=80):
    return {"runs": [{"method": "autoregressive", "metrics": {}, "outputs": []},
                     {"method": method, "outputs": [{"text": "a"}, {"text": "b"}],
                      "metrics": {"ms_per_token": 0.5, "tokens_per_second": 2000, "ttft_ms": 7, "drafted": drafted, "accepted": 60}}]}


class Output(unittest.TestCase):
    def test_llama_bench(self):
        self.assertEqual(figures.of_llama_bench(json.dumps(LLAMA_BENCH)), {(512, 0, 0): 3, (0, 16, 128): 32})

    def test_llama_bench_without_samples(self):
        for text in ("", "[", "[]", json.dumps([{**LLAMA_BENCH[0], "samples_ns": []}])):
            with self.assertRaisesRegex(figures.Unreadable, "^llama-bench: found no"):
                figures.of_llama_bench(text)

    def test_a_log_whose_end_was_lost_is_made_once_more(self):
        cut = SPECULATION.partition("n_accept")[0]
        with unittest.mock.patch.object(llama_cpp_programs, "output_of", side_effect=[("", cut), ("", cut), ("text", SPECULATION)]) as runs:
            self.assertEqual(llama_cpp_programs.read_in_full(["x"], figures.of_speculation), ("text", (97, 0.25, 120, 66)))
            self.assertEqual(runs.call_count, 3)
        with unittest.mock.patch.object(llama_cpp_programs, "output_of", return_value=("", cut)), self.assertRaises(figures.Unreadable):
            llama_cpp_programs.read_in_full(["x"], figures.of_speculation)

    def test_batches_are_medians_of_their_lines(self):
        found = figures.of_batched_bench(BATCHED)
        self.assertAlmostEqual(found[1], 110)
        self.assertAlmostEqual(found[5], 162.5)
        with self.assertRaises(figures.Unreadable):
            figures.of_batched_bench("error: unable to load model\n")

    def test_speculation(self):
        self.assertEqual(figures.of_speculation(SPECULATION), (97, 0.25, 120, 66))
        # With times and levels before each line, as newer versions write them.
        self.assertEqual(figures.of_speculation("\n".join("0.01.234.567 I " + line for line in SPECULATION.splitlines())), (97, 0.25, 120, 66))
        with self.assertRaises(figures.Unreadable):
            figures.of_speculation(SPECULATION.replace("decoded", "encoded"))

    def test_ours(self):
        self.assertEqual(figures.of_pass_bench({"bytes": 8, "one_row_over_plain_read": 1.25, "rows": [
            {"rows": 1, "ms": 2.5, "over_one_row": 1, "roofline_ms": 2, "over_roofline": 1.2}, {"rows": 5, "ms": 3, "over_one_row": 1.3, "roofline_ms": None, "over_roofline": None}]}),
                         figures.Passes(bytes=8, ms={1: 2.5, 5: 3}, over_one={1: 1, 5: 1.3}, of_read=0.8, over_roofline={1: 1.2, 5: None}))
        found = figures.of_specdec_dist(dist(), "speculative")
        self.assertEqual(found, {"ms": 0.5, "tokens_per_second": 2000, "ttft_ms": 7, "texts": ["a", "b"], "accepted": 0.75})
        self.assertIsNone(figures.of_specdec_dist(dist(drafted=0), "speculative")["accepted"])
        with self.assertRaises(figures.Unreadable):
            figures.of_specdec_dist(dist("autoregressive"), "speculative")

    def test_passes_by_place(self):
        def run(over, *places):
            rows = [{"rows": 5, "ms": 3, "over_one_row": over, "roofline_ms": 2, "over_roofline": over + 0.1}]
            return figures.of_pass_bench({"bytes": 8, "one_row_over_plain_read": 1, "rows": rows, "places": [
                {"line_ns": [least, most], "repeats": repeats, **({"rows": [{**rows[0], "over_one_row": here, "over_roofline": here + 0.1}]} if here else {})} for least, most, repeats, here in places]})
        near_alone, both, far_alone = run(1.0, (30, 60, 9, None)), run(1.2, (40, 70, 3, 1.1), (150, 160, 5, 1.3)), run(1.5, (140, 190, 9, None))
        self.assertEqual(figures.by_place([near_alone, near_alone]), [])
        self.assertEqual(figures.by_place([near_alone._replace(places=[])]), [])
        near, far = figures.by_place([far_alone, both, near_alone])
        self.assertEqual((near.line_ns, near.repeats, near.over_one), ((30, 70), 12, {5: 1.05}))
        self.assertEqual((far.line_ns, far.repeats, far.over_one), ((140, 190), 14, {5: 1.4}))
        self.assertAlmostEqual(far.over_roofline[5], 1.5)
        line = figures.rows_line_of_place(["avx512_bf16"], 5, far)
        self.assertEqual((line["what"], line["goal"], line["verdict"]), ("  where a line takes 140 to 190 ns", "14 repeats; 1.500 x roofline", "there: MISSED"))
        self.assertEqual(figures.rows_line_of_place(["avx512_bf16"], 5, near._replace(over_roofline={5: 1.1}))["verdict"], "there: met")
        self.assertEqual(figures.rows_line_of_place(["avx2"], 5, near._replace(over_roofline={5: None}))["goal"], "12 repeats")

    def test_the_best_roof_of_several_runs(self):
        runs = [figures.of_roof_bench({"roofs": [{"threads": 2, "read_GBps": read, "read_by": by, "GFLOPs": flops, "ways": []}]})
                for read, by, flops in ((20, "a", 300), (22, "b", 250))]
        self.assertEqual(figures.best_roofs(runs), {2: {"read_GBps": 22, "read_by": "b", "GFLOPs": 300}})


class Arithmetic(unittest.TestCase):
    def test_scaling_is_that_of_each_run(self):
        runs = [{1: {"read_GBps": a}, 2: {"read_GBps": b}} for a, b in ((10, 15), (20, 22), (10, 14))]
        self.assertEqual(figures.scaling_of_reads(runs), 1.4)

    def test_in_turns(self):
        order = []

        def of(name):
            return lambda: order.append(name) or len(order)
        self.assertEqual(figures.in_turns(of("A"), of("B")), ([1, 4], [2, 3]))
        self.assertEqual("".join(order), "ABBA")
        self.assertEqual(figures.in_turns(of("A"), of("B"), 2), ([5, 8, 9, 12], [6, 7, 10, 11]))

    def test_best_k(self):
        self.assertEqual(figures.best_k({1: 5.0, 4: 9.0, 3: 9.0, 8: 2.0}), 3)

    def test_same_beginning(self):
        self.assertEqual(figures.same_beginning("abcd", "abcdef"), 1)
        self.assertEqual(figures.same_beginning("abcd", "abxd"), 0.5)
        self.assertEqual(figures.same_beginning("abcd", "abc"), 0.75)
        self.assertEqual(figures.same_beginning("", "x"), 1)

    def test_the_longer_roof(self):
        self.assertAlmostEqual(figures.longer_roof_ms(2e9, 1, 20, 400), 100)  # reading
        self.assertAlmostEqual(figures.longer_roof_ms(2e9, 40, 20, 400), 200)  # 80 GFLOP

    def test_one_row_meets_the_smaller_of_two_goals(self):
        for over, share, expected in ((1.25, 0.1, "met"), (1.0, 0.95, "met"), (1.24, 0.94, "MISSED")):
            self.assertEqual(figures.decode_verdict(over, share), expected)

    def test_rows(self):
        of = figures.rows_verdict
        self.assertEqual(of(["amx_bf16", "avx512_bf16"], 5, 1.15, 999, 999, True), ("<= 1.15 x one row (AMX)", "met"))
        self.assertEqual(of(["amx_bf16"], 16, 1.26, 0, 0, True)[1], "MISSED")
        self.assertEqual(of(["avx512_bf16"], 5, 9, 1.1, 1.2, True), ("<= 1.10 x roofline; is 1.100 (longer roof: 1.200)", "met"))
        self.assertEqual(of(["avx512_bf16"], 5, 1, 1.11, 1, True)[1], "MISSED")
        self.assertEqual(of(["avx512_bf16"], 5, 1, 1.1, 1, False)[1], "not counted (met): one row misses")
        self.assertEqual(of(["avx2"], 5, 1, None, 1, True)[1], "not measurable here")
        self.assertEqual(of(["amx_bf16"], 9, 1, 1, 1, True), ("reported", "-"))

    def test_our_programs_use_no_more_than_they_are_told(self):
        flags = ["fpu", "avx2", "avx512f", "avx512_bf16", "amx_bf16"]
        self.assertEqual(figures.used_features(flags, "auto"), flags[1:])
        self.assertEqual(figures.used_features(flags, "avx512_bf16"), ["avx2", "avx512f", "avx512_bf16"])
        self.assertEqual(figures.used_features(flags[:2], "amx_bf16"), ["avx2"])
        asked = []
        with unittest.mock.patch.object(llama_cpp_programs.shutil, "which", return_value="here"), \
                unittest.mock.patch.object(llama_cpp_programs, "output_of", side_effect=lambda command: asked.append(command) or ("", "")), \
                unittest.mock.patch.object(llama_cpp_programs.pathlib.Path, "read_text", return_value="{}"):
            ours = llama_cpp_programs.Ours("avx512")
            ours.pair(4, 2, 1)
            with unittest.mock.patch.object(figures, "of_pass_bench"):
                ours.passes("folder", 2, 3)
        self.assertIn("parallel.isa=avx512", asked[0])
        self.assertEqual(asked[1][asked[1].index("--isa") + 1], "avx512")

    def test_what_this_machine_cannot_fill(self):
        self.assertEqual([line["verdict"] for line in figures.not_here(["avx512_bf16"])], ["not measurable here: no AMX"] * 2)
        self.assertEqual(figures.not_here(["amx_bf16"]), [])


class Table(unittest.TestCase):
    def test_ratios_of_medians(self):
        line = figures.row("decode", "llama-1.1b", "tokens/s", [10, 12], [4, 8, 5], ">= theirs")
        self.assertEqual((line["ours"], line["theirs"], line["ratio"]), (11, 5, 2.2))
        self.assertEqual((line["runs_ours"], line["runs_theirs"]), ([10, 12], [4, 8, 5]))

    def test_nothing_is_said_of_what_was_not_measured(self):
        line = figures.with_verdict(figures.row("pair", "a", "tokens/s", [10], None), lambda ratio: "met")
        self.assertEqual((line["ratio"], line["theirs"], line["verdict"]), (None, None, "not measured"))

    def test_lines(self):
        lines = figures.table([figures.row("prefill", "a", "tokens/s", [100], [200], ">= theirs", "MISSED"), figures.row("rows", "a", "x", [1.234567], None)]).splitlines()
        self.assertEqual(lines[1].split(), ["prefill", "a", "tokens/s", "100", "200", "0.50", ">=", "theirs", "MISSED"])
        self.assertEqual(lines[2].split(), ["rows", "a", "x", "1.235", "-", "-", "reported", "-"])


class Verdicts(unittest.TestCase):
    """Are those of the whole run's best read, which may come after a figure was measured."""

    @staticmethod
    def judged(*reads):
        bench = llama_cpp.Bench.__new__(llama_cpp.Bench)
        bench.options = unittest.mock.Mock(threads=2)
        bench.features, bench.bytes, bench.rows = ["avx512_bf16"], {"llama-1.1b": 2e9}, []
        bench.roof_runs = [{2: {"read_GBps": read, "read_by": "x", "GFLOPs": 400}} for read in reads]
        one = figures.row("decode, one row, 2 threads", "llama-1.1b", "tokens/s", [16], [15], of_read_in_turns=0.98)  # 32 GB/s
        five = figures.row("5 rows over one", "llama-1.1b", "x", [1.05], [2])
        bench.unjudged = [lambda: bench.hold_against_the_roof(one), lambda: bench.hold_rows_against_the_roof(five, 5, 65.0, 1.05, one)]
        bench.judge()
        return one, five

    def test_of_a_read_that_was_always_as_quick(self):
        one, five = self.judged(33)
        self.assertEqual((one["verdict"], five["verdict"]), ("met", "met"))
        self.assertAlmostEqual(one["of_read"], 32 / 33)

    def test_of_a_read_that_was_quicker_later(self):
        one, five = self.judged(33, 51)
        self.assertEqual(one["verdict"], "MISSED")
        self.assertNotEqual(five["verdict"], "met")
        self.assertIn("95% of 51.0 GB/s; is 63%, in turns 98%", one["goal"])


class Models(unittest.TestCase):
    def test_sizes(self):
        for name, parameters in (("llama-1.1b", 1_100_048_384), ("llama-134m", 134_515_008)):
            shapes = models.tensor_shapes(models.config_of(models.SHAPES[name]))
            self.assertEqual(sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in shapes.values()), parameters)

    def test_names(self):
        config = models.config_of(models.SHAPES["llama-1.1b"])
        names = [models.gguf_name(name) for name in models.tensor_shapes(config)]
        self.assertEqual(len(set(names)), 22 * 9 + 3)
        for name, expected in (("model.layers.21.self_attn.o_proj.weight", "blk.21.attn_output.weight"), ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
                               ("model.layers.3.post_attention_layernorm.weight", "blk.3.ffn_norm.weight"), ("lm_head.weight", "output.weight")):
            self.assertEqual(models.gguf_name(name), expected)
        for name in ("model.layers.0.self_attn.q_proj.bias", "transformer.h.0.attn.c_attn.weight"):
            with self.assertRaises(models.Unusable):
                models.gguf_name(name)

    def test_rotary_pairs_become_neighbours(self):
        # Elements i and i + 4 of a head of 8 turn together; in GGUF 2i and 2i + 1 do.
        self.assertEqual(models.rows_in_pairs(2, 8), [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15])
        config = models.config_of(models.SHAPES["llama-1.1b"])
        for name, rows in (("q_proj", 2048), ("k_proj", 256)):
            moved = models.moved_rows(f"model.layers.7.self_attn.{name}.weight", config)
            self.assertEqual(sorted(moved), list(range(rows)))
            self.assertEqual(moved[:4], [0, 32, 1, 33])
        for name in ("model.layers.7.self_attn.v_proj.weight", "model.layers.7.self_attn.o_proj.weight", "lm_head.weight"):
            self.assertIsNone(models.moved_rows(name, config))

    def test_vocabularies(self):
        tokens, merges = models.made_up_vocabulary(300)
        self.assertEqual((len(set(tokens)), tokens[ord("a")], tokens[ord(" ")], tokens[299]), (300, "a", "\u0120", "\u0120299"))
        self.assertEqual(merges, ["\u0120 \u0120"])
        tokens, merges, special = models.vocabulary_of(llama_cpp.ROOT / "assets" / "manpy-2m", 4096)
        self.assertEqual((len(tokens), tokens[4095], special, merges[0]), (4096, "<|endoftext|>", {4095}, "\u0120 \u0120"))
        with open(llama_cpp.ROOT / "assets" / "manpy-2m" / "vocab.json", encoding="utf-8") as file:
            for token, index in json.load(file).items():
                self.assertEqual(tokens[index], token)


class Program(unittest.TestCase):
    def build(self, folder, **programs):
        """A folder that looks like a build, of programs that print what they are told to."""
        (folder / "bin").mkdir()
        for name, text in {"llama-bench": json.dumps(LLAMA_BENCH), **{name.replace("_", "-"): text for name, text in programs.items()}}.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\ncat <<'END'\n{text}\nEND\n", encoding="utf-8")
            path.chmod(0o755)
        return llama_cpp_programs.Theirs(folder)

    def test_flags_are_those_of_the_version(self):
        with tempfile.TemporaryDirectory() as folder:
            theirs = self.build(pathlib.Path(folder), llama_speculative="-td,   --threads-draft N\n--draft-max, --draft-n N  how many\n" + SPECULATION)
            self.assertEqual(theirs.flags("llama-speculative", ("--spec-draft-n-max", 4), ("--draft-max", 4)), ["--draft-max", "4"])
            self.assertEqual(theirs.flags("llama-speculative", ("--no-escape",)), [])
            self.assertFalse(theirs.has("llama-results"))
            speed, accepted, printed = theirs.pair("llama-speculative", "t.gguf", "d.gguf", ["def f(", "import "], 4, 2, 96)
            self.assertEqual((speed, accepted, len(printed)), (388, 0.55, 2))
            call = pathlib.Path(folder, "calls").read_text(encoding="utf-8").splitlines()[-1]
            self.assertIn("-p import  -n 96", call)
            self.assertTrue(call.endswith("-td 2 --draft-max 4"), call)

    def test_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            theirs = self.build(pathlib.Path(folder), llama_batched_bench=BATCHED)
            self.assertEqual((theirs.one_row("m.gguf", 2, 3), theirs.prefill("m.gguf", 2)), (2, 3))
            self.assertAlmostEqual(theirs.rows("m.gguf", 2, 5)[5] / theirs.rows("m.gguf", 2, 5)[1], 162.5 / 110)

    def test_refuses_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                self.assertEqual(llama_cpp.main([folder, "--work", os.path.join(folder, "models")]), 2)
            self.assertEqual(err.getvalue(), f"llama_cpp.py: {folder}: found no llama-bench there nor in its bin, expected a build of llama.cpp\n")

    def test_without_gguf_it_says_what_to_install(self):
        with unittest.mock.patch.dict(sys.modules, {"gguf": None}), self.assertRaisesRegex(models.Unusable, r"expected gguf to write GGUF files \(pip install gguf\)$"):
            models.imported()

    def test_what_was_measured_before_it_ended_is_kept(self):
        line = figures.row("decode", "llama-1.1b", "tokens/s", [12.0], [6.0])
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

        def terminated():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        for why, code in ((KeyboardInterrupt(), 130), (terminated, 143), (models.Unusable("no prefill today"), 2)):
            bench = unittest.mock.Mock(rows=[line], same={}, pairs={}, roofs={}, features=["avx2"], model={"llama-1.1b": ("f", "g")})
            bench.run.side_effect = why
            with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.multiple(llama_cpp, Theirs=unittest.mock.DEFAULT, Ours=unittest.mock.DEFAULT,
                                                                                      Bench=unittest.mock.Mock(return_value=bench)) as made, \
                    unittest.mock.patch.object(models, "imported"), contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
                made["Theirs"].return_value.version.return_value = {"build_commit": "c", "build_number": 1}
                path = pathlib.Path(folder) / "deep" / "f.json"
                self.assertEqual(llama_cpp.main([folder, "--shapes", "llama-1.1b", "--isa", "avx2", "--json", str(path)]), code)
                self.assertIn("2.00", out.getvalue())
                self.assertIn("our programs with avx2 at most", out.getvalue())
                written = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual((written["rows"], written["isa"]), ([line], "avx2"))

    def test_a_program_that_fails_is_named_with_its_last_line(self):
        with self.assertRaisesRegex(models.Unusable, "^sh -c .*: exit code 3: gone$"):
            llama_cpp_programs.output_of(["sh", "-c", "echo well >&2; echo gone >&2; exit 3"])


if __name__ == "__main__":
    unittest.main()
