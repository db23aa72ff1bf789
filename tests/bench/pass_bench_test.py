#!/usr/bin/env python3
"""Runs pass_bench as a user does: what it writes, never how fast it was.

    pass_bench_test.py --program build/.../pass_bench
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import given

ASSETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "assets")
PROGRAM = None


def run(*arguments):
    """(exit code, JSON or None, stdout, stderr)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        model = () if "--model" in arguments else ("--model", os.path.join(ASSETS, "manpy-0.5m"))
        repeats = () if "--repeats" in arguments else ("--repeats", "2")
        done = subprocess.run([PROGRAM, *model, *repeats, "--json", path, *arguments], capture_output=True, text=True, check=False)
        found = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        return done.returncode, found, done.stdout, done.stderr


FLAGS = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()


class PassBench(unittest.TestCase):
    def test_where_a_pass_goes(self):
        code, found, out, err = run("--where")
        self.assertEqual((code, err), (0, ""))
        for row in found["rows"]:
            operations = {operation["operation"]: operation for operation in row["operations"]}
            products = [operation for name, operation in operations.items() if "product " in name]
            weights = sum(operation["bytes"] for operation in products)
            self.assertGreater(weights, found["bytes"], "all weights, and the rows")
            self.assertLess(weights, found["bytes"] * (1 + 0.1 * row["rows"]))
            layers = operations["rotary embedding and attention"]["calls"]
            self.assertEqual(sum(operation["calls"] for operation in products), 4 * layers + 1)
            self.assertEqual(operations["norm"]["calls"] + operations["residual and norm"]["calls"], 2 * layers + 1)
            self.assertGreaterEqual(operations["between operations"]["ms"], 0)
            self.assertIn("where a pass of %d row" % row["rows"], out)
            for name, operation in operations.items():
                self.assertGreaterEqual(operation["least_ms"] * 1.0001, operation["bytes"] / found["bytes"] * found["plain_read_ms"], name)
            if row["roofline_ms"] is not None and "amx_bf16" not in FLAGS:
                self.assertGreaterEqual(sum(operation["least_ms"] for operation in products) * 1.0001, row["roofline_ms"])
            attention = operations["rotary embedding and attention"]
            self.assertGreater(attention["multiply_adds"], 0)
            self.assertAlmostEqual(attention["least_ms"], max(attention["bytes"] / found["bytes"] * found["plain_read_ms"],
                                                              attention["multiply_adds"] / found["fp32_multiply_adds_a_second"] * 1e3))
        self.assertEqual(out.count("all operations at their least"), len(found["rows"]))

    def test_figures(self):
        avx512 = "avx512f" in FLAGS
        for more in ((), ("--threads", "2"), ("--backend", "reference"), ("--context", "1"), ("--context", "496"), ("--weights", "random", "--dtype", "f32")):
            code, found, out, err = run(*more)
            self.assertEqual((code, err), (0, ""), more)
            self.assertEqual([row["rows"] for row in found["rows"]], [1, 2, 3, 5, 9, 16])
            for row in found["rows"]:
                self.assertGreater(row["ms"], 0)
                self.assertGreater(row["over_one_row"], 0)
                self.assertEqual(row["roofline_ms"] is not None, avx512 and "f32" not in more and "reference" not in more, more)
                self.assertEqual(row["over_roofline"] is not None, row["roofline_ms"] is not None)
                self.assertEqual("roofline ms" in out, row["roofline_ms"] is not None)
            self.assertEqual(found["rows"][0]["over_one_row"], 1)
            if "reference" in more:
                self.assertIsNone(found["plain_read_ms"])
                continue
            self.assertGreater(found["one_row_over_plain_read"], 0)
            self.assertEqual(found["weights"], "weights: random (seed 0)" if "random" in more else "checkpoint")
            self.assertIn("plain read of", out)

    def test_places(self):
        _, found, out, _ = run("--threads", "2", "--repeats", "7")
        self.assertGreater(len(found["places"]), 0)
        repeats = 0
        for place in found["places"]:
            least, most = place["line_ns"]
            self.assertTrue(0 < least <= most)
            self.assertIn("a line takes %.0f to %.0f ns in %d of 7 repeats" % (least, most, place["repeats"]), out)
            repeats += place["repeats"]
            # Figures of its own where not all repeats are of it.
            self.assertEqual("rows" in place, place["repeats"] < 7)
            if "rows" in place:
                self.assertEqual([row["rows"] for row in place["rows"]], [row["rows"] for row in found["rows"]])
        self.assertLessEqual(repeats, 7)
        _, found, out, _ = run()
        self.assertEqual(found["places"], [])
        self.assertNotIn("a line takes", out)

    def test_chosen_rows_come_with_one(self):
        _, found, _, _ = run("--rows", "7,4")
        self.assertEqual([row["rows"] for row in found["rows"]], [1, 4, 7])

    def test_ratios_of_one_repeat_are_those_of_its_times(self):
        _, found, _, _ = run("--repeats", "1")
        one = found["rows"][0]["ms"]
        self.assertAlmostEqual(found["one_row_over_plain_read"], one / found["plain_read_ms"])
        for row in found["rows"]:
            self.assertAlmostEqual(row["over_one_row"], row["ms"] / one)
            if row["roofline_ms"] is not None:
                self.assertAlmostEqual(row["over_roofline"], row["ms"] / row["roofline_ms"])

    def test_a_bandwidth_that_was_measured_elsewhere(self):
        _, found, _, _ = run("--read-gbps", "2")
        self.assertAlmostEqual(found["plain_read_ms"], found["bytes"] / 2e9 * 1e3)

    def test_refuses_in_one_line(self):
        for arguments, named in ((("--context", "497"), "--context: found 497, expected at most 496"), (("--backend", "gpu"), 'found "gpu"'),
                                 (("--model", "/nowhere"), "/nowhere"), (("--dtype", "f16"), '"f16"'), (("--where", "--backend", "reference"), "expected --read-gbps")):
            code, found, out, err = run(*arguments)
            self.assertEqual((code, found, out), (2, None, ""), arguments)
            self.assertEqual(err.count("\n"), 1, err)
            self.assertIn("pass_bench: error: ", err)
            self.assertIn(named, err)


if __name__ == "__main__":
    PROGRAM = given.program("--program")
    unittest.main()
