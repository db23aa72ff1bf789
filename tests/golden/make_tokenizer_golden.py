#!/usr/bin/env python3
"""Makes the golden values of tests/unit/tokenizer_golden_test.cpp with Hugging Face tokenizers, transformers and sentencepiece.

    python3 tests/golden/make_tokenizer_golden.py

Writes tests/data/tokenizers/: llama3-style/ and sentencepiece/ (small tokenizers trained here on texts of this repository and on
made-up ones) and golden.json: texts, and for each tokenizer their ids and, where it is another text, what the ids decode to. Texts are
kept as hex, so that no tool touches them.
The versions that made the committed values are recorded in golden.json. `--keep` keeps the trained tokenizers and renews the values only.
"""

import argparse
import gzip
import io
import json
import pathlib
import random

import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "tokenizers"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

MIXED = [
    "Größe, naïve café, Señor, Ærø, İstanbul ıI ſ ﬁ",
    "Привет, мир! Ёлка",
    "你好，世界。漢字かなカナ交じり文",
    "한국어 텍스트 조합 ᄒ\u1161ᆫ",
    "שלום עולם, مرحبا بالعالم ١٢٣ \u200f\u202bmixed\u202c",
    "नमस्ते दुनिया ४५६ ไทย ภาษาไทย",
    "e\u0301 a\u0308 n\u0303 \u0301 Z\u0351\u036b\u0343a\u0363lgo",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☺︎ 1️⃣",
    "𝒜𝓁𝑔𝑒𝒷𝓇𝒶 ½ ⅷ ² ③ ⁿ 𝟘𝟙𝟚 Ⅻ",
    "𐐷𐑌𐑁 𓀀𓀁 \U0001e4d0\U0001e4d1 \U00011f04\U00011f05 \U0001ccf0\U0001ccf1 \U00031350 \ua7cb\ua7dc \U00016d40\U00016d70",
    "\u180e a\u180eb \u200b \u200d \ufeff \u2060 \ufffd \uffff \ue000 \U0010ffff",
]

HARD = MIXED + [
    "",
    " ",
    "  ",
    "a",
    " a",
    "  a",
    "a ",
    "a  ",
    "a   b",
    "\n",
    "\r",
    "\r\n",
    "\r\n\r\n",
    "line one\r\nline two\r\rline three\n\n\nline four \n \n  x\n",
    "\ttabs\t\tand \t mixed\t \t",
    "def f(x):\n    if x:\n        return  x\n\n\n    # done   \n",
    "trailing spaces   \n   \n",
    " " * 100 + "x",
    "x" + " " * 257,
    "\n" * 70 + " " * 3 + "\t" * 9,
    "".join(map(chr, range(0x20))) + "\x7f",
    "".join(chr(c) + "a" for c in list(range(0x20)) + [0x7F]),
    "".join(chr(c) for c in range(0x80, 0x100)),
    "a\u00a0b \u00a0 c\u3000d\u3000\u3000e\u2003\u2028\u2029\u0085\u1680\u202f\u205f f",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 1e-9 ٣٤٥٦ 二〇二四",
    "I'm you're he's we've they'd she'll don't it's'ss 'tis",
    "I'M YOU'RE HE'S WE'VE THEY'D SHE'LL DON'T IT'S'SS 'TIS 'Ll 'rE 'ſ 'ſx",
    "’s ’t “quotes” ‘single’ …",
    "hello world Hello World HELLO WORLD helloWorld hello_world hello-world",
    "!!!???...,,,;;; (((a))) [[b]] {{c}} <d> /* e */ // f # g $h %i ^j &k *l",
    "http://example.com/path?query=1&other=two#frag user@example.org",
    "<|endoftext|>",
    "<|endoftext|><|endoftext|>",
    "a<|endoftext|>b",
    "a <|endoftext|> b",
    " <|endoftext|> ",
    "<|endoftext|", "|endoftext|>", "<|endoftext<|endoftext|>|>", "<|EndOfText|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>",
    "<|begin_of_text|>x<|begin_of_text|> x <|end_of_text|>",
    "<tool> <tool>  <tool>a a<tool> <tool_call> <tool", "left  <lstrip>  right", "left  <rstrip>  right", "<lstrip> <rstrip> <lstrip>",
    "a  <rstrip>  <lstrip>  b", "one <word> two<word>three <word>é é<word> _<word> <word>.", "ab<both>cd  <both>  ef<both>", "\u3000<both>\u00a0\r\nx",
    "<s>", "</s>", "<unk>", "<s>Hello</s>", "<s> Hello </s> there", "Hello<s>there <s> again</s></s>", "<0x41> <0x0A>",
    "▁", "▁▁a", " ▁ a", "a▁b",
    "supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ababababababababababab abcabcabcabcabc",
]


