# SPDX-License-Identifier: Apache-2.0
"""torch and Bolide on the threads of one process: python bench/in_turn.py [--threads N] [--seconds S]

A call of ours and one of torch's are timed alone, call behind call, and in turn; and so is a call of
torch's that does as much, beside the same. "pair" is what both take in turn as a share of what they take
alone, ours first, then torch's own: with two OpenMP runtimes in a process, whose threads wait beside each
other's work, it would be far above 1. The package in a wheel uses torch's runtime. A short call behind a
long one finds its data out of the caches, whoever made it; "in_turn" shows that, as each call's share of
its own time alone (ours and the other, torch's own and the other), and "ours_by_own" is ours by torch's.
The small calls take some 30 us on 16 threads, the layers are those of a model of 4096 columns at 512 tokens
in bf16. Rounds of all ways alternate, so that what else the machine does meets all of them, and of all
calls of a way the tenth fastest in a hundred counts. Prints one line of JSON a pair, times in microseconds
(ours, torch's own, the other). ``--most 1.1`` ends with 1 where a pair of ours takes longer than that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import time

import torch

import bolide


def runtimes() -> list[str]:
    """The OpenMP runtimes that the process has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted(set(re.findall(r"/(lib(?:gomp|omp|iomp5)[^/\n]*)\n", maps.read())))


def small() -> tuple[dict, dict]:
    """Ours, each with one of torch's for as much work, and what they are in turn with."""
    x, w = torch.randn(256, 2048), torch.ones(2048)
    y = torch.empty_like(x)
    q, k, v = (torch.randn(128, 8, 64) for _ in range(3))
    heads = [t.transpose(0, 1)[None] for t in (q, k, v)]
    a, b, c = (torch.randn(256, 256) for _ in range(3))
    pairs = {
        "rmsnorm": (lambda: bolide.rmsnorm(x, w, out=y),
                    lambda: torch.mul(x, w, out=y)),
        "single_prefill": (lambda: bolide.single_prefill_with_kv_cache(q, k, v),
                           lambda: torch.nn.functional.scaled_dot_product_attention(*heads))}
    return pairs, {"torch.mm": lambda: torch.mm(a, b, out=c),
                   "torch.tanh": lambda: torch.tanh(x, out=y)}


def layers() -> tuple[dict, dict]:
    """The same at sizes of a model's layers."""
    x, w = torch.randn(512, 4096).bfloat16(), torch.ones(4096).bfloat16()
    weight = torch.randn(4096, 4096).bfloat16()
    y, z = torch.empty_like(x), torch.empty_like(x)
    q, k, v = (torch.randn(512, 32, 128).bfloat16() for _ in range(3))
    heads = [t.transpose(0, 1)[None] for t in (q, k, v)]
    pairs = {
        "rmsnorm 512 x 4096": (lambda: bolide.rmsnorm(x, w, out=y),
                               lambda: torch.mul(x, w, out=y)),
        "mm_bf16 512 x 4096 x 4096": (lambda: bolide.mm_bf16(x, weight.T, out=y),
                                      lambda: torch.mm(x, weight.T, out=y)),
        "single_prefill 512, 32 of 128": (
            lambda: bolide.single_prefill_with_kv_cache(q, k, v, causal=True),
            lambda: torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True))}
    return pairs, {"torch.mm 512 x 4096 x 4096": lambda: torch.mm(x, weight.T, out=z),
                   "torch.tanh 512 x 4096": lambda: torch.tanh(x, out=z)}


def alone(call, count, taken):
    for _ in range(count):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)


def in_turn(first, second, count, *taken):
    for _ in range(count):
        for call, to in zip((first, second), taken):
            begin = time.perf_counter()
            call()
            to.append(time.perf_counter() - begin)


def tenth(taken):
    """The tenth fastest in a hundred."""
    return sorted(taken)[len(taken) // 10]


def shares(ours, own, other, seconds):
    """Seconds of ours, of torch's own and of the other call alone, and in both pairs in turn."""
    taken = [[] for _ in range(7)]
    for call, to in zip((ours, own, other), taken):
        alone(call, 3, to)
    longest = max(min(to) for to in taken[:3])
    count = min(40, max(2, int(seconds / 20 / 7 / longest)))
    end = time.perf_counter() + seconds
    while not taken[6] or time.perf_counter() < end:
        for call, to in zip((ours, own, other), taken):
            alone(call, count, to)
        in_turn(ours, other, count, *taken[3:5])
        in_turn(own, other, count, *taken[5:7])
    return [tenth(to) for to in taken]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each pair")
    parser.add_argument("--only", choices=["small", "layers"])
    parser.add_argument("--most", type=float)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    worst = 0.0
    for made in (small, layers):
        if given.only not in (None, made.__name__):
            continue
        pairs, others = made()
        for (name, (ours, own)), (other, call) in itertools.product(pairs.items(), others.items()):
            a, b, c, a_turn, c_turn, b_turn, c_own = shares(ours, own, call, given.seconds)
            found = [a_turn / a / (b_turn / b), c_turn / c_own]
            pair = [(a_turn + c_turn) / (a + c), (b_turn + c_own) / (b + c)]
            worst = max(worst, pair[0])
            print(json.dumps({
                "calls": [name, other], "threads": given.threads, "torch": torch.__version__,
                "openmp": runtimes(), "us": [round(t * 1e6, 1) for t in (a, b, c)],
                "in_turn": [round(t, 3) for t in (a_turn / a, c_turn / c, b_turn / b, c_own / c)],
                "pair": [round(t, 3) for t in pair],
                "ours_by_own": [round(f, 3) for f in found]}), flush=True)
    return int(given.most is not None and worst > given.most)


if __name__ == "__main__":
    sys.exit(main())
