# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding.

``interleave=False`` pairs channel i with ``i + rotary_dim / 2``, True pairs neighbours. Channels
from ``rotary_dim`` on are copied. Angles are reduced before the sine, so that positions up to 2**20
keep the accuracy of the dtype. Each function has a form that returns new tensors and one that works
in place.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _docs, _frameworks, _missing
from ._arguments import check_backend, split_paged
from ._binding import operator

Tensor = Any

_SCALES = "rotary_dim interleave rope_scale rope_theta"
_LLAMA = " low_freq_factor high_freq_factor old_context_len"
_rope = operator("apply_rope", "q k q_rope_out k_rope_out indptr offsets " + _SCALES)
_rope_ids = operator("apply_rope_pos_ids", "q k q_rope_out k_rope_out pos_ids " + _SCALES)
_llama = operator("apply_llama31_rope",
                  "q k q_rope_out k_rope_out indptr offsets " + _SCALES + _LLAMA)
_llama_ids = operator("apply_llama31_rope_pos_ids",
                      "q k q_rope_out k_rope_out pos_ids " + _SCALES + _LLAMA)
_cache = operator("apply_rope_with_cos_sin_cache",
                  "positions query key cos_sin_cache query_out key_out is_neox")

_PARTS = "q_rope k_rope q_nope k_nope cos_sin_cache pos_ids "
_QUANT = " is_neox quant_scale_q quant_scale_kv"
_OUTS = "q_rope_out k_rope_out q_nope_out k_nope_out"
_fp8 = operator("rope_quantize_fp8", _PARTS + _OUTS + _QUANT)
_fp8_mla = operator("mla_rope_quantize_fp8", _PARTS + _OUTS + _QUANT)
_fp8_append = operator(
    "rope_quantize_fp8_append_paged_kv_cache",
    _PARTS + "v k_cache v_cache ckv_cache kpe_cache kv_indices kv_indptr batch_indices positions "
    "q_rope_out q_nope_out" + _QUANT + " page_size kv_layout")


def apply_rope(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor,
               rotary_dim: Optional[int] = None, interleave: bool = False, rope_scale: float = 1,
               rope_theta: float = 1e4) -> Tuple[Tensor, Tensor]:
    """Rotates the queries and keys of a ragged batch.

    :param q: ``[n, h_q, d]``.
    :param k: ``[n, h_kv, d]``, of q's dtype.
    :param indptr: ``[b + 1]`` int32: request i owns rows ``indptr[i]`` to ``indptr[i + 1]``.
    :param offsets: ``[b]`` int32: the position of each request's first row. Of indices in int64
        copies are made.
    :param rotary_dim: channels that turn; all of them by default.
    :param rope_scale: divides positions.
    :param rope_theta: base of the frequencies.
    :returns: the rotated q and k.
    """
    return _rope(q, k, None, None, *map(_frameworks.narrowed, (indptr, offsets)), rotary_dim,
                 interleave, rope_scale, rope_theta)


def apply_rope_inplace(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor,
                       rotary_dim: Optional[int] = None, interleave: bool = False,
                       rope_scale: float = 1, rope_theta: float = 1e4) -> None:
    """:func:`apply_rope` in place."""
    _rope(q, k, q, k, *map(_frameworks.narrowed, (indptr, offsets)), rotary_dim, interleave,
          rope_scale, rope_theta)


def apply_rope_pos_ids(q: Tensor, k: Tensor, pos_ids: Tensor, rotary_dim: Optional[int] = None,
                       interleave: bool = False, rope_scale: float = 1,
                       rope_theta: float = 1e4) -> Tuple[Tensor, Tensor]:
    """:func:`apply_rope` with the position of each row in ``pos_ids [n]``, int32 or int64."""
    return _rope_ids(q, k, None, None, pos_ids, rotary_dim, interleave, rope_scale, rope_theta)


def apply_rope_pos_ids_inplace(q: Tensor, k: Tensor, pos_ids: Tensor,
                               rotary_dim: Optional[int] = None, interleave: bool = False,
                               rope_scale: float = 1, rope_theta: float = 1e4) -> None:
    """:func:`apply_rope_pos_ids` in place."""
    _rope_ids(q, k, q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta)


def apply_llama31_rope(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor,
                       rotary_dim: Optional[int] = None, interleave: bool = False,
                       rope_scale: float = 8, rope_theta: float = 5e5, low_freq_factor: float = 1,
                       high_freq_factor: float = 4,
                       old_context_len: int = 8192) -> Tuple[Tensor, Tensor]:
    """:func:`apply_rope` with the frequencies of Llama 3.1: wavelengths above
    ``old_context_len / low_freq_factor`` are divided by rope_scale, those below
    ``old_context_len / high_freq_factor`` kept, those between interpolated."""
    return _llama(q, k, None, None, *map(_frameworks.narrowed, (indptr, offsets)), rotary_dim,
                  interleave, rope_scale, rope_theta, low_freq_factor, high_freq_factor,
                  old_context_len)


