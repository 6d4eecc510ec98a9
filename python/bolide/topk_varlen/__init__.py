# SPDX-License-Identifier: Apache-2.0
"""The k largest elements of rows of different lengths."""

from .topk_varlen import top_k_varlen  # noqa: F401
