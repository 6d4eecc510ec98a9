# SPDX-License-Identifier: Apache-2.0
"""Decoding in one call in the form of FlashInfer's XQA entry points.

At its top level FlashInfer has a function of this module's name, which hides the module. Here the
module is called instead: ``bolide.xqa(…)`` is ``bolide.xqa.xqa(…)``.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from . import _docs, _missing
from ._wrappers.mla_calls import xqa_mla  # noqa: F401
from ._wrappers.trtllm_decode import xqa  # noqa: F401

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)


class _Called(ModuleType):
    """A module that is called like its function xqa."""

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(xqa)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return xqa(*args, **kwargs)


sys.modules[__name__].__class__ = _Called
