# SPDX-License-Identifier: Apache-2.0
"""Timing of functions, and how much attention computes and moves."""

from .utils import (  # noqa: F401
    attention_flops, attention_flops_with_actual_seq_lens, attention_tb_per_sec,
    attention_tb_per_sec_with_actual_seq_lens, attention_tflops_per_sec,
    attention_tflops_per_sec_with_actual_seq_lens, bench_gpu_time, bench_gpu_time_with_cuda_event,
    bench_gpu_time_with_cudagraph, bench_gpu_time_with_cupti, set_seed, sleep_after_kernel_run)
