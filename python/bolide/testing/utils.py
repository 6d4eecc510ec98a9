# SPDX-License-Identifier: Apache-2.0
"""Timing of functions, and how much attention computes and moves.

Times are lists of milliseconds, one a call. On a machine without a GPU the same functions time on
the host, so that a benchmark runs there, too.
"""

from __future__ import annotations

import math
import random
import time as _time
import warnings
from typing import Any, Callable, Optional, Tuple

from .. import _docs, _dtypes, _frameworks
from .._library import torch

_BF16 = _dtypes.BY_NAME["bfloat16"]


# ---- flops and bytes -------------------------------------------------------------------------


def _pairs(q: int, kv: int, causal: bool) -> float:
    """Twice the pairs of query and key that see each other."""
    return q * (2 * kv - q) if causal else 2 * q * kv


def attention_flops(batch_size: int, qo_seqlen: int, kv_seqlen: int, head_dim_qk: int,
                    head_dim_vo: int, num_qo_heads: int, causal: bool) -> int:
    """Floating-point operations of attention over requests of one length.

    A causal request's queries are its last tokens, so there must not be more than keys.
    """
    if causal and kv_seqlen < qo_seqlen:
        raise ValueError("kv_seqlen: expected at least qo_seqlen in causal attention")
    pairs = _pairs(qo_seqlen, kv_seqlen, causal)
    return batch_size * num_qo_heads * pairs * (head_dim_qk + head_dim_vo)


def attention_flops_with_actual_seq_lens(actual_seq_lens_q: Any, actual_seq_lens_kv: Any,
                                         head_dim_qk: int, head_dim_vo: int, num_qo_heads: int,
                                         causal: bool) -> int:
    """:func:`attention_flops` of requests of their own lengths, two tensors ``[b]``."""
    pairs = sum(_pairs(int(q), int(kv), causal)
                for q, kv in zip(actual_seq_lens_q.reshape(-1), actual_seq_lens_kv.reshape(-1)))
    return num_qo_heads * pairs * (head_dim_qk + head_dim_vo)


def attention_tflops_per_sec(batch_size: int, qo_seqlen: int, kv_seqlen: int, head_dim_qk: int,
                             head_dim_vo: int, num_qo_heads: int, causal: bool,
                             time: float) -> float:
    """TFLOP/s for a time in milliseconds."""
    flops = attention_flops(batch_size, qo_seqlen, kv_seqlen, head_dim_qk, head_dim_vo,
                            num_qo_heads, causal)
    return flops / time / 1e9 if math.isfinite(time) else 0.0


def attention_tflops_per_sec_with_actual_seq_lens(actual_seq_lens_q: Any, actual_seq_lens_kv: Any,
                                                  head_dim_qk: int, head_dim_vo: int,
                                                  num_qo_heads: int, causal: bool,
                                                  ms: float) -> float:
    """TFLOP/s for a time in milliseconds."""
    flops = attention_flops_with_actual_seq_lens(actual_seq_lens_q, actual_seq_lens_kv, head_dim_qk,
                                                 head_dim_vo, num_qo_heads, causal)
    return flops / ms / 1e9 if math.isfinite(ms) else 0.0


def _attention_bytes(tokens_q, tokens_kv, d_qk, d_vo, h_q, h_kv, q_dtype, kv_dtype, o_dtype):
    size = [_dtypes.of(d).itemsize for d in (q_dtype, kv_dtype, o_dtype)]
    return (tokens_q * h_q * (d_qk * size[0] + d_vo * size[2])
            + tokens_kv * h_kv * (d_qk + d_vo) * size[1])


