# SPDX-License-Identifier: Apache-2.0
"""The stateful wrappers against attention in float64: options, index forms, graph mode, older
spellings, and what they refuse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import bolide
from attention64 import Batch

DECODE = bolide.BatchDecodeWithPagedKVCacheWrapper
PAGED = bolide.BatchPrefillWithPagedKVCacheWrapper
RAGGED = bolide.BatchPrefillWithRaggedKVCacheWrapper
LENS = [9, 0, 4, 31, 1]


def need(fw, op):
    if not bolide._rows.supports(op, fw.device):
        pytest.skip(f"{op} is not on {fw.device}")


def decode(b, layout=None, **options):
    w = DECODE(b.workspace(), b.layout)
    w.plan(b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page, q_data_type=b.dtype,
           kv_data_type=b.kv_dtype, **options)
    return w


def paged(b, **options):
    w = PAGED(b.workspace(), b.layout)
    w.plan(b.qo, b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page, head_dim_vo=b.d_vo,
           q_data_type=b.dtype, kv_data_type=b.kv_dtype, **options)
    return w


# ---- decode ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_decode(fw, rng, close, layout, dtype):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS, layout=layout, dtype=dtype)
    w = decode(b)
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected())
    out = fw.tensor(np.full((5, 4, 64), np.nan), b.dtype)
    assert w.run(b.q, b.cache, out=out) is out
    b.check(close, out, b.expected())
    b.check(close, w.run_return_lse(b.q, b.cache), b.expected())


@pytest.mark.parametrize("given, reference", [
    ({"window_left": 5}, {"window": 5, "causal": True}), ({"logits_soft_cap": 0.7}, {"cap": 0.7}),
    ({"sm_scale": 0.4}, {"scale": 0.4}), ({"pos_encoding_mode": "ROPE_LLAMA"}, {"rope": True}),
    ({"fixed_split_size": 2}, {}), ({"disable_split_kv": True}, {})])
def test_decode_options(fw, rng, close, given, reference):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    b.check(close, decode(b, **given).run(b.q, b.cache, return_lse=True), b.expected(**reference))


def test_decode_of_several_tokens(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [3] * 4, [9, 3, 17, 5])
    w = decode(b, q_len_per_req=3)
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(causal=True))
    b.check(close, w.run(b.q, b.cache, q_len_per_req=3), b.expected(causal=True))
    for right in (-1, 2, 9):
        b.check(close, decode(b, q_len_per_req=3, window_right=right).run(b.q, b.cache), b.expected())
    with pytest.raises(ValueError, match="q_len_per_req: expected 3, as planned; got 1"):
        w.run(b.q, b.cache, q_len_per_req=1)


@pytest.mark.parametrize("graph", [False, True])
def test_decode_window_on_both_sides(fw, rng, close, graph):
    need(fw, "batch_decode")
    w = None
    for lens in ([9, 5, 0, 31, 1], [2, 30, 7, 1, 0]):
        b = Batch(fw, rng, [5] * 5, lens)
        if w is None or not graph:
            buffers = [fw.tensor(np.zeros(n), "int32") for n in (6, 60, 5)] if graph else []
            w = DECODE(b.workspace(), "NHD", graph, False, *buffers)
        for right, left in ((1, -1), (2, 3), (3, 0)):
            w.plan(b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype, q_len_per_req=5,
                   window_right=right, window_left=left)
            masks = [np.tri(5, n, n - 5 + right) for n in lens]
            b.check(close, w.run(b.q, b.cache, return_lse=True),
                    b.expected(masks=masks, window=left))


def test_a_batch_of_no_request(fw, rng):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [], [])
    for size in (None, 2):
        for options in ({}, {"block_tables": b.table(), "seq_lens": b.lens}):
            indices = None if options else b.indices
            w = DECODE(b.workspace())
            w.plan(b.indptr, indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype,
                   fixed_split_size=size, **options)
            assert tuple(w.run(b.q, b.cache).shape) == (0, 4, 64)
            w = PAGED(b.workspace())
            w.plan(b.qo, b.indptr, indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype,
                   fixed_split_size=size, **options)
            assert tuple(w.run(b.q, b.cache).shape) == (0, 4, 64)


def test_decode_scales_and_sinks(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    w = decode(b)
    out, lse = b.expected(scale=0.125 * 0.5 * 1.5)
    got = w.run(b.q, b.cache, q_scale=0.5, k_scale=1.5, v_scale=2.0, return_lse=True)
    b.check(close, got, (out * 2, lse))
    for q_scale, k_scale in ((fw.tensor([0.5] * 4, "float32"), 1.5),
                             (0.5, fw.tensor([1.5], "float32")),
                             (fw.tensor([0.5], "float32"), fw.tensor([1.5, 1.5], "float32"))):
        got = w.run(b.q, b.cache, q_scale=q_scale, k_scale=k_scale,
                    v_scale=fw.tensor([2.], "float32"), return_lse=True)
        b.check(close, got, (out * 2, lse))
    by_position = [fw.tensor([x], "float32") for x in (0.5, 1.5, 2.0)]
    b.check(close, w.run(b.q, b.cache, *by_position, return_lse=True), (out * 2, lse))
    sinks = rng.standard_normal(4)
    got = w.run(b.q, b.cache, sinks=fw.tensor(sinks, "float32"), return_lse=True)
    b.check(close, got, b.expected(sinks=sinks))


def test_decode_forms_of_the_cache(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    both = fw.tensor(np.stack([b.k64, b.v64], 1), b.dtype)
    b.check(close, decode(b).run(b.q, both), b.expected())
    one = Batch(fw, rng, [1] * 3, [4, 1, 7], page=1)
    flat = (one.k_cache.reshape(-1, 2, 64), one.v_cache.reshape(-1, 2, 64))
    one.check(close, decode(one).run(one.q, flat), one.expected())


def test_decode_with_block_tables(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    plan = (b.last, 4, 2, 64, 4)
    for lens in (None, b.lens):
        w = DECODE(b.workspace())
        w.plan(b.indptr, None, *plan, q_data_type=b.dtype, block_tables=b.table(), seq_lens=lens)
        b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected())
        w = DECODE(b.workspace(), backend="trtllm-gen")
        w.plan(b.indptr, b.index([]), *plan, q_data_type=b.dtype, block_tables=b.table(),
               seq_lens=lens)
        b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected())
    w = decode(b, block_tables=b.table())
    b.check(close, w.run(b.q, b.cache), b.expected())
    w = decode(b, seq_lens=b.lens.reshape(5, 1, 1, 1))
    b.check(close, w.run(b.q, b.cache), b.expected())


def test_decode_workspace_size_is_enough(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 3, [4000, 1, 700])
    plan = (b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page)
    size, int_size = DECODE(b.workspace(64)).workspace_size(*plan, q_data_type=b.dtype)
    w = DECODE(b.workspace(size))
    w.reset_workspace_buffer(b.workspace(size), b.workspace(int_size))
    w.plan(*plan, q_data_type=b.dtype)
    b.check(close, w.run(b.q, b.cache), b.expected())
    assert w._scratch is None
    small = DECODE(b.workspace(size - 16))
    small.plan(*plan, q_data_type=b.dtype)
    assert small._scratch.shape == (size,)
    b.check(close, small.run(b.q, b.cache), b.expected())


def test_decode_plan_positional_order(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    w = DECODE(b.workspace())
    plan = (b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page)
    with pytest.warns(DeprecationWarning, match="by name"):
        w.begin_forward(*plan, "NONE", 5, None, b.dtype)
    b.check(close, w.run(b.q, b.cache, window_left=5), b.expected(window=5))
    with pytest.raises(TypeError, match="window_left: given by position and by name"):
        w.plan(*plan, "NONE", 5, window_left=5)
    with pytest.raises(ValueError, match="window_left: expected 5, as planned; got 6"):
        w.run(b.q, b.cache, window_left=6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        w.plan(*plan, data_type=b.dtype)
    b.check(close, w.run(b.q, b.cache), b.expected())


def test_forward_replaces_the_plan_s_options(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    w = decode(b)
    assert (w._sm_scale, w._logits_soft_cap, w._window_left) == (None, 0.0, -1)
    for _ in range(2):
        got = w.forward_return_lse(b.q, b.cache, sm_scale=0.3, logits_soft_cap=1.5, window_left=3)
        b.check(close, got, b.expected(scale=0.3, cap=1.5, window=3))
    plan = w._plan_info
    w.begin_forward(b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page, q_data_type=b.dtype)
    assert w._planned.logits_soft_cap == 1.5 and w._plan_info is plan  # what forward wanted last
    b.check(close, w.forward(b.q, b.cache, logits_soft_cap=1.5, window_left=3),
            b.expected(cap=1.5, window=3))
    w.begin_forward(b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page, q_data_type=b.dtype)
    b.check(close, w.run(b.q, b.cache), b.expected())
    w.end_forward()


def test_decode_graph_mode(fw, rng, close):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    buffers = [fw.tensor(np.zeros(n), "int32") for n in (6, 40, 5)]
    w = bolide.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(b.workspace(), *buffers)
    assert w.is_cuda_graph_enabled and not w.use_tensor_cores
    plan = dict(num_qo_heads=4, num_kv_heads=2, head_dim=64, page_size=4, q_data_type=b.dtype)
    w.plan(b.indptr, b.indices, b.last, **plan)
    frozen = (w._workspace.address, w._plan_info.address, w._paged_kv_indices_buf is buffers[1])
    b.check(close, w.run(b.q, b.cache), b.expected())
    other = Batch(fw, rng, [1] * 5, [1, 40, 3, 0, 17])
    w.plan(other.indptr, other.indices, other.last, **plan)
    other.check(close, w.run(other.q, other.cache), other.expected())
    assert frozen == (w._workspace.address, w._plan_info.address, True)
    assert fw.numbers(buffers[0]).tolist() == other.indptr_list.tolist()
    with pytest.raises(ValueError, match=r"last_page_len: expected \[5\]"):
        w.plan(other.indptr[:4], other.indices, other.last[:3], **plan)
    with pytest.raises(ValueError, match="indices: expected at most 40"):
        w.plan(other.indptr, fw.tensor(np.zeros(41), "int32"), other.last, **plan)
    with pytest.raises(ValueError, match="paged_kv_indices_buffer: expected a tensor"):
        DECODE(b.workspace(), use_cuda_graph=True, paged_kv_indptr_buffer=buffers[0])


def test_fast_decode_plan(fw, rng, close):
    need(fw, "batch_decode")
    for page in (1, 4):
        b = Batch(fw, rng, [1] * 5, [9, 2, 4, 31, 1], page=page)
        buffers = [fw.tensor(np.zeros(n), "int32") for n in (6, 60, 5)]
        w = DECODE(b.workspace(), "NHD", True, True, *buffers)
        plan = (b.indptr, b.indices, b.last, 4, 2, 64, page)
        w.plan(*plan, q_data_type=b.dtype)
        bolide.fast_decode_plan(w, *plan, data_type=b.dtype,
                                global_override_indptr_cpu=b.on_host(b.indptr_list))
        b.check(close, w.run(b.q, b.cache), b.expected())
        w._cached_module.plan(None, None, None, b.on_host(b.indptr_list), 5, 4, 2, page, True, -1,
                              0.0, 64, 64, None, None)
        b.check(close, w.run(b.q, b.cache), b.expected())


def test_refusals(fw, rng):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [1] * 5, LENS)
    with pytest.raises(RuntimeError, match=r"plan\(\) must come before run\(\)"):
        DECODE(b.workspace()).run(b.q, b.cache)
    with pytest.raises(ValueError, match="backend: expected one of auto, fa2"):
        DECODE(b.workspace(), backend="fa9")
    with pytest.raises(ValueError, match="window_right: expected at least -1; got -2"):
        decode(b, window_right=-2)
    w = decode(b)
    with pytest.raises(NotImplementedError, match="kv_cache_sf"):
        w.run(b.q, b.cache, kv_cache_sf=b.q)
    with pytest.raises(ValueError, match=r"q: dtype: expected f\d\d; got bf16"):
        w.run(fw.tensor(np.zeros((5, 4, 64)), "bfloat16"), b.cache)
    with pytest.raises(ValueError, match=r"q: shape: expected \[5, 4, 64\]; got \[6, 4, 64\]"):
        w.run(fw.tensor(np.zeros((6, 4, 64)), b.dtype), b.cache)
    with pytest.raises(ValueError, match="indptr: dtype: expected i32; got i64"):
        w.plan(fw.tensor([0, 1], "int64"), b.indices, b.last[:1], 4, 2, 64, 4)
    with pytest.raises(ValueError, match="three more positional arguments"):
        w.run(b.q, b.cache, b.q)


# ---- prefill ---------------------------------------------------------------------------------

Q_LENS = [3, 2, 0, 17, 1]


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_paged(fw, rng, close, layout, dtype, causal):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS, layout=layout, dtype=dtype, d_vo=32)
    w = paged(b, causal=causal)
    assert w._causal is causal
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(causal=causal))
    b.check(close, w.run_return_lse(b.q, b.cache), b.expected(causal=causal))


@pytest.mark.parametrize("given, reference", [
    ({"window_left": 5, "causal": True}, {"window": 5, "causal": True}),
    ({"logits_soft_cap": 0.7}, {"cap": 0.7}), ({"sm_scale": 0.4}, {"scale": 0.4}),
    ({"pos_encoding_mode": "ROPE_LLAMA", "causal": True}, {"rope": True, "causal": True}),
    ({"fixed_split_size": 2}, {}), ({"disable_split_kv": True}, {}), ({"max_sequence_kv": 31}, {}),
    ({"max_token_per_sequence": 17}, {})])
def test_paged_options(fw, rng, close, given, reference):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS)
    b.check(close, paged(b, **given).run(b.q, b.cache, return_lse=True), b.expected(**reference))


def test_paged_lengths(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS)
    for given in ({"seq_lens": b.lens}, {"seq_lens": b.lens, "block_tables": b.table()},
                  {"block_tables": b.table()}, {"seq_lens_q": b.lens_q}):
        w = paged(b, causal=True, **given)
        b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(causal=True))
        if "block_tables" in given:
            w = PAGED(b.workspace())
            w.plan(b.qo, b.indptr, None, b.last, 4, 2, 64, 4, causal=True, q_data_type=b.dtype,
                   **given)
            b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(causal=True))
    with pytest.raises(ValueError, match="max_token_per_sequence: value: expected at least 17"):
        paged(b, max_token_per_sequence=16)


def packed_masks(masks):
    return np.concatenate([np.packbits(m.reshape(-1), bitorder="little") for m in masks])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("bits", [False, True])
def test_custom_masks(fw, rng, close, graph, bits):
    need(fw, "batch_prefill_paged")
    need(fw, "segment_packbits")
    b = Batch(fw, rng, Q_LENS, LENS)
    masks = [rng.random((n, s)) < 0.6 for n, s in zip(Q_LENS, LENS)]
    flat = np.concatenate([m.reshape(-1) for m in masks])
    given = {"packed_custom_mask": fw.tensor(packed_masks(masks), "uint8")} if bits else {
        "custom_mask": fw.tensor(flat, "bool")}
    w = PAGED(b.workspace())
    if graph:
        w = PAGED(b.workspace(), "NHD", True, *(fw.tensor(np.zeros(n), "int32")
                                                for n in (6, 6, 20, 5)),
                  fw.tensor(np.zeros(200), "uint8"), fw.tensor(np.zeros(6), "int32"))
    w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype, causal=True,
           **given)
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(masks=masks))
    w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype, causal=True)
    b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(causal=True))
    if not bits:
        with pytest.raises(ValueError, match="custom_mask: expected"):
            w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype,
                   custom_mask=given["custom_mask"][1:])


def test_paged_graph_mode(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS)
    buffers = [fw.tensor(np.zeros(n), "int32") for n in (6, 6, 40, 5)]
    w = PAGED(b.workspace(), "NHD", True, *buffers)
    heads = (4, 2, 64, 4)
    w.plan(b.qo, b.indptr, b.indices, b.last, *heads, q_data_type=b.dtype, causal=True)
    frozen = (w._workspace.address, w._plan_info.address)
    b.check(close, w.run(b.q, b.cache), b.expected(causal=True))
    less = Batch(fw, rng, [1, 1, 5, 0, 2], [40, 6, 5, 9, 2])
    w.plan(less.qo, less.indptr, less.indices, less.last, *heads, q_data_type=b.dtype,
           causal=True)
    less.check(close, w.run(less.q, less.cache), less.expected(causal=True))
    assert frozen == (w._workspace.address, w._plan_info.address)
    more = Batch(fw, rng, [20, 1, 5, 0, 2], [40, 6, 5, 9, 2])
    with pytest.raises(ValueError, match="max_num_rows: value: expected at least 28 rows; got 23"):
        w.plan(more.qo, more.indptr, more.indices, more.last, *heads, q_data_type=b.dtype)
    with pytest.raises(ValueError, match=r"qo_indptr: expected \[6\], as its buffer; got \[4\]"):
        w.plan(less.qo[:4], less.indptr[:4], less.indices, less.last[:3], *heads)


def test_paged_internal_plan(fw, rng, close):
    """The call that engines make past the wrapper's plan: host lengths, no copies."""
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS)
    buffers = [fw.tensor(np.zeros(n), "int32") for n in (6, 6, 40, 5)]
    w = PAGED(b.workspace(), "NHD", True, *buffers, backend="fa2")
    w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype, causal=True)
    other = Batch(fw, rng, [2, 4, 0, 16, 1], [40, 6, 5, 19, 2])
    w._qo_indptr_buf[...] = other.qo
    w._paged_kv_indptr_buf[...] = other.indptr
    w._paged_kv_indices_buf[:other.indices.shape[0]] = other.indices
    w._plan_info = w._cached_module.plan(
        w._float_workspace_buffer, w._int_workspace_buffer, w._pin_memory_int_workspace_buffer,
        *(other.on_host(x) for x in (other.qo_list, other.indptr_list, other.kv_lens)),
        w._max_total_num_rows, 5, 4, 2, 4, True, 64, 64, True, -1, -1, False, 0, 0)
    other.check(close, w.run(other.q, other.cache), other.expected(causal=True))


