# SPDX-License-Identifier: Apache-2.0
"""Our operators on rows, our matrix products, and those of FlashInfer and torch, on a GPU in turn.

    bench/peers_rows_cuda.py [--json] [--keep DIR] [--commit C] [FILE|PROBLEM]...

FORMS maps an operator to a function that takes the problem's numbers and gives: how to make a set
of tensors, our call on it, the peers' by name, and bytes and operations of a call. Timing is that
of bench/peers_cuda.py: graphs of at least 20 calls over inputs of four times the L2, in turn.
torch.compile and cuBLAS, by torch.mm, need no FlashInfer; without it its forms are left out.
"""

import argparse
import datetime
import json
import math
import pathlib
import statistics
import subprocess

import torch
import torch.nn.functional as F

import compare
import peers_cuda
from door import BITS, Door
from peers import numbers
from peers_cuda import DEVICE, alternate, flashinfer, read_ceiling, rotated, show, timer

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
        "flashinfer": lambda x, out: lambda: flashinfer.rmsnorm(x, weight, out=out,
                                                                enable_pdl=False),
        "torch.compile": lambda x, out: lambda: norm(x, weight)}, 4 * n * d, 0


def fused_add_rmsnorm(p, door):
    n, d = p["n"], p["d"]
    weight = randn(d)

    def in_place(x, r):
        r.add_(x)
        x.copy_(F.rms_norm(r, (d,), weight, EPS))

    add_norm = compiled(in_place)

    def ours(x, r):
        return door.call("fused_add_rmsnorm", {"input": x, "residual": r, "weight": weight})

    return lambda: (randn(n, d), randn(n, d)), ours, {
        "flashinfer": lambda x, r: lambda: flashinfer.fused_add_rmsnorm(x, r, weight,
                                                                        enable_pdl=False),
        "torch.compile": lambda x, r: lambda: add_norm(x, r)}, 8 * n * d, 0


def layernorm(p, door):
    n, d = p["n"], p["d"]
    gamma, beta = randn(d, dtype=torch.float32), randn(d, dtype=torch.float32)
    norm = compiled(lambda x: F.layer_norm(x.float(), (d,), gamma, beta, EPS).to(BF16))

    def ours(x, out):
        return door.call("layernorm", {"input": x, "gemma": gamma, "beta": beta, "out": out})

    return lambda: (randn(n, d), randn(n, d)), ours, {
        "torch.compile": lambda x, out: lambda: norm(x)}, 4 * n * d + 8 * d, 0


def silu_and_mul(p, door):
    n, d = p["n"], p["d"]
    act = compiled(lambda x: F.silu(x[:, :d]) * x[:, d:])

    def ours(x, out):
        return door.call("silu_and_mul", {"input": x, "out": out})

    return lambda: (randn(n, 2 * d), randn(n, d)), ours, {
        "flashinfer": lambda x, out: lambda: flashinfer.silu_and_mul(x, out=out, enable_pdl=False),
        "torch.compile": lambda x, out: lambda: act(x)}, 6 * n * d, 0


