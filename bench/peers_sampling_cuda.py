# SPDX-License-Identifier: Apache-2.0
"""Our sampling and top-k operators and FlashInfer's on the same rows of a GPU, in turn.

    bench/peers_sampling_cuda.py [--ours] [--json] [NAME...]

Rows are logits of a normal distribution, of deviation 1 (flat) or 6 (peaked), or their softmax.
Calls are timed as in peers_cuda.py. NAME picks operators; it may be a pattern. Needs torch;
without FlashInfer there are no peers.
"""

import datetime
import fnmatch
import json
import statistics
import sys

import torch

import peers_cuda
from door import Door

flashinfer = peers_cuda.flashinfer
fi = flashinfer.sampling if flashinfer else None
V, WINDOW, K = 128256, 131072, 2048
ROUNDS = 4
READ_CEILING = 4.3e12
JOINT = 1  # bolide_filter_apply_order

# The input's name, numbers of the problem, what is written for each element, and the peer's call.
FORMS = {
    "sampling_from_probs": ("probs", {}, 0, lambda x: fi.sampling_from_probs(x)),
    "sampling_from_logits": ("logits", {}, 0, lambda x: fi.sampling_from_logits(x)),
    "softmax": ("logits", {}, 4, lambda x: fi.softmax(x)),
    "top_p_sampling_from_probs": ("probs", {"top_p": 0.9}, 0,
                                  lambda x: fi.top_p_sampling_from_probs(x, 0.9)),
    "top_k_sampling_from_probs": ("probs", {"top_k": 50}, 0,
                                  lambda x: fi.top_k_sampling_from_probs(x, 50)),
    "min_p_sampling_from_probs": ("probs", {"min_p": 0.1}, 0,
                                  lambda x: fi.min_p_sampling_from_probs(x, 0.1)),
    "top_k_top_p_sampling_from_probs": (
        "probs", {"top_k": 50, "top_p": 0.9, "filter_apply_order": "joint"}, 0,
        lambda x: fi.top_k_top_p_sampling_from_probs(x, 50, 0.9, filter_apply_order="joint")),
    "top_k_top_p_sampling_from_logits": (
        "logits", {"top_k": 50, "top_p": 0.9}, 0,
        lambda x: fi.top_k_top_p_sampling_from_logits(x, 50, 0.9)),
    "top_p_renorm_probs": ("probs", {"top_p": 0.9}, 4, lambda x: fi.top_p_renorm_probs(x, 0.9)),
    "top_k_renorm_probs": ("probs", {"top_k": 50}, 4, lambda x: fi.top_k_renorm_probs(x, 50)),
    "top_k_mask_logits": ("logits", {"top_k": 50}, 4, lambda x: fi.top_k_mask_logits(x, 50)),
    "top_k": ("input", {"k": K}, 0, lambda x: flashinfer.top_k(x, K)),
}
TOP_K = [(1, "f32"), (1, "bf16"), (64, "f32"), (64, "bf16")]


def cases(words):
    """Operator, rows, deviation, type."""
    for op in FORMS:
        if words and not any(fnmatch.fnmatch(op, word) for word in words):
            continue
        if op == "top_k":
            yield from ((op, n, 1, dtype) for n, dtype in TOP_K)
        else:
            yield from ((op, n, peak, "f32") for n in (1, 128, 512) for peak in (1, 6))


def rows_of(op, n, peak, dtype):
    if op == "top_k":
        x = torch.randn(n, WINDOW, device="cuda")
        return x.bfloat16() if dtype == "bf16" else x
    x = torch.randn(n, V, device="cuda") * peak
    return torch.softmax(x, -1) if FORMS[op][0] == "probs" else x


def ours(door, op):
    name, numbers, written, _ = FORMS[op]
    run = getattr(door.lib, f"bolide_{op}")

    def make(x):
        values = {name: x} | numbers
        if "filter_apply_order" in numbers:
            values["filter_apply_order"] = JOINT
        if op == "top_k":
            values["values"] = torch.empty(x.shape[0], K, device="cuda", dtype=x.dtype)
            values["indices"] = torch.empty(x.shape[0], K, device="cuda", dtype=torch.int64)
        elif written:
            values["out"] = torch.empty_like(x)
        else:
            values["samples"] = torch.empty(x.shape[0], device="cuda", dtype=torch.int32)
        if not written and op != "top_k":
            values["seed"] = 1234
        args = door.args(op, values)
        return lambda: door.check(run(door.ctx, args, door.stream()), op)

    return make


def measure(door, case, peers):
    op, n, peak, dtype = case
    x = rows_of(*case)
    size = x.numel() * x.element_size() * (1 + bool(FORMS[op][2]))
    count = max(1, min(20, -(-4 * (50 << 20) // size)))
    sets = [(x,)] + [(rows_of(*case),) for _ in range(count - 1)]
    rounds = max(1, 20 // count) if size < 1 << 26 else 1
    timers = {"bolide": peers_cuda.timer(ours(door, op), sets, rounds)}
    if peers and flashinfer:
        call = FORMS[op][3]
        timers["flashinfer"] = peers_cuda.timer(lambda y: lambda: call(y), sets, rounds)
    times = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, run in timers.items():
            times[name].append(run())
    return times, size


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    door = Door()
    commit = next((word[9:] for word in sys.argv if word.startswith("--commit=")), "")
    for case in cases(words):
        op, n, peak, dtype = case
        times, size = measure(door, case, "--ours" not in sys.argv)
        us = statistics.median(times["bolide"])
        name, numbers, _, _ = FORMS[op]
        problem = f"{op} n={n} v={WINDOW if op == 'top_k' else V}"
        problem += "".join(f" {key}={value}" for key, value in numbers.items())
        problem += f" {name}={dtype}" + (f" peak={peak}" if peak > 1 else "")
        row = {"problem": problem, "device": torch.cuda.get_device_name(), "isa": "cuda",
               "threads": 1, "date": str(datetime.date.today()), "commit": commit,
               "us": round(us, 2), "us_min": round(min(times["bolide"]), 2),
               "spread": round(max(times["bolide"]) / min(times["bolide"]) - 1, 3), "bytes": size,
               "flops": 0, "ceiling": "read", "share": round(size / READ_CEILING / us * 1e6, 4),
               "peers": {}, "best_peer": None, "ratio": None}
        if "flashinfer" in times:
            peer = statistics.median(times["flashinfer"])
            row |= {"peers": {"flashinfer": round(peer, 2)}, "best_peer": "flashinfer",
                    "ratio": round(peer / us, 4)}
        if "--json" in sys.argv:
            print(json.dumps(row), flush=True)
        else:
            print(f"{us:8.2f} us  share {row['share']:.2f}  spread {row['spread']:.2f}  "
                  f"{row['peers']}  {problem}", flush=True)


if __name__ == "__main__":
    main()
