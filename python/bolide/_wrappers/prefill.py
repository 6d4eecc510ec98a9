# SPDX-License-Identifier: Apache-2.0
"""Prefill in batches, against paged caches and against packed keys and values."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from .._arguments import later, split_paged
from . import _masks, _memory, variant
from ._base import Planned, bind, options_of, outputs_bit, refuse

Tensor = Any

_SHARED_PLAN = (
    "num_qo_heads num_kv_heads head_dim_qk head_dim_vo kv_layout q_data_type kv_data_type "
    "o_data_type pos_encoding_mode causal use_custom_mask window_left logits_soft_cap sm_scale "
    "rope_scale rope_theta fixed_split_size disable_split_kv max_batch_size max_num_rows "
    "max_sequence_kv max_token_per_sequence variant")
_SHARED_RUN = (
    "packed_custom_mask sinks q_scale k_scale v_scale prefix_len_ptr token_pos_in_items_ptr "
    "token_pos_in_items_len max_item_len_ptr out lse variant")
_PAGED = bind(
    "batch_prefill_paged",
    "qo_indptr paged_kv_indptr paged_kv_last_page_len seq_lens seq_lens_q page_size "
    + _SHARED_PLAN,
    "q k_cache v_cache paged_kv_indices block_tables " + _SHARED_RUN)
_RAGGED = bind(
    "batch_prefill_ragged",
    "qo_indptr kv_indptr v_indptr o_indptr seq_lens seq_lens_q " + _SHARED_PLAN,
    "q k v o_scale " + _SHARED_RUN)


class Prefill(Planned):
    """What both prefill wrappers share: masks, items, rows of a graph."""

    _qo_indptr_buf = _memory.OnDevice()
    _kv_indptr_buf = _memory.OnDevice()
    _paged_kv_indptr_buf = _memory.OnDevice()
    _paged_kv_last_page_len_buf = _memory.OnDevice()

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str, use_cuda_graph: bool,
                 buffers: Dict[str, Any], custom_mask_buf: Any, mask_indptr_buf: Any, backend: str,
                 jit_args: Any, jit_kwargs: Any):
        name = type(self).__name__
        variant.check_switches(name, jit_kwargs)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, jit_args)
        for key, buffer in buffers.items():
            if use_cuda_graph and buffer is None:
                raise ValueError(f"{name}: {key}: expected a tensor with use_cuda_graph; got None")
            setattr(self, f"_{key}", buffer)
        self._custom_mask_buf = custom_mask_buf
        self._mask_indptr_buf = mask_indptr_buf
        self._masked = False
        self._fixed_batch_size = buffers["qo_indptr_buf"].shape[0] - 1 if use_cuda_graph else 0
        self._max_total_num_rows: Optional[int] = None
        self._qo_indptr_last: Optional[int] = None
        self._batch_size = 0
        self._max_q_len = self._max_kv_len = 0
        self._prefix_len_ptr = self._token_pos_in_items_ptr = self._max_item_len_ptr = None
        self._token_pos_in_items_len = 0

    def _plan_arguments(self, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, q_data_type,
                        kv_data_type, o_data_type, fixed_split_size, disable_split_kv,
                        max_token_per_sequence, max_sequence_kv, masked) -> dict[str, Any]:
        """What a plan has besides its lengths and the options."""
        q = _dtypes.of(q_data_type).bit
        return {
            "num_qo_heads": num_qo_heads, "num_kv_heads": num_kv_heads,
            "head_dim_qk": head_dim_qk,
            "head_dim_vo": head_dim_qk if head_dim_vo is None else head_dim_vo,
            "q_data_type": q,
            "kv_data_type": q if kv_data_type is None else _dtypes.of(kv_data_type).bit,
            "o_data_type": outputs_bit(q_data_type, o_data_type),
            "fixed_split_size": fixed_split_size, "disable_split_kv": disable_split_kv,
            "max_token_per_sequence": max_token_per_sequence, "max_sequence_kv": max_sequence_kv,
            "use_custom_mask": masked,
        }

    def _graph_arguments(self, rows: int, most_keys: Optional[int]) -> dict[str, Any]:
        """Maxima of graph mode: the buffers' batch and lengths, the rows of the first plan."""
        if not self._use_cuda_graph:
            return {}
        most = rows if self._max_total_num_rows is None else self._max_total_num_rows
        found = {"max_batch_size": self._fixed_batch_size, "max_num_rows": most}
        if most_keys is not None:
            found["max_sequence_kv"] = most_keys
        return found

    def _check_batch(self, batch: int) -> None:
        if self._use_cuda_graph and batch != self._fixed_batch_size:
            raise ValueError(
                f"{type(self).__name__}.plan: qo_indptr: expected [{self._fixed_batch_size + 1}], "
                f"as its buffer; got [{batch + 1}]")

    def _keep_buffer(self, name: str, tensor: Any) -> None:
        """An index array behind a plan: in the buffer of graph mode, else on the device."""
        if tensor is None:
            return
        if self._use_cuda_graph:
            _memory.write(getattr(self, name), tensor)
        elif name == "_paged_kv_indices_buf":
            self._paged_kv_indices_buf = _memory.to_device(tensor, self.device)
        else:
            setattr(self, name, tensor)

    def _pack_mask(self, custom_mask: Any, packed: Any, q_lens: List[int],
                   kv_lens: List[int]) -> Optional[Tuple[Any, Any]]:
        """The mask in bits, each request from a new byte, lowest bit first, and its indptr."""
        if custom_mask is None and packed is None:
            return None
        elems, starts = _masks.extents(q_lens, kv_lens)
        like = self._float_workspace_buffer
        indptr = _memory.to_device(_memory.int32s(starts, like), self.device)
        name = type(self).__name__
        if packed is None:
            bits = _memory.to_device(custom_mask.reshape(-1), self.device)
            if bits.shape[0] != elems[-1]:
                raise ValueError(f"{name}.plan: custom_mask: expected {elems[-1]} elements, q_len "
                                 f"* kv_len of every request; got {bits.shape[0]}")
            packed = _masks.pack(bits, elems, starts, like, self.device)
        if self._use_cuda_graph:
            have = 0 if self._custom_mask_buf is None else self._custom_mask_buf.shape[0]
            if have < packed.shape[0] or self._custom_mask_buf is None:
                raise ValueError(f"{name}.plan: custom_mask_buf: expected at least "
                                 f"{packed.shape[0]} bytes; got {have}")
        return _memory.to_device(packed, self.device), indptr

    def _keep_mask(self, mask: Optional[Tuple[Any, Any]]) -> None:
        """What :meth:`_pack_mask` gave, behind a plan."""
        self._masked = mask is not None
        if not self._use_cuda_graph:
            self._custom_mask_buf, self._mask_indptr_buf = mask or (None, None)
        elif mask is not None:
            _memory.write(self._custom_mask_buf, mask[0])
            if self._mask_indptr_buf is not None:
                _memory.write(self._mask_indptr_buf, mask[1])

    def _keep_items(self, prefix_len_ptr, token_pos_in_items_ptr, token_pos_in_items_len,
                    max_item_len_ptr) -> None:
        """Multi-item scoring. Programs give the numbers of a single request without an axis, and
        leave out the places behind the last request's end, which nothing reads."""
        if _frameworks.is_tensor(token_pos_in_items_len):
            token_pos_in_items_len = token_pos_in_items_len.item()
        self._token_pos_in_items_len = token_pos_in_items_len
        prefix, places, longest = (
            None if t is None else _memory.to_device(t, self.device).reshape(-1)
            for t in (prefix_len_ptr, token_pos_in_items_ptr, max_item_len_ptr))
        room = self._batch_size * token_pos_in_items_len
        if places is not None and places.shape[0] < room:
            padded = _frameworks.full(places, (room,), _dtypes.of(places.dtype).name, 0)
            padded[:places.shape[0]] = places
            places = padded
        self._prefix_len_ptr, self._token_pos_in_items_ptr = prefix, places
        self._max_item_len_ptr = longest

    def _keep_rows(self, rows: int, batch: int, q_lens: List[int], kv_lens: List[int]) -> None:
        self._qo_indptr_last = rows
        self._batch_size = batch
        self._max_q_len = max(q_lens, default=0)
        self._max_kv_len = max(kv_lens, default=0)
        if self._use_cuda_graph and self._max_total_num_rows is None:
            self._max_total_num_rows = rows

    def _run_tail(self, sinks, q_scale, k_scale, v_scale, out, lse) -> tuple:
        """The arguments that both kinds of run end with."""
        if sinks is None and self._variant is not None:
            sinks = self._variant.sinks
        return (self._custom_mask_buf if self._masked else None, sinks, q_scale, k_scale, v_scale,
                self._prefix_len_ptr, self._token_pos_in_items_ptr, self._token_pos_in_items_len,
                self._max_item_len_ptr, out, lse, self._variant_address, self._workspace.address,
                self._plan_info.address)


