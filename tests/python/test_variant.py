# SPDX-License-Identifier: Apache-2.0
"""Custom attention through the wrappers' jit_args: texts of C with tensors and numbers of their own,
against the same in float64."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import bolide
from attention64 import Batch

LENS = [9, 4, 31, 1]
TEXTS = {
    "logits": "return x + slope[head] * (float)(key - position);",
    "mask": "return key % every == 0 || key == position;",
    "output": "return x * factor;",
}


@pytest.fixture
def fw(fw):
    if fw.device == "cpu" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return fw


def jit_args(b, texts=None, kind=None, decl=None):
    kind = b.dtype if kind is None else kind
    texts = TEXTS if texts is None else texts
    names = (["slope"], ["float"], ["every", "factor"], ["double", "double"])
    return ["biased", kind, kind, kind, "int32", b.d, b.d_vo, *names, "Biased",
            {k: v.replace("% every", "% (int)every") for k, v in texts.items()}
            if decl is None else decl]


def expected(b, slope, every, factor, causal):
    outs = []
    for i in range(len(b.q_lens)):
        q, k, v = b.request(i)
        n, s = len(q), len(k)
        at = s - n + np.arange(n)
        keys = np.arange(s)
        k, v = (np.repeat(x, b.h_q // b.h_kv, 1) for x in (k, v))
        logits = np.einsum("nhd,shd->hns", q, k) * b.d**-0.5
        logits += slope[:, None, None] * (keys - at[:, None])
        seen = (keys % every == 0) | (keys == at[:, None])
        if causal:
            seen &= keys <= at[:, None]
        e = np.exp(logits - logits.max()) * seen
        outs.append(factor * np.einsum("hns,shd->nhd", e / e.sum(-1, keepdims=True), v))
    return np.concatenate(outs)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("kind", ["decode", "paged", "ragged"])
def test_texts(fw, rng, close, kind, dtype):
    b = Batch(fw, rng, [1] * 4 if kind == "decode" else [3, 4, 2, 1], LENS, dtype=dtype)
    slope = rng.random(4)
    first = (fw.tensor(slope, "float32"), 3, 0.5)
    if kind == "decode":
        w = bolide.BatchDecodeWithPagedKVCacheWrapper(b.workspace(), jit_args=jit_args(b))
        w.plan(b.indptr, b.indices, b.last, 4, 2, 64, b.page, q_data_type=dtype)
        run = lambda *more: w.run(b.q, b.cache, *more)  # noqa: E731
    elif kind == "paged":
        w = bolide.BatchPrefillWithPagedKVCacheWrapper(b.workspace(), jit_args=jit_args(b))
        w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, b.page, causal=True,
               q_data_type=dtype)
        run = lambda *more: w.run(b.q, b.cache, *more)  # noqa: E731
    else:
        k, v, kv = b.packed()
        w = bolide.BatchPrefillWithRaggedKVCacheWrapper(b.workspace(), jit_args=jit_args(b))
        w.plan(b.qo, kv, 4, 2, 64, causal=True, q_data_type=dtype)
        run = lambda *more: w.run(b.q, k, v, *more)  # noqa: E731
    close(fw.numbers(run(*first)), expected(b, slope, 3, 0.5, kind != "decode"), dtype, 2.0)
    # Other numbers need no other plan.
    got = run(fw.tensor(-slope, "float32"), 2, 2.0)
    close(fw.numbers(got), expected(b, -slope, 2, 2.0, kind != "decode"), dtype, 4.0)
    with pytest.raises(ValueError, match="expected 3 more positional arguments, slope, every, fac"):
        run(first[0])
    with pytest.raises(ValueError, match="slope: dtype: expected float32; got float16"):
        run(fw.tensor(slope, "float16"), 3, 0.5)


def test_refusals(fw, rng):
    b = Batch(fw, rng, [1] * 4, LENS, dtype="float16")
    make = bolide.BatchDecodeWithPagedKVCacheWrapper
    if fw.device == "cpu":
        with pytest.raises(NotImplementedError, match="variant_decl: a struct in CUDA C"):
            make(b.workspace(), jit_args=jit_args(
                b, decl="struct Biased : AttentionVariantBase {};"))
    with pytest.raises(ValueError, match="expected keys of logits, mask.* got logit$"):
        make(b.workspace(), jit_args=jit_args(b, {"logit": "return x;"}))
    with pytest.raises(ValueError, match="jit_args: expected 13 of them; got 2"):
        make(b.workspace(), jit_args=["a", "b"])
    w = make(b.workspace(), jit_args=jit_args(b, kind="bfloat16"))
    with pytest.raises(ValueError, match="q_data_type: expected bfloat16, as in jit_args; got"):
        w.plan(b.indptr, b.indices, b.last, 4, 2, 64, b.page, q_data_type="float16")
    w = make(b.workspace(), jit_args=jit_args(b, {"logits": "return nothing_of_this_name;"}))
    w.plan(b.indptr, b.indices, b.last, 4, 2, 64, b.page, q_data_type="float16")
    with pytest.raises((RuntimeError, ValueError), match="nothing_of_this_name"):
        w.run(b.q, b.cache, fw.tensor(rng.random(4), "float32"), 2, 1.0)
