#!/usr/bin/env python3
"""Draws the report of a study: FOLDER/study.json becomes FOLDER/report.html, one file that needs no other. Run by specdec_study; needs matplotlib.

    study_report.py FOLDER
"""
import html
import json
import os
import sys

import study_plots as plots

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2430; --quiet: #5a6472; --grid: #d5dae1; --card: #f6f7f9; --published: #707782;
  --s0: #0b6fb8; --s1: #c8641a; --s2: #2a8a4a; --s3: #8e44ad; --s4: #b8860b; --s5: #5f6b7a; --s6: #c0392b; --s7: #148f8f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181e; --ink: #e4e8ee; --quiet: #9aa4b2; --grid: #39424e; --card: #1c222a; --published: #a7afba;
  --s0: #58b0f0; --s1: #f2a15f; --s2: #6fcf8f; --s3: #c99be0; --s4: #e6c35c; --s5: #8b97a6; --s6: #f08377; --s7: #5cc8c8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 8px; } h2 { font-size: 1.2rem; margin: 36px 0 6px; } h3 { font-size: 1rem; margin: 22px 0 4px; }
p, li { max-width: 76ch; } .quiet { color: var(--quiet); } .forced { border-left: 4px solid var(--s1); padding: 4px 12px; background: var(--card); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 18px; align-items: start; }
figure { margin: 0; padding: 10px; background: var(--card); border-radius: 6px; --paper: var(--card); min-width: 0; } figure svg { display: block; height: auto; }
@media (min-width: 780px) { figure.wide { grid-column: span 2; } }
.scroll { overflow-x: auto; margin: 16px 0; } table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; } th { color: var(--quiet); font-weight: 600; }
td.word, th.word { text-align: left; } pre { overflow-x: auto; background: var(--card); padding: 12px; border-radius: 6px; font-size: .82rem; }
details { margin: 10px 0; } summary { cursor: pointer; }
"""

INTRO = """<p>Every figure is one of four kinds and is drawn so: <b>measured</b> on this machine (filled circles), <b>measured under a modelled interconnect</b>, which holds
each message for the time of the one that it describes (open diamonds), <b>predicted</b> by the cost model from a description of the machine (dotted, no marks), and
<b>published</b> by others (grey squares, dashed). Bands go from the 10th to the 90th percentile of prompts over all repetitions.</p>"""


def escape(text):
    return html.escape(str(text), quote=True)


def figure(picture, what, wide=False):
    return f'<figure role="img" aria-label="{escape(what)}"{" class=wide" if wide else ""}>{picture}</figure>'


def cell(value, form="{:.3f}"):
    return "-" if value is None else form.format(value)


def table(head, rows, words):
    """`words`: how many columns, from the left, hold words."""
    def line(cells, tag):
        return "".join(f'<{tag}{" class=word" if i < words else ""}>{escape(c)}</{tag}>' for i, c in enumerate(cells))
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{line(head, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def points_table(points, predicts):
    forced = any(p["forced"] for p in points)
    failed = any(p["failed"] for p in points)
    words = ["interconnect", "placement", "models", "method", "kind"] + (["forced"] if forced else []) + (["failed jobs"] if failed else [])
    head = words + ["ranks", "K", "ms a token", "P10", "P90", "P50 / P90 / P99 of a token", "tokens a loop", "eq. 1", "alpha", "c", "speed-up", "theorem 3.8",
                    "operations, theorem 3.11"] + (["undisturbed ms a token", "predicted", "error"] if predicts else [])
    rows = []
    for p in points:
        row = [p["interconnect"], p["placement"], p["models"], p["method"], p["kind"] if p["finished"] else "failed" if p["failed"] else "not run"]
        row += [p["forced"] or "-"] if forced else []
        row += [f"{p['failed']}: {p['error']}" if p["failed"] else "-"] if failed else []
        row += [p["ranks"], p["k"]]
        if not p["finished"]:
            rows.append(row + ["-"] * (len(head) - len(row)))
            continue
        time, token = p["ms_per_token"], p["token_ms"]
        row += [cell(time["mean"]), cell(time["p10"]), cell(time["p90"]), f"{token['p50']:.3f} / {token['p90']:.3f} / {token['p99']:.3f}",
                cell(p["tokens_per_loop"], "{:.2f}"), cell(p["expected_tokens_per_loop"], "{:.2f}"), cell(p["alpha"]), cell(p["cost_ratio"]), cell(p["speedup"], "{:.2f}"),
                cell(p["theorem_3_8_speedup"], "{:.2f}"), cell(p["theorem_3_11_operations"], "{:.2f}")]
        if predicts:
            told = p["predicted"] and p["predicted"]["ms_per_token"]
            undisturbed = p["undisturbed_ms_per_token"]
            row += [cell(undisturbed), cell(told), cell(told and undisturbed and 100 * (told / undisturbed - 1), "{:+.1f} %")]
        rows.append(row)
    return table(head, rows, len(words))


def groups(points):
    """Points that ran, by interconnect and models."""
    found = {}
    for p in points:
        if p["finished"]:
            found.setdefault((p["interconnect"], p["models"]), []).append(p)
    return found


def group_section(key, points):
    interconnect, models = key
    name = interconnect + ("" if models == "default" else f", {models}")
    pictures = [
        (plots.against_k(points, "Time for 128 tokens", "ms", lambda p: {k: 128 * v for k, v in p["ms_per_token"].items()},
                         lambda p: 128 * p["predicted"]["ms_per_token"], adaptive=True), "mean time for 128 tokens against K"),
        (plots.against_k(points, "Tokens a loop over K + 1", "share of K + 1", lambda p: p["efficiency"],
                         lambda p: p["predicted"]["tokens_per_loop"] / (p["k"] + 1)), "tokens per loop over K + 1 against K"),
        (plots.against_k(points, "Time of a loop", "ms", lambda p: p["ms_per_loop"], lambda p: p["predicted"]["ms_per_loop"]), "time per loop against K"),
        (plots.against_k(points, "Speed-up over decoding alone", "times", lambda p: p["speedup"], lambda p: p["predicted"]["speedup"], adaptive=True,
                         reference=1), "speed-up against K"),
    ]
    ways = plots.ways(points)
    for way in sorted({way for way, _ in ways}):
        members = [p for of_way, p in ways if of_way == way]
        if len({p["k"] for p in members}) < 2:
            continue
        of = f", {way}" if way else ""
        pictures.append((plots.split(members, f"Where a loop's time goes{of}"), "parts of a loop's time for each rank count and K", len(members) > 9))
        for ranks in sorted({p["ranks"] for p in members}):
            pictures.append((plots.percentiles([p for p in members if p["ranks"] == ranks], f"Percentiles of a token, {plots.ranks_text(ranks)}{of}"),
                             "percentiles of the time per token against K"))
    kind = points[0]["kind"]
    return (f"<h2>Interconnect {escape(name)}</h2><p class=quiet>{escape(kind.capitalize())}.{escape(late_text(points))}</p>"
            f'<div class="pictures">{"".join(figure(*parts) for parts in pictures)}</div>')


def paper_series(study):
    """{ranks: points by K, which all of their loops have} to lay beside the paper: under a modelled interconnect where there is one, of one interconnect, models, method and placement."""
    series = {}
    placement = next((p["placement"] for p in study["points"] if p["k"] > 0), None)  # one, as one curve has
    for p in study["points"]:
        if p["finished"] and p["undisturbed_ms_per_token"] is not None and (p["k"] == 0 or p["placement"] == placement):
            way = p["kind"] == plots.MODELLED, p["interconnect"], p["models"], p["method"]
            series.setdefault(way, {}).setdefault(p["ranks"], []).append(p)
    for way in sorted(series, key=lambda way: way[0], reverse=True):
        found = {ranks: sorted(members, key=lambda p: p["k"]) for ranks, members in series[way].items()}
        found = {ranks: members for ranks, members in found.items() if len(members) > 1 and members[0]["k"] == 0}
        if found:
            return found
    return {}


def paper_section(study):
    published = study["published"]
    series = paper_series(study)
    if not published:
        return ""
    if not series:
        return (f"<h2>Beside the paper</h2><p>{escape(published['title'])}: nothing here to lay beside it, which takes finished points of K = 0 and of a K that is the same in all of "
                "their loops.</p>")
    first = next(iter(series.values()))[0]
    theirs_told = published["predicted"]
    rows = []
    for ranks, ours in sorted(series.items()):
        alone = ours[0]
        for p in ours:
            if p["k"] not in published["k"]:
                continue
            i = published["k"].index(p["k"])
            theirs = published["ms_128"][i] / published["ms_128"][0]
            mine = p["undisturbed_ms_per_token"] / alone["undisturbed_ms_per_token"]
            told = p["predicted"] and alone["predicted"] and p["predicted"]["ms_per_token"] / alone["predicted"]["ms_per_token"]
            there = theirs_told and theirs_told["ms_128"][i]
            rows.append([ranks, p["k"], cell(published["ms_128"][i], "{:.0f}"), cell(there, "{:.0f}"), cell(there and 100 * (there / published["ms_128"][i] - 1), "{:+.1f} %"),
                         cell(theirs), cell(mine), cell(100 * (mine / theirs - 1), "{:+.1f} %"), cell(told)])
    over = [v / published["ms_128"][0] for v in published["ms_128"]]
    loops = [v / published["ms_per_loop"][0] for v in published["ms_per_loop"]]
    pictures = [
        plots.beside_the_paper(series, published, "Time for 128 tokens, over that of K = 0", "times", lambda p, a: p["undisturbed_ms_per_token"] / a["undisturbed_ms_per_token"], over,
                               lambda p, a: p["predicted"]["ms_per_token"] / a["predicted"]["ms_per_token"], over_first(theirs_told, "ms_128")),
        plots.beside_the_paper(series, published, "Tokens a loop over K + 1", "share of K + 1", lambda p, a: p["efficiency"]["mean"], published["efficiency"],
                               lambda p, a: p["predicted"]["tokens_per_loop"] / (p["k"] + 1), theirs_told and theirs_told["efficiency"]),
        plots.beside_the_paper(series, published, "Time of a loop, over that of K = 0", "times", lambda p, a: p["ms_per_loop"]["mean"] / a["ms_per_loop"]["mean"], loops,
                               lambda p, a: p["predicted"]["ms_per_loop"] / a["predicted"]["ms_per_loop"], over_first(theirs_told, "ms_per_loop")),
    ]
    head = ["ranks", "K", "published ms", "predicted of their machine", "error", "published, over K = 0", f"{first['kind']}, over K = 0", "error", "predicted, over K = 0"]
    fit = (f"<p>Predicted of their machine: {escape(theirs_told['config'])} on {escape(theirs_told['hardware'])}, alpha {theirs_told['alpha']:.3f} (eq. 1 inverted at K = "
           f"{theirs_told['fit_k']}).</p>" if theirs_told else "")
    return (f"<h2>Beside the paper</h2><p>{escape(published['title'])} ({escape(published['source'])}), and ours, interconnect {escape(first['interconnect'])}: each over its "
            "own K = 0, since machines and models are others; ours is what a point takes undisturbed: the median loops of the quicker half of its jobs.</p>"
            f'<div class="pictures">{"".join(figure(p, "ours beside the published curve, against K") for p in pictures)}</div>' + fit + table(head, rows, 0) + paper_table(published, series))


def over_first(told, what):
    return told and [v / told[what][0] for v in told[what]]


def predicted_cells(line):
    of = line["predicted"] or {}
    return [cell(line["alpha"], "{:.3f}"), cell(of.get("ms_alone"), "{:.1f}"), cell(of.get("ms"), "{:.2f}"), cell(of.get("speedup"), "{:.2f}")]


def paper_table(published, series):
    """What the paper printed task by task, what the cost model says of it, and at its K our speed-up and acceptance rate of each rank count, whatever our task."""
    if not published["table"]:
        return ""
    ours = {ranks: {p["k"]: p for p in points} for ranks, points in sorted(series.items())}
    rows = []
    odd = [line for line in published["table"] if abs(line["speedup"] * line["ms"] / line["ms_alone"] - 1) > 0.02]
    told = any(line["predicted"] for line in published["table"])
    for line in published["table"]:
        there = [points.get(line["k"]) for points in ours.values()]
        rows.append([line["task"], cell(line["k"], "{:.0f}"), cell(line["ms_alone"], "{:.1f}"), cell(line["ms"], "{:.2f}"), cell(line["speedup"], "{:.2f}"),
                     cell(line["ms_alone"] / line["ms"], "{:.2f}"), *(predicted_cells(line) if told else []), *[text for p in there for text in (cell(p and p["speedup"], "{:.2f}"), cell(p and p["alpha"], "{:.3f}"))]])
    head = ["published: task", "K", "ms a token alone", "speculative", "speed-up as printed", "of the two times",
            *(["predicted of their machine: at alpha", "predicted ms a token alone", "predicted speculative", "predicted speed-up"] if told else []), *[text for ranks in ours for text in (f"ours, {plots.ranks_text(ranks)}: speed-up", "at alpha")]]
    return "<p>Their table, and ours at the same K: one study with an acceptance rate of its own, to be held against the task whose rate is nearest.</p>" + table(head, rows, 1) + "".join(
        f"<p>{escape(line['task'])}: the row contradicts itself. The speed-up that is printed, {line['speedup']:g}, is not {line['ms_alone']:g} / {line['ms']:g} = "
        f"{line['ms_alone'] / line['ms']:.3f}; nothing here is matched to it.</p>" for line in odd)


def late_text(points):
    """Where a machine cannot keep up with what is modelled, its figures are its own."""
    late = {}
    for p in points:
        late.setdefault(p["ranks"], []).append(p["late_share"])
    told = [f"{100 * sum(of) / len(of):.0f} % with {plots.ranks_text(ranks)}" for ranks, of in sorted(late.items()) if sum(of) / len(of) > 0.01]
    return f" Collectives that took longer than modelled: {', '.join(told)}." if told else ""


def machine_text(study):
    machine = study["machine"] or {}
    lines = [study["program"].splitlines()[0] if study["program"] else ""]
    if machine:
        # Results that were gone on with may be of several machines.
        places = study["places"]
        lines += [place if len(places) == 1 else f"{jobs} jobs on {place}" for place, jobs in places.items()]
        lines.append(f"{machine['backend']}; transport {machine['transport']}; weights in {machine['dtype']}")
    return " &middot; ".join(escape(line) for line in lines if line)


def page(study):
    points = study["points"]
    ran = [p for p in points if p["finished"]]
    predicts = any(p.get("predicted") for p in ran)
    parts = [f"<h1>{escape(study['title'])}</h1><p class=quiet>{machine_text(study)}</p>"]
    forced = sorted({p["forced"] for p in ran if p["forced"]})
    if forced:
        parts.append(f'<p class=forced>Forced, and not what models say: {escape("; ".join(forced))}.</p>')
    best = max((p for p in ran if p["speedup"]), key=lambda p: p["speedup"], default=None)
    if best:
        parts.append(f"<p>Best: <b>{best['speedup']:.2f} times</b> decoding alone at K = {best['k']} ({escape(best['label'])}), {best['ms_per_token']['mean']:.3f} ms a "
                     f"token, {escape(best['kind'])}.</p>")
    if study["failed"]:
        items = "".join(f"<li>{escape(f['label'])}: {f['jobs']} failed, {escape(f['error'])}</li>" for f in study["failed"])
        parts.append(f"<h2>Jobs that failed</h2><ul>{items}</ul>")
    parts.append(INTRO)
    if ran:
        parts += [group_section(key, members) for key, members in groups(points).items()]
        parts.append(paper_section(study))
        others = [figure(plots.region(study["region"], ran), "speed-up over acceptance rate and cost ratio, with this study's points")]
        if study["all_reduces"]:
            others.append(figure(plots.all_reduces(study["all_reduces"]), "latency of all-reduces against bytes"))
        if predicts:
            others.append(figure(plots.predicted_against_measured(ran), "predicted against measured time per token"))
        parts.append(f'<h2>Why</h2><div class="pictures">{"".join(others)}</div>')
        for error in study["errors"]:
            noise = (f" Every other job of these points differs from the rest by {100 * error['halves_mean']:.1f} %, at worst {100 * error['halves_worst']:.1f} %."
                     if error["halves_mean"] is not None else "")
            noise += (f" Over all jobs and loops a token takes {100 * error['disturbed_mean']:.1f} % longer in the mean, at most {100 * error['disturbed_worst']:.1f} %."
                      if error["disturbed_mean"] is not None else "")
            parts.append(f"<p>Prediction ({escape(study['hardware'])}) against what each point takes undisturbed, its loops in the quicker half of its jobs, {plots.ranks_text(error['ranks'])}: mean of the errors "
                         f"{100 * error['mean']:.1f} %, worst {100 * error['worst']:.1f} %, {error['points']} points.{noise}</p>")
            if len(error["models"]) > 1:
                parts.append("<ul>" + "".join(f"<li>{escape(of['models'])}: {100 * of['mean']:.1f} %, worst {100 * of['worst']:.1f} %, {of['points']} points</li>"
                                              for of in error["models"]) + "</ul>")
        if study["pace"]:
            parts.append(f"<p>The machine's pace: jobs took {study['pace']['least']:.2f} to {study['pace']['most']:.2f} of what their points take undisturbed, "
                         f"in the median of each of {study['pace']['parts']} parts of the study in time.</p>")
    parts.append("<h2>All points</h2>" + points_table(points, predicts))
    parts.append(f"<h2>How</h2><p>{study['repeats']} repetition(s) of each point in shuffled order. c is the time of a drafted token over that of a token of the target "
                 "alone; eq. 1 and theorems 3.8 (speed-up) and 3.11 (operations) are those of Leviathan et al. 2023, at the measured alpha and c; predictions "
                 "are for the share of reached tokens that stood in a point's own jobs (accepted_over_reached in the CSV), which by chance is not quite alpha.</p>"
                 f"<details><summary>The study ({escape(study['config'])})</summary><pre>{escape(study['study'])}</pre></details>"
                 f"<details><summary>The machine and the program</summary><pre>{escape(study['program'])}\n\n{escape(json.dumps(study['machine'], indent=1))}</pre></details>")
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(study['title'])}</title><style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    with open(os.path.join(folder, "study.json"), encoding="utf-8") as file:
        study = json.load(file)
    path = os.path.join(folder, "report.html")
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(page(study))
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()
