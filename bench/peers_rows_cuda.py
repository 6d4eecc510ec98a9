# SPDX-License-Identifier: Apache-2.0
"""Our operators on rows, our matrix products, and those of FlashInfer and torch, on a GPU in turn.

    bench/peers_rows_cuda.py [--json] PROBLEM...

FORMS maps an operator to a function that takes the problem's numbers and gives: how to make a set
of tensors, our call on it, the peers' by name, and bytes and operations of a call. Timing is that
of bench/peers_cuda.py: graphs of at least 20 calls over inputs of four times the L2, in turn.
torch.compile and cuBLAS, by torch.mm, need no FlashInfer; without it its forms are left out.
"""

import datetime
import json
import math
import statistics
import sys

import torch
import torch.nn.functional as F

from door import Door
from peers import numbers
from peers_cuda import CALLS, DEVICE, PAIRS, flashinfer, read_ceiling, show, timer

BF16 = torch.bfloat16
EPS = 1e-6


def randn(*shape, dtype=BF16):
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def compiled(function):
    return torch.compile(function, dynamic=False)


def rmsnorm(p, door):
    n, d = p["n"], p["d"]
    norm = compiled(lambda x, w: F.rms_norm(x, (d,), w, EPS))
    weight = randn(d)

    def ours(x, out):
        return door.call("rmsnorm", {"input": x, "weight": weight, "out": out})

    return lambda: (randn(n, d), randn(n, d)), ours, {
        "flashinfer": lambda x, out: lambda: flashinfer.rmsnorm(x, weight, out=out),
        "torch.compile": lambda x, out: lambda: norm(x, weight)}, 4 * n * d, 0


def fused_add_rmsnorm(p, door):
    n, d = p["n"], p["d"]
    weight = randn(d)

    def ours(x, r):
        return door.call("fused_add_rmsnorm", {"input": x, "residual": r, "weight": weight})

    return lambda: (randn(n, d), randn(n, d)), ours, {
        "flashinfer": lambda x, r: lambda: flashinfer.fused_add_rmsnorm(x, r, weight)}, 8 * n * d, 0


def silu_and_mul(p, door):
    n, d = p["n"], p["d"]
    act = compiled(lambda x: F.silu(x[:, :d]) * x[:, d:])

    def ours(x, out):
        return door.call("silu_and_mul", {"input": x, "out": out})

    return lambda: (randn(n, 2 * d), randn(n, d)), ours, {
        "flashinfer": lambda x, out: lambda: flashinfer.silu_and_mul(x, out=out),
        "torch.compile": lambda x, out: lambda: act(x)}, 6 * n * d, 0


def rope(p, door):
    n, heads, d = p["n"], (p["h_q"], p["h_kv"]), p["d"]
    positions = torch.arange(n, device=DEVICE, dtype=torch.int32)
    table = randn(p["max_pos"], d, dtype=torch.float32)
    wide = positions.long()

    def ours(q, k):
        return door.call("apply_rope_with_cos_sin_cache", {
            "positions": positions, "query": q, "key": k, "cos_sin_cache": table, "query_out": q,
            "key_out": k})

    def theirs(q, k):
        flat = q.view(n, -1), k.view(n, -1)
        return lambda: flashinfer.apply_rope_with_cos_sin_cache_inplace(wide, *flat, d, table)

    return (lambda: [randn(n, h, d) for h in heads]), ours, {"flashinfer": theirs}, \
        4 * n * sum(heads) * d + 4 * n * d, 0


