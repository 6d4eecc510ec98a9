# SPDX-License-Identifier: Apache-2.0
"""Normalisation by rows: RMS norm, layer norm, and their fused and quantised forms.

Sums run in float32 and there is one rounding, at the end. Tensors are float16, bfloat16 or
float32, on the GPU or the CPU; rows may be padded (a stride of the first dimensions), columns are
contiguous.
``eps`` (``epsilon``) is added to the mean of squares, or to the variance, under the root.
``enable_pdl`` is a hint that changes no result. Shapes, dtypes and devices that do not fit raise
ValueError, what one device lacks NotImplementedError, each with the library's sentence.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from . import _docs, _frameworks, _missing
from ._arguments import later
from ._binding import operator
from .jit.modules import gen_norm_module  # noqa: F401

Tensor = Any
_F8_E4M3 = 1 << 4

_rmsnorm = operator("rmsnorm", "input weight out eps")
_gemma_rmsnorm = operator("gemma_rmsnorm", "input weight out eps")
_rmsnorm_quant = operator("rmsnorm_quant", "input weight scale out eps")
_fused_rmsnorm_silu = operator("fused_rmsnorm_silu", "input weight out eps")
_fused_add_rmsnorm = operator("fused_add_rmsnorm", "input residual weight eps")
_gemma_fused_add = operator("gemma_fused_add_rmsnorm", "input residual weight eps")
_fused_add_quant = operator("fused_add_rmsnorm_quant", "input residual weight scale out eps")
_fused_add_block = operator("fused_add_rmsnorm_fp8_block_quant",
                            "input residual weight out block_scale normed_out eps")
_layernorm = operator("layernorm", "input gemma beta out eps")
_layernorm_quant = operator("layernorm_quant", "input gemma beta scale out eps")
_qk_rope = operator(
    "fused_qk_rmsnorm_rope",
    "qkv q_weight k_weight ppf pph ppw num_frame_channels num_height_channels num_width_channels "
    "num_heads_q num_heads_k num_heads_v head_dim eps base interleave factor low high "
    "attention_factor is_qk_norm output_fp8 output_quant_scale v_quant_scale q_out k_out v_out")
_dit_gamma_beta = operator(
    "fused_dit_gate_residual_layernorm_gamma_beta",
    "input residual gate gate_bias gamma beta epsilon input_global_scaling_factor residual_out "
    "norm_out")
_dit_gate_shift = operator(
    "fused_dit_gate_residual_layernorm_scale_shift",
    "input residual gate gate_bias scale shift scale_bias shift_bias epsilon "
    "input_global_scaling_factor residual_out norm_out")
_dit_shift = operator(
    "fused_dit_residual_layernorm_scale_shift",
    "input residual scale shift scale_bias shift_bias epsilon input_global_scaling_factor "
    "residual_out norm_out")


def rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6, out: Optional[Tensor] = None,
            enable_pdl: Optional[bool] = None) -> Tensor:
    """``input / sqrt(mean(input ** 2) + eps) * weight``, row by row.

    :param input: ``[n, d]``, or ``[n, heads, d]`` for a norm of each head.
    :param weight: ``[d]``, of input's dtype.
    :param out: like input, and may be input itself; allocated if it is not given.
    :returns: out.
    """
    made = _rmsnorm(input, weight, out, eps)
    return made if out is None else out


def gemma_rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6, out: Optional[Tensor] = None,
                  enable_pdl: Optional[bool] = None) -> Tensor:
    """:func:`rmsnorm` with ``1 + weight`` in the place of weight, the sum in float32."""
    made = _gemma_rmsnorm(input, weight, out, eps)
    return made if out is None else out


def rmsnorm_quant(out: Tensor, input: Tensor, weight: Tensor, scale: Union[float, Tensor],
                  eps: float = 1e-6, enable_pdl: Optional[bool] = None) -> None:
    """``out = rmsnorm(input, weight) / scale``, held in the range of out's fp8 dtype.

    :param out: shape of input, float8_e4m3fn or float8_e5m2; written.
    :param scale: a number, or a float32 tensor of one element.
    """
    _rmsnorm_quant(input, weight, scale, out, eps)


def fused_rmsnorm_silu(input: Tensor, weight: Tensor, eps: float = 1e-6,
                       out: Optional[Tensor] = None,
                       block_scale: Optional[Tensor] = None) -> Union[Tensor, tuple]:
    """``silu(rmsnorm(input, weight))`` of the float32 values before any rounding.

    :param out: shape of input; its dtype may be input's or float8_e4m3fn. Allocated like input if
        it is not given.
    :param block_scale: of outputs in FP4, which this version does not have; it is refused.
    """
    later("fused_rmsnorm_silu", block_scale=block_scale)
    if out is None:
        out = _frameworks.empty(input, input.shape, input.dtype)
    _fused_rmsnorm_silu(input, weight, out, eps)
    return out


def fused_add_rmsnorm(input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6,
                      enable_pdl: Optional[bool] = None) -> None:
    """In place: ``residual += input``, then ``input = rmsnorm(residual, weight)``.

    The sum that is normalised is not rounded; residual stores it rounded.
    """
    _fused_add_rmsnorm(input, residual, weight, eps)


def gemma_fused_add_rmsnorm(input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6,
                            enable_pdl: Optional[bool] = None) -> None:
    """:func:`fused_add_rmsnorm` with ``1 + weight``."""
    _gemma_fused_add(input, residual, weight, eps)


def fused_add_rmsnorm_quant(out: Tensor, input: Tensor, residual: Tensor, weight: Tensor,
                            scale: Union[float, Tensor], eps: float = 1e-6,
                            enable_pdl: Optional[bool] = None) -> None:
    """``residual += input`` in place, ``out = rmsnorm(residual, weight) / scale`` in fp8."""
    _fused_add_quant(input, residual, weight, scale, out, eps)


def fused_add_rmsnorm_fp8_block_quant(out: Tensor, block_scale: Tensor, normed_out: Tensor,
                                      input: Tensor, residual: Tensor, weight: Tensor,
                                      eps: float = 1e-6,
                                      enable_pdl: Optional[bool] = None) -> None:
    """:func:`fused_add_rmsnorm` into normed_out, and the same in fp8 with a scale for each 128
    columns of a row.

    :param out: ``[n, d]`` float8_e4m3fn.
    :param block_scale: ``[d/128, pad(n, 4)]`` float32.
    :param normed_out: ``[n, d]`` like input.
    """
    _fused_add_block(input, residual, weight, out, block_scale, normed_out, eps)


def layernorm(input: Tensor, gemma: Tensor, beta: Tensor, eps: float = 1e-6) -> Tensor:
    """``(input - mean) / sqrt(variance + eps) * gemma + beta``, row by row.

    :param gemma: ``[d]`` float32, the scale.
    :param beta: ``[d]`` float32.
    :returns: a tensor like input.
    """
    return _layernorm(input, gemma, beta, None, eps)


def layernorm_quant(out: Tensor, input: Tensor, gemma: Tensor, beta: Tensor,
                    scale: Union[float, Tensor], eps: float = 1e-6) -> None:
    """``out = layernorm(input, gemma, beta) / scale``, held in the range of out's fp8 dtype."""
    _layernorm_quant(input, gemma, beta, scale, out, eps)


