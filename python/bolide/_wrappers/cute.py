# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers around its CuTe DSL kernels: decode, latent decode and prefill.

They are the library's operators behind other signatures, on every device. Decode over keys in one
piece takes each request as a page of its own, so that both forms of decode are one. In graph mode
the buffers of the first plan are kept, so that a captured run follows later plans that fit them.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any, Callable, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from . import _masks, _memory, ts
from . import contracts as c
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .mla_calls import dense_call, without_head_axis
from .mla_lists import _bytes
from .prefill import BatchPrefillWithPagedKVCacheWrapper
from .ragged import BatchPrefillWithRaggedKVCacheWrapper

Tensor = Any

_PLAN = ("q_data_type", "kv_data_type", "o_data_type", "sm_scale", "kv_splits", "reduction",
         "q_len_per_req", "is_causal")
_LEGACY = {
    "BatchDecodeCuteDSLWrapper.plan": _PLAN,
    "BatchDecodeCuteDSLWrapper.run": ("out", "sm_scale", "o_scale", "lse", "enable_pdl"),
    "BatchDecodePagedCuteDSLWrapper.plan": (
        *_PLAN, "max_kv_len", "non_blocking", "precompile_skip_softmax_kernel"),
    "BatchDecodePagedCuteDSLWrapper.run": (
        "out", "sm_scale", "o_scale", "skip_softmax_threshold_scale_factor", "lse", "enable_pdl"),
}


def _legacy_order(method: Callable) -> Callable:
    """Older programs give options by position, and is_causal in the place of the windows."""
    name, signature = method.__qualname__, inspect.signature(method)
    order = _LEGACY[name]
    here = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= here and "is_causal" not in kwargs:
            return method(*args, **kwargs)
        late = dict(zip(order, args[here:]))
        if len(args) > here + len(order):
            raise TypeError(f"{name}: expected at most {here + len(order) - 1} positional arguments; "
                            f"got {len(args) - 1}")
        twice = sorted(late.keys() & kwargs.keys())
        if twice:
            raise TypeError(f"{name}: {', '.join(twice)}: given by position and by name")
        kwargs.update(late)
        if "is_causal" in kwargs:
            if kwargs.keys() & {"window_left", "window_right"}:
                raise TypeError(f"{name}: is_causal: expected none beside window_left and "
                                "window_right; got one")
            kwargs.update(window_left=None, window_right=0 if kwargs.pop("is_causal") else None)
        warnings.warn(f"{name}: options should be given by name, and windows in the place of "
                      "is_causal", DeprecationWarning, stacklevel=2)
        return method(*args[:here], **kwargs)

    call.__signature__ = signature
    return call


def _splits(name: str, kv_splits: Optional[int], reduction: str) -> bool:
    """Whether a request stays in one piece: with one split, or without a reduction."""
    if reduction not in ("auto", "kernel", "atomic", "none"):
        raise c.expect(name, "reduction", "auto, kernel, atomic or none", repr(reduction))
    if kv_splits is not None and kv_splits < 1:
        raise c.expect(name, "kv_splits", "at least 1, or None", kv_splits)
    if reduction == "none" and kv_splits not in (None, 1):
        raise c.expect(name, "kv_splits", "1 with the reduction none", kv_splits)
    return reduction == "none" or kv_splits == 1


def _window(name: str, argument: str, value: Optional[int]) -> int:
    """A window, or -1 for None."""
    if value is not None and value < 0:
        raise c.expect(name, argument, "None, or a size from 0 on", value)
    return -1 if value is None else value


def _fp8_as_half(q: Any, o: Any) -> Any:
    """The dtype of a result: of queries by default, float16 for fp8."""
    if o is not None:
        return o
    return "float16" if _dtypes.of(q).itemsize == 1 else q


