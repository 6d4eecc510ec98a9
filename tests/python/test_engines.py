# SPDX-License-Identifier: Apache-2.0
"""The call sequences of two serving engines, written anew: how they plan, capture, plan again
without waiting, run and sample. tests/data/engine_names.txt has the names and the versions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import bolide  # noqa: E402
from attention64 import Batch, attention  # noqa: E402

bolide.install_as_flashinfer()
import flashinfer  # noqa: E402
from flashinfer.cascade import merge_state  # noqa: E402
from flashinfer.decode import fast_decode_plan  # noqa: E402

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def fw(fw):
    if fw.name == "numpy":
        pytest.skip("engines have tensors of torch")
    return fw


def need(fw, *operators):
    for op in operators:
        if not bolide._rows.supports(op, fw.device):
            pytest.skip(f"{op} is not on {fw.device}")


def captured(fw, call):
    """The call in a CUDA graph after a warm-up; on the CPU the call itself."""
    call()
    if fw.device == "cpu":
        return call
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def ints(fw, n):
    return torch.zeros(n, dtype=torch.int32, device=fw.device)


# ---- vllm ------------------------------------------------------------------------------------


def plan_like_vllm(w, b, state, **options):
    """The first plan in full, later ones by fast_decode_plan, from lengths on the host."""
    host = dict(indptr=b.on_host(b.indptr_list), indices=b.indices,
                last_page_len=b.on_host(b.last_list), num_qo_heads=4, num_kv_heads=2, head_dim=64,
                page_size=b.page, pos_encoding_mode="NONE", window_left=-1,
                q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16, non_blocking=True,
                fixed_split_size=-1, disable_split_kv=False, q_len_per_req=1, **options)
    if state.get("planned"):
        fast_decode_plan(w, **host)
    else:
        flashinfer.utils._get_range_buf(len(b.kv_lens) + 1, "cpu")
        key = (f"range_{flashinfer.utils._ceil_pow2(len(b.kv_lens) + 1)}", "cpu")
        assert flashinfer.utils._cache_buf[key].tolist() == list(range(8))
        w.plan(**host, o_data_type=torch.bfloat16, block_tables=None,
               seq_lens=b.on_host(b.kv_lens))
        state["planned"] = True


def test_vllm_decode(fw, rng, close):
    need(fw, "batch_decode")
    indptr, indices, last = ints(fw, 17), ints(fw, 64), ints(fw, 16)
    first = Batch(fw, rng, [1] * 5, [9, 2, 4, 31, 1], dtype="bfloat16", page=16)
    w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        first.workspace(), "NHD", use_cuda_graph=True, paged_kv_indptr_buffer=indptr[:6],
        paged_kv_indices_buffer=indices, paged_kv_last_page_len_buffer=last[:5],
        use_tensor_cores=True, backend="auto")
    state, replay = {}, None
    q, out = torch.empty_like(first.q), torch.empty_like(first.q)
    cache = [torch.zeros(40, 16, 2, 64, dtype=torch.bfloat16, device=fw.device) for _ in range(2)]
    for lens in ([9, 2, 4, 31, 1], [40, 1, 1, 1, 33], [1, 1, 90, 17, 16]):
        b = Batch(fw, rng, [1] * 5, lens, dtype="bfloat16", page=16)
        plan_like_vllm(w, b, state, sm_scale=0.125, logits_soft_cap=0.0)
        assert (w._window_left, w._logits_soft_cap, w._sm_scale) == (-1, 0.0, 0.125)
        q.copy_(b.q)
        for mine, theirs in zip(cache, b.cache):
            mine[:theirs.shape[0]].copy_(theirs)
        if replay is None:
            replay = captured(fw, lambda: w.run(q, tuple(cache), q_scale=1.0, k_scale=1.0,
                                                v_scale=1.0, out=out, kv_cache_sf=None, sinks=None))
        out.fill_(float("nan"))
        replay()
        b.check(close, out, b.expected())


def test_vllm_prefill(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, [3, 2, 17, 1], [9, 4, 31, 1], dtype="bfloat16", layout="HND")
    kind = dict(q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    plan = dict(
        qo_indptr=b.on_host(b.qo_list), paged_kv_indptr=b.on_host(b.indptr_list),
        paged_kv_indices=b.indices, paged_kv_last_page_len=b.on_host(b.last_list),
        seq_lens=b.on_host(b.kv_lens), num_qo_heads=4, num_kv_heads=2, head_dim_qk=64,
        page_size=b.page, causal=True, sm_scale=0.125, window_left=6, logits_soft_cap=2.0,
        o_data_type=torch.bfloat16, fixed_split_size=-1, disable_split_kv=False, **kind)
    out = torch.full_like(b.q, float("nan"))
    w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(b.workspace(), "HND", backend="auto")
    w.plan(**plan)
    assert (w._window_left, w._logits_soft_cap, w._sm_scale, w._causal) == (6, 2.0, 0.125, True)
    w.run(b.q, b.cache, q_scale=1.0, k_scale=0.5, v_scale=2.0, out=out)
    expected, lse = b.expected(causal=True, window=6, cap=2.0, scale=0.0625)
    b.check(close, out, (2 * expected, lse))
    s = flashinfer.BatchAttentionWithAttentionSinkWrapper(
        b.workspace(), "HND", backend="auto", head_dim_qk=64, head_dim_vo=64, window_left=6, **kind)
    s.plan(**plan)
    sinks = rng.standard_normal(4)
    s.run(b.q, b.cache, fw.tensor(sinks, "float32"), 0.125 * 0.5, v_scale=1.0, out=out)
    assert s._sm_scale == 0.125
    b.check(close, out, b.expected(causal=True, window=6, cap=2.0, scale=0.0625, sinks=sinks))


def test_vllm_lengths_corrected_behind_the_plan(fw, rng, close):
    """Planned for upper bounds; the exact lengths, and pages to them, come from the GPU."""
    need(fw, "batch_prefill_paged")
    bounds = Batch(fw, rng, [1] * 3, [40, 33, 64], dtype="bfloat16", page=8)
    b = Batch(fw, rng, [1] * 3, [9, 33, 17], dtype="bfloat16", page=8)
    pages = ints(fw, len(bounds.indices_list))
    w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(b.workspace(), "NHD", backend="fa2")
    w.plan(b.on_host(b.qo_list), b.on_host(bounds.indptr_list), pages,
           b.on_host(bounds.last_list), 4, 2, 64, 8, head_dim_vo=64, causal=False, sm_scale=0.2,
           q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16, disable_split_kv=True,
           max_token_per_sequence=1)
    w._paged_kv_indptr_buf.copy_(b.indptr)
    w._paged_kv_last_page_len_buf.copy_(b.last)
    pages[:len(b.indices_list)].copy_(b.indices)
    for _ in range(2):
        b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(scale=0.2))
    w._qo_indptr_buf  # looked at, not written
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(scale=0.2))


def test_vllm_new_tokens_apart(fw, rng, close):
    """Keys of the new tokens alone; the engine merges them with those of the prompt so far."""
    need(fw, "batch_prefill_ragged")
    b = Batch(fw, rng, [3, 5], [3, 5], dtype="bfloat16")
    k, v, _ = b.packed()
    w = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(b.workspace(), "NHD", backend="auto")
    w.plan(qo_indptr=b.qo, kv_indptr=b.qo, num_qo_heads=4, num_kv_heads=2, head_dim_qk=64,
           head_dim_vo=64, causal=True, sm_scale=0.125, window_left=-1, logits_soft_cap=None,
           q_data_type=torch.bfloat16, o_data_type=torch.bfloat16)
    assert (w._window_left, w._logits_soft_cap, w._sm_scale, w._causal) == (-1, 0.0, 0.125, True)
    b.check(close, w.run(q=b.q, k=k, v=v, out=None, return_lse=True), b.expected(causal=True))


def test_vllm_sampling(fw):
    need(fw, "top_p_sampling_from_probs", "top_k_sampling_from_probs",
         "top_k_top_p_sampling_from_logits")
    logits = torch.full((6, 1000), -30.0, device=fw.device)
    logits[:, 7], logits[:, 11] = 10.0, 9.0
    k = torch.full((6,), 2, dtype=torch.int32, device=fw.device)
    p = torch.full((6,), 0.9, device=fw.device)
    probs = logits.softmax(dim=-1, dtype=torch.float32)
    for ids in (flashinfer.sampling.top_p_sampling_from_probs(probs, p, deterministic=True),
                flashinfer.sampling.top_k_sampling_from_probs(probs, k, deterministic=True),
                flashinfer.sampling.top_k_top_p_sampling_from_logits(logits, k, p,
                                                                     deterministic=True)):
        assert ids.view(-1).shape == (6,) and set(ids.tolist()) <= {7, 11}


# ---- sglang ----------------------------------------------------------------------------------


def pool(b):
    """Keys and values of one token a page, without the page axis, as the engine keeps them."""
    return b.k_cache.view(-1, 2, 64), b.v_cache.view(-1, 2, 64)


def test_sglang_extend(fw, rng, close):
    """New tokens against themselves, then against the prefix, merged."""
    need(fw, "batch_prefill_paged", "batch_prefill_ragged", "merge_state")
    n, total = [3, 5, 1], [9, 5, 4]
    b = Batch(fw, rng, n, total, page=1, dtype="bfloat16")
    prefix = [t - m for t, m in zip(total, n)]
    before = np.concatenate([b.indices_list[a:a + p] for a, p in zip(b.indptr_list, prefix)])
    parts = [b.request(i) for i in range(3)]
    k, v = (fw.tensor(np.concatenate([x[j][p:] for x, p in zip(parts, prefix)]), "bfloat16")
            for j in (1, 2))
    space = b.workspace()
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(space, "NHD", backend="auto")
    paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space, "NHD", backend="fa2")
    for _ in range(2):
        ragged.begin_forward(b.qo, b.qo, 4, 2, 64, q_data_type=torch.bfloat16)
        paged.begin_forward(b.qo, b.index(np.concatenate([[0], np.cumsum(prefix)])),
                            b.index(before), b.index([1] * 3), 4, 2, 64, 1,
                            q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
                            custom_mask=None, non_blocking=True, fixed_split_size=None,
                            prefix_len_ptr=None, token_pos_in_items_ptr=None,
                            token_pos_in_items_len=0, max_item_len_ptr=None)
        for cap in (0, 5.0):  # two layers
            a = ragged.forward_return_lse(b.q, k, v, causal=True, sm_scale=0.2, window_left=-1,
                                          logits_soft_cap=cap)
            c = paged.forward_return_lse(b.q, pool(b), causal=False, sm_scale=0.2, window_left=-1,
                                         logits_soft_cap=cap, k_scale=None, v_scale=None)
            got = merge_state(*a, *c)
            b.check(close, (got[0], got[1]), b.expected(causal=True, scale=0.2, cap=cap))


def test_sglang_decode_graph(fw, rng, close):
    need(fw, "batch_decode")
    indptr, indices, last = ints(fw, 6), ints(fw, 256), torch.ones_like(ints(fw, 5))
    first = Batch(fw, rng, [1] * 5, [9, 2, 4, 31, 1], page=1, dtype="bfloat16")
    w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        first.workspace(), "NHD", backend="fa2", use_cuda_graph=True, use_tensor_cores=True,
        paged_kv_indptr_buffer=indptr, paged_kv_indices_buffer=indices,
        paged_kv_last_page_len_buffer=last)
    q, replay, out = torch.empty_like(first.q), None, None
    cache = [torch.zeros(256, 2, 64, dtype=torch.bfloat16, device=fw.device) for _ in range(2)]
    for lens in ([9, 2, 4, 31, 1], [40, 1, 1, 1, 33], [1, 1, 90, 17, 16]):
        b = Batch(fw, rng, [1] * 5, lens, page=1, dtype="bfloat16")
        indptr.copy_(b.indptr)
        w._paged_kv_indices_buf[:len(b.indices_list)].copy_(b.indices)
        for mine, theirs in zip(cache, pool(b)):
            mine[:theirs.shape[0]].copy_(theirs)
        q.copy_(b.q)
        given = (indptr, w._paged_kv_indices_buf, last, 4, 2, 64, 1)
        late = dict(data_type=torch.bfloat16, q_data_type=torch.bfloat16, non_blocking=True,
                    fixed_split_size=None, disable_split_kv=False)
        if getattr(w.begin_forward, "func", None) is fast_decode_plan:
            w.begin_forward(*given, **late, global_override_indptr_cpu=b.on_host(b.indptr_list))
        else:
            w.begin_forward(*given, **late)

        def layer():
            nonlocal out
            out = w.forward(q, tuple(cache), sm_scale=0.2, logits_soft_cap=30.0, k_scale=None,
                            v_scale=None)

        if replay is None:
            replay = captured(fw, layer)
            w.begin_forward = partial(fast_decode_plan, w)
        replay()
        b.check(close, out, b.expected(scale=0.2, cap=30.0))


def fast_prefill_plan(w, b, rows):
    """The engine's own plan of a captured prefill: buffers, attributes and the internal call."""
    qo, kv, lens = (b.on_host(x) for x in (b.qo_list, b.indptr_list, b.kv_lens))
    assert w.is_cuda_graph_enabled and w._backend == "fa2" and w._cached_module is not None
    w._qo_indptr_last, w._max_q_len, w._max_kv_len = int(qo[-1]), rows, max(b.kv_lens)
    w._qo_indptr_buf.copy_(qo, non_blocking=True)
    w._paged_kv_indptr_buf.copy_(kv, non_blocking=True)
    w._paged_kv_last_page_len_buf.copy_(b.last, non_blocking=True)
    w._paged_kv_indices_buf[:len(b.indices_list)].copy_(b.indices)
    w._cached_q_data_type = w._cached_kv_data_type = torch.bfloat16
    w._block_tables = None
    w._plan_info = w._cached_module.plan(
        w._float_workspace_buffer, w._int_workspace_buffer, w._pin_memory_int_workspace_buffer, qo,
        kv, lens, w._max_total_num_rows, len(lens), 4, 2, 1, True, 64, 64, False, -1, -1, False, 0,
        0)