def test_paged_forward(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS)
    w = paged(b)
    got = w.forward_return_lse(b.q, b.cache, causal=True, sm_scale=0.2, window_left=4, k_scale=0.5)
    b.check(close, got, b.expected(causal=True, scale=0.1, window=4))
    b.check(close, w.forward(b.q, b.cache), b.expected())
    b.check(close, w.run(b.q, b.cache), b.expected())


def test_multi_item_scoring(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, [9], [9])
    # Four keys shared, then two items of two tokens, each behind a delimiter; a last delimiter.
    places = [0, 1, 2, 0, 1]
    w = paged(b, causal=True, prefix_len_ptr=fw.tensor([4], "int32"),
              token_pos_in_items_ptr=fw.tensor(places, "uint16"),
              token_pos_in_items_len=fw.tensor([5], "int32")[0],
              max_item_len_ptr=fw.tensor([2], "uint16"))
    got = fw.numbers(w.run(b.q, b.cache))
    mask = np.tril(np.ones((9, 9), bool))
    mask[7:, 4:7] = False
    mask[8, 7] = mask[5:7, 4] = False
    close(got[[5, 6, 8]], b.expected(masks=[mask])[0][[5, 6, 8]], b.dtype, 2.0)
    # The numbers of one request without an axis; places up to its last key alone.
    w = paged(b, causal=True, prefix_len_ptr=fw.tensor([4], "int32").reshape(()),
              token_pos_in_items_ptr=fw.tensor(places, "uint16"), token_pos_in_items_len=50,
              max_item_len_ptr=fw.tensor([2], "uint16").reshape(()))
    close(fw.numbers(w.run(b.q, b.cache))[[5, 6, 8]], got[[5, 6, 8]], b.dtype)


