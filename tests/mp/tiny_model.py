"""Llama directories small enough to write in a moment and to break in every way: random weights, one token a byte."""

import json
import os
import random
import struct

VOCABULARY = 256
CONTEXT = 64


def byte_alphabet():
    """The letter that stands for each byte in a byte-level vocabulary."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in kept}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len([b for b in letters if b not in kept])))
    return letters


def config(**changes):
    values = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": 0}
    values.update(changes)
    return values


def shapes(c):
    d, wide, vocabulary = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    head = d // c["num_attention_heads"]
    kv = head * c["num_key_value_heads"]
    found = {"model.embed_tokens.weight": [vocabulary, d], "lm_head.weight": [vocabulary, d], "model.norm.weight": [d]}
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        found.update({at + "input_layernorm.weight": [d], at + "post_attention_layernorm.weight": [d],
                      at + "self_attn.q_proj.weight": [d, d], at + "self_attn.k_proj.weight": [kv, d],
                      at + "self_attn.v_proj.weight": [kv, d], at + "self_attn.o_proj.weight": [d, d],
                      at + "mlp.gate_proj.weight": [wide, d], at + "mlp.up_proj.weight": [wide, d],
                      at + "mlp.down_proj.weight": [d, wide]})
    return found


class Safetensors:
    """A file's header and data, to be changed before it is written."""

    def __init__(self, tensors, seed=0):
        dice = random.Random(seed)
        self.header = {}
        data = []
        for name, shape in tensors.items():
            count = 1
            for size in shape:
                count *= size
            begin = 4 * len(data)
            data += [dice.gauss(0, 0.1) if len(shape) > 1 else 1.0 for _ in range(count)]
            self.header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
        self.data = struct.pack(f"<{len(data)}f", *data)

    def bytes(self):
        header = json.dumps(self.header).encode()
        return struct.pack("<Q", len(header)) + header + self.data

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self.bytes())


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_tokenizer(directory, swapped=()):
    """One token a byte; `swapped`: two letters whose ids change places."""
    letters = byte_alphabet()
    order = [letters[byte] for byte in range(256)]
    if swapped:
        a, b = (order.index(letter) for letter in swapped)
        order[a], order[b] = order[b], order[a]
    write_text(os.path.join(directory, "vocab.json"), json.dumps({letter: i for i, letter in enumerate(order)}))
    write_text(os.path.join(directory, "merges.txt"), "#version: 0.2\n")


def write(directory, seed=0, tokenizer=True, swapped=(), **changes):
    """A whole model; returns its directory and its Safetensors, for whoever wants to break it."""
    os.makedirs(directory)
    values = config(**changes)
    write_text(os.path.join(directory, "config.json"), json.dumps(values, indent=1))
    weights = Safetensors(shapes(values), seed)
    weights.write(os.path.join(directory, "model.safetensors"))
    if tokenizer:
        write_tokenizer(directory, swapped)
    return directory, weights
