# SPDX-License-Identifier: Apache-2.0
"""Where FlashInfer has the module of rotary embeddings."""

from .modules import gen_rope_module