def fuzz_texts(seed, count):
    """Random strings whose characters come from a few classes at a time, so that class borders are frequent."""
    rng = random.Random(seed)
    pools = [
        "abcdefgABCDEFG", "  \t\n\r", "0123456789", "'’\"`", "'s'S't're'VE'll", ".,;:!?()[]{}<>|/\\_-+=*&^%$#@~",
        "éßøłñçž", "абвгдеж", "αβγδε", "漢字仮名交", "가나다라", "אבגד", "ابتث", "कखगघि", "😀👍🏽👩\u200d💻🇫🇷", "\u0301\u0308\u20dd",
        "\u00a0\u3000\u2009\u0085\u180e\u200b", "½²Ⅷ٣①", "\x00\x01\x1f\x7f", "ﬁﬀſK",
    ]
    words = ["<|endoftext|>", "<s>", "</s>", "<|eot_id|>", "<word>", "<lstrip>", "<rstrip>", "the ", " return", "def ", "\n    "]
    texts = []
    for _ in range(count):
        chosen = rng.sample(pools, rng.randint(1, 5))
        text = ""
        for _ in range(rng.randint(1, 24)):
            kind = rng.random()
            if kind < 0.08:
                text += rng.choice(words)
            elif kind < 0.14:
                code = rng.choice([rng.randrange(0x20), rng.randrange(0x800), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])
                text += chr(code)
            else:
                text += rng.choice(rng.choice(chosen)) * rng.choice([1, 1, 1, 2, 3])
        texts.append(text)
    return texts


def human_eval():
    with gzip.open(ROOT / "assets" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["prompt"] for line in lines]


def training_lines():
    lines = [line for prompt in human_eval() for line in prompt.splitlines(keepends=True)]
    rng = random.Random(7)
    for text in MIXED:
        words = text.split()
        lines += [" ".join(rng.choices(words, k=6)) + "\n" for _ in range(20)]
    return lines


