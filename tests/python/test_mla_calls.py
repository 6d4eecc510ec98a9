# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention in one call, over all keys and over lists of them, against float64."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from attention64 import attention
from bolide import _frameworks
from bolide.cute_dsl.attention.wrappers import batch_hca as hca
from bolide.decode import get_batch_decode_metadata_mla, xqa_mla
from bolide.mla import (
    DSV4HCAMetadata, convert_compressed_page_aligned_sparse_indices_to_hca_metadata,
    trtllm_batch_decode_sparse_mla_dsv4, trtllm_batch_decode_with_kv_cache_mla,
    xqa_batch_decode_with_kv_cache_mla)

decode = trtllm_batch_decode_with_kv_cache_mla
CKV, KPE, D, HEADS, PAGE = 64, 16, 80, 4, 4


@pytest.fixture
def fw(fw, request):
    dense = "dense" in request.node.name or "xqa" in request.node.name
    if not bolide._rows.supports("batch_mla" if dense else "sparse_mla", fw.device):
        pytest.skip(f"not on {fw.device}")
    return fw


def ints(fw, values):
    return fw.tensor(np.asarray(values), "int32")


def on_host(fw, values):
    found = ints(fw, values)
    return found if fw.name == "numpy" else found.cpu()


def space(fw, like, size=1 << 25):
    return _frameworks.empty(like, (size,), "int8")


