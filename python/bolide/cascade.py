# SPDX-License-Identifier: Apache-2.0
"""Attention over several sets of keys, merged by the logarithms of their sums (base 2)."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _docs, _frameworks, _missing
from ._binding import operator

Tensor = Any

_merge = operator("merge_state", "v_a s_a v_b s_b v_merged s_merged")
_in_place = operator("merge_state_in_place", "v s v_other s_other mask")
_states = operator("merge_states", "v s v_merged s_merged")


def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> Tuple[Tensor, Tensor]:
    """Attention over the union of two sets of keys, from the attention over each.

    :param v_a: ``[n, heads, d]``.
    :param s_a: ``[n, heads]``, lse to base 2, read in float32. Likewise b.
    :returns: the merged v, of v_a's dtype, and s. Two empty states give 0 and -inf.
    """
    return _merge(v_a, _frameworks.as_float32(s_a), v_b, _frameworks.as_float32(s_b), None, None)


def merge_state_in_place(v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor,
                         mask: Optional[Tensor] = None) -> None:
    """:func:`merge_state` of (v, s) and (v_other, s_other) into v and s.

    :param mask: ``[n]`` bool: the rows to touch; all without it.
    """
    _in_place(v, s, v_other, _frameworks.as_float32(s_other), mask)


def merge_states(v: Tensor, s: Tensor) -> Tuple[Tensor, Tensor]:
    """:func:`merge_state` of k states.

    :param v: ``[n, k, heads, d]``.
    :param s: ``[n, k, heads]``, read in float32.
    :returns: ``[n, heads, d]`` and ``[n, heads]``.
    """
    return _states(v, _frameworks.as_float32(s), None, None)


from ._wrappers.cascade import (  # noqa: E402, F401  (they use the functions above)
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper, BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
    MultiLevelCascadeAttentionWrapper)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
