# SPDX-License-Identifier: Apache-2.0
"""Attention in float64 in a few plain lines, and random batches over paged caches."""

from __future__ import annotations

import numpy as np

from bolide import _frameworks


def rotated(x, positions, scale=1.0, theta=1e4):
    """Rotary embedding in halves of ``[n, h, d]``."""
    half = x.shape[-1] // 2
    angle = positions[:, None] / scale * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(q, k, v, causal=False, window=-1, cap=0.0, scale=None, mask=None, sinks=None,
              rope=False):
    """Output and lse (base 2) of ``q [n, h_q, d]`` over ``k, v [s, h_kv, d]``."""
    n, h_q, d = q.shape
    s = k.shape[0]
    at = s - n + np.arange(n)
    if rope:
        q, k = rotated(q, at), rotated(k, np.arange(s))
    group = h_q // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    logits = np.einsum("nhd,shd->hns", q, k) * (d ** -0.5 if scale is None else scale)
    if cap:
        logits = cap * np.tanh(logits / cap)
    seen = np.ones((n, s), bool) if mask is None else np.asarray(mask, bool)
    if causal and mask is None:
        seen &= np.arange(s) <= at[:, None]
    if window >= 0:
        seen &= np.arange(s) >= at[:, None] - window
    logits = np.where(seen, logits, -np.inf)
    if sinks is not None:
        logits = np.concatenate([logits, np.broadcast_to(sinks[:, None, None], (h_q, n, 1))], -1)
    if logits.shape[-1] == 0:
        return np.zeros((n, h_q, v.shape[-1])), np.full((n, h_q), -np.inf)
    top = logits.max(-1, keepdims=True)
    e = np.exp(logits - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)[..., :s]
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(np.isfinite(top), top, 0))[..., 0] / np.log(2)
    return np.einsum("hns,shd->nhd", weights, v), lse.T


class Batch:
    """Requests with random queries and a paged cache of random keys and values."""

    def __init__(self, fw, rng, q_lens, kv_lens, h_q=4, h_kv=2, d=64, d_vo=None, page=4,
                 layout="NHD", dtype="float32", kv_dtype=None):
        d_vo = d if d_vo is None else d_vo
        self.fw, self.rng = fw, rng
        self.q_lens, self.kv_lens = list(q_lens), list(kv_lens)
        self.page, self.layout, self.dtype = page, layout, dtype
        self.h_q, self.h_kv, self.d, self.d_vo = h_q, h_kv, d, d_vo
        self.kv_dtype = dtype if kv_dtype is None else kv_dtype
        counts = [-(-n // page) for n in kv_lens]
        pages = sum(counts) + 3
        self.indices_list = rng.permutation(pages)[:sum(counts)]
        self.indptr_list = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.last_list = np.array([n - (c - 1) * page if c else 0 for n, c in zip(kv_lens, counts)])
        self.qo_list = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int64)
        self.q = fw.tensor(rng.standard_normal((int(self.qo_list[-1]), h_q, d)), dtype)
        self.k_cache = fw.tensor(rng.standard_normal((pages, page, h_kv, d)), self.kv_dtype)
        self.v_cache = fw.tensor(rng.standard_normal((pages, page, h_kv, d_vo)), self.kv_dtype)
        self.k64, self.v64 = fw.numbers(self.k_cache), fw.numbers(self.v_cache)
        if layout == "HND":
            self.k_cache, self.v_cache = self.k_cache.swapaxes(1, 2), self.v_cache.swapaxes(1, 2)
        self.cache = (self.k_cache, self.v_cache)
        self.indices, self.indptr, self.last, self.qo, self.lens, self.lens_q = (
            self.index(x) for x in (self.indices_list, self.indptr_list, self.last_list,
                                    self.qo_list, kv_lens, q_lens))

    def index(self, values):
        return self.fw.tensor(np.asarray(values, dtype=np.int64), "int32")

    def on_host(self, values):
        """Integers as an int32 tensor on the host."""
        found = self.index(values)
        return found if self.fw.name == "numpy" else found.cpu()

    def request(self, i):
        """Queries, keys and values of a request in float64."""
        q = self.fw.numbers(self.q)[self.qo_list[i]:self.qo_list[i + 1]]
        own = self.indices_list[self.indptr_list[i]:self.indptr_list[i + 1]]
        k = self.k64[own].reshape(-1, self.h_kv, self.d)[:self.kv_lens[i]]
        v = self.v64[own].reshape(-1, self.h_kv, self.d_vo)[:self.kv_lens[i]]
        return q, k, v

    def expected(self, masks=None, **options):
        """Output and lse of all requests."""
        found = [attention(*self.request(i), mask=None if masks is None else masks[i], **options)
                 for i in range(len(self.q_lens))]
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def packed(self):
        """Keys and values without pages, and their indptr."""
        parts = [self.request(i) for i in range(len(self.q_lens))]
        k = self.fw.tensor(np.concatenate([p[1] for p in parts]), self.kv_dtype)
        v = self.fw.tensor(np.concatenate([p[2] for p in parts]), self.kv_dtype)
        return k, v, self.index(np.concatenate([[0], np.cumsum(self.kv_lens)]))

    def table(self):
        """A block table of the same pages; unused entries name none."""
        width = max(np.diff(self.indptr_list).max(initial=0), 1)
        rows = np.full((len(self.q_lens), width), 2**30)
        for i, (a, b) in enumerate(zip(self.indptr_list, self.indptr_list[1:])):
            rows[i, :b - a] = self.indices_list[a:b]
        return self.index(rows)

    def workspace(self, size=1 << 27):
        return _frameworks.empty(self.indices, (size,), "uint8")

    def check(self, close, got, expected):
        """(out, lse) or out against the reference."""
        numbers = self.fw.numbers
        if isinstance(got, tuple):
            lse, wanted = numbers(got[1]), expected[1]
            assert (np.isfinite(lse) == np.isfinite(wanted)).all()
            finite = np.isfinite(wanted)
            assert np.abs(lse[finite] - wanted[finite]).max(initial=0) < 2e-3 * self.loose()
            got = got[0]
        close(numbers(got), expected[0], self.dtype, 2.0)

    def loose(self):
        return {"float32": 1, "float16": 4, "bfloat16": 20}[self.dtype]
