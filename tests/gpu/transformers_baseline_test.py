#!/usr/bin/env python3
"""Checks transformers_baseline.py: what it makes of times and whether it writes pass_bench's JSON; and, where torch and transformers are, what its
passes compute, on the CPU.

    transformers_baseline_test.py --pass-bench build/.../pass_bench
"""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import transformers_baseline as baseline

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import given

PASS_BENCH = None
ABOUT = {"model": "shapes/a", "backend": "made up", "weights": "random (seed 0)", "device": "none", "dtype": "bf16", "context": 128, "way": "eager", "differs_by": 0.01, "may_differ_by": 0.035}
# Medians 4, 5 and 8 ms, and 2 for the plain read.
SECONDS = {1: [4e-3, 9e-3, 1e-3], 5: [5e-3, 5e-3, 7e-3], 16: [8e-3] * 3}
READ = [2e-3, 1e-3, 3e-3]
SIZE = 8_000_000

CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 128, "vocab_size": 300, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}


class Arithmetic(unittest.TestCase):
    def test_medians_and_ratios(self):
        result = baseline.summary(ABOUT, SIZE, SECONDS, READ)
        self.assertEqual([row["rows"] for row in result["rows"]], [1, 5, 16])
        for row, ms, over, share in zip(result["rows"], (4, 5, 8), (1, 1.25, 2), (0.5, 0.4, 0.25)):
            self.assertAlmostEqual(row["ms"], ms)
            self.assertAlmostEqual(row["over_one_row"], over)
            self.assertAlmostEqual(row["share_of_read"], share)
            self.assertAlmostEqual(row["GBps"], 8 / ms)
        self.assertAlmostEqual(result["plain_read_ms"], 2)
        self.assertAlmostEqual(result["one_row_over_plain_read"], 2)
        self.assertEqual(result["plain_read_by"], "torch.sum")

    def test_a_change_of_pace_between_turns_changes_no_ratio(self):
        """Half as fast from the middle of the third turn on, the read once more as fast in the fifth."""
        result = baseline.summary(ABOUT, SIZE, {1: [4, 4, 8, 8, 8], 16: [6, 6, 6, 12, 12]}, [2, 2, 4, 4, 2])
        self.assertEqual([row["over_one_row"] for row in result["rows"]], [1, 1.5])
        self.assertEqual(result["one_row_over_plain_read"], 2)
        self.assertEqual(baseline.summary(ABOUT, SIZE, {1: [4, 4, 8]}, [2, 2, 2], read_gbps=SIZE / 1e9)["one_row_over_plain_read"], 4)

    def test_the_faster_read_counts(self):
        faster = baseline.summary(ABOUT, SIZE, SECONDS, READ, read_gbps=8)
        self.assertAlmostEqual(faster["plain_read_ms"], 1)
        self.assertAlmostEqual(faster["rows"][0]["share_of_read"], 0.25)
        self.assertEqual(faster["plain_read_by"], "--read-gbps")
        self.assertEqual(baseline.summary(ABOUT, SIZE, SECONDS, READ, read_gbps=2)["plain_read_by"], "torch.sum")

    def test_turns_begin_with_each_in_turn(self):
        self.assertEqual([baseline.rotated(3, repeat) for repeat in range(4)], [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]])

    def test_table(self):
        lines = baseline.table(baseline.summary(ABOUT, SIZE, SECONDS, READ)).splitlines()
        self.assertIn("random (seed 0)", lines[0])
        self.assertEqual(lines[3].split(), ["5", "5.000", "1.25", "2", "40.0%"])
        self.assertIn("8.0 MB: 2.000 ms (4 GB/s)", lines[-1])
        self.assertIn("1.00% (may by 3.5%)", lines[-1])

    def test_what_rounding_may_do(self):
        self.assertAlmostEqual(baseline.may_differ(2 ** -7, 12, 256), 2 ** -8 * 80 ** 0.5)
        self.assertAlmostEqual(baseline.may_differ(2 ** -23, 12, 255), 2 ** -20 * 80 ** 0.5, msg="sixteen roundings' worth in fp32")

    def test_command_line(self):
        options = baseline.parse(["--rows", "5,1,5", "--ways", "graph,eager"])
        self.assertEqual((options.rows, options.ways), ([1, 5], ["graph", "eager"]))
        for wrong in (["--rows", "2,5"], ["--rows", "x"], ["--rows", "0,1"], ["--ways", "eagre"], ["--context", "0"], ["--dtype", "fp8"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                baseline.parse(wrong)
            self.assertEqual(ended.exception.code, 2, wrong)

    def test_fields_are_those_of_pass_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            subprocess.run([PASS_BENCH, "--model", os.path.join(baseline.ROOT, "assets", "manpy-0.5m"), "--repeats", "1", "--json", path],
                           check=True, stdout=subprocess.DEVNULL)
            with open(path, encoding="utf-8") as file:
                ours = json.load(file)
        mine = baseline.summary(ABOUT, SIZE, SECONDS, READ)
        self.assertLessEqual(set(ours), set(mine))
        self.assertLessEqual(set(ours["rows"][0]), set(mine["rows"][0]))


def run(*arguments):
    """main(): its exit status and what it printed."""
    out = io.StringIO()
    argv, sys.argv = sys.argv, ["transformers_baseline.py", *arguments]
    try:
        with contextlib.redirect_stdout(out):
            baseline.main()
    except SystemExit as ended:
        return ended.code, out.getvalue()
    finally:
        sys.argv = argv
    return 0, out.getvalue()


@unittest.skipUnless(importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"), "there is no torch or no transformers")
class OnTheCpu(unittest.TestCase):
    FEW = ("--device", "cpu", "--threads", "1", "--repeats", "2", "--context", "40")

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.shape = os.path.join(self.folder, "shape")
        os.makedirs(self.shape)
        with open(os.path.join(self.shape, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)

    def test_random_weights_and_a_checkpoint(self):
        path = os.path.join(self.folder, "out.json")
        code, out = run(self.shape, os.path.join(baseline.ROOT, "assets", "manpy-2m"), *self.FEW, "--ways", "eager,graph", "--json", path)
        self.assertEqual(code, 0, out)
        with open(path, encoding="utf-8") as file:
            random, checkpoint = json.load(file)
        self.assertEqual([random["weights"], checkpoint["weights"]], ["random (seed 0)", "checkpoint"])
        # q, k, v, o, three of the feed-forward part, and a head beside the embedding; the checkpoint's is what pass_bench says of it.
        self.assertEqual(random["bytes"], 2 * (3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128) + 300 * 64))
        self.assertEqual(checkpoint["bytes"], 3342336)
        for result in (random, checkpoint):
            self.assertEqual([row["rows"] for row in result["rows"]], [1, 2, 5, 9, 16])
            self.assertEqual(result["way"], "eager", "a graph is not for a CPU")
            self.assertLess(result["differs_by"], result["may_differ_by"])
            self.assertIn("torch", result["backend"])

    def test_a_pass_that_sees_other_tokens_is_noticed(self):
        rewind = baseline.Passes.rewind
        self.addCleanup(setattr, baseline.Passes, "rewind", rewind)
        baseline.Passes.rewind = lambda passes, _: rewind(passes, 0)
        code, out = run(os.path.join(baseline.ROOT, "assets", "manpy-2m"), *self.FEW)
        self.assertIn("is not what it should be", str(code), out)

    def test_passes_of_every_number_of_rows_are_checked(self):
        """Here that of one row alone sees what lies behind it."""
        inputs = baseline.Passes.inputs
        self.addCleanup(setattr, baseline.Passes, "inputs", inputs)

        def all_visible_to_one(passes, begin, end):
            made = inputs(passes, begin, end)
            return {**made, "attention_mask": made["attention_mask"] | (end - begin == 1)}

        baseline.Passes.inputs = all_visible_to_one
        code, out = run(os.path.join(baseline.ROOT, "assets", "manpy-2m"), *self.FEW)
        self.assertIn("is not what it should be", str(code), out)

    def test_a_pass_asks_the_device_nothing(self):
        """Which a CUDA graph could not hold."""
        import torch
        import transformers
        from torch.utils._python_dispatch import TorchDispatchMode

        class Asked(TorchDispatchMode):
            found = []

            def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
                if "_local_scalar_dense" in str(operation) or "nonzero" in str(operation):
                    self.found.append(str(operation))
                return operation(*args, **(kwargs or {}))

        with torch.no_grad():
            passes = baseline.Passes(self.shape, baseline.parse([*self.FEW, self.shape]), torch, transformers)
            for rows in (1, 5, 16):
                with Asked() as asked:
                    passes.once(rows)
                self.assertEqual(asked.found, [], rows)
            with Asked() as asked:
                self.assertEqual(float(passes.ids[0, 0]), int(passes.ids[0, 0]))
            self.assertEqual(len(asked.found), 2, "whoever asks is noticed")

    def test_too_long_a_context(self):
        code, _ = run(self.shape, *self.FEW, "--context", "120")
        self.assertIn("expected at most 128 positions", str(code))


if __name__ == "__main__":
    PASS_BENCH = given.program("--pass-bench")
    unittest.main()
