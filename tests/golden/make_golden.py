#!/usr/bin/env python3
"""Makes the golden values under tests/golden/: tiny random models of both families in the forms that people save them, and what Hugging
Face transformers computes with them in fp32; and the same for the shipped models on one real text.

Run by hand where torch (CPU), transformers, tokenizers and safetensors are installed; the results are committed:

    python tests/golden/make_golden.py

models/NAME/            a model directory as it is published: config.json, model.safetensors or shards with an index
models/NAME/expected/   model.safetensors with, all as F32 so that the program's own reader takes it:
    tokens         [n + m]     a prompt of n tokens and its greedy continuation
    prompt_tokens  [1]         n
    logits         [n + m, V]  prefill of the prompt, then decoding with the cache, one token a pass
    rounding       [1]         largest difference of the fp32 logits from the same model run in double
shipped/NAME/           model.safetensors: tokens [n], ids [i], logits [n, i] of these ids, logsumexp [n], rounding [1]
"""

import json
import math
import pathlib
import shutil

import safetensors.torch
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ASSETS = HERE.parent.parent / "assets"
PROMPT, DECODED = 21, 13  # odd on purpose: no block of rows is full

TEXT = '''def fibonacci(n: int) -> list[int]:
    """Return the first n Fibonacci numbers, starting from zero."""
    numbers = [0, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:n]


class Stack:
    def __init__(self) -> None:
        self.items = []
'''


def randomize(model, seed):
    """Weights whose branches all matter: no output is dominated by the residual stream alone."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim == 1 and "bias" not in name:  # norms
            p.data = 1.0 + 0.2 * noise
        elif p.ndim == 1 or "wpe" in name:
            p.data = 0.3 * noise
        elif "wte" in name or "embed" in name:
            p.data = 0.5 * noise
        else:
            gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "c_attn")) else 1.0
            inner = p.shape[0] if isinstance(model, transformers.GPT2LMHeadModel) and "lm_head" not in name else p.shape[1]
            p.data = gain * noise / math.sqrt(inner)


def gpt2(**kw):
    config = transformers.GPT2Config(
        n_positions=48, bos_token_id=1, eos_token_id=2, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **kw)
    return transformers.GPT2LMHeadModel(config)


def llama(**kw):
    config = transformers.LlamaConfig(
        max_position_embeddings=64, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5, **kw)
    return transformers.LlamaForCausalLM(config)


def mistral(**kw):
    config = transformers.MistralConfig(
        max_position_embeddings=64, bos_token_id=1, eos_token_id=2, sliding_window=None, **kw)
    return transformers.MistralForCausalLM(config)


LLAMA3 = {"rope_theta": 500.0, "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def old_rope(config):
    """The form before transformers 5: rope_theta beside rope_scaling."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope.get("rope_type", "default") != "default" else None


def old_linear(config):
    old_rope(config)
    config["rope_scaling"] = {"type": "linear", "factor": config["rope_scaling"]["factor"]}


def without(*keys):
    def edit(config):
        for key in keys:
            config.pop(key, None)
    return edit


