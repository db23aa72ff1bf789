#!/usr/bin/env python3
"""Runs roof_bench as a user does: what it writes, never how fast it was.

    roof_bench_test.py --program build/.../roof_bench
"""

import json
import os
import subprocess
import tempfile
import unittest

import given

PROGRAM = None


class RoofBench(unittest.TestCase):
    def test_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = subprocess.run([PROGRAM, "--threads", "1,3", "--megabytes", "3", "--repeats", "2", "--json", path], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        self.assertEqual(found["bytes"], 3 << 20)
        self.assertEqual([roof["threads"] for roof in found["roofs"]], [1, 3])
        for roof in found["roofs"]:
            for figure, by, unit, least in (("read_GBps", "read_by", "GB/s", 3), ("GFLOPs", "flops_by", "GFLOP/s", 1)):
                ways = {way["way"]: way["rate"] for way in roof["ways"] if way["unit"] == unit}
                self.assertGreaterEqual(len(ways), least)
                self.assertGreater(min(ways.values()), 0)
                self.assertEqual((roof[figure], ways[roof[by]]), (max(ways.values()), max(ways.values())))
        self.assertEqual(len(done.stdout.splitlines()), sum(len(roof["ways"]) for roof in found["roofs"]))


if __name__ == "__main__":
    PROGRAM = given.program("--program")
    unittest.main()
