# SPDX-License-Identifier: Apache-2.0
"""The steps: one for each function of :mod:`bolide.sampling`, and the fused ones."""

from __future__ import annotations

from typing import Any, Optional

from .. import _docs, _frameworks, sampling
from .op import ParameterizedOp
from .types import TaggedTensor, TensorType

LOGITS, PROBS, INDICES = TensorType.LOGITS, TensorType.PROBS, TensorType.INDICES


def _samples(result: Any):
    """Samples are tagged; with return_valid the pair stays a pair."""
    if isinstance(result, tuple):
        return TaggedTensor(result[0], INDICES), result[1]
    return TaggedTensor(result, INDICES)


class TemperatureOp(ParameterizedOp):
    """Divides logits by a temperature, in float32."""

    IN, OUT = LOGITS, LOGITS

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter temperature: a number, or one a row, above 0."""
        x = self._open(tensor)
        temperature = self._parameter("temperature", kwargs)
        if _frameworks.is_tensor(temperature):
            temperature = temperature.reshape(-1, 1)
        elif temperature <= 0:
            raise ValueError("TemperatureOp: temperature: expected a number above 0; got "
                             f"{temperature}; a pipeline with Softmax behind it takes 0, too")
        x = x.float() if _frameworks.is_torch(x) else x.astype("float32")
        return TaggedTensor(x / temperature, LOGITS)


class SoftmaxOp(ParameterizedOp):
    """Softmax of logits."""

    IN, OUT = LOGITS, PROBS

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """No parameters."""
        return TaggedTensor(sampling.softmax(self._open(tensor)), PROBS)


class FusedTemperatureSoftmaxOp(ParameterizedOp):
    """Softmax of logits divided by a temperature, in one kernel."""

    IN, OUT = LOGITS, PROBS

    def __init__(self, enable_pdl: Optional[bool] = None, **default_params: Any):
        super().__init__(**default_params)
        self.enable_pdl = enable_pdl

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter temperature: a number, or one a row."""
        temperature = self._parameter("temperature", kwargs)
        return TaggedTensor(
            sampling.softmax(self._open(tensor), temperature, self.enable_pdl), PROBS)


class LogitsTopKOp(ParameterizedOp):
    """Keeps the largest logits."""

    IN, OUT = LOGITS, LOGITS

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter top_k."""
        top_k = self._parameter("top_k", kwargs)
        return TaggedTensor(sampling.top_k_mask_logits(self._open(tensor), top_k), LOGITS)


class ProbsTopKOp(ParameterizedOp):
    """Keeps the largest probabilities and renormalises them."""

    IN, OUT = PROBS, PROBS

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter top_k."""
        top_k = self._parameter("top_k", kwargs)
        return TaggedTensor(sampling.top_k_renorm_probs(self._open(tensor), top_k), PROBS)


class TopPOp(ParameterizedOp):
    """Keeps the smallest set of largest probabilities that reaches a sum, and renormalises it."""

    IN, OUT = PROBS, PROBS

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter top_p."""
        top_p = self._parameter("top_p", kwargs)
        return TaggedTensor(sampling.top_p_renorm_probs(self._open(tensor), top_p), PROBS)


class MinPOp(ParameterizedOp):
    """Keeps the probabilities of at least a share of the largest, and renormalises them."""

    IN, OUT = PROBS, PROBS

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter min_p."""
        probs = self._open(tensor)
        min_p = self._parameter("min_p", kwargs)
        if _frameworks.is_tensor(min_p):
            min_p = min_p.reshape(-1, 1)
        if _frameworks.is_torch(probs):
            kept = probs.where(probs >= min_p * probs.amax(-1, keepdim=True), 0)
            return TaggedTensor(kept / kept.sum(-1, keepdim=True), PROBS)
        kept = probs * (probs >= min_p * probs.max(-1, keepdims=True))
        return TaggedTensor(kept / kept.sum(-1, keepdims=True), PROBS)


class LogitsSampleOp(ParameterizedOp):
    """Samples from logits."""

    IN, OUT = LOGITS, INDICES

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameters indices, generator, seed, offset, check_nan."""
        draw = self._draw(kwargs)
        draw.pop("return_valid", None)
        return _samples(sampling.sampling_from_logits(self._open(tensor), **draw))


class ProbsSampleOp(ParameterizedOp):
    """Samples from probabilities."""

    IN, OUT = PROBS, INDICES

    def __init__(self, **default_params: Any):
        super().__init__(**default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameters indices, generator, seed, offset, check_nan, return_valid."""
        return _samples(sampling.sampling_from_probs(self._open(tensor), **self._draw(kwargs)))


class _FusedSampleOp(ParameterizedOp):
    IN, OUT = PROBS, INDICES

    def __init__(self, deterministic: bool = True, **default_params: Any):
        super().__init__(**default_params)
        self.deterministic = deterministic


class FusedProbsTopKSampleOp(_FusedSampleOp):
    """Top-k filter and sample in one kernel."""

    def __init__(self, deterministic: bool = True, **default_params: Any):
        super().__init__(deterministic, **default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter top_k, and those of ProbsSampleOp."""
        return _samples(sampling.top_k_sampling_from_probs(
            self._open(tensor), self._parameter("top_k", kwargs),
            deterministic=self.deterministic, **self._draw(kwargs)))


class FusedProbsTopPSampleOp(_FusedSampleOp):
    """Top-p filter and sample in one kernel."""

    def __init__(self, deterministic: bool = True, **default_params: Any):
        super().__init__(deterministic, **default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter top_p, and those of ProbsSampleOp."""
        return _samples(sampling.top_p_sampling_from_probs(
            self._open(tensor), self._parameter("top_p", kwargs),
            deterministic=self.deterministic, **self._draw(kwargs)))


class FusedProbsMinPSampleOp(_FusedSampleOp):
    """Min-p filter and sample in one kernel."""

    def __init__(self, deterministic: bool = True, **default_params: Any):
        super().__init__(deterministic, **default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameter min_p, and those of ProbsSampleOp."""
        return _samples(sampling.min_p_sampling_from_probs(
            self._open(tensor), self._parameter("min_p", kwargs),
            deterministic=self.deterministic, **self._draw(kwargs)))


class FusedProbsTopKTopPSampleOp(_FusedSampleOp):
    """Top-k and top-p, both on the original distribution, and sample in one kernel."""

    def __init__(self, deterministic: bool = True, **default_params: Any):
        super().__init__(deterministic, **default_params)

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Parameters top_k and top_p, and those of ProbsSampleOp."""
        return _samples(sampling.top_k_top_p_sampling_from_probs(
            self._open(tensor), self._parameter("top_k", kwargs),
            self._parameter("top_p", kwargs), filter_apply_order="joint",
            deterministic=self.deterministic, **self._draw(kwargs)))


_docs.complete(globals())