def attention_tb_per_sec(batch_size: int, qo_seqlen: int, kv_seqlen: int, head_dim_qk: int,
                         head_dim_vo: int, num_qo_heads: int, num_kv_heads: int, time: float,
                         q_dtype: Any = _BF16, kv_dtype: Any = _BF16,
                         o_dtype: Any = _BF16) -> float:
    """TB/s of q, k, v and out, each once, for a time in milliseconds."""
    moved = _attention_bytes(batch_size * qo_seqlen, batch_size * kv_seqlen, head_dim_qk,
                             head_dim_vo, num_qo_heads, num_kv_heads, q_dtype, kv_dtype, o_dtype)
    return moved / time / 1e9 if math.isfinite(time) else 0.0


def attention_tb_per_sec_with_actual_seq_lens(actual_seq_lens_q: Any, actual_seq_lens_kv: Any,
                                              head_dim_qk: int, head_dim_vo: int,
                                              num_qo_heads: int, num_kv_heads: int, time: float,
                                              q_dtype: Any = _BF16, kv_dtype: Any = _BF16,
                                              o_dtype: Any = _BF16) -> float:
    """:func:`attention_tb_per_sec` of requests of their own lengths."""
    moved = _attention_bytes(int(actual_seq_lens_q.sum()), int(actual_seq_lens_kv.sum()),
                             head_dim_qk, head_dim_vo, num_qo_heads, num_kv_heads, q_dtype,
                             kv_dtype, o_dtype)
    return moved / time / 1e9 if math.isfinite(time) else 0.0


# ---- timing ----------------------------------------------------------------------------------


def set_seed(random_seed: Optional[int]) -> None:
    """Seeds Python's, NumPy's and torch's generators; None seeds nothing."""
    if random_seed is None:
        return
    random.seed(random_seed)
    try:
        import numpy

        numpy.random.seed(random_seed)
    except ImportError:
        pass
    if torch is not None:
        torch.manual_seed(random_seed)


def sleep_after_kernel_run(execution_time: float) -> None:
    """Rests for a while that depends on a time in milliseconds, so that a chip may cool."""
    _time.sleep(min(execution_time / 1000 * 5, 1.0) if math.isfinite(execution_time) else 0.01)


def count_bytes(*tensors: Any) -> int:
    """Bytes of all tensors in the arguments, nested lists and tuples included."""
    total = 0
    for t in tensors:
        if isinstance(t, (tuple, list)):
            total += count_bytes(*t)
        elif _frameworks.is_tensor(t):
            total += math.prod(t.shape) * _frameworks.itemsize(t)
    return total


def get_l2_cache_size(device: Any = None) -> int:
    """Bytes of the GPU's second-level cache."""
    return torch.cuda.get_device_properties(device).L2_cache_size


