"""What llama_cpp.py makes of the programs' own output: figures, ratios, verdicts, the table. No program runs here."""

import json
import re
import statistics
import typing

ROWS = (2, 5, 9, 16)
FEATURES = {"avx2": "avx2", "avx512": "avx512f", "avx512_bf16": "avx512_bf16", "amx_bf16": "amx_bf16"}  # {instruction set: the flag in /proc/cpuinfo}, weakest first
AMX_GOALS = {5: 1.15, 16: 1.25}
NEAR_ROOF = 1.10
FASTER, OF_READ, OF_SCALING, OF_TWO_THREADS, PAIR_FASTER, START_SECONDS = 1.25, 0.95, 0.97, 0.97, 2.0, 1.0


class Unreadable(Exception):
    """One line: which program's output, and what is missing from it."""


def in_turns(ours, theirs, rounds=1):
    """Calls both in the order A B B A, so that what drifts falls on both alike: (all of ours, all of theirs)."""
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        b.append(theirs())
        b.append(theirs())
        a.append(ours())
    return a, b


def read(program, text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unreadable(f"{program}: found no JSON ({error})") from error


# What each program said. Times in ms a pass or a token.

class Place(typing.NamedTuple):
    """Where the cores of our threads were for some repeats, and what passes took there."""
    line_ns: tuple  # least, most: that a line takes from core to core
    repeats: int
    over_one: dict
    over_roofline: dict


class Passes(typing.NamedTuple):
    bytes: int  # a pass
    ms: dict  # {rows: ms}
    over_one: dict  # {rows: times one row in turns with it}
    of_read: float  # one row's share of the plain read in turns with it
    over_roofline: dict  # {rows: times the roofline in turns with it}, None where there is none
    places: list = []  # of them, the nearer first


def of_pass_bench(found):
    rows = found["rows"]

    def of_rows(of, figure):
        return {row["rows"]: row[figure] for row in of}
    places = [Place(tuple(place["line_ns"]), place["repeats"], of_rows(place.get("rows", rows), "over_one_row"), of_rows(place.get("rows", rows), "over_roofline"))
              for place in found.get("places", [])]
    return Passes(bytes=found["bytes"], ms={row["rows"]: row["ms"] for row in rows},
                  over_one=of_rows(rows, "over_one_row"), of_read=1 / found["one_row_over_plain_read"], over_roofline=of_rows(rows, "over_roofline"), places=places)


FARTHER = 2  # times as long as a line takes in the nearer place, at least: pass_bench tells places apart so too


def by_place(several):
    """Of several runs of pass_bench: what all of them saw in each place, the nearer first; nothing where there was one place only. A host may move a virtual machine's cores from one chiplet to two and back
    within a run, and figures of both together are of neither."""
    groups = []
    for place in sorted((place for passes in several for place in passes.places), key=lambda place: place.line_ns):
        if not groups or place.line_ns[0] >= FARTHER * groups[-1][0].line_ns[0]:
            groups.append([])
        groups[-1].append(place)
    if len(groups) < 2:
        return []

    def middle(of):
        return {rows: statistics.median(place[rows] for place in of) if of[0][rows] is not None else None for rows in of[0]}
    return [Place((min(of.line_ns[0] for of in group), max(of.line_ns[1] for of in group)), sum(of.repeats for of in group),
                  middle([of.over_one for of in group]), middle([of.over_roofline for of in group])) for group in groups]


def of_llama_bench(text):
    """{(prompt, generated, depth): ms of the median repetition}."""
    tests = read("llama-bench", text)
    if not tests or any(not test.get("samples_ns") for test in tests):
        raise Unreadable("llama-bench: found no samples_ns, expected some for each test")
    return {(test["n_prompt"], test["n_gen"], test.get("n_depth", 0)): statistics.median(test["samples_ns"]) / 1e6 for test in tests}


def of_batched_bench(text):
    """{rows: ms of a batch}, the median of the lines with as many rows."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    times = {}
    for line in lines:
        times.setdefault(line["pl"], []).append(line["t_tg"] / line["tg"] * 1e3)
    if not times:
        raise Unreadable("llama-batched-bench: found no lines of JSON")
    return {rows: statistics.median(of) for rows, of in times.items()}


def of_speculation(text):
    """(tokens, seconds, drafted, accepted) that one of llama.cpp's speculative programs tells of its loop."""
    decoded = re.search(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds", text)
    counts = [re.search(rf"{name}\s*=\s*(\d+)", text) for name in ("n_drafted", "n_accept")]
    if not decoded or not all(counts):
        raise Unreadable("llama.cpp's speculative program: found no line \"decoded N tokens in S seconds\" with n_drafted and n_accept")
    return int(decoded[1]), float(decoded[2]), int(counts[0][1]), int(counts[1][1])


def of_specdec_dist(found, method):
    """(ms a token, tokens a second, ms to the first token, texts, acceptance) of a method's run in specdec_dist's JSON."""
    for run in found["runs"]:
        if run["method"] == method:
            metrics = run["metrics"]
            share = metrics["accepted"] / metrics["drafted"] if metrics["drafted"] else None
            return {"ms": metrics["ms_per_token"], "tokens_per_second": metrics["tokens_per_second"], "ttft_ms": metrics["ttft_ms"],
                    "texts": [output["text"] for output in run["outputs"]], "accepted": share}
    raise Unreadable(f"specdec_dist: found no run with the method {method}")


def of_roof_bench(found):
    """{threads: the best read in GB/s, how it was read, GFLOP/s}."""
    return {roof["threads"]: {key: roof[key] for key in ("read_GBps", "read_by", "GFLOPs")} for roof in found["roofs"]}


def best_roofs(several):
    """The best of several runs, each roof by itself."""
    return {threads: {**max((roofs[threads] for roofs in several), key=lambda roof: roof["read_GBps"]), "GFLOPs": max(roofs[threads]["GFLOPs"] for roofs in several)}
            for threads in several[0]}


def scaling_of_reads(several):
    """How much more two threads read than one: the median of the runs' own ratios, since the best of each may be of different moments."""
    return statistics.median(roofs[2]["read_GBps"] / roofs[1]["read_GBps"] for roofs in several)


def best_k(speeds):
    """The K of {K: tokens a second} that is fastest; of equals the smallest."""
    return min(speeds, key=lambda k: (-speeds[k], k))


def same_beginning(text, echoed):
    """How much of our text stands where it should in what another program printed, prompt first: 0 to 1."""
    length = next((i for i, (a, b) in enumerate(zip(text, echoed)) if a != b), min(len(text), len(echoed)))
    return length / len(text) if text else 1.0


# What a figure is worth, as the goals of issue 6 say.

def verdict(is_met):
    return "met" if is_met else "MISSED"


def decode_verdict(over_theirs, of_read):
    """At least the smaller of 1.25 x llama.cpp and 95 % of the best plain read."""
    return verdict(over_theirs >= FASTER or of_read >= OF_READ)


def longer_roof_ms(bytes_read, rows, gigabytes_per_second, gigaflops):
    """The longer of reading all weights once and of two operations for each bf16 weight and row, each measured by itself."""
    return max(bytes_read / gigabytes_per_second, bytes_read * rows / gigaflops) / 1e6


def used_features(flags, isa):
    """Of the instruction sets, by their flags, those that this CPU has and our programs use."""
    names = list(FEATURES)
    return [FEATURES[name] for name in names[:None if isa == "auto" else names.index(isa) + 1] if FEATURES[name] in flags]


def rows_verdict(flags, rows, over_one, over_roofline, over_longer_roof, one_row_met):
    """(goal, verdict) of a pass of several rows; one row's own miss leaves them uncounted. The roofline does both at once, the longer roof is the one of two that do one each."""
    if rows not in AMX_GOALS:
        return "reported", "-"
    if "amx_bf16" in flags:
        goal, is_met = f"<= {AMX_GOALS[rows]:.2f} x one row (AMX)", over_one <= AMX_GOALS[rows]
    elif "avx512_bf16" in flags:
        longer = f" (longer roof: {over_longer_roof:.3f})" if over_longer_roof is not None else ""
        goal, is_met = f"<= {NEAR_ROOF:.2f} x roofline; is {over_roofline:.3f}{longer}", over_roofline <= NEAR_ROOF
    else:
        return "of AMX and AVX-512 BF16", "not measurable here"
    return goal, verdict(is_met) if one_row_met else f"not counted ({verdict(is_met)}): one row misses"


def rows_line_of_place(flags, rows, place):
    """The line of the table for a pass of several rows in one place. What it is worth there judges nothing: goals are of the run."""
    told = rows_verdict(flags, rows, place.over_one[rows], place.over_roofline[rows], None, True)[1]
    over = place.over_roofline[rows]
    return row(f"  where a line takes {place.line_ns[0]:.0f} to {place.line_ns[1]:.0f} ns", "llama-1.1b", "x", [place.over_one[rows]], None,
               f"{place.repeats} repeats" + (f"; {over:.3f} x roofline" if over is not None else ""), f"there: {told}" if told in ("met", "MISSED") else told)


def not_here(flags):
    """Rows of the table that this machine cannot fill."""
    if "amx_bf16" in flags:
        return []
    return [row(f"{rows} rows over one, AMX", "llama-1.1b", "x", None, None, f"<= {limit:.2f}", "not measurable here: no AMX") for rows, limit in AMX_GOALS.items()]


# The table.

def row(what, shape, unit, ours, theirs, goal="reported", told="-", **more):
    """One line; ours and theirs are lists in the order of their runs, or None, and what is compared are medians."""
    middle = [statistics.median(of) if of else None for of in (ours, theirs)]
    ratio = middle[0] / middle[1] if None not in middle and middle[1] else None
    return {"what": what, "shape": shape, "unit": unit, "ours": middle[0], "theirs": middle[1], "ratio": ratio, "goal": goal, "verdict": told,
            "runs_ours": ours or [], "runs_theirs": theirs or [], **more}


def with_verdict(line, judge):
    """The line with what `judge` says of ours over theirs; nothing is said where either is missing."""
    return {**line, "verdict": judge(line["ratio"]) if line["ratio"] is not None else "not measured"}


def shown(value):
    return "-" if value is None else f"{value:.4g}"


def table(rows):
    cells = [("what", "shape", "unit", "ours", "llama.cpp", "ours/theirs", "goal", "verdict")]
    cells += [(line["what"], line["shape"], line["unit"], shown(line["ours"]), shown(line["theirs"]), "-" if line["ratio"] is None else f"{line['ratio']:.2f}",
               line["goal"], line["verdict"]) for line in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    numbers = (3, 4, 5)
    return "\n".join("  ".join(text.rjust(width) if column in numbers else text.ljust(width)
                               for column, (text, width) in enumerate(zip(line, widths))).rstrip() for line in cells)