@pytest.mark.parametrize("masked", [False, True])
def test_sglang_verify_graph(fw, rng, close, masked):
    """Draft tokens of each request against its cache, in a graph, with a tree mask or causal."""
    need(fw, "batch_prefill_paged", "segment_packbits")
    extra = {}
    if masked:
        extra = {"custom_mask_buf": torch.zeros(4096, dtype=torch.uint8, device=fw.device),
                 "mask_indptr_buf": ints(fw, 4)}
    first = Batch(fw, rng, [4] * 3, [9, 4, 30], page=1, dtype="bfloat16")
    w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        first.workspace(), "NHD", use_cuda_graph=True, backend="fa2", qo_indptr_buf=ints(fw, 4),
        paged_kv_indptr_buf=ints(fw, 4), paged_kv_indices_buf=ints(fw, 256),
        paged_kv_last_page_len_buf=ints(fw, 3), **extra)
    q, replay, out = torch.empty_like(first.q), None, None
    cache = [torch.zeros(256, 2, 64, dtype=torch.bfloat16, device=fw.device) for _ in range(2)]
    for lens in ([9, 4, 30], [40, 6, 33], [5, 90, 17]):
        b = Batch(fw, rng, [4] * 3, lens, page=1, dtype="bfloat16")
        masks = [rng.random((4, s)) < 0.7 for s in lens] if masked else None
        bits = None
        if masked:
            bits = [np.packbits(m.reshape(-1), bitorder="little") for m in masks]
        for mine, theirs in zip(cache, pool(b)):
            mine[:theirs.shape[0]].copy_(theirs)
        q.copy_(b.q)
        if replay is None:
            mask = None
            if masked:
                mask = fw.tensor(np.concatenate([m.reshape(-1) for m in masks]), "bool")
            w.begin_forward(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 1,
                            q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
                            custom_mask=mask, non_blocking=True)
        else:
            if masked:
                packed = fw.tensor(np.concatenate(bits), "uint8")
                w._mask_indptr_buf.copy_(b.index(np.cumsum([0] + [len(x) for x in bits])))
                w._custom_mask_buf[:len(packed)].copy_(packed)
            fast_prefill_plan(w, b, 4)

        def layer():
            nonlocal out
            out = w.forward(q, tuple(cache), causal=True, sm_scale=0.2, logits_soft_cap=0.0)

        replay = captured(fw, layer) if replay is None else replay
        replay()
        b.check(close, out, b.expected(masks=masks, causal=True, scale=0.2))


