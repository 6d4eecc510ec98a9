# SPDX-License-Identifier: Apache-2.0
"""Attention that is planned and run in one call, under FlashInfer's names of the families trtllm,
xqa, cuDNN and FMHA v2, against float64. Workspaces hold garbage, outputs hold NaN."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from attention64 import Batch, attention
from bolide import _frameworks
from bolide.decode import trtllm_batch_decode_with_kv_cache, xqa_batch_decode_with_kv_cache
from bolide.prefill import (
    fmha_v2_prefill_deepseek, fmha_v2_prefill_sm120, trtllm_batch_context_with_kv_cache,
    trtllm_fmha_v2_prefill, trtllm_ragged_attention_deepseek)
from bolide.cudnn import cudnn_batch_decode_with_kv_cache, cudnn_batch_prefill_with_kv_cache

LENS = [5, 0, 17, 40, 1]
QUERIES = [3, 0, 5, 8, 1]


def workspace(b):
    """Of garbage, not aligned."""
    return _frameworks.full(b.q, (1 << 25,), "uint8", 0xCD)[3:]


def nans(b, *shape, dtype=None):
    return _frameworks.full(b.q, shape, dtype or b.dtype, float("nan"))


def words(fw, masks, rows, dtype="uint16"):
    """Masks of each request as rows of words with bits, the lowest first."""
    size = np.dtype(dtype).itemsize * 8
    width = -(-max((m.shape[0] for m in masks), default=1) // size)
    bits = np.zeros((rows, width * size), bool)
    at = 0
    for m in masks:
        bits[at:at + m.shape[0], :m.shape[0]] = m
        at += m.shape[0]
    packed = np.packbits(bits, axis=1, bitorder="little").view(dtype)
    if fw.name == "numpy":
        return packed
    import torch

    signed = torch.from_numpy(packed.view(f"int{size}").copy()).to(fw.device)
    return signed.view(getattr(torch, dtype))


def draft_masks(rng, b):
    """Random masks over the new tokens, and what they mean for all keys."""
    small = [rng.random((n, n)) < 0.5 for n in b.q_lens]
    whole = [np.concatenate([np.ones((n, k - n), bool), m], 1)
             for n, k, m in zip(b.q_lens, b.kv_lens, small)]
    return small, whole


# ---- trtllm, xqa: decode ---------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("page", [3, 16])
def test_trtllm_decode(fw, rng, close, layout, dtype, page):
    b = Batch(fw, rng, [1] * 5, LENS, layout=layout, dtype=dtype, page=page)
    out, lse = nans(b, 5, 4, 64), nans(b, 5, 4, dtype="float32")
    got = trtllm_batch_decode_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 40, 0.125, 2.0, out=out, kv_layout=layout,
        lse=lse, return_lse=True, window_left=6)
    assert got[0] is out and got[1] is lse
    expected, wanted = b.expected(causal=True, window=6)
    b.check(close, got, (2 * expected, wanted))


def test_trtllm_decode_options(fw, rng, close):
    """Scales as tensors and in log2, sinks, one tensor for the cache, several tokens a request."""
    b = Batch(fw, rng, [2] * 4, [5, 2, 17, 40], layout="HND", page=4)
    sinks = rng.standard_normal(4)
    one = lambda x: fw.tensor(np.array([x]), "float32")  # noqa: E731
    cache = np.stack([fw.numbers(c) for c in b.cache], 1)
    cache = fw.tensor(cache, "float32")
    expected = b.expected(causal=True, scale=0.3, sinks=sinks)
    common = dict(kv_cache=cache, workspace_buffer=workspace(b), block_tables=b.table(),
                  seq_lens=b.lens, max_seq_len=64, q_len_per_req=2,
                  sinks=[fw.tensor(sinks, "float32")], return_lse=True, backend="xqa",
                  skip_softmax_threshold_scale_factor=3.0, enable_pdl=True)
    b.check(close, trtllm_batch_decode_with_kv_cache(
        b.q, bmm1_scale=one(0.3), bmm2_scale=one(1.0), **common), expected)
    b.check(close, trtllm_batch_decode_with_kv_cache(
        b.q, bmm1_scale_log2=one(0.3 / np.log(2)), bmm2_scale=0.5, o_scale=0.5, **common), expected)
    common["block_tables"] = common["block_tables"].view(fw.unsigned)
    common["q_len_per_req"] = None
    b.check(close, trtllm_batch_decode_with_kv_cache(b.q, bmm1_scale=0.3, **common), expected)


def test_trtllm_decode_of_one_tensor_for_both(fw, rng, close):
    """Where the second axis is 1 the cache is keys and values."""
    b = Batch(fw, rng, [1] * 3, [5, 17, 40], h_kv=1, layout="HND")
    b.v64 = b.k64
    got = trtllm_batch_decode_with_kv_cache(b.q, b.k_cache, workspace(b), b.table(), b.lens, 40,
                                            0.125, return_lse=True)
    b.check(close, got, b.expected(causal=True))


def test_trtllm_decode_of_different_lengths(fw, rng, close):
    b = Batch(fw, rng, QUERIES, LENS, layout="HND")
    got = trtllm_batch_decode_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 40, 0.125, cum_seq_lens_q=b.qo, max_q_len=8,
        q_len_per_req=None, return_lse=True)
    b.check(close, got, b.expected(causal=True))
    with pytest.raises(ValueError, match="^trtllm_batch_decode_with_kv_cache: max_q_len: value: "):
        trtllm_batch_decode_with_kv_cache(b.q, b.cache, workspace(b), b.table(), b.on_host(LENS),
                                          40, cum_seq_lens_q=b.on_host(b.qo_list), max_q_len=7)


@pytest.mark.parametrize("kind", ["uint16", "uint32", "uint8"])
def test_trtllm_decode_masks(fw, rng, close, kind):
    if fw.name != "numpy":
        torch = pytest.importorskip("torch")
        if not hasattr(torch, kind):
            pytest.skip(f"torch has no {kind}")
    b = Batch(fw, rng, [5] * 3, [5, 17, 40], layout="HND")
    small, whole = draft_masks(rng, b)
    mask = words(fw, small, 15, kind)
    got = trtllm_batch_decode_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 40, 0.125, q_len_per_req=5,
        mask=mask.reshape(3, 5, -1), return_lse=True)
    b.check(close, got, b.expected(masks=whole))
    b = Batch(fw, rng, QUERIES, LENS, layout="NHD")
    small, whole = draft_masks(rng, b)
    got = xqa_batch_decode_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 40, 0.125, q_len_per_req=None,
        q_cu_seq_lens=b.qo, mask=words(fw, small, sum(QUERIES), kind))
    b.check(close, got, b.expected(masks=whole))


def test_trtllm_decode_tables_of_keys_and_values(fw, rng, close):
    b = Batch(fw, rng, [1] * 5, LENS, layout="HND")
    pages = b.k64.shape[0]
    order = rng.permutation(pages)
    moved = np.empty_like(b.v64)
    moved[order] = b.v64
    table = fw.numbers(b.table())
    values = order[np.where(table < pages, table, 0)]
    both = np.stack([table, values], 1)
    v = fw.tensor(moved, "float32").swapaxes(1, 2)
    got = trtllm_batch_decode_with_kv_cache(
        b.q, (b.k_cache, v), workspace(b), b.index(both), b.lens, 40, 0.125,
        uses_shared_paged_kv_idx=False, return_lse=True)
    b.check(close, got, b.expected(causal=True))
    with pytest.raises(ValueError, match=r"block_tables: expected \[b, 2, pages\]"):
        trtllm_batch_decode_with_kv_cache(b.q, b.cache, workspace(b), b.table(), b.lens, 40,
                                          uses_shared_paged_kv_idx=False)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("q_len", [1, 3])
def test_trtllm_decode_over_pages_of_each_head(fw, rng, close, layout, q_len):
    b = Batch(fw, rng, [q_len] * 3, [8, 23, 40], layout=layout, page=4)
    tables, lens = np.full((2, 3, 10), 2**30), np.zeros((2, 3), np.int64)
    expected = np.zeros((3 * q_len, 4, 64))
    for r in range(3):
        pages = b.indices_list[b.indptr_list[r]:b.indptr_list[r + 1]]
        for h in range(2):
            kept = np.sort(rng.choice(len(pages) - 1, len(pages) // 2, replace=False))
            kept = np.append(kept, len(pages) - 1)
            tables[h, r, :len(kept)] = pages[kept]
            lens[h, r] = (len(kept) - 1) * 4 + b.last_list[r]
            k, v = (x[pages[kept]].reshape(-1, 2, 64)[:lens[h, r], h:h + 1]
                    for x in (b.k64, b.v64))
            q = fw.numbers(b.q)[r * q_len:(r + 1) * q_len, 2 * h:2 * h + 2]
            expected[r * q_len:(r + 1) * q_len, 2 * h:2 * h + 2] = attention(
                q, k, v, causal=True)[0]
    out = nans(b, 3 * q_len, 4, 64)
    trtllm_batch_decode_with_kv_cache(
        b.q, b.cache, workspace(b), b.index(tables), b.index(lens), 40, 0.125, kv_layout=layout,
        q_len_per_req=q_len, enable_block_sparse_attention=True, out=out)
    close(fw.numbers(out), expected, "float32", 2.0)


def test_fp8(fw, rng, close):
    """An fp8 cache and queries, results in fp8 and in 16 bits."""
    b = Batch(fw, rng, [1] * 4, [5, 3, 17, 40], layout="HND", dtype="float8_e4m3fn")
    expected, _ = b.expected(causal=True, scale=0.1)
    common = (b.q, b.cache, workspace(b), b.table(), b.lens, 40, 0.1)
    got = trtllm_batch_decode_with_kv_cache(*common, 2.0, o_scale=0.5, out_dtype="bfloat16")
    assert got.dtype == bolide.bfloat16
    close(fw.numbers(got), 4 * expected, "float8_e4m3fn", 4.0)
    got = trtllm_batch_decode_with_kv_cache(*common)
    assert got.dtype == bolide.float8_e4m3fn
    close(fw.numbers(got), expected, "float8_e4m3fn", 2.0)
    got = trtllm_batch_context_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 1, 40, 0.1, 1.0, 4, b.qo, b.qo,
        out_dtype="float16")
    close(fw.numbers(got), expected, "float8_e4m3fn", 1.0)


def test_nvfp4_is_refused(fw, rng):
    b = Batch(fw, rng, [1] * 2, [5, 3], layout="HND")
    common = (b.q, b.cache, workspace(b), b.table(), b.lens, 40)
    for bad in (dict(out_dtype="nvfp4"), dict(kv_cache_sf=(b.q, b.q)), dict(o_sf_scale=1.0),
                dict(o_sf_vec_size=16)):
        with pytest.raises(NotImplementedError, match=f"kv_cache: {next(iter(bad))}: "):
            trtllm_batch_decode_with_kv_cache(*common, **bad)
    with pytest.raises(NotImplementedError, match="xqa_batch_decode_with_kv_cache: kv_cache_sf: "):
        xqa_batch_decode_with_kv_cache(*common, kv_cache_sf=b.q)
    with pytest.raises(NotImplementedError, match="uses_spcompress: not supported"):
        trtllm_batch_context_with_kv_cache(*common[:5], 1, 5, 1.0, 1.0, 2, b.qo, b.qo,
                                           uses_spcompress=True)


def test_messages_have_the_caller_s_names(fw, rng):
    b = Batch(fw, rng, [1] * 2, [5, 3], layout="HND")
    call = trtllm_batch_decode_with_kv_cache
    good = dict(query=b.q, kv_cache=b.cache, workspace_buffer=workspace(b), block_tables=b.table(),
                seq_lens=b.on_host([5, 3]), max_seq_len=40)
    for argument, bad in (
            ("query", b.q[:1]), ("max_seq_len", 4), ("window_left", -2), ("kv_layout", "XYZ"),
            ("seq_lens", fw.tensor(np.array([5, 3]), "int64")), ("backend", "cudnn"),
            ("workspace_buffer", workspace(b)[:100]), ("workspace_buffer", None),
            ("bmm1_scale", fw.tensor(np.ones(3), "float32")),
            ("kv_cache", (b.k_cache, b.v_cache[..., :32][:, :1]))):
        with pytest.raises((ValueError, NotImplementedError),
                           match=f"^trtllm_batch_decode_with_kv_cache: {argument}: "):
            call(**{**good, argument: bad})


@pytest.mark.parametrize("q_len", [1, 4])
def test_xqa(fw, rng, close, q_len):
    b = Batch(fw, rng, [q_len] * 3, [5, 17, 40], dtype="bfloat16", page=16)
    sinks = rng.standard_normal(4)
    shape = (3, 1, 4, 64) if q_len == 1 else (3, 1, q_len, 4, 64)
    out = nans(b, *shape)
    mask, masks = None, None
    if q_len > 1:
        small, masks = draft_masks(rng, b)
        mask = words(fw, small, 3 * q_len).reshape(3, q_len, -1)
    lens = b.lens.reshape(3, 1)
    if fw.name == "numpy":
        lens = lens.astype(np.uint32)
    result = bolide.xqa(
        b.q.reshape(shape), *b.cache, b.table(), lens, out, workspace(b), None, 2, 16,
        sinks=fw.tensor(sinks.reshape(2, 2), "float32"), q_scale=2.0,
        kv_scale=fw.tensor(np.array([0.5]), "float32"), sliding_win_size=9, rcp_out_scale=4.0,
        q_seq_len=q_len, mask=mask)
    assert result is None
    expected, lse = b.expected(masks=masks, causal=True, window=8, sinks=sinks)
    b.check(close, out.reshape(-1, 4, 64), (2 * expected, lse))
    pools = [x.reshape((-1, 64)) for x in b.cache]  # and unsigned pages, as FlashInfer's tests do
    again = nans(b, *shape)
    bolide.xqa(b.q.reshape(shape), *pools, b.table().view(fw.unsigned), lens, again, workspace(b),
               None, 2, 16, fw.tensor(sinks.reshape(2, 2), "float32"), 2.0,
               fw.tensor(np.array([0.5]), "float32"), 9, rcp_out_scale=4.0, q_seq_len=q_len,
               mask=mask)
    assert (fw.numbers(again) == fw.numbers(out)).all()
    with pytest.raises(ValueError, match="xqa: k_cache: expected rows of whole pages of .16, 2"):
        bolide.xqa(b.q.reshape(shape), pools[0][:33], pools[1][:33], b.table(), lens, out,
                   workspace(b), None, 2, 16)
    with pytest.raises(ValueError, match="xqa: page_size: expected 16, as k_cache has; got 8"):
        bolide.xqa(b.q.reshape(shape), *b.cache, b.table(), lens, out, workspace(b), None, 2, 8)


# ---- trtllm: prefill -------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_trtllm_context(fw, rng, close, causal):
    b = Batch(fw, rng, QUERIES, LENS, layout="HND", dtype="float16", page=5)
    sinks = rng.standard_normal(4)
    out, lse = trtllm_batch_context_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 8, 40, 0.125, 2.0, 5, b.qo, b.indptr,
        window_left=7, sinks=fw.tensor(sinks, "float32"), causal=causal, return_lse=True)
    expected, wanted = b.expected(causal=causal, window=7, sinks=sinks)
    b.check(close, (out, lse), (2 * expected, wanted))
    with pytest.raises(ValueError, match="batch_size: expected 5, the entries of seq_lens; got 4"):
        trtllm_batch_context_with_kv_cache(b.q, b.cache, workspace(b), b.table(), b.lens, 8, 40,
                                           0.125, 2.0, 4, b.qo, b.indptr)


@pytest.mark.parametrize("causal", [False, True])
def test_trtllm_ragged(fw, rng, close, causal):
    b = Batch(fw, rng, QUERIES, LENS, h_kv=4, d=192, d_vo=128, dtype="bfloat16")
    k, v, starts = b.packed()
    common = (b.q, k, v, workspace(b), b.lens, 8, 40, 192 ** -0.5, 1.0, -1.0, 5, -1, b.qo, starts,
              False, causal, True)
    wanted = b.expected(causal=causal)
    b.check(close, trtllm_ragged_attention_deepseek(*common), wanted)
    b.check(close, trtllm_ragged_attention_deepseek(
        *common, q_seq_lens_cpu=b.on_host(QUERIES), kv_seq_lens_cpu=b.on_host(LENS)), wanted)
    for bad in (dict(sage_attn_sfs=(b.q, None, None, None)), dict(uses_spcompress=True),
                dict(num_elts_per_sage_attn_blk=(1, 0, 0, 0))):
        with pytest.raises(NotImplementedError, match=f"{next(iter(bad))}: not supported"):
            trtllm_ragged_attention_deepseek(*common, **bad)
    with pytest.raises(NotImplementedError, match="o_sf_scale: expected 1 or -1"):
        trtllm_ragged_attention_deepseek(*common[:9], 0.5, *common[10:])


# ---- FMHA v2 ---------------------------------------------------------------------------------


def chunk_masks(b, size):
    found = []
    for n, s in zip(b.q_lens, b.kv_lens):
        at = s - n + np.arange(n)[:, None]
        j = np.arange(s)
        found.append((j <= at) & (j >= at // size * size))
    return found


def fmha_v2(b, layout, **options):
    if layout.startswith("Q_PAGED"):
        qkv, tables = (b.q, b.cache), b.table()
    else:
        k, v, starts = b.packed()
        qkv, tables = (b.q, k, v), None
        if layout == "CONTIGUOUS_Q_KV":
            both = np.stack([b.fw.numbers(k), b.fw.numbers(v)], 1)
            qkv = (b.q, b.fw.tensor(both, b.dtype))
        elif layout == "PACKED_QKV":
            qkv = b.fw.tensor(np.stack([b.fw.numbers(x) for x in (b.q, k, v)], 1), b.dtype)
    starts = b.index(np.concatenate([[0], np.cumsum(b.kv_lens)]))
    return trtllm_fmha_v2_prefill(qkv, layout, workspace(b), b.lens, 64, 64, 0.125, 1.0,
                                  len(b.kv_lens), b.qo, starts, tables, **options)


@pytest.mark.parametrize("layout", ["PACKED_QKV", "CONTIGUOUS_Q_KV", "SEPARATE_Q_K_V",
                                    "Q_PAGED_KV_NHD", "Q_PAGED_KV_HND"])
def test_fmha_v2(fw, rng, close, layout):
    lens, heads = ([5, 0, 17, 40], 4) if layout == "PACKED_QKV" else ([5, 3, 17, 40], 2)
    queries = lens if layout == "PACKED_QKV" else [5, 1, 0, 9]
    b = Batch(fw, rng, queries, lens, h_kv=heads, dtype="float16", layout=layout[-3:])
    sinks = rng.standard_normal(4)
    given = fw.tensor(sinks, "float32")
    for options, wanted in (
            (dict(), dict(causal=True)), (dict(mask_mode="padding"), dict()),
            (dict(mask_mode="SLIDING_WINDOW", window_left=6, sinks=[given]),
             dict(causal=True, window=6, sinks=sinks)),
            (dict(logits_soft_cap_scale=2.0, mask_mode="causal"), dict(causal=True, cap=2.0))):
        b.check(close, fmha_v2(b, layout, **options), b.expected(**wanted))
    got = fmha_v2(b, layout, mask_mode="chunked", chunked_attention_size=8)
    b.check(close, got, b.expected(masks=chunk_masks(b, 8)))


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_fmha_v2_pages_of_one_memory(fw, rng, close, layout):
    """Keys and values behind one another, pages of both counted from the first of the keys."""
    b = Batch(fw, rng, [5, 1, 0, 9], [5, 3, 17, 40], dtype="float16", layout=layout)
    n = fw.numbers
    both = fw.tensor(np.concatenate([n(b.k_cache), n(b.v_cache)[::-1]]), "float16")
    pages = len(b.k_cache)
    k, v = both[:pages], both[pages:]
    own = n(b.table())
    tables = b.index(np.stack([own, np.where(own < pages, 2 * pages - 1 - own, own)], 1))
    starts = b.index(np.concatenate([[0], np.cumsum(b.kv_lens)]))
    for _ in range(2):
        got = trtllm_fmha_v2_prefill((b.q, (k, v)), f"Q_PAGED_KV_{layout}", workspace(b), b.lens,
                                     64, 64, 0.125, 1.0, 4, b.qo, starts, tables)
        b.check(close, got, b.expected(causal=True))
    with pytest.raises(ValueError, match="block_tables: expected .b, 2, pages. with two caches"):
        trtllm_fmha_v2_prefill((b.q, (k, v[:-1])), f"Q_PAGED_KV_{layout}", workspace(b), b.lens,
                               64, 64, 0.125, 1.0, 4, b.qo, starts, tables)


def test_fmha_v2_statistics(fw, rng, close):
    b = Batch(fw, rng, [5, 1, 0, 9], [5, 3, 17, 40], dtype="float16")
    out = nans(b, 15, 4, 64)
    got, stats = fmha_v2(b, "SEPARATE_Q_K_V", save_softmax_stats=True, out=out,
                         skip_softmax_threshold_scale_factor=2.0)
    assert got is out and tuple(stats.shape) == (15, 4, 2)
    expected, lse = b.expected(causal=True)
    m = fw.numbers(stats)
    b.check(close, (out, fw.tensor((m[..., 0] + np.log(m[..., 1])) / np.log(2), "float32")),
            (expected, lse))


def test_fmha_v2_refusals(fw, rng):
    b = Batch(fw, rng, [5, 1], [5, 3])
    for argument, options in (
            ("mask_mode", dict(mask_mode="custom")),
            ("chunked_attention_size", dict(mask_mode="chunked")),
            ("chunked_attention_size", dict(chunked_attention_size=8)),
            ("out_dtype", dict(out_dtype="nvfp4")), ("sinks", dict(sinks=[b.q, b.q]))):
        with pytest.raises((ValueError, NotImplementedError), match=f"prefill: {argument}: "):
            fmha_v2(b, "SEPARATE_Q_K_V", **options)
    with pytest.raises(ValueError, match="trtllm_fmha_v2_prefill: input_layout: expected one of"):
        fmha_v2(b, "Q_K_V")
    with pytest.raises(ValueError, match="trtllm_fmha_v2_prefill: qkv: expected 2 tensors"):
        trtllm_fmha_v2_prefill((b.q,), "CONTIGUOUS_Q_KV", workspace(b), b.lens, 64, 64, 0.125, 1.0,
                               2, b.qo, b.qo)


@pytest.mark.parametrize("causal", [True, False])
def test_fmha_v2_of_one_length(fw, rng, close, causal):
    b = Batch(fw, rng, [20] * 3, [20] * 3, h_kv=4, d=192, d_vo=128, dtype="bfloat16")
    k, v, _ = b.packed()
    q, k, v = (x.reshape(3, 20, 4, -1) for x in (b.q, k, v))
    out = nans(b, 3, 20, 4, 128)
    lse = nans(b, 3, 20, 4, 2, dtype="float32")
    tensor = fw.tensor(np.array([0.1]), "float32")
    if causal:
        got = fmha_v2_prefill_deepseek(q, k, v, out, 4, 192, 20, 0.0, scale_bmm2=2.0,
                                       return_lse=True, lse=lse, scale_bmm1_d=tensor)
    else:
        got = fmha_v2_prefill_sm120(q, k, v, out, 4, 192, 20, 0.0, 0.1, 2.0, causal, True, lse)
    assert got[0] is out and got[1] is lse
    m = fw.numbers(lse).reshape(-1, 4, 2)
    expected, wanted = b.expected(causal=causal, scale=0.1)
    b.check(close, (out.reshape(-1, 4, 128), fw.tensor(
        (m[..., 0] + np.log(m[..., 1])) / np.log(2), "float32")), (2 * expected, wanted))
    with pytest.raises(ValueError, match="num_heads: expected 4, as query has; got 8"):
        fmha_v2_prefill_deepseek(q, k, v, out, 8, 192, 20, 1.0)


# ---- cuDNN -----------------------------------------------------------------------------------


def test_cudnn_decode(fw, rng, close):
    b = Batch(fw, rng, [1] * 5, LENS, layout="HND", dtype="bfloat16")
    common = (b.cache[0], b.cache[1], 0.125, workspace(b))
    lens = b.lens.reshape(5, 1, 1, 1)
    expected = b.expected(causal=True)
    got = cudnn_batch_decode_with_kv_cache(b.q, *common, max_sequence_kv=40, block_tables=b.table(),
                                           actual_seq_lens_kv=lens)
    b.check(close, got, expected)
    wide = nans(b, 10, 4, 64)
    wide[::2] = b.q
    offsets = b.index(np.arange(6) * 2 * 256)
    out = nans(b, 12, 4, 64)
    places = np.array([0, 3, 4, 9, 10, 12])
    cudnn_batch_decode_with_kv_cache(
        wide, *common, max_sequence_kv=40, block_tables=b.table(), actual_seq_lens_kv=lens, out=out,
        batch_offsets_q=offsets, batch_offsets_o=b.index(places[:5] * 256))
    b.check(close, out[fw.tensor(places[:5], "int64")], expected)
    with pytest.raises(ValueError, match="batch_offsets_k: expected None with block_tables"):
        cudnn_batch_decode_with_kv_cache(b.q, *common, max_sequence_kv=40, block_tables=b.table(),
                                         actual_seq_lens_kv=lens, batch_offsets_k=offsets)


def test_cudnn_decode_without_tables(fw, rng, close):
    """A page is a request."""
    b = Batch(fw, rng, [1] * 3, [9, 4, 1], layout="HND", page=9)
    whole = fw.numbers(b.k_cache), fw.numbers(b.v_cache)
    k, v = (fw.tensor(x[b.indices_list], "float32") for x in whole)
    got = cudnn_batch_decode_with_kv_cache(b.q, k, v, 0.125, workspace(b), max_sequence_kv=9,
                                           actual_seq_lens_kv=b.on_host([9, 4, 1]))
    wanted = b.expected(causal=True)
    b.check(close, got, wanted)
    got = cudnn_batch_decode_with_kv_cache(
        b.q, *b.cache, 0.125, workspace(b), max_sequence_kv=9, actual_seq_lens_kv=b.lens,
        batch_offsets_k=b.index(b.indices_list * 9 * 128))
    b.check(close, got, wanted)
    k, v, starts = b.packed()
    got = cudnn_batch_decode_with_kv_cache(
        b.q, k, v, 0.125, workspace(b), max_sequence_kv=9, actual_seq_lens_kv=b.lens,
        batch_offsets_k=b.index(fw.numbers(starts)[:3] * 128),
        batch_offsets_v=b.index(fw.numbers(starts) * 128))
    b.check(close, got, wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_cudnn_prefill_over_pages(fw, rng, close, causal):
    b = Batch(fw, rng, QUERIES, LENS, layout="HND", dtype="bfloat16")
    scales = {n: fw.tensor(np.full((1, 1, 1, 1), x), "float32")
              for n, x in (("q_scale", 2.0), ("k_scale", 0.5), ("v_scale", 2.0))}
    out, lse = cudnn_batch_prefill_with_kv_cache(
        b.q, *b.cache, 0.125, workspace(b), max_token_per_sequence=8, max_sequence_kv=40,
        actual_seq_lens_q=b.lens_q.reshape(5, 1, 1, 1), actual_seq_lens_kv=b.lens,
        block_tables=b.table(), causal=causal, return_lse=True, o_data_type="float32", **scales)
    assert out.dtype == bolide.float32 and tuple(lse.shape) == (5, 8, 4)
    expected, wanted = b.expected(causal=causal)
    padded = fw.numbers(lse)
    rows = np.concatenate([padded[i, :n] for i, n in enumerate(QUERIES)])
    b.check(close, (out, fw.tensor(rows, "float32")), (2 * expected, wanted))
    assert all((padded[i, n:] == -np.inf).all() for i, n in enumerate(QUERIES))


@pytest.mark.parametrize("units", ["elements", "tokens"])
def test_cudnn_prefill_of_packed_keys(fw, rng, close, units):
    """Gaps between requests, each tensor's own; offsets as [b + 1] and as [b]."""
    b = Batch(fw, rng, QUERIES, LENS, d_vo=32, dtype="float16")
    k, v, _ = b.packed()
    q_lens, kv_lens = np.array(QUERIES), np.array(LENS)

    def spread(tensor, lens, gap):
        starts = np.concatenate([[0], np.cumsum(lens + gap)])
        wide = np.full((starts[-1], *tensor.shape[1:]), np.nan)
        for s, e, n in zip(starts, np.concatenate([[0], np.cumsum(lens)]), lens):
            wide[s:s + n] = fw.numbers(tensor)[e:e + n]
        step = int(np.prod(tensor.shape[1:])) if units == "elements" else 1
        return fw.tensor(wide, "float16"), starts, b.index(starts * step)

    q, q_starts, q_offsets = spread(b.q, q_lens, 2)
    k, _, k_offsets = spread(k, kv_lens, 1)
    v, _, v_offsets = spread(v, kv_lens, 3)
    out = nans(b, sum(QUERIES) + 5, 4, 32)
    o_starts = np.concatenate([[0], np.cumsum(q_lens + 1)])
    stats = b.index(q_starts * (4 if units == "elements" else 1))
    lse = nans(b, q.shape[0], 4, dtype="float32")
    got = cudnn_batch_prefill_with_kv_cache(
        q, k, v, 0.125, workspace(b), max_token_per_sequence=8, max_sequence_kv=40,
        actual_seq_lens_q=b.lens_q, actual_seq_lens_kv=b.lens, causal=True, return_lse=True,
        batch_offsets_q=q_offsets, batch_offsets_k=k_offsets, batch_offsets_v=v_offsets[:5],
        batch_offsets_o=b.index(o_starts * (128 if units == "elements" else 1)),
        batch_offsets_stats=stats, batch_offsets_units=units, out=out, lse=lse)
    assert got[0] is out and got[1] is lse
    at = np.concatenate([s + np.arange(n) for s, n in zip(o_starts, q_lens)])
    rows = np.concatenate([s + np.arange(n) for s, n in zip(q_starts, q_lens)])
    wanted = b.expected(causal=True)
    b.check(close, (out[fw.tensor(at, "int64")], lse[fw.tensor(rows, "int64")]), wanted)
    if units == "tokens":  # lengths from the offsets
        k, v, starts = b.packed()
        out, none = cudnn_batch_prefill_with_kv_cache(
            b.q, k, v, 0.125, workspace(b), max_token_per_sequence=8, max_sequence_kv=40,
            causal=True, return_lse=False, batch_offsets_q=b.qo, batch_offsets_k=starts,
            batch_offsets_units="tokens")
        assert none is None
        b.check(close, out, wanted)


