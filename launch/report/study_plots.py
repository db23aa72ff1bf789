"""The pictures of a study's report, each a string of SVG whose colours are CSS variables, so that one file is right on light and on dark paper.

What a figure is, is told by how it is drawn: measured (filled circles), measured under a modelled interconnect (open diamonds), predicted (dotted, no marks),
published (grey squares, dashed).
"""
import io
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter  # noqa: E402

# Colours that stand for variables; nothing else has these values.
INK, GRID, PAPER, PUBLISHED = "#010101", "#010102", "#010103", "#010104"
SERIES = [f"#0101{16 + i:02x}" for i in range(8)]
VARIABLES = {INK: "ink", GRID: "grid", PAPER: "paper", PUBLISHED: "published", **{colour: f"s{i}" for i, colour in enumerate(SERIES)}}

MEASURED, MODELLED, PREDICTED, PUBLISHED_KIND = "measured", "measured under a modelled interconnect", "predicted", "published"
STYLES = {
    MEASURED: {"marker": "o", "linestyle": "-", "markersize": 5},
    MODELLED: {"marker": "D", "linestyle": "-", "markersize": 5, "markerfacecolor": PAPER},
    PREDICTED: {"marker": "", "linestyle": ":", "linewidth": 2.2},
    PUBLISHED_KIND: {"marker": "s", "linestyle": "--", "markersize": 4.5, "color": PUBLISHED},
}
# Of rules by which K adapts, which have one value and no curve: neither the dots of what is predicted nor the dashes of what is published.
ADAPTIVE = [(0, (7, 2, 1.5, 2)), (0, (16, 3)), (0, (7, 2, 1.5, 2, 1.5, 2)), (0, (7, 2, 3, 2))]
PARTS = {"draft": "draft", "broadcast": "broadcast", "score_compute": "score, compute", "score_all_reduce": "score, all-reduce",
         "decide": "decide", "rest": "rest"}

plt.rcParams.update({
    "svg.fonttype": "path", "svg.hashsalt": "specdec", "font.family": "DejaVu Sans", "font.size": 10, "axes.edgecolor": INK,
    "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.titlesize": 10.5, "xtick.color": INK, "ytick.color": INK, "text.color": INK,
    "grid.color": GRID, "grid.linewidth": 0.6, "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "legend.frameon": False, "legend.fontsize": 9,
    "lines.linewidth": 1.6})


def picture(title, xlabel, ylabel, size=(4.9, 3.4)):
    figure, axes = plt.subplots(figsize=size)
    axes.set_title(title, loc="left")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return figure, axes


def svg(figure, axes, entries=None, columns=2, heading=None):
    """The picture with its legend under it: what is there, or `entries`; `heading` over that."""
    handles, labels = zip(*entries) if entries else (axes.get_legend_handles_labels() if entries is None else ((), ()))
    if handles:
        axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=columns, columnspacing=1.4, handlelength=2.6, title=heading, title_fontsize=9)
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", pad_inches=0.06, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    out = text.getvalue()
    out = re.sub(r"<metadata>.*?</metadata>", "", out[out.index("<svg"):], flags=re.S)
    out = re.sub(r"#0101[0-9a-f]{2}", lambda found: f"var(--{VARIABLES[found.group()]})", out)
    out = re.sub(r"\s*\n\s*", " ", out)
    # As wide as there is room; the picture's own size is the view box.
    out = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", out, count=1)
    return re.sub(r'(<svg[^>]*?) width="([\d.]+)pt"', r'\1 style="width:100%;max-width:calc(\2 * 1.35px)"', out, count=1)


def colour_of(key, keys):
    return SERIES[sorted(keys).index(key) % len(SERIES)]


def in_two_lines(kind):
    """Its name for a legend: so all pictures of a report are drawn at one scale."""
    return kind.replace(" under ", "\nunder ")


def kinds_legend(kinds):
    entries = []
    for kind in (MEASURED, MODELLED, PREDICTED, PUBLISHED_KIND):
        if kind in kinds:
            entries.append((Line2D([], [], **{"color": INK, **STYLES[kind]}), in_two_lines(kind)))
    return entries


