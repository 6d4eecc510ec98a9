# SPDX-License-Identifier: Apache-2.0
"""The modules of functions that FlashInfer would compile: each function against the one that the
package has in front of it."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from bolide import jit


def filled(fw, like):
    return fw.tensor(np.full(like.shape, np.nan), "float16")


@pytest.fixture
def data(fw, rng):
    if fw.name == "numpy":
        pytest.skip("tvm-ffi takes tensors of frameworks with DLPack's exchange or its own")
    return lambda *shape: fw.tensor(rng.standard_normal(shape), "float16")


def same(fw, a, b):
    assert np.array_equal(fw.numbers(a), fw.numbers(b), equal_nan=True)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_activation(fw, data, name):
    x = data(3, 128)
    out = filled(fw, x[:, :64])
    module = bolide.activation.gen_act_and_mul_module(name).build_and_load()
    getattr(module, f"{name}_and_mul")(out, x, False)
    same(fw, out, getattr(bolide, f"{name}_and_mul")(x))
    with pytest.raises(NotImplementedError, match="act_func_name: expected silu"):
        jit.gen_act_and_mul_module("relu")


def test_norm(fw, data):
    x, w = data(3, 64), data(64)
    module = bolide.norm.gen_norm_module().load()
    for name in ("rmsnorm", "gemma_rmsnorm"):
        out = filled(fw, x)
        getattr(module, name)(out, x, w, 1e-5, True)
        same(fw, out, getattr(bolide, name)(x, w, 1e-5))


def test_rope(fw, data):
    q, k = data(5, 4, 64), data(5, 2, 64)
    outs = filled(fw, q), filled(fw, k)
    indptr, offsets = fw.tensor(np.array([0, 2, 5]), "int32"), fw.tensor(np.array([7, 0]), "int32")
    module = bolide.jit.rope.gen_rope_module().try_load()
    module.apply_rope(q, k, *outs, indptr, offsets, 64, False, 1.0, 1e4)
    for ours, theirs in zip(outs, bolide.apply_rope(q, k, indptr, offsets)):
        same(fw, ours, theirs)


def test_attention(fw, data):
    q, k, v = data(5, 4, 64), data(40, 2, 64), data(40, 2, 64)
    kinds = ("float16", "float16", "float16", 64, 64, 0, True, False)
    tmp = fw.tensor(np.zeros(1 << 24), "uint8")
    out, lse = filled(fw, q[0]), fw.tensor(np.zeros(4), "float32")
    run = jit.gen_single_decode_module(*kinds).build_and_load().run
    run(q[0], k, v, tmp, out, lse, 0, 9, None, 0.0, 0.3, 1.0, 1e-4)
    expected = bolide.single_decode_with_kv_cache(q[0], k, v, window_left=9, sm_scale=0.3,
                                                  return_lse=True)
    same(fw, out, expected[0])
    same(fw, lse, expected[1])
    with pytest.raises(NotImplementedError, match="alibi_slopes: expected None"):
        run(q[0], k, v, tmp, out, None, 0, -1, lse, 0.0, 0.3, 1.0, 1e-4)
    big = data(9000, 2, 64)
    small = q[0], big, big, tmp[:16], out, None, 0, -1, None, 0.0, 0.3, 1.0, 1e-4
    if fw.device == "cpu":  # which has scratch of its own
        run(*small)
        same(fw, out, bolide.single_decode_with_kv_cache(q[0], big, big, sm_scale=0.3))
    else:
        with pytest.raises(ValueError, match="workspace: size: expected at least .* got 16"):
            run(*small)
    run = jit.gen_single_prefill_module("auto", *kinds, False).build_and_load().run
    out = filled(fw, q)
    for mode in (0, 1):
        run(q, k, v, tmp, out, None, mode, 0, -1, None, None, 5.0, 0.3, 1.0, 1e-4)
        same(fw, out, bolide.single_prefill_with_kv_cache(
            q, k, v, causal=mode == 1, sm_scale=0.3, logits_soft_cap=5.0))
    with pytest.raises(ValueError, match="packed_custom_mask: expected with mask_mode 2"):
        run(q, k, v, tmp, out, None, 2, 0, -1, None, None, 0.0, 0.3, 1.0, 1e-4)


def test_specs():
    spec = jit.gen_single_decode_module("float16", "bfloat16", "float16", 128, 64, 0, False, True)
    assert spec.name == ("single_decode_with_kv_cache_dtype_q_f16_dtype_kv_bf16_dtype_o_f16_"
                         "head_dim_qk_128_head_dim_vo_64_posenc_0_use_swa_False_"
                         "use_logits_cap_True")
    assert spec.is_compiled and spec.get_library_path().exists()
    assert spec.load() is spec.build_and_load() is spec.try_load()
    jit.build_jit_specs([spec], verbose=True)
    error = jit.MissingJITCacheError("not built", spec)
    assert isinstance(error, RuntimeError) and error.spec is spec
    assert jit.core.JitSpec is jit.JitSpec


def made_of_templates(folder, dtype="half", **more):
    """The files of a module as a program renders them, and what is asked of it by default."""
    jinja2 = pytest.importorskip("jinja2")
    from bolide.jit.attention.utils import generate_additional_params
    from bolide.jit.utils import write_if_different

    declared, arguments, kept = generate_additional_params(
        ["maybe_alibi_slopes"], ["float"],
        ["logits_soft_cap", "sm_scale", "rope_rcp_scale", "rope_rcp_theta"], ["double"] * 4)
    values = {
        "additional_params_decl": declared, "additional_func_params": arguments,
        "additional_params_setter": kept, "dtype_q": dtype, "dtype_kv": dtype, "dtype_o": dtype,
        "variant_decl": "#include<flashinfer/attention/variants.cuh>",
        "variant_name": "DefaultAttention<false, false, false, false>", "head_dim_qk": 64,
        "head_dim_vo": 64, "pos_encoding_mode": "PosEncodingMode::kNone",
        "use_sliding_window": "false", "use_logits_soft_cap": "false", **more}
    here = jit.env.FLASHINFER_CSRC_DIR
    for template, file in (("single_decode_customize_config.jinja", "single_decode_config.inc"),
                           ("single_decode_kernel_inst.jinja", "single_decode_kernel.cu")):
        write_if_different(folder / file, jinja2.Template((here / template).read_text()).render(values))
    sources = [folder / "single_decode_kernel.cu"]
    for file in ("single_decode.cu", "single_decode_jit_binding.cu"):
        write_if_different(folder / file, (here / file).read_text())
        sources.append(folder / file)
    return sources


def test_module_of_templates(fw, data, tmp_path):
    """FlashInfer's tutorial for JAX renders templates and has the files compiled."""
    assert jit.env.FLASHINFER_GEN_SRC_DIR.name == "generated"
    module = jit.gen_jit_spec("decode", made_of_templates(tmp_path)).build_and_load()
    q, k, v, scratch = data(8, 64), data(33, 2, 64), data(33, 2, 64), data(1 << 20)
    out = filled(fw, q)
    module.run(q, k, v, scratch, out, None, 0, -1, None, 0.0, 0.125, 1.0, 1e-4)
    same(fw, out, bolide.single_decode_with_kv_cache(q, k, v, sm_scale=0.125))


def test_files_of_others_are_refused(tmp_path):
    sources = made_of_templates(tmp_path)
    with pytest.raises(NotImplementedError, match="gen_jit_spec: sources: expected single_decode_k"):
        jit.gen_jit_spec("decode", sources[1:])
    sources[1].write_text("__global__ void f() {}")
    with pytest.raises(NotImplementedError, match="gen_jit_spec: single_decode.cu: expected the file"):
        jit.gen_jit_spec("decode", sources)
    for more, text in (({"variant_name": "Own"}, "variant_name: expected DefaultAttention"),
                       ({"dtype_kv": "int8_t"}, "dtype: expected .*; got int8_t"),
                       ({"additional_func_params": "double x"}, "additional_func_params")):
        with pytest.raises(NotImplementedError, match="gen_jit_spec: " + text):
            jit.gen_jit_spec("decode", made_of_templates(tmp_path / "other", **more))