class _Decode:
    """What both wrappers of decode share: the plan is made again for another number of queries."""

    def __init__(self, float_workspace_buffer: Tensor, use_cuda_graph: bool = False) -> None:
        self._float_workspace_buffer = float_workspace_buffer
        self.device = _memory.device_of(float_workspace_buffer)
        self._use_cuda_graph = use_cuda_graph
        self._inner: Optional[BatchDecodeWithPagedKVCacheWrapper] = None

    def _made(self, b: int, pages: int) -> BatchDecodeWithPagedKVCacheWrapper:
        """The wrapper behind this one, made by the first plan, whose sizes a graph keeps."""
        if self._inner is None:
            buffers = [_frameworks.full(self._float_workspace_buffer, (n,), "int32", 0)
                       for n in (b + 1, pages, b)] if self._use_cuda_graph else [None] * 3
            self._inner = BatchDecodeWithPagedKVCacheWrapper(
                _bytes(self._float_workspace_buffer), "NHD", self._use_cuda_graph, False, *buffers)
        return self._inner

    def _plan(self, name: str, indptr: Tensor, indices: Tensor, lens: Tensor, heads: tuple,
              page_size: int, types: tuple, sm_scale: Optional[float], one_piece: bool, q_len: int,
              window_left: Optional[int], window_right: Optional[int]) -> None:
        if q_len < 1:
            raise c.expect(name, "q_len_per_req", "at least 1", q_len)
        q, kv, o = types
        options = {
            "q_data_type": q, "kv_data_type": q if kv is None else kv,
            "o_data_type": _fp8_as_half(q, o), "sm_scale": sm_scale, "disable_split_kv": one_piece,
            "window_left": _window(name, "window_left", window_left),
            "window_right": _window(name, "window_right", window_right)}
        self._remade = (indptr, indices, lens, heads, page_size, options)
        self._sm_scale = heads[2] ** -0.5 if sm_scale is None else sm_scale
        self._plan_again(q_len)

    def _plan_again(self, q_len: int) -> None:
        indptr, indices, lens, heads, page_size, options = self._remade
        last = (lens - 1) % page_size + 1
        self._made(lens.shape[0], indices.shape[0]).plan(
            indptr, indices, last, *heads, page_size, seq_lens=lens, q_len_per_req=q_len, **options)
        self._q_len = q_len

    def _run(self, name: str, q: Tensor, k: Tensor, v: Tensor, out: Any, sm_scale: Any,
             o_scale: Any, sinks: Any, lse: Any) -> Tensor:
        if self._inner is None:
            raise RuntimeError(f"{name}: plan() must come before run()")
        if q.ndim != 4:
            raise c.expect(name, "q", "[b, q_len, h_q, d]", list(q.shape))
        if q.shape[0] != self._remade[2].shape[0]:
            raise c.expect(name, "q", f"{self._remade[2].shape[0]} requests, as planned", q.shape[0])
        if q.shape[1] != self._q_len:
            self._plan_again(q.shape[1])
        if out is None:
            out = _frameworks.empty(q, tuple(q.shape), self._inner._cached_o_data_type)
        if lse is not None:
            if tuple(lse.shape) != tuple(q.shape[:3]):
                raise c.expect(name, "lse", list(q.shape[:3]), list(lse.shape))
            lse = _frameworks.view(lse, (-1, q.shape[2]))
        self._inner._sm_scale = self._sm_scale if sm_scale is None else sm_scale
        self._inner.run(
            ts.joined(name, "q", q), (k, v), v_scale=o_scale, out=ts.joined(name, "out", out),
            lse=lse, return_lse=lse is not None, sinks=sinks)
        return out