def test_sglang_sampling(fw):
    need(fw, "top_k_renorm_probs", "top_p_renorm_probs", "min_p_sampling_from_probs",
         "top_k_top_p_sampling_from_probs")
    from flashinfer.sampling import (min_p_sampling_from_probs, top_k_renorm_probs,
                                     top_k_top_p_sampling_from_probs, top_p_renorm_probs)

    logits = torch.full((6, 1000), -30.0, device=fw.device)
    logits[:, 7], logits[:, 11], logits[:, 13] = 10.0, 9.0, 1.0
    probs = logits.softmax(-1)
    k = torch.full((6,), 3, dtype=torch.int32, device=fw.device)
    p = torch.full((6,), 0.99, device=fw.device)
    renormed = top_p_renorm_probs(top_k_renorm_probs(probs, k), p)
    assert ((renormed > 0).sum(-1) == 2).all()
    ids = min_p_sampling_from_probs(renormed, torch.full((6,), 0.1, device=fw.device))
    assert set(ids.tolist()) <= {7, 11}
    ids = top_k_top_p_sampling_from_probs(probs.contiguous(), k, p, filter_apply_order="joint")
    assert set(ids.tolist()) <= {7, 11}


# ---- latent attention --------------------------------------------------------------------------


def fast_mla_plan(w, qo_indptr, kv_indptr, kv_indices, kv_lens, num_heads, head_dim_ckv,
                  head_dim_kpe, page_size, causal, sm_scale, q_data_type, kv_data_type):
    """The engine's own plan of captured latent attention, from lengths on the host; it has written
    the page table into its buffer itself."""
    w._causal, w._page_size, w._sm_scale = causal, page_size, sm_scale
    w._cached_module.plan(
        w._float_workspace_buffer, w._int_workspace_buffer, w._pin_memory_int_workspace_buffer,
        qo_indptr, kv_indptr, kv_lens, num_heads, head_dim_ckv, causal)


