# SPDX-License-Identifier: Apache-2.0
"""Specs that programs build ahead of time and never load: FlashInfer's modules of page operators, of
packing and sampling, and those behind its batch wrappers. Building is nothing here, as for every spec
(:mod:`bolide.jit.core`). The page operators and the packing of bits can be loaded, too; the others'
functions have plans and workspaces in FlashInfer's own form, so loading them is refused with the name
of what to call in their place.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .. import _dtypes
from .core import JitSpec
from .modules import SHORT, bound


def _ahead(name: str, instead: str, *switches: Any) -> JitSpec:
    """A spec that only names itself, by what it was made for."""
    def functions() -> dict[str, Callable]:
        raise NotImplementedError(f"{name}: load: FlashInfer's functions of this module are not here; "
                                  f"call {instead}")

    return JitSpec("_".join([name, *map(_word, switches)]), functions)


def _word(switch: Any) -> str:
    if switch is None or isinstance(switch, (bool, int)):
        return str(switch)
    return SHORT.get(_dtypes.name_of(switch), _dtypes.name_of(switch))


@functools.lru_cache(maxsize=None)
def gen_page_module() -> JitSpec:
    """``append_paged_kv_cache(append_key, append_value, batch_indices, positions, k_cache, v_cache,
    kv_indices, kv_indptr, kv_last_page_len, kv_layout)``, kv_layout 0 for NHD and 1 for HND, and
    ``append_paged_mla_kv_cache(append_ckv, append_kpe, batch_indices, positions, ckv_cache,
    kpe_cache, kv_indices, kv_indptr, kv_last_page_len)``."""
    table = "kv_indices kv_indptr kv_last_page_len"
    return JitSpec("page", bound(
        append_paged_kv_cache="append_key append_value batch_indices positions k_cache v_cache "
        + table + " kv_layout",
        append_paged_mla_kv_cache="append_ckv append_kpe batch_indices positions ckv_cache kpe_cache "
        + table))


@functools.lru_cache(maxsize=None)
def gen_quantization_module() -> JitSpec:
    """``packbits(x, bitorder, y)`` and ``segment_packbits(x, input_indptr, output_indptr, bitorder,
    y)``, whose output_indptr is written."""
    return JitSpec("quantization", bound(
        packbits="x bitorder out", segment_packbits="x indptr out_indptr bitorder out"))


@functools.lru_cache(maxsize=None)
def gen_sampling_module() -> JitSpec:
    """The module behind :mod:`bolide.sampling`. It can be built, not loaded."""
    return _ahead("sampling", "the functions of bolide.sampling")


def gen_batch_decode_module(
    dtype_q: Any, dtype_kv: Any, dtype_o: Any, dtype_idx: Any, head_dim_qk: int, head_dim_vo: int,
    pos_encoding_mode: int, use_sliding_window: bool, use_logits_soft_cap: bool,
) -> JitSpec:
    """The module behind :class:`bolide.BatchDecodeWithPagedKVCacheWrapper`. It can be built, not
    loaded, as those below."""
    return _ahead("batch_decode_with_kv_cache", "BatchDecodeWithPagedKVCacheWrapper", dtype_q,
                  dtype_kv, dtype_o, dtype_idx, head_dim_qk, head_dim_vo, pos_encoding_mode,
                  use_sliding_window, use_logits_soft_cap)


def gen_batch_prefill_module(
    backend: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, dtype_idx: Any, head_dim_qk: int,
    head_dim_vo: int, pos_encoding_mode: int, use_sliding_window: bool, use_logits_soft_cap: bool,
    use_fp16_qk_reduction: bool, *later: bool,
) -> JitSpec:
    """The module behind the wrappers of prefill. Later releases of FlashInfer have one switch more,
    between the others; switches name the spec and nothing else, so it may be there."""
    return _ahead(f"batch_prefill_with_kv_cache_{backend}",
                  "BatchPrefillWithPagedKVCacheWrapper or BatchPrefillWithRaggedKVCacheWrapper",
                  dtype_q, dtype_kv, dtype_o, dtype_idx, head_dim_qk, head_dim_vo, pos_encoding_mode,
                  use_sliding_window, use_logits_soft_cap, use_fp16_qk_reduction, *later)


def gen_batch_prefill_attention_sink_module(
    backend: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, dtype_idx: Any, head_dim_qk: int,
    head_dim_vo: int, pos_encoding_mode: int, use_sliding_window: bool,
) -> JitSpec:
    """The module behind :class:`bolide.BatchAttentionWithAttentionSinkWrapper`."""
    return _ahead(f"batch_prefill_attention_sink_{backend}", "BatchAttentionWithAttentionSinkWrapper",
                  dtype_q, dtype_kv, dtype_o, dtype_idx, head_dim_qk, head_dim_vo, pos_encoding_mode,
                  use_sliding_window)


def gen_batch_attention_module(
    dtype_q: Any, dtype_kv: Any, dtype_o: Any, dtype_idx: Any, head_dim_qk: int, head_dim_vo: int,
    pos_encoding_mode: int, use_logits_soft_cap: bool, use_profiler: bool,
) -> JitSpec:
    """The module behind :class:`bolide.BatchAttention`; use_profiler names it, as all switches."""
    return _ahead("batch_attention_with_kv_cache", "BatchAttention", dtype_q, dtype_kv, dtype_o,
                  dtype_idx, head_dim_qk, head_dim_vo, pos_encoding_mode, use_logits_soft_cap,
                  use_profiler)


def gen_batch_mla_module(
    backend: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, dtype_idx: Any, head_dim_ckv: int,
    head_dim_kpe: int, use_profiler: bool,
) -> JitSpec:
    """The module behind :class:`bolide.mla.BatchMLAPagedAttentionWrapper`, named by the channels
    head_dim_ckv and head_dim_kpe and by use_profiler."""
    return _ahead(f"batch_mla_attention_{backend}", "mla.BatchMLAPagedAttentionWrapper", dtype_q,
                  dtype_kv, dtype_o, dtype_idx, head_dim_ckv, head_dim_kpe, use_profiler)


def gen_batch_decode_mla_module(
    dtype_q: Any, dtype_kv: Any, dtype_o: Any, dtype_idx: Any, head_dim: int, num_qo_heads: int,
    use_sliding_window: bool, use_logits_soft_cap: bool, use_tensor_cores: bool,
) -> JitSpec:
    """The module behind :class:`bolide.BatchDecodeMlaWithPagedKVCacheWrapper`."""
    return _ahead("batch_decode_mla_with_kv_cache", "BatchDecodeMlaWithPagedKVCacheWrapper", dtype_q,
                  dtype_kv, dtype_o, dtype_idx, head_dim, num_qo_heads, use_sliding_window,
                  use_logits_soft_cap, use_tensor_cores)


def _pod(title: str, name: str, instead: str) -> Callable:
    def gen(
        dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim: int, pos_encoding_mode_p: int,
        use_sliding_window_p: bool, use_logits_soft_cap_p: bool, use_fp16_qk_reduction: bool,
        dtype_idx: Any, pos_encoding_mode_d: int, use_sliding_window_d: bool,
        use_logits_soft_cap_d: bool,
    ) -> JitSpec:
        return _ahead(name, instead, dtype_q, dtype_kv, dtype_o, head_dim, pos_encoding_mode_p,
                      use_sliding_window_p, use_logits_soft_cap_p, use_fp16_qk_reduction, dtype_idx,
                      pos_encoding_mode_d, use_sliding_window_d, use_logits_soft_cap_d)

    gen.__name__ = gen.__qualname__ = title
    gen.__doc__ = f"The module behind :class:`bolide.{instead}`."
    return gen


gen_pod_module = _pod("gen_pod_module", "pod_with_kv_cache", "PODWithPagedKVCacheWrapper")
gen_batch_pod_module = _pod("gen_batch_pod_module", "batch_pod_with_kv_cache",
                            "BatchPODWithPagedKVCacheWrapper")