# ---- ragged ----------------------------------------------------------------------------------


def ragged(b, layout="NHD", backend="auto", **options):
    k, v, kv = b.packed()
    w = RAGGED(b.workspace(), layout, backend=backend)
    w.plan(b.qo, kv, b.h_q, b.h_kv, b.d, b.d_vo, q_data_type=b.dtype, **options)
    return w, k, v


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_ragged(fw, rng, close, dtype, causal):
    need(fw, "batch_prefill_ragged")
    b = Batch(fw, rng, Q_LENS, LENS, d_vo=48, dtype=dtype)
    w, k, v = ragged(b, causal=causal)
    b.check(close, w.run(b.q, k, v, return_lse=True), b.expected(causal=causal))
    b.check(close, w.run_return_lse(b.q, k, v), b.expected(causal=causal))
    w, k, v = ragged(b, "HND", causal=causal)
    b.check(close, w.run(b.q, k.swapaxes(0, 1), v.swapaxes(0, 1)), b.expected(causal=causal))


def test_ragged_options(fw, rng, close):
    need(fw, "batch_prefill_ragged")
    b = Batch(fw, rng, Q_LENS, LENS)
    w, k, v = ragged(b, causal=True, window_left=6, logits_soft_cap=2.0, sm_scale=0.3)
    wanted = b.expected(causal=True, window=6, cap=2.0, scale=0.3)
    b.check(close, w.run(b.q, k, v, return_lse=True), wanted)
    out, lse = b.expected(causal=True, window=6, cap=2.0, scale=0.15)
    got = w.run(b.q, k, v, q_scale=0.5, v_scale=3.0, o_scale=1.5, return_lse=True)
    b.check(close, got, (out * 2, lse))
    got = w.forward_return_lse(b.q, k, v, causal=False, sm_scale=0.3)
    b.check(close, got, b.expected(scale=0.3))
    masks = [rng.random((n, s)) < 0.6 for n, s in zip(Q_LENS, LENS)]
    flat = np.concatenate([m.reshape(-1) for m in masks])
    w, k, v = ragged(b, custom_mask=fw.tensor(flat, "bool"))
    b.check(close, w.run(b.q, k, v, return_lse=True), b.expected(masks=masks))