def apply_llama31_rope_inplace(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor,
                               rotary_dim: Optional[int] = None, interleave: bool = False,
                               rope_scale: float = 8, rope_theta: float = 5e5,
                               low_freq_factor: float = 1, high_freq_factor: float = 4,
                               old_context_len: int = 8192) -> None:
    """:func:`apply_llama31_rope` in place."""
    _llama(q, k, q, k, *map(_frameworks.narrowed, (indptr, offsets)), rotary_dim, interleave,
           rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope_pos_ids(q: Tensor, k: Tensor, pos_ids: Tensor,
                               rotary_dim: Optional[int] = None, interleave: bool = False,
                               rope_scale: float = 8, rope_theta: float = 5e5,
                               low_freq_factor: float = 1, high_freq_factor: float = 4,
                               old_context_len: int = 8192) -> Tuple[Tensor, Tensor]:
    """:func:`apply_llama31_rope` with the position of each row in ``pos_ids [n]``."""
    return _llama_ids(q, k, None, None, pos_ids, rotary_dim, interleave, rope_scale, rope_theta,
                      low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope_pos_ids_inplace(q: Tensor, k: Tensor, pos_ids: Tensor,
                                       rotary_dim: Optional[int] = None, interleave: bool = False,
                                       rope_scale: float = 8, rope_theta: float = 5e5,
                                       low_freq_factor: float = 1, high_freq_factor: float = 4,
                                       old_context_len: int = 8192) -> None:
    """:func:`apply_llama31_rope_pos_ids` in place."""
    _llama_ids(q, k, q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor,
               high_freq_factor, old_context_len)


def _heads(tensor, head_size):
    """``[n, h * head_size]`` as ``[n, h, head_size]``, the same memory."""
    if tensor.ndim == 3:
        return tensor
    width = tensor.shape[-1]
    if head_size < 1 or width % head_size:
        raise ValueError("apply_rope_with_cos_sin_cache: head_size: expected what divides the "
                         f"{width} columns of query and key; got {head_size}")
    heads = (width // head_size, head_size)
    if _frameworks.is_torch(tensor):
        return tensor.unflatten(-1, heads)
    return _frameworks.view(tensor, (tensor.shape[0], *heads))


def apply_rope_with_cos_sin_cache(positions: Tensor, query: Tensor, key: Tensor, head_size: int,
                                  cos_sin_cache: Tensor,
                                  is_neox: bool = True) -> Tuple[Tensor, Tensor]:
    """Rotation by cosines and sines from a table.

    :param positions: ``[n]`` int32 or int64.
    :param query: ``[n, h_q * head_size]``.
    :param key: ``[n, h_kv * head_size]``.
    :param cos_sin_cache: ``[max_pos, rotary_dim]`` float32, cosines then sines.
    :param is_neox: True pairs halves, False neighbours.
    :returns: the rotated query and key.
    """
    out = (_frameworks.empty(query, query.shape, query.dtype),
           _frameworks.empty(key, key.shape, key.dtype))
    _cache(positions, _heads(query, head_size), _heads(key, head_size), cos_sin_cache,
           _heads(out[0], head_size), _heads(out[1], head_size), is_neox)
    return out


def apply_rope_with_cos_sin_cache_inplace(positions: Tensor, query: Tensor, key: Tensor,
                                          head_size: int, cos_sin_cache: Tensor,
                                          is_neox: bool = True) -> None:
    """:func:`apply_rope_with_cos_sin_cache` in place."""
    q, k = _heads(query, head_size), _heads(key, head_size)
    _cache(positions, q, k, cos_sin_cache, q, k, is_neox)


def _fp8_outputs(parts, outs, quantize_dtype):
    """An output for each part that is there, in the dtype asked for, else in that of one given."""
    if quantize_dtype is None:
        quantize_dtype = ([out.dtype for out in outs if out is not None] or ["float8_e4m3fn"])[0]
    return [
        out if out is not None or part is None
        else _frameworks.empty(part, part.shape, quantize_dtype)
        for part, out in zip(parts, outs)
    ]


def rope_quantize_fp8(
    q_rope: Tensor, k_rope: Tensor, q_nope: Optional[Tensor], k_nope: Optional[Tensor],
    cos_sin_cache: Tensor, pos_ids: Tensor, is_neox: bool = True, quantize_dtype: Any = None,
    quant_scale_q: float = 1.0, quant_scale_kv: float = 1.0, q_rope_out: Optional[Tensor] = None,
    k_rope_out: Optional[Tensor] = None, q_nope_out: Optional[Tensor] = None,
    k_nope_out: Optional[Tensor] = None, enable_pdl: bool = False, backend: str = "cuda",
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rotates the first channels of q and k and converts all of them to fp8.

    A product is rounded once: an element may differ from that of a program that rounds the rotated
    channels to 16 bits before.

    :param q_rope: ``[n, h_q, d_rope]``, the channels that turn.
    :param k_rope: ``[n, h_kv, d_rope]``, or ``[n, d_rope]`` for keys without heads (MLA).
    :param q_nope: ``[n, h_q, d_nope]``, the others, or None.
    :param k_nope: likewise.
    :param cos_sin_cache: ``[max_pos, d_rope]`` float32, cosines then sines.
    :param quantize_dtype: float8_e4m3fn (the default) or float8_e5m2.
    :param quant_scale_q: multiplies q before the conversion, quant_scale_kv k.
    :returns: q_rope, k_rope, q_nope, k_nope in fp8; None for a part that is None.
    """
    check_backend("rope_quantize_fp8", backend, ("cuda", "cutile"))
    outs = _fp8_outputs((q_rope, k_rope, q_nope, k_nope),
                        (q_rope_out, k_rope_out, q_nope_out, k_nope_out), quantize_dtype)
    _fp8(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, *outs, is_neox, quant_scale_q,
         quant_scale_kv)
    return tuple(outs)


def mla_rope_quantize_fp8(
    q_rope: Tensor, k_rope: Tensor, q_nope: Tensor, k_nope: Tensor, cos_sin_cache: Tensor,
    pos_ids: Tensor, is_neox: bool = True, quantize_dtype: Any = None, quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0, q_rope_out: Optional[Tensor] = None,
    k_rope_out: Optional[Tensor] = None, q_nope_out: Optional[Tensor] = None,
    k_nope_out: Optional[Tensor] = None, enable_pdl: bool = False,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`rope_quantize_fp8` for MLA: keys ``[n, d]`` without heads, every part given.

    Keys with heads are taken as well, ``[n, h_kv, d]``: engines give ``h_kv = 1``, or the heads of
    q as an expanded tensor.
    """
    outs = _fp8_outputs((q_rope, k_rope, q_nope, k_nope),
                        (q_rope_out, k_rope_out, q_nope_out, k_nope_out), quantize_dtype)
    call = _fp8 if k_rope.ndim == 3 else _fp8_mla
    call(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, *outs, is_neox, quant_scale_q,
         quant_scale_kv)
    return tuple(outs)


def rope_quantize_fp8_append_paged_kv_cache(
    q_rope: Tensor, k_rope: Tensor, q_nope: Optional[Tensor], k_nope: Optional[Tensor],
    v: Optional[Tensor], cos_sin_cache: Tensor, pos_ids: Tensor,
    paged_kv_cache: Tuple[Tensor, Tensor], kv_indices: Tensor, kv_indptr: Tensor,
    batch_indices: Tensor, positions: Tensor, is_neox: bool = True, quantize_dtype: Any = None,
    quant_scale_q: float = 1.0, quant_scale_kv: float = 1.0, page_size: int = 16,
    kv_layout: str = "NHD", q_rope_out: Optional[Tensor] = None,
    q_nope_out: Optional[Tensor] = None, enable_pdl: bool = False,
) -> Tuple[Tensor, Tensor]:
    """:func:`rope_quantize_fp8` with keys and values written straight into a paged fp8 cache.

    :param v: ``[n, h_kv, d]``; None for MLA.
    :param paged_kv_cache: keys and values, paged as in :mod:`bolide.page`, a key's turned channels
        first; for MLA the pages of k_nope and those of k_rope, ``[page, token, d]``.
    :param batch_indices: ``[n]`` int32, the request of each token; a negative one is skipped.
    :param positions: ``[n]`` int32, its position in the request.
    :returns: q_rope and q_nope in fp8.
    """
    if quantize_dtype is None:
        quantize_dtype = paged_kv_cache[0].dtype
    outs = _fp8_outputs((q_rope, q_nope), (q_rope_out, q_nope_out), quantize_dtype)
    if v is None:
        caches = (None, None, *paged_kv_cache)
    else:
        caches = (*split_paged(paged_kv_cache, kv_layout), None, None)
    _fp8_append(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, v, *caches, kv_indices,
                kv_indptr, batch_indices, positions, *outs, is_neox, quant_scale_q, quant_scale_kv,
                page_size, kv_layout)
    return tuple(outs)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
