# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode in one call: two operators, one behind the other on the stream.

The results are those of FlashInfer's one launch. Where two launches would leave a GPU idle between
them, :class:`bolide.BatchAttention` takes requests of both kinds in one, if they share a cache.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .._arguments import split_paged
from ..prefill import single_prefill_with_kv_cache
from . import _memory
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper

Tensor = Any


def _in_layout(cache: Any, given: str, planned: str) -> Tuple[Any, Any]:
    """Keys and values of a cache in the layout that was planned: a view."""
    k, v = split_paged(cache, given)
    return (k, v) if given == planned else (k.swapaxes(1, 2), v.swapaxes(1, 2))


def _dtypes_of(q_data_type: Any, kv_data_type: Any, data_type: Any) -> dict[str, Any]:
    """data_type is an older name for the other two."""
    if data_type is not None:
        q_data_type = data_type if q_data_type in (None, "float16") else q_data_type
        kv_data_type = data_type if kv_data_type is None else kv_data_type
    return {"q_data_type": "float16" if q_data_type is None else q_data_type,
            "kv_data_type": kv_data_type}


class PODWithPagedKVCacheWrapper:
    """One request's prefill over its own keys, and decoding in a batch over paged caches.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes.
    :param kv_layout: of the paged cache, "NHD" or "HND".
    :param use_cuda_graph: keep the page table in the three buffers given here, whose lengths fix
        the batch; then a captured run follows later plans.
    :param paged_kv_indptr_buffer: ``[b + 1]`` int32. :param paged_kv_indices_buffer: int32, as long
        as the largest list of pages. :param paged_kv_last_page_len_buffer: ``[b]`` int32.
    :param jit_args: of a custom variant (:mod:`bolide._wrappers.variant`) of the decoding part,
        whose tensors and numbers follow the named arguments of :meth:`run`.
    """

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, paged_kv_indptr_buffer: Optional[Tensor] = None,
                 paged_kv_indices_buffer: Optional[Tensor] = None,
                 paged_kv_last_page_len_buffer: Optional[Tensor] = None,
                 jit_args: Optional[List[Any]] = None):
        self._kv_layout = kv_layout
        self._use_cuda_graph = use_cuda_graph
        self._decode = BatchDecodeWithPagedKVCacheWrapper(
            float_workspace_buffer, kv_layout, use_cuda_graph, False, paged_kv_indptr_buffer,
            paged_kv_indices_buffer, paged_kv_last_page_len_buffer, jit_args=jit_args)
        self._jit_args = jit_args
        self._masked: Optional[BatchPrefillWithPagedKVCacheWrapper] = None
        self._planned: Optional[dict[str, Any]] = None
        self._table: tuple = ()
        self._sizes: tuple = ()
        self._dtypes: dict[str, Any] = {}

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """Whether the wrapper keeps its page table in the caller's buffers."""
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor,
                               int_workspace_buffer: Tensor) -> None:
        """Takes other workspaces. A plan has to be made again behind it."""
        self._decode.reset_workspace_buffer(float_workspace_buffer, int_workspace_buffer)
        self._masked = None

    def plan(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, pos_encoding_mode: str = "NONE",
        window_left: int = -1, q_data_type: Any = "float16", kv_data_type: Any = None,
        data_type: Any = None, sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, non_blocking: bool = True,
    ) -> None:
        """Prepares the decoding part; the prefill needs no plan.

        Arguments as in :meth:`BatchDecodeWithPagedKVCacheWrapper.plan`. Options are those of the
        decoding part, where :meth:`run` does not give its own.
        """
        self._table = (*_memory.to_host(indptr, last_page_len), indices)
        self._sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._dtypes = _dtypes_of(q_data_type, kv_data_type, data_type)
        self._decode.plan(
            self._table[0], indices, self._table[1], *self._sizes,
            pos_encoding_mode=pos_encoding_mode, window_left=window_left, sm_scale=sm_scale,
            rope_scale=rope_scale, rope_theta=rope_theta, **self._dtypes)
        self._planned = {
            "pos_encoding_mode": pos_encoding_mode, "window_left": window_left,
            "sm_scale": sm_scale, "rope_scale": rope_scale, "rope_theta": rope_theta}

    begin_forward = plan

    def _decoding(self, q: Tensor, cache: Any, args: tuple, options: dict[str, Any], scales: tuple,
                  masks: tuple) -> Tuple[Tensor, Tensor]:
        """The decoding part under options and masks of this run."""
        scale = dict(zip(("q_scale", "k_scale", "v_scale"), scales))
        if all(mask is None for mask in masks):
            w = self._decode
            w._pos_encoding_mode, w._window_left = (
                options["pos_encoding_mode"], options["window_left"])
            w._rope_scale, w._rope_theta = options["rope_scale"], options["rope_theta"]
            w._sm_scale = options["sm_scale"]
            return w.run(q, cache, *args, return_lse=True, **scale)
        if self._use_cuda_graph:
            raise NotImplementedError(
                "PODWithPagedKVCacheWrapper.run: custom_mask_d, packed_custom_mask_d: not supported "
                "with use_cuda_graph, since a mask is planned with its run")
        if self._masked is None:
            self._masked = BatchPrefillWithPagedKVCacheWrapper(
                self._decode._float_workspace_buffer, self._kv_layout, jit_args=self._jit_args)
        indptr, last_page_len, indices = self._table
        rows = _memory.int32s(list(range(indptr.shape[0])), indptr)
        self._masked.plan(rows, indptr, indices, last_page_len, *self._sizes,
                          custom_mask=masks[0] if masks[1] is None else None,
                          packed_custom_mask=masks[1], **options, **self._dtypes)
        return self._masked.run(q, cache, *args, return_lse=True, **scale)

    def run(
        self, q_p: Tensor, k_p: Tensor, v_p: Tensor, q_d: Tensor, paged_kv_cache_d: Any,
        custom_mask_p: Optional[Tensor] = None, packed_custom_mask_p: Optional[Tensor] = None,
        causal_p: bool = False, kv_layout_p: str = "NHD", pos_encoding_mode_p: str = "NONE",
        sm_scale_p: Optional[float] = None, window_left_p: int = -1,
        rope_scale_p: Optional[float] = None, rope_theta_p: Optional[float] = None,
        return_lse_p: bool = False, custom_mask_d: Optional[Tensor] = None,
        packed_custom_mask_d: Optional[Tensor] = None, causal_d: bool = False,
        kv_layout_d: str = "NHD", pos_encoding_mode_d: str = "NONE",
        sm_scale_d: Optional[float] = None, window_left_d: int = -1,
        rope_scale_d: Optional[float] = None, rope_theta_d: Optional[float] = None,
        q_scale: Optional[float] = None, k_scale: Optional[float] = None,
        v_scale: Optional[float] = None, return_lse_d: bool = False,
        use_fp16_qk_reduction: bool = False, enable_pdl: Optional[bool] = None, *args: Any,
    ) -> Tuple[Any, Any]:
        """Both parts. FlashInfer ignores the options of the decoding part that are given here;
        Bolide takes them: what differs from its default goes before the plan's.

        :param q_p: ``[n, h_q, d]``, k_p and v_p ``[s, h_kv, d]``, or in HND ``[h_kv, s, d]`` as
            kv_layout_p says; the arguments that end in ``_p`` are those of
            :func:`bolide.prefill.single_prefill_with_kv_cache`. A packed mask goes before a mask.
        :param q_d: ``[b, h_q, d]``. :param paged_kv_cache_d: a pair of 4-D tensors or a 5-D one.
        :param custom_mask_d: ``[sum of lengths]`` bool, and packed_custom_mask_d in bits, each
            request from a new byte: as in :meth:`BatchPrefillWithPagedKVCacheWrapper.plan`. A run
            with one plans.
        :param causal_d: without effect on one query a request, which sees all keys before it.
        :param kv_layout_d: "HND" if the cache has it and the wrapper was not made for it.
        :param q_scale: with k_scale and v_scale of the decoding part: numbers or tensors.
        :param use_fp16_qk_reduction: with enable_pdl a hint. :param args: tensors and numbers of a custom
            variant, in the order of jit_args.
        :returns: the prefill's result and the decoding's, each with its lse to base 2 in a pair
            where return_lse_p, return_lse_d ask for it.
        """
        if self._planned is None:
            raise RuntimeError("PODWithPagedKVCacheWrapper: plan() must come before run()")
        if args and self._jit_args is None:
            raise ValueError("PODWithPagedKVCacheWrapper.run: args: expected none without jit_args; "
                             f"got {len(args)}")
        prefill = single_prefill_with_kv_cache(
            q_p, k_p, v_p, custom_mask=None if packed_custom_mask_p is not None else custom_mask_p,
            packed_custom_mask=packed_custom_mask_p, causal=causal_p, kv_layout=kv_layout_p,
            pos_encoding_mode=pos_encoding_mode_p, sm_scale=sm_scale_p, window_left=window_left_p,
            rope_scale=rope_scale_p, rope_theta=rope_theta_p, return_lse=return_lse_p)
        options = dict(self._planned)
        for name, value, default in (
                ("pos_encoding_mode", pos_encoding_mode_d, "NONE"), ("sm_scale", sm_scale_d, None),
                ("window_left", window_left_d, -1), ("rope_scale", rope_scale_d, None),
                ("rope_theta", rope_theta_d, None)):
            if value != default:
                options[name] = value
        layout = self._kv_layout if kv_layout_d == "NHD" else kv_layout_d
        decode = self._decoding(q_d, _in_layout(paged_kv_cache_d, layout, self._kv_layout), args,
                                options, (q_scale, k_scale, v_scale), (custom_mask_d, packed_custom_mask_d))
        return prefill, decode if return_lse_d else decode[0]

    def end_forward(self) -> None:
        """Does nothing; FlashInfer has it for older programs."""