def ranks_text(ranks):
    return f"{ranks} rank" + ("s" if ranks > 1 else "")


def ways(points):
    """Each point's way to decode: its method and, where there are several, the draft's placement; K = 0 belongs to all placements."""
    placements = sorted({point["placement"] for point in points if point["k"] > 0})
    found = []
    for point in points:
        for placement in placements if point["k"] == 0 and placements else [point["placement"]]:
            found.append((", ".join(([point["method"]] if point["method"] != "default" else []) + ([placement] if len(placements) > 1 else [])), point))
    return found


def of_ranks(points):
    """{(ranks, way): its points by K}; and, by themselves, points of ways that have one K at most, below which they choose."""
    series, alone = {}, []
    for way, point in ways(points):
        series.setdefault((point["ranks"], way), []).append(point)
    for key in [key for key, members in series.items() if len(members) == 1 and members[0]["draft_length"] != "fixed"]:
        alone += series.pop(key)
    return {key: sorted(members, key=lambda point: point["k"]) for key, members in series.items()}, alone


def against_k(points, title, ylabel, value, predicted=None, adaptive=False, reference=None):
    """One line a rank count. `value`: point -> {"mean", "p10", "p90"} or a number; `predicted`: point -> a number or None."""
    series, alone = of_ranks(points)
    figure, axes = picture(title, "K, drafted tokens a loop", ylabel)
    keys = sorted(series)
    entries, kinds = [], set()
    for key in keys:
        members = [point for point in series[key] if value(point) is not None]
        if not members:
            continue
        colour = colour_of(key, keys)
        ks = [point["k"] for point in members]
        values = [value(point) for point in members]
        means = [v["mean"] if isinstance(v, dict) else v for v in values]
        kind = members[0]["kind"]
        kinds.add(kind)
        axes.plot(ks, means, color=colour, **STYLES[kind])
        if isinstance(values[0], dict):
            axes.fill_between(ks, [v["p10"] for v in values], [v["p90"] for v in values], color=colour, alpha=0.16, linewidth=0)
        several = len({method for _, method in keys}) > 1
        entries.append((Line2D([], [], color=colour, linewidth=3), ranks_text(key[0]) + (f", {key[1]}" if several else "")))
        if predicted:
            told = [(point["k"], predicted(point)) for point in members if point.get("predicted")]
            if told:
                kinds.add(PREDICTED)
                axes.plot(*zip(*told), color=colour, **STYLES[PREDICTED])
    if adaptive:
        rules = sorted({point["method"] for point in alone})
        dashes = {rule: ADAPTIVE[i % len(ADAPTIVE)] for i, rule in enumerate(rules)}
        for point in alone:
            v = value(point)
            same = [key for key in keys if key[0] == point["ranks"]]
            if v is None or not same:
                continue
            colour = colour_of(same[0], keys)
            axes.axhline(v["mean"] if isinstance(v, dict) else v, color=colour, linewidth=1.1, linestyle=dashes[point["method"]])
        for rule in rules:
            kind = next(point["kind"] for point in alone if point["method"] == rule)
            entries.append((Line2D([], [], color=INK, linewidth=1.1, linestyle=dashes[rule]), f"K adapts: {rule},\n{in_two_lines(kind)}"))
    if reference is not None:
        axes.axhline(reference, color=INK, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    return svg(figure, axes, entries + kinds_legend(kinds))


def split(points, title):
    """Where a loop's time goes, a bar for each rank count and K."""
    points = sorted(points, key=lambda point: (point["ranks"], point["k"]))
    figure, axes = picture(title, "", "ms a loop", size=(max(4.9, 0.36 * len(points) + 1.6), 3.4))
    places, labels, place, groups = [], [], 0.0, {}
    for i, point in enumerate(points):
        if i and points[i - 1]["ranks"] != point["ranks"]:
            place += 0.8
        places.append(place)
        labels.append(str(point["k"]))
        groups.setdefault(point["ranks"], []).append(place)
        place += 1
    bottom = [0.0] * len(points)
    for i, (part, name) in enumerate(PARTS.items()):
        heights = [point["split_ms"][part] for point in points]
        axes.bar(places, heights, bottom=bottom, width=0.78, color=SERIES[i], label=name, linewidth=0)
        bottom = [b + h for b, h in zip(bottom, heights)]
    axes.set_xticks(places, labels)
    axes.grid(axis="x", visible=False)
    for ranks, at in groups.items():
        axes.annotate(f"K, {ranks_text(ranks)}", (sum(at) / len(at), 0), xycoords=("data", "axes fraction"), xytext=(0, -22), textcoords="offset points",
                      ha="center", va="top")
    return svg(figure, axes, columns=3, heading=points[0]["kind"])


def percentiles(points, title):
    figure, axes = picture(title, "K, drafted tokens a loop", "ms a token")
    points = sorted(points, key=lambda point: point["k"])
    ks = [point["k"] for point in points]
    entries = []
    for i, name in enumerate(("p50", "p90", "p99")):
        axes.plot(ks, [point["token_ms"][name] for point in points], color=SERIES[i], **STYLES[points[0]["kind"]])
        entries.append((Line2D([], [], color=SERIES[i], linewidth=3), name.upper()))
        if all(point.get("predicted") for point in points):
            axes.plot(ks, [point["predicted"][f"{name}_ms"] for point in points], color=SERIES[i], **STYLES[PREDICTED])
    kinds = {points[0]["kind"]} | ({PREDICTED} if all(point.get("predicted") for point in points) else set())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    return svg(figure, axes, entries + kinds_legend(kinds), columns=3)


def size_text(value, _=None):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def all_reduces(rows):
    """P50 with the band to P90, of this program's own transport."""
    figure, axes = picture("All-reduce", "bytes of each rank", "us, P50; band to P90")
    series = {}
    for row in rows:
        if row["what"] == "all_reduce" and row["transport"] != "MPI_Allreduce":
            series.setdefault((row["interconnect"], row["ranks"], row["transport"]), []).append(row)
    entries, kinds = [], set()
    for i, (key, members) in enumerate(sorted(series.items())):
        members.sort(key=lambda row: row["bytes"])
        kind = MEASURED if key[0] == "native" else MODELLED
        kinds.add(kind)
        colour = SERIES[i % len(SERIES)]
        bytes_ = [row["bytes"] for row in members]
        axes.plot(bytes_, [row["p50_us"] for row in members], color=colour, **STYLES[kind])
        axes.fill_between(bytes_, [row["p50_us"] for row in members], [row["p90_us"] for row in members], color=colour, alpha=0.16, linewidth=0)
        entries.append((Line2D([], [], color=colour, linewidth=3), f"{key[0].removeprefix('modelled ')}, {ranks_text(key[1])} ({key[2]})"))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(size_text))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return svg(figure, axes, entries + kinds_legend(kinds), columns=1)


