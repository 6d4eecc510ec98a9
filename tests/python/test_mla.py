# SPDX-License-Identifier: Apache-2.0
"""The wrappers of multi-head latent attention against attention in float64."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from attention64 import attention
from bolide import _frameworks

WRAPPER = bolide.mla.BatchMLAPagedAttentionWrapper
LENS = [9, 0, 4, 31, 1]


class Latents:
    """Requests with random queries over paged caches of latents."""

    def __init__(self, fw, rng, q_lens, h=4, ckv=64, kpe=16, page=4, dtype="float32"):
        self.fw, self.dtype, self.q_lens, self.page, self.h = fw, dtype, q_lens, page, h
        self.ckv_dim, self.kpe_dim = ckv, kpe
        pages = [-(-n // page) for n in LENS]
        total = sum(pages) + 2
        self.qo = self._ints(np.cumsum([0, *q_lens]))
        self.indptr = self._ints(np.cumsum([0, *pages]))
        self.indices = self._ints(rng.permutation(total)[:sum(pages)])
        self.lens = self._ints(LENS)
        self.last = self._ints([(n - 1) % page + 1 if n else 0 for n in LENS])
        n = sum(q_lens)
        self.q_nope, self.q_pe, self.ckv, self.kpe = (
            fw.tensor(rng.standard_normal(shape), dtype) for shape in
            ((n, h, ckv), (n, h, kpe), (total, page, ckv), (total, page, kpe)))

    def _ints(self, values):
        return self.fw.tensor(np.asarray(values), "int32")

    def workspace(self):
        return _frameworks.empty(self.q_nope, (1 << 26,), "uint8")

    def tensors(self):
        return self.q_nope, self.q_pe, self.ckv, self.kpe

    def expected(self, scale, causal=False, v=1.0):
        n = self.fw.numbers
        q = np.concatenate([n(self.q_nope), n(self.q_pe)], -1)
        keys = np.concatenate([n(self.ckv), n(self.kpe)], -1)
        qo, indptr, indices = (n(x) for x in (self.qo, self.indptr, self.indices))
        outs, lses = [], []
        for r, length in enumerate(LENS):
            rows = keys[indices[indptr[r]:indptr[r + 1]]].reshape(-1, keys.shape[-1])[:length]
            out, lse = attention(q[qo[r]:qo[r + 1]], rows[:, None], rows[:, None, :self.ckv_dim],
                                 causal=causal, scale=scale)
            outs.append(out * v)
            lses.append(lse)
        return np.concatenate(outs), np.concatenate(lses)

    def check(self, close, found, expected):
        close(self.fw.numbers(found[0]), expected[0], self.dtype)
        lse, wanted = self.fw.numbers(found[1]), expected[1]
        assert (np.isneginf(lse) == np.isneginf(wanted)).all()
        seen = ~np.isneginf(wanted)
        close(lse[seen], wanted[seen], self.dtype)


def plan(b, wrapper=None, causal=False):
    w = WRAPPER(b.workspace()) if wrapper is None else wrapper
    w.plan(b.qo, b.indptr, b.indices, b.lens, b.h, b.ckv_dim, b.kpe_dim, b.page, causal, 0.2,
           b.q_nope.dtype, b.ckv.dtype)
    return w


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_mla(fw, rng, close, dtype, causal):
    b = Latents(fw, rng, [2, 1, 4, 3, 0], dtype=dtype)
    w = plan(b, causal=causal)
    expected = b.expected(0.2, causal)
    b.check(close, w.run(*b.tensors(), return_lse=True), expected)
    out, lse = w.run(*b.tensors(), return_lse=True, return_lse_base_on_e=True)
    b.check(close, (out, lse), (expected[0], expected[1] * np.log(2)))
    mine = _frameworks.empty(b.q_nope, tuple(b.q_nope.shape), b.q_nope.dtype)
    b.indptr = b.fw.tensor([*b.fw.numbers(b.indptr), 99], "int32")  # what is behind is not read
    assert plan(b, w, causal).run(*b.tensors(), out=mine) is mine
    close(fw.numbers(mine), expected[0], dtype)


def test_mla_scales(fw, rng, close):
    b = Latents(fw, rng, [1] * 5)
    w = plan(b)
    expected = b.expected(0.1, v=0.5)
    b.check(close, w.run(*b.tensors(), return_lse=True, ckv_scale=0.5, kpe_scale=0.5), expected)
    b.check(close, w.run(*b.tensors(), return_lse=True, o_scale=4.0), b.expected(0.2, v=0.25))


def test_mla_scales_of_parts(fw, rng, close):
    if fw.device != "cpu":
        pytest.skip("scales of parts of a row are on the CPU alone")
    b = Latents(fw, rng, [2, 1, 4, 3, 0], ckv=256, dtype="float8_e4m3fn")
    b.q_nope, b.q_pe = (fw.tensor(fw.numbers(x), "bfloat16") for x in (b.q_nope, b.q_pe))
    scales = rng.uniform(0.5, 1.5, (*b.ckv.shape[:2], 2)).astype(np.float32)
    w = plan(b)
    out, lse = w.run(*b.tensors(), return_lse=True, ckv_scale_arr=fw.tensor(scales, "float32"))
    b.ckv = fw.tensor(fw.numbers(b.ckv) * np.repeat(scales, 128, -1), "float32")
    b.dtype = "bfloat16"
    b.check(close, (out, lse), b.expected(0.2))


def test_mla_without_a_rotary_part(fw, rng, close):
    b = Latents(fw, rng, [1] * 5, kpe=0)
    b.check(close, plan(b).run(*b.tensors(), return_lse=True), b.expected(0.2))


def test_mla_keeps_its_buffers(fw, rng, close):
    b = Latents(fw, rng, [1] * 5)
    make = lambda n: _frameworks.empty(b.qo, (n,), "int32")  # noqa: E731
    w = WRAPPER(b.workspace(), True, make(6), make(6), make(40), make(5))
    plan(b, w)
    b.check(close, w.run(*b.tensors(), return_lse=True), b.expected(0.2))
    assert (fw.numbers(w._kv_indices_buf)[:b.indices.shape[0]] == fw.numbers(b.indices)).all()
    b.qo = b.qo[:-1]
    b.lens = b.lens[:-1]
    b.indptr = b.indptr[:-1]
    with pytest.raises(ValueError, match=r"kv_indptr: expected \[6\], as its buffer; got \[5\]"):
        plan(b, w)


def test_mla_that_brings_its_lengths(fw, rng, close):
    b = Latents(fw, rng, [1] * 5)
    indptr, indices = fw.numbers(b.indptr), fw.numbers(b.indices)
    table = np.zeros((5, 8), int)
    for r in range(5):
        pages = indices[indptr[r]:indptr[r + 1]]
        table[r, :len(pages)] = pages
    w = WRAPPER(b.workspace(), backend="cutlass")
    found = w.run(*b.tensors(), return_lse=True, kv_len=b.lens, page_table=b._ints(table))
    b.check(close, found, b.expected(192 ** -0.5))


def test_mla_of_one_token(fw, rng, close):
    b = Latents(fw, rng, [1] * 5, ckv=128, kpe=16)
    w = bolide.BatchDecodeMlaWithPagedKVCacheWrapper(b.workspace())
    w.plan(b.indptr, b.indices, b.last, b.h, 128, b.page, 0.2, data_type=b.ckv.dtype)
    b.check(close, w.run(*b.tensors(), return_lse=True), b.expected(0.2))
    b.check(close, w.run_return_lse(*b.tensors(), q_scale=0.5, v_scale=2.0),
            b.expected(0.1, v=2.0))


def test_mla_refuses_by_name(fw, rng):
    b = Latents(fw, rng, [1] * 5)
    with pytest.raises(RuntimeError, match="plan"):
        WRAPPER(b.workspace()).run(*b.tensors())
    w = plan(b)
    with pytest.raises(NotImplementedError, match="use_profiler"):
        w.plan(b.qo, b.indptr, b.indices, b.lens, b.h, 64, 16, b.page, False, 0.2, b.q_nope.dtype,
               b.ckv.dtype, use_profiler=True)
    with pytest.raises(ValueError, match="q_nope"):
        w.run(b.q_pe, b.q_pe, b.ckv, b.kpe)
    with pytest.raises(ValueError, match="backend"):
        WRAPPER(b.workspace(), backend="fa9")
    with pytest.raises(ValueError, match="kv_len: expected None"):
        w.run(*b.tensors(), kv_len=b.lens)
    with pytest.raises(ValueError, match="kv_len: expected a tensor"):
        WRAPPER(b.workspace(), backend="cutlass").run(*b.tensors())
    with pytest.raises(ValueError, match="use_cuda_graph: expected False"):
        WRAPPER(b.workspace(), True, b.qo, b.indptr, b.indices, b.lens, backend="cutlass")
    with pytest.raises(ValueError, match="kv_indices: expected a tensor with use_cuda_graph"):
        WRAPPER(b.workspace(), True, b.qo, b.indptr, None, b.lens)