@pytest.mark.parametrize("tokens", [1, 3])
def test_sglang_latent_graph(fw, rng, close, tokens):
    """Decode and draft tokens against a pool of latents, in a graph that follows later plans."""
    need(fw, "batch_mla")
    heads, ckv, kpe, n = 4, 64, 16, 5
    table = ints(fw, 256)
    w = flashinfer.mla.BatchMLAPagedAttentionWrapper(
        torch.empty(1 << 25, dtype=torch.uint8, device=fw.device), use_cuda_graph=True,
        qo_indptr=ints(fw, n + 1), kv_indptr=ints(fw, n + 1), kv_indices=table,
        kv_len_arr=ints(fw, n), backend="auto")
    kind = dict(dtype=torch.bfloat16, device=fw.device)
    pool = torch.zeros(256, 1, ckv + kpe, **kind)
    q = torch.empty(n * tokens, heads, ckv + kpe, **kind)
    qo, replay, out = np.arange(n + 1) * tokens, None, None
    for lens in ([9, 3, 4, 31, 5], [40, 3, 7, 3, 33], [3, 5, 90, 17, 16]):
        indptr, ids = np.cumsum([0, *lens]), rng.permutation(256)[:sum(lens)]
        pool.copy_(fw.tensor(rng.standard_normal(pool.shape), "bfloat16"))
        q.copy_(fw.tensor(rng.standard_normal(q.shape), "bfloat16"))
        table[:len(ids)].copy_(fw.tensor(ids, "int32"))
        host = [torch.tensor(x, dtype=torch.int32) for x in (qo, indptr, lens)]
        here = [x.to(fw.device) for x in host] if replay is None else host
        w.plan(here[0], here[1], table, here[2], heads, ckv, kpe, 1, tokens > 1, 0.1,
               torch.bfloat16, torch.bfloat16)
        w.plan = partial(fast_mla_plan, w)

        def layer():
            nonlocal out
            out = torch.empty(n * tokens, heads, ckv, **kind)
            w.run(q[..., :ckv], q[..., ckv:], pool[:, :, :ckv], pool[:, :, ckv:], out=out)

        replay = captured(fw, layer) if replay is None else replay
        replay()
        keys, queries = fw.numbers(pool)[:, 0], fw.numbers(q)
        expected = np.concatenate([
            attention(queries[a:a + tokens], keys[ids[b:b + m]][:, None],
                      keys[ids[b:b + m]][:, None, :ckv], causal=True, scale=0.1)[0]
            for a, b, m in zip(qo, indptr, lens)])
        close(fw.numbers(out), expected, "bfloat16")