def fused_qk_rmsnorm_rope(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, *, ppf: int, pph: int, ppw: int,
    num_frame_channels: int, num_height_channels: int, num_width_channels: int, num_heads_q: int,
    num_heads_k: int, num_heads_v: int, head_dim: int, eps: float = 1e-6, base: float = 10000.0,
    interleave: bool = True, factor: float = 1.0, low: float = 0.0, high: float = 0.0,
    attention_factor: float = 1.0, is_qk_norm: bool = True, output_fp8: bool = False,
    output_quant_scale: float = 1.0, v_quant_scale: float = 1.0, q_out: Optional[Tensor] = None,
    k_out: Optional[Tensor] = None, v_out: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Tensor]:
    """RMS norm of q and k, then rotary embedding by frame, height and width, from packed qkv.

    :param qkv: ``[b, ppf*pph*ppw, (num_heads_q + num_heads_k + num_heads_v) * head_dim]``; a token
        has a place in each of the ppf frames, pph rows and ppw columns.
    :param q_weight: with k_weight ``[heads * head_dim]``, of qkv's dtype; is_qk_norm switches the
        norm.
    :param num_frame_channels: with num_height_channels and num_width_channels the columns of a head
        that each of the three places turns; together head_dim.
    :param base: of the frequencies; interleave turns pairs of neighbours, else halves.
    :param factor: divides frequencies, not up to index low, in full from high on; attention_factor
        multiplies the turned q and k.
    :param output_fp8: results in float8_e4m3fn; output_quant_scale multiplies q and k there,
        v_quant_scale v.
    :param q_out: with k_out and v_out the results' memory; allocated if not given.
    :returns: q, k, v, each ``[b, tokens, heads, head_dim]``, of qkv's dtype or float8_e4m3fn.
    """
    dtype = _F8_E4M3 if output_fp8 else qkv.dtype
    outs = [
        out if out is not None
        else _frameworks.empty(qkv, (*qkv.shape[:2], heads, head_dim), dtype)
        for out, heads in ((q_out, num_heads_q), (k_out, num_heads_k), (v_out, num_heads_v))
    ]
    _qk_rope(qkv, q_weight, k_weight, ppf, pph, ppw, num_frame_channels, num_height_channels,
             num_width_channels, num_heads_q, num_heads_k, num_heads_v, head_dim, eps, base,
             interleave, factor, low, high, attention_factor, is_qk_norm, output_fp8,
             output_quant_scale, v_quant_scale, *outs)
    return tuple(outs)


