# SPDX-License-Identifier: Apache-2.0
"""On a GPU: attention with structs in CUDA C++, as FlashInfer's examples call it, against float32."""

from __future__ import annotations

import functools
import math

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytestmark = pytest.mark.gpu

import bolide  # noqa: E402
from cpp_structs import STRUCTS  # noqa: E402

bolide.install_as_flashinfer()
import flashinfer  # noqa: E402
from flashinfer.jit.attention import (  # noqa: E402
    gen_customize_single_decode_module, gen_customize_single_prefill_module)

D = 128
SCALE = 1 / math.sqrt(D)


def half(*shape):
    return torch.randn(*shape, dtype=torch.float16, device="cuda")


def single(make, struct, *lead):
    args = STRUCTS[struct].jit_args(torch.float16, D)
    module = make(*lead, *args[:4], *args[5:]).build_and_load()
    name = "decode" if make is gen_customize_single_decode_module else "prefill"
    run = getattr(getattr(flashinfer, name), f"single_{name}_with_kv_cache_with_jit_module")
    return functools.partial(run, module)


def near(got, expected, tolerance=2e-3):
    torch.testing.assert_close(got.float(), expected.float(), rtol=tolerance, atol=tolerance)


def test_single_decode_mask():
    q, k, v = half(32, D), half(254, 32, D), half(254, 32, D)
    mask = torch.randint(0, 2, (254,), dtype=torch.uint8, device="cuda")
    out = single(gen_customize_single_decode_module, "CustomMask")(
        q, k, v, flashinfer.packbits(mask, bitorder="little"), SCALE)
    p = torch.einsum("hd,nhd->hn", q.float(), k.float()) * SCALE
    p[:, mask == 0] = -math.inf
    near(out, torch.einsum("hn,nhd->hd", p.softmax(-1), v.float()))


@pytest.mark.parametrize("struct, backend", [("FlashSigmoid", "fa2"), ("FlashSigmoidHopper", "fa3")])
def test_single_sigmoid(struct, backend):
    q, k, v = half(128, 8, D), half(1027, 8, D), half(1027, 8, D)
    out = single(gen_customize_single_prefill_module, struct, backend)(
        q, k, v, SCALE, 0.25, mask_mode=flashinfer.utils.MaskMode.NON_CAUSAL.value)
    p = torch.sigmoid(torch.einsum("mhd,nhd->hmn", q.float(), k.float()) * SCALE + 0.25)
    near(out, torch.einsum("hmn,nhd->mhd", p, v.float()), 2e-2)


@pytest.mark.parametrize("struct, backend", [("DumpLogits", "fa2"), ("DumpLogitsHopper", "fa3")])
def test_dump_logits(struct, backend):
    q, k, v = half(128, 32, D), half(1023, 32, D), half(1023, 32, D)
    logits = torch.full((32, 128, 1023), math.nan, device="cuda")
    out = single(gen_customize_single_prefill_module, struct, backend)(q, k, v, logits, SCALE)
    p = torch.einsum("mhd,nhd->hmn", q.float(), k.float()) * SCALE
    near(logits, p, 1e-2)
    near(out, torch.einsum("hmn,nhd->mhd", p.softmax(-1), v.float()))


@pytest.mark.parametrize("kind", ["decode", "paged", "ragged"])
def test_batches(kind):
    b, s, h = 7, 300, 8
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    args = STRUCTS["FlashSigmoid"].jit_args(torch.float16, D)
    n = 1 if kind == "decode" else 5
    q, k, v = half(b * n, h, D), half(b * s, h, D), half(b * s, h, D)
    qo = torch.arange(0, b * n + 1, n, dtype=torch.int32)
    kv = torch.arange(0, b * s + 1, s, dtype=torch.int32)
    pages, last = torch.arange(b * s, dtype=torch.int32), torch.ones(b, dtype=torch.int32)
    kinds = dict(q_data_type=torch.float16, kv_data_type=torch.float16)
    if kind == "decode":
        w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", jit_args=args)
        w.plan(kv, pages, last, h, h, D, 1, **kinds)
    elif kind == "paged":
        w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", jit_args=args)
        w.plan(qo, kv, pages, last, h, h, D, 1, **kinds)
    else:
        w = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", jit_args=args)
        w.plan(qo, kv, h, h, D, causal=False, **kinds)
    out = w.run(q, k, v, SCALE, 0.25) if kind == "ragged" else w.run(q, (k, v), SCALE, 0.25)
    each = (t.view(b, -1, h, D).float() for t in (q, k, v))
    q, k, v = each
    p = torch.sigmoid(torch.einsum("bmhd,bnhd->bhmn", q, k) * SCALE + 0.25)
    near(out, torch.einsum("bhmn,bnhd->bmhd", p, v).reshape(b * n, h, D), 2e-2)