class BatchDecodeCuteDSLWrapper(_Decode):
    """Attention of the newest tokens of requests whose keys and values lie in one piece each.

    :param float_workspace_buffer: scratch, of any dtype, aligned to 16 bytes.
    :param use_cuda_graph: captured runs follow later plans of as many requests.
    """

    @_legacy_order
    def plan(
        self, batch_size: int, max_kv_len: int, num_qo_heads: int, num_kv_heads: int, head_dim: int,
        *, q_data_type: Any = ts.BFLOAT16, kv_data_type: Any = None, o_data_type: Any = None,
        sm_scale: Optional[float] = None, kv_splits: Optional[int] = None, reduction: str = "auto",
        q_len_per_req: int = 1, window_left: Optional[int] = None,
        window_right: Optional[int] = 0,
    ) -> None:
        """Prepares runs for as many requests of as many keys. A run of others plans again, which a
        captured one cannot.

        :param batch_size: requests. :param max_kv_len: keys of each.
        :param num_kv_heads: divides num_qo_heads. :param head_dim: a multiple of 8.
        :param q_data_type: of queries; kv_data_type and o_data_type are like it by default, and
            o_data_type is float16 for fp8.
        :param sm_scale: ``1 / sqrt(head_dim)`` by default.
        :param kv_splits: 1 keeps a request in one piece; other numbers, and reduction ("auto",
            "kernel", "atomic"), are hints, since the pieces are joined in one order always.
            reduction "none" asks for one piece.
        :param q_len_per_req: queries of each request, its last tokens.
        :param window_left: keys visible before a query's own. :param window_right: keys visible
            behind it; None is no limit.
        """
        name = "BatchDecodeCuteDSLWrapper.plan"
        self._planned = (
            (num_qo_heads, num_kv_heads, head_dim), (q_data_type, kv_data_type, o_data_type),
            sm_scale, _splits(name, kv_splits, reduction), q_len_per_req, window_left, window_right)
        self._plan_pieces(name, batch_size, max_kv_len, q_len_per_req)

    def _plan_pieces(self, name: str, b: int, n: int, q_len: int) -> None:
        heads, types, sm_scale, one_piece, _, left, right = self._planned
        like = self._float_workspace_buffer
        starts = _memory.int32s(list(range(b + 1)), like)
        self._plan(name, starts, _memory.to_device(starts[:b], self.device),
                   _memory.int32s([n] * b, like), heads, n, types, sm_scale, one_piece, q_len, left,
                   right)
        self._sizes = (b, n)

    @_legacy_order
    def run(self, q: Tensor, k: Tensor, v: Tensor, *, out: Optional[Tensor] = None,
            sm_scale: Optional[float] = None, o_scale: Optional[float] = None,
            sinks: Optional[Tensor] = None, lse: Optional[Tensor] = None,
            enable_pdl: bool = True) -> Tensor:
        """Attention as planned.

        :param q: ``[b, q_len, h_q, d]``. :param k: ``[b, s, h_kv, d]``; v likewise.
        :param sm_scale: in the place of the planned one. :param o_scale: multiplies the result.
        :param sinks: ``[h_q]`` float32: a logit that joins each row's sum.
        :param lse: ``[b, q_len, h_q]`` float32, which is written, to base 2.
        :param enable_pdl: a hint.
        :returns: out, of q's shape.
        """
        name = "BatchDecodeCuteDSLWrapper.run"
        if self._inner is not None:
            if q.ndim != 4 or k.ndim != 4 or k.shape[0] != q.shape[0]:
                raise c.expect(name, "k", "[b, s, h_kv, d] beside q [b, q_len, h_q, d]",
                               list(k.shape))
            if self._sizes != tuple(k.shape[:2]):
                self._plan_pieces(name, *k.shape[:2], q.shape[1])
        return self._run(name, q, k, v, out, sm_scale, o_scale, sinks, lse)


class BatchDecodePagedCuteDSLWrapper(_Decode):
    """Attention of the newest tokens of requests against their pages, ``[page, token, head, dim]``.

    :param float_workspace_buffer: scratch, of any dtype, aligned to 16 bytes.
    :param use_cuda_graph: captured runs follow later plans of as many requests and at most as many
        pages as the first had.
    """

    @_legacy_order
    def plan(
        self, indptr: Tensor, indices: Tensor, seq_lens: Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, *, q_data_type: Any = ts.BFLOAT16,
        kv_data_type: Any = None, o_data_type: Any = None, sm_scale: Optional[float] = None,
        kv_splits: Optional[int] = None, reduction: str = "auto", q_len_per_req: int = 1,
        window_left: Optional[int] = None, window_right: Optional[int] = 0,
        max_kv_len: Optional[int] = None, non_blocking: bool = True,
        precompile_skip_softmax_kernel: bool = False,
    ) -> None:
        """Prepares runs for the lengths at hand. Lengths on the host cost no wait.

        :param indptr: ``[b + 1]`` int32: request i owns pages ``indices[indptr[i]:indptr[i + 1]]``.
        :param seq_lens: ``[b]`` int32, keys. :param max_kv_len: bounds them; more are refused.
        :param page_size: tokens of a page. :param non_blocking: a hint, as is
            precompile_skip_softmax_kernel.

        Other arguments as in :meth:`BatchDecodeCuteDSLWrapper.plan`: num_qo_heads, num_kv_heads,
        head_dim, q_data_type, kv_data_type, o_data_type, sm_scale, kv_splits, reduction,
        q_len_per_req, window_left, window_right.
        """
        name = "BatchDecodePagedCuteDSLWrapper.plan"
        starts, lens = _memory.to_host(indptr, c.int32(seq_lens))
        if max_kv_len is not None and lens.shape[0] and int(lens.max()) > max_kv_len:
            raise c.expect(name, "seq_lens", f"at most {max_kv_len}, max_kv_len", int(lens.max()))
        self._plan(name, starts, indices, lens, (num_qo_heads, num_kv_heads, head_dim), page_size,
                   (q_data_type, kv_data_type, o_data_type), sm_scale,
                   _splits(name, kv_splits, reduction), q_len_per_req, window_left, window_right)

    @_legacy_order
    def run(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, *, out: Optional[Tensor] = None,
            sm_scale: Optional[float] = None, o_scale: Optional[float] = None,
            sinks: Optional[Tensor] = None,
            skip_softmax_threshold_scale_factor: Optional[float] = None,
            lse: Optional[Tensor] = None, enable_pdl: bool = True) -> Tensor:
        """Attention as planned; for another q_len it plans again, which a captured run cannot.

        :param q: ``[b, q_len, h_q, d]``. :param k_cache: ``[pages, page_size, h_kv, d]``; v_cache
            likewise.
        :param skip_softmax_threshold_scale_factor: a hint, as is enable_pdl.

        Other arguments as in :meth:`BatchDecodeCuteDSLWrapper.run`: out, sm_scale, o_scale, sinks,
        lse.
        """
        return self._run("BatchDecodePagedCuteDSLWrapper.run", q, k_cache, v_cache, out, sm_scale,
                         o_scale, sinks, lse)


