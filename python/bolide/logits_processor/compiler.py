# SPDX-License-Identifier: Apache-2.0
"""Checks the steps of a pipeline and fuses neighbours."""

from __future__ import annotations

from typing import List, Optional

from .fusion_rules import FusionRule, get_default_fusion_rules
from .op import Op
from .validators import ValidityCheck, validate_pipeline


class Compiler:
    """Rules of fusion and validity, applied to lists of steps."""

    def __init__(self) -> None:
        self.rules = get_default_fusion_rules()
        self.checks: List[ValidityCheck] = []

    def register_fusion_rule(self, rule: FusionRule) -> None:
        """Adds a rule; those of higher prio are tried first, of equal prio the newest."""
        self.rules.insert(0, rule)

    def register_validity_check(self, check: ValidityCheck) -> None:
        """Adds a check, which raises CompileError."""
        self.checks.append(check)

    def compile(self, ops: List[Op]) -> List[Op]:
        """The same pipeline in fewer steps."""
        validate_pipeline(ops, self.checks)
        rules = sorted(self.rules, key=lambda rule: (-rule.prio, -len(rule.pattern)))
        out = list(ops)
        at = 0
        while at < len(out):
            at = at + 1 if not self._fuse(rules, out, at) else max(at - 1, 0)
        return out

    @staticmethod
    def _fuse(rules: List[FusionRule], ops: List[Op], at: int) -> bool:
        for rule in rules:
            window = ops[at:at + len(rule.pattern)]
            fits = len(window) == len(rule.pattern) and all(
                type(op) is kind for op, kind in zip(window, rule.pattern))
            if fits and rule.guard(window):
                ops[at:at + len(window)] = [rule.build(window)]
                return True
        return False


def compile_pipeline(ops: List[Op], custom_fusion_rules: Optional[List[FusionRule]] = None,
                     custom_validity_checks: Optional[List[ValidityCheck]] = None) -> List[Op]:
    """:meth:`Compiler.compile` with more rules and checks."""
    compiler = Compiler()
    for rule in custom_fusion_rules or []:
        compiler.register_fusion_rule(rule)
    for check in custom_validity_checks or []:
        compiler.register_validity_check(check)
    return compiler.compile(ops)
