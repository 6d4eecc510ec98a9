# SPDX-License-Identifier: Apache-2.0
"""The interface against FlashInfer's: names, order, kinds and defaults of every parameter, members
of every enum, and that each documented name exists."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest

import bolide
from bolide import _dtypes, _missing_names

ROWS = json.loads((Path(__file__).parents[1] / "data" / "flashinfer_api.json").read_text())


def found(row):
    """What Bolide has under a row's name; None where it has nothing of its own."""
    module = row["module"].replace("flashinfer", "bolide", 1)
    try:
        value = importlib.import_module(module)
        for part in row["name"].split("."):
            value = getattr(value, part)
            if hasattr(value, "__bolide_missing__"):
                return None
    except (ImportError, AttributeError, NotImplementedError):
        return None
    return value


def label(row):
    return f"{row['module']}.{row['name']}"


HERE = [row for row in ROWS if found(row) is not None]
CALLS = [row for row in HERE if row["kind"] in ("function", "method", "class")]
ENUMS = [row for row in HERE if row["kind"] == "enum"]


class _Torch:
    """torch.NAME in a default's text stands for a dtype of ours, or a class."""

    def __getattr__(self, name):
        if name in _dtypes.BY_NAME:
            return _dtypes.BY_NAME[name]
        return SimpleNamespace(name=name)


def default_of(text):
    names = {"torch": _Torch(), "TopKTieBreak": bolide.TopKTieBreak, "max": max, "SfLayout":
             bolide.SfLayout, "MaskMode": bolide.utils.MaskMode,
             "TensorType": bolide.logits_processor.TensorType,
             "_DEFAULT_PAGED_KV_PAGE_SIZE": 32, "_MLA_LATENT_DIM": 512, "_MLA_ROPE_DIM": 64}
    return eval(text, names)


EFFECTIVE = {label(row): row["effective_params"] for row in ROWS if "effective_params" in row}


def parameters(row):
    """The parameters that count: those behind a ``**kwargs``, also under an alias."""
    plan = f"{row['module']}.{row.get('alias_of')}"
    return EFFECTIVE.get(label(row)) or EFFECTIVE.get(plan) or row.get("params") or []


@pytest.mark.parametrize("row", CALLS, ids=label)
def test_parameters(row):
    value = found(row)
    if isinstance(value, property):
        assert not parameters(row)
        return
    if row["kind"] == "class" and not parameters(row):
        return
    signature = inspect.signature(value)
    ours = list(signature.parameters.values())
    if row["kind"] == "method":
        ours = [p for p in ours if p.name != "self"]
    wanted = parameters(row)
    names = [p["name"].lstrip("*") for p in wanted]
    assert [p.name for p in ours][:len(names)] == names
    for p in ours[len(names):]:
        assert p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD, p.VAR_POSITIONAL), (
            f"{p.name} is not FlashInfer's")
    for p, w in zip(ours, wanted):
        if w["name"].startswith("*") or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        assert (p.kind is p.KEYWORD_ONLY) == bool(w.get("keyword_only")), p.name
        if w.get("default") is None:
            assert p.default is p.empty, p.name
        else:
            assert p.default == default_of(w["default"]), p.name


@pytest.mark.parametrize("row", ENUMS, ids=label)
def test_members(row):
    value = found(row)
    assert issubclass(value, Enum)
    members = row["members"]
    assert [m.name for m in value] == [m["name"] for m in members]
    for m in members:
        expected = eval(m["value"], {"auto": lambda: value[m["name"]].value})
        if isinstance(expected, tuple) and len(expected) == 1:
            expected = expected[0]
        if not isinstance(expected, tuple):
            assert value[m["name"]].value == expected


def test_documented_names_exist():
    lost = []
    for row in ROWS:
        if row["kind"] in ("method", "constant") or "." in row["name"]:
            continue
        if row.get("listed_in_docs") or row.get("exported_at_top"):
            module = importlib.import_module(row["module"].replace("flashinfer", "bolide", 1))
            if not hasattr(module, row["name"]):
                lost.append(label(row))
    assert not lost


def test_every_spelling_of_what_is_there():
    rows = {label(row): row for row in ROWS}
    lost = []
    for row in ROWS:
        other = rows.get(row.get("same_as"))
        if other is not None and (found(row) is None) != (found(other) is None):
            lost.append(label(row if found(row) is None else other))
    assert not lost


def test_what_coverage_counts_exists():
    rows = {label(row)[len("flashinfer."):]: row for row in ROWS}
    counted = {p.function for p in bolide.coverage().parameters}
    assert not [name for name in sorted(counted) if found(rows[name]) is None]


def test_missing_names_are_flashinfer_s():
    known = {label(row) for row in ROWS}
    wrong = [f"flashinfer.{module}.{name}" if module else f"flashinfer.{name}"
             for module, names in _missing_names.NAMES.items() for name in names.split()]
    assert not [name for name in wrong if name not in known]


def test_missing_names_raise():
    with pytest.raises(NotImplementedError, match=r"bolide\.fused_moe\.cutlass_fused_moe: not in"):
        bolide.fused_moe.cutlass_fused_moe()
    with pytest.raises(NotImplementedError, match=r"bolide\.comm\.AllReduceFusionPattern"):
        bolide.comm.AllReduceFusionPattern.kAllReduce
    with pytest.raises(AttributeError):
        bolide.comm.no_such_name
    with pytest.raises(AttributeError):
        bolide.no_such_name
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bolide.no_such_module")


def test_public_functions_have_text_and_hints():
    for row in CALLS:
        value = found(row)
        if row["kind"] == "function" and value.__module__.startswith("bolide"):
            assert value.__doc__, label(row)
            hints = [p for p in inspect.signature(value).parameters.values()
                     if p.annotation is p.empty]
            assert not hints, label(row)


def test_results_have_flashinfer_s_form():
    """A tuple where it has a tuple, nothing where it has none, one of two where it has that."""
    def form(annotation):
        text = str(annotation).replace("typing.", "").replace("Result", "Union[")
        return ("tuple" if text.lower().startswith("tuple") else "none" if text == "None"
                else "either" if "|" in text or text.startswith(("Union[", "Optional[")) else "one")

    for row in CALLS:
        value = found(row)
        if row["kind"] != "class" and inspect.isroutine(value) and row.get("returns"):
            ours = inspect.signature(value).return_annotation
            if ours is not inspect.Signature.empty and "Any" not in f"{ours}{row['returns']}":
                assert form(ours) == form(row["returns"]), (label(row), ours, row["returns"])


def _text(row, value):
    """The docstring of a function or class; a method's with that of its class."""
    if row["kind"] != "method":
        return value.__doc__
    owner = getattr(importlib.import_module(row["module"].replace("flashinfer", "bolide", 1)),
                    row["name"].split(".")[0])
    return f"{owner.__doc__} {value.__doc__}"


def test_docstrings_name_every_argument():
    """Class and static methods, and classes that only carry data, speak for themselves."""
    silent = {}
    for row in CALLS:
        value = found(row)
        if not (inspect.isfunction(value)
                or inspect.isclass(value) and "__init__" in vars(value)):
            continue
        named = set(re.findall(r"\w+", _text(row, value) or ""))
        missing = [p["name"] for p in parameters(row)
                   if p["name"] not in named | {"self"} and not p["name"].startswith(("_", "*"))]
        if missing:
            silent[label(row)] = missing
    assert not silent


def test_enum_repr_can_be_evaluated():
    member = bolide.ActivationType.Swiglu
    assert eval(repr(member), vars(bolide)) is member and member.is_gated
    assert not bolide.is_gated_activation(2)
