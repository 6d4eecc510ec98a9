# SPDX-License-Identifier: Apache-2.0
"""Decoding in batches against paged caches, and plans of it without waiting for the GPU."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any, Callable, List, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from .._arguments import later
from . import _masks, _memory
from ._base import Planned, bind, options_of, outputs_bit

Tensor = Any

_OPERATORS = bind(
    "batch_decode",
    "indptr last_page_len seq_lens num_qo_heads num_kv_heads head_dim page_size kv_layout "
    "q_data_type kv_data_type o_data_type pos_encoding_mode q_len_per_req causal use_custom_mask "
    "window_left logits_soft_cap sm_scale rope_scale rope_theta fixed_split_size disable_split_kv "
    "max_batch_size max_sequence_kv variant",
    "q k_cache v_cache indices block_tables packed_custom_mask sinks q_scale k_scale v_scale out lse "
    "variant")
_LEGACY = (
    "pos_encoding_mode", "window_left", "logits_soft_cap", "q_data_type", "kv_data_type",
    "o_data_type", "data_type", "sm_scale", "rope_scale", "rope_theta", "non_blocking",
    "block_tables", "seq_lens", "fixed_split_size", "disable_split_kv", "q_len_per_req")


def _legacy_order(plan: Callable) -> Callable:
    """Older programs give everything by position; the order was this one."""
    here = 8  # self and the seven arguments that stay positional

    @functools.wraps(plan)
    def call(*args: Any, **kwargs: Any) -> None:
        if len(args) > here:
            if len(args) > here + len(_LEGACY):
                raise TypeError(f"plan: expected at most {here + len(_LEGACY) - 1} positional "
                                f"arguments; got {len(args) - 1}")
            warnings.warn("plan: arguments behind page_size should be given by name",
                          DeprecationWarning, stacklevel=2)
            late = dict(zip(_LEGACY, args[here:]))
            twice = sorted(late.keys() & kwargs.keys())
            if twice:
                raise TypeError(f"plan: {', '.join(twice)}: given by position and by name")
            kwargs.update(late)
            args = args[:here]
        return plan(*args, **kwargs)

    call.__signature__ = inspect.signature(plan)
    return call


class BatchDecodeWithPagedKVCacheWrapper(Planned):
    """Attention of the newest tokens of each request against its pages.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes; it may
        be shared by wrappers that run one after the other on a stream. 128 MiB is customary,
        :meth:`workspace_size` says what is needed.
    :param kv_layout: "NHD" has pages ``[page, token, head, dim]``, "HND" ``[page, head, token,
        dim]``.
    :param use_cuda_graph: keep the page table in the three buffers given here, whose lengths fix
        the batch; then a captured run follows later plans.
    :param use_tensor_cores: a hint; the kernel is chosen by shape.
    :param paged_kv_indptr_buffer: ``[b + 1]`` int32. :param paged_kv_indices_buffer: int32, as long
        as the largest list of pages. :param paged_kv_last_page_len_buffer: ``[b]`` int32.
    :param backend: a name of FlashInfer's; all stand for the same contract.
    :param jit_args: of a custom variant (:mod:`bolide._wrappers.variant`), whose tensors and numbers
        follow the cache in :meth:`run`.
    """

    _operators = _OPERATORS
    _backends = ("auto", "fa2", "fa3", "trtllm-gen", "cute-dsl")
    _paged_kv_indptr_buf = _memory.OnDevice()
    _paged_kv_last_page_len_buf = _memory.OnDevice()

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, use_tensor_cores: bool = False,
                 paged_kv_indptr_buffer: Optional[Tensor] = None,
                 paged_kv_indices_buffer: Optional[Tensor] = None,
                 paged_kv_last_page_len_buffer: Optional[Tensor] = None, backend: str = "auto",
                 jit_args: Optional[List[Any]] = None):
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, jit_args)
        self._use_tensor_cores = use_tensor_cores
        self._paged_kv_indptr_buf = paged_kv_indptr_buffer
        self._paged_kv_indices_buf = paged_kv_indices_buffer
        self._paged_kv_last_page_len_buf = paged_kv_last_page_len_buffer
        self._block_tables = None
        self._mask: Any = None
        self._masked = False
        self._q_len_per_req = 1
        self._fixed_batch_size = 0
        self._causal = True
        if use_cuda_graph:
            self._check_buffers()
            self._fixed_batch_size = paged_kv_last_page_len_buffer.shape[0]

    def _check_buffers(self) -> None:
        for name in ("indptr", "indices", "last_page_len"):
            if getattr(self, f"_paged_kv_{name}_buf") is None:
                raise ValueError(f"{type(self).__name__}: paged_kv_{name}_buffer: expected a "
                                 "tensor with use_cuda_graph; got None")
        b = self._paged_kv_last_page_len_buf.shape[0]
        if self._paged_kv_indptr_buf.shape[0] != b + 1:
            raise ValueError(
                f"{type(self).__name__}: paged_kv_indptr_buffer: expected [{b + 1}], one more than "
                f"paged_kv_last_page_len_buffer; got [{self._paged_kv_indptr_buf.shape[0]}]")

    @property
    def use_tensor_cores(self) -> bool:
        """The hint given at construction."""
        return self._use_tensor_cores

    def _plan_arguments(self, num_qo_heads, num_kv_heads, head_dim, page_size, q_data_type,
                        kv_data_type, o_data_type, data_type, fixed_split_size, disable_split_kv,
                        q_len_per_req) -> dict[str, Any]:
        """What a plan has besides its lengths and the options."""
        if data_type is not None:
            narrow = _dtypes.of(data_type).itemsize == 1
            if q_data_type is None or (q_data_type == "float16" and isinstance(q_data_type, str)
                                       and not narrow):
                q_data_type = data_type
            kv_data_type = data_type if kv_data_type is None else kv_data_type
        q_data_type = "float16" if q_data_type is None else q_data_type
        q = _dtypes.of(q_data_type).bit
        arguments = {
            "num_qo_heads": num_qo_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim,
            "page_size": page_size, "q_data_type": q,
            "kv_data_type": q if kv_data_type is None else _dtypes.of(kv_data_type).bit,
            "o_data_type": outputs_bit(q_data_type, o_data_type),
            "fixed_split_size": fixed_split_size, "disable_split_kv": disable_split_kv,
            "q_len_per_req": q_len_per_req,
        }
        if self._use_cuda_graph:
            arguments["max_batch_size"] = self._fixed_batch_size
            arguments["max_sequence_kv"] = self._paged_kv_indices_buf.shape[0] * page_size
        return arguments

    def _lengths(self, indptr, last_page_len, block_tables, seq_lens, page_size) -> dict[str, Any]:
        """Host copies of the lengths, as the library takes them: with block_tables there is no
        indptr, and lengths of requests replace those of last pages."""
        if seq_lens is not None:
            seq_lens = seq_lens.reshape(-1)
            last_page_len = None
        if block_tables is None:
            indptr, last_page_len, seq_lens = _memory.to_host(indptr, last_page_len, seq_lens)
            return {"indptr": indptr, "last_page_len": last_page_len, "seq_lens": seq_lens}
        if seq_lens is None:
            indptr, last_page_len = _memory.to_host(indptr, last_page_len)
            pages = indptr[1:] - indptr[:-1]
            seq_lens = (pages - 1) * page_size + last_page_len
            seq_lens[pages <= 0] = 0
            return {"seq_lens": seq_lens}
        return {"seq_lens": _memory.to_host(seq_lens)[0]}

    def _longest(self, lengths: dict[str, Any], page_size: int) -> Optional[int]:
        """A power of two that no request's keys exceed; None with graphs, whose bound is fixed, and
        for more requests than the kernel takes that a bound allows."""
        seq_lens, indptr = lengths.get("seq_lens"), lengths.get("indptr")
        of = indptr if seq_lens is None else seq_lens
        if self._use_cuda_graph or of is None or not 0 < of.shape[0] <= 17:
            return None
        keys = of.tolist()
        if seq_lens is None:
            keys = [(b - a) * page_size for a, b in zip(keys, keys[1:])]
        return 1 << (max([1, *keys]) - 1).bit_length()

    def _make_plan(self, arguments: dict[str, Any], options: Any) -> Any:
        """Whoever plans anew with other lengths: the bound is theirs, not that of the plan before."""
        if not self._use_cuda_graph:
            arguments = {**arguments, "max_sequence_kv": self._longest(arguments,
                                                                       arguments["page_size"])}
        return super()._make_plan(arguments, options)

    def workspace_size(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, pos_encoding_mode: str = "NONE",
        window_left: int = -1, logits_soft_cap: Optional[float] = None,
        q_data_type: Any = "float16", kv_data_type: Any = None, o_data_type: Any = None,
        data_type: Any = None, sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
        block_tables: Optional[Tensor] = None, seq_lens: Optional[Tensor] = None,
        fixed_split_size: Optional[int] = None, disable_split_kv: bool = False,
        q_len_per_req: int = 1,
    ) -> Tuple[int, int]:
        """Bytes of the float and of the int workspace that :meth:`plan` with these arguments needs.
        Nothing is planned."""
        arguments = self._plan_arguments(
            num_qo_heads, num_kv_heads, head_dim, page_size, q_data_type, kv_data_type, o_data_type,
            data_type, fixed_split_size, disable_split_kv, q_len_per_req)
        block_tables = self._tables(block_tables, indices)
        arguments.update(self._lengths(indptr, last_page_len, block_tables, seq_lens, page_size))
        sizes = self._sizes({**arguments, "kv_layout": self._kv_layout, "window_left": window_left,
                             "pos_encoding_mode": pos_encoding_mode})
        return sizes.device, sizes.device_int

    @_legacy_order
    def plan(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, *, pos_encoding_mode: str = "NONE",
        window_left: int = -1, window_right: int = 0, logits_soft_cap: Optional[float] = None,
        q_data_type: Any = "float16", kv_data_type: Any = None, o_data_type: Any = None,
        data_type: Any = None, sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, non_blocking: bool = True,
        block_tables: Optional[Tensor] = None, seq_lens: Optional[Tensor] = None,
        fixed_split_size: Optional[int] = None, disable_split_kv: bool = False,
        q_len_per_req: int = 1,
    ) -> None:
        """Prepares runs for the lengths at hand; to be called when they change.

        Lengths on the host cost no wait, lengths on the GPU one copy back and one wait.

        :param indptr: ``[b + 1]`` int32: request i owns pages ``indices[indptr[i]:indptr[i + 1]]``.
        :param indices: int32, ids of pages. :param last_page_len: ``[b]`` int32, tokens in the last
            page, 1 to page_size.
        :param num_kv_heads: divides num_qo_heads. :param head_dim: a multiple of 8 up to 576.
        :param pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI".
        :param window_left: keys visible before a query's own; -1 is no limit.
        :param window_right: of several queries a request: keys visible behind a query's own; -1 is
            no limit.
        :param logits_soft_cap: ``cap * tanh(s / cap)``; None and 0 are off.
        :param q_data_type: float16, bfloat16, float32 or fp8; kv_data_type is like it by default,
            o_data_type, too, and bfloat16 for fp8. data_type is an older name for the first two.
        :param sm_scale: ``1 / sqrt(head_dim)`` by default.
        :param rope_scale: positions are divided by it with "ROPE_LLAMA"; 1 by default.
        :param rope_theta: base of its frequencies; 10000 by default.
        :param block_tables: ``[b, m]`` int32, page ids by request. They are read with the backend
            "trtllm-gen" or where indices is None; else indices names the same pages.
        :param seq_lens: ``[b]`` int32, keys of each request, in the place of last_page_len.
        :param fixed_split_size: pages of a piece; a request then has the same bits in any batch.
        :param disable_split_kv: one piece a request.
        :param q_len_per_req: queries of each request, the last tokens of it.
        :param non_blocking: a hint.
        """
        if window_right < -1:
            raise ValueError(f"{type(self).__name__}.plan: window_right: expected at least -1; got "
                             f"{window_right}")
        block_tables = self._tables(block_tables, indices)
        if not self._use_cuda_graph:
            indices = _memory.page_ids(f"{type(self).__name__}.plan: indices", indices)
        lengths = self._lengths(indptr, last_page_len, block_tables, seq_lens, page_size)
        longest = self._longest(lengths, page_size)
        given = (longest, block_tables is None, seq_lens is None, num_qo_heads, num_kv_heads,
                 head_dim, page_size, pos_encoding_mode, window_left, window_right,
                 logits_soft_cap, q_data_type, kv_data_type, o_data_type, data_type, sm_scale,
                 rope_scale, rope_theta, fixed_split_size, disable_split_kv, q_len_per_req)
        mask = None
        if self._is_as_before(given):
            self._check_graph(lengths, indices if block_tables is None else None)
            arguments = self._plan_lengths(lengths)
        else:
            arguments = self._plan_arguments(
                num_qo_heads, num_kv_heads, head_dim, page_size, q_data_type, kv_data_type,
                o_data_type, data_type, fixed_split_size, disable_split_kv, q_len_per_req)
            arguments.update(lengths)
            self._check_graph(arguments, indices if block_tables is None else None)
            arguments["use_custom_mask"] = masked = 0 < window_right < q_len_per_req - 1
            mask = self._right_mask(arguments, window_right) if masked else None
            self._make_first_plan(arguments, options_of(
                window_right == 0, pos_encoding_mode, window_left, logits_soft_cap, rope_scale,
                rope_theta))
            self._keep(arguments, sm_scale, head_dim, head_dim)
            if not masked:
                self._note_given(given)
        if not self._use_cuda_graph:  # copies, which the caller does not write over
            indptr = arguments.get("indptr", indptr)
            if arguments.get("last_page_len") is not None:
                last_page_len = arguments["last_page_len"]
        self._keep_table(indptr, indices, last_page_len)
        self._keep_mask(mask, arguments)
        self._block_tables = _memory.to_device(block_tables, self.device)
        self._q_len_per_req = q_len_per_req

    begin_forward = plan

    def _check_graph(self, arguments: dict[str, Any], indices: Any) -> None:
        """The buffers of graph mode fix the batch and the number of pages."""
        if not self._use_cuda_graph:
            return
        lengths = next(arguments[n] for n in ("last_page_len", "seq_lens")
                       if arguments.get(n) is not None)
        if lengths.shape[0] != self._fixed_batch_size:
            raise ValueError(
                f"{type(self).__name__}.plan: last_page_len: expected [{self._fixed_batch_size}], "
                f"the batch of the buffers; got [{lengths.shape[0]}]")
        room = self._paged_kv_indices_buf.shape[0]
        if indices is not None and indices.shape[0] > room:
            raise ValueError(f"{type(self).__name__}.plan: indices: expected at most {room}, the "
                             f"length of paged_kv_indices_buffer; got {indices.shape[0]}")

    def _keep_table(self, indptr, indices, last_page_len) -> None:
        if not self._use_cuda_graph:
            self._paged_kv_indptr_buf = indptr
            self._paged_kv_last_page_len_buf = last_page_len
            self._paged_kv_indices_buf = _memory.to_device(indices, self.device)
            return
        for buffer, tensor in ((self._paged_kv_indptr_buf, indptr),
                               (self._paged_kv_indices_buf, indices),
                               (self._paged_kv_last_page_len_buf, last_page_len)):
            if tensor is not None:
                _memory.write(buffer, tensor)

    def _right_mask(self, arguments: dict[str, Any], right: int) -> Any:
        """In bits, for a window_right between causal and no limit."""
        lens = arguments.get("seq_lens")
        if lens is None:
            pages = arguments["indptr"][1:] - arguments["indptr"][:-1]
            lens = (pages - 1) * arguments["page_size"] + arguments["last_page_len"]
            lens[pages <= 0] = 0
        q_len, like, kv_lens = arguments["q_len_per_req"], self._float_workspace_buffer, lens.tolist()
        elems, starts = _masks.extents([q_len] * len(kv_lens), kv_lens)
        return _masks.pack(_masks.up_to(right, q_len, kv_lens, like), elems, starts, like,
                           self.device)

    def _keep_mask(self, mask: Any, arguments: dict[str, Any]) -> None:
        """In graph mode in one buffer that no later plan outgrows, as a graph may read it."""
        self._masked = mask is not None
        if not self._use_cuda_graph:
            self._mask = mask
        if not self._masked or not self._use_cuda_graph:
            return
        room = self._fixed_batch_size + (
            arguments["q_len_per_req"] * arguments["max_sequence_kv"] + 7) // 8
        if self._mask is None or self._mask.shape[0] < room:
            self._mask = _frameworks.empty(mask, (room,), "uint8")
        _memory.write(self._mask, mask)

    def _plan_internal(self, float_workspace: Any, int_workspace: Any, pinned: Any, *args: Any):
        """FlashInfer's internal call, of its CUDA-core kernel (indptr, batch, heads, page size,
        …) or of its tensor-core kernel (query indptr, indptr, lengths, rows, batch, …)."""
        del float_workspace, int_workspace, pinned  # the wrapper's own
        arguments = dict(self._arguments)
        if self._masked:
            raise NotImplementedError(f"{type(self).__name__}: window_right: a plan past plan() "
                                      "cannot make its mask")
        if len(args) >= 12 and _frameworks.is_tensor(args[2]):
            arguments.update(indptr=args[1], seq_lens=args[2].reshape(-1), last_page_len=None)
        else:
            arguments.update(self._lengths(args[0], self._paged_kv_last_page_len_buf, None, None,
                                           arguments["page_size"]))
        return self._make_plan(arguments, self._planned)

    def forward(self, q: Tensor, paged_kv_cache: Any, pos_encoding_mode: str = "NONE",
                q_scale: Optional[float] = None, k_scale: Optional[float] = None,
                v_scale: Optional[float] = None, window_left: int = -1,
                logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
                rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Tensor:
        """An older form of :meth:`run`. Its options replace those of the plan; where they differ,
        the first call plans again."""
        self._forward(self._causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale,
                      rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(
        self, q: Tensor, paged_kv_cache: Any, pos_encoding_mode: str = "NONE",
        q_scale: Optional[float] = None, k_scale: Optional[float] = None,
        v_scale: Optional[float] = None, window_left: int = -1,
        logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
    ) -> Tuple[Tensor, Tensor]:
        """:meth:`forward` with lse."""
        self._forward(self._causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale,
                      rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale,
                        return_lse=True)

    def run(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Any = None,
            k_scale: Any = None, v_scale: Any = None, out: Optional[Tensor] = None,
            lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
            sinks: Optional[Tensor] = None, q_len_per_req: Optional[int] = None,
            skip_softmax_threshold_scale_factor: Optional[float] = None,
            kv_cache_sf: Any = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention as planned. Nothing is allocated but what is returned, and nothing waits, so
        that it can be captured.

        :param q: ``[b * q_len_per_req, h_q, d]``, tokens of a request together.
        :param paged_kv_cache: a pair of 4-D tensors, or a 5-D one with keys and values on its
            second axis; strides are honoured.
        :param args: the scales of q, k and v by position, for fp8.
        :param q_scale: with k_scale multiplies the logits, v_scale the result: numbers, or float32
            tensors of one element or of one for each head.
        :param out: ``[b * q_len_per_req, h_q, d]`` of the planned dtype; allocated if it is not
            given.
        :param lse: ``[b * q_len_per_req, h_q]`` float32, to base 2.
        :param window_left: has to be the planned one. :param q_len_per_req: likewise.
        :param sinks: ``[h_q]`` float32: a logit that joins each row's sum.
        :param enable_pdl: with skip_softmax_threshold_scale_factor a hint.
        :param kv_cache_sf: of NVFP4 caches, which this version does not have; refused.
        :returns: out, or (out, lse) with return_lse.
        """
        if kv_cache_sf is not None:
            later("BatchDecodeWithPagedKVCacheWrapper.run", kv_cache_sf=kv_cache_sf)
        if window_left is not None and window_left != self._window_left:
            raise ValueError(f"{type(self).__name__}.run: window_left: expected "
                             f"{self._window_left}, as planned; got {window_left}")
        if q_len_per_req is not None and q_len_per_req != self._q_len_per_req:
            raise ValueError(f"{type(self).__name__}.run: q_len_per_req: expected "
                             f"{self._q_len_per_req}, as planned; got {q_len_per_req}")
        self._before_run()
        if args or self._variant is not None:
            q_scale, k_scale, v_scale = self._scale_arguments(args, q_scale, k_scale, v_scale)
            if sinks is None and self._variant is not None:
                sinks = self._variant.sinks
        q_scale, k_scale = self._scales(q_scale, k_scale)
        out, lse = self._outputs(q, out, lse, return_lse)
        tables = self._block_tables
        self._run(q, paged_kv_cache, self._paged_kv_indices_buf if tables is None else None, tables,
                  self._mask if self._masked else None, sinks, q_scale, k_scale, v_scale, out, lse,
                  self._variant_address, self._workspace.address, self._plan_info.address)
        return (out, lse) if return_lse else out

    def run_return_lse(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Any = None,
                       k_scale: Any = None, v_scale: Any = None, out: Optional[Tensor] = None,
                       lse: Optional[Tensor] = None, return_lse: bool = True,
                       enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
                       sinks: Optional[Tensor] = None, q_len_per_req: Optional[int] = None,
                       skip_softmax_threshold_scale_factor: Optional[float] = None,
                       kv_cache_sf: Any = None) -> Tuple[Tensor, Tensor]:
        """:meth:`run` with lse."""
        return self.run(
            q, paged_kv_cache, *args, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out,
            lse=lse, return_lse=return_lse, window_left=window_left, sinks=sinks,
            q_len_per_req=q_len_per_req, kv_cache_sf=kv_cache_sf)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """:class:`BatchDecodeWithPagedKVCacheWrapper` with the page table in the buffers given here,
    for captured graphs."""

    def __init__(self, workspace_buffer: Tensor, indptr_buffer: Tensor, indices_buffer: Tensor,
                 last_page_len_buffer: Tensor, kv_layout: str = "NHD",
                 use_tensor_cores: bool = False):
        super().__init__(workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer,
                         indices_buffer, last_page_len_buffer)