def test_ragged_offsets(fw, rng, close):
    need(fw, "batch_prefill_ragged")
    b = Batch(fw, rng, [2, 3], [4, 6])
    k, v, kv = b.packed()
    w = RAGGED(b.workspace(), backend="cudnn")
    w.plan(b.index([0, 2 * 256, 5 * 256]), b.index([0, 4 * 128, 10 * 128]), 4, 2, 64,
           q_data_type=b.dtype)
    b.check(close, w.run(b.q, k, v), b.expected())
    with pytest.raises(ValueError, match="kv_indptr: expected multiples of 128"):
        w.plan(b.index([0, 2 * 256, 5 * 256]), b.index([0, 4, 10]), 4, 2, 64, q_data_type=b.dtype)
    w = RAGGED(b.workspace())
    later_v = fw.tensor(np.concatenate([np.full((3, 2, 64), np.nan), fw.numbers(v)]), b.dtype)
    w.plan(b.qo, kv, 4, 2, 64, q_data_type=b.dtype, v_indptr=b.index([3, 7, 13]),
           o_indptr=b.index([0, 3, 6]))
    got = fw.numbers(w.run(b.q, k, later_v))
    assert got.shape == (6, 4, 64)
    close(got[[0, 1, 3, 4, 5]], b.expected()[0], b.dtype, 2.0)


