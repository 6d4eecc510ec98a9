# SPDX-License-Identifier: Apache-2.0
"""Variants that programs put into ``jit_args`` by name. FlashInfer has their text here; the library
knows what they ask for, so there is no text."""

from ..._wrappers.variant import ATTENTION_SINK

attention_sink_decl = {"fa2": ATTENTION_SINK, "fa3": ATTENTION_SINK}