def _no_variant(name: str, variant: Any) -> None:
    if variant is not None:
        raise NotImplementedError(
            f"{name}: variant: a class in the CuTe DSL is not supported; jit_args of "
            "BatchPrefillWithRaggedKVCacheWrapper take variants in C and CUDA C++")


class BatchMLADecodeCuteDSLWrapper:
    """Latent attention of the newest tokens of requests, whose lengths come with each run.

    :param workspace_buffer: scratch of any content; 128 MiB are enough.
    """

    def __init__(self, workspace_buffer: Tensor) -> None:
        self._workspace_buffer = workspace_buffer
        self._planned: Optional[tuple] = None

    def plan(self, kv_lora_rank: int = 512, qk_rope_head_dim: int = 64, num_heads: int = 128,
             page_size: int = 1, q_dtype: Any = ts.BFLOAT16, out_dtype: Any = None,
             is_var_seq: bool = True, enable_pdl: Optional[bool] = None,
             variant: Any = None) -> None:
        """Says what the runs will bring; a run of anything else is refused.

        :param kv_lora_rank: of the latent. :param qk_rope_head_dim: of the rotary part.
        :param num_heads: of queries. :param page_size: tokens of a page.
        :param q_dtype: of q and the cache. :param out_dtype: of the result, q_dtype by default.
        :param is_var_seq: a hint, as is enable_pdl: each run's lengths count.
        :param variant: refused.
        """
        _no_variant("BatchMLADecodeCuteDSLWrapper.plan", variant)
        self._planned = (kv_lora_rank, qk_rope_head_dim, num_heads, page_size,
                         _dtypes.of(q_dtype), q_dtype if out_dtype is None else out_dtype)

    def run(self, q: Tensor, kv_cache: Tensor, block_tables: Tensor, seq_lens: Tensor,
            max_seq_len: int, softmax_scale: float, output_scale: float = 1.0,
            out: Optional[Tensor] = None) -> Tensor:
        """Latent attention. With lengths on the GPU a CUDA graph may hold it.

        :param q: ``[b, q_len, h, kv_lora_rank + qk_rope_head_dim]``, the last tokens of each
            request, of which none sees a key behind its own.
        :param kv_cache: ``[pages, page_size, kv_lora_rank + qk_rope_head_dim]``, also with an axis
            of 1 in the second place. :param block_tables: ``[b, m]`` int32 page ids.
        :param seq_lens: ``[b]`` int32, keys. :param max_seq_len: their bound.
        :param softmax_scale: of the logits. :param output_scale: of the result.
        :param out: ``[b, q_len, h, kv_lora_rank]``.
        """
        name = "BatchMLADecodeCuteDSLWrapper.run"
        if self._planned is None:
            raise RuntimeError(f"{name}: plan() must come before run()")
        ckv, kpe, heads, page_size, dtype, out_dtype = self._planned
        if q.ndim != 4 or tuple(q.shape[2:]) != (heads, ckv + kpe):
            raise c.expect(name, "q", f"[b, q_len, {heads}, {ckv + kpe}]", list(q.shape))
        cache = without_head_axis(name, "kv_cache", kv_cache, (1,))
        if cache.shape[1] != page_size:
            raise c.expect(name, "kv_cache", f"pages of {page_size} tokens, as planned",
                           cache.shape[1])
        if _frameworks.dtype_bit(q) != dtype.bit:
            raise c.expect(name, "q", f"{dtype.name}, as planned", _dtypes.of(q.dtype).name)
        out = c.output(name, q, (*q.shape[:3], ckv), out, None if out is not None else out_dtype,
                       None)
        lens = c.int32(seq_lens)
        dense_call(name, ts.joined(name, "q", q), cache, self._workspace_buffer, ckv, kpe,
                   block_tables, lens, _memory.counted(lens.shape[0] + 1, lens, q.shape[1]),
                   ts.joined(name, "out", out), None, ts.positive(name, "softmax_scale",
                                                                  softmax_scale),
                   ts.positive(name, "output_scale", output_scale), None, longest=max_seq_len,
                   causal=True)
        return out


