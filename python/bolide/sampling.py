# SPDX-License-Identifier: Apache-2.0
"""Sampling of tokens from logits and probabilities, and the filters by themselves.

Draws come from Philox: a call is a function of (seed, offset, row), the same on every device. Seed
and offset are both Python numbers or both tensors, ``[1]`` or one for each row, int64 or uint64; as
tensors they are read when the kernel runs, so a captured graph draws anew with new values. Without
them they come from ``generator``, or the framework's generator of that device, which advances;
NumPy has none, so there both are required. Results are deterministic with and without
``deterministic``. With ``indices`` output row i samples from ``probs[indices[i]]``, and the samples
have its dtype (int32 without it). A row that is all zero or NaN gives id 0, with valid False.
``check_nan=True`` reads the input once more, waits, and raises ValueError where it holds a NaN.
Probabilities of other floating types are converted to float32 first, and so is a tensor of top_p,
min_p or temperatures of any type, one of top_k to int32 unless it is int64; logits of 16 bits are
read as they are.
"""

from __future__ import annotations

from operator import index
from typing import Any, Optional, Tuple, Union

from . import _binding, _docs, _frameworks, _missing
from ._binding import operator
from ._frameworks import as_float32 as _as_float32, real as _real, single as _single
from ._frameworks import whole as _whole
from ._library import torch
from .jit.batch import gen_sampling_module  # noqa: F401

Tensor = Any
Number = Union[int, Tensor]

_DRAW = " indices seed offset samples"
_from_logits = operator("sampling_from_logits", "logits" + _DRAW)
_from_probs = operator("sampling_from_probs", "probs" + _DRAW + " valid")
_top_p = operator("top_p_sampling_from_probs", "probs top_p" + _DRAW + " valid")
_top_k = operator("top_k_sampling_from_probs", "probs top_k" + _DRAW + " valid")
_min_p = operator("min_p_sampling_from_probs", "probs min_p" + _DRAW + " valid")
_joint = operator("top_k_top_p_sampling_from_probs",
                  "probs top_k top_p filter_apply_order" + _DRAW + " valid")
_joint_logits = operator("top_k_top_p_sampling_from_logits",
                         "logits top_k top_p filter_apply_order" + _DRAW)
_softmax = operator("softmax", "logits temperature out")
_top_p_renorm = operator("top_p_renorm_probs", "probs top_p out")
_top_k_renorm = operator("top_k_renorm_probs", "probs top_k out")
_top_k_mask = operator("top_k_mask_logits", "logits top_k out")
_chain = operator("chain_speculative_sampling",
                  "draft_probs draft_token_ids target_probs maybe_output_accepted_token_num "
                  "maybe_output_emitted_draft_token_num seed offset output_token_ids")


def get_seed_and_offset(increment: int, generator: Any, device: Any) -> Tuple[int, int]:
    """Seed and offset of a generator of torch, which advances by increment, rounded up to 4."""
    if device.type == "cuda":
        if generator is None:
            index = torch.cuda.current_device() if device.index is None else device.index
            generator = torch.cuda.default_generators[index]
        state = generator.get_state()
        seed, offset = state.view(torch.int64).tolist()
        offset += (increment + 3) // 4 * 4
        generator.set_state(torch.tensor([seed, offset], dtype=torch.int64).view(torch.uint8))
        return seed, offset
    # A generator of the CPU has no offset: it gives a seed, and advances by that.
    return int(torch.randint(0, 2**63 - 1, (1,), generator=generator)), 0


def _word(name, arg, value, like):
    """The 64 bits of a seed or an offset as the signed number that C takes, or as a tensor the one
    that stands there for none. What is no number goes on as it is."""
    if not isinstance(value, int) and type(value).__module__ != "numpy":
        return value
    if _frameworks.is_numpy(value) or not hasattr(value, "__index__") or _binding.compiling():
        return value
    value = index(value)
    if not -2**63 <= value < 2**64:
        raise ValueError(f"{name}: {arg}: value: expected a number of 64 bits; got {value}")
    value -= 2**64 if value >= 2**63 else 0
    return value if value > -2**63 else _frameworks.full(like, (1,), "int64", value)


def _kind(value):
    return "a tensor" if _frameworks.is_tensor(value) else repr(value)