def cos_sin(rows, d):
    """Cosines, then sines; calls in place keep the length of what they turn."""
    angles = randn(rows, d // 2, dtype=torch.float32)
    return torch.cat((angles.cos(), angles.sin()), -1)


def turned(x, cos, sin):
    """Halves of heads turned by the angles of their token."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rope(p, door):
    n, heads, d = p["n"], (p["h_q"], p["h_kv"]), p["d"]
    positions = torch.arange(n, device=DEVICE, dtype=torch.int32)
    table = cos_sin(p["max_pos"], d)
    wide = positions.long()

    def in_place(q, k):
        cos, sin = table[wide][:, None].chunk(2, -1)
        q.copy_(turned(q, cos, sin))
        k.copy_(turned(k, cos, sin))

    turn = compiled(in_place)

    def ours(q, k):
        return door.call("apply_rope_with_cos_sin_cache", {
            "positions": positions, "query": q, "key": k, "cos_sin_cache": table, "query_out": q,
            "key_out": k})

    def theirs(q, k):
        flat = q.view(n, -1), k.view(n, -1)
        return lambda: flashinfer.apply_rope_with_cos_sin_cache_inplace(wide, *flat, d, table)

    return (lambda: [randn(n, h, d) for h in heads]), ours, {
        "flashinfer": theirs, "torch.compile": lambda q, k: lambda: turn(q, k)}, \
        4 * n * sum(heads) * d + 4 * n * d, 0


def rope_positions(p, door):
    n, heads, d = p["n"], (p["h_q"], p["h_kv"]), p["d"]
    positions = torch.arange(n, device=DEVICE, dtype=torch.int32)

    def ours(q, k):
        return door.call("apply_rope_pos_ids", {
            "q": q, "k": k, "pos_ids": positions, "q_rope_out": q, "k_rope_out": k})

    def theirs(q, k):
        return lambda: flashinfer.apply_rope_pos_ids_inplace(q, k, positions, interleave=False)

    return (lambda: [randn(n, h, d) for h in heads]), ours, {"flashinfer": theirs}, \
        4 * n * sum(heads) * d + 4 * n, 0


def rope_fp8(p, door):
    """Turned and rounded to fp8: heads of keys, or latents with parts that are not turned."""
    n, h_q, d, d_nope = p["n"], p["h_q"], p["d_rope"], p.get("d_nope", 0)
    latent = "h_kv" not in p
    name = "mla_rope_quantize_fp8" if latent else "rope_quantize_fp8"
    positions = torch.arange(n, device=DEVICE, dtype=torch.int32)
    table = cos_sin(p["max_pos"], d)
    rows = [("q_rope", (n, h_q, d)), ("k_rope", (n, d) if latent else (n, p["h_kv"], d))]
    if latent:
        rows += [("q_nope", (n, h_q, d_nope)), ("k_nope", (n, d_nope))]

    def round_all(*x):
        cos, sin = table[positions].chunk(2, -1)
        out = []
        for (row, _), values in zip(rows, x):
            if row.endswith("rope"):
                wide = values.dim() == 3
                values = turned(values, cos[:, None] if wide else cos,
                                sin[:, None] if wide else sin)
            out.append(values.clamp(-448, 448).to(torch.float8_e4m3fn))
        return out

    both = compiled(round_all)

    def ours(*x):
        outs = [torch.empty(shape, device=DEVICE, dtype=torch.float8_e4m3fn) for _, shape in rows]
        values = {row: t for (row, _), t in zip(rows, x)}
        values |= {row + "_out": t for (row, _), t in zip(rows, outs)}
        return door.call(name, values | {"cos_sin_cache": table, "pos_ids": positions})

    size = sum(3 * math.prod(shape) for _, shape in rows) + 4 * n * d + 4 * n
    return (lambda: [randn(*shape) for _, shape in rows]), ours, {
        "torch.compile": lambda *x: lambda: both(*x)}, size, 0


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

    def join(v_a, s_a, v_b, s_b):
        most = torch.maximum(s_a, s_b)
        a, b = torch.exp2(s_a - most)[..., None], torch.exp2(s_b - most)[..., None]
        return ((v_a * a + v_b * b) / (a + b)).to(BF16), most + torch.log2(a + b)[..., 0]

    joined = compiled(join)

    def sets():
        return [x for _ in "ab" for x in (randn(n, h, d), randn(n, h, dtype=torch.float32))]

    def ours(v_a, s_a, v_b, s_b):
        return door.call("merge_state", {
            "v_a": v_a, "s_a": s_a, "v_b": v_b, "s_b": s_b, "v_merged": torch.empty_like(v_a),
            "s_merged": torch.empty_like(s_a)})

    return sets, ours, {
        "flashinfer": lambda *states: lambda: flashinfer.merge_state(*states),
        "torch.compile": lambda *states: lambda: joined(*states)}, 6 * n * h * d + 12 * n * h, 0


def mm_bf16(p, door):
    m, n, k = p["m"], p["n"], p["k"]

    def ours(a, b, out):
        return door.call("mm_bf16", {"a": a, "b": b.t(), "out": out})

    return lambda: (randn(m, k), randn(n, k), randn(m, n)), ours, {
        "cuBLAS": lambda a, b, out: lambda: torch.mm(a, b.t(), out=out)}, \
        2 * (m * k + n * k + m * n), 2 * m * n * k


def cascade(p, door):
    """A prefix of all requests and the keys of each, a call each, joined by a third."""
    b, h_q, h_kv, d, page = p["b"], p["h_q"], p["h_kv"], p["d"], p["page"]
    shared, own = p["prefix"] // page, p["unique"] // page
    order = torch.randperm(shared + b * own, device=DEVICE).int()
    levels = [(torch.tensor([0, b]), torch.tensor([0, shared]), order[:shared]),
              (torch.arange(b + 1), torch.arange(b + 1) * own, order[shared:])]
    levels = [(q.int(), kv.int(), pages, torch.full((len(q) - 1,), page, dtype=torch.int32))
              for q, kv, pages in levels]
    binds = [door.planned("batch_prefill_paged", {
        "qo_indptr": q, "paged_kv_indptr": kv, "paged_kv_last_page_len": last, "num_qo_heads": h_q,
        "num_kv_heads": h_kv, "head_dim_qk": d, "page_size": page, "q_data_type": BITS[BF16]})
        for q, kv, _, last in levels]

    def ours(q, cache):
        states = [(torch.empty_like(q), torch.empty(b, h_q, device=DEVICE)) for _ in levels]
        calls = [bind({"q": q, "k_cache": cache[:, 0], "v_cache": cache[:, 1],
                       "paged_kv_indices": level[2], "out": out, "lse": lse})
                 for bind, level, (out, lse) in zip(binds, levels, states)]
        calls.append(door.call("merge_state_in_place", {
            "v": states[1][0], "s": states[1][1], "v_other": states[0][0],
            "s_other": states[0][1]}))
        return lambda: [call() for call in calls]

    def theirs(q, cache):
        workspace = torch.empty(peers_cuda.WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE)
        wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(len(levels), workspace)
        wrapper.plan(*map(list, zip(*levels)), h_q, h_kv, d, page, q_data_type=BF16)
        return lambda: wrapper.run(q, cache)

    keys = p["prefix"] + b * p["unique"]
    return lambda: (randn(b, h_q, d), randn(len(order), 2, page, h_kv, d)), ours, {
        "flashinfer": theirs}, 4 * keys * h_kv * d + 4 * b * h_q * d, \
        4 * b * (p["prefix"] + p["unique"]) * h_q * d


def block_sparse(p, door):
    """So many in a hundred of the blocks of each row, at random."""
    m, n, r, c, h_q, h_kv, d = (p[key] for key in ("M", "N", "R", "C", "h_q", "h_kv", "d"))
    rows, columns = m // r, n // c
    kept = math.ceil(columns * p["kept"] / 100)
    indices = torch.rand(rows, columns).argsort(1)[:, :kept].sort(1).values.int().flatten()
    indptr = torch.arange(rows + 1, dtype=torch.int32)
    bind = door.planned("block_sparse_attention", {
        "qo_indptr": indptr * r, "indptr": indptr * kept, "M": m, "N": n, "C": c,
        "num_qo_heads": h_q, "num_kv_heads": h_kv, "head_dim": d, "q_data_type": BITS[BF16]})
    on_device = indices.to(DEVICE)

    def ours(q, k, v):
        return bind({"q": q, "k": k, "v": v, "indices": on_device, "out": torch.empty_like(q)})

    def theirs(q, k, v):
        workspace = torch.empty(peers_cuda.WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE)
        wrapper = flashinfer.BlockSparseAttentionWrapper(workspace, backend="fa2")
        wrapper.plan(indptr * kept, indices, m, n, r, c, h_q, h_kv, d, q_data_type=BF16)
        return lambda: wrapper.run(q, k, v)

    return lambda: (randn(m, h_q, d), randn(n, h_kv, d), randn(n, h_kv, d)), ours, {
        "flashinfer fa2": theirs}, 4 * m * h_q * d + 4 * n * h_kv * d, \
        4 * len(indices) * r * c * h_q * d


FORMS = {"rmsnorm": rmsnorm, "fused_add_rmsnorm": fused_add_rmsnorm, "layernorm": layernorm,
         "silu_and_mul": silu_and_mul, "apply_rope_with_cos_sin_cache": rope,
         "apply_rope_pos_ids": rope_positions, "rope_quantize_fp8": rope_fp8,
         "mla_rope_quantize_fp8": rope_fp8, "append_paged_kv_cache": append,
         "merge_state": merge_state, "mm_bf16": mm_bf16, "cascade": cascade,
         "block_sparse_attention": block_sparse}


def measure(problem, door):
    """Times of each pair by name, ours first, with bytes and operations."""
    operator, p = numbers(problem)
    if operator in peers_cuda.FORMS:
        return peers_cuda.measure(problem)
    make, ours, peers, size, flops = FORMS[operator](p, door)
    sets, rounds = rotated(make, size)
    timers = {"bolide": timer(ours, sets, rounds)}
    for name, form in peers.items():
        if flashinfer or not name.startswith("flashinfer"):
            timers[name] = timer(form, sets, rounds)
    return alternate(timers), size, flops


def product_ceiling():
    """Operations a second of a product that is large enough."""
    a, b = randn(8192, 8192), randn(8192, 8192)
    run = timer(lambda x, y: lambda: torch.mm(x, y), [(a, b)], 4)
    return 2 * 8192 ** 3 / min(run() for _ in range(3)) * 1e6


def line_of(problem, times, size, flops, ceilings):
    """What bench/results keeps; ceilings: bytes and operations a second."""
    us = {name: round(statistics.median(values), 3) for name, values in times.items()}
    mine = times["bolide"]
    peers = {name: value for name, value in us.items() if name != "bolide"}
    shares = size / us["bolide"] * 1e6 / ceilings[0], flops / us["bolide"] * 1e6 / ceilings[1]
    line = {"problem": problem, "device": torch.cuda.get_device_name(), "isa": "cuda", "threads": 1,
            "date": datetime.date.today().isoformat(), "us": us["bolide"], "us_min": round(min(mine), 3),
            "spread": round(max(mine) / min(mine) - 1, 4), "bytes": size, "flops": flops,
            "ceiling": "read" if shares[0] > shares[1] else "bf16 products",
            "share": round(max(shares), 4)}
    if peers:
        best = min(peers, key=peers.get)
        ratio = statistics.median(b / a for a, b in zip(mine, times[best]))
        line |= {"peers": peers, "best_peer": best, "ratio": round(ratio, 4)}
    return line


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="lines as bench/results has them")
    parser.add_argument("--keep", type=pathlib.Path, help="folder of results to put them into")
    parser.add_argument("--commit", default="", help="of the build; default: that of the checkout")
    parser.add_argument("problem", nargs="*", metavar="FILE|PROBLEM",
                        help="default: all of bench/problems/cuda that have a form here")
    options = parser.parse_args()
    if not options.commit:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=compare.ROOT, capture_output=True,
                               text=True)
        options.commit = found.stdout.strip()[:10] or "unknown"
    return options


def main():
    options = arguments()
    ceilings, door = (read_ceiling(), product_ceiling()), Door()
    print(f"{ceilings[0] / 1e12:.2f} TB/s, {ceilings[1] / 1e12:.0f} TFLOP/s of bf16")
    families = {op["name"]: op["family"] for op in compare.tool("ops", "--json")}
    for problem in compare.read_problems(options.problem, "cuda"):
        operator = problem.split()[0]
        if operator not in FORMS and operator not in peers_cuda.FORMS:
            if options.problem:
                print(f"{problem}: there is no form of it here", flush=True)
            continue
        try:
            times, size, flops = measure(problem, door)
        except Exception as failure:  # one operator that fails leaves the others
            print(f"{problem}: {failure}", flush=True)
            continue
        line = line_of(problem, times, size, flops, ceilings) | {"commit": options.commit}
        if options.keep:
            compare.keep(line, families.get(operator, "attention"), options.keep)
        if options.json:
            print(json.dumps(line), flush=True)
        else:
            show(problem, times, size, flops)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