class BatchPrefillCuteDSLWrapper:
    """Attention of requests over packed keys and values, or against pages: the plan says which.

    :param float_workspace_buffer: scratch, of any dtype, aligned to 16 bytes.
    :param use_cuda_graph: captured runs follow later plans of as many requests and at most as many
        rows and pages as the first had.
    """

    def __init__(self, float_workspace_buffer: Tensor, use_cuda_graph: bool = False) -> None:
        self._float_workspace_buffer = float_workspace_buffer
        self.device = _memory.device_of(float_workspace_buffer)
        self._use_cuda_graph = use_cuda_graph
        self._wrappers: dict[str, Any] = {}
        self._inner: Any = None
        self._page_size: Optional[int] = None

    def _made(self, layout: str, b: int, pages: Optional[int]) -> Any:
        """The wrapper behind this one, for packed keys if pages is None."""
        kind = "packed" if pages is None else layout
        if kind not in self._wrappers:
            sizes = (b + 1, b + 1) if pages is None else (b + 1, b + 1, pages, b)
            buffers = [_frameworks.full(self._float_workspace_buffer, (n,), "int32", 0)
                       for n in sizes] if self._use_cuda_graph else []
            made = (BatchPrefillWithRaggedKVCacheWrapper if pages is None
                    else BatchPrefillWithPagedKVCacheWrapper)
            self._wrappers[kind] = made(_bytes(self._float_workspace_buffer), layout,
                                        self._use_cuda_graph, *buffers)
        return self._wrappers[kind]

    def plan(
        self, qo_indptr: Tensor, kv_indptr: Optional[Tensor] = None,
        num_qo_heads: Optional[int] = None, num_kv_heads: Optional[int] = None,
        head_dim_qk: Optional[int] = None, head_dim_vo: Optional[int] = None, causal: bool = True,
        sm_scale: Optional[float] = None, q_data_type: Any = ts.FLOAT16,
        kv_data_type: Any = ts.FLOAT16, window_left: int = -1, variant: Any = None,
        window_right: int = -1, page_size: Optional[int] = None,
        paged_kv_indptr: Optional[Tensor] = None, paged_kv_indices: Optional[Tensor] = None,
        paged_kv_last_page_len: Optional[Tensor] = None, kv_layout: str = "NHD",
    ) -> None:
        """Prepares runs for the lengths at hand. Lengths on the host cost no wait.

        :param qo_indptr: ``[b + 1]`` int32: request i owns rows ``qo_indptr[i]`` on of q, its last
            tokens. :param kv_indptr: likewise of keys and values; with page_size None instead.
        :param num_qo_heads: needed, as are num_kv_heads and head_dim_qk; head_dim_vo is like the
            latter by default.
        :param causal: query i sees keys up to ``kv_len - q_len + i``.
        :param sm_scale: ``1 / sqrt(head_dim_qk)`` by default.
        :param q_data_type: of q, k and v; the result's, too, and float16 for fp8. kv_data_type has
            to be the same, or the default.
        :param window_left: keys visible before a query's own; -1 is no limit. :param window_right:
            keys visible behind it, without causal.
        :param page_size: tokens of a page, with paged_kv_indptr ``[b + 1]``, paged_kv_indices and
            paged_kv_last_page_len ``[b]``, int32.
        :param kv_layout: of pages. :param variant: refused.
        """
        name = "BatchPrefillCuteDSLWrapper.plan"
        _no_variant(name, variant)
        for argument, value in (("num_qo_heads", num_qo_heads), ("num_kv_heads", num_kv_heads),
                                ("head_dim_qk", head_dim_qk)):
            if value is None:
                raise c.expect(name, argument, "a number", None)
        if causal and window_right >= 0:
            raise c.expect(name, "window_right", "-1 with causal", window_right)
        types = [_dtypes.of(kind) for kind in (q_data_type, kv_data_type)]
        if types[1].bit not in (types[0].bit, ts.FLOAT16.bit):
            raise c.expect(name, "kv_data_type", f"{types[0].name}, as q_data_type", types[1].name)
        c.check_layout(name, kv_layout)
        table = (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        if page_size is None and (kv_indptr is None or kv_layout != "NHD"):
            raise c.expect(name, "kv_indptr", "a tensor and the layout NHD without page_size",
                           f"{'None' if kv_indptr is None else 'one'} and {kv_layout}")
        if page_size is not None and (kv_indptr is not None or any(t is None for t in table)):
            raise c.expect(name, "kv_indptr", "None, and the three of paged_kv_indptr, "
                           "paged_kv_indices and paged_kv_last_page_len, with page_size", "others")
        options = {
            "causal": causal, "sm_scale": sm_scale, "window_left": window_left,
            "q_data_type": q_data_type, "kv_data_type": q_data_type,
            "o_data_type": _fp8_as_half(q_data_type, None),
            "custom_mask": self._mask(name, qo_indptr, kv_indptr, table, page_size, window_right)}
        b = qo_indptr.shape[0] - 1
        if page_size is None:
            self._inner = self._made("NHD", b, None)
            self._inner.plan(qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk,
                             head_dim_vo, **options)
        else:
            self._inner = self._made(kv_layout, b, paged_kv_indices.shape[0])
            self._inner.plan(qo_indptr, *table, num_qo_heads, num_kv_heads, head_dim_qk, page_size,
                             head_dim_vo, **options)
        self._page_size = page_size

    def _mask(self, name: str, qo_indptr: Tensor, kv_indptr: Any, table: tuple,
              page_size: Optional[int], right: int) -> Any:
        """What a window_right asks for, request behind request; None without one."""
        if right < -1:
            raise c.expect(name, "window_right", "at least -1", right)
        if right == -1:
            return None
        if page_size is None:
            qo, kv = _memory.to_host(qo_indptr, kv_indptr)
            lens = kv[1:] - kv[:-1]
        else:
            qo, pages, last = _memory.to_host(qo_indptr, table[0], table[2])
            lens = (pages[1:] - pages[:-1] - 1) * page_size + last
            lens[pages[1:] == pages[:-1]] = 0
        like = self._float_workspace_buffer
        each = [_masks.up_to(right, q_len, [n], like)
                for q_len, n in zip((qo[1:] - qo[:-1]).tolist(), lens.tolist())]
        return _masks.joined(each, like)

    def run(self, q: Tensor, k: Tensor, v: Tensor, out: Optional[Tensor] = None,
            return_lse: bool = False,
            lse: Optional[Tensor] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention over packed keys and values, as planned.

        :param q: ``[n, h_q, d]``. :param k: ``[m, h_kv, d]``; v likewise.
        :param lse: ``[n, h_q]`` float32, to base 2, with return_lse.
        :returns: out, or (out, lse) with return_lse.
        """
        if self._inner is None or self._page_size is not None:
            raise RuntimeError("BatchPrefillCuteDSLWrapper.run: plan() with kv_indptr must come "
                               "before run()")
        return self._inner.run(q, k, v, out=out, lse=lse, return_lse=return_lse)

    def run_paged(self, q: Tensor, paged_kv_cache: Any, out: Optional[Tensor] = None,
                  return_lse: bool = False,
                  lse: Optional[Tensor] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention against pages, as planned.

        :param paged_kv_cache: a pair of 4-D tensors, or a 5-D one with keys and values on its second
            axis.

        Other arguments as in :meth:`run`: q, out, return_lse, lse.
        """
        if self._inner is None or self._page_size is None:
            raise RuntimeError("BatchPrefillCuteDSLWrapper.run_paged: plan() with page_size must "
                               "come before run_paged()")
        return self._inner.run(q, paged_kv_cache, out=out, lse=lse, return_lse=return_lse)