def append(p, door):
    b, tokens, page, h, d = p["b"], p["append"], p["page"], p["h_kv"], p["d"]
    pages = -(-p["len"] // page)
    n = b * tokens
    kinds = {"device": DEVICE, "dtype": torch.int32}
    indptr = torch.arange(b + 1, **kinds) * pages
    indices = torch.randperm(b * pages, device=DEVICE).int()
    last = torch.full((b,), (p["len"] - 1) % page + 1, **kinds)
    requests = torch.arange(b, **kinds).repeat_interleave(tokens)
    positions = torch.arange(p["len"] - tokens, p["len"], **kinds).repeat(b)

    def sets():
        return randn(n, h, d), randn(n, h, d), randn(b * pages, 2, page, h, d)

    def ours(k, v, cache):
        return door.call("append_paged_kv_cache", {
            "append_key": k, "append_value": v, "batch_indices": requests, "positions": positions,
            "k_cache": cache[:, 0], "v_cache": cache[:, 1], "kv_indices": indices,
            "kv_indptr": indptr, "kv_last_page_len": last})

    return sets, ours, {"flashinfer": lambda k, v, cache: lambda: flashinfer.append_paged_kv_cache(
        k, v, requests, positions, cache, indices, indptr, last)}, 8 * n * h * d, 0


def merge_state(p, door):
    n, h, d = p["n"], p["h"], p["d"]

    def sets():
        return [x for _ in "ab" for x in (randn(n, h, d), randn(n, h, dtype=torch.float32))]

    def ours(v_a, s_a, v_b, s_b):
        return door.call("merge_state", {
            "v_a": v_a, "s_a": s_a, "v_b": v_b, "s_b": s_b, "v_merged": torch.empty_like(v_a),
            "s_merged": torch.empty_like(s_a)})

    return sets, ours, {"flashinfer": lambda *states: lambda: flashinfer.merge_state(*states)}, \
        6 * n * h * d + 12 * n * h, 0


def mm_bf16(p, door):
    m, n, k = p["m"], p["n"], p["k"]

    def ours(a, b, out):
        return door.call("mm_bf16", {"a": a, "b": b.t(), "out": out})

    return lambda: (randn(m, k), randn(n, k), randn(m, n)), ours, {
        "cuBLAS": lambda a, b, out: lambda: torch.mm(a, b.t(), out=out)}, \
        2 * (m * k + n * k + m * n), 2 * m * n * k


FORMS = {"rmsnorm": rmsnorm, "fused_add_rmsnorm": fused_add_rmsnorm, "silu_and_mul": silu_and_mul,
         "apply_rope_with_cos_sin_cache": rope, "append_paged_kv_cache": append,
         "merge_state": merge_state, "mm_bf16": mm_bf16}


def measure(problem, door):
    """Times of each pair by name, ours first, with bytes and operations."""
    operator, p = numbers(problem)
    make, ours, peers, size, flops = FORMS[operator](p, door)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = max(1, min(CALLS, math.ceil(4 * l2 / size)))
    sets = [make() for _ in range(count)]
    rounds = math.ceil(CALLS / count) if size < 1 << 28 else 1
    timers = {"bolide": timer(ours, sets, rounds)}
    for name, form in peers.items():
        if flashinfer or name != "flashinfer":
            timers[name] = timer(form, sets, rounds)
    times = {name: [] for name in timers}
    for _ in range(PAIRS):
        for name, run in timers.items():
            times[name].append(run())
    return times, size, flops


def line_of(problem, times, size, flops, ceiling):
    """What bench/results keeps."""
    us = {name: round(statistics.median(values), 3) for name, values in times.items()}
    mine = times["bolide"]
    peers = {name: value for name, value in us.items() if name != "bolide"}
    line = {"problem": problem, "device": torch.cuda.get_device_name(), "isa": "cuda", "threads": 1,
            "date": datetime.date.today().isoformat(), "us": us["bolide"], "us_min": min(mine),
            "spread": round(max(mine) / min(mine) - 1, 4), "bytes": size, "flops": flops,
            "ceiling": "read", "share": round(size / us["bolide"] * 1e6 / ceiling, 4)}
    if peers:
        best = min(peers, key=peers.get)
        ratio = statistics.median(b / a for a, b in zip(mine, times[best]))
        line |= {"peers": peers, "best_peer": best, "ratio": round(ratio, 4)}
    return line


def main():
    words = [word for word in sys.argv[1:] if word != "--json"]
    ceiling, door = read_ceiling(), Door()
    print(f"read ceiling {ceiling / 1e12:.2f} TB/s")
    for problem in words:
        try:
            times, size, flops = measure(problem, door)
        except Exception as failure:  # one operator that fails leaves the others
            print(f"{problem}: {failure}", flush=True)
            continue
        if "--json" in sys.argv:
            print(json.dumps(line_of(problem, times, size, flops, ceiling)), flush=True)
            continue
        show(problem, times, size, flops)


if __name__ == "__main__":
    main()
