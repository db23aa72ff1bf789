#!/usr/bin/env python3
"""Latency against bytes, for each transport, of the CSVs that allreduce_bench writes: one panel a rank count and type. Needs matplotlib.

    mpirun -np 2 allreduce_bench --transport shm,mpi --csv two.csv
    mpirun -np 8 allreduce_bench --transport shm,mpi --csv eight.csv
    python3 tests/bench/plot_allreduce.py two.csv eight.csv --output docs/allreduce.svg
"""
import argparse
import collections
import csv

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first

BASELINE = "MPI_Allreduce"
COLOURS = {BASELINE: "#555555", "shm": "#0b6fb8", "mpi": "#d1791c", "hier": "#2f8f4e", "mpi-fast": "#9a4fa3", "self": "#999999"}


def read(paths):
    """{(ranks, dtype): {series name: [(bytes, p50, p90)]}}, series in the order of the files."""
    panels = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["what"] != "all_reduce":
                    continue
                name = row["transport"]
                if row["interconnect"] != "native":
                    name += f", {row['interconnect']}"
                point = (int(row["bytes"]), float(row["p50_us"]), float(row["p90_us"]))
                panels[int(row["ranks"]), row["dtype"]][name].append(point)
    return panels


def size(value, _=None):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def draw(axes, series):
    for name, points in series.items():
        points.sort()
        columns = list(zip(*points))
        colour = COLOURS.get(name)
        line, = axes.plot(columns[0], columns[1], marker="o", markersize=3, linewidth=1.4, label=name, color=colour)
        axes.fill_between(columns[0], columns[1], columns[2], alpha=0.15, linewidth=0, color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(size)
    axes.set_xlabel("bytes of each rank")
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False, fontsize=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--output", required=True, help="an .svg or .png")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    panels = read(options.csv)
    if not panels:
        parser.error("the files have no rows of all-reduces")
    # The same file from the same figures, and text that stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "allreduce", "svg.fonttype": "none", "font.size": 10})
    figure, grid = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.2), sharey=True, squeeze=False, layout="constrained")
    for axes, (ranks, dtype) in zip(grid[0], sorted(panels)):
        draw(axes, panels[ranks, dtype])
        axes.set_title(f"{ranks} rank{'' if ranks == 1 else 's'}, {dtype}", fontsize=10)
    grid[0][0].set_ylabel("all-reduce, us: P50, shaded up to P90")
    if options.title:
        figure.suptitle(options.title, fontsize=11)
    metadata = {"Date": None} if options.output.endswith(".svg") else None
    figure.savefig(options.output, metadata=metadata, dpi=160)


if __name__ == "__main__":
    main()
