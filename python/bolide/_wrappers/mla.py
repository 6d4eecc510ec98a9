# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention: decode and append against paged caches of latents."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from . import _memory
from ._base import Planned, bind, options_of, outputs_bit, refuse

Tensor = Any

_OPERATORS = bind(
    "batch_mla",
    "qo_indptr kv_indptr kv_len_arr num_heads head_dim_ckv head_dim_kpe page_size q_data_type "
    "kv_data_type o_data_type causal window_left logits_soft_cap sm_scale max_batch_size "
    "max_num_rows max_sequence_kv",
    "q_nope q_pe ckv_cache kpe_cache kv_indices block_tables q_scale ckv_scale kpe_scale o_scale "
    "return_lse_base_on_e ckv_scale_arr out lse")


class Latent(Planned):
    """What both wrappers share. The scale of the logits travels with that of q."""

    _o_data_type: Any = None  # of the result; by default as the dtype of queries asks
    _operators = _OPERATORS

    def _init_buffers(self, use_cuda_graph: bool, batch: Any, **buffers: Any) -> None:
        for name, buffer in buffers.items():
            if use_cuda_graph and buffer is None:
                raise ValueError(f"{type(self).__name__}: {name}: expected a tensor with "
                                 "use_cuda_graph; got None")
        self._fixed_batch_size = batch if use_cuda_graph else 0
        self._max_num_rows: Optional[int] = None
        self._kv_indices_buf: Any = None
        self._block_tables: Any = None

    def _plan_latents(self, qo: Any, kv: Any, lens: Any, indices: Any, num_heads: int,
                      head_dim_ckv: int, head_dim_kpe: int, page_size: int, q_data_type: Any,
                      kv_data_type: Any, sm_scale: float, options: Any) -> None:
        """Plans from lengths on the host, and keeps the page ids on the device."""
        arguments = {
            "qo_indptr": qo, "kv_indptr": kv, "kv_len_arr": lens, "num_heads": num_heads,
            "head_dim_ckv": head_dim_ckv, "head_dim_kpe": head_dim_kpe, "page_size": page_size,
            "q_data_type": _dtypes.of(q_data_type).bit,
            "kv_data_type": _dtypes.of(kv_data_type).bit,
            "o_data_type": outputs_bit(q_data_type, self._o_data_type),
        }
        if self._use_cuda_graph:
            if lens.shape[0] != self._fixed_batch_size:
                raise ValueError(
                    f"{type(self).__name__}.plan: kv_indptr: expected "
                    f"[{self._fixed_batch_size + 1}], as its buffer; got [{lens.shape[0] + 1}]")
            room = self._kv_indices_buf.shape[0]
            if indices is not None and indices.shape[0] > room:
                raise ValueError(f"{type(self).__name__}.plan: kv_indices: expected at most "
                                 f"{room}, as its buffer; got {indices.shape[0]}")
            if self._max_num_rows is None:
                self._max_num_rows = int(qo[-1])
            arguments.update(max_batch_size=self._fixed_batch_size,
                             max_num_rows=self._max_num_rows, max_sequence_kv=room * page_size)
        self._make_first_plan(arguments, options)
        self._keep({**arguments, "num_qo_heads": num_heads, "num_kv_heads": 1}, sm_scale,
                   head_dim_ckv + head_dim_kpe, head_dim_ckv)
        self._page_size = page_size
        self._block_tables = None
        if self._use_cuda_graph:
            _memory.write(self._kv_indices_buf, indices)
        else:
            self._kv_indices_buf = _memory.to_device(indices, self.device)

    def _run_latents(self, q_nope: Tensor, q_pe: Any, ckv_cache: Tensor, kpe_cache: Any,
                     q_scale: Any, ckv_scale: Any, kpe_scale: Any, o_scale: Any, base_e: bool,
                     out: Any, lse: Any, return_lse: bool, ckv_scale_arr: Any = None) -> Any:
        self._before_run()
        out, lse = self._outputs(q_nope, out, lse, return_lse)
        q_scale, _ = self._scales(q_scale, 1.0)
        if q_pe is not None and q_pe.shape[-1] == 0:
            q_pe = kpe_cache = None
        _OPERATORS.run(q_nope, q_pe, ckv_cache, kpe_cache, self._kv_indices_buf,
                       self._block_tables, q_scale, ckv_scale, kpe_scale, o_scale, base_e,
                       ckv_scale_arr, out, lse, self._workspace.address, self._plan_info.address)
        return (out, lse) if return_lse else out


