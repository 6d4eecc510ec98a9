# SPDX-License-Identifier: Apache-2.0
"""The pipeline itself."""

from __future__ import annotations

from typing import Any, List, Optional

from .compiler import compile_pipeline
from .fusion_rules import FusionRule
from .legalization import infer_initial_type, legalize_processors
from .processors import LogitsProcessor
from .types import TaggedTensor, TensorType
from .validators import ValidityCheck, validate_pipeline


class LogitsPipe:
    """Processors in a row, checked by type, with neighbours fused into one kernel.

    ``LogitsPipe([Temperature(), TopK(), Softmax(), TopP(), Sample()])(x, temperature=0.7, top_k=40,
    top_p=0.9)`` samples from logits. TopK in front of Softmax masks logits, behind it renormalises.

    :param compile: fuse neighbours.
    :param input_type: what the call gets, where the first processor takes both.
    """

    def __init__(self, processors: List[LogitsProcessor], compile: bool = True,
                 input_type: Optional[TensorType] = None,
                 custom_fusion_rules: Optional[List[FusionRule]] = None,
                 custom_validity_checks: Optional[List[ValidityCheck]] = None):
        self.processors = list(processors)
        self._initial = input_type if input_type is not None else infer_initial_type(processors)
        self.ops = legalize_processors(self.processors, self._initial)
        validate_pipeline(self.ops, custom_validity_checks)
        self.compiled_ops = None
        if compile:
            self.compile(custom_fusion_rules, custom_validity_checks)

    @property
    def initial_type(self) -> TensorType:
        """What the call takes."""
        return self._initial

    def compile(self, custom_fusion_rules: Optional[List[FusionRule]] = None,
                custom_validity_checks: Optional[List[ValidityCheck]] = None) -> None:
        """Fuses neighbours, with more rules and checks."""
        self.compiled_ops = compile_pipeline(self.ops, custom_fusion_rules, custom_validity_checks)

    def __call__(self, x: Any, **kwargs: Any) -> Any:
        """Runs all steps.

        :param x: a tensor, or a TaggedTensor of the initial type.
        :param kwargs: parameters of the steps: temperature, top_k, top_p, min_p, indices,
            generator, seed, offset, check_nan, return_valid.
        """
        if not isinstance(x, TaggedTensor):
            x = TaggedTensor(x, self._initial)
        elif x.type is not self._initial:
            raise ValueError(f"LogitsPipe: expected {self._initial.name}; got {x.type.name}")
        for op in self.ops if self.compiled_ops is None else self.compiled_ops:
            x = op(x, **kwargs)
        if isinstance(x, tuple):
            return x[0].data, x[1]
        return x.data

    def __repr__(self) -> str:
        names = ", ".join(type(op).__name__ for op in self.compiled_ops or self.ops)
        return f"LogitsPipe([{names}])"
