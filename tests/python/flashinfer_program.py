# SPDX-License-Identifier: Apache-2.0
"""A program written for FlashInfer and for nothing else: python flashinfer_program.py DEVICE

It goes through the interface as a server would: attention of one request and of batches, a cache that
grows, a shared prefix, latent attention, a sampling pipeline, torch.compile, a CUDA graph and a
custom attention. Each part is compared with plain torch in float32. The last two parts need a GPU.
"""

import math
import sys

import flashinfer
import torch
from flashinfer.logits_processor import LogitsPipe, Sample, Softmax, Temperature, TopP

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
H, H_KV, D, PAGE = 8, 2, 64, 16
KIND = torch.float16
WORKSPACE = torch.empty(128 * 1024 * 1024, dtype=torch.uint8, device=DEVICE)


def rand(*shape, dtype=KIND):
    return torch.randn(*shape, dtype=dtype, device=DEVICE)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def near(got, expected, tolerance=5e-3):
    torch.testing.assert_close(got.float(), expected.float(), rtol=tolerance, atol=tolerance)


def attention(q, k, v, causal=False, scale=None, window=-1, cap=0.0):
    """[n, h, d] against [s, h_kv, d]; the last of the n tokens sees all s keys."""
    n, s = len(q), len(k)
    k, v = (x.float().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = torch.einsum("nhd,shd->hns", q.float(), k) * (scale or q.shape[-1] ** -0.5)
    if cap:
        logits = cap * torch.tanh(logits / cap)
    at = torch.arange(s - n, s, device=q.device)[:, None]
    keys = torch.arange(s, device=q.device)
    seen = torch.ones(n, s, dtype=torch.bool, device=q.device)
    if causal:
        seen &= keys <= at
    if window >= 0:
        seen &= keys >= at - window
    logits = logits.masked_fill(~seen, -math.inf)
    return torch.einsum("hns,shd->nhd", logits.softmax(-1), v), logits.logsumexp(-1).T / math.log(2)


def paged(lengths):
    """A table of pages, and a cache that is filled through append_paged_kv_cache."""
    pages = [-(-n // PAGE) for n in lengths]
    indptr = ints(0, *torch.tensor(pages).cumsum(0).tolist())
    indices = torch.randperm(sum(pages), device=DEVICE).int()
    last = ints(*[(n - 1) % PAGE + 1 for n in lengths])
    cache = torch.full((sum(pages), 2, PAGE, H_KV, D), math.nan, dtype=KIND, device=DEVICE)
    k, v = rand(sum(lengths), H_KV, D), rand(sum(lengths), H_KV, D)
    ends = ints(0, *torch.tensor(lengths).cumsum(0).tolist())
    batch, positions = flashinfer.get_batch_indices_positions(
        ends, flashinfer.get_seq_lens(indptr, last, PAGE), sum(lengths))
    flashinfer.append_paged_kv_cache(k, v, batch, positions, cache, indices, indptr, last)
    return (indptr, indices, last), cache, k.split(lengths), v.split(lengths)


def single_requests():
    q, k, v = rand(H, D), rand(77, H_KV, D), rand(77, H_KV, D)
    out = flashinfer.single_decode_with_kv_cache(q, k, v)
    near(out, attention(q[None], k, v)[0][0])
    q = rand(9, H, D)
    out, lse = flashinfer.single_prefill_with_kv_cache(
        q, k, v, causal=True, window_left=20, logits_soft_cap=5.0, return_lse=True)
    expected, expected_lse = attention(q, k, v, True, window=20, cap=5.0)
    near(out, expected)
    near(lse, expected_lse)


def batch_decode():
    lengths = [33, 1, 100, 16]
    table, cache, k, v = paged(lengths)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, "NHD")
    wrapper.plan(*table, H, H_KV, D, PAGE, q_data_type=KIND, kv_data_type=KIND)
    q = rand(4, H, D)
    out = wrapper.run(q, cache)
    for i in range(4):
        near(out[i], attention(q[i:i + 1], k[i], v[i])[0][0])


def batch_prefill():
    lengths, new = [33, 7, 100], [5, 7, 1]
    table, cache, k, v = paged(lengths)
    q, qo = rand(sum(new), H, D), ints(0, 5, 12, 13)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD")
    wrapper.plan(qo, *table, H, H_KV, D, PAGE, causal=True, q_data_type=KIND)
    out, lse = wrapper.run(q, cache, return_lse=True)
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD")
    ragged.plan(qo, ints(0, 33, 40, 140), H, H_KV, D, causal=True, q_data_type=KIND)
    packed = ragged.run(q, torch.cat(k), torch.cat(v))
    for part, one, other, ks, vs in zip(q.split(new), out.split(new), packed.split(new), k, v):
        expected = attention(part, ks, vs, True)[0]
        near(one, expected)
        near(other, expected)
    assert lse.shape == (13, H)


def cascade():
    """A prompt that all requests share, and their own keys behind it."""
    shared_k, shared_v = rand(32, H_KV, D), rand(32, H_KV, D)
    lengths = [5, 20]
    table, cache, k, v = paged(lengths)
    first = len(cache)
    both = torch.cat([cache, torch.stack([shared_k.view(2, PAGE, H_KV, D),
                                          shared_v.view(2, PAGE, H_KV, D)], 1)])
    q = rand(2, H, D)
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, WORKSPACE, "NHD")
    wrapper.plan([ints(0, 2), ints(0, 1, 2)], [ints(0, 2), table[0]],
                 [ints(first, first + 1), table[1]], [ints(PAGE), table[2]], H, H_KV, D, PAGE,
                 q_data_type=KIND)
    out = wrapper.run(q, both)
    a, s_a = flashinfer.single_prefill_with_kv_cache(q, shared_k, shared_v, return_lse=True)
    for i in range(2):
        whole = attention(q[i:i + 1], torch.cat([shared_k, k[i]]), torch.cat([shared_v, v[i]]))[0]
        near(out[i], whole[0])
        b, s_b = flashinfer.single_prefill_with_kv_cache(q[i:i + 1], k[i], v[i], return_lse=True)
        near(flashinfer.merge_state(a[i:i + 1], s_a[i:i + 1], b, s_b)[0], whole)


def latent():
    lengths, ckv, kpe, heads = [33, 64], 512, 64, 16
    cache_c, cache_p = rand(7, PAGE, ckv), rand(7, PAGE, kpe)
    q_nope, q_pe = rand(2, heads, ckv), rand(2, heads, kpe)
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(WORKSPACE)
    wrapper.plan(ints(0, 1, 2), ints(0, 3, 7), torch.arange(7, device=DEVICE).int(),
                 ints(*lengths), heads, ckv, kpe, PAGE, False, 192 ** -0.5, KIND, KIND)
    out = wrapper.run(q_nope, q_pe, cache_c, cache_p)
    for i, (start, n) in enumerate(zip((0, 3), lengths)):
        c, p = (x[start:].flatten(0, 1)[:n, None] for x in (cache_c, cache_p))
        q, k = torch.cat([q_nope[i], q_pe[i]], -1)[None], torch.cat([c, p], -1)
        near(out[i], attention(q, k, c, scale=192 ** -0.5)[0][0], 1e-2)


def sampling():
    logits = rand(6, 1000, dtype=torch.float32)
    probs = flashinfer.softmax(logits, temperature=0.5)
    near(probs, (logits / 0.5).softmax(-1), 1e-5)
    allowed = flashinfer.top_k_renorm_probs(probs, 10) > 0
    assert allowed.sum(-1).tolist() == [10] * 6
    ids = flashinfer.top_k_top_p_sampling_from_probs(probs, 10, 0.9)
    assert allowed.gather(1, ids.long()[:, None]).all()
    pipe = LogitsPipe([Temperature(), Softmax(), TopP(), Sample()])
    ids = pipe(logits, temperature=0.01, top_p=0.5)
    assert torch.equal(ids.long(), logits.argmax(-1))


def compiled():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def block(x, residual, weight, q, k, positions):
        flashinfer.fused_add_rmsnorm(x, residual, weight)
        q, k = flashinfer.apply_rope_pos_ids(q, k, positions)
        return flashinfer.silu_and_mul(x) * 2, residual, q, k

    x, residual, weight = rand(5, 64), rand(5, 64), rand(64)
    q, k = rand(5, H, D), rand(5, H_KV, D)
    total = x.float() + residual.float()
    normed = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * weight.float()
    out, left, q_rope, _ = block(x, residual, weight, q, k, ints(0, 1, 2, 3, 4))
    near(left, total)
    near(out, torch.nn.functional.silu(normed[:, :32]) * normed[:, 32:] * 2, 2e-2)
    near(q_rope[0], q[0])  # position 0 turns nothing
    assert not torch.allclose(q_rope[1], q[1])


def graph():
    """Captured once; the lengths of later plans count at the replay."""
    buffers = [torch.zeros(n, dtype=torch.int32, device=DEVICE) for n in (5, 64, 4)]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        WORKSPACE, "NHD", use_cuda_graph=True, paged_kv_indptr_buffer=buffers[0],
        paged_kv_indices_buffer=buffers[1], paged_kv_last_page_len_buffer=buffers[2])
    q, out = rand(4, H, D), rand(4, H, D)
    cache = rand(64, 2, PAGE, H_KV, D)
    captured = None
    for lengths in ([33, 1, 100, 16], [1, 200, 5, 90]):
        table, filled, k, v = paged(lengths)
        cache[:len(filled)] = filled
        wrapper.plan(*table, H, H_KV, D, PAGE, q_data_type=KIND)
        if captured is None:
            wrapper.run(q, cache, out=out)
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                wrapper.run(q, cache, out=out)
        out.zero_()
        captured.replay()
        for i in range(4):
            near(out[i], attention(q[i:i + 1], k[i], v[i])[0][0])


