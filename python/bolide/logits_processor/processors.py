# SPDX-License-Identifier: Apache-2.0
"""What a pipeline is made of. A processor's keyword arguments are defaults of the call's."""

from __future__ import annotations

from typing import Any, List, Optional

from . import operators as _ops
from .legalization import LegalizationError
from .op import Op
from .types import TensorType


class LogitsProcessor:
    """Base of all processors."""

    def __init__(self, **params: Any):
        self.params = params

    def legalize(self, input_type: TensorType) -> List[Op]:
        """The steps for an input of that type."""
        raise NotImplementedError(f"{type(self).__name__} must define legalize")

    def _steps(self, input_type: TensorType, table: dict) -> List[Op]:
        if input_type not in table:
            names = " or ".join(t.name for t in table)
            raise LegalizationError(f"{type(self).__name__} takes {names}; it gets "
                                    f"{input_type.name}")
        return [table[input_type](**self.params)]


class Temperature(LogitsProcessor):
    """Divides logits by ``temperature``."""

    def __init__(self, **params: Any):
        super().__init__(**params)

    def legalize(self, input_type: TensorType) -> List[Op]:
        """On logits."""
        return self._steps(input_type, {TensorType.LOGITS: _ops.TemperatureOp})


class Softmax(LogitsProcessor):
    """Probabilities from logits. enable_pdl is a hint."""

    def __init__(self, enable_pdl: Optional[bool] = None, **params: Any):
        super().__init__(**params)
        self.enable_pdl = enable_pdl

    def legalize(self, input_type: TensorType) -> List[Op]:
        """On logits."""
        return self._steps(input_type, {TensorType.LOGITS: _ops.SoftmaxOp})


class TopK(LogitsProcessor):
    """Keeps the ``top_k`` largest: masks logits, renormalises probabilities.

    :param joint_topk_topp: with TopP and Sample behind it, both tests see the original
        distribution.
    """

    def __init__(self, joint_topk_topp: bool = False, **params: Any):
        super().__init__(**params)
        self.joint_topk_topp = joint_topk_topp

    def legalize(self, input_type: TensorType) -> List[Op]:
        """On logits or probabilities."""
        steps = self._steps(input_type, {TensorType.LOGITS: _ops.LogitsTopKOp,
                                         TensorType.PROBS: _ops.ProbsTopKOp})
        steps[0].joint_topk_topp = self.joint_topk_topp
        return steps


class TopP(LogitsProcessor):
    """Keeps the smallest set of largest probabilities whose sum reaches ``top_p``."""

    def __init__(self, **params: Any):
        super().__init__(**params)

    def legalize(self, input_type: TensorType) -> List[Op]:
        """On probabilities."""
        return self._steps(input_type, {TensorType.PROBS: _ops.TopPOp})


class MinP(LogitsProcessor):
    """Keeps the probabilities of at least ``min_p`` times the largest."""

    def __init__(self, **params: Any):
        super().__init__(**params)

    def legalize(self, input_type: TensorType) -> List[Op]:
        """On probabilities."""
        return self._steps(input_type, {TensorType.PROBS: _ops.MinPOp})


class Sample(LogitsProcessor):
    """Draws one token a row; see :mod:`bolide.sampling` for seed, offset, generator."""

    def __init__(self, deterministic: bool = True, **params: Any):
        super().__init__(**params)
        self.deterministic = deterministic

    def legalize(self, input_type: TensorType) -> List[Op]:
        """On logits or probabilities."""
        steps = self._steps(input_type, {TensorType.LOGITS: _ops.LogitsSampleOp,
                                         TensorType.PROBS: _ops.ProbsSampleOp})
        steps[0].deterministic = self.deterministic
        return steps
