# SPDX-License-Identifier: Apache-2.0
"""The operator table as Python objects, read from the library at first use.

Besides listing the rows it can say which shape and dtype an output must have. The binding asks the
library for that; this copy of the rule serves where the library cannot be asked: sizes that are
symbols while torch.compile traces, and frameworks whose memory Python has to allocate.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any, NamedTuple

from . import _library

KINDS = ("in", "out", "inout", "f64", "i64", "bool", "enum", "dtype", "f64_or_tensor",
         "i64_or_tensor", "tensor_list", "int_tuple", "workspace", "plan", "variant", "comm")
OPTIONAL, HOST, EITHER = 1, 2, 4
NO_INT = -(2**63)


class _Param(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("doc", ctypes.c_char_p), ("kind", ctypes.c_int),
        ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint32), ("offset2", ctypes.c_uint32),
        ("dims", ctypes.c_char_p), ("dtypes", ctypes.c_int64), ("like", ctypes.c_char_p),
        ("alias", ctypes.c_char_p), ("choices", ctypes.c_char_p), ("f64", ctypes.c_double),
        ("i64", ctypes.c_int64),
    ]


class Row(NamedTuple):
    """One argument of an operator."""

    name: str
    doc: str
    kind: str
    flags: int
    dims: str | None
    dtypes: int
    like: str | None
    choices: tuple[str, ...]
    f64: float
    i64: int
    forms: tuple  # ((choice or None, (word, …)), …); a word is None, an int, a name or code

    @property
    def optional(self) -> bool:
        return bool(self.flags & OPTIONAL)

    @property
    def is_tensor(self) -> bool:
        return self.kind in ("in", "out", "inout")


def _prototypes():
    c = _library.core
    c.bolide_op_count.restype = ctypes.c_int64
    c.bolide_op_at.restype = ctypes.c_void_p
    c.bolide_op_at.argtypes = [ctypes.c_int64]
    c.bolide_op_find.restype = ctypes.c_void_p
    c.bolide_op_find.argtypes = [ctypes.c_char_p]
    for name in ("bolide_op_name", "bolide_op_family", "bolide_op_doc"):
        getattr(c, name).restype = ctypes.c_char_p
        getattr(c, name).argtypes = [ctypes.c_void_p]
    c.bolide_op_planned.argtypes = [ctypes.c_void_p]
    c.bolide_op_supports.argtypes = [ctypes.c_void_p, ctypes.c_int]
    c.bolide_op_param.restype = ctypes.POINTER(_Param)
    c.bolide_op_param.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
    return c


_c = _prototypes()


def operators() -> list[str]:
    """Names of all operators in table order."""
    return [_c.bolide_op_name(_c.bolide_op_at(i)).decode() for i in range(_c.bolide_op_count())]


def exists(op: str) -> bool:
    return bool(_c.bolide_op_find(op.encode()))


def _found(op: str):
    """An operator of the library; a name that is none would be read as one."""
    found = _c.bolide_op_find(op.encode())
    if not found:
        raise ValueError(f"{op}: no such operator")
    return found


def planned(op: str) -> bool:
    return bool(_c.bolide_op_planned(_found(op)))


def supports(op: str, device: str) -> bool:
    """Whether the operator exists in C for "cpu" or "cuda"."""
    found = _c.bolide_op_find(op.encode())
    return bool(found) and bool(_c.bolide_op_supports(found, 2 if device == "cuda" else 1))


def doc(op: str) -> str:
    return _c.bolide_op_doc(_found(op)).decode()


@functools.lru_cache(maxsize=None)
def rows(op: str, phase: str = "run") -> tuple[Row, ...]:
    """Rows of a phase, "run" or "plan"."""
    found = _found(op)
    out = []
    while p := _c.bolide_op_param(found, phase == "plan", len(out)):
        r = p.contents
        text = [x.decode() if x is not None else None
                for x in (r.name, r.doc, r.dims, r.like, r.choices)]
        out.append(Row(text[0], text[1], KINDS[r.kind], r.flags, text[2], r.dtypes, text[3],
                       tuple((text[4] or "").split()), r.f64, r.i64, _forms(text[2])))
    return tuple(out)


# ---- dimensions -----------------------------------------------------------------------------

_TOKEN = re.compile(r"\d+|[A-Za-z_][A-Za-z0-9_]*|[()+\-*/,]")


def _forms(dims: str | None) -> tuple:
    if dims is None:
        return ()
    if "=" in dims:
        name, rest = dims.split("=", 1)
        forms = [part.split(":", 1) for part in rest.split(";")]
        return tuple(((name, c.strip()), tuple(map(_word, w.split()))) for c, w in forms)
    return tuple((None, tuple(map(_word, part.split()))) for part in dims.split("|"))


def _word(text: str):
    if text == "_":
        return None
    if text.isdigit():
        return int(text)
    if text.isidentifier():
        return text
    tokens = _TOKEN.findall(text)
    tree, rest = _sum(tokens)
    assert not rest, text
    return tree


def _sum(tokens):
    left, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        right, rest = _product(tokens[1:])
        left, tokens = (tokens[0], left, right), rest
    return left, tokens


def _product(tokens):
    left, tokens = _atom(tokens)
    while tokens and tokens[0] in "*/":
        right, rest = _atom(tokens[1:])
        left, tokens = (tokens[0], left, right), rest
    return left, tokens


def _atom(tokens):
    head, tokens = tokens[0], tokens[1:]
    if head == "(":
        tree, tokens = _sum(tokens)
        return tree, tokens[1:]
    if head in ("ceil", "pad") and tokens and tokens[0] == "(":
        tree, tokens = _sum(tokens[1:])
        if head == "ceil":
            return ("c", tree[1], tree[2]), tokens[1:]
        other, tokens = _sum(tokens[1:])
        return ("p", tree, other), tokens[1:]
    return (int(head) if head.isdigit() else head), tokens


def _value(word, names):
    """Value of a word for the known names; None if one is missing."""
    if word is None or isinstance(word, int):
        return word
    if isinstance(word, str):
        return names.get(word)
    op, a, b = word[0], _value(word[1], names), _value(word[2], names)
    if a is None or b is None:
        return None
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "/":
        return a // b
    up = (a + b - 1) // b
    return up if op == "c" else up * b


def _learn(word, size, names):
    """Binds the name in a word to the size seen; forms such as b+1 and 2*d are solved."""
    if isinstance(word, str):
        name = word
    elif isinstance(word, tuple) and isinstance(word[1], str) and isinstance(word[2], int):
        name = word[1]
        if word[0] == "+":
            size = size - word[2]
        elif word[0] == "-":
            size = size + word[2]
        elif word[0] == "*":
            size = size // word[2]
        else:
            return
    else:
        return
    if name not in names:
        names[name] = size


def bind_names(table: tuple[Row, ...], given: dict[str, Any], shape_of) -> dict[str, Any]:
    """Names of dimensions and numbers, from the arguments at hand by row name."""
    names: dict[str, Any] = {}
    for row in table:
        value = given.get(row.name)
        if row.kind == "i64":
            value = row.i64 if value is None else value
            if value != NO_INT:
                names[row.name] = value
        elif row.kind == "enum":
            value = row.i64 if value is None else value
            names[row.name] = value if isinstance(value, str) else row.choices[value]
        elif (row.forms and value is not None
              and not isinstance(value, (int, float, bool, complex, str))):
            shape = shape_of(value)
            for choice, words in row.forms:
                if len(words) != len(shape) or (choice and names.get(choice[0]) != choice[1]):
                    continue
                for word, size in zip(words, shape):
                    _learn(word, size, names)
                break
    return names


def output(row: Row, table: tuple[Row, ...], given: dict[str, Any], names: dict[str, Any],
           bit_of_tensor) -> tuple[tuple, int] | None:
    """Shape and dtype bit of an output; None where the inputs do not decide them."""
    bit = row.dtypes if row.dtypes and row.dtypes & (row.dtypes - 1) == 0 else 0
    if row.like:
        like = None
        for other in table:  # a loop, which older versions of torch.compile trace
            if other.name == row.like:
                like = other
                break
        value = given.get(row.like)
        if like is None:
            return None
        if like.kind == "dtype":
            bit = like.i64 if value is None else value
        else:
            bit = like.dtypes & -like.dtypes if value is None else bit_of_tensor(value)
    for choice, words in reversed(row.forms):
        if choice and names.get(choice[0]) != choice[1]:
            continue
        shape = tuple(_value(word, names) for word in words)
        if bit and bit != NO_INT and all(s is not None and s >= 0 for s in shape):
            return shape, bit
    return None
