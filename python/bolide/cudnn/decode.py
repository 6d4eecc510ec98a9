# SPDX-License-Identifier: Apache-2.0
"""Decoding in the form of FlashInfer's cuDNN entry point, where programs import it from."""

from .._wrappers.cudnn import cudnn_batch_decode_with_kv_cache  # noqa: F401