def test_ragged_graph_mode(fw, rng, close):
    need(fw, "batch_prefill_ragged")
    w = RAGGED(Batch(fw, rng, [], []).workspace(), "NHD", True,
               *(fw.tensor(np.zeros(6), "int32") for _ in range(2)))
    for q_lens in (Q_LENS, [1, 1, 1, 1, 1]):
        b = Batch(fw, rng, q_lens, LENS)
        k, v, kv = b.packed()
        w.begin_forward(b.qo, kv, 4, 2, 64, causal=True, q_data_type=b.dtype)
        b.check(close, w.run(b.q, k, v), b.expected(causal=True))
    assert w._max_total_num_rows == sum(Q_LENS)


# ---- mixed batches, sinks, cascades ----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_batch_attention(fw, rng, close, dtype):
    need(fw, "batch_attention")
    w = bolide.BatchAttention("NHD", fw.device)
    with pytest.raises(RuntimeError, match=r"plan\(\) must come before run\(\)"):
        w.run(None, None)
    for lens in (LENS, [900, 3, 0, 44, 12]):
        b = Batch(fw, rng, Q_LENS, lens, dtype=dtype)
        w.plan(b.qo, b.indptr, b.indices, b.lens, 4, 2, 64, 64, 4, causal=True, logits_soft_cap=3.0,
               q_data_type=dtype, kv_data_type=dtype)
        b.check(close, w.run(b.q, b.cache), b.expected(causal=True, cap=3.0))
        out, lse = b.expected(causal=True, cap=1.0, scale=0.0625)
        got = w.run(b.q, b.cache, k_scale=0.5, v_scale=2.0, logits_soft_cap=1.0)
        b.check(close, got, (out * 2, lse))
    with pytest.raises(NotImplementedError, match="use_profiler"):
        w.plan(b.qo, b.indptr, b.indices, b.lens, 4, 2, 64, 64, 4, use_profiler=True)
    with pytest.raises(NotImplementedError, match="profiler_buffer"):
        w.run(b.q, b.cache, profiler_buffer=b.q)


