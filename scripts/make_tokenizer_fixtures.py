#!/usr/bin/env python3
"""Makes the tokenizer fixtures: a corpus of strings, and the ids llama.cpp gives them for a real model.

    python3 -m venv venv && venv/bin/pip install llama-cpp-python
    venv/bin/python scripts/make_tokenizer_fixtures.py smollm2=SmolLM2-135M-Instruct.gguf gemma3=gemma-3-270m.gguf

Writes crates/text/tests/fixtures/tokenizer/corpus.txt, one JSON string a line, and for each model NAME.bin. All
numbers in NAME.bin are little-endian u32:

    number of strings (of the corpus, in order)
    for each string, twice (special tokens as text, then parsed): count << 1 | 0, then that many ids;
        the second is only `1` when it equals the first
    number of tokens, FNV-1a (64 bits, low half first) over every token's piece, each preceded by its length
        as u32; special tokens give their spelling
"""

import ctypes
import json
import pathlib
import random
import struct
import sys
import unicodedata

import llama_cpp

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/tokenizer"

SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<reponame>", "<file_sep>", "<empty_output>",
    "<jupyter_code>", "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "[multimodal]", "<unused0>", "<unused99>",
    "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<image_soft_token>", "<s>", "</s>", "[INST]",
    "<|eot_id|>", "<|begin_of_text|>", "<｜User｜>", "<think>", "</think>", "<tool_call>", "<h1>", "</h1>", "<table>",
    "<strong>", "<0x0A>", "<0xFF>", "<|im_start", "im_start|>", "<|im_<|im_end|>start|>", "<<|im_end|>>",
]
SCRIPTS = [
    "The quick brown fox jumps over the lazy dog. It didn't stop, and they're sure it'll come back; we've seen it.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép. Ça va être très difficile.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Жебракують філософи при ґанку церкви в Гадячі.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Τάχιστη αλώπηξ βαφής ψημένη γη.",
    "今日は天気がいいから散歩しましょう。カタカナとひらがなと漢字、ｱｲｳ半角も。",
    "我能吞下玻璃而不伤身体。天地玄黃，宇宙洪荒。𠀀𠀁𠀂 𪚥",
    "다람쥐 헌 쳇바퀴에 타고파. 키스의 고유조건은 입술끼리 만나야 하고.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. ٠١٢٣٤٥٦٧٨٩",
    "עטלף אבק נס דרך מזגן שהתפוצץ כי חם. שָׁלוֹם עֲלֵיכֶם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। १२३४५६७८९०",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๐๑๒๓",
    "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல். తెలుగు భాష. ಕನ್ನಡ. മലയാളം. বাংলা ভাষা ১২৩. ગુજરાતી. ਪੰਜਾਬੀ. සිංහල. မြန်မာ. ខ្មែរ. ລາວ.",
    "ქართული ენა. Հայերեն. አማርኛ. ᏣᎳᎩ. ᚠᛇᚻ᛫ᛒᛦᚦ. བོད་སྐད. ᠮᠣᠩᠭᠣᠯ. ⵜⴰⵎⴰⵣⵉⵖⵜ. 𐎠𐎼. 𝒜𝓈𝒸𝓇𝒾𝓅𝓉 𝟘𝟙𝟚 Ⅷ ½ ² ₃ ①",
    "Türkçe: İstanbul'da ılık. Tiếng Việt: Nguyễn Thị Hằng đã ăn phở ở Hà Nội. Íslenska: þórður.",
]
CODE = [
    "fn main() {\n    let x: Vec<u8> = vec![0; 1 << 20];\n\tprintln!(\"{x:?}\");\n}\n",
    "def f(x, *, y=1.5e-10):\n    \"\"\"Doc.\"\"\"\n    return {k: v**2 for k, v in x.items() if v != y}\n\n\nclass A(B):\n    pass\n",
    "#include <stdio.h>\r\nint main(void) {\r\n\tfor (int i=0;i<10;++i) { printf(\"%d\\n\", i); }\r\n\treturn 0;\r\n}\r\n",
    "SELECT a.id, COUNT(*) FROM t1 AS a LEFT JOIN t2 b ON a.id=b.id WHERE a.x >= 100 GROUP BY 1 -- c\n;",
    "<html>\n  <body class=\"x\">\n    <p>a &amp; b</p>\n  </body>\n</html>",
    "{\"a\": [1, 2.50, -3e8], \"b\": null, \"c\": {\"d\": \"\\u00e9\\n\"}}",
    "if [ -z \"$X\" ]; then\n  echo 'no' >&2; exit 1\nfi\ncurl -s http://a.b/c?d=e\\&f | jq '.[]|.x'",
    "$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$ and $a_{ij} \\le b^{2n+1}$",
    "| a | b |\n|---|:-:|\n| 1 | **x** |\n\n- [ ] todo\n  1. one\n\n```rust\nx += 1;\n```\n> q\n",
    "x=1;y=-2;z=x+y;a=b==c;d!=e;f<=g;h&&i||!j;k??l;m?.n;o=>p;q->r;s::t;u...v;w**x;y//z;#!/bin/sh;@a;~b;`c`",
    "0x1F 0b1010 1_000_000 3.14159 1e-9 2024-02-29T23:59:59Z 192.168.0.1 +1 (555) 010-9999 100% $5.00 €10 £7",
]
EMOJI = ["😀", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "☺️", "☺", "1️⃣", "🧑🏿‍🚀", "❤️‍🔥", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🤷🏼‍♀️"]
BLANKS = [" ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u3000", "\u2009", "\u2028", "\u0085", "\u1680", "\v", "\f", "\u200b", "\ufeff"]


def words(rng):
    return rng.choice(SCRIPTS + CODE).split(" ")


def plane_strings(rng):
    """Characters of every plane, assigned or not, noncharacters and private use too."""
    strings = []
    for plane in range(17):
        for _ in range(14):
            start = (plane << 16) + rng.randrange(0, 0xFFF0)
            chars = [start + i for i in range(8)] + [(plane << 16) + rng.randrange(0x10000) for _ in range(6)]
            strings.append("".join(chr(c) for c in chars if not 0xD800 <= c < 0xE000))
        strings.append("a" + chr((plane << 16) + 0xFFFE) + "b" + chr((plane << 16) + 0xFFFF) + " c")
    for start in range(0, 0x3400, 0x40):
        strings.append("".join(map(chr, range(start, start + 0x40))))
    for start in range(0xA000, 0xD800, 0x200):
        strings.append("".join(map(chr, range(start, start + 0x40))))
    for start in list(range(0xFB00, 0x10000, 0x40)) + list(range(0x1D400, 0x1D800, 0x40)) + list(range(0x1F000, 0x1FC00, 0x80)):
        strings.append("".join(map(chr, range(start, start + 0x40))))
    strings += ["".join(map(chr, range(0xFDD0, 0xFDF0))), "\ue000\uf8ff x", "\U000F0000\U000FFFFD", "\U00100000\U0010F000\U0010FFFD"]
    return strings


def one_of_each_category(rng):
    """Blank, letter or digit beside a character of every general category."""
    by_category = {}
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            by_category.setdefault(unicodedata.category(chr(code)), []).append(code)
    strings = []
    for codes in by_category.values():
        for _ in range(8):
            c, d = chr(rng.choice(codes)), chr(rng.choice(codes))
            strings += [f"a{c} b{d}c", f" {c}{d}1{c}\n {d}", f"{c}'s {d}x  {c}"]
    return strings


def corpus():
    rng = random.Random(20240229)
    strings = ["", " ", "  ", "a", " a", "a ", "▁", "▁▁", " ▁ ", "\0", "\0a\0", "Ġ", "Ċ", "é", "e\u0301"]
    strings += SCRIPTS + CODE + EMOJI + SPECIAL
    strings += plane_strings(rng) + one_of_each_category(rng)
    for n in list(range(1, 40)) + [63, 64, 65, 100]:
        strings += [" " * n, " " * n + "x", "x" + " " * n, "\n" * n, "a" + "\n" * n + "b", "\t" * n + "x"]
    for quote in ["'", "’"]:
        for end in ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "M", "LL", "lL", "D", "x", "ſ"]:
            strings.append(f"it{quote}{end} IT{quote}{end}a {quote}{end} {quote}{quote}{end}")
    for digits in ["0", "12", "123", "1234", "12345", "1234567890", "1,234.5", " 7", "a1b22c333d4444", "３４５", "٣٤٥٦", "Ⅷ½²"]:
        strings += [digits, f"x {digits} y", f"{digits}{digits}"]
    for a in SPECIAL:
        strings += [f"x{a}y", f" {a} ", f"{a}{a}", f"{a}\n\nHi {rng.choice(SPECIAL)} there{rng.choice(SPECIAL)}", a[:-1], a[1:]]
    for a in BLANKS:
        for b in BLANKS:
            strings.append(f"a{a}{b}b {a}c{b}")
    for c in ["a", "Z", "9", "!", "-", "=", "中", "é", "😀", "\u0301", "\u00a0", "ab", "\r\n", " a", "ha", "<", "▁"]:
        strings += [c * 7, c * 50, c * 300]
    for _ in range(250):
        strings.append("".join(rng.choice(EMOJI + BLANKS + ["a", "B", "1", "'s", "_", "\u0301", "中", "."]) for _ in range(rng.randrange(2, 12))))
    for _ in range(200):
        strings.append("".join(chr(rng.randrange(0x20)) if rng.random() < 0.4 else chr(rng.randrange(0x20, 0x180)) for _ in range(rng.randrange(1, 20))))
    for _ in range(250):
        picked = [rng.choice(words(rng)) for _ in range(rng.randrange(2, 10))]
        strings.append("".join(w + rng.choice(BLANKS[:6] + [" ", " ", ""]) for w in picked))
    for _ in range(60):
        strings.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789+/") for _ in range(rng.randrange(100, 260))))
    return list(dict.fromkeys(strings))


