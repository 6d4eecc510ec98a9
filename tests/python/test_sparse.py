# SPDX-License-Identifier: Apache-2.0
"""The block-sparse wrappers against attention over the whole matrix in float64, under the mask that
the blocks come to."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from attention64 import attention, rotated
from bolide import _frameworks
from bolide._wrappers import sparse

FIXED = bolide.BlockSparseAttentionWrapper
VARIABLE = bolide.VariableBlockSparseAttentionWrapper


def workspace(fw):
    return _frameworks.empty(fw.tensor(np.zeros(1), "float32"), (1 << 25,), "uint8")


def ints(fw, values):
    return fw.tensor(np.asarray(values, dtype=np.int64), "int32")


class Matrix:
    """Random blocks of a random matrix, their lists in a random order, and the mask of it all."""

    def __init__(self, fw, rng, m, n, r, c, h_q=4, h_kv=2, d=64, dtype="float32", kept=0.5):
        self.fw, self.rng, self.dtype = fw, rng, dtype
        self.m, self.n, self.r, self.c, self.h_q, self.h_kv, self.d = m, n, r, c, h_q, h_kv, d
        self.map = rng.random((-(-m // r), -(-n // c))) < kept
        rows = [rng.permutation(np.nonzero(row)[0]) for row in self.map]
        self.columns = np.concatenate([*rows, []]).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum([len(x) for x in rows])]).astype(np.int64)
        self.q, self.k, self.v = (fw.tensor(rng.standard_normal((s, h, d)), dtype)
                                  for s, h in ((m, h_q), (n, h_kv), (n, h_kv)))
        self.q64, self.k64, self.v64 = (fw.numbers(x) for x in (self.q, self.k, self.v))
        self.indptr, self.indices = ints(fw, self.starts), ints(fw, self.columns)
        self.seen = np.repeat(np.repeat(self.map, r, 0)[:m], c, 1)[:, :n]

    def wrapper(self, backend="auto", **options):
        w = FIXED(workspace(self.fw), backend)
        w.plan(self.indptr, self.indices, self.m, self.n, self.r, self.c, self.h_q, self.h_kv,
               self.d, q_data_type=self.dtype, o_data_type=self.dtype, **options)
        return w

    def block_masks(self, share=0.6):
        """A mask for each listed block, and what is then seen of the matrix."""
        masks = self.rng.random((len(self.columns), self.r, self.c)) < share
        seen = np.zeros((len(self.map) * self.r, self.map.shape[1] * self.c), bool)
        for i in range(len(self.map)):
            for e in range(self.starts[i], self.starts[i + 1]):
                at = self.columns[e] * self.c
                seen[i * self.r:(i + 1) * self.r, at:at + self.c] = masks[e]
        return masks, seen[:self.m, :self.n]

    def ordered(self):
        """Whether a key stands at or before a query's position."""
        return np.arange(self.n) <= np.arange(self.m)[:, None] + self.n - self.m

    def check(self, close, got, seen=None, **options):
        seen = self.seen if seen is None else seen
        out, lse = attention(self.q64, self.k64, self.v64, mask=seen, **options)
        check(self.fw, close, got, out, lse, self.dtype)


def check(fw, close, got, out, lse, dtype):
    if isinstance(got, tuple):
        found = fw.numbers(got[1])
        assert found.shape == lse.shape
        assert (np.isfinite(found) == np.isfinite(lse)).all()
        loose = {"float32": 1, "float16": 4, "bfloat16": 20}[dtype]
        finite = np.isfinite(lse)
        assert np.abs(found[finite] - lse[finite]).max(initial=0) < 2e-3 * loose
        got = got[0]
    close(fw.numbers(got), out, dtype, 3.0)


SHAPES = [(48, 80, 16, 16), (33, 70, 8, 5), (7, 9, 1, 1), (50, 90, 7, 12), (64, 64, 64, 64),
          (100, 30, 33, 3)]