def calculate_rotation_count(tensors: Any, device: Any = None, min_rotations: int = 2) -> int:
    """Copies of the tensors that together pass through the cache; 1 where one alone does."""
    size, cache = count_bytes(*tensors), get_l2_cache_size(device)
    if size == 0 or size >= 5 * cache:
        return 1
    return max(min_rotations, -(-2 * cache // size) + 1)


def _gpu() -> bool:
    return torch is not None and torch.cuda.is_available()


def _older_arguments(cold: bool, l2_flush: Any, size_mb: Any, device: Any) -> bool:
    if l2_flush is None and size_mb is None and device is None:
        return cold
    warnings.warn("l2_flush, l2_flush_size_mb and l2_flush_device are old; use cold_l2_cache",
                  DeprecationWarning, stacklevel=4)
    return cold if l2_flush is None else bool(l2_flush)


def _over_ranks(times: list[float], op: Callable) -> list[float]:
    """With several processes of torch.distributed, each call's time over all of them."""
    if torch is None or not torch.distributed.is_available():
        return times
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return times
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, times)
    return [op(each) for each in zip(*gathered)]


def aggregate_gpu_time_across_ranks(x: list[float], op: Callable) -> list[float]:
    """Each call's time over all processes of torch.distributed."""
    return _over_ranks(x, op)


def _host_times(call: Callable, count: int) -> list[float]:
    out = []
    for _ in range(count):
        begin = _time.perf_counter()
        call()
        out.append((_time.perf_counter() - begin) * 1e3)
    return out


def _event_times(call: Callable, count: int, flush: Any, rest: bool) -> list[float]:
    events = [[torch.cuda.Event(enable_timing=True) for _ in "se"] for _ in range(count)]
    for begin, end in events:
        if flush is not None:
            flush.zero_()
        begin.record()
        call()
        end.record()
        if rest:
            torch.cuda.synchronize()
            sleep_after_kernel_run(begin.elapsed_time(end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def _counts(call: Callable, dry_iters, iters, dry_ms, ms) -> Tuple[int, int]:
    """Calls to warm up and to time, from the time of five calls where they are not given."""
    if dry_iters is not None and iters is not None:
        return dry_iters, iters
    times = _event_times(call, 5, None, False) if _gpu() else _host_times(call, 5)
    one = max(sum(times) / len(times), 1e-6)
    return (dry_iters if dry_iters is not None else max(1, int(dry_ms / one)),
            iters if iters is not None else max(1, int(ms / one)))


def bench_gpu_time_with_cuda_event(
    fn: Callable, dry_run_iters: Optional[int] = None, repeat_iters: Optional[int] = None,
    dry_run_time_ms: int = 25, repeat_time_ms: int = 100, l2_flush: Optional[bool] = None,
    l2_flush_size_mb: Optional[int] = None, l2_flush_device: Any = None,
    sleep_after_run: bool = False, input_args: Tuple = (), input_kwargs: Optional[dict] = None,
    cold_l2_cache: bool = True, aggregate_op: Callable = max,
) -> list[float]:
    """Times of single calls between events; what the host does is in them where it is slower.

    :param cold_l2_cache: writes twice the cache's size before each call.
    """
    cold = _older_arguments(cold_l2_cache, l2_flush, l2_flush_size_mb, l2_flush_device)

    def call():
        fn(*input_args, **(input_kwargs or {}))

    call()
    dry, count = _counts(call, dry_run_iters, repeat_iters, dry_run_time_ms, repeat_time_ms)
    if not _gpu():
        _host_times(call, dry)
        return _over_ranks(_host_times(call, count), aggregate_op)
    flush = None
    if cold:
        size = l2_flush_size_mb * 2**20 if l2_flush_size_mb else 2 * get_l2_cache_size()
        flush = torch.empty(size, dtype=torch.int8, device=l2_flush_device or "cuda")
    _event_times(call, dry, None, False)
    return _over_ranks(_event_times(call, count, flush, sleep_after_run), aggregate_op)


def _copied(value: Any) -> Any:
    if _frameworks.is_torch(value):
        return value.clone() if value.is_cuda else value
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(v) for v in value)
    return value


def bench_gpu_time_with_cudagraph(
    fn: Callable, dry_run_iters: Optional[int] = None, repeat_iters: Optional[int] = None,
    dry_run_time_ms: int = 25, repeat_time_ms: int = 100, num_iters_within_graph: int = 10,
    l2_flush: Optional[bool] = None, l2_flush_size_mb: Optional[int] = None,
    l2_flush_device: Any = None, sleep_after_run: bool = False, input_args: Tuple = (),
    input_kwargs: Optional[dict] = None, cold_l2_cache: bool = True, aggregate_op: Callable = max,
) -> list[float]:
    """Times of calls inside a replayed graph, so that the host is not in them.

    :param cold_l2_cache: the calls of a graph take copies of the tensors among input_args and
        input_kwargs in turn, which together pass through the cache.
    """
    kwargs = input_kwargs or {}
    cold = _older_arguments(cold_l2_cache, l2_flush, l2_flush_size_mb, l2_flush_device)
    if not _gpu():
        return bench_gpu_time_with_cuda_event(
            fn, dry_run_iters, repeat_iters, dry_run_time_ms, repeat_time_ms, input_args=input_args,
            input_kwargs=kwargs, aggregate_op=aggregate_op)
    turns = 1
    if cold:
        turns = min(calculate_rotation_count((*input_args, *kwargs.values())),
                    num_iters_within_graph)
    sets = [(input_args, kwargs)]
    for _ in range(turns - 1):
        sets.append((_copied(tuple(input_args)), {k: _copied(v) for k, v in kwargs.items()}))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn(*input_args, **kwargs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(num_iters_within_graph):
            args, kw = sets[i % turns]
            fn(*args, **kw)
    dry, count = _counts(graph.replay, dry_run_iters, repeat_iters, dry_run_time_ms, repeat_time_ms)
    _event_times(graph.replay, dry, None, False)
    times = _event_times(graph.replay, count, None, sleep_after_run)
    return _over_ranks([t / num_iters_within_graph for t in times], aggregate_op)


def bench_gpu_time_with_cupti(
    fn: Callable, dry_run_iters: Optional[int] = None, repeat_iters: Optional[int] = None,
    dry_run_time_ms: int = 25, repeat_time_ms: int = 100, l2_flush: Optional[bool] = None,
    l2_flush_size_mb: Optional[int] = None, l2_flush_device: Any = None,
    sleep_after_run: bool = False, use_cuda_graph: bool = False, input_args: Tuple = (),
    input_kwargs: Optional[dict] = None, cold_l2_cache: bool = True, aggregate_op: Callable = max,
) -> list[float]:
    """The same times by events or graphs: CUPTI is not used, and a warning says so."""
    warnings.warn("CUPTI is not used; timing with CUDA events instead", UserWarning, stacklevel=2)
    return bench_gpu_time(
        fn, dry_run_iters, repeat_iters, dry_run_time_ms, repeat_time_ms, l2_flush,
        l2_flush_size_mb, l2_flush_device, sleep_after_run, False, use_cuda_graph,
        input_args=input_args, input_kwargs=input_kwargs, cold_l2_cache=cold_l2_cache,
        aggregate_op=aggregate_op)


def bench_gpu_time(
    fn: Callable, dry_run_iters: Optional[int] = None, repeat_iters: Optional[int] = None,
    dry_run_time_ms: int = 25, repeat_time_ms: int = 100, l2_flush: Optional[bool] = None,
    l2_flush_size_mb: Optional[int] = None, l2_flush_device: Any = None,
    sleep_after_run: bool = False, enable_cupti: bool = False, use_cuda_graph: bool = False,
    num_iters_within_graph: int = 10, input_args: Tuple = (), input_kwargs: Optional[dict] = None,
    cold_l2_cache: bool = True, aggregate_op: Callable = max,
) -> list[float]:
    """Times of ``fn(*input_args, **input_kwargs)`` in milliseconds, one a call.

    :param dry_run_iters: calls to warm up; without it as many as take dry_run_time_ms.
    :param repeat_iters: calls to time; without it as many as take repeat_time_ms.
    :param use_cuda_graph: times replays of a graph of num_iters_within_graph calls.
    :param enable_cupti: see :func:`bench_gpu_time_with_cupti`.
    :param aggregate_op: of each call's time over the processes of torch.distributed.
    """
    common = {"l2_flush": l2_flush, "l2_flush_size_mb": l2_flush_size_mb,
              "l2_flush_device": l2_flush_device, "sleep_after_run": sleep_after_run,
              "input_args": input_args, "input_kwargs": input_kwargs,
              "cold_l2_cache": cold_l2_cache, "aggregate_op": aggregate_op}
    counts = (fn, dry_run_iters, repeat_iters, dry_run_time_ms, repeat_time_ms)
    if enable_cupti:
        return bench_gpu_time_with_cupti(*counts, use_cuda_graph=use_cuda_graph, **common)
    if use_cuda_graph:
        return bench_gpu_time_with_cudagraph(
            *counts, num_iters_within_graph=num_iters_within_graph, **common)
    return bench_gpu_time_with_cuda_event(*counts, **common)


_docs.complete(globals())
