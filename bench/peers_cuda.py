# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's forms of our attention operators on a GPU, for bench/compare.py --backend cuda.

FORMS maps an operator to a function that takes the problem's numbers and gives functions that make
one set of inputs and return a call on it. Calls are timed as ours are: in a CUDA graph, over inputs
that together are four times the L2, at least 20 of them, and the time is divided by their number.
FlashInfer must be importable; without it there are no peers.
"""

import statistics

import flashinfer
import torch

from peers import numbers

DEVICE = "cuda"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
CALLS = 20
REPLAYS = 9
WORKSPACE_BYTES = 512 << 20


def randn(*shape, dtype):
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def starts(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def lengths_of(value, batch):
    """len=5:7 or one number for all."""
    lengths = [int(word) for word in str(value).split(":")]
    return lengths if len(lengths) > 1 else lengths * batch


def paged_cache(p, dtype):
    """Lengths, the page table in random order, and a function that makes a cache."""
    page, lengths = p["page"], lengths_of(p["len"], p.get("b", 1))
    pages = [-(-length // page) for length in lengths]
    table = torch.randperm(sum(pages)).int().to(DEVICE)
    last = torch.tensor([(length - 1) % page + 1 for length in lengths], dtype=torch.int32)
    shape = (sum(pages), 2, page, p["h_kv"], p["d"])
    return starts(pages), table, last, lambda: randn(*shape, dtype=dtype)


def decode(p, workspace):
    dtype = DTYPES[p["x"]]
    indptr, table, last, cache = paged_cache(p, dtype)
    q = randn(len(last), p["h_q"], p["d"], dtype=dtype)

    def form(tensor_cores):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=tensor_cores)
        wrapper.plan(indptr, table, last, p["h_q"], p["h_kv"], p["d"], p["page"],
                     q_data_type=dtype, kv_data_type=dtype)

        def make():
            kv = cache()
            return lambda: wrapper.run(q, kv)

        return make

    return {"flashinfer, tensor cores": form(True), "flashinfer": form(False)}


def prefill_paged(p, workspace):
    dtype = DTYPES[p["x"]]
    indptr, table, last, cache = paged_cache(p, dtype)
    q_lengths = lengths_of(p["q_len"], len(last))
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
    wrapper.plan(starts(q_lengths), indptr, table, last, p["h_q"], p["h_kv"], p["d"], p["page"],
                 causal=bool(p.get("causal", 0)), q_data_type=dtype, kv_data_type=dtype)

    def make():
        q, kv = randn(sum(q_lengths), p["h_q"], p["d"], dtype=dtype), cache()
        return lambda: wrapper.run(q, kv)

    return {"flashinfer fa2": make}


def prefill_ragged(p, workspace):
    dtype = DTYPES[p["x"]]
    lengths = lengths_of(p["len"], p.get("b", 1))
    q_lengths = lengths_of(p["q_len"], len(lengths))
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend="fa2")
    wrapper.plan(starts(q_lengths), starts(lengths), p["h_q"], p["h_kv"], p["d"],
                 causal=bool(p.get("causal", 0)), q_data_type=dtype, kv_data_type=dtype)

    def make():
        q = randn(sum(q_lengths), p["h_q"], p["d"], dtype=dtype)
        k, v = (randn(sum(lengths), p["h_kv"], p["d"], dtype=dtype) for _ in range(2))
        return lambda: wrapper.run(q, k, v)

    return {"flashinfer fa2": make}


FORMS = {
    "batch_decode": decode,
    "batch_prefill_paged": prefill_paged,
    "batch_prefill_ragged": prefill_ragged,
}


def timer(make):
    """A function that measures the form and returns microseconds a call."""
    before = torch.cuda.memory_allocated()
    calls = [make()]
    size = max(1, torch.cuda.memory_allocated() - before)
    wanted = 4 * torch.cuda.get_device_properties(0).L2_cache_size
    calls += [make() for _ in range(min(CALLS, -(-wanted // size)) - 1)]
    rounds = -(-CALLS // len(calls)) if size < wanted else 1
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()

    def run():
        times = []
        graph.replay()
        for _ in range(REPLAYS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * start.elapsed_time(end) / (rounds * len(calls)))
        return statistics.median(times)

    return run


def calls(problem, _threads):
    """Measuring functions by name; none for an operator that has no form here."""
    operator, p = numbers(problem)
    if operator not in FORMS or p.get("x") not in DTYPES or "kv_data_type" in p:
        return {}
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE)
    return {name: timer(make) for name, make in FORMS[operator](p, workspace).items()}