def test_tensors_of_the_wrapper():
    """A mask that plan was given reaches a struct that names it."""
    n, h = 16, 8
    struct = STRUCTS["CustomMask"]
    decl = struct.decl.replace("params.custom_mask",
                               "params.maybe_custom_mask + params.maybe_mask_indptr[batch_idx]")
    args = list(struct.jit_args(torch.float16, D))
    args[7:9] = ["maybe_custom_mask", "maybe_mask_indptr"], ["uint8_t", "int32_t"]
    args[-1] = decl
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    w = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", jit_args=args)
    ends = torch.tensor([0, n], dtype=torch.int32)
    mask = torch.rand(n, n, device="cuda") < 0.5
    mask[:, 0] = True
    w.plan(ends, ends, h, h, D, custom_mask=mask, causal=False)
    q, k, v = half(n, h, D), half(n, h, D), half(n, h, D)
    p = torch.einsum("mhd,nhd->hmn", q.float(), k.float()) * SCALE
    p = p.masked_fill(~mask, -math.inf).softmax(-1)
    near(w.run(q, k, v, SCALE), torch.einsum("hmn,nhd->mhd", p, v.float()))


@pytest.mark.parametrize("kind", ["decode", "paged", "ragged"])
def test_sink(kind):
    """A struct that changes the sum of each row, with requests in many pieces and in one."""
    lens, h, h_kv, d = [3000, 5, 700], 8, 2, 64
    n = 1 if kind == "decode" else 4
    struct = STRUCTS["AttentionSink"]
    args = struct.jit_args(torch.bfloat16, d)
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    rand = lambda *s: torch.randn(*s, device="cuda").bfloat16()  # noqa: E731
    q, k, v = rand(3 * n, h, d), rand(sum(lens), h_kv, d), rand(sum(lens), h_kv, d)
    sink = torch.randn(h, device="cuda") * 2
    qo = torch.arange(0, 3 * n + 1, n, dtype=torch.int32)
    kv = torch.tensor([0, *torch.tensor(lens).cumsum(0)], dtype=torch.int32)
    pages, last = torch.arange(sum(lens), dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    kinds = dict(q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    cache = k[:, None], v[:, None]
    if kind == "decode":
        w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", jit_args=args)
        w.plan(kv, pages, last, h, h_kv, d, 1, **kinds)
    elif kind == "paged":
        w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", jit_args=args)
        w.plan(qo, kv, pages, last, h, h_kv, d, 1, causal=True, **kinds)
    else:
        w = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", jit_args=args)
        w.plan(qo, kv, h, h_kv, d, causal=True, **kinds)
    out = w.run(q, *((k, v) if kind == "ragged" else (cache,)), sink, d ** -0.5)
    for i, s in enumerate(lens):
        keys, values = (t[kv[i]:kv[i] + s].float().repeat_interleave(4, 1) for t in (k, v))
        x = torch.einsum("mhd,nhd->hmn", q[i * n:(i + 1) * n].float(), keys) * d ** -0.5
        seen = torch.arange(s, device="cuda") <= torch.arange(s - n, s, device="cuda")[:, None]
        x = x.masked_fill(~seen, -math.inf)
        x = torch.cat([x, sink[:, None, None].expand(h, n, 1)], -1).softmax(-1)[..., :-1]
        near(out[i * n:(i + 1) * n], torch.einsum("hmn,nhd->mhd", x, values), 2e-2)
