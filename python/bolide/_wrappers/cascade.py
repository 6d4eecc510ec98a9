# SPDX-License-Identifier: Apache-2.0
"""Attention over several levels of shared keys: one batch prefill a level, merged by lse."""

from __future__ import annotations

from typing import Any, List, Optional

from .. import _dtypes
from ..cascade import merge_state, merge_state_in_place
from ..prefill import single_prefill_with_kv_cache_return_lse
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper

Tensor = Any


class MultiLevelCascadeAttentionWrapper:
    """Attention of requests whose caches share prefixes, level by level.

    Level 0 holds what most requests share, the last level what is each request's own. On each level
    the rows of q are grouped into the requests that share its pages there.

    :param num_levels: at least 1. :param float_workspace_buffer: as for
        :class:`BatchPrefillWithPagedKVCacheWrapper`; the levels share it.
    :param use_cuda_graph: keep the index arrays of each level in the buffers given here.
    :param qo_indptr_buf_arr: one buffer a level, as are the other three.
    """

    def __init__(self, num_levels: int, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, qo_indptr_buf_arr: Optional[List[Tensor]] = None,
                 paged_kv_indptr_buf_arr: Optional[List[Tensor]] = None,
                 paged_kv_indices_buf_arr: Optional[List[Tensor]] = None,
                 paged_kv_last_page_len_buf_arr: Optional[List[Tensor]] = None):
        if num_levels < 1:
            raise ValueError("MultiLevelCascadeAttentionWrapper: num_levels: expected at least 1; "
                             f"got {num_levels}")
        names = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf",
                 "paged_kv_last_page_len_buf")
        arrays = (qo_indptr_buf_arr, paged_kv_indptr_buf_arr, paged_kv_indices_buf_arr,
                  paged_kv_last_page_len_buf_arr)
        for name, array in zip(names, arrays):
            if use_cuda_graph and (array is None or len(array) != num_levels):
                raise ValueError(f"MultiLevelCascadeAttentionWrapper: {name}_arr: expected "
                                 f"{num_levels} tensors with use_cuda_graph; got "
                                 f"{None if array is None else len(array)}")
        self._use_cuda_graph = use_cuda_graph
        self._num_levels = num_levels
        self._kv_layout = kv_layout
        self._batch_prefill_wrappers = [
            BatchPrefillWithPagedKVCacheWrapper(
                float_workspace_buffer, kv_layout, use_cuda_graph,
                *(array[level] if use_cuda_graph else None for array in arrays))
            for level in range(num_levels)
        ]

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """Whether the levels keep their index arrays in the caller's buffers."""
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor,
                               int_workspace_buffers: List[Tensor]) -> None:
        """Takes another float workspace and an int workspace for each level."""
        if len(int_workspace_buffers) != self._num_levels:
            raise ValueError(
                "MultiLevelCascadeAttentionWrapper.reset_workspace_buffer: int_workspace_buffers: "
                f"expected {self._num_levels} tensors; got {len(int_workspace_buffers)}")
        for wrapper, buffer in zip(self._batch_prefill_wrappers, int_workspace_buffers):
            wrapper.reset_workspace_buffer(float_workspace_buffer, buffer)

    def plan(
        self, qo_indptr_arr: List[Tensor], paged_kv_indptr_arr: List[Tensor],
        paged_kv_indices_arr: List[Tensor], paged_kv_last_page_len: List[Tensor], num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None, window_left: int = -1,
        logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, q_data_type: Any = "float16", kv_data_type: Any = None,
    ) -> None:
        """Prepares runs; the first four arguments have one tensor a level, as
        :meth:`BatchPrefillWithPagedKVCacheWrapper.plan` has them.

        :param causal: of the last level; the others are never causal.
        :param window_left: counted within each level's keys, as positions are; only the last level
            knows where a query stands, so with several levels it is refused, as are positions.
        """
        if self._num_levels > 1:
            for name, value, off in (("window_left", window_left, -1),
                                     ("pos_encoding_mode", pos_encoding_mode, "NONE")):
                if value != off:
                    raise NotImplementedError(
                        f"MultiLevelCascadeAttentionWrapper.plan: {name}: expected {off} with "
                        f"{self._num_levels} levels; got {value}")
        arrays = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        for name, array in zip(("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr",
                                "paged_kv_last_page_len"), arrays):
            if len(array) != self._num_levels:
                raise ValueError(f"MultiLevelCascadeAttentionWrapper.plan: {name}: expected "
                                 f"{self._num_levels} tensors; got {len(array)}")
        last = self._num_levels - 1
        for level, wrapper in enumerate(self._batch_prefill_wrappers):
            wrapper.plan(
                *(array[level] for array in arrays), num_qo_heads, num_kv_heads, head_dim,
                page_size, causal=causal and level == last, pos_encoding_mode=pos_encoding_mode,
                use_fp16_qk_reduction=use_fp16_qk_reduction, sm_scale=sm_scale,
                window_left=window_left, logits_soft_cap=logits_soft_cap, rope_scale=rope_scale,
                rope_theta=rope_theta, q_data_type=q_data_type, kv_data_type=kv_data_type)

    begin_forward = plan

    def run(self, q: Tensor, paged_kv_cache: Any) -> Tensor:
        """Attention over the keys of all levels.

        :param q: ``[n, h_q, d]``. :param paged_kv_cache: one cache for all levels, a pair of 4-D
            tensors or a 5-D one. :returns: ``[n, h_q, d]``.
        """
        out, lse = self._batch_prefill_wrappers[-1].run(q, paged_kv_cache, return_lse=True)
        for wrapper in self._batch_prefill_wrappers[:-1]:
            merge_state_in_place(out, lse, *wrapper.run(q, paged_kv_cache, return_lse=True))
        return out

    forward = run