def test_attention_sinks(fw, rng, close):
    need(fw, "batch_prefill_paged")
    b = Batch(fw, rng, Q_LENS, LENS, dtype="float16")
    sinks = rng.standard_normal(4) * 3
    kinds = dict(q_data_type="float16", kv_data_type="float16", head_dim_qk=64, head_dim_vo=64)
    for made, planned in ((-1, 6), (6, 6), (6, -1)):
        w = bolide.BatchAttentionWithAttentionSinkWrapper(b.workspace(), window_left=made, **kinds)
        w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, causal=True, window_left=planned,
               q_data_type="float16")
        got = w.run(b.q, b.cache, fw.tensor(sinks, "float32"), 0.2, return_lse=True)
        b.check(close, got, b.expected(causal=True, window=6, sinks=sinks, scale=0.2))
    with pytest.raises(ValueError, match="window_left: expected 6, as the wrapper was made for"):
        w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, window_left=7, q_data_type="float16")
    with pytest.raises(ValueError, match="q_data_type: expected float16, as the wrapper was made"):
        w.plan(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type="bfloat16")
    with pytest.raises(ValueError, match="expected the sinks, and sm_scale"):
        w.run(b.q, b.cache, 1, 2, 3)


def cascade_problem(fw, rng, dtype="float32"):
    """Five rows in three requests over a shared prefix of two pages, and what they come to."""
    b = Batch(fw, rng, [2, 1, 2], [9, 3, 5], dtype=dtype)
    shared = [i for i in range(b.k64.shape[0]) if i not in b.indices_list][:2]
    k0, v0 = (x[shared].reshape(-1, 2, 64)[:7] for x in (b.k64, b.v64))
    return b, shared, k0, v0


