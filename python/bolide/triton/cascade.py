# SPDX-License-Identifier: Apache-2.0
"""Merging of attention states under the names of FlashInfer's Triton kernels; :mod:`bolide.cascade`
has three of the four, too."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _docs, cascade
from .._binding import operator

Tensor = Any
EXPECT_HOPPER = 9

_variable = operator("variable_length_merge_states", "v s indptr v_merged s_merged")


def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> Tuple[Tensor, Tensor]:
    """:func:`bolide.cascade.merge_state`."""
    return cascade.merge_state(v_a, s_a, v_b, s_b)


def merge_state_in_place(v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor,
                         mask: Optional[Tensor] = None) -> None:
    """:func:`bolide.cascade.merge_state_in_place`."""
    cascade.merge_state_in_place(v, s, v_other, s_other, mask)


def merge_states(v: Tensor, s: Tensor) -> Tuple[Tensor, Tensor]:
    """:func:`bolide.cascade.merge_states`."""
    return cascade.merge_states(v, s)


def variable_length_merge_states(v: Tensor, s: Tensor, indptr: Tensor) -> Tuple[Tensor, Tensor]:
    """Merges the states ``indptr[i]`` to ``indptr[i + 1]`` into row i.

    :param v: ``[m, heads, d]``.
    :param s: ``[m, heads]`` float32, lse to base 2.
    :param indptr: ``[n + 1]`` int32, not decreasing.
    :returns: ``[n, heads, d]`` and ``[n, heads]``; a row of no states is 0 and -inf.
    """
    return _variable(v, s, indptr, None, None)


_docs.complete(globals())
