# SPDX-License-Identifier: Apache-2.0
"""From processors, which say what is wanted, to steps, which say on what."""

from __future__ import annotations

from typing import Any, List

from .. import _docs
from .op import Op
from .types import TensorType


class LegalizationError(Exception):
    """A processor cannot stand where it does."""


def validate_processor_chain(processors: List[Any]) -> None:
    """Refuses an empty list and what is no processor."""
    from .processors import LogitsProcessor

    if not processors:
        raise LegalizationError("a pipeline needs at least one processor")
    for processor in processors:
        if not isinstance(processor, LogitsProcessor):
            raise LegalizationError(f"expected a LogitsProcessor; got {type(processor).__name__}")


def infer_initial_type(processors: List[Any]) -> TensorType:
    """What the first processor takes; it must be one that takes one type only."""
    from .processors import MinP, Softmax, Temperature, TopP

    validate_processor_chain(processors)
    first = processors[0]
    if isinstance(first, (Temperature, Softmax)):
        return TensorType.LOGITS
    if isinstance(first, (TopP, MinP)):
        return TensorType.PROBS
    raise LegalizationError(f"{type(first).__name__} takes logits and probabilities; say which as "
                            "input_type")


def legalize_processors(processors: List[Any],
                        initial_type: TensorType = TensorType.LOGITS) -> List[Op]:
    """The steps of all processors, each for the type that reaches it."""
    validate_processor_chain(processors)
    steps: List[Op] = []
    current = initial_type
    for processor in processors:
        made = processor.legalize(current)
        for step in made:
            if step.IN is not current:
                raise LegalizationError(f"{type(step).__name__} takes {step.IN.name}; it gets "
                                        f"{current.name}")
            current = step.OUT
        steps += made
    return steps


_docs.complete(globals())
