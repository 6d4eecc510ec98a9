# SPDX-License-Identifier: Apache-2.0
"""Tries an installed wheel, without pytest: what it holds, what its libraries need of the system,
its import, and a call, with the OpenMP runtime of the system and with none.

try_wheel.py WHEEL [COMMAND...]: the command starts the Python that has the wheel, this one by default;
for another machine it begins with qemu-user (tests/python/wheel_aarch64.sh)."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import import_cost  # noqa: E402

WHEEL = Path(sys.argv[1]).resolve()
PYTHON = sys.argv[2:] or [sys.executable]
# What every system has that the tag names; libtvm_ffi comes with the package that is asked for.
ALLOWED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libtvm_ffi.so",
           "libbolide.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

# qemu-user ends where the child of a process with threads starts threads itself.
CALL = f"FORKS = {PYTHON == [sys.executable]}" + """
import os, sys, threading
import numpy as np
import bolide
from ml_dtypes import bfloat16
x = np.random.default_rng(0).standard_normal((4096, 512)).astype(bfloat16)
w = np.ones(512, bfloat16)
y = bolide.rmsnorm(x, w)
x64 = x.astype(np.float64)
right = x64 / np.sqrt((x64 ** 2).mean(-1, keepdims=True) + 1e-6)
assert y.dtype == bfloat16 and abs(y.astype(np.float64) - right).max() < 0.05
kinds = [bolide.rmsnorm(x, w) for _ in range(50)]
assert all(np.array_equal(k, y) for k in kinds)
others = []
def again():
    others.append(all(np.array_equal(bolide.rmsnorm(x, w), y) for _ in range(20)))
callers = [threading.Thread(target=again) for _ in range(3)]
for c in callers: c.start()
for c in callers: c.join()
assert others == [True] * 3
threads = len(os.listdir("/proc/self/task"))
if FORKS:
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(bolide.rmsnorm(x, w), y) else 1)
    assert os.waitpid(child, 0)[1] == 0
runtime = [l.split()[-1] for l in open("/proc/self/maps") if "libgomp" in l]
print(threads, len(runtime))
"""


def run(code, **environment):
    out = subprocess.run([*PYTHON, "-I", "-c", code], capture_output=True, text=True,
                         timeout=300, env={**os.environ, **environment}, cwd="/")
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


def test_name_and_contents():
    assert re.fullmatch(r"bolide-[0-9.]+-py3-none-manylinux_2_28_(x86_64|aarch64)\.whl", WHEEL.name)
    assert WHEEL.stat().st_size <= 10 * 2**20
    with zipfile.ZipFile(WHEEL) as z:
        names = z.namelist()
        info = next(n for n in names if n.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in z.read(info).decode()
        meta = email.message_from_bytes(z.read(info[:-5] + "METADATA"))
    asked = meta.get_all("Requires-Dist")
    for extra, package in (("cu12", "nvidia-cuda-nvrtc-cu12"), ("cu13", "nvidia-cuda-nvrtc"),
                           ("torch", "torch"), ("numpy", "ml_dtypes")):
        assert any(a.startswith(package) and f"extra == '{extra}'" in a.replace('"', "'")
                   for a in asked), (extra, asked)
    assert [a for a in asked if "extra" not in a] == [
        a for a in asked if a.startswith("apache-tvm-ffi")]
    for member in ("bolide/lib/libbolide.so.0", "bolide/lib/libbolide_python.so", "bolide/py.typed",
                   "bolide/coverage.txt", "bolide/compat/flashinfer/__init__.py"):
        assert member in names, member
    assert not [n for n in names if "__pycache__" in n or n.endswith(".a")]


def test_libraries_need_nothing_special():
    folder = Path(run("import bolide; print(bolide.__file__)")[0]).parent / "lib"
    for library in folder.iterdir():
        text = subprocess.run(["readelf", "-dVW", library], capture_output=True, text=True,
                              check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        assert needed and needed <= ALLOWED, (library.name, needed - ALLOWED)
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", text)}
        assert max(versions) <= (2, 28), (library.name, max(versions))
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
        assert all(p == "$ORIGIN" for p in paths), (library.name, paths)


def test_import_is_quick():
    """NumPy is there, torch is not."""
    import_cost.check("-I", python=PYTHON)


def test_call():
    """With the system's runtime, if it has one."""
    threads, _ = run(CALL)
    assert len(os.sched_getaffinity(0)) == 1 or int(threads) > 1


def test_call_without_a_runtime():
    """A broken libgomp in front of the system's stands for a machine that has none."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "libgomp.so.1").write_text("no library")
        threads, runtime = run(CALL, LD_LIBRARY_PATH=folder)
    assert runtime == "0"
    assert len(os.sched_getaffinity(0)) == 1 or int(threads) > 1


def main():
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Exception as error:  # every test has its turn
            print(f"FAILED: {name}: {type(error).__name__}: {error}")
            failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