def differences(indptr: Any) -> List[int]:
    """Lengths in an indptr on the host."""
    values = indptr.tolist()
    return [b - a for a, b in zip(values, values[1:])]


class BatchPrefillWithPagedKVCacheWrapper(Prefill):
    """Attention of any number of new tokens of each request against its pages.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes; it may
        be shared by wrappers that run one after the other on a stream. 128 MiB is customary,
        :meth:`workspace_size` says what is needed.
    :param kv_layout: "NHD" has pages ``[page, token, head, dim]``, "HND" ``[page, head, token,
        dim]``.
    :param use_cuda_graph: keep index arrays and mask in the buffers given here. The length of
        qo_indptr_buf fixes the batch, the first plan the largest number of rows; then a captured
        run follows later plans.
    :param custom_mask_buf: uint8, for masks in graph mode. :param mask_indptr_buf: ``[b + 1]``
        int32.
    :param backend: a name of FlashInfer's; all stand for the same contract. With "cudnn" qo_indptr
        counts elements, or tokens where seq_lens_q says so, and heads may stand before the tokens
        of a page.
    :param jit_args: of a custom variant (:mod:`bolide._wrappers.variant`), whose tensors and numbers
        follow the cache in :meth:`run`; with ``jit.attention.variants.attention_sink_decl`` in it
        these are the sinks and sm_scale. :param jit_kwargs: switches of FlashInfer's
        compiler, which change nothing here; pos_encoding_mode other than 0 is refused.
    """

    _operators = _PAGED
    _backends = ("auto", "fa2", "fa3", "cudnn", "trtllm-gen", "cute-dsl")

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, qo_indptr_buf: Optional[Tensor] = None,
                 paged_kv_indptr_buf: Optional[Tensor] = None,
                 paged_kv_indices_buf: Optional[Tensor] = None,
                 paged_kv_last_page_len_buf: Optional[Tensor] = None,
                 custom_mask_buf: Optional[Tensor] = None,
                 mask_indptr_buf: Optional[Tensor] = None, backend: str = "auto",
                 jit_args: Optional[List[Any]] = None,
                 jit_kwargs: Optional[Dict[str, Any]] = None):
        super().__init__(
            float_workspace_buffer, kv_layout, use_cuda_graph,
            {"qo_indptr_buf": qo_indptr_buf, "paged_kv_indptr_buf": paged_kv_indptr_buf,
             "paged_kv_indices_buf": paged_kv_indices_buf,
             "paged_kv_last_page_len_buf": paged_kv_last_page_len_buf},
            custom_mask_buf, mask_indptr_buf, backend, jit_args, jit_kwargs)
        self._block_tables = None

    def _in_tokens(self, qo: Any, q_lens: Any, row: int) -> Any:
        """Offsets of the backend cudnn, which FlashInfer counts in elements; in tokens they are
        taken where seq_lens_q says that they are."""
        values = qo.tolist()
        if q_lens is not None and differences(qo) == q_lens.tolist():
            return qo
        if any(v % row for v in values):
            raise ValueError(f"{type(self).__name__}.plan: qo_indptr: expected multiples of {row} "
                             f"elements with the backend cudnn; got {values}")
        return _memory.int32s([v // row for v in values], qo)

    def _lengths(self, qo_indptr, paged_kv_indptr, last_page_len, seq_lens, seq_lens_q,
                 block_tables, page_size, row) -> Tuple[dict[str, Any], List[int], List[int]]:
        """Host copies of the lengths as the library takes them, and both lengths of each
        request."""
        seq_lens = None if seq_lens is None else seq_lens.reshape(-1)
        seq_lens_q = None if seq_lens_q is None else seq_lens_q.reshape(-1)
        if seq_lens is not None:
            last_page_len = None
            if block_tables is not None:
                paged_kv_indptr = None
        qo, kv, last, lens, q_lens = _memory.to_host(qo_indptr, paged_kv_indptr, last_page_len,
                                                     seq_lens, seq_lens_q)
        for name, given in (("qo_indptr", qo), ("paged_kv_indptr", kv),
                            ("paged_kv_last_page_len", last)):
            if given is not None and given.ndim != 1:
                raise ValueError(
                    f"{type(self).__name__}.plan: {name}: rank: expected 1; got {given.ndim}")
        if self._backend == "cudnn":
            qo = self._in_tokens(qo, q_lens, row)
        if lens is None:
            kv_lens = [max(n - 1, 0) * page_size + (m if n > 0 else 0)
                       for n, m in zip(differences(kv), last.tolist())]
        else:
            kv_lens = lens.tolist()
        found = {"qo_indptr": qo, "paged_kv_indptr": kv, "paged_kv_last_page_len": last,
                 "seq_lens": lens, "seq_lens_q": q_lens, "page_size": page_size}
        if block_tables is not None:
            found.update(paged_kv_indptr=None, paged_kv_last_page_len=None,
                         seq_lens=_memory.int32s(kv_lens, qo))
        return found, differences(qo) if q_lens is None else q_lens.tolist(), kv_lens

    def workspace_size(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        page_size: int, head_dim_vo: Optional[int] = None, custom_mask: Optional[Tensor] = None,
        packed_custom_mask: Optional[Tensor] = None, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None, window_left: int = -1,
        logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, q_data_type: Any = "float16", kv_data_type: Any = None,
        o_data_type: Any = None, prefix_len_ptr: Optional[Tensor] = None,
        token_pos_in_items_ptr: Optional[Tensor] = None, token_pos_in_items_len: int = 0,
        max_item_len_ptr: Optional[Tensor] = None, seq_lens: Optional[Tensor] = None,
        seq_lens_q: Optional[Tensor] = None, block_tables: Optional[Tensor] = None,
        max_token_per_sequence: Optional[int] = None, max_sequence_kv: Optional[int] = None,
        fixed_split_size: Optional[int] = None, disable_split_kv: bool = False,
    ) -> Tuple[int, int]:
        """Bytes of the float and of the int workspace that :meth:`plan` with these arguments needs.
        Nothing is planned."""
        masked = custom_mask is not None or packed_custom_mask is not None
        arguments = self._plan_arguments(
            num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, q_data_type, kv_data_type,
            o_data_type, fixed_split_size, disable_split_kv, max_token_per_sequence,
            max_sequence_kv, masked)
        block_tables = self._tables(block_tables, paged_kv_indices)
        lengths, _, _ = self._lengths(qo_indptr, paged_kv_indptr, paged_kv_last_page_len, seq_lens,
                                      seq_lens_q, block_tables, page_size,
                                      num_qo_heads * head_dim_qk)
        arguments.update(lengths)
        arguments.update(self._graph_arguments(int(lengths["qo_indptr"][-1]),
                                               self._most_keys(page_size, max_sequence_kv)))
        sizes = self._sizes({**arguments, "causal": causal, "pos_encoding_mode": pos_encoding_mode,
                             "window_left": window_left, "kv_layout": self._kv_layout})
        return sizes.device, sizes.device_int

    def _most_keys(self, page_size: int, given: Optional[int]) -> Optional[int]:
        if not self._use_cuda_graph:
            return given
        return self._paged_kv_indices_buf.shape[0] * page_size if given is None else given

    def plan(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        page_size: int, head_dim_vo: Optional[int] = None, custom_mask: Optional[Tensor] = None,
        packed_custom_mask: Optional[Tensor] = None, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None, window_left: int = -1,
        logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, q_data_type: Any = "float16", kv_data_type: Any = None,
        o_data_type: Any = None, non_blocking: bool = True,
        prefix_len_ptr: Optional[Tensor] = None, token_pos_in_items_ptr: Optional[Tensor] = None,
        token_pos_in_items_len: int = 0, max_item_len_ptr: Optional[Tensor] = None,
        seq_lens: Optional[Tensor] = None, seq_lens_q: Optional[Tensor] = None,
        block_tables: Optional[Tensor] = None, max_token_per_sequence: Optional[int] = None,
        max_sequence_kv: Optional[int] = None, fixed_split_size: Optional[int] = None,
        disable_split_kv: bool = False,
    ) -> None:
        """Prepares runs for the lengths at hand; to be called when they change.

        Lengths on the host cost no wait, lengths on the GPU one copy back and one wait.

        :param qo_indptr: ``[b + 1]`` int32: request i owns rows ``qo_indptr[i]`` to
            ``qo_indptr[i + 1]`` of q, its last tokens.
        :param paged_kv_indptr: ``[b + 1]`` int32: and pages
            ``paged_kv_indices[paged_kv_indptr[i]:paged_kv_indptr[i + 1]]``.
        :param paged_kv_last_page_len: ``[b]`` int32, tokens in the last page, 1 to page_size.
        :param num_kv_heads: divides num_qo_heads. :param head_dim_qk: a multiple of 8 up to 576;
            head_dim_vo likewise, and equal to it by default.
        :param custom_mask: ``[sum of q_len * kv_len]`` bool, request behind request, row by row;
            True is seen. It replaces causal. :param packed_custom_mask: the same in bits, uint8,
            the lowest first, each request from a new byte.
        :param causal: query i sees keys up to ``kv_len - q_len + i``.
        :param window_left: keys visible before a query's own, also under a mask; -1 is no limit.
        :param logits_soft_cap: ``cap * tanh(s / cap)``; None and 0 are off.
        :param q_data_type: float16, bfloat16, float32 or fp8; kv_data_type is like it by default,
            o_data_type, too, and bfloat16 for fp8.
        :param prefix_len_ptr: ``[b]`` uint32, for multi-item scoring, with causal: keys that all
            items share. :param token_pos_in_items_ptr: ``[b * token_pos_in_items_len]`` uint16:
            places in the items behind it, 0 a delimiter. :param max_item_len_ptr: ``[b]`` uint16.
        :param seq_lens: ``[b]`` int32, keys, in the place of paged_kv_last_page_len.
        :param seq_lens_q: ``[b]`` int32, rows, where qo_indptr leaves more.
        :param block_tables: ``[b, m]`` int32, page ids by request. They are read with the backends
            "trtllm-gen" and "cudnn" or where paged_kv_indices is None; else both name the same
            pages.
        :param max_token_per_sequence: with max_sequence_kv a bound; longer requests are refused.
        :param fixed_split_size: pages of a piece; a request then has the same bits in any batch.
        :param disable_split_kv: one piece for each tile of queries, again the same bits.
        :param use_fp16_qk_reduction: with non_blocking a hint.
        """
        masked = custom_mask is not None or packed_custom_mask is not None
        arguments = self._plan_arguments(
            num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, q_data_type, kv_data_type,
            o_data_type, fixed_split_size, disable_split_kv, max_token_per_sequence,
            max_sequence_kv, masked)
        block_tables = self._tables(block_tables, paged_kv_indices)
        lengths, q_lens, kv_lens = self._lengths(
            qo_indptr, paged_kv_indptr, paged_kv_last_page_len, seq_lens, seq_lens_q, block_tables,
            page_size, num_qo_heads * head_dim_qk)
        if not self._use_cuda_graph:
            paged_kv_indices = _memory.page_ids(f"{type(self).__name__}.plan: paged_kv_indices",
                                                paged_kv_indices)
        rows = int(lengths["qo_indptr"][-1])
        self._check_batch(len(q_lens))
        room = self._paged_kv_indices_buf.shape[0] if self._use_cuda_graph else 0
        if self._use_cuda_graph and block_tables is None and paged_kv_indices.shape[0] > room:
            raise ValueError(
                f"{type(self).__name__}.plan: paged_kv_indices: expected at most {room}, the "
                f"length of paged_kv_indices_buf; got {paged_kv_indices.shape[0]}")
        arguments.update(lengths)
        arguments.update(self._graph_arguments(rows, self._most_keys(page_size, max_sequence_kv)))
        mask = self._pack_mask(custom_mask, packed_custom_mask, q_lens, kv_lens)
        self._make_first_plan(arguments, options_of(
            causal, pos_encoding_mode, window_left, logits_soft_cap, rope_scale, rope_theta))
        self._keep(arguments, sm_scale, head_dim_qk, arguments["head_dim_vo"])
        self._keep_rows(rows, len(q_lens), q_lens, kv_lens)
        if not self._use_cuda_graph:  # copies, which the caller does not write over
            qo_indptr = lengths["qo_indptr"]
        self._keep_buffer("_qo_indptr_buf", qo_indptr)
        self._keep_buffer("_paged_kv_indptr_buf", paged_kv_indptr)
        self._keep_buffer("_paged_kv_indices_buf", paged_kv_indices)
        self._keep_buffer("_paged_kv_last_page_len_buf", paged_kv_last_page_len)
        self._keep_mask(mask)
        self._keep_items(prefix_len_ptr, token_pos_in_items_ptr, token_pos_in_items_len,
                         max_item_len_ptr)
        self._block_tables = _memory.to_device(block_tables, self.device)

    begin_forward = plan

    def _plan_internal(self, float_workspace: Any, int_workspace: Any, pinned: Any, qo_indptr: Any,
                       kv_indptr: Any, kv_lens: Any, max_rows: int, batch: int, num_qo_heads: int,
                       num_kv_heads: int, page_size: int, graph: bool, head_dim_qk: int,
                       head_dim_vo: int, causal: bool, window_left: int, *split: Any) -> Any:
        """FlashInfer's internal call of its paged prefill; behind the window come the split size,
        whether splitting is off, and hints."""
        del float_workspace, int_workspace, pinned, batch, graph  # the wrapper's own
        arguments = dict(self._arguments)
        qo, kv, lens = _memory.to_host(qo_indptr, kv_indptr, kv_lens)
        arguments.update(
            qo_indptr=qo, paged_kv_indptr=kv, paged_kv_last_page_len=None,
            seq_lens=lens.reshape(-1), seq_lens_q=None, num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads, page_size=page_size, head_dim_qk=head_dim_qk,
            head_dim_vo=head_dim_vo, use_custom_mask=self._masked)
        arguments["fixed_split_size"] = split[0] if split else None
        arguments["disable_split_kv"] = bool(split[1]) if len(split) > 1 else False
        if self._use_cuda_graph:
            arguments["max_num_rows"] = max_rows
        if self._forwarded is not None:
            return self._make_plan(arguments, self._forwarded)
        return self._make_plan(
            arguments, self._options()._replace(causal=bool(causal), window_left=window_left))

    def forward(self, q: Tensor, paged_kv_cache: Any, causal: bool = False,
                pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
                k_scale: Optional[float] = None, v_scale: Optional[float] = None,
                window_left: int = -1, logits_soft_cap: Optional[float] = None,
                sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                rope_theta: Optional[float] = None) -> Tensor:
        """An older form of :meth:`run`. Its options replace those of the plan; where they differ,
        the first call plans again."""
        self._forward(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(
        self, q: Tensor, paged_kv_cache: Any, causal: bool = False, pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False, k_scale: Optional[float] = None,
        v_scale: Optional[float] = None, window_left: int = -1,
        logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
    ) -> Tuple[Tensor, Tensor]:
        """:meth:`forward` with lse."""
        self._forward(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=True)

    def run(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Any = None,
            k_scale: Any = None, v_scale: Any = None, out: Optional[Tensor] = None,
            lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
            sinks: Optional[Tensor] = None, kv_cache_sf: Any = None,
            skip_softmax_threshold_scale_factor: Optional[float] = None,
            use_fp16_softmax: Optional[bool] = None, uses_spcompress: Optional[bool] = None,
            ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention as planned. Nothing is allocated but what is returned, and nothing waits, so
        that it can be captured.

        :param q: ``[qo_indptr[-1], h_q, d_qk]``.
        :param paged_kv_cache: a pair of 4-D tensors, or a 5-D one with keys and values on its
            second axis; strides are honoured.
        :param args: the scales of q, k and v by position, for fp8.
        :param q_scale: with k_scale multiplies the logits, v_scale the result: numbers, or float32
            tensors of one element or of one for each head.
        :param out: ``[qo_indptr[-1], h_q, d_vo]`` of the planned dtype; allocated if not given.
        :param lse: ``[qo_indptr[-1], h_q]`` float32, to base 2.
        :param window_left: has to be the planned one.
        :param sinks: ``[h_q]`` float32: a logit that joins each row's sum.
        :param enable_pdl: a hint, as are skip_softmax_threshold_scale_factor and use_fp16_softmax.
        :param kv_cache_sf: of NVFP4 caches, which this version does not have; refused, as is
            uses_spcompress.
        :returns: out, or (out, lse) with return_lse.
        """
        if kv_cache_sf is not None or uses_spcompress:
            later("BatchPrefillWithPagedKVCacheWrapper.run", kv_cache_sf=kv_cache_sf)
            refuse("BatchPrefillWithPagedKVCacheWrapper.run", uses_spcompress=uses_spcompress)
        if window_left is not None and window_left != self._window_left:
            raise ValueError(f"{type(self).__name__}.run: window_left: expected "
                             f"{self._window_left}, as planned; got {window_left}")
        self._before_run()
        if args or self._variant is not None:
            q_scale, k_scale, v_scale = self._scale_arguments(args, q_scale, k_scale, v_scale)
        if self._backend == "cudnn" and self._kv_layout == "NHD":
            paged_kv_cache = self._heads_behind(paged_kv_cache)
        q_scale, k_scale = self._scales(q_scale, k_scale)
        out, lse = self._outputs(q, out, lse, return_lse)
        tables = self._block_tables
        self._run(q, paged_kv_cache, self._paged_kv_indices_buf if tables is None else None, tables,
                  *self._run_tail(sinks, q_scale, k_scale, v_scale, out, lse))
        return (out, lse) if return_lse else out

    def _heads_behind(self, cache: Any) -> Any:
        """The cache of the backend cudnn, whose heads FlashInfer has before the tokens of a page
        whatever kv_layout says; as ``[pages, page_size, h_kv, d]``."""
        k, v = split_paged(cache, "HND")
        ahead = self._arguments["num_kv_heads"], self._arguments["page_size"]
        if tuple(k.shape[1:3]) == ahead:
            return k.swapaxes(1, 2), v.swapaxes(1, 2)
        return k, v

    def run_return_lse(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Any = None,
                       k_scale: Any = None, v_scale: Any = None, out: Optional[Tensor] = None,
                       lse: Optional[Tensor] = None, return_lse: bool = True,
                       enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
                       sinks: Optional[Tensor] = None, kv_cache_sf: Any = None,
                       skip_softmax_threshold_scale_factor: Optional[float] = None,
                       use_fp16_softmax: Optional[bool] = None,
                       uses_spcompress: Optional[bool] = None) -> Tuple[Tensor, Tensor]:
        """:meth:`run` with lse."""
        return self.run(
            q, paged_kv_cache, *args, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out,
            lse=lse, return_lse=return_lse, window_left=window_left, sinks=sinks,
            kv_cache_sf=kv_cache_sf, uses_spcompress=uses_spcompress)