@pytest.mark.parametrize("scale_format", ["pow2_fp32", "arbitrary_fp32"])
def test_vllm_latent_lists(fw, rng, close, scale_format):
    """Packed rows of a cache, one list for each token, lengths and sums of the kernel's.

    The GPU rounds a scaled key to the type of its products, which powers of two do not notice.
    """
    need(fw, "sparse_mla")
    n, heads, k, pages = 4, 16, 24, 3
    cache = rng.integers(0, 120, (pages, 64, 656)).astype(np.uint8)  # e4m3 without NaN
    scales = np.exp2(rng.integers(-5, -2, (pages, 64, 4))).astype(np.float32)
    if scale_format == "arbitrary_fp32":
        scales = rng.uniform(0.05, 0.2, scales.shape).astype(np.float32)
    turned = rng.standard_normal((pages, 64, 64))
    cache[..., 512:528] = scales.view(np.uint8)
    cache = fw.tensor(cache, "uint8")
    cache[..., 528:].view(torch.bfloat16).copy_(fw.tensor(turned, "bfloat16"))
    ids = rng.integers(0, pages * 64, (n, k))
    lens = rng.integers(0, k + 1, n)
    for row, m in zip(ids, lens):
        row[m:] = -1
    q = fw.tensor(rng.standard_normal((n, heads, 576)) * 0.3, "bfloat16")
    out = torch.empty(n, heads, 512, dtype=torch.bfloat16, device=fw.device)
    lse = torch.empty(n, heads, dtype=torch.float32, device=fw.device)
    ret = flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(
        query=q.unsqueeze(1), kv_cache=cache.view(torch.uint8).unsqueeze(1),
        workspace_buffer=torch.zeros(1 << 25, dtype=torch.uint8, device=fw.device),
        qk_nope_head_dim=128, kv_lora_rank=512, qk_rope_head_dim=64,
        block_tables=fw.tensor(ids, "int32").unsqueeze(1), seq_lens=fw.tensor(lens, "int32"),
        max_seq_len=k, out=out.unsqueeze(1), bmm1_scale=0.05, bmm2_scale=1.0, sparse_mla_top_k=k,
        kv_scale_format=scale_format, lse=lse.unsqueeze(1), return_lse=True)
    assert ret[0].shape == (n, 1, heads, 512) and ret[1].shape == (n, 1, heads)
    values = fw.numbers(cache[..., :512].contiguous().view(torch.float8_e4m3fn))
    values *= np.repeat(scales.astype(np.float64), 128, -1)
    if fw.device == "cuda":
        values = fw.numbers(fw.tensor(values, "bfloat16"))
    rope = fw.numbers(cache[..., 528:].contiguous().view(torch.bfloat16))
    keys = np.concatenate([values, rope], -1)
    keys = keys.reshape(-1, 576)
    for i, m in enumerate(lens):
        rows = keys[ids[i, :m]][:, None]
        expected = attention(fw.numbers(q)[i:i + 1], rows, rows[..., :512], scale=0.05)
        close(fw.numbers(out)[i:i + 1], expected[0], "bfloat16")
        if m:
            close(fw.numbers(lse)[i:i + 1], expected[1], "bfloat16")
        else:
            assert np.isneginf(fw.numbers(lse)[i]).all()


