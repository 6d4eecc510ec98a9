#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the example's tokenizer with the package `tokenizers` on generated strings.

    check_tokenizer.py MODEL.gguf LLM_TOKENIZE...

LLM_TOKENIZE is the program under test, with an emulator before it where one is needed.  COUNT and
SEED in the environment change the number of strings and fix what is random about them.

Vocabulary and merges are read from the GGUF file by the few lines below and not by the reader under
test.  Skips with a reason where the package or the model is missing.
"""
import os
import random
import struct
import subprocess
import sys

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Metadata:
    """The metadata of a GGUF file as a dictionary."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 8
        _, count = self.number("Q"), self.number("Q")
        self.values = {self.string(): self.value(self.number("I")) for _ in range(count)}

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, count = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(count)]
        return self.number(FORMATS[kind])


def reference(path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    values = Metadata(path).values
    vocabulary = {text: i for i, text in enumerate(values["tokenizer.ggml.tokens"])}
    merges = [tuple(line.split(" ")) for line in values["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


WORDS = (
    "the The quick brown don't I'll we've they're she'd it's I'm 'tis O'Neill 'S 'LL ''s s' "
    "international supercalifragilistic straße naïve café cafe\u0301 Ångström Zürich Ελλάδα Москва "
    "привет שלום עִבְרִית مرحبا العربية हिन्दी नमस्ते ไทย ภาษาไทย 你好 世界 中文字符 日本語 カタカナ ひらがな 한국어 "
    "안녕하세요 <|im_start|> <|im_end|> <|endoftext|> <repo_name> system assistant Ġthe Ċ ▁ "
    "int main(void) printf(\"%d\\n\") a+b==c x->y /* */ // #include <stdio.h> http://a.b/c?d=e&f "
    "C:\\Windows ... --- === $100 50% 3.14 1,000,000 2024-01-01 0xdeadbeef 1e-9"
).split(" ")
DIGITS = "0123456789٠١٢٣٤٥٦٧٨٩۰۱۲۳०१२三四五½¾²³①②⑩ⅣⅫ〇๑๒𝟘𝟙𝟚༣৪"
BLANKS = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u2003", "\u2028",
          "\u0085", "\u200b", "\ufeff", "\x0b", "\x0c", "\x1c", "\x1f", "\u1680", "\u202f", "\u205f"]
EMOJI = ["😀", "👨\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "👍🏽", "🇩🇪", "❤️", "1️⃣", "🧑🏿\u200d🚀", "☺", "🫠"]
MARKS = "\u0300\u0301\u0302\u0327\u0338\u20dd\u0655\u093c\u0e31\ufe0f\u200d\u200c\u202e"
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»“”‘’…–—€£¥©®™°±×÷→⇒∀∑√∞≈♪\u0000\u0001\u0004\u007f"


def character(rng):
    while True:
        plane = rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000])
        code = rng.randrange(plane)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def piece(rng):
    kind = rng.randrange(12)
    if kind < 3:
        return rng.choice(WORDS)
    if kind == 3:
        return "".join(rng.choice(DIGITS) for _ in range(rng.randrange(1, 6)))
    if kind == 4:
        return "".join(rng.choice(BLANKS) for _ in range(rng.randrange(1, 6)))
    if kind == 5:
        return rng.choice(EMOJI)
    if kind == 6:
        return rng.choice("aeouxyAO") + "".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 4)))
    if kind == 7:
        return "".join(rng.choice(SIGNS) for _ in range(rng.randrange(1, 4)))
    if kind == 8:
        return "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(rng.randrange(1, 8)))
    if kind == 9:
        return "".join(character(rng) for _ in range(rng.randrange(1, 5)))
    if kind == 10:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(1, 30)))
    return rng.choice([" ", " ", " ", "\n", "'"])


def text(rng, index):
    """Bytes of one string; every tenth is damaged so that it is no longer UTF-8."""
    if index == 0:
        return b""
    if index == 1:
        return b"a" * 20000
    if index == 2:
        return ("ab" * 3000 + "é" * 3000).encode()
    if index == 3:
        return bytes(range(256))
    glue = rng.choice(["", "", " "])
    data = glue.join(piece(rng) for _ in range(rng.randrange(1, 40))).encode("utf-8")
    if index % 10 == 9:
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            damaged.insert(rng.randrange(len(damaged) + 1), rng.randrange(0x80, 0x100))
        data = bytes(damaged[: rng.randrange(1, len(damaged) + 1)])
    return data


def skip(reason):
    print(f"skip check_tokenizer: {reason}")
    print("0 passed, 0 failed, 1 skipped")
    return 0


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    model, tool = sys.argv[1], sys.argv[2:]
    count = int(os.environ.get("COUNT", "2000"))
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    try:
        import tokenizers
    except ImportError:
        return skip("the package tokenizers is not installed")
    if not os.path.exists(model):
        return skip("the model file is not there")
    rng = random.Random(seed)
    texts = [text(rng, i) for i in range(count)]
    records = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    run = subprocess.run(tool + [model], input=records, stdout=subprocess.PIPE, check=False)
    lines = run.stdout.decode("ascii").split("\n")[:-1]
    failed = int(run.returncode != 0 or len(lines) != count)
    if failed:
        print(f"FAIL check_tokenizer: exit status {run.returncode}, {len(lines)} of {count} lines")
    standard = reference(model)
    for data, line in zip(texts, lines):
        got = [int(word) for word in line.split()]
        expected = standard.encode(data.decode("utf-8", "replace")).ids
        if got != expected:
            failed += 1
            if failed <= 5:
                print(f"FAIL check_tokenizer: {data!r}\n  expected {expected}\n  got      {got}")
    print(f"{count - failed} strings alike, seed {seed}, tokenizers {tokenizers.__version__}")
    print(f"{int(failed == 0)} passed, {int(failed != 0)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