class Dense:
    """Requests over pages in a block table."""

    lens = [9, 0, 4, 31, 1]

    def __init__(self, fw, rng, q_lens, dtype="float32", scale=1.0):
        self.fw, self.q_lens, self.dtype = fw, list(q_lens), dtype
        total = sum(-(-n // PAGE) for n in self.lens) + 3
        ids = iter(rng.permutation(total).tolist())
        table = [[next(ids) if p * PAGE < n else 0 for p in range(8)] for n in self.lens]
        self.table, self.seq_lens = ints(fw, table), ints(fw, self.lens)
        self.query = fw.tensor(scale * rng.standard_normal((sum(q_lens), HEADS, D)), dtype)
        self.cache = fw.tensor(scale * rng.standard_normal((total, PAGE, D)), dtype)
        self.space = space(fw, self.query)

    def same_length(self):
        """The query with its requests in a dimension."""
        return self.query.reshape((len(self.lens), -1, HEADS, D))

    def expected(self, scale, bmm2=1.0, sinks=None, masks=None):
        n = self.fw.numbers
        q, cache, table = n(self.query), n(self.cache), n(self.table)
        outs, lses, at = [], [], 0
        for r, length in enumerate(self.lens):
            keys = cache[table[r]].reshape(-1, D)[:length]
            mask = None if masks is None else masks[r]
            out, lse = attention(q[at:at + self.q_lens[r]], keys[:, None], keys[:, None, :CKV],
                                 causal=True, scale=scale, sinks=sinks, mask=mask)
            at += self.q_lens[r]
            outs.append(out * bmm2)
            lses.append(lse)
        return np.concatenate(outs), np.concatenate(lses)

    def check(self, close, found, expected):
        out, lse = (self.fw.numbers(x) for x in found)
        close(out.reshape(expected[0].shape), expected[0], self.dtype)
        lse = lse.reshape(expected[1].shape)
        assert (np.isneginf(lse) == np.isneginf(expected[1])).all()
        seen = ~np.isneginf(lse)
        close(lse[seen], expected[1][seen], self.dtype)

    def call(self, query, **more):
        arguments = dict(query=query, kv_cache=self.cache, workspace_buffer=self.space,
                         qk_nope_head_dim=48, kv_lora_rank=CKV, qk_rope_head_dim=KPE,
                         block_tables=self.table, seq_lens=self.seq_lens, max_seq_len=31,
                         bmm1_scale=0.2)
        return decode(**{**arguments, **more})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("q_len", [1, 3])
def test_dense(fw, rng, close, dtype, q_len):
    b = Dense(fw, rng, [q_len] * 5, dtype)
    b.check(close, b.call(b.same_length(), return_lse=True), b.expected(0.2))
    four = b.cache.reshape((b.cache.shape[0], 1, PAGE, D))
    out = _frameworks.empty(b.query, (5, q_len, HEADS, CKV), dtype)
    lse = _frameworks.empty(b.query, (5, q_len, HEADS), "float32")
    sinks = fw.tensor(rng.standard_normal(HEADS), "float32")
    found = b.call(b.same_length(), kv_cache=four, block_tables=b.table.view(fw.unsigned), out=out,
                   lse=lse, return_lse=True, sinks=[sinks], bmm2_scale=2.0, backend="trtllm-gen")
    assert found[0] is out and found[1] is lse
    b.check(close, found, b.expected(0.2, 2.0, fw.numbers(sinks)))


def test_dense_of_several_lengths(fw, rng, close):
    b = Dense(fw, rng, [2, 1, 4, 3, 0])
    found = b.call(b.query, cum_seq_lens_q=ints(fw, [0, 2, 3, 7, 10, 10]), max_q_len=5,
                   return_lse=True)
    b.check(close, found, b.expected(0.2))


def test_dense_scales_in_tensors(fw, rng, close):
    b = Dense(fw, rng, [1] * 5)
    found = b.call(b.same_length(), bmm1_scale=fw.tensor([0.3], "float32"),
                   bmm2_scale=fw.tensor([0.5], "float32"), return_lse=True)
    b.check(close, found, b.expected(0.3, 0.5))
    assert (fw.numbers(b.call(b.same_length(), bmm2_scale=0.0)) == 0).all()


def test_dense_pages_of_keys_and_values(fw, rng, close):
    b = Dense(fw, rng, [1] * 5)
    both = np.stack([fw.numbers(b.table)] * 2, 1)
    found = b.call(b.same_length(), block_tables=ints(fw, both), uses_shared_paged_kv_idx=False,
                   return_lse=True)
    b.check(close, found, b.expected(0.2))
    both[0, 1, 0] += 1
    with pytest.raises(ValueError, match="block_tables: expected the same pages"):
        b.call(b.same_length(), block_tables=ints(fw, both), uses_shared_paged_kv_idx=False)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_dense_of_a_rank(fw, rng, close, rank):
    """Keys dealt to three ranks in turn: masks by their positions among all."""
    b = Dense(fw, rng, [3] * 5)
    total = [3 * n + 2 - rank for n in b.lens]
    masks = [(np.arange(n) * 3 + rank)[None] <= np.arange(3)[:, None] + t - 3
             for n, t in zip(b.lens, total)]
    found = b.call(b.same_length(), enable_dcp=True, cp_world=3, cp_rank=rank,
                   causal_seqlens_kv_global=ints(fw, total), return_lse=True)
    b.check(close, found, b.expected(0.2, masks=masks))


def test_xqa(fw, rng, close):
    b = Dense(fw, rng, [1] * 5)
    out = xqa_batch_decode_with_kv_cache_mla(b.same_length(), b.cache, b.space, 48, CKV, KPE,
                                             b.table, b.seq_lens, 31, bmm1_scale=0.2)
    expected = b.expected(0.2)[0]
    close(fw.numbers(out)[:, 0], expected, "float32")
    mine = _frameworks.empty(b.query, (5, 1, HEADS, CKV), "float32")
    keys = b.cache.reshape((b.cache.shape[0], PAGE, 1, D))
    assert xqa_mla(b.same_length(), keys, keys[..., :CKV], b.table, b.seq_lens.reshape((5, 1)),
                   mine, b.space, None, PAGE, q_scale=0.1, kv_scale=2.0) is None
    close(fw.numbers(mine)[:, 0], b.expected(0.2, 2.0)[0], "float32")
    with pytest.raises(ValueError, match="v_cache: expected .* tokens, as k_cache has"):
        xqa_mla(b.same_length(), keys, b.query, b.table, b.seq_lens, mine, b.space, None, PAGE)
    with pytest.raises(ValueError, match=f"v_cache: expected at least {CKV} columns"):
        xqa_mla(b.same_length(), keys, keys[..., :CKV - 8], b.table, b.seq_lens, mine, b.space,
                None, PAGE)


def test_xqa_values_of_their_own(fw, rng, close):
    """Pools of rows of which the first columns are values, and unsigned pages, as FlashInfer's own
    tests have them; then keys and values in one memory again."""
    b = Dense(fw, rng, [1] * 5)
    rows = b.cache.reshape((-1, D))
    values = fw.tensor(rng.standard_normal(rows.shape), "float32")
    out = _frameworks.empty(b.query, (5, 1, HEADS, CKV), "float32")
    unsigned = b.table.view(fw.unsigned)
    n = fw.numbers
    for pool in (values, rows, values):
        xqa_mla(b.same_length(), rows, pool, unsigned, b.seq_lens.reshape((5, 1)), out, b.space,
                None, PAGE, q_scale=0.1, kv_scale=2.0)
        for r, length in enumerate(b.lens):
            keys, own = (n(p).reshape(-1, PAGE, D)[n(b.table)[r]].reshape(-1, D)[:length]
                         for p in (rows, pool))
            expected = attention(n(b.query)[r:r + 1], keys[:, None], own[:, None, :CKV],
                                 causal=True, scale=0.2)[0]
            close(n(out)[r], expected * 2.0, "float32")


def test_dense_compiled(fw, rng, close):
    """The plan lies inside of the call, and the call in one graph of torch.compile."""
    if fw.name == "numpy":
        pytest.skip("torch compiles its own tensors")
    import torch

    b = Dense(fw, rng, [2] * 5, "bfloat16")

    def call(query):
        return b.call(query * 1, return_lse=True)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    b.check(close, compiled(b.same_length()), b.expected(0.2))
    c = Dense(fw, rng, [1] * 5, "bfloat16")
    out = _frameworks.empty(c.query, (5, 1, HEADS, CKV), "bfloat16")
    keys = c.cache[:, :, None]
    torch.compile(lambda q: xqa_mla(q * 1, keys, keys[..., :CKV], c.table, c.seq_lens, out, c.space,
                                    None, PAGE, 0.2), fullgraph=True, backend="aot_eager")(
        c.same_length())
    close(fw.numbers(out)[:, 0], c.expected(0.2)[0], "bfloat16")


def test_dense_refuses_by_name(fw, rng):
    b = Dense(fw, rng, [1] * 5)
    q = b.same_length()
    for text, arguments in {
        "max_seq_len: value: expected at least 31": dict(
            max_seq_len=30, seq_lens=on_host(fw, b.lens)),
        "seq_lens: expected a tensor": dict(seq_lens=None),
        r"query: expected \[b, q_len, h, d\]": dict(query=b.query),
        "query: expected 81": dict(qk_rope_head_dim=17),
        "kv_cache: expected \\[pages": dict(kv_cache=b.table),
        "max_q_len: expected None": dict(max_q_len=1),
        "cp_world": dict(cp_world=2),
        "causal_seqlens_kv_global": dict(enable_dcp=True, cp_world=2),
        "cp_rank": dict(enable_dcp=True, cp_world=2, cp_rank=2,
                        causal_seqlens_kv_global=b.seq_lens),
        "backend": dict(backend="fa9"),
        "cute_dsl_impl": dict(cute_dsl_impl="none"),
        "kv_scale_format": dict(kv_scale_format="e8m0"),
        "sparse_mla_top_k_lens": dict(sparse_mla_top_k_lens=b.seq_lens),
        "workspace_buffer: expected at least": dict(workspace_buffer=space(fw, q, 64)),
        "out: expected": dict(out=b.cache),
        "lse: expected": dict(lse=b.cache),
        "sinks: expected one": dict(sinks=[b.seq_lens, b.seq_lens]),
        "cum_seq_lens_q: expected .6.": dict(query=b.query, cum_seq_lens_q=b.seq_lens),
        "cum_seq_lens_q: expected rising": dict(
            query=b.query, cum_seq_lens_q=on_host(fw, [0, 1, 2, 3, 4, 6])),
        "max_q_len: expected at least 2": dict(
            query=b.query, cum_seq_lens_q=on_host(fw, [0, 1, 1, 3, 4, 5]), max_q_len=1),
    }.items():
        with pytest.raises(ValueError, match=text):
            b.call(**{"query": q, **arguments})


# ---- lists of keys -------------------------------------------------------------------------------


def over_lists(q, caches, lists, scale, d_vo, sinks=None, bmm2=1.0):
    """Attention of ``q [n, h, d]`` over rows of caches, lists of which go with each query."""
    outs, lses = [], []
    for i in range(q.shape[0]):
        keys = np.concatenate([c[rows[i]] for c, rows in zip(caches, lists)])
        out, lse = attention(q[i:i + 1], keys[:, None], keys[:, None, :d_vo], scale=scale,
                             sinks=sinks)
        outs.append(out * bmm2)
        lses.append(lse)
    return np.concatenate(outs), np.concatenate(lses)


def chosen(lists, lens):
    """Rows of lists that count, without gaps."""
    return [[r for r in row[:max(int(n), 0)] if r >= 0] for row, n in zip(lists, lens)]


def random_lists(rng, n, k, rows):
    lists = rng.integers(0, rows, (n, k))
    lists[rng.random((n, k)) < 0.2] = -1
    return lists


def agree(fw, close, found, expected, dtype):
    out, lse = fw.numbers(found[0]), fw.numbers(found[1])
    close(out.reshape(expected[0].shape), expected[0], dtype)
    lse = lse.reshape(expected[1].shape)
    assert (np.isneginf(lse) == np.isneginf(expected[1])).all()
    seen = ~np.isneginf(lse)
    close(lse[seen], expected[1][seen], dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lists(fw, rng, close, dtype):
    b, q_len, k, total = 3, 2, 24, [40, 3, 15]
    query = fw.tensor(rng.standard_normal((b, q_len, HEADS, D)), dtype)
    cache = fw.tensor(rng.standard_normal((20, 1, PAGE, D)), dtype)
    lists = random_lists(rng, b * q_len, k, 80)
    q, keys = fw.numbers(query).reshape(-1, HEADS, D), fw.numbers(cache).reshape(-1, D)
    more = dict(kv_cache=cache, workspace_buffer=space(fw, query), qk_nope_head_dim=48,
                kv_lora_rank=CKV, qk_rope_head_dim=KPE, max_seq_len=40, sparse_mla_top_k=k,
                bmm1_scale=0.2, return_lse=True)
    tables, requests = ints(fw, lists.reshape(b, q_len, k)), ints(fw, total)
    before = [t - q_len + i + 1 for t in total for i in range(q_len)]
    expected = over_lists(q, [keys], [chosen(lists, before)], 0.2, CKV)
    agree(fw, close, decode(query=query, block_tables=tables, seq_lens=requests, **more), expected,
          dtype)
    n = b * q_len
    flat = dict(query=query.reshape((n, HEADS, D)), block_tables=tables.reshape((n, k)))
    agree(fw, close, decode(**flat, seq_lens=requests, cum_seq_lens_q=ints(fw, [0, 2, 4, 6]),
                            **more), expected, dtype)
    lens = rng.integers(0, k + 1, n)
    expected = over_lists(q, [keys], [chosen(lists, lens)], 0.2, CKV)
    for given in (dict(seq_lens=ints(fw, lens)), dict(seq_lens=ints(fw, lens.reshape(b, q_len))),
                  dict(seq_lens=None, sparse_mla_top_k_lens=ints(fw, lens))):
        agree(fw, close, decode(query=query, block_tables=tables, **given, **more), expected, dtype)
    sinks = fw.tensor(rng.standard_normal(HEADS), "float32")
    expected = over_lists(q, [keys], [chosen(lists, [k] * n)], 0.3, CKV, fw.numbers(sinks), 0.5)
    more.update(bmm1_scale=fw.tensor([0.3], "float32"), bmm2_scale=0.5, sinks=sinks)
    out = _frameworks.empty(query, (b, q_len, HEADS, CKV), dtype)
    found = decode(query=query, block_tables=tables, seq_lens=None, out=out, **more)
    assert found[0] is out
    agree(fw, close, found, expected, dtype)


def packed_656(rng, rows):
    """Bytes of keys, and the keys."""
    import ml_dtypes

    values = rng.standard_normal((rows, 512)).astype(ml_dtypes.float8_e4m3fn)
    scales = rng.uniform(0.3, 1.5, (rows, 4)).astype(np.float32)
    rope = rng.standard_normal((rows, 64)).astype(ml_dtypes.bfloat16)
    packed = np.concatenate([np.ascontiguousarray(x).view(np.uint8).reshape(rows, -1)
                             for x in (values, scales, rope)], 1)
    keys = values.astype(np.float64) * np.repeat(scales, 128, 1).astype(np.float64)
    return packed, np.concatenate([keys, rope.astype(np.float64)], 1)


def packed_584(rng, pages, size):
    import ml_dtypes

    rows = pages * size
    values = rng.standard_normal((rows, 448)).astype(ml_dtypes.float8_e4m3fn)
    codes = rng.integers(124, 129, (rows, 8)).astype(np.uint8)
    rope = rng.standard_normal((rows, 64)).astype(ml_dtypes.bfloat16)
    bodies = np.concatenate([np.ascontiguousarray(x).view(np.uint8).reshape(rows, -1)
                             for x in (values, rope)], 1)
    packed = np.concatenate([bodies.reshape(pages, -1), codes.reshape(pages, -1)], 1)
    scales = np.repeat(2.0 ** (codes[:, :7].astype(np.float64) - 127), 64, 1)
    keys = np.concatenate([values.astype(np.float64) * scales, rope.astype(np.float64)], 1)
    return packed.reshape(pages, size, 584), keys


def test_lists_of_packed_rows(fw, rng, close):
    pages, size, k, n = 6, 8, 20, 3
    packed, keys = packed_656(rng, pages * size)
    query = fw.tensor(rng.standard_normal((n, 1, 16, 576)), "bfloat16")
    lists = random_lists(rng, n, k, pages * size)
    more = dict(workspace_buffer=space(fw, query), qk_nope_head_dim=192, kv_lora_rank=512,
                qk_rope_head_dim=64, block_tables=ints(fw, lists[:, None]), seq_lens=None,
                max_seq_len=k, sparse_mla_top_k=k, bmm1_scale=0.05, return_lse=True,
                backend="sparse", kv_scale_format="arbitrary_fp32")
    metadata = get_batch_decode_metadata_mla(query, ints(fw, [k] * n), k)
    cache = fw.tensor(packed.reshape(pages, size, 656), "uint8")
    expected = over_lists(fw.numbers(query)[:, 0], [keys], [chosen(lists, [k] * n)], 0.05, 512)
    found = decode(query=query, kv_cache=cache, metadata=metadata, **more)
    agree(fw, close, found, expected, "bfloat16")
    with pytest.raises(ValueError, match="metadata: expected one made for query"):
        decode(query=query[:2], kv_cache=cache, metadata=metadata, **more)
    with pytest.raises(ValueError, match="kv_cache: expected rows of 656 bytes"):
        decode(query=query, kv_cache=cache[..., :640], **more)


def test_lists_refuse_by_name(fw, rng):
    query = fw.tensor(rng.standard_normal((2, 2, HEADS, D)), "float32")
    cache = fw.tensor(rng.standard_normal((5, PAGE, D)), "float32")
    lens = ints(fw, [3] * 4)
    good = dict(query=query, kv_cache=cache, workspace_buffer=space(fw, query),
                qk_nope_head_dim=48, kv_lora_rank=CKV, qk_rope_head_dim=KPE,
                block_tables=ints(fw, np.zeros((2, 2, 8))), seq_lens=ints(fw, [9, 9]),
                max_seq_len=9, sparse_mla_top_k=8)
    decode(**good)
    for text, arguments in {
        "sparse_mla_top_k: expected 8": dict(sparse_mla_top_k=9),
        "block_tables: expected": dict(block_tables=ints(fw, np.zeros((2, 8)))),
        "sparse_mla_top_k_lens: expected": dict(sparse_mla_top_k_lens=ints(fw, [1, 1])),
        "seq_lens: expected": dict(seq_lens=lens, sparse_mla_top_k_lens=lens),
        "enable_dcp": dict(enable_dcp=True),
        "uses_shared_paged_kv_idx": dict(uses_shared_paged_kv_idx=False),
        "query: expected 81": dict(qk_rope_head_dim=17),
        "workspace: size": dict(workspace_buffer=space(fw, query, 64)),
    }.items():
        if text == "workspace: size" and fw.device == "cuda":
            continue  # one piece a row, which needs none
        with pytest.raises(ValueError, match=text):
            decode(**{**good, **arguments})


# ---- DeepSeek V4 ---------------------------------------------------------------------------------


class V4:
    """Two requests of two tokens over a window and compressed keys."""

    lens, total, n, size = [128, 135, 150, 160], [90, 300], 4, 8

    def __init__(self, fw, rng, dtype="bfloat16", heads=8):
        self.fw, self.dtype = fw, dtype
        self.query = fw.tensor(rng.standard_normal((2, 2, heads, 512)), dtype)
        self.swa = fw.tensor(rng.standard_normal((40, PAGE, 512)), dtype)
        self.compressed = fw.tensor(rng.standard_normal((10, self.size, 512)), dtype)
        self.window = rng.integers(0, 160, (self.n, 128))
        self.pages = np.stack([rng.permutation(10)[:4] for _ in range(self.n)])
        steps = np.arange(self.size)
        self.rows = (self.pages[..., None] * self.size + steps).reshape(self.n, -1)
        self.space = space(fw, self.query)
        self.counts = [max(0, min(128, t - 2 + i + 1)) for t in self.total for i in range(2)]
        self.more = dict(bmm1_scale=0.04, workspace_buffer=self.space)

    def joined(self):
        return np.concatenate([self.window, self.rows], 1)

    def expected(self, counts=None, rest=None, sinks=None, bmm2=1.0):
        n = self.fw.numbers
        counts = self.counts if counts is None else counts
        rest = [x - 128 for x in self.lens] if rest is None else rest
        return over_lists(n(self.query).reshape(self.n, -1, 512),
                          [n(self.swa).reshape(-1, 512), n(self.compressed).reshape(-1, 512)],
                          [chosen(self.window, counts), chosen(self.rows, rest)], 0.04, 512,
                          sinks, bmm2)[0]

    def check(self, close, found, expected):
        close(self.fw.numbers(found).reshape(expected.shape), expected, self.dtype)


@pytest.mark.parametrize("layout", ["HND", "NHD"])
def test_v4_joined(fw, rng, close, layout):
    v = V4(fw, rng)
    axis = 1 if layout == "HND" else 2
    one = lambda x: x.reshape((*x.shape[:axis], 1, *x.shape[axis:]))  # noqa: E731
    sinks = fw.tensor(rng.standard_normal(8), "float32")
    out = _frameworks.empty(v.query, (2, 2, 8, 512), "bfloat16")
    call = dict(swa_kv_cache=one(v.swa), compressed_kv_cache=one(v.compressed), kv_layout=layout,
                sparse_indices=ints(fw, v.joined()), sparse_topk_lens=ints(fw, v.lens),
                seq_lens=ints(fw, v.total), bmm2_scale=2.0, sinks=sinks, **v.more)
    found = trtllm_batch_decode_sparse_mla_dsv4(query=v.query, out=out, **call)
    assert found is out
    expected = v.expected(sinks=fw.numbers(sinks), bmm2=2.0)
    v.check(close, found, expected)
    flat = v.query.reshape((4, 8, 512))
    v.check(close, trtllm_batch_decode_sparse_mla_dsv4(
        query=flat, cum_seq_lens_q=ints(fw, [0, 2, 4]), max_q_len=2, **call), expected)
    assert bolide.mla.batch_decode_sparse_mla_dsv4 is trtllm_batch_decode_sparse_mla_dsv4


def test_v4_apart(fw, rng, close):
    v = V4(fw, rng, "float32")
    counts, rest = [0, 5, 128, 77], [3, 0, 32, 8]
    v.window[rng.random(v.window.shape) < 0.2] = -1
    v.rows[rng.random(v.rows.shape) < 0.2] = -1
    call = dict(query=v.query, swa_kv_cache=v.swa, sparse_indices=ints(fw, v.window),
                swa_topk_lens=ints(fw, counts), backend="sparse", **v.more)
    found = trtllm_batch_decode_sparse_mla_dsv4(
        compressed_kv_cache=v.compressed, extra_sparse_indices=ints(fw, v.rows),
        extra_sparse_topk_lens=ints(fw, rest), **call)
    v.check(close, found, v.expected(counts, rest))
    v.check(close, trtllm_batch_decode_sparse_mla_dsv4(**call), v.expected(counts, [0] * 4))


def test_v4_by_pages(fw, rng, close):
    v = V4(fw, rng)
    call = dict(query=v.query, swa_kv_cache=v.swa, compressed_kv_cache=v.compressed,
                sparse_topk_lens=ints(fw, v.lens), hca_use_persistent=True, backend="cute-dsl",
                **v.more)
    made = convert_compressed_page_aligned_sparse_indices_to_hca_metadata(
        ints(fw, v.joined()), ints(fw, v.lens), ints(fw, v.total), v.swa, v.compressed, q_len=2)
    assert isinstance(made, DSV4HCAMetadata) and made.hca_is_causal
    assert fw.numbers(made.swa_topk_lens).tolist() == v.counts
    assert fw.numbers(made.hca_seq_lens).tolist() == [135, 160]
    assert (fw.numbers(made.hca_compressed_block_tables) == v.pages).all()
    found = trtllm_batch_decode_sparse_mla_dsv4(
        swa_topk_lens=made.swa_topk_lens, hca_swa_indices=made.hca_swa_indices,
        hca_compressed_block_tables=made.hca_compressed_block_tables,
        hca_seq_lens=made.hca_seq_lens, hca_is_causal=made.hca_is_causal, **call)
    v.check(close, found, v.expected())
    slots = [130, 152]  # fewer than the lens count
    for causal in (True, False):
        found = trtllm_batch_decode_sparse_mla_dsv4(
            swa_topk_lens=made.swa_topk_lens, hca_swa_indices=made.hca_swa_indices,
            hca_compressed_block_tables=made.hca_compressed_block_tables,
            hca_seq_lens=ints(fw, slots), hca_is_causal=causal, **call)
        bounds = [s - (1 - i if causal else 0) for s in slots for i in range(2)]
        rest = [min(a, c) - 128 for a, c in zip(v.lens, bounds)]
        v.check(close, found, v.expected(rest=rest))
        found = hca.cute_dsl_hca_decode(
            v.query, v.swa.reshape((-1, 512)), v.compressed, call["workspace_buffer"],
            made.hca_swa_indices, made.hca_compressed_block_tables, ints(fw, slots),
            ints(fw, v.lens), made.swa_topk_lens, call["bmm1_scale"], 2.0, is_causal=causal)
        v.check(close, found, v.expected(rest=rest, bmm2=2.0))
    found = trtllm_batch_decode_sparse_mla_dsv4(
        sparse_indices=ints(fw, v.joined()), seq_lens=ints(fw, v.total),
        hca_sparse_indices_format="compressed-page-aligned", **call)
    v.check(close, found, v.expected())
    wrong = v.joined()
    wrong[1, 128 + 3] += 1
    with pytest.raises(ValueError, match="sparse_indices: expected whole pages"):
        convert_compressed_page_aligned_sparse_indices_to_hca_metadata(
            ints(fw, wrong), ints(fw, v.lens), ints(fw, v.total), v.swa, v.compressed, q_len=2)


def test_v4_of_packed_rows(fw, rng, close):
    packed, keys = packed_584(rng, 9, 8)
    extra, more_keys = packed_584(rng, 5, 3)
    query = fw.tensor(rng.standard_normal((3, 16, 512)), "bfloat16")
    window, rows = random_lists(rng, 3, 30, 72), random_lists(rng, 3, 11, 15)
    out = trtllm_batch_decode_sparse_mla_dsv4(
        query, fw.tensor(packed[:, :, None], "uint8"), space(fw, query), ints(fw, window),
        fw.tensor(extra[:, :, None], "uint8"), kv_layout="NHD", bmm1_scale=0.04,
        swa_topk_lens=ints(fw, [30, 4, 0]), extra_sparse_indices=ints(fw, rows),
        extra_sparse_topk_lens=ints(fw, [11, 0, 7]))
    expected = over_lists(fw.numbers(query), [keys, more_keys],
                          [chosen(window, [30, 4, 0]), chosen(rows, [11, 0, 7])], 0.04, 512)[0]
    close(fw.numbers(out), expected, "bfloat16")


def test_v4_refuses_by_name(fw, rng):
    v = V4(fw, rng)
    good = dict(query=v.query, swa_kv_cache=v.swa, compressed_kv_cache=v.compressed,
                sparse_indices=ints(fw, v.joined()), sparse_topk_lens=ints(fw, v.lens),
                seq_lens=ints(fw, v.total), **v.more)
    trtllm_batch_decode_sparse_mla_dsv4(**good)
    lens = ints(fw, v.counts)
    for text, arguments in {
        "seq_lens: expected a tensor": dict(seq_lens=None),
        "sparse_topk_lens: expected None": dict(swa_topk_lens=lens),
        "extra_sparse_indices: expected None": dict(extra_sparse_indices=good["sparse_indices"]),
        "at least 128 columns": dict(sparse_indices=ints(fw, v.rows)),
        "hca_seq_lens: expected None": dict(hca_seq_lens=lens),
        "hca_compressed_block_tables: expected a tensor": dict(hca_swa_indices=good[
            "sparse_indices"]),
        "hca_sparse_indices_format": dict(hca_sparse_indices_format="page-aligned"),
        "kv_layout": dict(kv_layout="NH"),
        "max_q_len: expected 2": dict(max_q_len=3),
        "backend": dict(backend="fa3"),
        "out: expected": dict(out=v.swa),
        "swa_kv_cache: expected 3": dict(swa_kv_cache=v.query),
    }.items():
        with pytest.raises(ValueError, match=text):
            trtllm_batch_decode_sparse_mla_dsv4(**{**good, **arguments})