def test_attributes(fw):
    """What engines read and set from outside is there behind a plan."""
    need(fw, "batch_prefill_paged", "batch_prefill_ragged", "batch_decode")
    b = Batch(fw, np.random.default_rng(), [1, 1], [3, 4], page=1)
    made = {}
    for kind in ("BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper",
                 "BatchPrefillWithRaggedKVCacheWrapper"):
        made[kind] = w = getattr(flashinfer, kind)(b.workspace())
        if "Decode" in kind:
            w.plan(b.indptr, b.indices, b.last, 4, 2, 64, 1, q_data_type=b.dtype)
        elif "Paged" in kind:
            w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 1, q_data_type=b.dtype)
        else:
            w.plan(b.qo, b.qo, 4, 2, 64, q_data_type=b.dtype)
    for line in (DATA / "engine_names.txt").read_text().splitlines():
        if line.startswith("attribute "):
            _, kind, name, *_ = line.split()
            assert hasattr(made[kind], name.rstrip(":")), line


# ---- attention in one call -------------------------------------------------------------------


def test_vllm_xqa_decode(fw, rng, close):
    """Where the engine finds XQA: pages NHD, the causal order as a mask over new tokens."""
    need(fw, "batch_decode")
    for q_len in (1, 3):
        b = Batch(fw, rng, [q_len] * 4, [9, 3, 40, 17], dtype="bfloat16", page=16)
        out = torch.full((4 * q_len + 2, 4, 64), float("nan"), dtype=torch.bfloat16,
                         device=fw.device)
        mask = None
        if q_len > 1:
            rows = torch.tensor([[1], [3], [7]], dtype=torch.int32).expand(4, 3, 1)
            mask = rows.contiguous().view(torch.uint16).to(fw.device)
        flashinfer.decode.xqa_batch_decode_with_kv_cache(
            query=b.q, kv_cache=b.cache, kv_cache_sf=None, workspace_buffer=b.workspace(1 << 25),
            block_tables=b.table(), seq_lens=b.lens, max_seq_len=64, bmm1_scale=0.125,
            bmm2_scale=0.5, window_left=-1, out=out[:4 * q_len], sinks=None, kv_layout="NHD",
            q_len_per_req=q_len, mask=mask, q_cu_seq_lens=None)
        expected, lse = b.expected(causal=True)
        b.check(close, out[:4 * q_len], (0.5 * expected, lse))


