# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers around its CuTe DSL kernels, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from attention64 import Batch, attention
from bolide import _frameworks
from bolide.cute_dsl.attention.wrappers.batch_decode import (
    BatchDecodeCuteDSLWrapper, BatchDecodePagedCuteDSLWrapper)
from bolide.cute_dsl.attention.wrappers.batch_mla import BatchMLADecodeCuteDSLWrapper
from bolide.cute_dsl.attention.wrappers.batch_prefill import BatchPrefillCuteDSLWrapper

LENS = [9, 40, 3, 130]


def right_of(b, right):
    """Masks of queries that see as many keys behind their own."""
    return [np.tri(q, n, n - q + right, dtype=bool) for q, n in zip(b.q_lens, b.kv_lens)]


def space(b):
    return _frameworks.empty(b.q, (1 << 22,), "float32")


@pytest.mark.parametrize("left, right", [(None, 0), (None, None), (5, 0), (7, 1)])
@pytest.mark.parametrize("q_len", [1, 3])
def test_decode_of_pages(fw, rng, close, q_len, left, right):
    b = Batch(fw, rng, [q_len] * 4, LENS, page=8, dtype="bfloat16")
    q = b.q.reshape((4, q_len, 4, 64))
    sinks = fw.tensor(rng.standard_normal(4), "float32")
    options = {"window": -1 if left is None else left, "scale": 0.2, "sinks": fw.numbers(sinks)}
    masks = None if right is None else right_of(b, right)
    expected = b.expected(masks, **options)
    w = BatchDecodePagedCuteDSLWrapper(space(b))
    with pytest.raises(RuntimeError, match="plan"):
        w.run(q, *b.cache)
    # Planned for another number of queries: FlashInfer takes it from q, too.
    w.plan(b.indptr, b.indices, b.lens, 4, 2, 64, 8, sm_scale=0.2, window_left=left,
           window_right=right, q_len_per_req=2, max_kv_len=130)
    out = _frameworks.full(q, tuple(q.shape), "bfloat16", float("nan"))
    lse = _frameworks.full(q, (4, q_len, 4), "float32", float("nan"))
    for _ in range(2):
        found = w.run(q, *b.cache, sinks=sinks, lse=lse, out=out)
        assert found is out
        b.check(close, (out.reshape(b.q.shape), lse.reshape((-1, 4))), expected)
    twice = w.run(q, *b.cache, sinks=sinks, o_scale=2.0)
    b.check(close, twice.reshape(b.q.shape), (expected[0] * 2, None))
    other = b.expected(masks, **{**options, "scale": 0.1})
    b.check(close, w.run(q, *b.cache, sinks=sinks, sm_scale=0.1).reshape(b.q.shape), other)


@pytest.mark.parametrize("q_len, s", [(1, 33), (2, 16)])
def test_decode_in_one_piece(fw, rng, close, q_len, s):
    b = Batch(fw, rng, [q_len] * 3, [s] * 3, dtype="float16")
    k, v, _ = (x for x in b.packed())
    q, k, v = b.q.reshape((3, q_len, 4, 64)), k.reshape((3, s, 2, 64)), v.reshape((3, s, 2, 64))
    w = BatchDecodeCuteDSLWrapper(space(b))
    w.plan(2, 8, 4, 2, 64, q_data_type="float16", kv_splits=1)  # a run brings its own sizes
    expected = b.expected(causal=True)
    for _ in range(2):
        b.check(close, w.run(q, k, v).reshape(b.q.shape), expected)
    with pytest.warns(DeprecationWarning):
        w.plan(3, s, 4, 2, 64, "float16", None, "float32", 0.3, None, "none", q_len, False)
    with pytest.warns(DeprecationWarning):
        found = w.run(q, k, v, None, 0.2)
    assert str(found.dtype).endswith("float32")
    b.check(close, found.reshape(b.q.shape), b.expected(scale=0.2))


def test_latent(fw, rng, close):
    ckv, kpe, heads, page, lens = 64, 16, 4, 8, [9, 40, 33]
    q = fw.tensor(rng.standard_normal((3, 2, heads, ckv + kpe)), "bfloat16")
    cache = fw.tensor(rng.standard_normal((20, page, ckv + kpe)), "bfloat16")
    table = rng.permutation(20)[:15].reshape(3, 5)
    keys = fw.numbers(cache)[table].reshape(3, 5 * page, ckv + kpe)
    expected = np.stack([
        attention(fw.numbers(q)[i], keys[i, :n, None], keys[i, :n, None, :ckv], causal=True,
                  scale=0.1)[0] * 2 for i, n in enumerate(lens)])
    ints = lambda x: fw.tensor(np.asarray(x), "int32")  # noqa: E731
    w = BatchMLADecodeCuteDSLWrapper(_frameworks.empty(q, (1 << 24,), "int8"))
    with pytest.raises(RuntimeError, match="plan"):
        w.run(q, cache, ints(table), ints(lens), 40, 0.1)
    w.plan(ckv, kpe, heads, page)
    for given in (cache, cache.reshape((20, 1, page, -1))):
        found = w.run(q, given, ints(table), ints(lens), 40, 0.1, 2.0)
        close(fw.numbers(found), expected, "bfloat16", 2.0)
    w.plan(ckv, kpe, heads, page, "float16")
    with pytest.raises(ValueError, match="q: expected float16, as planned; got bfloat16"):
        w.run(q, cache, ints(table), ints(lens), 40, 0.1)
    with pytest.raises(NotImplementedError, match="plan: variant"):
        w.plan(variant=object())