def _draw(name, like, generator, seed, offset, increment):
    """Seed and offset of a call, as it was given them or from a generator."""
    if seed is None and offset is None:
        if not _frameworks.is_torch(like):
            return None, None
        if _binding.compiling():
            kind = {"dtype": torch.int64, "device": like.device}
            return (torch.randint(0, 2**63 - 1, (1,), generator=generator, **kind),
                    torch.zeros(1, **kind))
        seed, offset = get_seed_and_offset(increment, generator, like.device)
    if seed is None or offset is None:
        raise ValueError(f"{name}: seed, offset: expected both or neither; got "
                         f"{_kind(seed)}, {_kind(offset)}")
    if _frameworks.is_tensor(seed) != _frameworks.is_tensor(offset):
        raise ValueError(f"{name}: seed, offset: expected two integers or two tensors; got "
                         f"{_kind(seed)}, {_kind(offset)}")
    return _word(name, "seed", seed, like), _word(name, "offset", offset, like)


def _refuse_nan(name, tensor):
    if _frameworks.is_torch(tensor):
        found = bool(torch.isnan(tensor).any())
    else:
        import numpy

        found = bool(numpy.isnan(tensor.astype("float32")).any())
    if found:
        raise ValueError(f"{name}: input: value: expected no NaN; got some")


def _rows(tensor, indices) -> int:
    return (tensor if indices is None else indices).shape[0]


def softmax(logits: Tensor, temperature: Optional[Union[float, Tensor]] = None,
            enable_pdl: Optional[bool] = None) -> Tensor:
    """Softmax of each row divided by its temperature, in float32. A row without a logit above -inf
    gives zeros.

    :param logits: ``[n, v]`` float16, bfloat16 or float32.
    :param temperature: a number, or ``[n]`` float32. One that is 0 or less gives a row with 1 at
        its largest logit, of equals the first.
    """
    return _softmax(_single(logits), _real(temperature), None)


def sampling_from_logits(logits: Tensor, indices: Optional[Tensor] = None,
                         deterministic: bool = True, generator: Any = None,
                         check_nan: bool = False, seed: Optional[Number] = None,
                         offset: Optional[Number] = None) -> Tensor:
    """One sample from the softmax of each row of ``logits [n, v]``, by the Gumbel-max trick."""
    if check_nan:
        _refuse_nan("sampling_from_logits", logits)
    increment = _rows(logits, indices) * logits.shape[-1]
    draw = _draw("sampling_from_logits", logits, generator, seed, offset, increment)
    return _from_logits(_single(logits), indices, *draw, None)


