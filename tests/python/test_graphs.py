# SPDX-License-Identifier: Apache-2.0
"""On a GPU: attention in one call inside a CUDA graph. Each call is captured once and replayed with
other lengths, against float64; outputs hold NaN before each replay."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU for CUDA graphs", allow_module_level=True)
pytestmark = pytest.mark.gpu

import bolide  # noqa: E402
from attention64 import Batch, attention  # noqa: E402
from conftest import Torch  # noqa: E402
from cuda_graph import captured  # noqa: E402
from bolide import _frameworks  # noqa: E402
from bolide.cudnn import (  # noqa: E402
    cudnn_batch_decode_with_kv_cache, cudnn_batch_prefill_with_kv_cache)
from bolide.decode import (  # noqa: E402
    trtllm_batch_decode_with_kv_cache, xqa_batch_decode_with_kv_cache, xqa_mla)
from bolide.mla import trtllm_batch_decode_with_kv_cache_mla  # noqa: E402
from bolide.prefill import (  # noqa: E402
    fmha_v2_prefill_deepseek, trtllm_batch_context_with_kv_cache, trtllm_fmha_v2_prefill,
    trtllm_ragged_attention_deepseek)

FIRST = [700, 1, 90, 400, 33]
DECODES = [[1] * 5] * 4, [FIRST, [3, 0, 1, 399, 30], [0] * 5, [650, 1, 64, 128, 33]]
PREFILLS = ([[40, 1, 7, 200, 3], [1, 1, 1, 1, 1], [0, 1, 0, 180, 2], [200, 0, 41, 7, 3]],
            [FIRST, [700, 1, 64, 390, 33], [1, 1, 0, 400, 30], [650, 1, 90, 128, 33]])


@pytest.fixture
def fw():
    return Torch("cuda")


class Held:
    """A batch whose lengths are written over between replays."""

    def __init__(self, fw, rng, q_lens, kv_lens):
        self.b = b = Batch(fw, rng, q_lens, kv_lens, layout="HND", dtype="bfloat16", page=16)
        self.fw = fw
        self.out = _frameworks.full(b.q, (b.q.shape[0], 4, 64), "bfloat16", float("nan"))
        self.space = _frameworks.full(b.q, (1 << 25,), "uint8", 0xCD)
        self.table, self.lens, self.lens_q, self.qo = b.table(), b.lens, b.lens_q, b.qo
        self.k, self.v, self.starts = b.packed()
        self.on_host = {}
        self.k64, self.v64 = fw.numbers(self.k), fw.numbers(self.v)

    def set(self, q_lens, kv_lens):
        b = self.b
        self.q_lens, self.kv_lens = q_lens, kv_lens
        self.ends, self.kv_ends = (np.concatenate([[0], np.cumsum(x)]) for x in (q_lens, kv_lens))
        for held, values in ((self.lens, kv_lens), (self.lens_q, q_lens), (self.qo, self.ends),
                             (self.starts, self.kv_ends)):
            held.copy_(b.index(values))
        self.out.fill_(float("nan"))

    def check(self, close, packed):
        """Rows of the requests; the others are still NaN."""
        b, out, q = self.b, self.fw.numbers(self.out), self.fw.numbers(self.b.q)
        for r, (n, s) in enumerate(zip(self.q_lens, self.kv_lens)):
            mine = slice(self.ends[r], self.ends[r] + n)
            keys = slice(self.kv_ends[r], self.kv_ends[r] + s)
            k, v = ((self.k64[keys], self.v64[keys]) if packed
                    else (x[:s] for x in b.request(r)[1:]))
            close(out[mine], attention(q[mine], k, v, causal=True)[0], "bfloat16", 2.0)
        assert np.isnan(out[self.ends[-1]:]).all()


def trtllm_decode(h):
    trtllm_batch_decode_with_kv_cache(h.b.q, h.b.cache, h.space, h.table, h.lens, 1024, 0.125,
                                      out=h.out)


def trtllm_decode_of_lengths(h):
    trtllm_batch_decode_with_kv_cache(h.b.q, h.b.cache, h.space, h.table, h.lens, 1024, 0.125,
                                      out=h.out, cum_seq_lens_q=h.qo, max_q_len=200,
                                      q_len_per_req=None)


def xqa_decode(h):
    xqa_batch_decode_with_kv_cache(h.b.q, h.b.cache, h.space, h.table, h.lens, 1024, 0.125,
                                   out=h.out, kv_layout="HND")


def xqa(h):
    bolide.xqa.xqa(h.b.q[:, None], *h.b.cache, h.table, h.lens[:, None], h.out[:, None], h.space,
                   None, 2, 16, kv_layout="HND")


def cudnn_decode(h):
    cudnn_batch_decode_with_kv_cache(
        h.b.q, *h.b.cache, 0.125, h.space, max_sequence_kv=1024, block_tables=h.table,
        actual_seq_lens_kv=h.lens.reshape(-1, 1, 1, 1), out=h.out)


def cudnn_decode_with_offsets(h):
    cudnn_batch_decode_with_kv_cache(
        h.b.q, *h.b.cache, 0.125, h.space, max_sequence_kv=1024, block_tables=h.table,
        actual_seq_lens_kv=h.lens, batch_offsets_q=h.qo * 256, out=h.out)


def cudnn_prefill(h):
    cudnn_batch_prefill_with_kv_cache(
        h.b.q, *h.b.cache, 0.125, h.space, max_token_per_sequence=200, max_sequence_kv=1024,
        actual_seq_lens_q=h.lens_q, actual_seq_lens_kv=h.lens, block_tables=h.table, causal=True,
        return_lse=True, out=h.out)


def trtllm_context(h):
    trtllm_batch_context_with_kv_cache(
        h.b.q, h.b.cache, h.space, h.table, h.lens, 200, 1024, 0.125, 1.0, 5, h.qo, h.starts,
        out=h.out)


def fmha_v2_pages(h):
    trtllm_fmha_v2_prefill((h.b.q, *h.b.cache), "Q_PAGED_KV_HND", h.space, h.lens, 200, 1024,
                           0.125, 1.0, 5, h.qo, h.starts, block_tables=h.table, out=h.out)


def deepseek(h):
    trtllm_ragged_attention_deepseek(
        h.b.q, h.k, h.v, h.space, h.lens, 200, 1024, 0.125, 1.0, -1, 5, -1, h.qo, h.starts, None,
        True, False, out=h.out, **h.on_host)


def fmha_v2(h):
    trtllm_fmha_v2_prefill((h.b.q, h.k, h.v), "SEPARATE_Q_K_V", h.space, h.lens, 200, 1024, 0.125,
                           1.0, 5, h.qo, h.starts, out=h.out)


def cudnn_packed(h):
    cudnn_batch_prefill_with_kv_cache(
        h.b.q, h.k, h.v, 0.125, h.space, max_token_per_sequence=200, max_sequence_kv=1024,
        causal=True, return_lse=False, batch_offsets_q=h.qo, batch_offsets_k=h.starts,
        batch_offsets_units="tokens", out=h.out)


@pytest.mark.parametrize("call", [
    trtllm_decode, xqa_decode, xqa, cudnn_decode, cudnn_decode_with_offsets,
    trtllm_decode_of_lengths, cudnn_prefill, trtllm_context, fmha_v2_pages, deepseek, fmha_v2,
    cudnn_packed], ids=lambda f: f.__name__)
def test_replays_follow_the_lengths(fw, rng, close, call):
    decode = call in (trtllm_decode, xqa_decode, xqa, cudnn_decode, cudnn_decode_with_offsets)
    q_lens, kv_lens = DECODES if decode else PREFILLS
    h = Held(fw, rng, q_lens[0], kv_lens[0])
    h.set(q_lens[0], kv_lens[0])
    call(h)
    if call is deepseek:  # a graph follows the GPU's all the same
        h.on_host = {"q_seq_lens_cpu": h.b.on_host(q_lens[0]),
                     "kv_seq_lens_cpu": h.b.on_host(kv_lens[0])}
    graph = captured(lambda: call(h))
    for q, kv in zip(q_lens, kv_lens):
        h.set(q, kv)
        graph.replay()
        h.check(close, call in (deepseek, fmha_v2, cudnn_packed))


def test_offsets_of_out(fw, rng, close):
    """Images of an engine: a padded batch, packed, with offsets in elements of all tensors."""
    lens = [40, 9, 64]
    b = Batch(fw, rng, lens, lens, h_kv=4, dtype="bfloat16")
    k, v, _ = b.packed()
    padded, offsets = b.index([0] * 8), b.index([0] * 9)
    out, space = torch.empty_like(b.q), b.workspace(1 << 25)

    def set(own):
        ends = np.concatenate([np.cumsum([0, *own]), [sum(own)] * 5]) * 4 * 64
        padded.copy_(b.index([*own, 0, 0, 0, 0, 0]))
        offsets.copy_(b.index(ends))
        out.fill_(float("nan"))

    set(lens)
    graph = captured(lambda: cudnn_batch_prefill_with_kv_cache(
        b.q, k, v, 0.125, space, max_token_per_sequence=64, max_sequence_kv=64,
        actual_seq_lens_q=padded, actual_seq_lens_kv=padded, causal=False, return_lse=True,
        batch_offsets_q=offsets, batch_offsets_k=offsets, batch_offsets_v=offsets,
        batch_offsets_o=offsets, is_cuda_graph_compatible=True, out=out))
    q, k64, v64 = (fw.numbers(t) for t in (b.q, k, v))
    for own in (lens, [3, 60, 1], [64, 0, 49]):
        set(own)
        graph.replay()
        got, at = fw.numbers(out), 0
        for n in own:
            mine = slice(at, at + n)
            close(got[mine], attention(q[mine], k64[mine], v64[mine])[0], "bfloat16", 2.0)
            at += n


def test_of_one_length(fw, rng, close):
    """Lengths that are constants of the call."""
    b = Batch(fw, rng, [20] * 3, [20] * 3, h_kv=4, dtype="bfloat16")
    k, v, _ = b.packed()
    q, k, v = (x.reshape(3, 20, 4, 64) for x in (b.q, k, v))
    out = torch.empty_like(q)
    graph = captured(lambda: fmha_v2_prefill_deepseek(q, k, v, out, 4, 64, 20, 0.0))
    out.fill_(float("nan"))
    graph.replay()
    b.check(close, out.reshape(-1, 4, 64), b.expected(causal=True))


def test_lengths_on_the_host_are_refused(fw, rng):
    h = Held(fw, rng, [1] * 5, FIRST)
    trtllm_decode(h)
    h.lens = h.lens.cpu()
    trtllm_decode(h)
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="lengths: expected all on the GPU"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            trtllm_decode(h)


class Latents:
    """Requests over pages of latents, 64 + 16 elements a key."""

    def __init__(self, fw, rng, rows, kv_lens):
        self.fw = fw
        pages = [-(-n // 16) for n in kv_lens]
        self.ids = np.split(rng.permutation(sum(pages) + 3)[:sum(pages)], np.cumsum(pages)[:-1])
        table = np.zeros((len(kv_lens), max(pages)), np.int64)
        for row, ids in zip(table, self.ids):
            row[:len(ids)] = ids
        self.table = fw.tensor(table, "int32")
        self.q = fw.tensor(rng.standard_normal((rows, 8, 80)), "bfloat16")
        self.cache = fw.tensor(rng.standard_normal((sum(pages) + 3, 16, 80)), "bfloat16")
        self.out = _frameworks.empty(self.q, (rows, 8, 64), "bfloat16")
        self.space = _frameworks.full(self.q, (1 << 25,), "uint8", 0xCD)
        self.lens = fw.tensor(np.asarray(kv_lens), "int32")
        self.starts = fw.tensor(np.zeros(len(kv_lens) + 1), "int32")

    def set(self, q_lens, kv_lens):
        self.ends, self.kv_lens = np.concatenate([[0], np.cumsum(q_lens)]), kv_lens
        self.lens.copy_(self.fw.tensor(np.asarray(kv_lens), "int32"))
        self.starts.copy_(self.fw.tensor(self.ends, "int32"))
        self.out.fill_(float("nan"))

    def check(self, close):
        q, cache, out = (self.fw.numbers(x) for x in (self.q, self.cache, self.out))
        for r, (n, ids) in enumerate(zip(self.kv_lens, self.ids)):
            mine, keys = slice(*self.ends[r:r + 2]), cache[ids].reshape(-1, 80)[:n, None]
            close(out[mine], attention(q[mine], keys, keys[..., :64], causal=True, scale=0.1)[0],
                  "bfloat16", 2.0)


def latent_decode(x):
    trtllm_batch_decode_with_kv_cache_mla(x.q[:, None], x.cache, x.space, 48, 64, 16, x.table,
                                          x.lens, 1024, out=x.out[:, None], bmm1_scale=0.1)


def latent_xqa(x):
    keys = x.cache[:, :, None]
    xqa_mla(x.q[:, None], keys, keys[..., :64], x.table, x.lens[:, None], x.out[:, None], x.space,
            None, 16, q_scale=0.1)


def latent_lengths(x):
    trtllm_batch_decode_with_kv_cache_mla(
        x.q, x.cache, x.space, 48, 64, 16, x.table, x.lens, 1024, out=x.out, bmm1_scale=0.1,
        cum_seq_lens_q=x.starts, max_q_len=200)


@pytest.mark.parametrize("call", [latent_decode, latent_xqa, latent_lengths],
                         ids=lambda f: f.__name__)
def test_replays_over_latents(fw, rng, close, call):
    q_lens, kv_lens = PREFILLS if call is latent_lengths else DECODES
    x = Latents(fw, rng, sum(q_lens[0]), kv_lens[0])
    x.set(q_lens[0], kv_lens[0])
    graph = captured(lambda: call(x))
    for q, kv in zip(q_lens, kv_lens):
        x.set(q, kv)
        graph.replay()
        x.check(close)


def test_many_rows(fw, rng, close):
    """Calls that plan on the host outside of a graph."""
    b = Batch(fw, rng, [1000, 1100], [1000, 1100], layout="HND", dtype="bfloat16", page=16)
    out, space = torch.empty_like(b.q), b.workspace()

    def call():
        trtllm_batch_context_with_kv_cache(
            b.q, b.cache, space, table, b.lens, 1100, 1100, 0.125, 1.0, 2, b.qo, b.qo, out=out)

    table, expected = b.table(), b.expected(causal=True)
    for run in (call, call, captured(call).replay):
        out.fill_(float("nan"))
        run()
        b.check(close, out, expected)
