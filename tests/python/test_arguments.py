# SPDX-License-Identifier: Apache-2.0
"""What programs written for FlashInfer pass that the library itself would refuse: indices in int64
for append and rope, parameters in other floating types, small workspaces, sinks as jit_args, specs
built ahead."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from attention64 import Batch
from bolide.jit.attention.variants import attention_sink_decl
from test_wrappers import LENS, PAGED, RAGGED, Q_LENS, need

DECODE = bolide.BatchDecodeWithPagedKVCacheWrapper


class Wide(Batch):
    """A batch with all its indices in int64."""

    def index(self, values):
        return self.fw.tensor(np.asarray(values, dtype=np.int64), "int64")


def same(fw, a, b):
    assert np.array_equal(fw.numbers(a), fw.numbers(b), equal_nan=True)


def test_plans_in_any_workspace(fw, rng, close):
    """Where the caller's workspace is too small the wrapper has one."""
    b = Batch(fw, rng, Q_LENS, [900, 3, 0, 44, 12], dtype="float16")
    space = b.workspace(256)
    kinds = dict(q_data_type="float16", kv_data_type="float16")
    w = PAGED(space)
    w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, causal=True, **kinds)
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(causal=True))
    k, v, kv_indptr = b.packed()
    w = RAGGED(space)
    w.plan(b.qo, kv_indptr, 4, 2, 64, causal=True, **kinds)
    b.check(close, w.run(b.q, k, v, return_lse=True), b.expected(causal=True))
    d = Batch(fw, rng, [1] * 5, [900, 0, 4, 31, 1], dtype="float16")
    w = DECODE(space)
    for _ in range(2):
        w.plan(d.indptr, d.indices, d.last, 4, 2, 64, 4, **kinds)
        d.check(close, w.run(d.q, d.cache, return_lse=True), d.expected())


def test_plans_of_int64_are_refused(fw, rng):
    """As FlashInfer's are in later releases; before, they gave wrong numbers there."""
    b = Wide(fw, rng, Q_LENS, LENS)
    w = PAGED(b.workspace())
    narrow = Batch(fw, rng, Q_LENS, LENS)
    with pytest.raises(ValueError, match="qo_indptr: dtype: expected i32; got i64"):
        w.plan(b.qo, b.indptr, narrow.indices, b.last, 4, 2, 64, 4)
    given = (narrow.qo, narrow.indptr, b.indices, narrow.last, 4, 2, 64, 4)
    with pytest.raises(ValueError, match="paged_kv_indices: dtype: expected int32; got int64"):
        w.plan(*given)
    with pytest.raises(ValueError, match="plan: indices: dtype: expected int32; got int64"):
        DECODE(b.workspace()).plan(*given[1:])
    with pytest.raises(ValueError, match="paged_kv_last_page_len: rank: expected 1; got 2"):
        w.plan(*given[:2], narrow.indices, narrow.last[:, None], *given[4:])


def test_an_indptr_that_begins_below_0(fw, rng):
    b = Batch(fw, rng, Q_LENS, LENS)
    w = PAGED(b.workspace())
    below = fw.tensor(fw.numbers(b.qo) - 1, "int32")
    with pytest.raises(ValueError, match="qo_indptr: value: expected at least 0; got -1 at element 0"):
        w.plan(below, b.indptr, b.indices, b.last, 4, 2, 64, 4)
    falls = fw.tensor(fw.numbers(b.qo)[::-1].copy(), "int32")
    with pytest.raises(ValueError, match="qo_indptr: value: expected values that do not fall"):
        w.plan(falls, b.indptr, b.indices, b.last, 4, 2, 64, 4)


def test_indices_with_strides(fw, rng, close):
    """Copies are made: plans read them once, runs would read past them."""
    b = Batch(fw, rng, [1] * 5, LENS, dtype="float16")

    def spread(x):
        wide = fw.tensor(np.full((x.shape[0], 2), -1), "int32")
        wide[:, 0] = x
        return wide[:, 0]

    qo, indptr, indices, last = map(spread, (b.qo, b.indptr, b.indices, b.last))
    w = PAGED(b.workspace())
    w.plan(qo, indptr, indices, last, 4, 2, 64, 4, q_data_type="float16")
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected())
    w = DECODE(b.workspace())
    w.plan(indptr, indices, last, 4, 2, 64, 4, q_data_type="float16")
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected())