def marks_of(kind):
    """How points of a kind are drawn that no line joins."""
    return {**{k: v for k, v in STYLES[kind].items() if k != "linestyle"}, "linestyle": ""}


def scatter(axes, points, place, keys, faint=lambda point: False):
    """Points at place(point), a colour each rank count and interconnect, a mark each kind; `faint`: those of which the picture says nothing. Returns the legend."""
    entries, kinds = [], set()
    for key in keys:
        members = [p for p in points if (p["ranks"], p["interconnect"]) == key]
        colour = colour_of(key, keys)
        for point in members:
            axes.plot(*place(point), color=colour, alpha=0.35 if faint(point) else 1, **marks_of(point["kind"]))
            kinds.add(point["kind"])
        entries.append((Line2D([], [], color=colour, linewidth=3), f"{ranks_text(key[0])}, {key[1]}"))
    return entries + [(Line2D([], [], color=INK, **marks_of(kind)), in_two_lines(kind)) for kind in sorted(kinds)]


def predicted_against_measured(points):
    """Against what a point takes undisturbed, which is what errors are of; faint where the description was made from it."""
    figure, axes = picture("Predicted against measured", "ms a token, measured (undisturbed)", "ms a token, predicted", size=(4.4, 4.0))
    told = [point for point in points if point.get("predicted")]
    most = 1.08 * max(max(p["undisturbed_ms_per_token"], p["predicted"]["ms_per_token"]) for p in told)
    axes.fill_between([0, most], [0, 0.88 * most], [0, 1.12 * most], color=GRID, alpha=0.5, linewidth=0)
    axes.plot([0, most], [0, most], color=INK, linewidth=0.8)
    keys = sorted({(p["ranks"], p["interconnect"]) for p in told})
    entries = scatter(axes, told, lambda p: (p["undisturbed_ms_per_token"], p["predicted"]["ms_per_token"]), keys, lambda p: p["calibrates"])
    if any(p["calibrates"] for p in told):
        entries.append((Line2D([], [], color=INK, alpha=0.35, **marks_of(MEASURED)), "calibrated from these"))
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    entries.append((Line2D([], [], color=GRID, linewidth=7), "within 12 %"))
    return svg(figure, axes, entries)


