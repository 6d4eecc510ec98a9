# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the host, from Python: python bench/python_cost.py [--device cuda]

Prints one line of JSON a call: the smallest mean of many rounds, in microseconds, on tensors so
small that nothing else counts. "direct" hands torch's tensors over as they are, "packed" is the way
of versions of torch without the DLPack exchange interface; "binding" is a call without the wrapper
in front of it. With --peer the same calls of FlashInfer, if it is installed, in turn with ours. On
a GPU the queue is emptied between rounds, and rounds are short enough not to fill it.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch

import bolide
from bolide import _binding


def warm(calls, device, seconds=0.7):
    """So that the processor and the GPU have their speed before the first round: a GPU that wakes up
    takes launches at half of its rate."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for call in calls:
            call()
        if device == "cuda":
            torch.cuda.synchronize()


def costs(calls, device, count, rounds=60):
    """The cost of each of some calls, whose rounds alternate."""
    best = [float("inf")] * len(calls)
    warm(calls, device)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            best[i] = min(best[i], (time.perf_counter() - begin) / count)
            if device == "cuda":
                torch.cuda.synchronize()
    return [round(b * 1e6, 2) for b in best]


def norm(package, device):
    x, w = torch.randn(1, 128, device=device).half(), torch.ones(128, device=device).half()
    out = torch.empty_like(x)
    yield "rmsnorm(x, w, out=o)", lambda: package.rmsnorm(x, w, out=out), 200
    yield "rmsnorm(x, w)", lambda: package.rmsnorm(x, w), 200


def decode(package, device, batch=256, page=16):
    """Plans are few in a round: after two of them the staging waits for the GPU."""
    lengths = np.arange(1, batch + 1, dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum(-(-lengths // page))]).astype(np.int32)
    last = torch.from_numpy(((lengths - 1) % page + 1).astype(np.int32))
    pages, indptr = int(indptr[-1]), torch.from_numpy(indptr)
    ids = torch.arange(pages, dtype=torch.int32, device=device)
    w = package.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(1 << 27, dtype=torch.uint8, device=device), "NHD", use_tensor_cores=True)

    def plan():
        w.plan(indptr, ids, last, 32, 8, 128, page, q_data_type=torch.bfloat16)

    plan()
    yield f"plan of {batch} host lengths", plan, 2
    q = torch.randn(batch, 32, 128, device=device).bfloat16()
    cache = torch.randn(pages, 2, page, 8, 128, device=device).bfloat16()
    out = torch.empty_like(q)
    if device == "cuda":
        pair = cache.unbind(1)
        yield "run(q, (k, v), out=o)", lambda: w.run(q, pair, out=out), 100
        yield "run(q, cache, out=o)", lambda: w.run(q, cache, out=out), 100


def one_call(device, batch=64, page=16):
    """Attention that is planned in the call, from lengths where the tensors lie."""
    q = torch.randn(batch, 32, 128, device=device).bfloat16()
    cache = torch.randn(256, 2, 8, page, 128, device=device).bfloat16()
    table = torch.arange(256, dtype=torch.int32, device=device).reshape(batch, -1)
    lens = torch.full((batch,), 50, dtype=torch.int32, device=device)
    space = torch.empty(1 << 27, dtype=torch.uint8, device=device)
    out, pair = torch.empty_like(q), cache.unbind(1)
    tokens = torch.randn(batch, 1, 16, 576, device=device).bfloat16()
    latents = torch.randn(256, 1, page, 576, device=device).bfloat16()
    result = torch.empty_like(tokens[..., :512])
    decode, latent = (bolide.decode.trtllm_batch_decode_with_kv_cache,
                      bolide.mla.trtllm_batch_decode_with_kv_cache_mla)
    for name, given in (("(k, v)", pair), ("cache", cache)):
        yield (f"trtllm_batch_decode_with_kv_cache(q, {name}, …)",
               lambda given=given: decode(q, given, space, table, lens, 64, 0.088, 1.0, out=out), 20)
    yield ("trtllm_batch_decode_with_kv_cache_mla(q, cache, …)", lambda: latent(
        tokens, latents, space, 128, 512, 64, table, lens, 64, out=result, bmm1_scale=0.07), 20)
    starts, ones = torch.arange(batch + 1, dtype=torch.int32, device=device), torch.ones_like(lens)
    yield ("cudnn_batch_decode_with_kv_cache(q, k, v, …)",
           lambda: bolide.cudnn.cudnn_batch_decode_with_kv_cache(
               q, *pair, 0.088, space, max_sequence_kv=64, actual_seq_lens_kv=lens,
               block_tables=table, out=out), 20)
    yield ("cudnn_batch_prefill_with_kv_cache(q, k, v, …)",
           lambda: bolide.cudnn.cudnn_batch_prefill_with_kv_cache(
               q, *pair, 0.088, space, max_token_per_sequence=1, max_sequence_kv=64,
               actual_seq_lens_q=ones, actual_seq_lens_kv=lens,
               block_tables=table, causal=True, return_lse=False, out=out), 20)
    yield ("trtllm_fmha_v2_prefill((q, cache), …)",
           lambda: bolide.prefill.trtllm_fmha_v2_prefill(
               (q, cache), "Q_PAGED_KV_HND", space, lens, 1, 64, 0.088, 1.0, batch, starts,
               starts, table, out=out), 20)


def binding(device):
    x, w = torch.randn(1, 128, device=device).half(), torch.ones(128, device=device).half()
    out, empty = torch.empty_like(x), x[:0]
    call = _binding.Operator("rmsnorm", "input weight out eps", "run").call
    yield "rmsnorm", lambda: call(x, w, out, 1e-6), 200
    yield "rmsnorm of no rows", lambda: call(empty, w, empty, 1e-6), 200


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--calls", nargs="*", help="only calls whose name has one of these texts")
    given = parser.parse_args()
    device = given.device
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"

    def report(made, ways):
        for same in zip(*made):
            if given.calls and not any(text in same[0][0] for text in given.calls):
                continue
            count = same[0][2]
            for way, us in zip(ways, costs([function for _, function, _ in same], device, count)):
                print(json.dumps({"call": same[0][0], "way": way, "device": name,
                                  "torch": torch.__version__, "us": us}), flush=True)

    packages, ways = [bolide], ["direct" if _binding._direct else "packed"]
    if given.peer:
        import flashinfer

        packages.append(flashinfer)
        ways.append(f"flashinfer {flashinfer.__version__}")
    for make in (norm, decode):
        report([make(package, device) for package in packages], ways)
    report([binding(device)], ["binding"])
    if device == "cuda":
        report([one_call(device)], ["direct"])
    if _binding._direct:
        _binding._direct.clear()
        for make in (norm, decode):
            report([make(bolide, device)], ["packed"])


if __name__ == "__main__":
    main()
