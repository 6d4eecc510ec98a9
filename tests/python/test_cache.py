# SPDX-License-Identifier: Apache-2.0
"""Paged caches, single-request attention, merging of states, bits, products."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from bolide import _frameworks


def drawn(fw, rng, shape, dtype):
    t = fw.tensor(rng.standard_normal(shape), dtype)
    return t, fw.numbers(t)


def need(fw, op):
    if not bolide._rows.supports(op, fw.device):
        pytest.skip(f"{op} is not on {fw.device}")


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_lengths_and_positions(fw, kind):
    need(fw, "get_seq_lens")
    indptr = fw.tensor(np.array([0, 2, 2, 5]), kind)
    last = fw.tensor(np.array([3, 1, 16]), kind)
    lens = bolide.get_seq_lens(indptr, last, 16)
    assert fw.numbers(lens).tolist() == [19, 0, 48]
    append, lens = fw.tensor(np.array([0, 2, 2, 5]), kind), fw.tensor(fw.numbers(lens), kind)
    ids, pos = bolide.get_batch_indices_positions(append, lens, 7)
    assert fw.numbers(ids).tolist() == [0, 0, 2, 2, 2, -1, -1]
    assert fw.numbers(pos).tolist() == [17, 18, 45, 46, 47, 0, 0]


@pytest.mark.parametrize("form", ["pair", "one", "one token a page"])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_append(fw, rng, form, layout):
    page, pages, h, d = (1 if form == "one token a page" else 4), 6, 2, 16
    shape = (pages, 2, page, h, d) if layout == "NHD" else (pages, 2, h, page, d)
    k, k64 = drawn(fw, rng, (3, h, d), "float16")
    v, v64 = drawn(fw, rng, (3, h, d), "float16")
    cache = fw.tensor(np.zeros(shape), "float16")
    indices, indptr = (fw.tensor(np.array(a), "int32") for a in ([5, 0, 3], [0, 2, 3]))
    last = fw.tensor(np.array([page, 1]), "int32")
    ids = fw.tensor(np.array([0, 1, -1]), "int32")
    positions = fw.tensor(np.array([page, 0, 0]), "int32")
    given = cache
    if form == "pair":
        given = (cache[:, 0], cache[:, 1])
    elif form == "one token a page":
        given = cache[:, :, 0] if layout == "NHD" else cache[:, :, :, 0]
    bolide.append_paged_kv_cache(k, v, ids, positions, given, indices, indptr, last, layout)
    expected = np.zeros((pages, 2, page, h, d))
    expected[0, 0, 0], expected[0, 1, 0] = k64[0], v64[0]
    expected[3, 0, 0], expected[3, 1, 0] = k64[1], v64[1]
    got = fw.numbers(cache)
    assert (got == (expected if layout == "NHD" else expected.swapaxes(2, 3))).all()


def test_append_mla(fw, rng):
    ckv, ckv64 = drawn(fw, rng, (1, 512), "bfloat16")
    kpe, kpe64 = drawn(fw, rng, (1, 64), "bfloat16")
    caches = [fw.tensor(np.zeros((2, 4, d)), "bfloat16") for d in (512, 64)]
    one = [fw.tensor(np.array(a), "int32") for a in ([0], [2], [1], [0, 1], [3])]
    bolide.append_paged_mla_kv_cache(ckv, kpe, one[0], one[1], *caches, *one[2:])
    assert (fw.numbers(caches[0])[1, 2] == ckv64[0]).all()
    assert (fw.numbers(caches[1])[1, 2] == kpe64[0]).all()
    bolide.append_paged_mla_kv_cache(ckv, None, one[0], one[1], caches[0], None, *one[2:])


def test_concat(fw, rng):
    need(fw, "concat_mla_k")
    nope, nope64 = drawn(fw, rng, (5, 4, 128), "bfloat16")
    rope, rope64 = drawn(fw, rng, (5, 1, 64), "bfloat16")
    k = fw.tensor(np.zeros((5, 4, 192)), "bfloat16")
    bolide.concat_ops.concat_mla_k(k, nope, rope)
    got = fw.numbers(k)
    assert (got[..., :128] == nope64).all() and (got[..., 128:] == rope64).all()


def attention(q, k, v, mask=None, scale=None, cap=0.0):
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = np.einsum("nhd,shd->hns", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap:
        s = cap * np.tanh(s / cap)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        top = s.max(-1, keepdims=True)
        p = np.exp(s - np.where(np.isfinite(top), top, 0))
        total = p.sum(-1, keepdims=True)
        out = np.einsum("hns,shd->nhd", np.where(total > 0, p / total, 0), v)
        lse = (np.log2(total) + np.where(np.isfinite(top), top, 0) * np.log2(np.e))[..., 0].T
    return out, lse


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_single_decode(fw, rng, close, layout):
    need(fw, "single_decode_with_kv_cache")
    q, q64 = drawn(fw, rng, (8, 64), "bfloat16")
    shape = (77, 2, 64) if layout == "NHD" else (2, 77, 64)
    k, k64 = drawn(fw, rng, shape, "bfloat16")
    v, v64 = drawn(fw, rng, shape, "bfloat16")
    if layout == "HND":
        k64, v64 = k64.swapaxes(0, 1), v64.swapaxes(0, 1)
    out, lse = bolide.single_decode_with_kv_cache(q, k, v, layout, return_lse=True)
    expected = attention(q64[None], k64, v64)
    close(fw.numbers(out), expected[0][0], "bfloat16")
    close(fw.numbers(lse), expected[1][0], "float32", 10)
    out = bolide.single_decode_with_kv_cache(q, k, v, layout, window_left=9, logits_soft_cap=2.0,
                                             q_scale=0.5, k_scale=2.0, v_scale=3.0, sm_scale=0.2)
    seen = np.arange(77) >= 67
    close(fw.numbers(out), attention(q64[None], k64, 3 * v64, seen, 0.2, 2.0)[0][0], "bfloat16", 2)


def test_single_prefill(fw, rng, close):
    need(fw, "single_prefill_with_kv_cache")
    q, q64 = drawn(fw, rng, (9, 4, 64), "float16")
    k, k64 = drawn(fw, rng, (20, 2, 64), "float16")
    v, v64 = drawn(fw, rng, (20, 2, 32), "float16")
    causal = np.arange(20) <= np.arange(9)[:, None] + 11
    out, lse = bolide.single_prefill_with_kv_cache_return_lse(q, k, v, causal=True)
    expected = attention(q64, k64, v64, causal)
    close(fw.numbers(out), expected[0], "float16")
    close(fw.numbers(lse), expected[1], "float32", 20)
    mask = rng.random((9, 20)) < 0.5
    mask[3] = False
    expected = attention(q64, k64, v64, mask)
    got = bolide.single_prefill_with_kv_cache(q, k, v, custom_mask=fw.tensor(mask, "bool"))
    close(fw.numbers(got), expected[0], "float16")
    flat = bolide.single_prefill_with_kv_cache(q, k, v, custom_mask=fw.tensor(mask.reshape(-1), "bool"))
    assert (fw.numbers(flat) == fw.numbers(got)).all()
    with pytest.raises(ValueError, match=r"custom_mask: expected \[9, 20\], or as many elements"):
        bolide.single_prefill_with_kv_cache(q, k, v, custom_mask=fw.tensor(mask[1:], "bool"))
    bits = bolide.packbits(fw.tensor(mask.reshape(-1), "bool"), "little")
    for other in ("int32", "float32"):
        assert (fw.numbers(bolide.packbits(fw.tensor(mask.reshape(-1), other), "little"))
                == fw.numbers(bits)).all()
    packed, lse = bolide.single_prefill_with_kv_cache(q, k, v, packed_custom_mask=bits,
                                                      return_lse=True, o_dtype="float32")
    close(fw.numbers(packed), expected[0], "float32", 40)
    assert (fw.numbers(lse)[3] == -np.inf).all() and (fw.numbers(packed)[3] == 0).all()
    with pytest.raises(ValueError, match="backend: expected one of auto, fa2, fa3"):
        bolide.single_prefill_with_kv_cache(q, k, v, backend="fa7")
    with pytest.raises(NotImplementedError, match="kv_cache_sf"):
        bolide.single_prefill_with_kv_cache(q, k, v, kv_cache_sf=k)


def test_merge(fw, rng, close):
    need(fw, "merge_state")
    v, v64 = drawn(fw, rng, (5, 3, 4, 32), "float32")
    s, s64 = drawn(fw, rng, (5, 3, 4), "float32")
    weight = np.exp2(s64)
    total = weight.sum(1)
    expected = (v64 * weight[..., None]).sum(1) / total[..., None]
    out, lse = bolide.merge_states(v, s)
    close(fw.numbers(out), expected, "float32", 2)
    close(fw.numbers(lse), np.log2(total), "float32", 2)
    two, lse = bolide.merge_state(v[:, 0], s[:, 0], v[:, 1], s[:, 1])
    bolide.merge_state_in_place(two, lse, v[:, 2], s[:, 2],
                                fw.tensor(np.array([1, 1, 0, 1, 1]), "bool"))
    close(fw.numbers(two)[[0, 1, 3, 4]], expected[[0, 1, 3, 4]], "float32", 4)
    packed, packed_s = (t.reshape(15, *t.shape[2:]) for t in (v, s))
    out, lse = bolide.triton.cascade.variable_length_merge_states(
        packed, packed_s, fw.tensor([0, 3, 3, 6], "int32"))
    out, lse = fw.numbers(out), fw.numbers(lse)
    close(out[[0, 2]], expected[:2], "float32", 2)
    close(lse[[0, 2]], np.log2(total[:2]), "float32", 2)
    assert (out[1] == 0).all() and (lse[1] == -np.inf).all()


@pytest.mark.parametrize("order", ["big", "little"])
def test_bits(fw, rng, order):
    need(fw, "packbits")
    x = rng.random(37) < 0.5
    got = bolide.packbits(fw.tensor(x, "bool"), order)
    assert (fw.numbers(got) == np.packbits(x, bitorder=order)).all()
    indptr = np.array([0, 5, 5, 30, 37])
    got, where = bolide.segment_packbits(fw.tensor(x, "bool"), fw.tensor(indptr, "int32"), order)
    parts = [np.packbits(x[a:b], bitorder=order) for a, b in zip(indptr, indptr[1:])]
    assert (fw.numbers(got) == np.concatenate(parts)).all()
    assert fw.numbers(where).tolist() == np.cumsum([0] + [len(p) for p in parts]).tolist()
    with pytest.raises(ValueError, match="bitorder: value: expected one of big little; got middle"):
        bolide.packbits(fw.tensor(x, "bool"), "middle")


@pytest.mark.parametrize("out_dtype", ["bfloat16", "float32"])
def test_products(fw, rng, close, out_dtype):
    need(fw, "mm_bf16")
    a, a64 = drawn(fw, rng, (5, 96), "bfloat16")
    w, w64 = drawn(fw, rng, (64, 96), "bfloat16")
    bias, bias64 = drawn(fw, rng, (64,), "bfloat16")
    got = bolide.mm_bf16(a, w.T, bias, out_dtype=out_dtype, backend="auto")
    expected = a64 @ w64.T
    close(fw.numbers(got), expected + bias64, out_dtype, 4)
    A, A64 = drawn(fw, rng, (3, 5, 96), "bfloat16")
    B, B64 = drawn(fw, rng, (3, 96, 16), "bfloat16")
    out = _frameworks.empty(A, (3, 5, 16), out_dtype)
    assert bolide.bmm_bf16(A, B, out=out, out_dtype=out_dtype) is out
    close(fw.numbers(out), A64 @ B64, out_dtype, 8)
    out = _frameworks.empty(a, (5, 64), out_dtype)
    bolide.gemm.tinygemm_bf16(a, w, out)
    close(fw.numbers(out), expected, out_dtype, 4)
    with pytest.raises(ValueError, match="mm_bf16: backend: expected one of"):
        bolide.mm_bf16(a, w.T, backend="mkl", skip_check=True)
    assert bolide.mm_bf16.is_backend_supported("cublaslt", 90)
    assert not bolide.mm_bf16.has_backend("mkl") and bolide.bmm_bf16.has_backend_choices()
