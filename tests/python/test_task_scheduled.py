# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's task-scheduled attention: decode, latent decode and prefill, against float64."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from attention64 import Batch, attention
from bolide import _frameworks
from bolide.attention import prims_ts as ts

KV_LENS = [9, 40, 3, 130]
PACKED = [3, 1, 2, 60]
OPTIONS = [{}, {"mask_type": "causal"}, {"mask_type": "causal", "window_left": 5}]


def in_float64(options):
    return {"causal": options.get("mask_type") == "causal",
            "window": options.get("window_left", -1)}


def fresh(like, shape, dtype):
    return _frameworks.full(like, shape, dtype, float("nan"))


def workspace(like, size):
    return _frameworks.full(like, (size + 16,), "uint8", 0xCD)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("q_len", [1, 2, None])
def test_decode(fw, rng, close, q_len, options):
    b = Batch(fw, rng, PACKED if q_len is None else [q_len] * 4, KV_LENS, layout="HND", page=8,
              dtype="bfloat16")
    shaped = b.q if q_len in (1, None) else b.q.reshape((4, q_len, *b.q.shape[1:]))
    more = {"qo_indptr": b.qo, "max_seq_len_q": 60} if q_len is None else {"seq_len_q": q_len}
    expected = b.expected(scale=0.1, **in_float64(options))
    expected = expected[0] * 2, expected[1]

    def check(got):
        assert tuple(got.shape) == tuple(shaped.shape)
        b.check(close, got.reshape(b.q.shape), expected)

    scales = {"bmm1_scale": 0.1, "bmm2_scale": 2.0}
    both = np.stack if fw.name == "numpy" else __import__("torch").stack
    for cache in (b.cache, both([b.k_cache, b.v_cache], 1)):
        check(ts.batch_decode_with_paged_kv_cache(shaped, cache, b.indptr, b.indices, b.last,
                                                  **options, **more, **scales))
    size = ts.get_prims_ts_batch_decode_workspace_size(
        4, 4, 2, 64, 8, 130, q_dtype="bfloat16", device=fw.device, **options, **more)
    out = fresh(b.q, shaped.shape, "bfloat16")
    found = bolide.decode.prims_ts_batch_decode_with_kv_cache(
        shaped, b.cache, workspace(b.q, size), b.indptr, b.indices, b.lens, 130, out=out,
        **options, **more, **scales)
    assert found is out
    check(out)
    wrapper = ts.BatchDecodePagedTSWrapper()
    wrapper.plan(b.indptr, b.indices, b.last, 4, 2, 64, 8, q_data_type="bfloat16", max_kv_len=130,
                 **options, **more)
    for _ in range(2):
        check(wrapper.run(shaped, b.cache, **scales))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_prefill(fw, rng, close, packed, options):
    b = Batch(fw, rng, PACKED if packed else [7] * 4, KV_LENS if packed else [31] * 4,
              dtype="float16")
    k, v, starts = b.packed()
    q, more = b.q, {"qo_indptr": b.qo, "kv_indptr": starts}
    if not packed:
        q, k, v = (t.reshape((4, -1, *t.shape[1:])) for t in (q, k, v))
        more = {}
    expected = b.expected(scale=0.2, **in_float64(options))
    expected = expected[0] * 0.5, expected[1]
    scales = {"sm_scale": 0.2, "output_scale": 0.5}
    out = ts.batch_prefill(q, k, v, **more, **options, **scales)
    assert tuple(out.shape) == tuple(q.shape)
    b.check(close, out.reshape(b.q.shape), expected)
    wrapper = ts.BatchPrefillTSWrapper()
    wrapper.plan(q, k, v, **more, **options, **scales)
    found = wrapper.run(q, k, v, out=fresh(q, q.shape, "float16"))
    b.check(close, found.reshape(b.q.shape), expected)
    with pytest.raises(ValueError, match="BatchPrefillTSWrapper.run: q: expected"):
        wrapper.run(q[:-1], k, v)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_prefill_of_pages(fw, rng, close, options):
    b = Batch(fw, rng, PACKED, KV_LENS, layout="HND", page=32, dtype="float16")
    expected = b.expected(**in_float64(options))
    given = (b.q, *b.cache, b.qo, b.indptr, b.indices, b.last)
    b.check(close, ts.batch_prefill_with_paged_kv_cache(*given, **options), expected)
    wrapper = ts.BatchPrefillPagedTSWrapper()
    wrapper.plan(*given, **options)
    b.check(close, wrapper.run(b.q, *b.cache), expected)
    with pytest.raises(ValueError, match="k_cache: expected"):
        ts.batch_prefill_with_paged_kv_cache(*given, page_size=16, **options)


