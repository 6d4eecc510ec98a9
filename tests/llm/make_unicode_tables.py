#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/llm/unicode_tables.h, the three character classes that the tokenizer needs.

The tokenizer must cut text exactly where the package `tokenizers` cuts it, so the tables are taken
from that package, code point by code point: a letter joins a letter in its byte-level regular
expression, a blank is neither letter, digit nor sign there, and a numeric character is one that its
Digits splitter isolates.

    make_unicode_tables.py PATH            write the table
    make_unicode_tables.py --check PATH    exit 1 if the table differs from the package

The check also runs without the package: then it compares with Python's own Unicode database, for
those code points that this database knows.
"""
import re
import sys
import unicodedata

SURROGATES = range(0xD800, 0xE000)
CLASSES = ("letters", "numerics", "spaces")


def classes_of_package():
    """The classes as `tokenizers` has them, or None where it is not installed."""
    try:
        from tokenizers import __version__, pre_tokenizers
    except ImportError:
        return None, None
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True).pre_tokenize_str
    digits = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
    found = {name: [] for name in CLASSES}
    for code in range(0x110000):
        if code in SURROGATES:
            continue
        char = chr(code)
        if len(digits("a" + char)) == 2:
            found["numerics"].append(code)
        elif len(words("a" + char)) == 1:
            found["letters"].append(code)
        elif len(words("!" + char)) == 2:
            found["spaces"].append(code)
    return found, f"tokenizers {__version__}"


def class_by_database(code):
    category = unicodedata.category(chr(code))
    if category[0] == "L":
        return "letters"
    if category[0] == "N":
        return "numerics"
    if category[0] == "Z" or code in (9, 10, 11, 12, 13, 0x85):
        return "spaces"
    return None


def ranges(codes):
    result = []
    for code in codes:
        if result and result[-1][1] + 1 == code:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def render(found, source):
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "//",
        "// Character classes as ranges of code points, first and last, in rising order.  Written by",
        f"// tests/llm/make_unicode_tables.py from {source}; a test compares the two.",
        "#ifndef BOLIDE_LLM_UNICODE_TABLES_H",
        "#define BOLIDE_LLM_UNICODE_TABLES_H",
        "",
        "#include <stdint.h>",
        "",
        "// clang-format off",
    ]
    for name in CLASSES:
        lines.append(f"static const uint32_t unicode_{name}[][2] = {{")
        cells = [f"{{0x{first:04x}, 0x{last:04x}}}," for first, last in ranges(found[name])]
        lines += ["    " + " ".join(cells[i : i + 4]) for i in range(0, len(cells), 4)]
        lines += ["};", ""]
    lines[-1] = "// clang-format on"
    lines += ["", "#endif", ""]
    return "\n".join(lines)


def parse(text):
    """The classes of a written table, as sets."""
    found = {}
    for name, body in re.findall(r"unicode_(\w+)\[\]\[2\] = \{(.*?)\};", text, re.S):
        pairs = re.findall(r"\{0x([0-9a-f]+), 0x([0-9a-f]+)\}", body)
        found[name] = {c for a, b in pairs for c in range(int(a, 16), int(b, 16) + 1)}
    return found


def check_database(table):
    """Complaints about code points that Python's database knows and the table classes otherwise.

    A database newer than the table's Unicode 16 may know characters that the table does not.
    """
    wrong = []
    newer = int(unicodedata.unidata_version.split(".")[0]) > 16
    for code in range(0x110000):
        if code in SURROGATES or unicodedata.category(chr(code)) == "Cn":
            continue
        expected = class_by_database(code)
        got = next((name for name in CLASSES if code in table[name]), None)
        if expected != got and not (newer and got is None):
            wrong.append(f"U+{code:04X}: expected {expected}; got {got}")
    return wrong


def check_package(table, text):
    """Complaints about differences from the installed package; a note where it cannot be asked."""
    written_by = re.search(r"from (tokenizers [^;]+);", text).group(1)
    try:
        from tokenizers import __version__
    except ImportError:
        return [], "skip comparison with the package: tokenizers is not installed"
    if written_by != f"tokenizers {__version__}":
        return [], f"skip comparison with the package: {written_by} is needed, {__version__} is here"
    found, _ = classes_of_package()
    return [f"{n} differ from the package" for n in CLASSES if set(found[n]) != table[n]], None


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "--check":
        with open(arguments[1], encoding="ascii") as file:
            text = file.read()
        table = parse(text)
        wrong = check_database(table)
        more, note = check_package(table, text)
        for line in (wrong + more)[:20]:
            print("FAIL unicode_tables:", line)
        if note:
            print(note)
        print(f"{int(not wrong) + int(not more and not note)} passed, "
              f"{int(bool(wrong)) + int(bool(more))} failed, {int(bool(note))} skipped")
        return 1 if wrong or more else 0
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found, source = classes_of_package()
    if found is None:
        print("the package tokenizers is needed to write the table", file=sys.stderr)
        return 2
    with open(arguments[0], "w", encoding="ascii") as file:
        file.write(render(found, source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
