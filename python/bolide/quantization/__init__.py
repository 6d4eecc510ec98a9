# SPDX-License-Identifier: Apache-2.0
"""Packing of bits. The quantised formats come with a later version."""

from .. import _docs, _missing
from ..jit.batch import gen_quantization_module  # noqa: F401
from ..tllm_enums import SfLayout  # noqa: F401  (FlashInfer has it here, too)
from .packbits import packbits, segment_packbits  # noqa: F401

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
