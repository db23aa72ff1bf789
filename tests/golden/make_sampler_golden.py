"""Writes sampler_golden.json: what Hugging Face's logits warpers make of small rows.

Run with torch and transformers: python3 make_sampler_golden.py. The rows are float32 values, the arithmetic is float64, so
the file holds what exact arithmetic gives and the test's tolerance covers this program's rounding only.
"""

import json
import pathlib

import torch
import transformers
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper


def float32(value):
    return torch.tensor(value, dtype=torch.float32).item()


def row(size, spread, seed):
    """Different multiples of 1/256, so that no tie hides the order (the test has its own for ties, which HF keeps whole)."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(4 * size, generator=generator, dtype=torch.float64) * spread
    distinct = list(dict.fromkeys((values * 256).round().tolist()))[:size]
    assert len(distinct) == size
    return torch.tensor(distinct, dtype=torch.float64) / 256


def warp(logits, temperature, top_k, top_p):
    scores = logits.unsqueeze(0)
    warpers = []
    if temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(temperature))
    if top_k > 0:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        before = scores
        for warper in warpers:
            before = warper(None, before)
        mass = before.softmax(-1).sort(descending=True).values.cumsum(-1)
        assert (mass - top_p).abs().min() > 1e-5, "the cut must not hang on rounding"
        warpers.append(TopPLogitsWarper(top_p))
    for warper in warpers:
        scores = warper(None, scores)
    return scores.softmax(-1)[0]


def main():
    rows = [row(1, 1.0, 1), row(7, 1.0, 2), row(40, 3.0, 3), row(97, 0.5, 4)]
    infinite = row(12, 2.0, 5)
    infinite[[0, 3, 11]] = -torch.inf
    rows.append(infinite)
    settings = [(1.0, 0, 1.0), (0.8, 0, 0.95), (0.8, 0, 1.0), (1.0, 5, 1.0), (0.7, 5, 0.8), (1.5, 1000, 0.5),
                (1.0, 1, 1.0), (1.0, 0, 0.001), (0.05, 0, 0.9), (2.5, 20, 0.99)]
    cases = []
    for index, logits in enumerate(rows):
        for temperature, top_k, top_p in settings:
            temperature, top_p = float32(temperature), float32(top_p)
            probabilities = warp(logits, temperature, top_k, top_p)
            kept = probabilities.nonzero()[:, 0].tolist()
            cases.append({"row": index, "temperature": temperature, "top_k": top_k, "top_p": top_p, "kept": kept,
                          "probabilities": [float(f"{probabilities[i].item():.10g}") for i in kept]})
    golden = {"transformers": transformers.__version__,
              "rows": [[None if value == -torch.inf else value for value in logits.tolist()] for logits in rows],
              "cases": cases}
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = json.dumps({key: golden[key] for key in ("transformers", "rows")})
    path = pathlib.Path(__file__).with_name("sampler_golden.json")
    path.write_text(head[:-1] + ',\n"cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