def test_append_of_int64(fw, rng):
    need(fw, "append_paged_kv_cache")
    b = Batch(fw, rng, [1] * 5, LENS)
    wide = Wide(fw, np.random.default_rng(0), [1] * 5, LENS)
    new = fw.tensor(rng.standard_normal((7, 2, 64)), "float32")
    at, rows = [3, 8, 0, 3, 30, 2, 0], [0, 0, 2, 2, 3, 3, 4]
    caches = []
    for index in (b.index, wide.index):
        cache = [fw.tensor(np.zeros(b.k_cache.shape), "float32") for _ in range(2)]
        table = (index(x) for x in (b.indices_list, b.indptr_list, b.last_list))
        bolide.append_paged_kv_cache(new, new, index(rows), index(at), tuple(cache), *table)
        caches.append(cache)
    for narrow, other in zip(*caches):
        assert fw.numbers(narrow).any()
        same(fw, narrow, other)


def test_rope_of_mixed_indices(fw, rng):
    q, k = (fw.tensor(rng.standard_normal((5, h, 64)), "float16") for h in (4, 2))
    kinds = ("int32", "int64")
    for apply in (bolide.apply_rope, bolide.apply_llama31_rope):
        found = [apply(q, k, fw.tensor([0, 2, 5], one), fw.tensor([70, 0], other))
                 for one in kinds for other in kinds]
        for each in found[1:]:
            same(fw, each[0], found[0][0])
            same(fw, each[1], found[0][1])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_sampling_parameters(fw, rng, dtype):
    """Halves and quarters are the same numbers in every type."""
    logits = rng.standard_normal((4, 50))
    probs = fw.tensor(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), "float32")
    logits = fw.tensor(logits, "float32")
    wide, given = (fw.tensor([0.5, 0.25, 0.75, 1.0], kind) for kind in ("float32", dtype))
    draw = dict(seed=5, offset=8)
    f = bolide.sampling
    for call in (lambda p: f.top_p_sampling_from_probs(probs, p, **draw),
                 lambda p: f.min_p_sampling_from_probs(probs, p, **draw),
                 lambda p: f.top_k_top_p_sampling_from_probs(probs, 9, p, **draw),
                 lambda p: f.top_k_top_p_sampling_from_logits(logits, 9, p, **draw),
                 lambda p: f.top_p_renorm_probs(probs, p), lambda p: f.softmax(logits, p)):
        same(fw, call(given), call(wide))


def test_sampling_of_float64(fw, rng):
    x = fw.tensor(rng.random((4, 50)), "float32")
    x64 = fw.tensor(fw.numbers(x), "float64")
    draw = dict(seed=5, offset=8)
    f = bolide.sampling
    for call in (lambda x: f.sampling_from_logits(x, **draw), f.softmax,
                 lambda x: f.sampling_from_probs(x, **draw), lambda x: f.top_k_mask_logits(x, 3),
                 lambda x: f.top_k_renorm_probs(x, 3), lambda x: f.top_p_renorm_probs(x, 0.5),
                 lambda x: f.top_k_top_p_sampling_from_logits(x, 3, 0.5, **draw)):
        same(fw, call(x64), call(x))


def test_states_in_float64(fw, rng):
    need(fw, "merge_state")
    a, b = (fw.tensor(rng.standard_normal((3, 4, 64)), "float16") for _ in range(2))
    s, t = (fw.tensor(rng.standard_normal((3, 4)), "float32") for _ in range(2))
    s64, t64 = (fw.tensor(fw.numbers(x), "float64") for x in (s, t))
    for ours, theirs in zip(bolide.merge_state(a, s64, b, t64), bolide.merge_state(a, s, b, t)):
        same(fw, ours, theirs)


def test_sinks_as_jit_args(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS, dtype="float16")
    sinks = rng.standard_normal(4) * 3
    given = fw.tensor(sinks, "float32"), 0.2
    args = ("sinks", "float16", "float16", "float16", "int32", 64, 64, ["sink"], ["float"],
            ["sm_scale"], ["double"], "AttentionSink", attention_sink_decl["fa3"])
    kinds = dict(q_data_type="float16", kv_data_type="float16")
    expected = b.expected(causal=True, window=6, sinks=sinks, scale=0.2)
    switches = {"use_sliding_window": True}
    w = PAGED(b.workspace(), jit_args=args, jit_kwargs=switches)
    w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, causal=True, window_left=6, **kinds)
    b.check(close, w.run(b.q, b.cache, *given, return_lse=True), expected)
    with pytest.raises(ValueError, match="expected 2 more positional arguments, sink, sm_scale"):
        w.run(b.q, b.cache)
    with pytest.raises(ValueError, match="q_data_type: expected float16, as in jit_args"):
        w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type="bfloat16")
    k, v, kv_indptr = b.packed()
    w = RAGGED(b.workspace(), jit_args=args, jit_kwargs=switches)
    w.plan(b.qo, kv_indptr, 4, 2, 64, causal=True, window_left=6, **kinds)
    b.check(close, w.run(b.q, k, v, *given, return_lse=True), expected)
    d = Batch(fw, rng, [1] * 5, LENS, dtype="float16")
    w = DECODE(d.workspace(), jit_args=args)
    w.plan(d.indptr, d.indices, d.last, 4, 2, 64, 4, **kinds)
    d.check(close, w.run(d.q, d.cache, *given, return_lse=True),
            d.expected(sinks=sinks, scale=0.2))
    with pytest.raises(ValueError, match="expected the tensor sink and the number sm_scale"):
        PAGED(b.workspace(), jit_args=(*args[:7], [], [], *args[9:]))