@pytest.mark.parametrize("mask_type", ["causal", "dense"])
@pytest.mark.parametrize("q_len", [1, 2, None])
def test_latent(fw, rng, close, q_len, mask_type):
    ckv, kpe, heads, page, lens = 64, 16, 4, 8, [9, 40, 33]
    q_lens = [3, 1, 2] if q_len is None else [q_len] * 3
    q = fw.tensor(rng.standard_normal((sum(q_lens), heads, ckv + kpe)), "bfloat16")
    cache = fw.tensor(rng.standard_normal((20, page, ckv + kpe)), "bfloat16")
    table = rng.permutation(20)[:15].reshape(3, 5)
    ints = lambda x: fw.tensor(np.asarray(x), "int32")  # noqa: E731
    keys = fw.numbers(cache)[table].reshape(3, 5 * page, ckv + kpe)
    ends = np.cumsum([0, *q_lens])
    expected = np.concatenate([
        attention(fw.numbers(q)[ends[i]:ends[i + 1]], keys[i, :n, None], keys[i, :n, None, :ckv],
                  causal=mask_type == "causal", scale=0.1)[0] * 2 for i, n in enumerate(lens)])
    shaped = q if q_len is None else q.reshape((3, q_len, heads, -1))
    more = {"qo_indptr": ints(ends), "max_seq_len_q": 3} if q_len is None else {}
    scales = {"bmm1_scale": 0.1, "bmm2_scale": 2.0}

    def check(got):
        assert tuple(got.shape) == (*shaped.shape[:-1], ckv)
        close(fw.numbers(got).reshape(expected.shape), expected, "bfloat16", 2.0)

    check(ts.batch_decode_mla_with_paged_kv_cache(
        shaped, cache, ints(table), ints(lens), kv_lora_rank=ckv, qk_rope_head_dim=kpe,
        mask_type=mask_type, **more, **scales))
    size = ts.get_prims_ts_batch_decode_mla_workspace_size(
        3, heads, ckv, kpe, page, 40, mask_type=mask_type, device=fw.device,
        max_seq_len_q=q_len or 3)
    check(bolide.mla.prims_ts_batch_decode_with_kv_cache_mla(
        shaped, cache.reshape((20, 1, page, -1)), workspace(q, size), ckv, kpe, ints(table),
        ints(lens), 40, mask_type=mask_type, **more, **scales))
    wrapper = ts.BatchMLADecodePagedTSWrapper()
    more = {"qo_indptr": ints(ends)} if q_len is None else {"seq_len_q": q_len}
    wrapper.plan(ints(table), ints(lens), heads, ckv, kpe, page, mask_type=mask_type, **more)
    check(wrapper.run(shaped, cache, **scales))


def test_refusals(fw, rng):
    b = Batch(fw, rng, [1] * 4, KV_LENS, layout="HND", page=8)
    good = dict(q=b.q, paged_kv_cache=b.cache, paged_kv_indptr=b.indptr,
                paged_kv_indices=b.indices, paged_kv_last_page_len=b.last)
    for text, arguments in {
        "mask_type: expected dense or causal; got 'full'": dict(mask_type="full"),
        "window_left: expected -1, or": dict(window_left=4),
        "kv_layout: expected HND; got 'NHD'": dict(kv_layout="NHD"),
        "bmm1_scale: expected a positive": dict(bmm1_scale=0.0),
        "bmm2_scale: expected a positive": dict(bmm2_scale=float("inf")),
        r"q: expected \[4, 2, h, d\]": dict(seq_len_q=2),
        "max_seq_len_q: expected at least 1": dict(max_seq_len_q=0),
    }.items():
        with pytest.raises(ValueError, match="batch_decode_with_paged_kv_cache: " + text):
            ts.batch_decode_with_paged_kv_cache(**{**good, **arguments})
    with pytest.raises(RuntimeError, match="plan"):
        ts.BatchDecodePagedTSWrapper().run(b.q, b.cache)
