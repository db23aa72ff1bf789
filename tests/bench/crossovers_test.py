#!/usr/bin/env python3
"""crossovers.py over figures that are made up: no GPU was asked."""

import contextlib
import io
import json
import os
import tempfile
import unittest

import crossovers

SIZES = [1 << 10 << i for i in range(11)]  # 1K..1M


def row(name, size, microseconds, **changes):
    return {"what": "replay/32", "transport": name + "+graph", "ranks": 8, "dtype": "fp32", "bytes": size, "p50_us": microseconds,
            "interconnect": "native", "wrong": 0, **changes}


def made_up():
    """ipc costs 4 us and moves 40 KB a us, nccl 10 and 400: they meet between 256K and 512K. nccl-fast is at 8 and 200."""
    lines = {"ipc": (4, 40e3), "nccl": (10, 400e3), "nccl-fast": (8, 200e3)}
    return [row(name, size, base + size / rate) for name, (base, rate) in lines.items() for size in SIZES]


class Crossovers(unittest.TestCase):
    def run_on(self, rows, raw=None):
        """(exit code, stdout, stderr)."""
        out, err = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sums.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(json.dumps({"rows": rows}) if raw is None else raw)
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = crossovers.main([path])
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), err.getvalue()

    def take(self, rows):
        code, out, _ = self.run_on(rows)
        self.assertEqual(code, 0)
        return [line for line in out.splitlines() if line.startswith("take ")]

    def test_the_size_where_curves_cross(self):
        self.assertEqual(self.take(made_up()), [
            "take 8 ranks, fp32, the tree's bits: ipc below 512K, nccl from there on (at most 0% over the fastest at any size)",
            "take 8 ranks, fp32, any bits: ipc below 256K, nccl-fast from there on (at most 5% over the fastest at any size)"])

    def test_one_sample_that_is_out_of_line_moves_nothing(self):
        rows = made_up()
        for line in rows:
            if line["bytes"] == 2048 and line["transport"].startswith("ipc"):
                line["p50_us"] = 11
        self.assertIn("ipc below 512K, nccl from there on (at most 10%", self.take(rows)[0])

    def test_one_that_always_wins(self):
        rows = [line if line["transport"] != "nccl+graph" else {**line, "p50_us": 1} for line in made_up()]
        self.assertIn("bits: nccl at every size (at most 0%", self.take(rows)[0])

    def test_the_hosts_times_only_where_there_are_no_others(self):
        host = [row("x", size, 1, what="all_reduce", transport=name) for name in ("MPI_Allreduce", "ipc", "nccl") for size in SIZES]
        self.assertEqual(self.take(made_up() + host), self.take(made_up()))
        lines = self.take([line for line in host if line["transport"] != "nccl"])
        self.assertEqual(len(lines), 2)
        self.assertIn("ipc at every size", lines[0])
        self.assertIn("the host's clock", self.run_on(host)[1])

    def test_modelled_rows_and_parts_of_a_token_do_not_count(self):
        others = [row("ipc", size, 0.1, interconnect="modelled wire", transport="ipc") for size in SIZES]
        others += [row("ipc", size, 0.1, what=what, transport="ipc") for size in SIZES for what in ("token", "broadcast", "all_reduces")]
        self.assertEqual(self.run_on(made_up() + others), self.run_on(made_up()))

    def test_rank_counts_and_types_stand_apart(self):
        rows = made_up() + [{**line, "ranks": 2} for line in made_up()] + [{**line, "dtype": "bf16"} for line in made_up()]
        self.assertEqual([line.split(",")[:2] for line in self.take(rows)][::2], [["take 2 ranks", " fp32"], ["take 8 ranks", " bf16"], ["take 8 ranks", " fp32"]])

    def test_only_sizes_that_all_have(self):
        rows = [line for line in made_up() if not line["transport"].startswith("nccl") or line["bytes"] <= 4096]
        self.assertIn("ipc at every size", self.take(rows)[0])

    def test_wrong_sums_have_no_advice(self):
        rows = made_up()
        rows[3]["wrong"] = 2
        code, out, _ = self.run_on(rows)
        self.assertIn("2 elements were not the sum", code)
        self.assertEqual(out, "")

    def test_nothing_to_compare(self):
        for rows, raw in (([], None), ([line for line in made_up() if line["transport"] == "ipc+graph"], None), (None, "{}"), (None, "[1"), (None, '{"rows": 3}')):
            code, out, err = self.run_on(rows, raw)
            self.assertEqual((code, out), (2, ""))
            self.assertEqual(err.count("\n"), 1, err)


if __name__ == "__main__":
    unittest.main()