class Model:
    def __init__(self, path):
        llama_cpp.llama_log_set(LOG, ctypes.c_void_p())
        self.llama = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        self.vocab = llama_cpp.llama_model_get_vocab(self.llama.model)

    def encode(self, text, parse):
        data = text.encode()
        room = len(data) + 8
        ids = (llama_cpp.llama_token * room)()
        n = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, room, False, parse)
        assert n >= 0, n
        return list(ids[:n])

    def pieces(self):
        for token in range(llama_cpp.llama_vocab_n_tokens(self.vocab)):
            room = ctypes.create_string_buffer(4096)
            n = llama_cpp.llama_token_to_piece(self.vocab, token, room, 4096, 0, True)
            assert n >= 0, n
            yield room.raw[:n]


@llama_cpp.llama_log_callback
def LOG(_level, _text, _data):
    pass


def fixture(model, strings):
    numbers = [len(strings)]
    for text in strings:
        plain, parsed = model.encode(text, False), model.encode(text, True)
        for ids in [plain] if plain == parsed else [plain, parsed]:
            numbers += [len(ids) << 1, *ids]
        if plain == parsed:
            numbers.append(1)
    count, fnv = 0, 0xCBF29CE484222325
    for piece in model.pieces():
        count += 1
        for byte in struct.pack("<I", len(piece)) + piece:
            fnv = (fnv ^ byte) * 0x100000001B3 % 2**64
    numbers += [count, fnv % 2**32, fnv >> 32]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def main():
    strings = corpus()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "corpus.txt").write_text("".join(json.dumps(s) + "\n" for s in strings))
    for argument in sys.argv[1:]:
        name, path = argument.split("=", 1)
        data = fixture(Model(path), strings)
        (OUT / f"{name}.bin").write_bytes(data)
        print(f"{name}: {len(strings)} strings, {len(data)} bytes")


if __name__ == "__main__":
    main()
