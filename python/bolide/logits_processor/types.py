# SPDX-License-Identifier: Apache-2.0
"""What flows through a pipeline: a tensor of logits, of probabilities or of samples."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any


class TensorType(Enum):
    """Meaning of a tensor in a pipeline."""

    LOGITS = auto()
    PROBS = auto()
    INDICES = auto()


class TaggedTensor:
    """A tensor with its meaning."""

    def __init__(self, data: Any, type: TensorType):
        self.data = data
        self.type = type

    @staticmethod
    def logits(t: Any) -> "TaggedTensor":
        """Tagged as logits."""
        return TaggedTensor(t, TensorType.LOGITS)

    @staticmethod
    def probs(t: Any) -> "TaggedTensor":
        """Tagged as probabilities."""
        return TaggedTensor(t, TensorType.PROBS)

    @staticmethod
    def indices(t: Any) -> "TaggedTensor":
        """Tagged as samples."""
        return TaggedTensor(t, TensorType.INDICES)

    @property
    def shape(self):
        """Shape of the tensor."""
        return self.data.shape

    @property
    def device(self):
        """Device of the tensor."""
        return self.data.device

    @property
    def dtype(self):
        """Dtype of the tensor."""
        return self.data.dtype

    def size(self, dim=None):
        """All sizes, or one."""
        return self.data.shape if dim is None else self.data.shape[dim]

    def __repr__(self) -> str:
        return f"TaggedTensor(type={self.type.name}, shape={tuple(self.shape)}, dtype={self.dtype})"
