# SPDX-License-Identifier: Apache-2.0
"""Calls while torch.compile traces: one custom operator of torch for each bound call.

The custom operator takes every tensor, outputs included, and returns nothing; it is declared to
change the outputs. So its fake kernel has nothing to compute, and outputs that the caller did not
bring are allocated in the traced code, with sizes that may be symbols.
"""

from __future__ import annotations

import zlib
from typing import Any

from . import _binding
from ._library import torch

_fragment = None
_defined: dict[str, Any] = {}
_schema_types = {
    "f64": "float?", "i64": "int?", "bool": "bool?", "enum": "str?", "dtype": "int?",
    "int_tuple": "int[]?", "tensor_list": "Tensor[]",
}


def _arguments(op) -> list[tuple[str, str, int]]:
    """(name, type in torch's schema, index of the value) of each argument."""
    out = []
    letter = iter("abcdefghijklmnopqrstuvwxyz")
    for i, row in enumerate(op.rows):
        if row is None or row.kind in ("workspace", "plan", "variant"):
            out.append((op.names[i], "int?", i))
        elif row.kind in ("out", "inout"):
            out.append((row.name, f"Tensor({next(letter)}!)?", i))
        elif row.kind == "in":
            out.append((row.name, "Tensor?", i))
        elif row.kind.endswith("_or_tensor"):
            out.append((row.name, "float?" if row.kind[0] == "f" else "int?", i))
            out.append((row.name + "_tensor", "Tensor?", i))
        else:
            out.append((row.name, _schema_types[row.kind], i))
    return out


def define(op) -> None:
    """Registers the custom operator of a bound call, once."""
    global _fragment
    if _fragment is None:
        _fragment = torch.library.Library("bolide", "FRAGMENT")
    arguments = _arguments(op)
    name = f"{op.name}_{zlib.crc32(' '.join(op.names).encode()):08x}"
    if name in _defined:
        op.custom = _defined[name]
        return
    schema = ", ".join(f"{kind} {arg}" for arg, kind, _ in arguments)
    _fragment.define(f"{name}({schema}) -> ()")

    def run(*args):
        values: list[Any] = [None] * len(op.names)
        for (_, _, i), value in zip(arguments, args):
            if value is not None:
                values[i] = value
        _binding.eager(op, values)

    def fake(*args):
        return None

    _fragment.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"bolide::{name}", fake, lib=_fragment)
    op.custom = _defined[name] = getattr(torch.ops.bolide, name).default


def trace(op, values):
    """The call in traced code."""
    values, made = _binding.allocate(op, values)
    args = []
    for _, kind, i in _arguments(op):
        value = values[i]
        tensor = isinstance(value, torch.Tensor)
        if kind.startswith("Tensor") and "[" not in kind:
            args.append(value if tensor else None)
        elif kind in ("float?", "int?") and tensor:
            args.append(None)
        elif kind == "str?" and isinstance(value, int):
            args.append(op.rows[i].choices[value])
        else:
            args.append(value)
    op.custom(*args)
    return _binding._result(made)