def train_llama3(directory):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        training_lines(),
        trainers.BpeTrainer(vocab_size=1200, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False),
    )
    # A token that no chain of merges reaches: only ignore_merges finds it.
    data = json.loads(tokenizer.to_str())
    data["model"]["vocab"]["Ġreturnedly"] = len(data["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(data))
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([
        AddedToken("<tool>", normalized=False),
        AddedToken("<tool_call>", normalized=False),
        AddedToken("<lstrip>", lstrip=True, normalized=False),
        AddedToken("<rstrip>", rstrip=True, normalized=True),
        AddedToken("<word>", single_word=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
    ])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", begin)]),
    ])
    directory.mkdir(parents=True, exist_ok=True)
    data = json.loads(tokenizer.to_str())
    (directory / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def train_sentencepiece(directory, model_type, vocabulary):
    directory.mkdir(parents=True, exist_ok=True)
    lines = [line.rstrip("\n") for line in training_lines() if line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=model_type, vocab_size=vocabulary, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        split_digits=True, allow_whitespace_only_pieces=True, max_sentence_length=100000, minloglevel=2)
    (directory / "tokenizer.model").write_bytes(model.getvalue())


def hexed(text):
    return text.encode("utf-8").hex()


def fnv(values, width):
    value = 0xCBF29CE484222325
    for item in values:
        for byte in item.to_bytes(width, "little"):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def cases_of(encode, decode, texts):
    """[ids, decoded], with 0 for a text that comes back as it was."""
    cases = []
    for text in texts:
        ids = encode(text)
        decoded = decode(ids)
        cases.append([ids, 0 if decoded == text else hexed(decoded)])
    return cases


def tokenizers_cases(tokenizer, texts, skip_special=False):
    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids
    return cases_of(encode, lambda ids: tokenizer.decode(ids, skip_special_tokens=skip_special), texts)


def class_golden():
    """Members of the character classes, over all code points: the count and a hash."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, points))
    golden = {}
    for pattern in [r"\p{L}", r"\p{N}", r"\p{Nd}", r"\d", r"\s", r"[^\s\p{L}\p{N}]"]:
        rest = pre_tokenizers.Split(Regex(pattern + "+"), "removed").pre_tokenize_str(text)
        left = {ord(c) for piece, _ in rest for c in piece}
        members = [c for c in points if c not in left]
        golden[pattern] = [len(members), str(fnv(members, 4))]
    return golden


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the trained tokenizers, renew the values only")
    if not parser.parse_args().keep:
        train_llama3(DATA / "llama3-style")
        train_sentencepiece(DATA / "sentencepiece-bpe", "bpe", 1500)
        train_sentencepiece(DATA / "sentencepiece-unigram", "unigram", 900)

    texts = HARD + [" returnedly", " returned returnedly"] + fuzz_texts(20240214, 240)
    golden = {
        "versions": {m.__name__: m.__version__ for m in (tokenizers, transformers, sentencepiece)},
        "classes": class_golden(),
        "texts": [hexed(text) for text in texts],
        "cases": {},
    }
    manpy = Tokenizer.from_file(str(ROOT / "assets" / "manpy-11m" / "tokenizer.json"))
    golden["cases"]["assets/manpy-11m"] = tokenizers_cases(manpy, texts)

    gpt2 = transformers.GPT2Tokenizer.from_pretrained(str(ROOT / "tests" / "data" / "gpt2-tokenizer"))
    def gpt2_encode(text):
        return gpt2.encode(text, add_special_tokens=False)
    golden["cases"]["tests/data/gpt2-tokenizer"] = cases_of(
        gpt2_encode, lambda ids: gpt2.decode(ids, clean_up_tokenization_spaces=False), texts)
    golden["human_eval"] = [[len(ids), str(fnv(ids, 4))] for ids in map(gpt2_encode, human_eval())]

    llama3 = Tokenizer.from_file(str(DATA / "llama3-style" / "tokenizer.json"))
    golden["cases"]["tests/data/tokenizers/llama3-style"] = tokenizers_cases(llama3, texts)
    golden["add_special"] = {"tests/data/tokenizers/llama3-style": llama3.encode("Hello").ids}

    # Raw SentencePiece, on the texts that spell no special token (0 for the others).
    for name in ("sentencepiece-bpe", "sentencepiece-unigram"):
        model = sentencepiece.SentencePieceProcessor(model_file=str(DATA / name / "tokenizer.model"))
        golden["cases"][f"tests/data/tokenizers/{name}"] = [
            0 if any(token in text for token in ("<s>", "</s>", "<unk>")) else cases_of(model.encode, model.decode, [text])[0]
            for text in texts]

    # Special tokens in the text: transformers' rules, where no space begins a stretch that gets SentencePiece's space.
    with_special = ["<s>", "</s>", "<unk>", "<s>Hello</s>", "<s> Hello </s> there", "Hello<s>there <s> again</s></s>", "a</s>  b</s>\nc", "<s>a</s>b",
                    "return<unk>return"]
    golden["special_texts"] = [hexed(text) for text in with_special]
    for legacy in (False, True):
        llama = transformers.LlamaTokenizer.from_pretrained(str(DATA / "sentencepiece-bpe"), legacy=legacy, add_bos_token=True)
        cases = cases_of(lambda text: llama.encode(text, add_special_tokens=False), llama.decode, with_special)
        if legacy:
            cases = [0 if "> " in text else case for text, case in zip(with_special, cases)]
        golden["special_legacy" if legacy else "special"] = cases
        golden["add_special"]["tests/data/tokenizers/sentencepiece-bpe"] = llama.encode("Hello")
    (DATA / "golden.json").write_text(json.dumps(golden, separators=(",", ":")).replace('],[[', '],\n[[').replace('","', '",\n"') + "\n")


if __name__ == "__main__":
    main()