@pytest.mark.parametrize("m, n, r, c", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_blocks(fw, rng, close, m, n, r, c, dtype):
    x = Matrix(fw, rng, m, n, r, c, dtype=dtype)
    w = x.wrapper()
    x.check(close, w.run(x.q, x.k, x.v, return_lse=True))
    out = fw.tensor(np.full((m, 4, 64), np.nan), dtype)
    lse = fw.tensor(np.full((m, 4), np.nan), "float32")
    assert w.run(x.q, x.k, x.v, out=out, lse=lse) is out
    x.check(close, (out, lse))
    w.end_forward()


@pytest.mark.parametrize("m, n, r, c", SHAPES)
@pytest.mark.parametrize("kind", ["bool", "packed", "both"])
def test_masks_of_blocks(fw, rng, close, m, n, r, c, kind):
    x = Matrix(fw, rng, m, n, r, c)
    masks, seen = x.block_masks()
    mask = packed = None
    if kind != "packed":  # packed goes before mask
        mask = fw.tensor(masks if kind == "bool" else ~masks, "bool")
    if kind != "bool":
        bits, rows = [], [x.seen[i * r:(i + 1) * r] for i in range(len(x.map))]
        for i in range(len(rows)):
            keys = [j for b in x.columns[x.starts[i]:x.starts[i + 1]]
                    for j in range(b * c, min(b * c + c, n))]
            own = seen[i * r:(i + 1) * r][:, keys]
            bits.append(np.packbits(own.reshape(-1), bitorder="little"))
        packed = fw.tensor(np.concatenate([*bits, []]), "uint8")
    w = x.wrapper(mask=mask, packed_mask=packed, causal=True)  # a mask replaces causal
    x.check(close, w.run(x.q, x.k, x.v, return_lse=True), seen)


def test_mask_layout(fw, rng):
    mask = rng.random((5, 2, 3)) < 0.5
    got = sparse.convert_bsr_mask_layout(fw.tensor(mask, "bool"), ints(fw, [0, 2, 2, 5]))
    wanted = [mask[e, row] for first, end in ((0, 2), (2, 5)) for row in range(2)
              for e in range(first, end)]
    assert (np.asarray(fw.numbers(got)) == np.concatenate(wanted)).all()
    assert bolide.sparse.convert_bsr_mask_layout is sparse.convert_bsr_mask_layout


@pytest.mark.parametrize("m, n, r, c", [(48, 80, 16, 16), (80, 48, 16, 16), (33, 70, 8, 5)])
@pytest.mark.parametrize("by_mask", [False, True])
def test_causal(fw, rng, close, monkeypatch, m, n, r, c, by_mask):
    """In the matrix, not in a row block's list; the mask is what stands in for it on the GPU."""
    x = Matrix(fw, rng, m, n, r, c)
    if by_mask and fw.device == "cpu":
        class Away:
            type = "away"

        real = sparse.Sparse._plan_blocks

        def planned(self, *args):
            own, self.device = self.device, Away()
            monkeypatch.setattr(sparse.Sparse, "_pack_mask", lambda w, *a: (
                setattr(w, "device", own), packing(w, *a))[1])
            real(self, *args)

        packing = sparse.Sparse._pack_mask
        monkeypatch.setattr(sparse.Sparse, "_plan_blocks", planned)
    w = x.wrapper(causal=True)
    if by_mask:
        assert w._masked
    x.check(close, w.run(x.q, x.k, x.v, return_lse=True), x.seen & x.ordered())


def test_options(fw, rng, close):
    x = Matrix(fw, rng, 48, 80, 16, 16)
    w = x.wrapper(logits_soft_cap=0.7, sm_scale=0.4)
    x.check(close, w.run(x.q, x.k, x.v, return_lse=True), cap=0.7, scale=0.4)
    x.check(close, w.forward(x.q, x.k, x.v, logits_soft_cap=0.9, sm_scale=0.2), cap=0.9, scale=0.2)
    x.check(close, x.wrapper().forward(x.q, x.k, x.v))
    w = x.wrapper()
    out, lse = attention(x.q64, x.k64, x.v64, mask=x.seen, scale=0.125 * 3)
    got = w.run(x.q, x.k, x.v, 1.5, 2.0, 0.5, return_lse=True)
    check(fw, close, got, out * 0.5, lse, x.dtype)
    heads = rng.random(2) + 0.5
    per_head = fw.tensor(heads, "float32")
    got = w.run(x.q, x.k, x.v, scale_k=per_head, scale_v=per_head)
    k64 = x.k64 * heads[:, None]
    out, lse = attention(x.q64, k64, x.v64 * heads[:, None], mask=x.seen)
    check(fw, close, got, out, lse, x.dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_positions(fw, rng, close, causal):
    x = Matrix(fw, rng, 40, 60, 8, 12, h_q=6, h_kv=2)
    seen = x.seen & x.ordered() if causal else x.seen
    w = x.wrapper(pos_encoding_mode="ROPE_LLAMA", rope_scale=2.0, rope_theta=5e3, causal=causal)
    q = rotated(x.q64, np.arange(40) + 20, 2.0, 5e3)
    out, lse = attention(q, rotated(x.k64, np.arange(60), 2.0, 5e3), x.v64, mask=seen)
    check(fw, close, w.run(x.q, x.k, x.v, return_lse=True), out, lse, x.dtype)
    w = x.wrapper(pos_encoding_mode="ALIBI", causal=causal)
    slopes = 2.0 ** np.array([-2, -4, -6, -8, -1, -3])
    apart = np.arange(60) - (np.arange(40)[:, None] + 20)
    logits = np.einsum("nhd,shd->hns", x.q64, np.repeat(x.k64, 3, 1)) / 8
    logits = np.where(seen, logits + slopes[:, None, None] * apart, -np.inf)
    top = np.maximum(logits.max(-1, keepdims=True), -1e9)
    e = np.exp(logits - top)
    sums = e.sum(-1, keepdims=True)
    out = np.einsum("hns,shd->nhd", e / np.where(sums > 0, sums, 1), np.repeat(x.v64, 3, 1))
    close(fw.numbers(w.run(x.q, x.k, x.v)), out, x.dtype, 3.0)


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("same", [False, True])
def test_block_map(fw, rng, close, heads, same):
    """Blocks of each head; heads of q may be given as well, if those of a key head agree."""
    x = Matrix(fw, rng, 48, 80, 16, 16, h_q=6, h_kv=2, dtype="float16")
    maps = rng.random((2, 3, 5)) < 0.4
    if same:
        maps[1] = maps[0]
    given = fw.tensor(np.repeat(maps, heads // 2, 0), "bool")
    for causal in (False, True):
        w = FIXED(workspace(fw), "vsa_sm100_blk64")
        w.plan(None, None, 48, 80, 16, 16, 6, 2, 64, block_mask=given, causal=causal)
        parts = []
        for h in range(2):
            seen = np.repeat(np.repeat(maps[h], 16, 0), 16, 1)
            seen = seen & x.ordered() if causal else seen
            parts.append(attention(x.q64[:, 3 * h:3 * h + 3], x.k64[:, h:h + 1],
                                   x.v64[:, h:h + 1], mask=seen))
        out, lse = (np.concatenate([p[i] for p in parts], 1) for i in (0, 1))
        check(fw, close, w.run(x.q, x.k, x.v, 1.0, return_lse=True), out, lse, "float16")
    if not same:
        with pytest.raises(ValueError, match="scale_k: expected one element where heads see"):
            w.run(x.q, x.k, x.v, scale_k=fw.tensor(np.ones(2), "float32"))
        with pytest.raises(ValueError, match="k: expected 80 rows, as planned"):
            w.run(x.q, x.k[:79], x.v)
    if heads == 6:
        wrong = np.repeat(maps, 3, 0)
        wrong[1] = ~wrong[1]
        with pytest.raises(ValueError, match="block_mask: expected the same blocks for all heads"):
            w.plan(None, None, 48, 80, 16, 16, 6, 2, 64, block_mask=fw.tensor(wrong, "bool"))


def test_views_and_formats(fw, rng, close):
    """Views of a fused projection, a result of another dtype, keys of eight bits."""
    x = Matrix(fw, rng, 48, 48, 16, 16, dtype="float16")
    fused = rng.standard_normal((48, 8, 64))
    fused = fw.tensor(fused, "float16")
    q, k, v = fused[:, :4], fused[:, 4:6], fused[:, 6:]
    out, lse = attention(*(fw.numbers(t) for t in (q, k, v)), mask=x.seen)
    check(fw, close, x.wrapper().run(q, k, v, return_lse=True), out, lse, "float16")
    w = FIXED(workspace(fw), "fa3")
    w.plan(x.indptr, x.indices, 48, 48, 16, 16, 4, 2, 64, q_data_type="bfloat16",
           kv_data_type="float8_e4m3fn")
    q, k, v = fw.tensor(x.q64, "bfloat16"), *(fw.tensor(t, "float8_e4m3fn") for t in (x.k64, x.v64))
    got = w.run(q, k, v)
    assert bolide._dtypes.of(got.dtype).name == "float16"  # FlashInfer's default
    close(fw.numbers(got), attention(*(fw.numbers(t) for t in (q, k, v)), mask=x.seen)[0],
          "bfloat16", 3.0)


def test_refusals(fw, rng):
    x = Matrix(fw, rng, 48, 80, 16, 16)
    plan = (48, 80, 16, 16, 4, 2, 64)
    w = FIXED(workspace(fw))
    with pytest.raises(RuntimeError, match=r"plan\(\) must come before run\(\)"):
        w.run(x.q, x.k, x.v)
    with pytest.raises(ValueError, match="backend: expected"):
        FIXED(workspace(fw), "cudnn")
    for wrong, message in (
            ((x.indptr[:-1], x.indices), r"indptr: expected \[4\]; got \[3\]"),
            ((x.indptr, None), "indptr, indices: expected tensors"),
            ((ints(fw, [0, 1, 1, 1]), ints(fw, [5])), "indices: expected 0 to 4; got 5 to 5"),
            ((ints(fw, [0, 1, 1, 1]), ints(fw, [-1])), "indices: expected 0 to 4; got -1 to -1"),
            ((ints(fw, [0, 2, 1, 1]), ints(fw, [1, 2])), "indptr: expected values that rise")):
        with pytest.raises(ValueError, match=message):
            w.plan(*wrong, *plan)
    with pytest.raises(ValueError, match="mask: expected"):
        w.plan(x.indptr, x.indices, *plan, mask=fw.tensor(np.ones((1, 16, 15)), "bool"))
    with pytest.raises(ValueError, match="mask: expected None with block_mask"):
        w.plan(None, None, *plan, mask=x.indices, block_mask=fw.tensor(np.ones((2, 3, 5)), "bool"))
    with pytest.raises(ValueError, match=r"block_mask: expected \[2, 3, 5\]"):
        w.plan(None, None, *plan, block_mask=fw.tensor(np.ones((2, 3, 4)), "bool"))
    w = x.wrapper()
    with pytest.raises(ValueError, match="block_sparse_attention_run: q"):
        w.run(x.q[:40], x.k, x.v)
    with pytest.raises(ValueError, match="block_sparse_attention_run: k"):
        w.run(x.q, x.k[:79], x.v[:79])


def test_empty(fw, rng, close):
    for m, n in ((0, 32), (32, 0), (0, 0)):
        x = Matrix(fw, rng, m, n, 16, 16)
        out, lse = x.wrapper(causal=True).run(x.q, x.k, x.v, return_lse=True)
        assert out.shape == (m, 4, 64) and not np.any(fw.numbers(out))
        assert np.isneginf(fw.numbers(lse)).all()
    x = Matrix(fw, rng, 40, 48, 16, 16, kept=0)
    x.check(close, x.wrapper().run(x.q, x.k, x.v, return_lse=True))


def test_work_goes_with_blocks(fw, rng, close):
    """A matrix whose scores alone would be 2^40 elements."""
    m = n = 1 << 20
    indptr = np.zeros(m // 128 + 1, np.int64)
    indptr[3:] = 1
    indptr[4000:] = 3
    w = FIXED(workspace(fw))
    w.plan(ints(fw, indptr), ints(fw, [8000, 1, 0]), m, n, 128, 128, 1, 1, 8)
    q = fw.tensor(rng.standard_normal((m, 1, 8)), "float16")
    out = fw.numbers(w.run(q, q, q))
    q64 = fw.numbers(q)
    for row, blocks in ((2, [8000]), (3999, [1, 0])):
        keys = np.concatenate([q64[b * 128:b * 128 + 128] for b in blocks])
        own = slice(row * 128, row * 128 + 128)
        close(out[own], attention(q64[own], keys, keys)[0], "float16", 2.0)
    assert np.count_nonzero(out.any((1, 2))) <= 256


# ---- blocks of any size --------------------------------------------------------------------------


def variable_expected(q, k, v, maps, rows, cols, causal=False):
    outs = []
    h_q, m, _ = q.shape
    h_kv, n, _ = k.shape
    group = h_q // h_kv
    for h in range(h_kv):
        seen = np.repeat(np.repeat(maps[h], rows[h], 0), cols[h], 1)
        if causal:
            seen = seen & (np.arange(n) <= np.arange(m)[:, None] + n - m)
        own = q[h * group:(h + 1) * group].swapaxes(0, 1)
        outs.append(attention(own, k[h][:, None], v[h][:, None], mask=seen))
    return (np.concatenate([o[i].swapaxes(0, 1) for o in outs]) for i in (0, 1))


def cut(rng, total, parts):
    at = np.sort(rng.integers(0, total + 1, parts - 1))
    return np.diff(np.concatenate([[0], at, [total]]))


@pytest.mark.parametrize("h_q, h_kv", [(2, 2), (6, 2), (4, 1)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("unit", [1, 16])
def test_variable(fw, rng, close, h_q, h_kv, causal, unit):
    m, n = 60, 6 * unit
    rows = np.array([cut(rng, m, 5) for _ in range(h_kv)])  # sizes of 0 among them
    cols = np.array([cut(rng, n // unit, 4) * unit for _ in range(h_kv)])
    maps = rng.random((h_kv, 5, 4)) < 0.5
    q, k, v = (fw.tensor(rng.standard_normal((h, s, 64)), "float32")
               for h, s in ((h_q, m), (h_kv, n), (h_kv, n)))
    w = VARIABLE(workspace(fw))
    w.plan(fw.tensor(maps, "bool"), ints(fw, rows), ints(fw, cols), h_q, h_kv, 64, causal=causal,
           q_data_type="float32")
    out, lse = variable_expected(*(fw.numbers(x) for x in (q, k, v)), maps, rows, cols, causal)
    check(fw, close, w.run(q, k, v, return_lse=True), out, lse, "float32")
    check(fw, close, w.forward(q, k, v), out, lse, "float32")
    own, own_lse = fw.tensor(np.full((h_q, m, 64), np.nan), "float32"), fw.tensor(out[..., 0], "float32")
    assert w.run(q, k, v, out=own, lse=own_lse) is own
    check(fw, close, (own, own_lse), out, lse, "float32")
    folded = fw.tensor(np.full((h_kv * m, h_q // h_kv, 64), np.nan), "float32")
    check(fw, close, w.run(q, k, v, out=folded), out, lse, "float32")
    assert np.isfinite(fw.numbers(folded)).all()
    apart = q.swapaxes(0, 1)  # memory of another order
    back = (apart.contiguous() if fw.name != "numpy" else np.ascontiguousarray(apart)).swapaxes(0, 1)
    check(fw, close, w.run(back, k, v), out, lse, "float32")


def test_variable_positions(fw, rng, close):
    """The map of 3 x 3 that once crashed a plan, and slopes of all heads."""
    if fw.device != "cpu":
        pytest.skip("positions are of the CPU")
    maps = np.array([[[0, 0, 1], [1, 0, 1], [0, 1, 1]]] * 2, bool)
    rows, cols = np.array([[1, 2, 3]] * 2), np.array([[3, 1, 2]] * 2)
    q, k, v = (fw.tensor(rng.standard_normal((2, 6, 16)), "float32") for _ in range(3))
    w = VARIABLE(workspace(fw), "fa2")
    w.plan(fw.tensor(maps, "bool"), ints(fw, rows), ints(fw, cols), 2, 2, 16,
           pos_encoding_mode="ALIBI", q_data_type="float32", sm_scale=0.3)
    seen = np.repeat(np.repeat(maps[0], rows[0], 0), cols[0], 1)
    q64, k64, v64 = (fw.numbers(x) for x in (q, k, v))
    apart = np.arange(6) - np.arange(6)[:, None]
    logits = np.einsum("hnd,hsd->hns", q64, k64) * 0.3
    logits = logits + np.array([2.0 ** -4, 2.0 ** -8])[:, None, None] * apart
    e = np.where(seen, np.exp(logits), 0)
    close(fw.numbers(w.run(q, k, v)), np.einsum("hns,hsd->hnd", e / e.sum(-1, keepdims=True), v64),
          "float32", 3.0)
    w.end_forward()


def test_variable_refusals(fw, rng):
    maps, rows = fw.tensor(np.ones((2, 3, 3)), "bool"), ints(fw, [[1, 2, 3]] * 2)
    w = VARIABLE(workspace(fw))
    q = fw.tensor(np.zeros((2, 6, 64)), "float16")
    with pytest.raises(RuntimeError, match=r"plan\(\) must come before run\(\)"):
        w.run(q, q, q)
    with pytest.raises(ValueError, match=r"block_mask_map: expected \[1, 3, 3\]"):
        w.plan(maps, rows, rows, 2, 1, 64)
    with pytest.raises(ValueError, match="block_col_sz: expected sizes of at least 0, with the same"):
        w.plan(maps, rows, ints(fw, [[1, 2, 3], [1, 2, 2]]), 2, 2, 64)
    w.plan(maps, rows, rows, 2, 2, 64)
    with pytest.raises(ValueError, match="k: expected"):
        w.run(q, q[:, :5], q)
    with pytest.raises(ValueError, match="out: expected"):
        w.run(q, q, q, out=fw.tensor(np.zeros((2, 5, 64)), "float16"))