def test_cudnn_refusals(fw, rng):
    b = Batch(fw, rng, [1, 2], [5, 3])
    k, v, starts = b.packed()
    good = dict(max_token_per_sequence=8, max_sequence_kv=40, causal=True, return_lse=False,
                actual_seq_lens_q=b.on_host([1, 2]), actual_seq_lens_kv=b.on_host([5, 3]))
    for argument, bad in (
            ("batch_offsets_units", dict(batch_offsets_units="rows")),
            ("backend", dict(backend="fa2")), ("max_sequence_kv", dict(max_sequence_kv=4)),
            ("max_token_per_sequence", dict(max_token_per_sequence=1)),
            ("actual_seq_lens_q", dict(actual_seq_lens_q=None)),
            ("batch_offsets_q", dict(batch_offsets_q=b.index([0, 1, 2, 3, 4])))):
        with pytest.raises(ValueError, match=f"cudnn_batch_prefill_with_kv_cache: {argument}: "):
            cudnn_batch_prefill_with_kv_cache(b.q, k, v, 0.1, workspace(b), **{**good, **bad})
    with pytest.raises(ValueError, match="batch_offsets_q: expected multiples of 256 elements"):
        cudnn_batch_prefill_with_kv_cache(b.q, k, v, 0.1, workspace(b), **good,
                                          batch_offsets_q=b.on_host([0, 100, 300]))