class BatchMLAPagedAttentionWrapper(Latent):
    """Multi-head latent attention with absorbed projections, for any number of query tokens.

    All heads share one key a token: a latent, which is the value as well, and a rotary part.

    :param float_workspace_buffer: uint8, aligned to 16 bytes.
    :param use_cuda_graph: keep the page table in the four buffers given here, whose lengths fix the
        batch; then a captured run follows later plans.
    :param qo_indptr: buffer, ``[b + 1]`` int32. :param kv_indptr: likewise.
    :param kv_indices: int32, as long as the largest list of pages. :param kv_len_arr: ``[b]``
        int32.
    :param backend: "auto", "fa2" or "fa3", which stand for the same contract; or "cutlass", which
        takes lengths and pages of one query token a request with each run, and no plan.
    """

    _backends = ("auto", "fa2", "fa3", "cutlass")
    _qo_indptr_buf = _memory.OnDevice()
    _kv_indptr_buf = _memory.OnDevice()
    _kv_len_arr_buf = _memory.OnDevice()

    def __init__(self, float_workspace_buffer: Tensor, use_cuda_graph: bool = False,
                 qo_indptr: Optional[Tensor] = None, kv_indptr: Optional[Tensor] = None,
                 kv_indices: Optional[Tensor] = None, kv_len_arr: Optional[Tensor] = None,
                 backend: str = "auto"):
        super().__init__(float_workspace_buffer, "NHD", use_cuda_graph, backend)
        if use_cuda_graph and backend == "cutlass":
            raise ValueError(f"{type(self).__name__}: use_cuda_graph: expected False with the "
                             'backend "cutlass", whose lengths come with each run; got True')
        self._init_buffers(
            use_cuda_graph, None if kv_len_arr is None else kv_len_arr.shape[0],
            qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, kv_len_arr=kv_len_arr)
        self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr, kv_indptr
        self._kv_indices_buf, self._kv_len_arr_buf = kv_indices, kv_len_arr

    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_len_arr: Tensor,
             num_heads: int, head_dim_ckv: int, head_dim_kpe: int, page_size: int, causal: bool,
             sm_scale: float, q_data_type: Any, kv_data_type: Any,
             use_profiler: bool = False) -> None:
        """Prepares runs for the lengths at hand. Lengths on the host cost no wait.

        :param qo_indptr: ``[b + 1]`` int32: request i owns rows ``qo_indptr[i]`` to
            ``qo_indptr[i + 1]`` of q, its last tokens. :param kv_indptr: ``[b + 1]`` int32: and
            pages ``kv_indices[kv_indptr[i]:kv_indptr[i + 1]]``. :param kv_len_arr: ``[b]`` int32,
            keys.
        :param head_dim_ckv: of the latent, a multiple of 16. :param head_dim_kpe: of the rotary
            part, 0 or a multiple of 8; both together at most 576.
        :param causal: whether a query sees no key behind its own position.
        :param sm_scale: of the logits, ``1 / sqrt(128 + 64)`` for DeepSeek-V3.
        :param use_profiler: refused.
        """
        refuse("BatchMLAPagedAttentionWrapper.plan", use_profiler=use_profiler)
        kv_indptr = kv_indptr[:qo_indptr.shape[0]]  # buffers may be longer, as FlashInfer's may
        qo, kv, lens = _memory.to_host(qo_indptr, kv_indptr, kv_len_arr)
        self._plan_latents(qo, kv, lens, kv_indices, num_heads, head_dim_ckv, head_dim_kpe,
                           page_size, q_data_type, kv_data_type, sm_scale,
                           options_of(causal, "NONE", -1, None, None, None))
        if not self._use_cuda_graph:
            self._qo_indptr_buf, self._kv_indptr_buf, self._kv_len_arr_buf = qo, kv, lens
            return
        for buffer, tensor in ((self._qo_indptr_buf, qo_indptr), (self._kv_indptr_buf, kv_indptr),
                               (self._kv_len_arr_buf, kv_len_arr)):
            _memory.write(buffer, tensor)

    def _plan_internal(self, float_workspace: Any, int_workspace: Any, pinned: Any, qo_indptr: Any,
                       kv_indptr: Any, kv_len_arr: Any, num_heads: int, head_dim_ckv: int,
                       causal: bool) -> Any:
        """FlashInfer's internal call, by which engines plan again without waiting."""
        del float_workspace, int_workspace, pinned  # the wrapper's own
        qo, kv, lens = _memory.to_host(qo_indptr, kv_indptr, kv_len_arr)
        n = lens.shape[0] + 1
        arguments = {**self._arguments, "qo_indptr": qo[:n], "kv_indptr": kv[:n],
                     "kv_len_arr": lens, "num_heads": num_heads, "head_dim_ckv": head_dim_ckv}
        return self._make_plan(arguments, self._planned._replace(causal=bool(causal)))

    def run(self, q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor,
            out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            profiler_buffer: Optional[Tensor] = None, kv_len: Optional[Tensor] = None,
            page_table: Optional[Tensor] = None, return_lse_base_on_e: bool = False,
            o_scale: Any = None, *, ckv_scale: Any = None, ckv_scale_arr: Optional[Tensor] = None,
            kpe_scale: Any = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention as planned.

        :param q_nope: ``[n, h, d_ckv]``. :param q_pe: ``[n, h, d_kpe]``.
        :param ckv_cache: ``[pages, page_size, d_ckv]``. :param kpe_cache: ``[pages, page_size,
            d_kpe]``.
        :param out: ``[n, h, d_ckv]``. :param lse: ``[n, h]`` float32, to base 2, or natural with
            return_lse_base_on_e.
        :param o_scale: what a stored 1.0 of out stands for, as ckv_scale and kpe_scale of the
            caches.
        :param kv_len: of the backend "cutlass", ``[b]`` int32 keys. :param page_table: likewise,
            ``[b, m]`` int32 page ids. The logits' scale is then ``1 / sqrt(128 + 64)``.
        :param ckv_scale_arr: ``[pages, page_size, d_ckv / 128]`` float32, of each 128 elements of a
            row of a ckv_cache in fp8, on top of ckv_scale; on the CPU.
        :param profiler_buffer: refused.
        :returns: out, or (out, lse) with return_lse.
        """
        name = "BatchMLAPagedAttentionWrapper.run"
        refuse(name, profiler_buffer=profiler_buffer)
        if self._backend == "cutlass":
            self._plan_with_run(q_nope, q_pe, ckv_cache, kv_len, page_table)
        elif kv_len is not None or page_table is not None:
            raise ValueError(f"{name}: kv_len: expected None, as plan() had the lengths; got a "
                             "tensor")
        return self._run_latents(q_nope, q_pe, ckv_cache, kpe_cache, None, ckv_scale, kpe_scale,
                                 o_scale, return_lse_base_on_e, out, lse, return_lse,
                                 ckv_scale_arr)

    def _plan_with_run(self, q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kv_len: Any,
                       page_table: Any) -> None:
        """The plan of a run that brings its lengths: one token a request, pages from a table."""
        if kv_len is None or page_table is None:
            raise ValueError(f"{type(self).__name__}.run: kv_len: expected a tensor, and one as "
                             'page_table, with the backend "cutlass"; got None')
        lens = _memory.to_host(kv_len)[0]
        qo = _memory.int32s(list(range(lens.shape[0] + 1)), lens)
        self._plan_latents(qo, None, lens, None, q_nope.shape[1], q_nope.shape[2], q_pe.shape[2],
                           ckv_cache.shape[1], q_nope.dtype, ckv_cache.dtype, 192 ** -0.5,
                           options_of(False, "NONE", -1, None, None, None))
        self._block_tables = page_table


class BatchDecodeMlaWithPagedKVCacheWrapper(Latent):
    """Multi-head latent attention of one new token of each request.

    :param float_workspace_buffer: uint8, aligned to 16 bytes.
    :param use_cuda_graph: keep the page table in the three buffers given here, whose lengths fix
        the batch.
    :param use_tensor_cores: a hint.
    :param paged_kv_indptr_buffer: ``[b + 1]`` int32. :param paged_kv_indices_buffer: int32, as long
        as the largest list of pages. :param paged_kv_last_page_len_buffer: ``[b]`` int32.
    """

    _paged_kv_indptr_buf = _memory.OnDevice()
    _paged_kv_last_page_len_buf = _memory.OnDevice()

    def __init__(self, float_workspace_buffer: Tensor, use_cuda_graph: bool = False,
                 use_tensor_cores: bool = False, paged_kv_indptr_buffer: Optional[Tensor] = None,
                 paged_kv_indices_buffer: Optional[Tensor] = None,
                 paged_kv_last_page_len_buffer: Optional[Tensor] = None):
        super().__init__(float_workspace_buffer, "NHD", use_cuda_graph, "auto")
        last = paged_kv_last_page_len_buffer
        self._init_buffers(
            use_cuda_graph, None if last is None else last.shape[0],
            paged_kv_indptr_buffer=paged_kv_indptr_buffer,
            paged_kv_indices_buffer=paged_kv_indices_buffer, paged_kv_last_page_len_buffer=last)
        self._use_tensor_cores = use_tensor_cores
        self._paged_kv_indptr_buf, self._paged_kv_last_page_len_buf = paged_kv_indptr_buffer, last
        self._kv_indices_buf = paged_kv_indices_buffer

    @property
    def use_tensor_cores(self) -> bool:
        """The hint given at construction."""
        return self._use_tensor_cores

    def plan(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
             head_dim_compressed_kv: int, page_size: int, sm_scale: float, window_left: int = -1,
             logits_soft_cap: Optional[float] = None, data_type: Any = "float16",
             q_data_type: Any = None, rope_scale: Optional[float] = None,
             rope_theta: Optional[float] = None) -> None:
        """Prepares runs for the lengths at hand. Lengths on the host cost no wait.

        :param indptr: ``[b + 1]`` int32: request i owns pages ``indices[indptr[i]:indptr[i + 1]]``.
        :param last_page_len: ``[b]`` int32, tokens in the last page.
        :param head_dim_compressed_kv: of the latent; the rotary part has an eighth of it.
        :param sm_scale: of the logits. :param data_type: of the caches; q_data_type is like it by
            default.
        :param window_left: keys visible before a query's own; -1 is no limit.
        :param rope_scale: with rope_theta of a rotation that has taken place before: q and the
            cache hold rotated values, here as in FlashInfer, so that both are only checked.
        """
        for name, value in (("rope_scale", rope_scale), ("rope_theta", rope_theta)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError("BatchDecodeMlaWithPagedKVCacheWrapper.plan: "
                                 f"{name}: expected a positive finite number; got {value}")
        kv, last = _memory.to_host(indptr, last_page_len)
        pages = kv[1:] - kv[:-1]
        lens = (pages - 1) * page_size + last
        lens[pages <= 0] = 0
        qo = _memory.int32s(list(range(lens.shape[0] + 1)), kv)
        self._plan_latents(qo, kv, lens, indices, num_qo_heads, head_dim_compressed_kv,
                           head_dim_compressed_kv // 8, page_size,
                           data_type if q_data_type is None else q_data_type, data_type, sm_scale,
                           options_of(False, "NONE", window_left, logits_soft_cap, None, None))
        if not self._use_cuda_graph:
            self._paged_kv_indptr_buf, self._paged_kv_last_page_len_buf = kv, last
            return
        _memory.write(self._paged_kv_indptr_buf, indptr)
        _memory.write(self._paged_kv_last_page_len_buf, last_page_len)

    def run(self, q_nope: Tensor, q_pe: Tensor, paged_ckv_cache: Tensor, paged_kpe_cache: Tensor,
            q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
            out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention as planned.

        :param q_nope: ``[b, h, d_ckv]``. :param q_pe: ``[b, h, d_ckv / 8]``.
        :param paged_ckv_cache: ``[pages, page_size, d_ckv]``. :param paged_kpe_cache: ``[pages,
            page_size, d_ckv / 8]``.
        :param q_scale: with k_scale multiplies the logits, v_scale the result: numbers.
        :param out: ``[b, h, d_ckv]``. :param lse: ``[b, h]`` float32, to base 2.
        :param enable_pdl: a hint.
        :returns: out, or (out, lse) with return_lse.
        """
        logits = (1.0 if q_scale is None else q_scale) * (1.0 if k_scale is None else k_scale)
        return self._run_latents(q_nope, q_pe, paged_ckv_cache, paged_kpe_cache, logits, None, None,
                                 None if v_scale is None else 1.0 / v_scale, False, out, lse,
                                 return_lse)

    def run_return_lse(
        self, q_nope: Tensor, q_pe: Tensor, paged_ckv_cache: Tensor, paged_kpe_cache: Tensor,
        q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
        out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = True,
        enable_pdl: bool = False,
    ) -> Tuple[Tensor, Tensor]:
        """:meth:`run` with lse."""
        return self.run(q_nope, q_pe, paged_ckv_cache, paged_kpe_cache, q_scale, k_scale, v_scale,
                        out, lse, return_lse, enable_pdl)
