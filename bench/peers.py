# SPDX-License-Identifier: Apache-2.0
"""Torch's forms of our operators, for bench/compare.py.

FORMS maps an operator to a function that takes the problem's numbers and returns the shapes of its
inputs and the functions that compute it. Each function is tried in f32 and bf16, as it is and
compiled. Inputs are rotated, so that together they are four times the last cache.
"""

import math
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F

SECONDS = 0.3
FEWEST = 7
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def last_cache_bytes():
    sizes = [0]
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        sizes.append(int(path.read_text().strip().rstrip("K")) * 1024)
    return max(sizes) or 32 << 20


def numbers(problem):
    """The operator and the keys of a problem string; whole numbers become int."""
    operator, *words = problem.split()
    keys = dict(word.split("=", 1) for word in words)
    return operator, {k: int(v) if v.lstrip("-").isdigit() else v for k, v in keys.items()}


def rmsnorm(p):
    n, d = p["n"], p["d"]

    def plain(x, weight):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale * weight.float()).to(x.dtype)

    return [(n, d), (d,)], {"rms_norm": lambda x, w: F.rms_norm(x, (d,), w, 1e-6), "plain": plain}


FORMS = {"rmsnorm": rmsnorm}


def variants(forms):
    """Each function as it is and compiled."""
    for name, function in forms.items():
        yield f"torch {name}", function
        yield f"torch {name} compiled", torch.compile(function, dynamic=False)


def timer(function, sets):
    """A call that measures the function for a while and returns the median in microseconds."""

    def run():
        times, i = [], 0
        with torch.inference_mode():
            function(*sets[0])
            end = time.perf_counter() + SECONDS
            while time.perf_counter() < end or len(times) < FEWEST:
                i = (i + 1) % len(sets)
                start = time.perf_counter()
                function(*sets[i])
                times.append(time.perf_counter() - start)
        return 1e6 * statistics.median(times)

    return run


def calls(problem, threads):
    """Measuring functions by name; none for an operator that torch has no form of."""
    operator, p = numbers(problem)
    if operator not in FORMS:
        return {}
    if threads:
        torch.set_num_threads(threads)
    shapes, forms = FORMS[operator](p)
    out = {}
    for dtype_name, dtype in DTYPES.items():
        size = sum(math.prod(shape) for shape in shapes) * dtype.itemsize
        count = min(max(2, math.ceil(4 * last_cache_bytes() / size)), 64)
        sets = [[torch.randn(shape).to(dtype) for shape in shapes] for _ in range(count)]
        for name, function in variants(forms):
            out[f"{name} {dtype_name}"] = timer(function, sets)
    return out