def published_like_gpt2(directory):
    """The oldest form on the hub: names without prefix, and the causal masks saved as buffers."""
    file = directory / "model.safetensors"
    tensors = {k.removeprefix("transformer."): v for k, v in safetensors.torch.load_file(file).items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 48, 48, dtype=torch.uint8).tril()
    tensors["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


# name: (model, type in the checkpoint, edit of config.json, size of a shard, edit of the directory)
MODELS = {
    "gpt2-f32": (lambda: gpt2(n_layer=3, n_embd=48, n_head=4, vocab_size=131), "float32", None, None, None),
    "gpt2-f16-inner": (lambda: gpt2(n_layer=2, n_embd=40, n_head=8, n_inner=100, vocab_size=200), "float16", None,
                       "40KB", None),
    "gpt2-bf16-unscaled": (lambda: gpt2(n_layer=2, n_embd=48, n_head=6, vocab_size=67, scale_attn_weights=False),
                           "bfloat16", without("n_inner", "tie_word_embeddings"), None, published_like_gpt2),
    "llama-f32-gqa-bias": (lambda: llama(num_hidden_layers=2, hidden_size=48, num_attention_heads=4,
                                         num_key_value_heads=2, head_dim=16, intermediate_size=112, vocab_size=131,
                                         attention_bias=True, tie_word_embeddings=True),
                           "float32", old_rope, None, None),
    "llama-bf16-llama3-old": (lambda: llama(num_hidden_layers=2, hidden_size=56, num_attention_heads=8,
                                            num_key_value_heads=2, head_dim=14, intermediate_size=200, vocab_size=131,
                                            mlp_bias=True, tie_word_embeddings=False, rope_parameters=dict(LLAMA3)),
                              "bfloat16", old_rope, None, None),
    "llama-f16-llama3-new": (lambda: llama(num_hidden_layers=3, hidden_size=40, num_attention_heads=8,
                                           num_key_value_heads=4, head_dim=8, intermediate_size=77, vocab_size=193,
                                           tie_word_embeddings=False, rope_parameters=dict(LLAMA3)),
                             "float16", None, "40KB", None),
    "llama-f32-linear": (lambda: llama(num_hidden_layers=2, hidden_size=60, num_attention_heads=6,
                                       num_key_value_heads=6, intermediate_size=96, vocab_size=90,
                                       tie_word_embeddings=True,
                                       rope_parameters={"rope_theta": 300.0, "rope_type": "linear", "factor": 2.0}),
                         "float32", lambda c: (old_linear(c), without("head_dim", "num_key_value_heads")(c)), None, None),
    "mistral-bf16": (lambda: mistral(num_hidden_layers=2, hidden_size=48, num_attention_heads=8, num_key_value_heads=4,
                                     head_dim=10, intermediate_size=256, vocab_size=97, tie_word_embeddings=False),
                     "bfloat16", None, None, None),
}


def load(directory, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def run(model, prompt):
    """Prefill, then greedy decoding with the cache. Returns all tokens and the logits at each of them."""
    out = model(torch.tensor([prompt]), use_cache=True)
    tokens, logits = list(prompt), [out.logits[0]]
    for _ in range(DECODED):
        tokens.append(int(logits[-1][-1].argmax()))
        out = model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits[0])
    return tokens, torch.cat(logits)


def smallest_margin(logits):
    top = logits[PROMPT - 1:-1].topk(2).values
    return float((top[:, 0] - top[:, 1]).min())


def save(directory, tensors):
    directory.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file({k: torch.as_tensor(v, dtype=torch.float32).contiguous() for k, v in tensors.items()},
                                directory / "model.safetensors")


def make_model(name, build, dtype, edit_config, shard, edit_directory):
    directory = HERE / "models" / name
    shutil.rmtree(directory, ignore_errors=True)
    for seed in range(300):
        model = build()
        randomize(model, seed)
        model = model.to(getattr(torch, dtype))
        model.save_pretrained(directory, **({"max_shard_size": shard} if shard else {}))
        (directory / "generation_config.json").unlink(missing_ok=True)
        config = json.loads((directory / "config.json").read_text())
        config.pop("transformers_version", None)
        if edit_config:
            edit_config(config)
        (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        if edit_directory:
            edit_directory(directory)
        generator = torch.Generator().manual_seed(1000 + seed)
        prompt = torch.randint(config["vocab_size"], (PROMPT,), generator=generator).tolist()
        tokens, logits = run(load(directory, torch.float32), prompt)
        tokens64, logits64 = run(load(directory, torch.float64), prompt)
        # Greedy tokens are compared exactly, so no choice may be near a tie; and a continuation should not be one token over and over.
        if tokens == tokens64 and smallest_margin(logits) > 1e-2 and len(set(tokens[PROMPT:])) >= 4:
            break
        shutil.rmtree(directory)
    else:
        raise SystemExit(f"{name}: no seed gives a clear greedy continuation")
    rounding = float((logits.double() - logits64.double()).abs().max())
    save(directory / "expected",
         {"tokens": tokens, "prompt_tokens": [PROMPT], "logits": logits, "rounding": [rounding]})
    print(f"{name}: seed {seed}, |logit| <= {logits.abs().max():.2f}, rounding {rounding:.1e}, greedy {tokens[PROMPT:]}")


def make_shipped(name):
    directory = ASSETS / name
    tokens = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json")).encode(TEXT).ids[:64]
    assert len(tokens) == 64
    with torch.no_grad():
        logits = load(directory, torch.float32)(torch.tensor([tokens])).logits[0]
        logits64 = load(directory, torch.float64)(torch.tensor([tokens])).logits[0]
    generator = torch.Generator().manual_seed(7)
    ids = torch.randperm(logits.shape[1], generator=generator)[:64].sort().values
    save(HERE / "shipped" / name, {
        "tokens": tokens, "ids": ids, "logits": logits[:, ids], "logsumexp": logits.double().logsumexp(1),
        "rounding": [float((logits.double() - logits64.double()).abs().max())]})
    print(f"{name}: |logit| <= {logits.abs().max():.2f}, rounding {(logits.double() - logits64.double()).abs().max():.1e}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for model_name, description in MODELS.items():
        make_model(model_name, *description)
    for model_name in ("manpy-11m", "manpy-2m", "manpy-0.5m"):
        make_shipped(model_name)
