# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode in one call, against attention in float64."""

from __future__ import annotations

import inspect
import shutil

import numpy as np
import pytest

import bolide
from attention64 import Batch, attention

POD = bolide.PODWithPagedKVCacheWrapper
BATCH = bolide.BatchPODWithPagedKVCacheWrapper
LENS = [9, 0, 4, 31, 1]


class Both:
    """A request's prefill and a batch that decodes."""

    def __init__(self, fw, rng, n=7, s=20, layout="NHD", dtype="float32", lens=LENS):
        self.fw, self.dtype, self.n, self.s = fw, dtype, n, s
        self.b = Batch(fw, rng, [1] * len(lens), lens, layout=layout, dtype=dtype)
        self.q, self.k, self.v = (fw.tensor(rng.standard_normal((m, h, 64)), dtype)
                                  for m, h in ((n, 4), (s, 2), (s, 2)))

    def wrapper(self, *graph, layout=None, **options):
        b = self.b
        w = POD(b.workspace(), b.layout if layout is None else layout, bool(graph), *graph)
        self.plan(w, **options)
        return w

    def plan(self, w, **options):
        b = self.b
        w.plan(b.indptr, b.indices, b.last, 4, 2, 64, b.page, q_data_type=self.dtype,
               kv_data_type=self.dtype, **options)

    def run(self, w, **options):
        return w.run(self.q, self.k, self.v, self.b.q, self.b.cache, **options)

    def check(self, close, got, prefill=(), decode=(), masks=None, v_scale=1.0):
        q, k, v = (self.fw.numbers(x) for x in (self.q, self.k, self.v))
        self.b.check(close, got[0], attention(q, k, v, **dict(prefill)))
        out, lse = self.b.expected(masks=masks, **dict(decode))
        self.b.check(close, got[1], (out * v_scale, lse))


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_pod(fw, rng, close, layout, dtype):
    x = Both(fw, rng, layout=layout, dtype=dtype)
    w = x.wrapper()
    x.check(close, x.run(w))
    got = x.run(w, causal_p=True, return_lse_p=True, return_lse_d=True, causal_d=True)
    assert isinstance(got[0], tuple) and isinstance(got[1], tuple)
    x.check(close, got, {"causal": True})
    got = x.run(w, return_lse_d=True)
    assert not isinstance(got[0], tuple) and isinstance(got[1], tuple)
    assert w.is_cuda_graph_enabled is False
    w.end_forward()


def test_options_of_each_part(fw, rng, close):
    x = Both(fw, rng)
    w = x.wrapper(sm_scale=0.3, window_left=6)
    x.check(close, x.run(w, sm_scale_p=0.2, window_left_p=4, causal_p=True),
            {"scale": 0.2, "window": 4, "causal": True}, {"scale": 0.3, "window": 6})
    x.check(close, x.run(w, sm_scale_d=0.4, window_left_d=2), {}, {"scale": 0.4, "window": 2})
    x.check(close, x.run(w, pos_encoding_mode_p="ROPE_LLAMA", pos_encoding_mode_d="ROPE_LLAMA",
                         return_lse_d=True),
            {"rope": True}, {"rope": True, "scale": 0.3, "window": 6})
    x.check(close, x.run(w), {}, {"scale": 0.3, "window": 6})  # the plan's again
    x.check(close, x.run(w, q_scale=2.0, k_scale=0.5, v_scale=3.0), {},
            {"scale": 0.3, "window": 6}, v_scale=3.0)
    w = x.wrapper(pos_encoding_mode="ROPE_LLAMA")
    x.check(close, x.run(w), {}, {"rope": True})
    turned = [t.swapaxes(0, 1) for t in (x.k, x.v)]
    got = w.run(x.q, *turned, x.b.q, x.b.cache, kv_layout_p="HND")
    x.check(close, got, {}, {"rope": True})


def test_another_layout_at_run(fw, rng, close):
    x = Both(fw, rng, layout="HND")
    x.check(close, x.run(x.wrapper(layout="NHD"), kv_layout_d="HND"))


@pytest.mark.parametrize("packed", [False, True])
def test_masks(fw, rng, close, packed):
    x = Both(fw, rng)
    first = rng.random((x.n, x.s)) < 0.5
    masks = [rng.random((1, s)) < 0.5 for s in LENS]
    bits = np.concatenate([np.packbits(m.reshape(-1), bitorder="little") for m in masks])
    flat = np.concatenate([m.reshape(-1) for m in masks])
    given = {"custom_mask_p": fw.tensor(first, "bool"), "custom_mask_d": fw.tensor(flat, "bool")}
    if packed:  # goes before the other
        given = {"custom_mask_p": fw.tensor(~first, "bool"),
                 "packed_custom_mask_p": fw.tensor(
                     np.packbits(first.reshape(-1), bitorder="little"), "uint8"),
                 "custom_mask_d": fw.tensor(~flat, "bool"),
                 "packed_custom_mask_d": fw.tensor(bits, "uint8")}
    w = x.wrapper()
    got = x.run(w, return_lse_p=True, return_lse_d=True, **given)
    x.check(close, got, {"mask": first}, masks=masks)
    x.check(close, x.run(w))


def test_graph_buffers(fw, rng, close):
    x = Both(fw, rng)
    buffers = [fw.tensor(np.zeros(n), "int32") for n in (6, 40, 5)]
    w = x.wrapper(*buffers)
    assert w.is_cuda_graph_enabled
    for lens in (LENS, [3, 8, 0, 0, 60]):
        x = Both(fw, rng, lens=lens)
        x.plan(w)
        x.check(close, x.run(w))
        assert (fw.numbers(buffers[0]) == x.b.indptr_list).all()
    with pytest.raises(NotImplementedError, match="custom_mask_d.*with use_cuda_graph"):
        x.run(w, custom_mask_d=fw.tensor(np.ones(71), "bool"))


