"""One set of numbers as both programs want it: a folder with config.json and model.safetensors, and a GGUF file of the same.

Only what writes needs numpy and the package `gguf` (pip install gguf); the names, the rows and the made-up vocabulary do not.

llama.cpp turns pairs of neighbouring elements of a head (2i, 2i+1), Hugging Face's layout element i with i + half; so rows of q and k change places on the
way to GGUF, within each head, and attention scores stay what they were.
"""

import json
import pathlib
import re
import struct

SHAPES = {  # as in config.json
    "llama-1.1b": {"num_hidden_layers": 22, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632,
                   "vocab_size": 32000, "tie_word_embeddings": False},
    "llama-134m": {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
                   "vocab_size": 49152, "tie_word_embeddings": True},
}
COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
BLOCKS = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
          "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
          "mlp.down_proj": "ffn_down"}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


class Unusable(Exception):
    """One line: what was found, what was expected."""


def config_of(shape):
    last = shape["vocab_size"] - 1
    return {**COMMON, **shape, "bos_token_id": last, "eos_token_id": last}


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def tensor_shapes(config):
    """{name: shape} of a Llama checkpoint, in the order in which a pass reads it."""
    width, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * head_dim(config)
    keys = config["num_key_value_heads"] * head_dim(config)
    shapes = {"model.embed_tokens.weight": (vocabulary, width)}
    for layer in range(config["num_hidden_layers"]):
        of_layer = {"input_layernorm": (width,), "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width), "self_attn.v_proj": (keys, width),
                    "self_attn.o_proj": (width, queries), "post_attention_layernorm": (width,), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
                    "mlp.down_proj": (width, inner)}
        shapes.update({f"model.layers.{layer}.{name}.weight": shape for name, shape in of_layer.items()})
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocabulary, width)
    return shapes


def gguf_name(name):
    """The tensor's name in GGUF."""
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name)
    if name in WHOLE:
        return WHOLE[name]
    if not found or found[2] not in BLOCKS:
        raise Unusable(f"found a tensor {name}, expected those of a Llama without biases")
    return f"blk.{found[1]}.{BLOCKS[found[2]]}.weight"


def rows_in_pairs(heads, dim):
    """Row n of q or k in GGUF is row rows_in_pairs(...)[n] of the checkpoint."""
    half = dim // 2
    return [head * dim + element % 2 * half + element // 2 for head in range(heads) for element in range(dim)]


def moved_rows(name, config):
    """Which rows of the checkpoint stand where in GGUF; None where all stay."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    return heads and rows_in_pairs(config[heads], head_dim(config))


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    printed = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


def made_up_vocabulary(size):
    """(tokens, merges): the bytes, then tokens that are read as their own number."""
    letters = byte_letters()
    space = letters[ord(" ")]
    return letters + [f"{space}{token}" for token in range(256, size)], [f"{space} {space}"]


def vocabulary_of(folder, size):
    """(tokens by id, merges, ids of special tokens) of a folder's tokenizer.json; made up where there is none."""
    path = pathlib.Path(folder) / "tokenizer.json"
    if not path.exists():
        return (*made_up_vocabulary(size), {size - 1})
    read = json.loads(path.read_text(encoding="utf-8"))
    tokens = {token: text for text, token in read["model"]["vocab"].items()}
    tokens.update({added["id"]: added["content"] for added in read["added_tokens"]})
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in read["model"]["merges"]]
    return [tokens.get(token, f"[unused{token}]") for token in range(size)], merges, {added["id"] for added in read["added_tokens"] if added["special"]}


def imported():
    """numpy and gguf."""
    try:
        # pylint: disable=import-outside-toplevel
        import gguf
        import numpy
    except ImportError as error:
        raise Unusable(f"found no Python package {error.name}, expected gguf to write GGUF files (pip install gguf)") from error
    return numpy, gguf


def write_random(folder, config, seed=1):
    """config.json and model.safetensors, bf16: matrices of the standard deviation 1 / sqrt(inputs), norms of 1."""
    numpy, _ = imported()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    header, end = {}, 0
    for name, shape in tensor_shapes(config).items():
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = numpy.random.Generator(numpy.random.SFC64(seed))
    partial = folder / "model.partial"
    with open(partial, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensor_shapes(config).values():
            values = numpy.ones(shape, numpy.float32)
            if len(shape) == 2:
                generator.standard_normal(shape, numpy.float32, out=values)
                values *= numpy.float32(shape[1] ** -0.5)
            bits = values.view(numpy.uint32)
            bits += 0x7FFF + (bits >> 16 & 1)
            (bits >> 16).astype("<u2").tofile(file)
    partial.rename(folder / "model.safetensors")


def read_safetensors(path):
    """{name: array of bf16 bits, mapped}."""
    numpy, _ = imported()
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            if entry["dtype"] != "BF16":
                raise Unusable(f"{path}: {name}: found {entry['dtype']}, expected BF16")
            tensors[name] = numpy.memmap(path, "<u2", "r", 8 + length + entry["data_offsets"][0], tuple(entry["shape"]))
    return tensors


def write_gguf(folder, path):
    """The folder's model as GGUF: matrices in bf16 as they are, norms in fp32, in which they are the same numbers."""
    numpy, gguf = imported()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokens, merges, special = vocabulary_of(folder, config["vocab_size"])
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(str(partial), "llama")
    writer.add_name(folder.name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(head_dim(config))
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    for name, bits in read_safetensors(folder / "model.safetensors").items():
        rows = moved_rows(name, config)
        if bits.ndim == 1:
            writer.add_tensor(gguf_name(name), (bits.astype(numpy.uint32) << 16).view(numpy.float32))
        else:
            moved = numpy.ascontiguousarray(bits if rows is None else bits[rows])
            writer.add_tensor(gguf_name(name), moved.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)


def prepared(name, shipped, work):
    """(folder, GGUF file) of a shape's name or of a shipped model, written where they are not there yet."""
    folder = shipped / name
    if name in SHAPES:
        folder = work / name
        if not (folder / "model.safetensors").exists():
            write_random(folder, config_of(SHAPES[name]))
    gguf_file = work / f"{name}.gguf"
    if not gguf_file.exists():
        work.mkdir(parents=True, exist_ok=True)
        write_gguf(folder, gguf_file)
    return folder, gguf_file


def results_of(path):
    """(token ids, logits [tokens, vocabulary]) that llama-results wrote."""
    numpy, gguf = imported()
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(str(path)).tensors}
    ids = numpy.asarray(tensors["tokens"]).reshape(-1).astype(int)
    return ids.tolist(), numpy.asarray(tensors["logits"], numpy.float32).reshape(len(ids), -1)


def difference(ours, theirs):
    """(sum of squared differences over the sum of squares, share of rows with the same greatest logit)."""
    numpy, _ = imported()
    apart = numpy.square(ours.astype(numpy.float64) - theirs).sum() / numpy.square(ours.astype(numpy.float64)).sum()
    return float(apart), float((ours.argmax(1) == theirs.argmax(1)).mean())