SIGMOID = r"""
struct FlashSigmoid : AttentionVariantBase {
  static constexpr bool use_softmax = false;
  uint32_t window_left, qo_len, kv_len;
  float scale_log2;
  template <typename Params>
  __device__ __host__ FlashSigmoid(const Params& params, uint32_t batch_idx, uint8_t* smem_ptr) {
    qo_len = params.get_qo_len(batch_idx);
    kv_len = params.get_kv_len(batch_idx);
    window_left = kv_len;
    scale_log2 = params.logits_scale * math::log2e;
  }
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return math::ptx_rcp(1.f + math::ptx_exp2(-float(logits * scale_log2)));
  });
  REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale, {
    return output;
  })
};
"""


def custom():
    jit_args = ["sigmoid", KIND, KIND, KIND, torch.int32, D, D, [], [], ["logits_scale"], ["double"],
                "FlashSigmoid", SIGMOID]
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD", jit_args=jit_args)
    ends = ints(0, 30)
    wrapper.plan(ends, ends, H, H, D, causal=False, q_data_type=KIND, kv_data_type=KIND)
    q, k, v = rand(30, H, D), rand(30, H, D), rand(30, H, D)
    p = torch.einsum("nhd,shd->hns", q.float(), k.float()).mul(D ** -0.5).sigmoid()
    near(wrapper.run(q, k, v, D ** -0.5), torch.einsum("hns,shd->nhd", p, v.float()), 2e-2)


def main():
    torch.manual_seed(0)
    for part in (single_requests, batch_decode, batch_prefill, cascade, latent, sampling, compiled):
        part()
        print(part.__name__)
    if DEVICE == "cuda":
        graph()
        print("graph")
        custom()
        print("custom")


if __name__ == "__main__":
    main()
