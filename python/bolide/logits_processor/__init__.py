# SPDX-License-Identifier: Apache-2.0
"""Pipelines from logits to tokens, put together from processors and compiled."""

from .. import _docs
from .compiler import Compiler, compile_pipeline  # noqa: F401
from .fusion_rules import FusionRule  # noqa: F401
from .legalization import LegalizationError, legalize_processors  # noqa: F401
from .op import Op, ParameterizedOp  # noqa: F401
from .pipeline import LogitsPipe  # noqa: F401
from .processors import (  # noqa: F401
    LogitsProcessor, MinP, Sample, Softmax, Temperature, TopK, TopP)
from .types import TaggedTensor, TensorType  # noqa: F401
from .validators import CompileError  # noqa: F401

_docs.complete(globals())