def _single(q, k, v, kv_layout, sm_scale=None):
    return single_prefill_with_kv_cache_return_lse(q, k, v, causal=False, kv_layout=kv_layout,
                                                   sm_scale=sm_scale)


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper:
    """Decoding in a batch whose requests share one prefix, which lies unpaged; an older form of
    :class:`MultiLevelCascadeAttentionWrapper`."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD"):
        self._batch_decode_wrapper = BatchDecodeWithPagedKVCacheWrapper(float_workspace_buffer,
                                                                        kv_layout)
        self._kv_layout = kv_layout

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor,
                               int_workspace_buffer: Tensor) -> None:
        """Takes other workspaces."""
        self._batch_decode_wrapper.reset_workspace_buffer(float_workspace_buffer,
                                                          int_workspace_buffer)

    def begin_forward(self, unique_kv_indptr: Tensor, unique_kv_indices: Tensor,
                      unique_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int,
                      head_dim: int, page_size: int, data_type: Any = "float16") -> None:
        """The plan of each request's own pages, as in
        :meth:`BatchDecodeWithPagedKVCacheWrapper.plan`.

        :param data_type: of q, keys and values.
        """
        self._batch_decode_wrapper.plan(
            unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads,
            num_kv_heads, head_dim, page_size, q_data_type=data_type, kv_data_type=data_type)

    def forward(self, q: Tensor, k_shared: Tensor, v_shared: Tensor,
                unique_kv_cache: Any) -> Tensor:
        """Attention over the prefix and each request's own pages.

        :param q: ``[b, h_q, d]``. :param k_shared: ``[s, h_kv, d]``, HND ``[h_kv, s, d]``; v_shared
            likewise. :param unique_kv_cache: paged, as in the decode wrapper. :returns: ``[b, h_q,
            d]``.
        """
        v, s = self._batch_decode_wrapper.run(q, unique_kv_cache, return_lse=True)
        return merge_state(v, s, *_single(q, k_shared, v_shared, self._kv_layout))[0]

    def end_forward(self) -> None:
        """Does nothing; FlashInfer has it for older programs."""


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper:
    """Prefill of a batch whose requests share one prefix, which lies unpaged; an older form of
    :class:`MultiLevelCascadeAttentionWrapper`."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD"):
        self._batch_prefill_wrapper = BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer,
                                                                          kv_layout)
        self._kv_layout = kv_layout
        self._planned_with: tuple = ()

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor,
                               int_workspace_buffer: Tensor) -> None:
        """Takes other workspaces."""
        self._batch_prefill_wrapper.reset_workspace_buffer(float_workspace_buffer,
                                                           int_workspace_buffer)

    def begin_forward(self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
                      paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int,
                      head_dim: int, page_size: int) -> None:
        """The plan of each request's own pages, as in
        :meth:`BatchPrefillWithPagedKVCacheWrapper.plan`. FlashInfer has no dtype here; it is
        that of the last forward, float16 at first."""
        self._planned_with = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len,
                              num_qo_heads, num_kv_heads, head_dim, page_size)
        wrapper = self._batch_prefill_wrapper
        wrapper.plan(*self._planned_with,
                     q_data_type=getattr(wrapper, "_cached_q_data_type", "float16"),
                     kv_data_type=getattr(wrapper, "_cached_kv_data_type", None))

    def forward(self, q: Tensor, k_shared: Tensor, v_shared: Tensor, unique_kv_cache: Any,
                causal: bool = False, use_fp16_qk_reduction: bool = False,
                sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                rope_theta: Optional[float] = None) -> Tensor:
        """Attention over the prefix and each request's own pages.

        :param q: ``[n, h_q, d]``. :param k_shared: ``[s, h_kv, d]``, HND ``[h_kv, s, d]``; v_shared
            likewise. :param unique_kv_cache: paged, as in the prefill wrapper.
        :param causal: among each request's own keys. :param rope_scale: with rope_theta without
            effect, since FlashInfer's form has no positions; anything but the neutral value is
            refused. :returns: ``[n, h_q, d]``.
        """
        for name, value, neutral in (("rope_scale", rope_scale, 1.0),
                                     ("rope_theta", rope_theta, 1e4)):
            if value is not None and value != neutral:
                raise NotImplementedError(
                    f"BatchPrefillWithSharedPrefixPagedKVCacheWrapper.forward: {name}: expected "
                    f"{neutral}; got {value}")
        wrapper = self._batch_prefill_wrapper
        cache_dtype = (unique_kv_cache[0] if isinstance(unique_kv_cache, (tuple, list))
                       else unique_kv_cache).dtype
        if self._planned_with and (
                _dtypes.of(q.dtype) != _dtypes.of(wrapper._cached_q_data_type)
                or _dtypes.of(cache_dtype) != _dtypes.of(wrapper._cached_kv_data_type)):
            wrapper.plan(*self._planned_with, q_data_type=q.dtype, kv_data_type=cache_dtype)
        v, s = wrapper.forward_return_lse(q, unique_kv_cache, causal=causal, sm_scale=sm_scale)
        return merge_state(v, s, *_single(q, k_shared, v_shared, self._kv_layout, sm_scale))[0]

    def end_forward(self) -> None:
        """Does nothing; FlashInfer has it for older programs."""
