# SPDX-License-Identifier: Apache-2.0
"""Torch's forms of our operators, for bench/compare.py.

FORMS maps an operator to a function that takes the problem's numbers and returns how to make its
inputs and the functions that compute it. Each function is tried in f32 and bf16, as it is and
compiled. Inputs are rotated, so that together they are four times the last cache.
"""

import math
import os
import pathlib
import statistics
import sys
import time

# The flags of the processor say what it has. Torch's compiler would try each set in a process of
# its own, one process after the other, which takes longer than compiling.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import torch  # noqa: E402
import torch.nn.functional as F

FEWEST = 3
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


def randn(*shapes):
    """A function that makes normal values of these shapes in a dtype."""
    return lambda dtype: [torch.randn(shape).to(dtype) for shape in shapes]


def rmsnorm(p):
    n, d = p["n"], p["d"]

    def plain(x, weight):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale * weight.float()).to(x.dtype)

    return randn((n, d), (d,)), {"rms_norm": lambda x, w: F.rms_norm(x, (d,), w, 1e-6),
                                 "plain": plain}


def fused_add_rmsnorm(p):
    n, d = p["n"], p["d"]

    def add_norm(x, residual, weight):
        residual.add_(x)
        x.copy_(F.rms_norm(residual, (d,), weight, 1e-6))

    return randn((n, d), (n, d), (d,)), {"add, rms_norm": add_norm}


def layernorm(p):
    n, d = p["n"], p["d"]
    return randn((n, d), (d,), (d,)), {
        "layer_norm": lambda x, gamma, beta: F.layer_norm(x, (d,), gamma, beta, 1e-6)}


def gated(activation):
    def form(p):
        n, d = p["n"], p["d"]
        return randn((n, 2 * d)), {"gate": lambda x: activation(x[:, :d]) * x[:, d:]}

    return form


def rope(p):
    n, h_q, h_kv, d = p["n"], p["h_q"], p["h_kv"], p["d"]
    angle = torch.arange(n)[:, None] / 10000.0 ** (torch.arange(0, d, 2) / d)
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]

    def turn(q, k):
        out = []
        for x in (q, k):
            low, high = x.float().chunk(2, -1)
            out.append(torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(x.dtype))
        return out

    return randn((n, h_q, d), (n, h_kv, d)), {"plain": turn}


def decode(p):
    b, h_q, h_kv, d, length = p["b"], p["h_q"], p["h_kv"], p["d"], p["len"]
    return randn((b, h_q, 1, d), (b, h_kv, length, d), (b, h_kv, length, d)), {
        "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)}


def prefill(p):
    h_q, h_kv, d, causal = p["h_q"], p["h_kv"], p["d"], bool(p.get("causal", 0))
    length = p["n"]
    return randn((1, h_q, length, d), (1, h_kv, length, d), (1, h_kv, length, d)), {
        "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                               enable_gqa=True)}


def matmul(p):
    m, n, k = p["m"], p["n"], p["k"]
    return randn((m, k), (n, k)), {"linear": F.linear}


def logits(p):
    return randn((p["n"], p["v"])), {"softmax": lambda x: torch.softmax(x.float(), -1)}


def top_p(p):
    bound = float(p.get("top_p", 0.9))

    def pick(values, ids):
        sums = values.cumsum(-1)
        values = torch.where(sums - values > bound, 0.0, values)
        return ids.gather(-1, torch.multinomial(values, 1))

    def make(_):
        return [torch.softmax(torch.randn(p["n"], p["v"]), -1)]

    return make, {"sort": lambda x: pick(*torch.sort(x, -1, descending=True)),
                  "topk 1024": lambda x: pick(*torch.topk(x, 1024, -1))}


FORMS = {
    "rmsnorm": rmsnorm,
    "fused_add_rmsnorm": fused_add_rmsnorm,
    "layernorm": layernorm,
    "silu_and_mul": gated(F.silu),
    "gelu_and_mul": gated(F.gelu),
    "gelu_tanh_and_mul": gated(lambda x: F.gelu(x, approximate="tanh")),
    "apply_rope_pos_ids": rope,
    "apply_rope_with_cos_sin_cache": rope,
    "batch_decode": decode,
    "single_prefill_with_kv_cache": prefill,
    "mm_bf16": matmul,
    "softmax": logits,
    "top_p_sampling_from_probs": top_p,
}


def variants(forms, inputs, eager):
    """Each function as it is and compiled, after one call each; not all can be compiled."""
    for name, function in forms.items():
        function(*inputs)
        yield f"torch {name}", function
        if eager:
            continue
        compiled = torch.compile(function, dynamic=False)
        try:
            compiled(*inputs)
        except (torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            print(f"peers: torch cannot compile {name}: {reason}", file=sys.stderr)
            continue
        yield f"torch {name}, compiled", compiled


def timer(function, sets, seconds):
    """A call that measures the function for a while and returns the median in microseconds."""

    def run():
        times, i = [], 0
        with torch.inference_mode():
            function(*sets[0])
            end = time.perf_counter() + seconds
            while time.perf_counter() < end or len(times) < FEWEST:
                i = (i + 1) % len(sets)
                start = time.perf_counter()
                function(*sets[i])
                times.append(time.perf_counter() - start)
        return 1e6 * statistics.median(times)

    return run


def calls(problem, threads, seconds, eager):
    """Measuring functions by name; none for an operator that torch has no form of."""
    operator, p = numbers(problem)
    if operator not in FORMS:
        return {}
    if threads:
        torch.set_num_threads(threads)
    make, forms = FORMS[operator](p)
    out = {}
    for dtype_name, dtype in DTYPES.items():
        with torch.inference_mode():
            first = make(dtype)
            size = sum(tensor.numel() * tensor.element_size() for tensor in first)
            count = min(max(2, math.ceil(4 * last_cache_bytes() / size)), 64)
            sets = [first] + [[x.clone() for x in first] for _ in range(count - 1)]
            for name, function in variants(forms, [x.clone() for x in first], eager):
                out[f"{name}, {dtype_name}"] = timer(function, sets, seconds)
    return out