def sampling_from_probs(probs: Tensor, indices: Optional[Tensor] = None,
                        deterministic: bool = True, generator: Any = None,
                        check_nan: bool = False, seed: Optional[Number] = None,
                        offset: Optional[Number] = None, return_valid: bool = False,
                        ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """One sample from each row of ``probs [n, v]``.

    :returns: samples, and with return_valid which rows had something to sample, bool.
    """
    if check_nan:
        _refuse_nan("sampling_from_probs", probs)
    draw = _draw("sampling_from_probs", probs, generator, seed, offset, _rows(probs, indices))
    return _from_probs(_as_float32(probs), indices, *draw, None, return_valid)


def top_p_sampling_from_probs(probs: Tensor, top_p: Union[Tensor, float],
                              indices: Optional[Tensor] = None, deterministic: bool = True,
                              generator: Any = None, check_nan: bool = False,
                              seed: Optional[Number] = None, offset: Optional[Number] = None,
                              return_valid: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """A sample from the smallest set of largest probabilities whose sum reaches top_p.

    :param top_p: a number, or one for each row. 1 and more is no limit, 0 and less the top token.
    """
    if check_nan:
        _refuse_nan("top_p_sampling_from_probs", probs)
    increment = 32 * _rows(probs, indices)
    draw = _draw("top_p_sampling_from_probs", probs, generator, seed, offset, increment)
    return _top_p(_as_float32(probs), _real(top_p), indices, *draw, None, return_valid)


def top_k_sampling_from_probs(probs: Tensor, top_k: Union[Tensor, int],
                              indices: Optional[Tensor] = None, deterministic: bool = True,
                              generator: Any = None, check_nan: bool = False,
                              seed: Optional[Number] = None, offset: Optional[Number] = None,
                              return_valid: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """A sample from the top_k largest probabilities.

    :param top_k: a number, or one for each row, int32 or int64. 0 and less, or more than there are
        tokens, is no limit.
    """
    if check_nan:
        _refuse_nan("top_k_sampling_from_probs", probs)
    increment = 32 * _rows(probs, indices)
    draw = _draw("top_k_sampling_from_probs", probs, generator, seed, offset, increment)
    return _top_k(_as_float32(probs), _whole(top_k), indices, *draw, None, return_valid)


def min_p_sampling_from_probs(probs: Tensor, min_p: Union[Tensor, float],
                              indices: Optional[Tensor] = None, deterministic: bool = True,
                              generator: Any = None, check_nan: bool = False,
                              seed: Optional[Number] = None, offset: Optional[Number] = None,
                              return_valid: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """A sample from the probabilities of at least min_p times the row's largest."""
    if check_nan:
        _refuse_nan("min_p_sampling_from_probs", probs)
    draw = _draw("min_p_sampling_from_probs", probs, generator, seed, offset, _rows(probs, indices))
    return _min_p(_as_float32(probs), _real(min_p), indices, *draw, None, return_valid)


def top_k_top_p_sampling_from_probs(
    probs: Tensor, top_k: Union[Tensor, int], top_p: Union[Tensor, float],
    indices: Optional[Tensor] = None, filter_apply_order: str = "top_k_first",
    deterministic: bool = True, generator: Any = None, check_nan: bool = False,
    seed: Optional[Number] = None, offset: Optional[Number] = None, return_valid: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """A sample behind both filters.

    :param filter_apply_order: "top_k_first" renormalises behind top_k, "joint" holds both tests
        against the original distribution.
    """
    if check_nan:
        _refuse_nan("top_k_top_p_sampling_from_probs", probs)
    increment = 32 * _rows(probs, indices)
    draw = _draw("top_k_top_p_sampling_from_probs", probs, generator, seed, offset, increment)
    return _joint(_as_float32(probs), _whole(top_k), _real(top_p), filter_apply_order, indices, *draw,
                  None, return_valid)


def top_k_top_p_sampling_from_logits(
    logits: Tensor, top_k: Union[Tensor, int], top_p: Union[Tensor, float],
    indices: Optional[Tensor] = None, filter_apply_order: str = "top_k_first",
    deterministic: bool = True, generator: Any = None, check_nan: bool = False,
    seed: Optional[Number] = None, offset: Optional[Number] = None,
) -> Tensor:
    """:func:`top_k_top_p_sampling_from_probs` on the softmax of logits; "top_k_first" masks the
    logits before it."""
    if check_nan:
        _refuse_nan("top_k_top_p_sampling_from_logits", logits)
    increment = 32 * _rows(logits, indices)
    draw = _draw("top_k_top_p_sampling_from_logits", logits, generator, seed, offset, increment)
    return _joint_logits(_single(logits), _whole(top_k), _real(top_p), filter_apply_order, indices,
                         *draw, None)


def top_p_renorm_probs(probs: Tensor, top_p: Union[Tensor, float],
                       is_deterministic: bool = False) -> Tensor:
    """Keeps the smallest set of largest probabilities whose sum reaches top_p, divided by that sum;
    0 elsewhere; float32, whatever probs are. The result is deterministic either way."""
    return _top_p_renorm(_as_float32(probs), _real(top_p), None)


def top_k_renorm_probs(probs: Tensor, top_k: Union[Tensor, int]) -> Tensor:
    """Keeps the top_k largest probabilities of each row, divided by their sum; 0 elsewhere."""
    return _top_k_renorm(_single(probs), _whole(top_k), None)


def top_k_mask_logits(logits: Tensor, top_k: Union[Tensor, int]) -> Tensor:
    """Keeps the top_k largest logits of each row; -inf elsewhere."""
    return _top_k_mask(_single(logits), _whole(top_k), None)


top_p_renorm_prob = top_p_renorm_probs
top_k_renorm_prob = top_k_renorm_probs


def chain_speculative_sampling(
    draft_probs: Tensor, draft_token_ids: Tensor, target_probs: Tensor,
    maybe_output_accepted_token_num: Optional[Tensor] = None,
    maybe_output_emitted_draft_token_num: Optional[Tensor] = None, deterministic: bool = True,
    generator: Any = None, seed: Optional[Number] = None, offset: Optional[Number] = None,
) -> Tuple[Tensor, Tensor, Tensor]:
    """Accepts or replaces a chain of drafted tokens (speculative sampling).

    :param draft_probs: ``[b, n, v]`` float32.
    :param draft_token_ids: ``[b, n]``.
    :param target_probs: ``[b, n + 1, v]`` float32.
    :param maybe_output_accepted_token_num: ``[b]`` int32 counter, added to: drafts that pass their
        own test. :param maybe_output_emitted_draft_token_num: likewise, those before the first
        rejection. Both start at 0 where they are not given.
    :returns: token ids ``[b, n + 1]``, -1 behind the last one, and both counters.
    """
    b, n = draft_token_ids.shape
    counters = [
        given if given is not None else _frameworks.full(draft_probs, (b,), "int32", 0)
        for given in (maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num)
    ]
    increment = b * (n + 1)
    draw = _draw("chain_speculative_sampling", draft_probs, generator, seed, offset, increment)
    draft_probs, target_probs = map(_as_float32, (draft_probs, target_probs))
    ids = _chain(draft_probs, draft_token_ids, target_probs, *counters, *draw, None)
    return ids, *counters


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