class BatchPODWithPagedKVCacheWrapper:
    """Prefill in a batch and decoding in a batch, each over pages of its own.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes.
    :param kv_layout: of both caches, "NHD" or "HND".
    """

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD"):
        self._kv_layout = kv_layout
        self._prefill = BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)
        self._short = BatchDecodeWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)
        self._long = BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)
        self._decode: Any = None
        self._prefill_plan: tuple = ()
        self._options: dict[str, Any] = {}
        self._with_mask = False

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """FlashInfer's wrapper has no buffers for graphs, and so it is False."""
        return False

    def plan(
        self, qo_indptr_p: Tensor, kv_indptr_p: Tensor, kv_indices_p: Tensor,
        last_page_len_p: Tensor, qo_indptr_d: Tensor, kv_indptr_d: Tensor, kv_indices_d: Tensor,
        last_page_len_d: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim: int,
        page_size: int, pos_encoding_mode: str = "NONE", window_left: int = -1,
        q_data_type: Any = "float16", kv_data_type: Any = None, data_type: Any = None,
        sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, non_blocking: bool = True,
    ) -> None:
        """Prepares both parts, with the same options.

        The arguments that end in ``_p`` are those of
        :meth:`BatchPrefillWithPagedKVCacheWrapper.plan`, those in ``_d`` the same of the requests
        that decode: one query or several each, which see all keys of their request.
        """
        sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        options = {"pos_encoding_mode": pos_encoding_mode, "window_left": window_left,
                   "sm_scale": sm_scale, "rope_scale": rope_scale, "rope_theta": rope_theta,
                   **_dtypes_of(q_data_type, kv_data_type, data_type)}
        qo_p, kv_p, last_p, qo_d, kv_d, last_d = _memory.to_host(
            qo_indptr_p, kv_indptr_p, last_page_len_p, qo_indptr_d, kv_indptr_d, last_page_len_d)
        self._decode = None
        self._prefill_plan = (qo_p, kv_p, kv_indices_p, last_p, *sizes)
        self._options = options
        self._with_mask = False
        self._prefill.plan(*self._prefill_plan, **options)
        if bool((qo_d[1:] - qo_d[:-1] == 1).all()):
            self._short.plan(kv_d, kv_indices_d, last_d, *sizes, **options)
            self._decode = self._short
        else:
            self._long.plan(qo_d, kv_d, kv_indices_d, last_d, *sizes, **options)
            self._decode = self._long

    begin_forward = plan

    def run(
        self, q_p: Tensor, paged_kv_cache_p: Any, q_d: Tensor, paged_kv_cache_d: Any,
        custom_mask_p: Optional[Tensor] = None, packed_custom_mask_p: Optional[Tensor] = None,
        causal_p: bool = False, q_scale: Optional[float] = None, k_scale: Optional[float] = None,
        v_scale: Optional[float] = None, return_lse: bool = False,
        use_fp16_qk_reduction: bool = False, enable_pdl: Optional[bool] = None,
    ) -> Tuple[Any, Any]:
        """Both parts.

        :param q_p: ``[qo_indptr_p[-1], h_q, d]``, q_d likewise. :param paged_kv_cache_p: a pair of
            4-D tensors or a 5-D one, as is paged_kv_cache_d; it may be the same.
        :param custom_mask_p: with packed_custom_mask_p as in
            :meth:`BatchPrefillWithPagedKVCacheWrapper.plan`, replaces causal_p; the packed one goes
            before the other. A run with one plans, and so does the first with another causal_p.
        :param q_scale: with k_scale and v_scale of both parts.
        :param use_fp16_qk_reduction: with enable_pdl a hint.
        :returns: the prefill's result and the decoding's, with return_lse a pair of each and its
            lse, to base 2.
        """
        if self._decode is None:
            raise RuntimeError("BatchPODWithPagedKVCacheWrapper: plan() must come before run()")
        masked = custom_mask_p is not None or packed_custom_mask_p is not None
        if masked or self._with_mask:
            self._prefill.plan(
                *self._prefill_plan, causal=causal_p,
                custom_mask=None if packed_custom_mask_p is not None else custom_mask_p,
                packed_custom_mask=packed_custom_mask_p, **self._options)
            self._with_mask = masked
        self._prefill._causal = bool(causal_p)
        scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
        return (self._prefill.run(q_p, paged_kv_cache_p, return_lse=return_lse, **scales),
                self._decode.run(q_d, paged_kv_cache_d, return_lse=return_lse, **scales))

    def end_forward(self) -> None:
        """Does nothing; FlashInfer has it for older programs."""
