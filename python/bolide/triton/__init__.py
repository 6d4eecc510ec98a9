# SPDX-License-Identifier: Apache-2.0
"""The scaled forms of norm and activation, and merges of attention states, under the names of
FlashInfer's Triton kernels."""

from . import activation, cascade, norm  # noqa: F401
