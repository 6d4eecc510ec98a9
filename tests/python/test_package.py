# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed, its table of coverage, and how long its import takes."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bolide
import import_cost
from test_signatures import HERE, found

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
needs_build = pytest.mark.skipif(not (BUILD / "CMakeCache.txt").exists(), reason="no build folder")


def test_coverage_counts_what_the_tool_counts():
    found = bolide.coverage()
    assert sum(found.counts.values()) == len(found.parameters) > 1000
    assert found.counts["honoured"] > found.counts["missing"]
    tool = BUILD / "bolide"
    if not tool.exists():
        pytest.skip("the tool is not built")
    out = subprocess.run([tool, "coverage", "--json"], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    expected = [(e["name"], e["op"], e["param"], e["status"], tuple(e.get("values", ())),
                 e.get("reason", "")) for e in lines if "op" in e]
    assert [tuple(p) for p in found.parameters] == expected


def test_reference_has_every_documented_name():
    """Each name that FlashInfer documents, or has at top level, and that is here."""
    index = ROOT / "docs" / "reference" / "index.rst"
    if not index.exists():
        pytest.skip("the sources are not here")
    text = index.read_text(encoding="utf-8")
    lines = [line.split()[-1] for line in text.splitlines() if line.startswith(".. auto")]
    modules = {line.split()[-1] for line in text.splitlines() if line.startswith(".. automodule")}
    last = {name.rpartition(".")[2] for name in lines}
    left = {row["name"] for row in HERE
            if row["kind"] in ("function", "class", "enum") and "." not in row["name"]
            and (row.get("listed_in_docs") or row.get("exported_at_top"))
            and row["name"] not in last
            and getattr(found(row), "__module__", None) not in modules}
    assert not left


@needs_build
def test_installed_tree_is_whole(tmp_path):
    """What a wheel holds, without building one: the component that pip's build installs."""
    subprocess.run(["cmake", "--install", BUILD, "--component", "python", "--prefix", tmp_path],
                   check=True, capture_output=True)
    shutil.copytree(ROOT / "python" / "bolide", tmp_path / "bolide", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    code = ("import bolide, pathlib; print(pathlib.Path(bolide.__file__).parent); "
            "print(bolide.coverage()); bolide.rmsnorm")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env=env, cwd=tmp_path)
    assert out.stdout.splitlines() == [str(tmp_path / "bolide"), str(bolide.coverage())]
    size = sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file())
    assert size < 10 * 2**20
    names = {f.name for f in (tmp_path / "bolide" / "lib").iterdir()}
    assert names == {"libbolide.so.0", "libbolide_python.so"}


@needs_build
def test_binding_needs_no_new_glibc():
    out = subprocess.run(["readelf", "-V", BUILD / "libbolide_python.so"], capture_output=True,
                         text=True, check=True)
    versions = {tuple(map(int, word[6:].split(".")))
                for word in out.stdout.split()
                if word.startswith("GLIBC_")}
    assert versions and max(versions) <= (2, 28)


def test_import_is_quick(tmp_path):
    """As once installed: with its bytecode at hand, which a checkout may not be allowed to keep."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT / "python")
    import_cost.check("-X", f"pycache_prefix={tmp_path}", environment=environment)


def test_import_loads_nothing():
    """Neither the library nor a framework; the names are there all the same."""
    code = ("import sys, bolide; "
            "print([m for m in ('numpy', 'torch', 'tvm_ffi', 'ctypes') if m in sys.modules]); "
            "assert 'norm' not in vars(bolide) and 'rmsnorm' in dir(bolide); "
            "from bolide import *; rmsnorm, float16, BusyError; assert bolide.rmsnorm is rmsnorm")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_name_that_was_replaced_stays():
    code = "import bolide; bolide.rmsnorm = 1; bolide.layernorm; assert bolide.rmsnorm == 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_are_attributes():
    """Each public module by its full name, with nothing but the package imported."""
    code = """
import pkgutil, sys
sys.modules["torch"] = None
import bolide
public = [m.name for m in pkgutil.walk_packages(bolide.__path__, "bolide.", onerror=print)
          if "._" not in m.name and ".compat" not in m.name]
print(*public)
"""
    run = functools.partial(subprocess.run, capture_output=True, text=True)
    names = run([sys.executable, "-c", code], check=True).stdout.split()
    assert "bolide.jit.rope" in names
    for name in (n for n in names if n.count(".") == 2):
        out = run([sys.executable, "-c",
                   f"import sys; sys.modules['torch'] = None; import bolide; {name}"])
        assert out.returncode == 0, out.stderr
