# SPDX-License-Identifier: Apache-2.0
"""torch.compile(fullgraph=True) through every function of FlashInfer's that takes tensors, against the
same call without it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import bolide  # noqa: E402
from bolide import (  # noqa: E402
    activation, concat_ops, gemm, norm, page, rope, sampling, topk, topk_varlen, triton)
from test_signatures import CALLS, found  # noqa: E402

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])

# Functions without tensors of a model, modules that are loaded, and one whose result has a size that
# lies in a tensor; FlashInfer's own looks at it, too. xqa plans within the call, as the functions do
# that test_contracts.py compiles; the plan of a wrapper stays outside of what is compiled.
NOT_TRACED = {
    "is_gated_activation", "next_positive_power_of_2", "segment_packbits",
    "single_decode_with_kv_cache_with_jit_module", "single_prefill_with_kv_cache_with_jit_module",
    "can_implement_filtered_topk", "xqa"}
WITHOUT_CALLS = ("utils", "testing", "jit", "tllm_enums", "logits_processor")


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    return lambda f, **options: torch.compile(f, fullgraph=True, backend="aot_eager", **options)


def written(function, *likes):
    """A function that writes some tensors, as one that returns them: likes are copied and given
    first."""
    def call(*tensors):
        own = [like.clone() for like in likes]
        function(*own, *tensors)
        return tuple(own)
    return call


def inplace(function):
    """A function that writes its first two tensors."""
    def call(a, b, *tensors):
        a, b = a.clone(), b.clone()
        function(a, b, *tensors)
        return a, b
    return call


def calls(device):
    """One call of each function: name -> (function of tensors, tensors)."""
    half = {"dtype": torch.float16, "device": device}
    wide = {"dtype": torch.bfloat16, "device": device}
    x, w, r = torch.randn(6, 64, **half), torch.randn(64, **half), torch.randn(6, 64, **half)
    f8 = torch.zeros(6, 64, device=device).to(torch.float8_e4m3fn)
    wf, bf = torch.randn(64, device=device), torch.randn(64, device=device)
    q, k = torch.randn(6, 4, 64, **half), torch.randn(6, 2, 64, **half)
    kv = torch.randn(30, 2, 64, **half)
    ids = torch.arange(6, dtype=torch.int32, device=device)
    ends, starts = ids[:2] * 6, ids[:1] * 0
    table = torch.randn(32, 64, device=device)
    logits = torch.randn(6, 90, device=device)
    probs = torch.softmax(logits, -1)
    seed = torch.tensor([5], device=device)
    drawn = dict(seed=seed, offset=seed)
    s = torch.randn(6, 4, device=device)
    lens = ids * 10 + 20
    draft = torch.randint(90, (2, 2), dtype=torch.int32, device=device)
    three = torch.softmax(torch.randn(2, 3, 90, device=device), -1)
    cache = torch.zeros(6, 2, 1, 2, 64, **half)
    cos_sin = torch.randn(16, 64, device=device)
    f8_q, f8_k = (torch.zeros(6, h, 64, device=device).to(torch.float8_e4m3fn) for h in (4, 2))
    video = torch.randn(1, 8, 3 * 2 * 64, **wide)
    norms = [torch.randn(2 * 64, **wide) for _ in "qk"]
    rows, gate = torch.randn(2, 3, 64, **wide), torch.randn(2, 3, 64, **wide)
    made = {
        "rmsnorm": (lambda x, w: bolide.rmsnorm(x, w) * 2, (x, w)),
        "rmsnorm with out": (lambda x, w: bolide.rmsnorm(x, w, out=torch.empty_like(x)) + 1, (x, w)),
        "gemma_rmsnorm": (bolide.gemma_rmsnorm, (x, w)),
        "fused_add_rmsnorm": (inplace(bolide.fused_add_rmsnorm), (x, r, w)),
        "gemma_fused_add_rmsnorm": (inplace(bolide.gemma_fused_add_rmsnorm), (x, r, w)),
        "rmsnorm_quant": (written(lambda o, x, w: bolide.rmsnorm_quant(o, x, w, 0.5), f8), (x, w)),
        "fused_add_rmsnorm_quant": (written(
            lambda o, r, x, w: bolide.fused_add_rmsnorm_quant(o, x, r, w, 0.5), f8, r), (x, w)),
        "fused_rmsnorm_silu": (bolide.fused_rmsnorm_silu, (x, w)),
        "layernorm": (bolide.layernorm, (x, wf, bf)),
        "layernorm_quant": (written(
            lambda o, x, g, b: bolide.layernorm_quant(o, x, g, b, seed.float()), f8), (x, wf, bf)),
        "fused_add_rmsnorm_fp8_block_quant": (written(
            lambda o, s, n, x, r, w: norm.fused_add_rmsnorm_fp8_block_quant(o, s, n, x, r.clone(), w),
            torch.zeros(6, 128, device=device).to(f8.dtype),
            torch.zeros(1, 8, device=device), torch.zeros(6, 128, **wide)),
            (torch.randn(6, 128, **wide), torch.randn(6, 128, **wide), torch.randn(128, **wide))),
        "silu_and_mul": (bolide.silu_and_mul, (x,)),
        "gelu_and_mul": (bolide.gelu_and_mul, (x,)),
        "gelu_tanh_and_mul": (lambda x: activation.gelu_tanh_and_mul(x), (x,)),
        "apply_rope": (bolide.apply_rope, (q, k, ends, starts)),
        "apply_rope_inplace": (inplace(bolide.apply_rope_inplace), (q, k, ends, starts)),
        "apply_rope_pos_ids": (lambda q, k, i: bolide.apply_rope_pos_ids(q, k, i, interleave=True),
                               (q, k, ids)),
        "apply_rope_pos_ids_inplace": (inplace(bolide.apply_rope_pos_ids_inplace), (q, k, ids)),
        "apply_llama31_rope": (bolide.apply_llama31_rope, (q, k, ends, starts)),
        "apply_llama31_rope_inplace": (inplace(bolide.apply_llama31_rope_inplace),
                                       (q, k, ends, starts)),
        "apply_llama31_rope_pos_ids": (bolide.apply_llama31_rope_pos_ids, (q, k, ids)),
        "apply_llama31_rope_pos_ids_inplace": (inplace(bolide.apply_llama31_rope_pos_ids_inplace),
                                               (q, k, ids)),
        "apply_rope_with_cos_sin_cache": (
            lambda i, q, k, t: bolide.apply_rope_with_cos_sin_cache(i, q, k, 64, t),
            (ids, q.flatten(1), k.flatten(1), table)),
        "apply_rope_with_cos_sin_cache_inplace": (
            inplace(lambda q, k, i, t: bolide.apply_rope_with_cos_sin_cache_inplace(i, q, k, 64, t)),
            (q.flatten(1), k.flatten(1), ids, table)),
        "rope_quantize_fp8": (
            lambda q, k, t, i: tuple(o.float() for o in rope.rope_quantize_fp8(
                q, k, q, k, t, i, is_neox=True)), (q, k, cos_sin, ids)),
        "mla_rope_quantize_fp8": (
            lambda q, k, t, i: tuple(o.float() for o in rope.mla_rope_quantize_fp8(
                q, k[:, 0].contiguous(), q, k[:, 1].contiguous(), t, i, is_neox=True)),
            (q, k, cos_sin, ids)),
        "rope_quantize_fp8_append_paged_kv_cache": (
            lambda q, k, t, i: (lambda c: tuple(
                o.float() for o in rope.rope_quantize_fp8_append_paged_kv_cache(
                    q, k, q, k, torch.cat([k, k], -1), t, i, c, i, i[:2] * 6, i * 0, i, page_size=1)
            ) + tuple(o.float() for o in c))(
                tuple(k.new_zeros(6, 1, 2, 128).to(torch.float8_e4m3fn) for _ in "kv")),
            (q, k, cos_sin, ids)),
        "append_paged_kv_cache": (written(
            lambda c, k, i: bolide.append_paged_kv_cache(k, k, i * 0, i, c, i, i[:2] * 6, i[:1] + 1),
            cache), (k, ids)),
        "append_paged_mla_kv_cache": (written(
            lambda c, p, k, i: bolide.append_paged_mla_kv_cache(
                k[:, :1].expand(6, 1, 64).reshape(6, 64).repeat(1, 8), k[:, 0], i * 0, i, c, p, i,
                i[:2] * 6, i[:1] + 1),
            torch.zeros(6, 1, 512, **half), torch.zeros(6, 1, 64, **half)), (k, ids)),
        "get_batch_indices_positions": (
            lambda e, s: page.get_batch_indices_positions(e, s, 6), (ends, ids[:1] + 6)),
        "get_seq_lens": (lambda e, s: bolide.get_seq_lens(e, s, 16), (ends, ids[:1] + 6)),
        "single_decode_with_kv_cache": (lambda q, k: bolide.single_decode_with_kv_cache(
            q[0], k, k, k_scale=0.5, return_lse=True), (q, kv)),
        "single_prefill_with_kv_cache": (
            lambda q, k: bolide.single_prefill_with_kv_cache(q, k, k, causal=True), (q, kv)),
        "single_prefill_with_kv_cache_return_lse": (
            lambda q, k: bolide.single_prefill_with_kv_cache_return_lse(q, k, k), (q, kv)),
        "merge_state": (bolide.merge_state, (q, s, q, s * 2)),
        "merge_state_in_place": (inplace(bolide.merge_state_in_place), (q, s, q * 2, s * 2)),
        "merge_states": (bolide.merge_states, (torch.stack([q, q * 2], 1), torch.stack([s, s], 1))),
        "variable_length_merge_states": (
            triton.cascade.variable_length_merge_states,
            (q, s, torch.arange(len(q) + 1, dtype=torch.int32, device=device))),
        "concat_mla_k": (written(concat_ops.concat_mla_k, torch.zeros(6, 128, 192, **half)),
                         (torch.randn(6, 128, 128, **half), torch.randn(6, 1, 64, **half))),
        "packbits": (lambda p: bolide.packbits(p.flatten() > 0.01, "little"), (probs,)),
        "mm_bf16": (lambda a, b: bolide.mm_bf16(a, b, out_dtype=torch.float32),
                    (x.bfloat16(), r.bfloat16().T)),
        "bmm_bf16": (bolide.bmm_bf16, (rows, rows.mT)),
        "tgv_gemm_sm100": (lambda a, b, c: bolide.tgv_gemm_sm100(a, b, c),
                           (x.bfloat16(), r.bfloat16().T, r[0, :6].bfloat16())),
        "tinygemm_bf16": (written(lambda o, a, b: gemm.tinygemm_bf16(a, b, o),
                                  torch.zeros(6, 6, **wide)), (x.bfloat16(), r.bfloat16())),
        "softmax": (lambda p: bolide.softmax(p, 0.5), (logits,)),
        "sampling_from_probs": (lambda p: bolide.sampling_from_probs(p, **drawn), (probs,)),
        "sampling_from_logits": (lambda p: bolide.sampling_from_logits(p, **drawn), (logits,)),
        "top_p_sampling_from_probs": (
            lambda p: bolide.top_p_sampling_from_probs(p, 0.9, **drawn), (probs,)),
        "top_k_sampling_from_probs": (
            lambda p: bolide.top_k_sampling_from_probs(p, 9, **drawn), (probs,)),
        "min_p_sampling_from_probs": (
            lambda p: bolide.min_p_sampling_from_probs(p, 0.1, **drawn), (probs,)),
        "top_k_top_p_sampling_from_probs": (lambda p: bolide.top_k_top_p_sampling_from_probs(
            p, 9, 0.9, return_valid=True, **drawn), (probs,)),
        "top_k_top_p_sampling_from_logits": (
            lambda p: bolide.top_k_top_p_sampling_from_logits(p, 9, 0.9, **drawn), (logits,)),
        "top_p_renorm_probs": (lambda p: bolide.top_p_renorm_probs(p, 0.9), (probs,)),
        "top_k_renorm_probs": (lambda p: bolide.top_k_renorm_probs(p, 9), (probs,)),
        "top_k_mask_logits": (lambda p: bolide.top_k_mask_logits(p, 9), (logits,)),
        "chain_speculative_sampling": (
            lambda d, t, p: sampling.chain_speculative_sampling(d, t, p, **drawn),
            (three[:, :2].contiguous(), draft, three)),
        "top_k": (lambda p: bolide.top_k(p, 5, sorted=True), (logits,)),
        "top_k_page_table_transform": (
            lambda p, t, n: topk.top_k_page_table_transform(p, t, n, 5),
            (logits, torch.arange(6 * 90, dtype=torch.int32, device=device).view(6, 90), lens)),
        "top_k_ragged_transform": (
            lambda p, i, n: topk.top_k_ragged_transform(p, i, n, 5), (logits, ids, lens)),
        "topk_clusters_exact": (lambda p: topk.topk_clusters_exact(p, 5), (logits,)),
        "topk_clusters_page_table_transform": (
            lambda p, t, n: topk.topk_clusters_page_table_transform(p, n, t, 5),
            (logits, torch.arange(6 * 90, dtype=torch.int32, device=device).view(6, 90), lens)),
        "topk_clusters_ragged_transform": (
            lambda p, i, n: topk.topk_clusters_ragged_transform(p, n, i, 5), (logits, ids, lens)),
        "top_k_varlen": (lambda p, n: topk_varlen.top_k_varlen(p, n, 5), (logits, lens)),
        "triton.activation.silu_and_mul": (triton.activation.silu_and_mul, (x,)),
        "rms_norm": (written(lambda o, x, w: triton.norm.rms_norm(x, w, o, 1e-6), x), (x, w)),
        "rms_norm_add_residual": (inplace(
            lambda x, r, w: triton.norm.rms_norm_add_residual(x, r, w, 1e-6)), (x, r, w)),
        "fused_dit_gate_residual_layernorm_gamma_beta": (
            bolide.fused_dit_gate_residual_layernorm_gamma_beta, (rows, rows, gate, wf, bf)),
        "fused_dit_gate_residual_layernorm_scale_shift": (
            bolide.fused_dit_gate_residual_layernorm_scale_shift, (rows, rows, gate, gate, gate)),
        "fused_dit_residual_layernorm_scale_shift": (
            lambda x, s, t: bolide.fused_dit_residual_layernorm_scale_shift(x, s, t, residual=x),
            (rows, gate, gate)),
        "fused_qk_rmsnorm_rope": (
            lambda x, a, b: bolide.fused_qk_rmsnorm_rope(
                x, a, b, ppf=2, pph=2, ppw=2, num_frame_channels=20, num_height_channels=22,
                num_width_channels=22, num_heads_q=2, num_heads_k=2, num_heads_v=2, head_dim=64),
            (video, *norms)),
    }
    for name, width, depth in (("mm_M1_16_K6144_N256", 256, 6144),
                               ("mm_M1_16_K7168_N128", 128, 7168),
                               ("mm_M1_16_K7168_N256", 256, 7168)):
        made[name] = (written(
            lambda o, a, b, f=getattr(gemm, name): f(a, b, o), torch.zeros(2, width, device=device)),
            (torch.randn(2, depth, **wide), torch.randn(width, depth, **wide).T))
    return made


def test_every_function_is_here():
    called = {name.split(" ")[0].rsplit(".", 1)[-1] for name in calls("cpu")}
    names = {id(found(row)): row["name"].rsplit(".", 1)[-1] for row in reversed(CALLS)
             if row["kind"] == "function"
             and not getattr(found(row), "__module__", "").startswith("bolide._wrappers")
             and row["module"].split(".")[1:2] not in [[m] for m in WITHOUT_CALLS]}
    left = {n for n in names.values() if not n.startswith("gen_")} - called - NOT_TRACED
    aliases = {"top_k_renorm_prob", "top_p_renorm_prob", "topk"}
    assert not left - aliases


def called(device, name):
    """A function, its tensors and what it returns; skips what the GPU does not have."""
    function, tensors = calls(device)[name]
    try:
        return function, tensors, function(*tensors)
    except NotImplementedError as error:
        if device == "cuda":
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", list(calls("cpu")))
def test_compile(compiled, name, device):
    assert bolide.float32 == np.dtype("float32")  # torch 2.11 traces no dictionary with such a key
    function, tensors, eager = called(device, name)
    traced = compiled(function)(*tensors)
    if isinstance(eager, torch.Tensor):
        eager, traced = (eager,), (traced,)
    assert len(eager) == len(traced) > 0
    for a, b in zip(eager, traced):
        assert a is b is None or a.dtype == b.dtype
        if a is not None:
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", list(calls("cpu")))
def test_modes_see_calls(name, device):
    """Without Dynamo, too: a graph made by a mode has the call, and does not keep its result."""
    from torch.fx.experimental.proxy_tensor import make_fx

    function, tensors, eager = called(device, name)
    graph = make_fx(lambda *given: function(*given))(*tensors)
    assert any("bolide" in str(node.target) for node in graph.graph.nodes)
    eager, traced = ((r,) if isinstance(r, torch.Tensor) else tuple(r)
                     for r in (eager, graph(*tensors)))
    for a, b in zip(eager, traced, strict=True):
        assert a is b is None or torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("device", DEVICES)
def test_runs_of_wrappers_in_modes(device):
    """A plan is made whoever looks on; the run is in the graph, with either form of a cache."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    kind = {"dtype": torch.bfloat16, "device": device}
    cache, q = torch.randn(9, 2, 8, 2, 64, **kind), torch.randn(3, 4, 64, **kind)
    wrapper = bolide.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(1 << 22, dtype=torch.uint8, device=device))
    with FlopCounterMode(display=False):
        wrapper.plan(torch.tensor([0, 3, 6, 9], dtype=torch.int32),
                     torch.arange(9, dtype=torch.int32, device=device),
                     torch.tensor([8, 1, 5], dtype=torch.int32), 4, 2, 64, 8, q_data_type="bfloat16")
        counted = wrapper.run(q, cache)
    assert torch.equal(counted, wrapper.run(q, cache))
    for given in (cache, cache.unbind(1)):
        graph = make_fx(lambda q: wrapper.run(q, given))(q)  # noqa: B023
        assert torch.equal(graph(q + 1), wrapper.run(q + 1, given))


