# SPDX-License-Identifier: Apache-2.0
"""The scaled forms of norm and activation, under the names of FlashInfer's Triton kernels."""

from . import activation, norm  # noqa: F401
