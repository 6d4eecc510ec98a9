# SPDX-License-Identifier: Apache-2.0
"""Prefill in batches against keys and values that lie packed, request behind request."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from .. import _frameworks
from .._arguments import later
from . import _memory
from ._base import options_of
from .prefill import _RAGGED, Prefill, differences

Tensor = Any


class BatchPrefillWithRaggedKVCacheWrapper(Prefill):
    """Attention of the new tokens of each request against its packed keys and values.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes; it may
        be shared by wrappers that run one after the other on a stream. 128 MiB is customary.
    :param kv_layout: "NHD" has k ``[token, head, dim]``, "HND" ``[head, token, dim]``.
    :param use_cuda_graph: keep index arrays and mask in the buffers given here. The length of
        qo_indptr_buf fixes the batch, the first plan the largest number of rows.
    :param custom_mask_buf: uint8, for masks in graph mode. :param mask_indptr_buf: ``[b + 1]``
        int32.
    :param backend: a name of FlashInfer's; all stand for the same contract. With "cudnn" the indptr
        arrays count elements (tokens * heads * dim), as FlashInfer has it there.
    :param jit_args: of a custom variant (:mod:`bolide._wrappers.variant`), whose tensors and numbers
        follow the values in :meth:`run`. :param jit_kwargs: switches of FlashInfer's
        compiler, which change nothing here; pos_encoding_mode other than 0 is refused.
    """

    _operators = _RAGGED
    _backends = ("auto", "fa2", "fa3", "cutlass", "cudnn", "cute-dsl", "fmha_v2")

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, qo_indptr_buf: Optional[Tensor] = None,
                 kv_indptr_buf: Optional[Tensor] = None, custom_mask_buf: Optional[Tensor] = None,
                 mask_indptr_buf: Optional[Tensor] = None, backend: str = "auto",
                 jit_args: Optional[List[Any]] = None,
                 jit_kwargs: Optional[Dict[str, Any]] = None):
        super().__init__(
            float_workspace_buffer, kv_layout, use_cuda_graph,
            {"qo_indptr_buf": qo_indptr_buf, "kv_indptr_buf": kv_indptr_buf},
            custom_mask_buf, mask_indptr_buf, backend, jit_args, jit_kwargs)
        self._out_rows: Optional[int] = None

    def _tokens(self, name: str, indptr: Any, size: int) -> Any:
        """Element offsets of the backend cudnn as offsets in tokens."""
        if indptr is None or self._backend != "cudnn":
            return indptr
        values = indptr.tolist()
        wrong = [v for v in values if v % size]
        if wrong:
            raise ValueError(f"{type(self).__name__}.plan: {name}: expected multiples of {size} "
                             f"elements with the backend cudnn; got {wrong[0]}")
        return _memory.int32s([v // size for v in values], indptr)

    def plan(
        self, qo_indptr: Tensor, kv_indptr: Tensor, num_qo_heads: int, num_kv_heads: int,
        head_dim_qk: int, head_dim_vo: Optional[int] = None, custom_mask: Optional[Tensor] = None,
        packed_custom_mask: Optional[Tensor] = None, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        window_left: int = -1, logits_soft_cap: Optional[float] = None,
        sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, q_data_type: Any = "float16", kv_data_type: Any = None,
        o_data_type: Any = None, non_blocking: bool = True,
        prefix_len_ptr: Optional[Tensor] = None, token_pos_in_items_ptr: Optional[Tensor] = None,
        token_pos_in_items_len: int = 0, max_item_len_ptr: Optional[Tensor] = None,
        fixed_split_size: Optional[int] = None, disable_split_kv: bool = False,
        seq_lens: Optional[Tensor] = None, seq_lens_q: Optional[Tensor] = None,
        max_token_per_sequence: Optional[int] = None, max_sequence_kv: Optional[int] = None,
        v_indptr: Optional[Tensor] = None, o_indptr: Optional[Tensor] = None,
    ) -> None:
        """Prepares runs for the lengths at hand; to be called when they change.

        :param qo_indptr: ``[b + 1]`` int32: request i owns rows ``qo_indptr[i]`` to
            ``qo_indptr[i + 1]`` of q. :param kv_indptr: ``[b + 1]`` int32: and those of k and v.
        :param v_indptr: where v's rows lie elsewhere; o_indptr likewise for out.
        :param seq_lens: ``[b]`` int32, keys, where kv_indptr leaves more; seq_lens_q likewise of
            rows.
        :param fixed_split_size: keys of a piece; a request then has the same bits in any batch.

        Other arguments as in :meth:`BatchPrefillWithPagedKVCacheWrapper.plan`.
        """
        masked = custom_mask is not None or packed_custom_mask is not None
        arguments = self._plan_arguments(
            num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, q_data_type, kv_data_type,
            o_data_type, fixed_split_size, disable_split_kv, max_token_per_sequence,
            max_sequence_kv, masked)
        d_vo = arguments["head_dim_vo"]
        qo, kv, v_at, o_at, kv_lens, q_lens = _memory.to_host(
            qo_indptr, kv_indptr, v_indptr, o_indptr,
            *(None if t is None else t.reshape(-1) for t in (seq_lens, seq_lens_q)))
        arguments.update(
            qo_indptr=self._tokens("qo_indptr", qo, num_qo_heads * head_dim_qk),
            kv_indptr=self._tokens("kv_indptr", kv, num_kv_heads * head_dim_qk),
            v_indptr=self._tokens("v_indptr", v_at, num_kv_heads * d_vo),
            o_indptr=self._tokens("o_indptr", o_at, num_qo_heads * d_vo),
            seq_lens=kv_lens, seq_lens_q=q_lens)
        qo = arguments["qo_indptr"]
        rows = int(qo[-1])
        q_lens = differences(qo) if q_lens is None else q_lens.tolist()
        kv_lens = differences(arguments["kv_indptr"]) if kv_lens is None else kv_lens.tolist()
        self._check_batch(len(q_lens))
        arguments.update(self._graph_arguments(rows, max_sequence_kv))
        mask = self._pack_mask(custom_mask, packed_custom_mask, q_lens, kv_lens)
        self._make_first_plan(arguments, options_of(
            causal, pos_encoding_mode, window_left, logits_soft_cap, rope_scale, rope_theta))
        self._keep(arguments, sm_scale, head_dim_qk, d_vo)
        self._keep_rows(rows, len(q_lens), q_lens, kv_lens)
        self._keep_buffer("_qo_indptr_buf", qo_indptr)
        self._keep_buffer("_kv_indptr_buf", kv_indptr)
        self._keep_mask(mask)
        self._out_rows = None if o_at is None else int(arguments["o_indptr"][-1])
        self._keep_items(prefix_len_ptr, token_pos_in_items_ptr, token_pos_in_items_len,
                         max_item_len_ptr)

    begin_forward = plan

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False,
                pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
                window_left: int = -1, logits_soft_cap: Optional[float] = None,
                sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                rope_theta: Optional[float] = None) -> Tensor:
        """An older form of :meth:`run`. Its options replace those of the plan; where they differ,
        the first call plans again."""
        self._forward(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)
        return self.run(q, k, v)

    def forward_return_lse(
        self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        window_left: int = -1, logits_soft_cap: Optional[float] = None,
        sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None,
    ) -> Tuple[Tensor, Tensor]:
        """:meth:`forward` with lse."""
        self._forward(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)
        return self.run(q, k, v, return_lse=True)

    def run(self, q: Tensor, k: Tensor, v: Tensor, *args: Any, q_scale: Any = None,
            k_scale: Any = None, v_scale: Any = None, o_scale: Any = None,
            out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None, kv_cache_sf: Any = None,
            ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention as planned.

        :param q: ``[qo_indptr[-1], h_q, d_qk]``. :param k: ``[kv_indptr[-1], h_kv, d_qk]``, HND
            ``[h_kv, kv_indptr[-1], d_qk]``. :param v: likewise with d_vo.
        :param args: the scales of q, k and v by position, for fp8.
        :param q_scale: with k_scale multiplies the logits, v_scale the result: numbers, or float32
            tensors of one element or of one for each head. Always honoured, as documented;
            FlashInfer itself ignores them here in most cases.
        :param o_scale: what is stored is the result divided by it.
        :param out: ``[qo_indptr[-1], h_q, d_vo]`` of the planned dtype; allocated if not given.
        :param lse: ``[qo_indptr[-1], h_q]`` float32, to base 2.
        :param enable_pdl: a hint. :param kv_cache_sf: of NVFP4 caches; refused.
        :returns: out, or (out, lse) with return_lse.
        """
        if kv_cache_sf is not None:
            later("BatchPrefillWithRaggedKVCacheWrapper.run", kv_cache_sf=kv_cache_sf)
        self._before_run()
        if args or self._variant is not None:
            q_scale, k_scale, v_scale = self._scale_arguments(args, q_scale, k_scale, v_scale)
        q_scale, k_scale = self._scales(q_scale, k_scale)
        if out is None and self._out_rows is not None:
            out = _frameworks.empty(q, (self._out_rows, q.shape[1], self._d_vo), self._o_bit)
        out, lse = self._outputs(q, out, lse, return_lse)
        self._operators.run(q, k, v, o_scale,
                            *self._run_tail(None, q_scale, k_scale, v_scale, out, lse))
        return (out, lse) if return_lse else out

    def run_return_lse(self, q: Tensor, k: Tensor, v: Tensor, *args: Any, q_scale: Any = None,
                       k_scale: Any = None, v_scale: Any = None, o_scale: Any = None,
                       out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
                       return_lse: bool = True, enable_pdl: Optional[bool] = None,
                       kv_cache_sf: Any = None) -> Tuple[Tensor, Tensor]:
        """:meth:`run` with lse."""
        return self.run(q, k, v, *args, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale,
                        o_scale=o_scale, out=out, lse=lse, return_lse=return_lse,
                        kv_cache_sf=kv_cache_sf)