@pytest.mark.parametrize("device", DEVICES)
def test_fake_tensors(device):
    """Shapes and dtypes without a run, inside of the mode and behind it."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x, w = (torch.empty(*n, dtype=torch.float16, device=device) for n in ((5, 64), (64,)))
        inside = bolide.rmsnorm(x, w)
    for found_there in (inside, bolide.rmsnorm(x, w)):
        assert type(found_there) is type(x)
        assert (found_there.shape, found_there.dtype) == (x.shape, x.dtype)


def test_export():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(64))

        def forward(self, x):
            return bolide.silu_and_mul(bolide.rmsnorm(x, self.weight))

    block, rows = Block(), torch.export.Dim("rows", min=2, max=64)
    made = torch.export.export(block, (torch.randn(5, 64),), dynamic_shapes=({0: rows},))
    x = torch.randn(9, 64)
    assert torch.equal(made.module()(x), block(x))


@pytest.mark.parametrize("device", DEVICES)
def test_symbolic_sizes(compiled, device):
    w = torch.randn(64, device=device)
    traced = compiled(lambda x: bolide.silu_and_mul(bolide.rmsnorm(x, w)), dynamic=True)
    for n in (3, 5, 17):
        x = torch.randn(n, 64, device=device)
        assert torch.equal(traced(x), bolide.silu_and_mul(bolide.rmsnorm(x, w)))


@pytest.mark.parametrize("device", DEVICES)
def test_draws_without_a_seed(compiled, device):
    probs = torch.full((200, 50), 0.02, device=device)
    traced = compiled(lambda p: bolide.sampling_from_probs(p))
    a, b = traced(probs), traced(probs)
    assert not torch.equal(a, b) and int(a.max()) < 50 and int(a.min()) >= 0