def test_vllm_trtllm(fw, rng, close):
    """Decode by cumulative lengths, prefill whose indptr of keys counts pages, and both parts of
    latent attention's prefill, whose logarithms are to base 2."""
    need(fw, "batch_decode", "batch_prefill_paged", "batch_prefill_ragged")
    counters = flashinfer.utils.get_trtllm_gen_multi_ctas_kv_counter_bytes(64, 4, 132)
    counters = torch.zeros(counters, dtype=torch.uint8, device=fw.device)
    b = Batch(fw, rng, [3, 1, 17, 2], [9, 3, 31, 40], dtype="bfloat16", layout="HND", page=16)
    out, lse = torch.full_like(b.q, float("nan")), b.q.new_empty(23, 4, dtype=torch.float32)
    expected = b.expected(causal=True, window=20)
    common = dict(query=b.q, kv_cache=b.cache, workspace_buffer=b.workspace(1 << 25),
                  block_tables=b.table(), seq_lens=b.lens, bmm1_scale=0.125, bmm2_scale=1.0,
                  window_left=20, sinks=None, o_sf_scale=None, out=out, kv_cache_sf=None,
                  cum_seq_lens_q=b.qo, multi_ctas_kv_counter_buffer=counters)
    flashinfer.decode.trtllm_batch_decode_with_kv_cache(
        max_seq_len=40, kv_layout="HND", backend="trtllm-gen", q_len_per_req=None, max_q_len=17,
        lse=lse, return_lse=True, **common)
    b.check(close, (out, lse), expected)
    out.fill_(float("nan"))
    flashinfer.prefill.trtllm_batch_context_with_kv_cache(
        max_q_len=17, max_kv_len=40, batch_size=4, cum_seq_lens_kv=b.indptr, **common)
    b.check(close, out, expected)
    k, v, starts = b.packed()
    got = flashinfer.prefill.trtllm_ragged_attention_deepseek(
        query=b.q, key=k, value=v, workspace_buffer=b.workspace(1 << 25), seq_lens=b.lens,
        max_q_len=17, max_kv_len=40, bmm1_scale=0.125, bmm2_scale=1.0, o_sf_scale=1.0,
        batch_size=4, window_left=-1, cum_seq_lens_q=b.qo, cum_seq_lens_kv=starts,
        enable_pdl=False, is_causal=False, backend="trtllm-gen", return_lse=True, out=out,
        skip_all_rows_active_check=True)
    b.check(close, got, b.expected())


