# SPDX-License-Identifier: Apache-2.0
"""Bolide as ``flashinfer``: what is there, what is absent, and the names that engines use."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bolide
from bolide import _alias, _alias_names

DATA = Path(__file__).parents[1] / "data"
ROWS = json.loads((DATA / "flashinfer_api.json").read_text())
ENGINES = [line.split() for line in (DATA / "engine_names.txt").read_text().splitlines()
           if line and line[0] != "#"]
LATER = [line.split() for line in (DATA / "later_keywords.txt").read_text().splitlines()
         if line and line[0] != "#"]

bolide.install_as_flashinfer()
import flashinfer  # noqa: E402


def resolve(name):
    """The value of a dotted name; None where it is absent."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:i]))
            for part in parts[i:]:
                value = getattr(value, part)
            return value
        except ImportError:
            continue
        except AttributeError:
            return None
    return None


def test_what_is_there():
    assert flashinfer.__version__ == "0.6.18"
    assert importlib.metadata.version("flashinfer-python") == "0.6.18"
    assert importlib.metadata.version("flashinfer_python") == "0.6.18"
    assert importlib.util.find_spec("flashinfer_cubin") is not None
    from flashinfer.sampling import softmax

    assert flashinfer.decode.fast_decode_plan is bolide.fast_decode_plan
    assert softmax is bolide.sampling.softmax
    assert flashinfer.BatchAttention is bolide.BatchAttention
    bolide.install_as_flashinfer()
    assert sys.meta_path.count(_alias._FINDER) == 1


def test_a_function_hides_the_module_of_its_name():
    from flashinfer.cudnn.prefill import cudnn_batch_prefill_with_kv_cache
    from flashinfer.xqa import xqa

    assert callable(flashinfer.xqa) and inspect.signature(flashinfer.xqa) == inspect.signature(xqa)
    assert cudnn_batch_prefill_with_kv_cache is bolide.prefill.cudnn_batch_prefill_with_kv_cache


def test_what_is_absent():
    """Names that Bolide lacks, or that only Bolide has."""
    missing = next(r["name"] for r in ROWS
                   if r["module"] == "flashinfer" and r["kind"] == "function" and hasattr(
                       getattr(bolide, r["name"], None), "__bolide_missing__"))
    assert not hasattr(flashinfer, missing)
    with pytest.raises(ImportError):
        exec(f"from flashinfer import {missing}")
    for name in ("batch_invariant", "install_as_flashinfer", "float16", "BusyError"):
        assert hasattr(bolide, name) and not hasattr(flashinfer, name)
    assert importlib.util.find_spec("flashinfer.no_such_module") is None
    empty = [m for m in {r["module"] for r in ROWS} - {"flashinfer"}
             if m.partition(".")[2] not in _alias._Modules.all()]
    assert empty
    for module in empty:
        try:
            assert importlib.util.find_spec(module) is None
        except ModuleNotFoundError:
            pass  # its package is absent, too
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)


def test_only_the_interface_s_names():
    known: dict[str, set] = {}
    for row in ROWS:
        if "." not in row["name"]:
            known.setdefault(row["module"].partition(".")[2], set()).add(row["name"])
    assert {m: set(names.split()) for m, names in _alias_names.NAMES.items()} == known
    private = set(" ".join(_alias.PRIVATE.values()).split())
    for module, contents in _alias._Modules.all().items():
        alias = importlib.import_module(f"flashinfer.{module}" if module else "flashinfer")
        extra = set(contents) - known.get(module, set()) - private
        assert extra <= {"__version__", "__git_version__"}, (module, extra)
        for name in contents:  # submodules do not hide functions of their names
            assert getattr(alias, name) is contents[name], (module, name)


def test_later_keywords():
    """Parameters behind FlashInfer's own are those of the list, by keyword, with a default."""
    effective = {(r["module"], r["name"]): r["effective_params"] for r in ROWS
                 if "effective_params" in r}
    for row in ROWS:
        value = resolve(f"{row['module']}.{row['name']}")
        if row["kind"] not in ("function", "method") or not callable(value):
            continue
        params = (effective.get((row["module"], row["name"]))
                  or effective.get((row["module"], row.get("alias_of"))) or row.get("params") or [])
        names = {p["name"].lstrip("*") for p in params} | {"self"}
        for p in inspect.signature(value).parameters.values():
            if p.name not in names and p.kind is not p.VAR_KEYWORD:
                entry = [f"{row['module']}.{row['name']}", p.name]
                optional = p.kind is p.KEYWORD_ONLY and p.default is not p.empty
                assert optional or p.kind is p.VAR_POSITIONAL, entry
                assert entry in [line[:2] for line in LATER], entry


@pytest.mark.parametrize("name", [e[1].rstrip(":") for e in ENGINES if e[0] == "here"])
def test_names_of_engines(name):
    if name.startswith("flashinfer.testing") or "get_compute" in name:
        pytest.importorskip("torch")
    assert resolve(name) is not None


def test_names_that_engines_do_without():
    """They are absent altogether, or there altogether by now."""
    for entry in ENGINES:
        if entry[0] == "absent":
            value = resolve(entry[1].rstrip(":"))
            assert not hasattr(value, "__bolide_missing__"), entry


def test_by_pythonpath():
    package = str(Path(bolide.__file__).parents[1])
    code = ("import importlib.metadata as m, flashinfer, flashinfer_cubin, flashinfer.sampling\n"
            "print(flashinfer.__version__, m.version('flashinfer-python'),\n"
            "      flashinfer.BatchAttention.__module__, hasattr(flashinfer, 'batch_invariant'))")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([bolide.flashinfer_path(), package])}
    got = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert got.stdout.split() == ["0.6.18", "0.6.18", "bolide._wrappers.attention", "False"], got


def test_another_flashinfer_was_imported():
    package = str(Path(bolide.__file__).parents[1])
    code = ("import sys, types; sys.modules['flashinfer'] = types.ModuleType('flashinfer')\n"
            "import bolide\n"
            "try: bolide.install_as_flashinfer()\n"
            "except RuntimeError as e: print(e)")
    got = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": package},
                         capture_output=True, text=True)
    assert "flashinfer has been imported before" in got.stdout, got
