# SPDX-License-Identifier: Apache-2.0
"""Norms, activations and rotary embedding against formulas in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bolide
from bolide import _frameworks
from bolide.triton.activation import silu_and_mul as scaled_silu
from bolide.triton.norm import rms_norm, rms_norm_add_residual

DTYPES = ["float16", "bfloat16", "float32"]


def rms(x, w, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def layer(x, eps=1e-6):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)


def silu(x):
    return x / (1 + np.exp(-x))


def drawn(fw, rng, shape, dtype, scale=1.0):
    t = fw.tensor(rng.standard_normal(shape) * scale, dtype)
    return t, fw.numbers(t)


def need(fw, op):
    if not bolide._rows.supports(op, fw.device):
        pytest.skip(f"{op} is not on {fw.device}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 64), (3, 4, 96), (1, 1000), (0, 64)])
def test_rmsnorm(fw, rng, close, dtype, shape):
    x, x64 = drawn(fw, rng, shape, dtype)
    w, w64 = drawn(fw, rng, shape[-1:], dtype)
    close(fw.numbers(bolide.rmsnorm(x, w)), rms(x64, w64), dtype)
    close(fw.numbers(bolide.gemma_rmsnorm(x, w, 1e-3)), rms(x64, w64 + 1, 1e-3), dtype, 2)
    assert bolide.rmsnorm(x, w, out=x, enable_pdl=True) is x
    close(fw.numbers(x), rms(x64, w64), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_add(fw, rng, close, dtype):
    for call, extra in ((bolide.fused_add_rmsnorm, 0), (bolide.gemma_fused_add_rmsnorm, 1)):
        x, x64 = drawn(fw, rng, (6, 128), dtype)
        r, r64 = drawn(fw, rng, (6, 128), dtype)
        w, w64 = drawn(fw, rng, (128,), dtype)
        assert call(x, r, w) is None
        close(fw.numbers(r), x64 + r64, dtype)
        close(fw.numbers(x), rms(x64 + r64, w64 + extra), dtype, 2)


def test_quantised(fw, rng, close):
    x, x64 = drawn(fw, rng, (6, 128), "bfloat16")
    w, w64 = drawn(fw, rng, (128,), "bfloat16")
    out = _frameworks.empty(x, x.shape, "float8_e4m3fn")
    for scale in (0.5, fw.tensor(np.array([0.5]), "float32")):
        bolide.rmsnorm_quant(out, x, w, scale)
        close(fw.numbers(out), rms(x64, w64) / 0.5, "float8_e4m3fn")
    r, r64 = drawn(fw, rng, (6, 128), "bfloat16")
    bolide.fused_add_rmsnorm_quant(out, x, r, w, 0.25)
    close(fw.numbers(out), rms(x64 + r64, w64) / 0.25, "float8_e4m3fn")
    close(fw.numbers(r), x64 + r64, "bfloat16")


def test_block_quantised(fw, rng, close):
    x, x64 = drawn(fw, rng, (6, 256), "bfloat16")
    r, r64 = drawn(fw, rng, (6, 256), "bfloat16")
    w, w64 = drawn(fw, rng, (256,), "bfloat16")
    out = _frameworks.empty(x, x.shape, "float8_e4m3fn")
    scale = _frameworks.empty(x, (2, 8), "float32")
    normed = _frameworks.empty(x, x.shape, x.dtype)
    bolide.norm.fused_add_rmsnorm_fp8_block_quant(out, scale, normed, x, r, w)
    expected = rms(x64 + r64, w64)
    close(fw.numbers(normed), expected, "bfloat16", 2)
    blocks = fw.numbers(out).reshape(6, 2, 128) * fw.numbers(scale).T[:6, :, None]
    error = np.abs(blocks.reshape(6, 256) - expected)
    assert (error <= 0.07 * np.abs(expected).reshape(6, 2, 128).max(-1).repeat(128, 1)).all()


def test_silu_form(fw, rng, close):
    x, x64 = drawn(fw, rng, (6, 128), "bfloat16")
    w, w64 = drawn(fw, rng, (128,), "bfloat16")
    close(fw.numbers(bolide.fused_rmsnorm_silu(x, w)), silu(rms(x64, w64)), "bfloat16", 2)
    with pytest.raises(NotImplementedError, match="fused_rmsnorm_silu: block_scale"):
        bolide.fused_rmsnorm_silu(x, w, block_scale=x)


def test_scaled_forms(fw, rng, close):
    x, x64 = drawn(fw, rng, (6, 128), "float16")
    w, w64 = drawn(fw, rng, (128,), "float16")
    out = _frameworks.empty(x, x.shape, "float32")
    rms_norm(x, w, out, 1e-6, in_scale=fw.tensor(np.array([2.0]), "float32"), out_scale=0.5)
    close(fw.numbers(out), rms(2 * x64, w64) * 0.5, "float32", 5)
    r, r64 = drawn(fw, rng, (6, 128), "float16")
    rms_norm_add_residual(x, r, w, 1e-6)
    close(fw.numbers(x), rms(x64 + r64, w64), "float16", 2)
    need(fw, "silu_and_mul_scaled")
    x, x64 = drawn(fw, rng, (6, 128), "float16")
    a, b = np.split(2 * x64, 2, -1)
    out = scaled_silu(x, 2.0, 0.5, dtype="float32")
    close(fw.numbers(out), silu(a) * b * 0.5, "float32", 5)


def test_layernorm(fw, rng, close):
    need(fw, "layernorm")
    x, x64 = drawn(fw, rng, (6, 130), "bfloat16")
    g, g64 = drawn(fw, rng, (130,), "float32")
    b, b64 = drawn(fw, rng, (130,), "float32")
    expected = layer(x64) * g64 + b64
    close(fw.numbers(bolide.layernorm(x, g, b)), expected, "bfloat16", 2)
    out = _frameworks.empty(x, x.shape, "float8_e5m2")
    bolide.layernorm_quant(out, x, g, b, 2.0)
    close(fw.numbers(out), expected / 2, "float8_e5m2")


def test_dit_forms(fw, rng, close):
    need(fw, "fused_dit_gate_residual_layernorm_gamma_beta")
    x, r, gate, scale, shift = (drawn(fw, rng, (2, 3, 64), "bfloat16") for _ in range(5))
    gamma, beta = (drawn(fw, rng, (64,), "float32") for _ in range(2))
    sum64 = r[1] + x[1] * gate[1]
    res, norm = bolide.fused_dit_gate_residual_layernorm_gamma_beta(
        x[0], r[0], gate[0], gamma[0], beta[0])
    close(fw.numbers(res), sum64, "bfloat16", 2)
    close(fw.numbers(norm), layer(sum64) * gamma[1] + beta[1], "bfloat16", 3)
    res, norm = bolide.fused_dit_gate_residual_layernorm_scale_shift(
        x[0], r[0], gate[0], scale[0], shift[0])
    close(fw.numbers(norm), layer(sum64) * (1 + scale[1]) + shift[1], "bfloat16", 3)
    res, norm = bolide.fused_dit_residual_layernorm_scale_shift(x[0], scale[0], shift[0])
    close(fw.numbers(res), x[1], "bfloat16")
    with pytest.raises(NotImplementedError, match="use_nvfp4"):
        bolide.fused_dit_residual_layernorm_scale_shift(x[0], scale[0], shift[0], use_nvfp4=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 128), (2, 3, 64), (32,), (2, 3, 4, 16)])
def test_activation(fw, rng, close, dtype, shape):
    need(fw, "silu_and_mul")
    x, x64 = drawn(fw, rng, shape, dtype)
    a, b = np.split(x64, 2, -1)
    gelu = a / 2 * (1 + np.vectorize(math.erf)(a / math.sqrt(2)))
    tanh = a / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
    for call, f in ((bolide.silu_and_mul, silu(a)), (bolide.gelu_and_mul, gelu),
                    (bolide.gelu_tanh_and_mul, tanh)):
        close(fw.numbers(call(x)), f * b, dtype)
        out = _frameworks.empty(x, (*shape[:-1], shape[-1] // 2), dtype)
        assert call(x, out) is out
        close(fw.numbers(out), f * b, dtype)


def turned(x, pos, dim, interleave, theta=1e4, scale=1.0, frequencies=None):
    out = x.copy()
    half = dim // 2
    f = theta ** (-2.0 * np.arange(half) / dim) / scale if frequencies is None else frequencies
    angle = pos[:, None, None] * f
    pick = (slice(0, dim, 2), slice(1, dim, 2)) if interleave else (slice(0, half),
                                                                    slice(half, dim))
    a, b = x[..., pick[0]], x[..., pick[1]]
    out[..., pick[0]] = a * np.cos(angle) - b * np.sin(angle)
    out[..., pick[1]] = b * np.cos(angle) + a * np.sin(angle)
    return out


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rope(fw, rng, close, dtype, interleave):
    q, q64 = drawn(fw, rng, (7, 4, 64), dtype)
    k, k64 = drawn(fw, rng, (7, 2, 64), dtype)
    indptr = fw.tensor(np.array([0, 3, 3, 7]), "int32")
    offsets = fw.tensor(np.array([5, 0, 1000]), "int32")
    pos = np.array([5, 6, 7, 1000, 1001, 1002, 1003])
    ids = fw.tensor(pos, "int64")
    for rotary in (None, 32):
        dim = rotary or 64
        expected = [turned(t, pos, dim, interleave) for t in (q64, k64)]
        for got in (bolide.apply_rope(q, k, indptr, offsets, rotary, interleave),
                    bolide.apply_rope_pos_ids(q, k, ids, rotary, interleave)):
            for g, e in zip(got, expected):
                close(fw.numbers(g), e, dtype, 5)
    bolide.apply_rope_pos_ids_inplace(q, k, ids, None, interleave, 2.0, 500.0)
    close(fw.numbers(q), turned(q64, pos, 64, interleave, 500.0, 2.0), dtype, 5)
    close(fw.numbers(k), turned(k64, pos, 64, interleave, 500.0, 2.0), dtype, 5)


def test_llama31_rope(fw, rng, close):
    q, q64 = drawn(fw, rng, (3, 4, 128), "float32")
    k, k64 = drawn(fw, rng, (3, 2, 128), "float32")
    pos = np.array([1, 50, 3000])
    f = 5e5 ** (-2.0 * np.arange(64) / 128)
    smooth = np.clip((8192 * f / (2 * np.pi) - 1) / 3, 0, 1)
    f = (1 - smooth) * f / 8 + smooth * f
    got = bolide.apply_llama31_rope_pos_ids(q, k, fw.tensor(pos, "int32"))
    close(fw.numbers(got[0]), turned(q64, pos, 128, False, frequencies=f), "float32", 20)
    close(fw.numbers(got[1]), turned(k64, pos, 128, False, frequencies=f), "float32", 20)
    indptr, offsets = fw.tensor(np.array([0, 1, 2, 3]), "int32"), fw.tensor(pos, "int32")
    bolide.apply_llama31_rope_inplace(q, k, indptr, offsets)
    assert (fw.numbers(q) == fw.numbers(got[0])).all()


def fp8_parts(fw, rng, mla):
    n, heads = 5, () if mla else (2,)
    parts = [drawn(fw, rng, shape, "bfloat16")
             for shape in ((n, 4, 64), (n, *heads, 64), (n, 4, 32), (n, *heads, 32))]
    pos = np.array([0, 3, 9, 30, 31])
    angle = np.arange(32)[:, None] * 1e4 ** (-np.arange(32) / 32.0)
    table = fw.tensor(np.concatenate([np.cos(angle), np.sin(angle)], -1), "float32")
    q, k = (turned(t.reshape(n, -1, 64), pos, 64, False).reshape(t.shape)
            for t in (parts[0][1], parts[1][1]))
    expected = [q * 0.5, k * 2, parts[2][1] * 0.5, parts[3][1] * 2]
    return [p[0] for p in parts], table, fw.tensor(pos, "int32"), expected


@pytest.mark.parametrize("mla", [False, True])
def test_rope_to_fp8(fw, rng, close, mla):
    parts, table, pos, expected = fp8_parts(fw, rng, mla)
    call = bolide.rope.mla_rope_quantize_fp8 if mla else bolide.rope.rope_quantize_fp8
    for kind in (None, "float8_e5m2"):
        got = call(*parts, table, pos, quantize_dtype=kind, quant_scale_q=0.5, quant_scale_kv=2.0)
        for g, e in zip(got, expected):
            close(fw.numbers(g), e, kind or "float8_e4m3fn")
    if not mla:
        got = bolide.rope.rope_quantize_fp8(*parts[:2], None, None, table, pos, quant_scale_q=0.5)
        assert got[2] is None and got[3] is None
        close(fw.numbers(got[0]), expected[0], "float8_e4m3fn")


@pytest.mark.parametrize("mla", [False, True])
def test_rope_to_fp8_cache(fw, rng, close, mla):
    parts, table, pos, expected = fp8_parts(fw, rng, mla)
    zeros = [fw.tensor(np.zeros(s), "float8_e4m3fn") for s in
             (((3, 4, 32), (3, 4, 64)) if mla else ((3, 4, 2, 96), (3, 4, 2, 48)))]
    v, v64 = (None, None) if mla else drawn(fw, rng, (5, 2, 48), "bfloat16")
    ints = [fw.tensor(np.array(a), "int32") for a in
            ([2, 0], [0, 2], [0, 0, 0, 0, -1], [0, 1, 2, 5, 0])]
    q, nope = bolide.rope.rope_quantize_fp8_append_paged_kv_cache(
        *parts, v, table, pos, tuple(zeros), *ints, quant_scale_q=0.5, quant_scale_kv=2.0,
        page_size=4)
    close(fw.numbers(q), expected[0], "float8_e4m3fn")
    close(fw.numbers(nope), expected[2], "float8_e4m3fn")
    slots = [(2, 0), (2, 1), (2, 2), (0, 1)]
    for token, (page, slot) in enumerate(slots):
        first, second = (fw.numbers(z)[page, slot] for z in zeros)
        key = np.concatenate([expected[1][token], expected[3][token]], -1)
        close(first, expected[3][token] if mla else key, "float8_e4m3fn")
        close(second, expected[1][token] if mla else v64[token] * 2, "float8_e4m3fn")


def test_rope_from_table(fw, rng, close):
    q, q64 = drawn(fw, rng, (3, 4 * 64), "float16")
    k, k64 = drawn(fw, rng, (3, 2 * 64), "float16")
    pos = np.array([0, 9, 31])
    angle = np.arange(32)[:, None] * 1e4 ** (-np.arange(16) / 16.0)
    table = fw.tensor(np.concatenate([np.cos(angle), np.sin(angle)], -1), "float32")
    for neox in (True, False):
        got = bolide.apply_rope_with_cos_sin_cache(fw.tensor(pos, "int64"), q, k, 64, table, neox)
        for g, x in zip(got, (q64, k64)):
            expected = turned(x.reshape(3, -1, 64), pos, 32, not neox).reshape(3, -1)
            close(fw.numbers(g), expected, "float16", 2)
    bolide.apply_rope_with_cos_sin_cache_inplace(fw.tensor(pos, "int64"), q, k, 64, table, False)
    assert (fw.numbers(q) == fw.numbers(got[0])).all()
    assert (fw.numbers(k) == fw.numbers(got[1])).all()


def test_rope_from_table_of_no_token(fw):
    table = fw.tensor(np.zeros((4, 64)), "float32")
    q, k = (fw.tensor(np.zeros((0, heads * 64)), "float16") for heads in (4, 2))
    got = bolide.apply_rope_with_cos_sin_cache(fw.tensor(np.zeros(0), "int64"), q, k, 64, table)
    assert [tuple(g.shape) for g in got] == [(0, 256), (0, 128)]


@pytest.mark.parametrize("size", [100, 0, -64])
def test_rope_from_table_head_size(fw, size):
    table = fw.tensor(np.zeros((4, 64)), "float32")
    x = fw.tensor(np.zeros((1, 256)), "float16")
    with pytest.raises(ValueError, match=f"head_size: expected what divides the 256 .*; got {size}"):
        bolide.apply_rope_with_cos_sin_cache(fw.tensor(np.zeros(1), "int64"), x, x, size, table)
