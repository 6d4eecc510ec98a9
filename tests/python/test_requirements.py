# SPDX-License-Identifier: Apache-2.0
"""The decorators with which programs give functions of their own backends and capabilities."""

from __future__ import annotations

import numpy as np
import pytest

from bolide.utils import (
    BackendSupportedError, backend_requirement, supported_compute_capability)

X = np.zeros((7, 3), np.float32)


@supported_compute_capability([80, 90])
def large(x, backend="auto"):
    return x.shape[0] > 5


@supported_compute_capability([75])
def any_size(x, backend="auto"):
    return True


def two_axes(x, backend="auto"):
    return x.ndim == 2


def made(checks, *more):
    @backend_requirement(checks, *more)
    def function(x, backend="auto"):
        """A function."""
        return list(function.suitable_auto_backends)

    return function


def test_capabilities():
    assert large._supported_ccs == {80, 90} and large(X)
    assert large.is_compute_capability_supported(90)
    assert not large.is_compute_capability_supported(75)
    for wrong in (80, ["80"], [80.0], [True, 90]):
        with pytest.raises(TypeError, match="supported_ccs: "):
            supported_compute_capability(wrong)


def test_predicates():
    f = made({"large": large, "any": any_size, "bare": two_axes}, two_axes)
    assert f.__name__ == "function" and f.__doc__ == "A function."
    assert f.has_backend("any") and not f.has_backend("none") and f.has_backend_choices()
    assert f.is_backend_supported("large") and not f.is_backend_supported("none")
    assert f.is_backend_supported("large", 80) and not f.is_backend_supported("large", 75)
    assert f.is_backend_supported("bare") and not f.is_backend_supported("bare", 80)
    assert [f.is_compute_capability_supported(cc) for cc in (75, 80, 70)] == [True, True, False]


def test_calls():
    def picky(x, backend):
        raise ValueError("not this")

    f = made({"any": any_size, "picky": picky, "large": large}, two_axes,
             lambda found, x, backend: found[::-1])
    assert f(X) == ["large", "any"] and f(X[:2]) == ["any"]
    with pytest.raises(BackendSupportedError, match="backend: expected one of any, .*; got 'none'"):
        f(X, "none")
    with pytest.raises(ValueError, match="backend large does not have this problem"):
        f(X[:2], backend="large")
    with pytest.raises(ValueError, match="the problem is not supported"):
        f(X[0], backend="any")
    with pytest.raises(BackendSupportedError, match="no backend has this problem"):
        f(X[0])
    assert f(X[0], backend="any", skip_check=True) == ["any"]


def test_without_choices():
    f = made({}, large)
    assert f.is_compute_capability_supported(90) and not f.is_compute_capability_supported(75)
    assert not f.has_backend("any") and not f.has_backend_choices() and f(X) == []
    with pytest.raises(ValueError, match="is_backend_supported: there is no choice"):
        f.is_backend_supported("any", 90)
    with pytest.raises(ValueError, match="common_check is without"):
        made({}, two_axes).is_compute_capability_supported(90)
    with pytest.raises(ValueError, match="backend_requirement: expected backend_checks or common"):
        made({})(X)
