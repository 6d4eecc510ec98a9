# SPDX-License-Identifier: Apache-2.0
"""Neighbouring steps that one kernel does together."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Tuple

from .. import _docs
from . import operators as _ops
from .op import Op


class FusionRule(NamedTuple):
    """Steps of the types in pattern that pass guard become what build makes of them; rules of
    higher prio are tried first."""

    pattern: Tuple[type, ...]
    guard: Callable[[List[Op]], bool]
    build: Callable[[List[Op]], Op]
    prio: int = 0


def _merged(window: List[Op]) -> dict:
    params: dict = {}
    for op in window:
        params.update(op.default_params)
    return params


def _deterministic(window: List[Op]) -> bool:
    return getattr(window[-1], "deterministic", True)


def build_temperature_softmax(window: List[Op]) -> Op:
    """Temperature and softmax."""
    return _ops.FusedTemperatureSoftmaxOp(**_merged(window))


def build_topk_sampling(window: List[Op]) -> Op:
    """Top-k and sample."""
    return _ops.FusedProbsTopKSampleOp(_deterministic(window), **_merged(window))


def build_topp_sampling(window: List[Op]) -> Op:
    """Top-p and sample."""
    return _ops.FusedProbsTopPSampleOp(_deterministic(window), **_merged(window))


def build_minp_sampling(window: List[Op]) -> Op:
    """Min-p and sample."""
    return _ops.FusedProbsMinPSampleOp(_deterministic(window), **_merged(window))


def _build_joint(window: List[Op]) -> Op:
    return _ops.FusedProbsTopKTopPSampleOp(_deterministic(window), **_merged(window))


def joint_topk_topp_sampleprobs_guard(window: List[Op]) -> bool:
    """Whether the top-k in front asked for the joint test."""
    return bool(getattr(window[0], "joint_topk_topp", False))


def _always(window: List[Op]) -> bool:
    return True


def get_default_fusion_rules() -> List[FusionRule]:
    """All rules; longer patterns go first."""
    return [
        FusionRule((_ops.ProbsTopKOp, _ops.TopPOp, _ops.ProbsSampleOp),
                   joint_topk_topp_sampleprobs_guard, _build_joint, 20),
        FusionRule((_ops.TemperatureOp, _ops.SoftmaxOp), _always, build_temperature_softmax, 10),
        FusionRule((_ops.ProbsTopKOp, _ops.ProbsSampleOp), _always, build_topk_sampling, 10),
        FusionRule((_ops.TopPOp, _ops.ProbsSampleOp), _always, build_topp_sampling, 10),
        FusionRule((_ops.MinPOp, _ops.ProbsSampleOp), _always, build_minp_sampling, 10),
    ]


_docs.complete(globals())
