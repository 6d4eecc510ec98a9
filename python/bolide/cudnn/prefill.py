# SPDX-License-Identifier: Apache-2.0
"""Prefill in the form of FlashInfer's cuDNN entry point, where programs import it from."""

from .._wrappers.cudnn import cudnn_batch_prefill_with_kv_cache  # noqa: F401