def test_names_lead_to_one_function():
    from bolide.cudnn import decode, prefill

    assert bolide.decode.cudnn_batch_decode_with_kv_cache is cudnn_batch_decode_with_kv_cache
    assert decode.cudnn_batch_decode_with_kv_cache is cudnn_batch_decode_with_kv_cache
    assert prefill.cudnn_batch_prefill_with_kv_cache is cudnn_batch_prefill_with_kv_cache
    assert bolide.trtllm_fmha_v2_prefill is trtllm_fmha_v2_prefill
    assert bolide.xqa.xqa.__doc__ and callable(bolide.xqa)


# ---- all of them -----------------------------------------------------------------------------


def test_no_requests(fw, rng):
    b = Batch(fw, rng, [], [], layout="HND")
    assert tuple(trtllm_batch_decode_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 0).shape) == (0, 4, 64)
    assert tuple(trtllm_batch_context_with_kv_cache(
        b.q, b.cache, workspace(b), b.table(), b.lens, 0, 0, 1.0, 1.0, 0, b.qo, b.qo
    ).shape) == (0, 4, 64)
    out, lse = trtllm_ragged_attention_deepseek(
        b.q, nans(b, 0, 2, 64), nans(b, 0, 2, 64), workspace(b), b.lens, 0, 0, 1.0, 1.0, 1, 0, -1,
        b.qo, b.index([0]), None, True, True)
    assert tuple(out.shape) == (0, 4, 64) and tuple(lse.shape) == (0, 4)