def fast_decode_plan(
    self: Any, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
    num_kv_heads: int, head_dim: int, page_size: int, pos_encoding_mode: str = "NONE",
    window_left: int = -1, logits_soft_cap: Optional[float] = None, q_data_type: Any = None,
    kv_data_type: Any = None, data_type: Any = None, sm_scale: Optional[float] = None,
    rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
    non_blocking: bool = True, fixed_split_size: Optional[int] = None,
    disable_split_kv: bool = False, q_len_per_req: int = 1,
    global_override_indptr_cpu: Optional[Tensor] = None,
) -> None:
    """The plan of a decode wrapper, given as first argument, without a copy from the GPU.

    With lengths on the host (global_override_indptr_cpu in the place of an indptr on the GPU)
    nothing waits; last_page_len on the GPU is read only where pages hold more than one token. In
    graph mode indices that already lie in the wrapper's buffer are left alone. Arguments are those of
    :meth:`BatchDecodeWithPagedKVCacheWrapper.plan`.
    """
    host = indptr if global_override_indptr_cpu is None else global_override_indptr_cpu
    lens = last_page_len
    if page_size == 1 and _memory.on_gpu(last_page_len):
        lens = _memory.int32s([1] * last_page_len.shape[0], last_page_len)
    type(self).plan(
        self, host, indices, lens, num_qo_heads, num_kv_heads, head_dim, page_size,
        pos_encoding_mode=pos_encoding_mode, window_left=window_left,
        logits_soft_cap=logits_soft_cap,
        q_data_type="float16" if q_data_type is None and data_type is None else q_data_type,
        kv_data_type=kv_data_type, data_type=data_type, sm_scale=sm_scale, rope_scale=rope_scale,
        rope_theta=rope_theta, fixed_split_size=fixed_split_size, disable_split_kv=disable_split_kv,
        q_len_per_req=q_len_per_req)