def test_pod_refusals(fw, rng):
    x = Both(fw, rng)
    with pytest.raises(RuntimeError, match=r"plan\(\) must come before run\(\)"):
        x.run(POD(x.b.workspace()))
    with pytest.raises(ValueError, match="jit_args"):
        POD(x.b.workspace(), jit_args=["a"])
    w = x.wrapper(data_type=x.dtype)
    rest = [None, None, False, "NHD", "NONE", None, -1, None, None, False] + [
        None, None, False, "NHD", "NONE", None, -1, None, None, None, None, None, False, False, None]
    with pytest.raises(ValueError, match="args: expected none without jit_args; got 1"):
        w.run(x.q, x.k, x.v, x.b.q, x.b.cache, *rest, 1.0)
    with pytest.raises(ValueError, match="q: shape"):
        w.run(x.q, x.k, x.v, x.b.q[:3], x.b.cache)


@pytest.mark.parametrize("masked", [False, True])
def test_variant_of_the_decoding_part(fw, rng, close, masked):
    if fw.device == "cpu" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    x = Both(fw, rng, dtype="float16")
    kind = x.dtype
    w = POD(x.b.workspace(), x.b.layout, jit_args=[
        "halved", kind, kind, kind, "int32", 64, 64, ["weight"], ["float"], ["factor"], ["double"],
        "Halved", {"output": "return x * weight[head] * factor;"}])
    x.plan(w)
    weight = rng.random(4)
    masks = [rng.random((1, n)) < 0.7 for n in LENS] if masked else None
    more = dict(custom_mask_d=fw.tensor(np.concatenate([m[0] for m in masks]), "bool")
                ) if masked else {}
    names = list(inspect.signature(w.run).parameters)[5:-1]
    options = [more.get(n, inspect.signature(w.run).parameters[n].default) for n in names]
    got = w.run(x.q, x.k, x.v, x.b.q, x.b.cache, *options, fw.tensor(weight, "float32"), 0.5)
    q, k, v = (fw.numbers(t) for t in (x.q, x.k, x.v))
    x.b.check(close, got[0], attention(q, k, v))
    out, _ = x.b.expected(masks=masks)
    x.b.check(close, got[1], (out * weight[None, :, None] * 0.5, None))


# ---- batches of both -----------------------------------------------------------------------------


def batches(fw, rng, q_d, dtype="float32", layout="NHD", lens=LENS):
    p = Batch(fw, rng, [5, 0, 12], [9, 4, 12], dtype=dtype, layout=layout)
    return p, Batch(fw, rng, q_d, lens, dtype=dtype, layout=layout)


def batch_plan(w, p, d, **options):
    w.plan(p.qo, p.indptr, p.indices, p.last, d.qo, d.indptr, d.indices, d.last, 4, 2, 64, p.page,
           q_data_type=p.dtype, kv_data_type=p.dtype, **options)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("q_d", [[1] * 5, [1, 2, 0, 3, 1]])
def test_batch_pod(fw, rng, close, layout, q_d):
    p, d = batches(fw, rng, q_d, layout=layout)
    w = BATCH(p.workspace(), layout)
    with pytest.raises(RuntimeError, match=r"plan\(\) must come before run\(\)"):
        w.run(p.q, p.cache, d.q, d.cache)
    batch_plan(w, p, d)
    for causal in (True, False):
        for scales in ({}, {"q_scale": 0.5, "k_scale": 3.0, "v_scale": 2.0}):
            got = w.run(p.q, p.cache, d.q, d.cache, causal_p=causal, return_lse=True, **scales)
            for x, found, ordered in ((p, got[0], causal), (d, got[1], False)):
                out, lse = x.expected(causal=ordered, scale=0.125 * (1.5 if scales else 1))
                x.check(close, found, (out * (2 if scales else 1), lse))
    got = w.run(p.q, p.cache, d.q, d.cache)
    p.check(close, got[0], p.expected())
    d.check(close, got[1], d.expected())
    assert w.is_cuda_graph_enabled is False
    w.end_forward()


@pytest.mark.parametrize("packed", [False, True])
def test_batch_pod_masks_and_options(fw, rng, close, packed):
    p, d = batches(fw, rng, [1] * 5, "float16")
    w = BATCH(p.workspace())
    batch_plan(w, p, d, window_left=7, sm_scale=0.2)
    masks = [rng.random((n, s)) < 0.5 for n, s in zip(p.q_lens, p.kv_lens)]
    flat = np.concatenate([m.reshape(-1) for m in masks])
    bits = np.concatenate([np.packbits(m.reshape(-1), bitorder="little") for m in masks])
    given = {"custom_mask_p": fw.tensor(~flat if packed else flat, "bool")}
    if packed:
        given["packed_custom_mask_p"] = fw.tensor(bits, "uint8")
    got = w.run(p.q, p.cache, d.q, d.cache, causal_p=True, return_lse=True, **given)
    p.check(close, got[0], p.expected(masks=masks, window=7, scale=0.2))
    d.check(close, got[1], d.expected(window=7, scale=0.2))
    got = w.run(p.q, p.cache, d.q, d.cache, causal_p=True)
    p.check(close, got[0], p.expected(causal=True, window=7, scale=0.2))