def test_torch_compile(fw, rng, close):
    """Plans lie inside of the calls, and the calls in one graph."""
    if fw.name == "numpy":
        pytest.skip("torch compiles its own tensors")
    import torch

    b = Batch(fw, rng, QUERIES, LENS, layout="HND", dtype="bfloat16")
    k, v, starts = b.packed()
    one, space, table = fw.tensor(np.array([0.125]), "float32"), workspace(b), b.table()

    def decode(q):
        return trtllm_batch_decode_with_kv_cache(
            q * 1, b.cache, space, table, b.lens, 40, one, cum_seq_lens_q=b.qo, max_q_len=8,
            return_lse=True)

    def context(q):
        return trtllm_batch_context_with_kv_cache(
            q * 1, b.cache, space, table, b.lens, 8, 40, 0.125, 1.0, 5, b.qo, starts,
            out_dtype=torch.bfloat16, return_lse=True)

    def ragged(q):
        return trtllm_ragged_attention_deepseek(
            q * 1, k, v, space, b.lens, 8, 40, 0.125, 1.0, -1, 5, -1, b.qo, starts, None, True,
            True)

    def fmha(q):
        return trtllm_fmha_v2_prefill((q * 1, k, v), "SEPARATE_Q_K_V", space, b.lens, 8, 40, 0.125,
                                      1.0, 5, b.qo, starts)

    def cudnn(q):
        return cudnn_batch_prefill_with_kv_cache(
            q * 1, k, v, 0.125, space, max_token_per_sequence=8, max_sequence_kv=40, causal=True,
            return_lse=False, batch_offsets_q=b.qo, batch_offsets_k=starts,
            batch_offsets_units="tokens")[0]

    def xqa(q):
        out = torch.full_like(q, float("nan"))
        bolide.xqa.xqa(q[:, None], *ones.cache, pages, ones.lens, out[:, None], space, None,
                       2, 4, kv_layout="HND")
        return out

    ones = Batch(fw, rng, [1] * 5, LENS, layout="HND", dtype="bfloat16")
    pages = ones.table()
    compiled = torch.compile(xqa, fullgraph=True, backend="aot_eager")
    ones.check(close, compiled(ones.q), ones.expected(causal=True))
    for call in (decode, context, ragged, fmha, cudnn):
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        b.check(close, compiled(b.q), b.expected(causal=True))