def test_page_and_packing_modules(fw, rng):
    if fw.name == "numpy":
        pytest.skip("tvm-ffi takes tensors of frameworks with DLPack's exchange or its own")
    b = Batch(fw, rng, [1] * 5, LENS)
    new, rows = fw.tensor(rng.standard_normal((5, 2, 64)), "float32"), b.index([0, 0, 2, 3, 4])
    at, table = b.index([3, 8, 0, 30, 0]), (b.indices, b.indptr, b.last)
    ours, theirs = ([fw.tensor(np.zeros(b.k_cache.shape), "float32") for _ in "kv"]
                    for _ in range(2))
    module = bolide.page.gen_page_module().build_and_load()
    module.append_paged_kv_cache(new, new, rows, at, *ours, *table, 0)
    bolide.append_paged_kv_cache(new, new, rows, at, tuple(theirs), *table)
    same(fw, ours[0], theirs[0])
    same(fw, ours[1], theirs[1])
    bits = fw.tensor(rng.random(21) < 0.5, "bool")
    out = fw.tensor(np.zeros(3), "uint8")
    bolide.quantization.gen_quantization_module().load().packbits(bits, "little", out)
    same(fw, out, bolide.packbits(bits, "little"))


def test_specs_of_wrappers():
    """They are built and named; what they would load is refused by name."""
    half, prefill = ("float16",) * 3, ("int32", 64, 64, 0, False, False, False)
    pod = (128, 0, False, False, False, "int32", 0, False, False)
    specs = [
        bolide.decode.gen_batch_decode_module(*half, "int32", 128, 128, 0, False, False),
        bolide.decode.gen_batch_decode_module(*half, "int32", 128, 128, 0, True, False),
        bolide.prefill.gen_batch_prefill_module("fa2", *half, *prefill),
        bolide.prefill.gen_batch_prefill_module("fa2", *half, *prefill, True),
        bolide.attention.gen_batch_attention_module(*half, "int32", 128, 128, 0, False, False),
        bolide.jit.gen_batch_mla_module("fa2", *half, "int32", 512, 64, False),
        bolide.jit.gen_batch_decode_mla_module(*half, "int32", 512, 16, False, False, True),
        bolide.jit.attention.gen_batch_prefill_attention_sink_module("fa3", *half, *prefill[:5]),
        bolide.sampling.gen_sampling_module(),
        bolide.jit.gen_pod_module(*half, *pod),
        bolide.jit.gen_batch_pod_module(*half, *pod),
    ]
    assert len({spec.name for spec in specs}) == len(specs)
    bolide.jit.build_jit_specs(specs)
    for spec in specs:
        with pytest.raises(NotImplementedError, match=f"{spec.name.split('_f16')[0]}.*: load: "):
            spec.load()


def test_default_device_without_a_gpu(rng, close):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch has a GPU here")
    assert bolide.BatchAttention().device == torch.device("cpu")


@pytest.mark.parametrize("in_elements", [True, False])
def test_pages_of_cudnn(fw, rng, close, in_elements):
    """FlashInfer hands the wrapper's arguments to cuDNN as they are: offsets of rows in elements, and
    a cache with heads before the tokens of a page."""
    b = Batch(fw, rng, [3, 5, 2], [20, 9, 16], page=8, dtype="bfloat16")
    w = PAGED(b.workspace(), "NHD", backend="cudnn")
    offsets = b.index(b.qo_list * 256) if in_elements else b.qo
    w.plan(offsets, b.indptr, b.indices, b.last, 4, 2, 64, 8, causal=True, q_data_type=b.dtype,
           seq_lens=b.lens.reshape(3, 1, 1, 1), seq_lens_q=b.lens_q.reshape(3, 1, 1, 1),
           block_tables=b.table(), max_token_per_sequence=5, max_sequence_kv=20)
    expected = b.expected(causal=True)
    b.check(close, w.run(b.q, b.cache, return_lse=True), expected)
    ahead = tuple(c.swapaxes(1, 2) for c in b.cache)
    b.check(close, w.run(b.q, ahead, return_lse=True), expected)
    with pytest.raises(ValueError, match="qo_indptr: expected multiples of 256 elements"):
        w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 8, q_data_type=b.dtype)
