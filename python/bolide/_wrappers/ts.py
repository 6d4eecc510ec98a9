# SPDX-License-Identifier: Apache-2.0
"""What FlashInfer's task-scheduled attention (``prims_ts``: decode, latent decode, prefill) shares.

It is the operators of the other names. Functions plan and run in one call, on the GPU from lengths
that lie there. The wrappers plan once, in scratch of their own, and run any number of times. Masks
are "dense" or "causal", pages are HND.
"""

from __future__ import annotations

import math
from typing import Any, Optional

from .. import _dtypes, _frameworks
from .._library import torch
from . import _memory
from . import contracts as c
from .once import workspace_bytes

Tensor = Any
FLOAT16, BFLOAT16 = (_dtypes.BY_NAME[n] for n in ("float16", "bfloat16"))


# ---- arguments -------------------------------------------------------------------------------


def causal(name: str, mask_type: str, window_left: int = -1) -> bool:
    """The mask, and that a window has a causal one."""
    if mask_type not in ("dense", "causal"):
        raise c.expect(name, "mask_type", "dense or causal", repr(mask_type))
    if window_left < -1 or window_left >= 0 and mask_type == "dense":
        raise c.expect(name, "window_left", "-1, or a size from 0 on with mask_type causal",
                       window_left)
    return mask_type == "causal"


def hnd(name: str, kv_layout: str) -> None:
    if kv_layout != "HND":
        raise c.expect(name, "kv_layout", "HND", repr(kv_layout))


def positive(name: str, argument: str, value: Any, default: float = 1.0) -> float:
    """A positive number."""
    value = default if value is None else value
    if _frameworks.is_tensor(value) or not (math.isfinite(value) and value > 0):
        raise c.expect(name, argument, "a positive finite number", value)
    return float(value)


def as_rows(name: str, argument: str, q: Tensor, b: int, q_len: int, packed: bool) -> Tensor:
    """Queries as rows: ``[b, h, d]``, ``[b, q_len, h, d]``, or packed ``[n, h, d]``."""
    if packed:
        if q.ndim != 3:
            raise c.expect(name, argument, "[n, h, d] with qo_indptr", list(q.shape))
        return q
    if q.shape[0] != b or not (q.ndim == 3 and q_len == 1 or q.ndim == 4 and q.shape[1] == q_len):
        wanted = f"[{b}, h, d]" if q_len == 1 else f"[{b}, {q_len}, h, d]"
        raise c.expect(name, argument, wanted, list(q.shape))
    return joined(name, argument, q)


def joined(name: str, argument: str, tensor: Tensor) -> Tensor:
    """``[…, h, d]`` as ``[n, h, d]``, the same memory."""
    try:
        return _frameworks.view(tensor, (-1, *tensor.shape[-2:]))
    except (RuntimeError, AttributeError) as error:
        raise c.expect(name, argument, "rows at one distance", "other strides") from error


def bound(name: str, longest: Optional[int], q_len: int) -> Optional[int]:
    """The bound of a request's rows."""
    if longest is not None and longest < q_len:
        raise c.expect(name, "max_seq_len_q", f"at least {q_len}", longest)
    return longest


def size(plan: dict, op: str, device: Any) -> int:
    """Bytes of a workspace of attention in one call, on a device: torch's current one for None."""
    if device is None:
        device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    index = -1
    if str(device) != "cpu":
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        index = torch.cuda.current_device() if found.index is None else found.index
    return workspace_bytes(op, plan, index)


def int32s(n: int) -> Tensor:
    """Lengths that only say how many there are."""
    if torch is not None:
        return torch.zeros(n, dtype=torch.int32)
    import numpy

    return numpy.zeros(n, numpy.int32)