def cascade_expected(b, k0, v0, causal):
    from attention64 import attention

    outs = []
    for i in range(3):
        q, k, v = b.request(i)
        n, s = len(q), len(k)
        mask = np.ones((n, 7 + s), bool)
        if causal:
            mask[:, 7:] = np.arange(s) <= s - n + np.arange(n)[:, None]
        outs.append(attention(q, np.concatenate([k0, k]), np.concatenate([v0, v]), mask=mask)[0])
    return np.concatenate(outs)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_cascade(fw, rng, close, graph, causal):
    need(fw, "batch_prefill_paged")
    b, shared, k0, v0 = cascade_problem(fw, rng)
    buffers = [None] * 4
    if graph:
        buffers = [[fw.tensor(np.zeros(n), "int32") for n in sizes]
                   for sizes in ((2, 4), (2, 4), (9, 9), (1, 3))]
    w = bolide.MultiLevelCascadeAttentionWrapper(2, b.workspace(), "NHD", graph, *buffers)
    plan = ([b.index([0, 5]), b.qo], [b.index([0, 2]), b.indptr], [b.index(shared), b.indices],
            [b.index([3]), b.last], 4, 2, 64, 4)
    for _ in range(2):
        w.plan(*plan, causal=causal, q_data_type=b.dtype)
        close(fw.numbers(w.run(b.q, b.cache)), cascade_expected(b, k0, v0, causal), b.dtype, 2.0)
    assert w.is_cuda_graph_enabled is graph
    with pytest.raises(NotImplementedError, match="window_left: expected -1 with 2 levels; got 4"):
        w.plan(*plan, window_left=4)
    with pytest.raises(ValueError, match="qo_indptr_arr: expected 2 tensors; got 1"):
        w.plan(plan[0][:1], *plan[1:])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_shared_prefix(fw, rng, close, dtype):
    need(fw, "batch_prefill_paged")
    need(fw, "single_prefill_with_kv_cache")
    b, _, k0, v0 = cascade_problem(fw, rng, dtype)
    k_shared, v_shared = fw.tensor(k0, dtype), fw.tensor(v0, dtype)
    w = bolide.cascade.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(b.workspace())
    w.begin_forward(b.qo, b.indptr, b.indices, b.last, 4, 2, 64, 4)
    for causal in (False, True):
        got = w.forward(b.q, k_shared, v_shared, b.cache, causal=causal)
        close(fw.numbers(got), cascade_expected(b, k0, v0, causal), dtype, 3.0)
    with pytest.raises(NotImplementedError, match="rope_scale: expected 1.0; got 2.0"):
        w.forward(b.q, k_shared, v_shared, b.cache, rope_scale=2.0)
    w.end_forward()
    d = bolide.cascade.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(b.workspace())
    d.begin_forward(b.indptr, b.indices, b.last, 4, 2, 64, 4, data_type=dtype)
    rows = [1, 2, 4]
    got = d.forward(b.q[rows], k_shared, v_shared, b.cache)
    close(fw.numbers(got), cascade_expected(b, k0, v0, False)[rows], dtype, 3.0)
    d.end_forward()