@pytest.mark.parametrize("options", [
    {}, {"causal": False}, {"window_left": 6}, {"causal": False, "window_right": 3},
    {"causal": False, "window_left": 4, "window_right": 2}], ids=str)
@pytest.mark.parametrize("layout", [None, "NHD", "HND"])
def test_prefill(fw, rng, close, layout, options):
    b = Batch(fw, rng, [3, 1, 2, 60], LENS, page=8, layout=layout or "NHD", dtype="bfloat16")
    right = options.get("window_right")
    expected = b.expected(
        None if right is None else right_of(b, right), scale=0.2,
        causal=options.get("causal", True), window=options.get("window_left", -1))
    w = BatchPrefillCuteDSLWrapper(space(b))
    common = dict(num_qo_heads=4, num_kv_heads=2, head_dim_qk=64, sm_scale=0.2,
                  q_data_type="bfloat16", **options)
    if layout is None:
        k, v, starts = b.packed()
        w.plan(b.qo, starts, **common)
        found = w.run(b.q, k, v, return_lse=True)
        b.check(close, w.run(b.q, k, v), expected)
        with pytest.raises(RuntimeError, match="run_paged: plan"):
            w.run_paged(b.q, b.cache)
    else:
        w.plan(b.qo, page_size=8, paged_kv_indptr=b.indptr, paged_kv_indices=b.indices,
               paged_kv_last_page_len=b.last, kv_layout=layout, **common)
        found = w.run_paged(b.q, b.cache, return_lse=True)
        with pytest.raises(RuntimeError, match="run: plan"):
            w.run(b.q, *b.cache)
    b.check(close, found, expected)


def test_refusals(fw, rng):
    b = Batch(fw, rng, [1] * 4, LENS, page=8, dtype="bfloat16")
    w = BatchDecodePagedCuteDSLWrapper(space(b))
    good = dict(indptr=b.indptr, indices=b.indices, seq_lens=b.lens, num_qo_heads=4, num_kv_heads=2,
                head_dim=64, page_size=8)
    for text, arguments in {
        "reduction: expected auto, kernel, atomic or none; got 'sum'": dict(reduction="sum"),
        "kv_splits: expected at least 1": dict(kv_splits=0),
        "kv_splits: expected 1 with": dict(kv_splits=4, reduction="none"),
        "window_left: expected None, or": dict(window_left=-1),
        "seq_lens: expected at most 129, max_kv_len; got 130": dict(max_kv_len=129),
        "q_len_per_req: expected at least 1": dict(q_len_per_req=0),
    }.items():
        with pytest.raises(ValueError, match="BatchDecodePagedCuteDSLWrapper.plan: " + text):
            w.plan(**{**good, **arguments})
    with pytest.raises(TypeError, match="is_causal"):
        w.plan(**good, is_causal=True, window_right=0)
    w = BatchPrefillCuteDSLWrapper(space(b))
    good = dict(qo_indptr=b.qo, num_qo_heads=4, num_kv_heads=2, head_dim_qk=64)
    for text, arguments in {
        "kv_indptr: expected a tensor": {},
        "kv_indptr: expected None, and the three": dict(kv_indptr=b.qo, page_size=8),
        "window_right: expected -1 with causal": dict(kv_indptr=b.qo, window_right=1),
        "kv_data_type: expected float16": dict(kv_indptr=b.qo, kv_data_type="bfloat16"),
        "num_kv_heads: expected a number": dict(kv_indptr=b.qo, num_kv_heads=None),
        "kv_layout: expected NHD or HND": dict(kv_indptr=b.qo, kv_layout="NDH"),
    }.items():
        with pytest.raises(ValueError, match="BatchPrefillCuteDSLWrapper.plan: " + text):
            w.plan(**{**good, **arguments})


@pytest.mark.gpu
@pytest.mark.parametrize("pages", [False, True])
def test_graph_follows_plans(rng, close, pages):
    """A captured run reads the buffers that later plans write."""
    torch = pytest.importorskip("torch")
    from conftest import Torch

    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    fw = Torch("cuda")
    w = replay = None
    for lens in ([40, 70, 33, 130], [9, 90, 64, 3]):
        b = Batch(fw, rng, [2] * 4, lens, page=8, dtype="bfloat16")
        if w is None:
            w = (BatchPrefillCuteDSLWrapper if pages else BatchDecodePagedCuteDSLWrapper)(
                space(b), use_cuda_graph=True)
            q = torch.empty_like(b.q)
            cache = [torch.zeros(80, 8, 2, 64, dtype=torch.bfloat16, device="cuda")
                     for _ in range(2)]
        q.copy_(b.q)
        for to, of in zip(cache, b.cache):
            to[:len(of)] = of
        if pages:
            w.plan(b.qo, None, 4, 2, 64, q_data_type="bfloat16", page_size=8,
                   paged_kv_indptr=b.indptr, paged_kv_indices=b.indices,
                   paged_kv_last_page_len=b.last)
            call = lambda: w.run_paged(q, tuple(cache), out=out)  # noqa: E731
        else:
            w.plan(b.indptr, b.indices, b.lens, 4, 2, 64, 8, q_len_per_req=2)
            call = lambda: w.run(q.view(4, 2, 4, 64), *cache, out=out.view(4, 2, 4, 64))  # noqa: E731
        if replay is None:
            out = torch.empty_like(q)
            call()
            replay = torch.cuda.CUDAGraph()
            with torch.cuda.graph(replay):
                call()
        out.fill_(float("nan"))
        replay.replay()
        b.check(close, out, b.expected(causal=True))
