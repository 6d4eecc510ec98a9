# SPDX-License-Identifier: Apache-2.0
"""Rules that the steps of a pipeline must hold."""

from __future__ import annotations

from typing import Callable, List, Optional

from .. import _docs
from . import operators as _ops
from .op import Op
from .types import TensorType


class CompileError(Exception):
    """A pipeline breaks a rule."""


ValidityCheck = Callable[[List[Op]], None]


def single_softmax_rule(ops: List[Op]) -> None:
    """At most one softmax."""
    kinds = (_ops.SoftmaxOp, _ops.FusedTemperatureSoftmaxOp)
    if sum(isinstance(op, kinds) for op in ops) > 1:
        raise CompileError("a pipeline has at most one Softmax")


def indices_terminal_rule(ops: List[Op]) -> None:
    """Nothing stands behind a sample."""
    for op in ops[:-1]:
        if op.OUT is TensorType.INDICES:
            raise CompileError(f"{type(op).__name__} gives samples; nothing may stand behind it")


def get_default_validity_checks() -> List[ValidityCheck]:
    """The rules that always hold."""
    return [single_softmax_rule, indices_terminal_rule]


def validate_pipeline(ops: List[Op], custom_checks: Optional[List[ValidityCheck]] = None) -> None:
    """Holds the steps against all rules."""
    for check in get_default_validity_checks() + list(custom_checks or []):
        check(ops)


_docs.complete(globals())