def test_sglang_trtllm(fw, rng, close):
    """The engine's prefill by FMHA v2, and its images by cuDNN: a bucket of the batch, padded with
    requests of no token, and offsets in elements."""
    need(fw, "batch_decode", "batch_prefill_paged", "batch_prefill_ragged")
    b = Batch(fw, rng, [3, 1, 17, 2], [9, 3, 31, 40], dtype="bfloat16", page=16)
    got = flashinfer.prefill.trtllm_fmha_v2_prefill(
        (b.q, b.cache), input_layout="Q_PAGED_KV_NHD", workspace_buffer=b.workspace(1 << 25),
        seq_lens=b.lens, max_q_len=17, max_kv_len=4096, bmm1_scale=0.125, bmm2_scale=1.0,
        batch_size=4, cum_seq_lens_q=b.qo, cum_seq_lens_kv=b.indptr, block_tables=b.table(),
        out=None, out_dtype=torch.bfloat16, mask_mode="causal", window_left=11, sinks=None,
        skip_softmax_threshold_scale_factor=0.0)
    b.check(close, got, b.expected(causal=True, window=11))
    lens = [40, 9, 64]
    b = Batch(fw, rng, lens, lens, h_kv=4, dtype="bfloat16")
    k, v, _ = b.packed()
    ends = np.concatenate([np.cumsum([0, *lens]), [113] * 5]) * 4 * 64
    padded = b.index([*lens, 0, 0, 0, 0, 0]).view(8, 1, 1, 1)
    offsets = b.index(ends).view(9, 1, 1, 1)
    out, _ = flashinfer.prefill.cudnn_batch_prefill_with_kv_cache(
        b.q, k, v, 0.125, b.workspace(1 << 25), max_token_per_sequence=64, max_sequence_kv=64,
        actual_seq_lens_q=padded, actual_seq_lens_kv=padded, causal=False, return_lse=True,
        batch_offsets_q=offsets, batch_offsets_k=offsets, batch_offsets_v=offsets,
        batch_offsets_o=offsets, is_cuda_graph_compatible=True)
    b.check(close, out, b.expected())


@pytest.mark.parametrize("expanded", [False, True])
def test_sglang_fp8_keys(fw, rng, close, expanded):
    """Keys for a cache of fp8 have one head of their own; before dense prefill the part that turns
    is the same for every head. Queries and keys lie in one tensor with the part that does not."""
    need(fw, "rope_quantize_fp8")
    n, h, rope, nope = 5, 4, 64, 32
    heads = h if expanded else 1
    q_rope, k_rope, q_nope, k_nope = (
        fw.tensor(rng.standard_normal(s), "bfloat16")
        for s in ((n, h, rope), (n, 1, rope), (n, h, nope), (n, heads, nope)))
    table = torch.tensor(rng.standard_normal((40, rope)), dtype=torch.float32, device=fw.device)
    pos = torch.tensor([0, 39, 3, 17, 5], device=fw.device)
    q = torch.empty(n, h, nope + rope, dtype=torch.float8_e4m3fn, device=fw.device)
    k = torch.empty(n, heads, nope + rope, dtype=torch.float8_e4m3fn, device=fw.device)
    flashinfer.rope.mla_rope_quantize_fp8(
        q_rope=q_rope, k_rope=k_rope.expand(-1, heads, -1), q_nope=q_nope, k_nope=k_nope,
        cos_sin_cache=table, pos_ids=pos, is_neox=False, quantize_dtype=torch.float8_e4m3fn,
        q_rope_out=q[..., nope:], k_rope_out=k[..., nope:], q_nope_out=q[..., :nope],
        k_nope_out=k[..., :nope], quant_scale_q=1.0, quant_scale_kv=1.0, enable_pdl=True)
    cos, sin = table[pos].double()[:, None].split(rope // 2, -1)
    for got, turning, rest in ((q, q_rope, q_nope), (k, k_rope.expand(-1, heads, -1), k_nope)):
        a, b = turning.double()[..., ::2], turning.double()[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        close(fw.numbers(got), torch.cat([rest.double(), turned], -1).cpu().numpy(), "float8_e4m3fn")
