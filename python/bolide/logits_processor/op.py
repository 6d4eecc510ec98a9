# SPDX-License-Identifier: Apache-2.0
"""One step of a compiled pipeline."""

from __future__ import annotations

from typing import Any

from .types import TaggedTensor, TensorType


class Op:
    """A step that takes tensors of the type IN and gives tensors of the type OUT."""

    IN: TensorType
    OUT: TensorType

    def __init__(self) -> None:
        if not hasattr(self, "IN") or not hasattr(self, "OUT"):
            raise ValueError(f"{type(self).__name__} must say its types IN and OUT")

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Runs the step."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def _open(self, tensor: TaggedTensor) -> Any:
        if tensor.type is not self.IN:
            raise ValueError(f"{type(self).__name__}: expected {self.IN.name}; got "
                             f"{tensor.type.name}")
        return tensor.data


class ParameterizedOp(Op):
    """A step with parameters: those of the call go before those of the constructor."""

    def __init__(self, **default_params: Any):
        super().__init__()
        self.default_params = default_params

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        """Runs the step with the parameters of this call."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def _parameter(self, name: str, given: dict[str, Any], required: bool = True) -> Any:
        value = given.get(name)
        if value is None:
            value = self.default_params.get(name)
        if value is None and required:
            raise ValueError(f"{type(self).__name__}: {name} is required, in the call or before")
        return value

    def _draw(self, given: dict[str, Any]) -> dict[str, Any]:
        """What every sampling step takes besides its filter."""
        names = ("indices", "generator", "seed", "offset", "check_nan", "return_valid")
        found = {name: self._parameter(name, given, required=False) for name in names}
        return {name: value for name, value in found.items() if value is not None}