def region(data, points):
    """Theorem 3.8 at its best K: where speculation pays, and where our points are."""
    figure, axes = picture("Where speculation pays", "c, draft's time over target's", "alpha, acceptance rate", size=(4.9, 3.8))
    axes.set_xscale("log")  # before labels look for room on the lines
    costs, alphas, speedup = data["cost_ratio"], data["alpha"], data["speedup"]
    levels = [1, 1.25, 1.5, 2, 3, 4, 6]
    axes.contourf(costs, alphas, speedup, levels=[0, 1.0001], colors=[GRID], alpha=0.6)
    lines = axes.contour(costs, alphas, speedup, levels=levels[1:], colors=[INK], linewidths=0.8)
    axes.clabel(lines, fmt=lambda value: f"{value:g}x", fontsize=8, inline_spacing=2)
    placed = [p for p in points if p.get("alpha") is not None and p.get("cost_ratio")]
    entries = scatter(axes, placed, lambda p: (p["cost_ratio"], p["alpha"]), sorted({(p["ranks"], p["interconnect"]) for p in placed}))
    axes.set_ylim(0, max(alphas))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    entries.append((Line2D([], [], color=GRID, linewidth=7), "no gain"))
    entries.append((Line2D([], [], color=INK, linewidth=0.8), "speed-up, theorem 3.8"))
    return svg(figure, axes, entries)


def beside_the_paper(series, published, title, ylabel, ours, theirs, told, told_of_theirs=None):
    """The published curve and ours, a line each rank count. `series`: {ranks: points}; `ours` and `told`: (point, its K = 0) -> a number; `told_of_theirs`: what is predicted of
    their machine."""
    figure, axes = picture(title, "K, drafted tokens a loop", ylabel)
    axes.plot(published["k"], theirs, **STYLES[PUBLISHED_KIND])
    kinds, entries = {PUBLISHED_KIND}, []
    if told_of_theirs:
        kinds.add(PREDICTED)
        axes.plot(published["k"], told_of_theirs, color=PUBLISHED, **STYLES[PREDICTED])
        entries.append((Line2D([], [], color=PUBLISHED, linewidth=3), "their machine"))
    for ranks, points in sorted(series.items()):
        colour = colour_of(ranks, series)
        kinds.add(points[0]["kind"])
        axes.plot([p["k"] for p in points], [ours(p, points[0]) for p in points], color=colour, **STYLES[points[0]["kind"]])
        entries.append((Line2D([], [], color=colour, linewidth=3), ranks_text(ranks)))
        if all(p.get("predicted") for p in points):
            kinds.add(PREDICTED)
            axes.plot([p["k"] for p in points], [told(p, points[0]) for p in points], color=colour, **STYLES[PREDICTED])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    return svg(figure, axes, entries + kinds_legend(kinds))
