# SPDX-License-Identifier: Apache-2.0
"""Batches of prefill and decode mixed, and attention with sinks."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from .._arguments import later, split_paged
from .._binding import Plan, Workspace
from .._library import BusyError, torch
from . import _memory
from ._base import bind, outputs_bit, refuse
from .prefill import BatchPrefillWithPagedKVCacheWrapper

Tensor = Any

_OPERATORS = bind(
    "batch_attention",
    "qo_indptr kv_indptr kv_len_arr num_qo_heads num_kv_heads head_dim_qk head_dim_vo page_size "
    "kv_layout q_data_type kv_data_type o_data_type causal logits_soft_cap sm_scale",
    "q k_cache v_cache kv_indices k_scale v_scale logits_soft_cap out lse")


class BatchAttention:
    """Attention of requests of any kind, prefill and decode mixed, against their pages.

    :param kv_layout: "NHD" or "HND". :param device: of the tensors: a torch device, or "cpu"; where
        torch has no GPU it is the CPU. The wrapper owns its memory, and takes no more than the
        plans need.
    """

    def __init__(self, kv_layout: str = "NHD", device: str = "cuda"):
        self._kv_layout = kv_layout
        if torch is not None:
            device = torch.device(device)
            if device.type == "cuda" and not torch.cuda.is_available():
                device = torch.device("cpu")
        self.device = device
        self._workspace: Optional[Workspace] = None
        self._plan_memory: Optional[Plan] = None
        self._plan_info: Optional[Plan] = None
        self._outgrown: list = []
        self._sm_scale: Optional[float] = None
        self._kv_indices: Any = None

    def plan(
        self, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_len_arr: Tensor,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, head_dim_vo: int, page_size: int,
        causal: bool = False, sm_scale: Optional[float] = None,
        logits_soft_cap: Optional[float] = None, q_data_type: Any = _dtypes.BY_NAME["bfloat16"],
        kv_data_type: Any = _dtypes.BY_NAME["bfloat16"], use_profiler: bool = False,
    ) -> None:
        """Prepares runs for the lengths at hand. Lengths on the host cost no wait.

        :param qo_indptr: ``[b + 1]`` int32: request i owns rows ``qo_indptr[i]`` to
            ``qo_indptr[i + 1]`` of q, its last tokens. :param kv_indptr: ``[b + 1]`` int32: and
            pages ``kv_indices[kv_indptr[i]:kv_indptr[i + 1]]``. :param kv_len_arr: ``[b]`` int32,
            keys.
        :param use_profiler: refused.

        Other arguments as in :meth:`BatchPrefillWithPagedKVCacheWrapper.plan`.
        """
        refuse("BatchAttention.plan", use_profiler=use_profiler)
        qo, kv, lens = _memory.to_host(qo_indptr, kv_indptr, kv_len_arr)
        q = _dtypes.of(q_data_type).bit
        arguments = {
            "qo_indptr": qo, "kv_indptr": kv, "kv_len_arr": lens, "num_qo_heads": num_qo_heads,
            "num_kv_heads": num_kv_heads, "head_dim_qk": head_dim_qk, "head_dim_vo": head_dim_vo,
            "page_size": page_size, "kv_layout": self._kv_layout, "q_data_type": q,
            "kv_data_type": _dtypes.of(kv_data_type).bit,
            "o_data_type": outputs_bit(q_data_type, None),
            "causal": bool(causal), "logits_soft_cap": logits_soft_cap, "sm_scale": sm_scale,
        }
        values = [arguments[name] for name in _OPERATORS.names]
        self._reserve(kv_indices, values)
        memory = self._plan_memory
        _memory.planned(_OPERATORS.plan, values, self._workspace, memory)
        self._plan_info = memory
        self._kv_indices = _memory.to_device(kv_indices, self.device)
        self._sm_scale = 1 / math.sqrt(head_dim_qk) if sm_scale is None else sm_scale
        self._logits_soft_cap = logits_soft_cap or 0.0
        self._causal = bool(causal)
        self._page_size = page_size
        self._num_qo_heads = num_qo_heads
        self._num_kv_heads = num_kv_heads
        self._d_vo = head_dim_vo
        self._o_bit = arguments["o_data_type"]

    def _bytes(self, like: Tensor, size: int) -> Tensor:
        if _frameworks.is_torch(like):
            return torch.empty(size, dtype=torch.uint8, device=self.device)
        return _frameworks.empty(like, (size,), "uint8")

    def _reserve(self, like: Tensor, values: list) -> None:
        """Memory for a plan. What was outgrown stays alive, as a captured graph may read it."""
        if self._workspace is None:
            self._workspace = Workspace(self._bytes(like, 16))
        sizes = _OPERATORS.sizes(*values, self._workspace.address)
        if self._plan_memory is None:
            self._plan_memory = Plan(sizes.plan)
        need = (sizes.device, sizes.device_int, sizes.pinned)
        have = tuple(0 if b is None else b.shape[0] for b in self._workspace.buffers)
        if all(n <= h for n, h in zip(need, have)):
            return
        self._outgrown.append(self._workspace)
        device, device_int, pinned = (max(n, h) for n, h in zip(need, have))
        self._workspace = Workspace(
            self._bytes(like, max(device, 16)), self._bytes(like, max(device_int, 16)),
            _memory.pinned(pinned) if self._workspace.device is not None else None)

    def run(self, q: Tensor, kv_cache: Any, out: Optional[Tensor] = None,
            lse: Optional[Tensor] = None, k_scale: Any = None, v_scale: Any = None,
            logits_soft_cap: float = 0.0, profiler_buffer: Optional[Tensor] = None,
            kv_cache_sf: Any = None) -> Tuple[Tensor, Tensor]:
        """Attention as planned.

        :param q: ``[qo_indptr[-1], h_q, d_qk]``. :param kv_cache: a pair of 4-D tensors or a 5-D
            one.
        :param k_scale: multiplies the logits, v_scale the result: numbers or float32 tensors.
        :param logits_soft_cap: of this run; 0 is the planned one.
        :param profiler_buffer: refused, as is kv_cache_sf, of NVFP4 caches.
        :returns: out ``[qo_indptr[-1], h_q, d_vo]`` and lse ``[qo_indptr[-1], h_q]``, to base 2.
        """
        refuse("BatchAttention.run", profiler_buffer=profiler_buffer)
        later("BatchAttention.run", kv_cache_sf=kv_cache_sf)
        if self._plan_info is None:
            raise RuntimeError("BatchAttention: plan() must come before run()")
        k, v = split_paged(kv_cache, self._kv_layout)
        if out is None:
            out = _frameworks.empty(q, (q.shape[0], q.shape[1], self._d_vo), self._o_bit)
        if lse is None:
            lse = _frameworks.empty(q, (q.shape[0], q.shape[1]), "float32")
        _OPERATORS.run(q, k, v, self._kv_indices, k_scale, v_scale, logits_soft_cap or None, out,
                       lse, self._workspace.address, self._plan_info.address)
        return out, lse


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """:class:`BatchPrefillWithPagedKVCacheWrapper` with attention sinks: for each head a logit that
    joins the sum of every row (and so its lse) and has no value.

    The dtypes, head sizes and window given here are those that :meth:`plan` must be given as well;
    a window given here alone holds for every plan. ``run(q, paged_kv_cache, sinks, sm_scale)``
    takes the sinks ``[h_q]`` float32 by position, or by name.
    """

    _backends = ("auto", "fa2", "fa3")

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, qo_indptr_buf: Optional[Tensor] = None,
                 paged_kv_indptr_buf: Optional[Tensor] = None,
                 paged_kv_indices_buf: Optional[Tensor] = None,
                 paged_kv_last_page_len_buf: Optional[Tensor] = None,
                 custom_mask_buf: Optional[Tensor] = None,
                 mask_indptr_buf: Optional[Tensor] = None, backend: str = "auto",
                 pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
                 q_data_type: Any = _dtypes.BY_NAME["bfloat16"],
                 kv_data_type: Any = _dtypes.BY_NAME["bfloat16"], head_dim_qk: int = 128,
                 head_dim_vo: int = 128, window_left: int = -1):
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf,
                         paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf,
                         custom_mask_buf, mask_indptr_buf, backend)
        self._made_for = {
            "pos_encoding_mode": pos_encoding_mode, "q_data_type": _dtypes.of(q_data_type).bit,
            "kv_data_type": _dtypes.of(kv_data_type).bit, "head_dim_qk": head_dim_qk,
            "head_dim_vo": head_dim_vo,
        }
        self._made_for_window = window_left

    def _make_plan(self, arguments: dict[str, Any], options: Any) -> Plan:
        given = {**arguments, **options._asdict()}
        for name, value in self._made_for.items():
            if given[name] != value:
                show = (lambda x: _dtypes.BY_BIT[x].name) if name.endswith("data_type") else str
                raise ValueError(f"{type(self).__name__}.plan: {name}: expected {show(value)}, as "
                                 f"the wrapper was made for; got {show(given[name])}")
        if self._made_for_window >= 0:
            if options.window_left not in (-1, self._made_for_window):
                raise ValueError(
                    f"{type(self).__name__}.plan: window_left: expected {self._made_for_window}, "
                    f"as the wrapper was made for; got {options.window_left}")
            super()._make_plan(arguments, options._replace(window_left=self._made_for_window))
            self._planned = options
            return self._plan_info
        return super()._make_plan(arguments, options)

    def run(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Any = None,
            k_scale: Any = None, v_scale: Any = None, out: Optional[Tensor] = None,
            lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
            sinks: Optional[Tensor] = None, kv_cache_sf: Any = None,
            skip_softmax_threshold_scale_factor: Optional[float] = None,
            use_fp16_softmax: Optional[bool] = None, uses_spcompress: Optional[bool] = None,
            ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """As :meth:`BatchPrefillWithPagedKVCacheWrapper.run`; args are the sinks and sm_scale."""
        if len(args) > 2 or (args and sinks is not None):
            raise ValueError(f"{type(self).__name__}.run: expected the sinks, and sm_scale behind "
                             f"them; got {len(args)} more arguments")
        if args:
            sinks = args[0]
        planned = self._sm_scale
        if len(args) == 2:
            self._sm_scale = args[1]
        try:
            return super().run(
                q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out,
                lse=lse, return_lse=return_lse, window_left=window_left, sinks=sinks,
                kv_cache_sf=kv_cache_sf, uses_spcompress=uses_spcompress)
        finally:
            self._sm_scale = planned