def _dit_outputs(input, residual_out, norm_out):
    if residual_out is None:
        residual_out = _frameworks.empty(input, input.shape, input.dtype)
    if norm_out is None:
        norm_out = _frameworks.empty(input, input.shape, input.dtype)
    return residual_out, norm_out


def fused_dit_gate_residual_layernorm_gamma_beta(
    input: Tensor, residual: Tensor, gate: Tensor, gamma: Tensor, beta: Tensor, *,
    gate_bias: Optional[Tensor] = None, epsilon: float = 1e-6, use_nvfp4: bool = False,
    use_mxfp8: bool = False, global_scaling_factor: Optional[Tensor] = None,
    input_global_scaling_factor: Optional[Tensor] = None, residual_out: Optional[Tensor] = None,
    norm_out: Optional[Tensor] = None, sf_out: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """``residual + input * (gate + gate_bias)`` and its layer norm with gamma and beta.

    :param gate: ``[b, s, d]``, as input and residual. :param gate_bias: ``[d]`` float32, added to it.
    :param gamma: with beta ``[d]`` float32.
    :param residual_out: with norm_out the results' memory; allocated if not given.
    :param input_global_scaling_factor: one float32 that input is multiplied by.
    :param use_nvfp4: with use_mxfp8, global_scaling_factor and sf_out of formats that are refused.
    :returns: the new residual and the norm, ``[b, s, d]`` like input. FP4 and MX outputs are not in
        this version; their arguments are refused.
    """
    later("fused_dit_gate_residual_layernorm_gamma_beta", use_nvfp4=use_nvfp4, use_mxfp8=use_mxfp8,
          global_scaling_factor=global_scaling_factor, sf_out=sf_out)
    outs = _dit_outputs(input, residual_out, norm_out)
    _dit_gamma_beta(input, residual, gate, gate_bias, gamma, beta, epsilon,
                    input_global_scaling_factor, *outs)
    return outs


def fused_dit_gate_residual_layernorm_scale_shift(
    input: Tensor, residual: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, *,
    gate_bias: Optional[Tensor] = None, scale_bias: Optional[Tensor] = None,
    shift_bias: Optional[Tensor] = None, epsilon: float = 1e-6, use_nvfp4: bool = False,
    use_mxfp8: bool = False, global_scaling_factor: Optional[Tensor] = None,
    input_global_scaling_factor: Optional[Tensor] = None, residual_out: Optional[Tensor] = None,
    norm_out: Optional[Tensor] = None, sf_out: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """``residual + input * (gate + gate_bias)`` and its layer norm, scaled by ``1 + scale`` and
    shifted by ``shift`` (each with its bias). Returns as
    :func:`fused_dit_gate_residual_layernorm_gamma_beta`."""
    later("fused_dit_gate_residual_layernorm_scale_shift", use_nvfp4=use_nvfp4,
          use_mxfp8=use_mxfp8, global_scaling_factor=global_scaling_factor, sf_out=sf_out)
    outs = _dit_outputs(input, residual_out, norm_out)
    _dit_gate_shift(input, residual, gate, gate_bias, scale, shift, scale_bias, shift_bias, epsilon,
                    input_global_scaling_factor, *outs)
    return outs


def fused_dit_residual_layernorm_scale_shift(
    input: Tensor, scale: Tensor, shift: Tensor, *, residual: Optional[Tensor] = None,
    scale_bias: Optional[Tensor] = None, shift_bias: Optional[Tensor] = None,
    epsilon: float = 1e-6, use_nvfp4: bool = False, use_mxfp8: bool = False,
    global_scaling_factor: Optional[Tensor] = None,
    input_global_scaling_factor: Optional[Tensor] = None, residual_out: Optional[Tensor] = None,
    norm_out: Optional[Tensor] = None, sf_out: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """``residual + input`` (input alone without residual) and its layer norm, scaled by
    ``1 + scale`` and shifted by ``shift``. Returns as
    :func:`fused_dit_gate_residual_layernorm_gamma_beta`."""
    later("fused_dit_residual_layernorm_scale_shift", use_nvfp4=use_nvfp4, use_mxfp8=use_mxfp8,
          global_scaling_factor=global_scaling_factor, sf_out=sf_out)
    outs = _dit_outputs(input, residual_out, norm_out)
    _dit_shift(input, residual, scale, shift, scale_bias, shift_bias, epsilon,
               input_global_scaling_factor, *outs)
    return outs


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
