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
from attention64 import Batch  # noqa: E402

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