def test_no_requests(fw, rng):
    need(fw, "batch_decode")
    b = Batch(fw, rng, [], [])
    assert decode(b).run(b.q, b.cache).shape == (0, 4, 64)
    assert paged(b).run(b.q, b.cache).shape == (0, 4, 64)
    none = fw.tensor(np.zeros((0, 2, 64)), b.dtype)
    w = RAGGED(b.workspace())
    w.plan(b.qo, b.index([0]), 4, 2, 64, q_data_type=b.dtype)
    assert w.run(b.q, none, none).shape == (0, 4, 64)


@pytest.mark.parametrize("lse", [False, True])
def test_compiled(fw, rng, close, lse):
    """Runs within torch.compile, without a break; the plan stays outside and may be made again."""
    if not fw.name.startswith("torch"):
        pytest.skip("torch.compile takes torch's tensors")
    need(fw, "batch_prefill_paged")
    import torch

    b = Batch(fw, rng, [1] * 5, LENS)
    w, p = decode(b), paged(b, causal=True)
    both = torch.compile(lambda q, cache: (w.run(q * 1, cache, return_lse=lse),
                                           p.run(q * 1, cache, return_lse=lse)),
                         fullgraph=True, backend="aot_eager")
    for _ in range(2):
        for got in both(b.q, b.cache):
            b.check(close, got, b.expected())
        w.plan(b.indptr, b.indices, b.last, 4, 2, 64, 4, q_data_type=b.dtype)
