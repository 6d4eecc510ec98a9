# SPDX-License-Identifier: Apache-2.0
"""torch and Bolide on the threads of one process: python bench/in_turn.py [--threads N] [--rounds N]

A call of ours is timed alone, call behind call, and in turn with one of torch's; and so is a call of
torch's that does as much, beside the same. Caches alone make a call slower that follows another,
so what counts is ours beside theirs: with two OpenMP runtimes in a process, whose threads wait beside
each other's work, it would be far above 1. The package in a wheel uses torch's runtime. Rounds of all
ways alternate, so that what else the machine does meets all of them, and of all calls of a way the tenth
fastest in a hundred counts. Prints one line of JSON a pair: microseconds a call alone, what a call takes
in turn as a share of that, and the share of ours by that of torch's own call. ``--most 1.1`` ends with 1
where the last, or what torch's call loses beside ours by what it loses beside its own, is larger.
"""

from __future__ import annotations

import argparse
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


def calls() -> tuple[dict, dict]:
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


def shares(ours, own, other, rounds, count=40):
    """Seconds of ours, of torch's own and of the other call alone, and in both pairs in turn."""
    taken = [[] for _ in range(7)]
    for _ in range(rounds):
        for call, to in zip((ours, own, other), taken):
            alone(call, count, to)
        in_turn(ours, other, count, *taken[3:5])
        in_turn(own, other, count, *taken[5:7])
    return [sorted(t)[len(t) // 10] for t in taken]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--most", type=float)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pairs, others = calls()
    worst = 0.0
    for name, (ours, own) in pairs.items():
        for other, call in others.items():
            a, b, c, a_turn, c_turn, b_turn, c_own = shares(ours, own, call, given.rounds)
            found = [a_turn / a / (b_turn / b), c_turn / c_own]
            worst = max(worst, *found)
            print(json.dumps({
                "calls": [name, other], "threads": given.threads, "torch": torch.__version__,
                "openmp": runtimes(), "us": [round(t * 1e6, 1) for t in (a, b, c)],
                "in_turn": [round(a_turn / a, 3), round(b_turn / b, 3)],
                "ours_by_own": [round(f, 3) for f in found]}), flush=True)
    return int(given.most is not None and worst > given.most)


if __name__ == "__main__":
    sys.exit(main())
