# SPDX-License-Identifier: Apache-2.0
"""Attention that is planned and run in one call, in the caller's workspace: what FlashInfer's entry
points of the families trtllm, xqa, cuDNN and FMHA v2 have in common.

They bring block tables and lengths with every call and have no plan of their own, so each call
plans for itself. The plan's lists lie at the beginning of the workspace and scratch behind them;
what lay there before does not matter. Lengths on the host are planned there; for lengths on a GPU a
kernel plans, so that nothing waits and a graph can hold the call, but for few kinds of calls that
copy them back. Messages of the library are passed on with the names of the function and of its
arguments.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

from .. import _dtypes, _frameworks
from .._arguments import later, split_paged
from .._binding import Plan, Workspace, compiling
from .._library import BusyError, torch
from . import _memory
from ._base import Operators, bind, refuse

Tensor = Any
LN2 = math.log(2)

_COMMON = ("num_qo_heads num_kv_heads head_dim_vo kv_layout q_data_type kv_data_type o_data_type "
           "causal window_left sm_scale max_sequence_kv plan_on_device ")
_RUN = "sinks q_scale k_scale v_scale o_scale return_lse_base_on_e out lse"
_PAGES = "q k_cache v_cache block_tables v_block_tables draft_mask " + _RUN
_PACKED = "q k v " + _RUN
_LATENT = "q_nope q_pe ckv_cache kpe_cache block_tables custom_mask sinks q_scale o_scale out lse"
_OPTIONS = ("qo_indptr o_indptr seq_lens seq_lens_q max_num_rows max_token_per_sequence "
            "chunked_attention_size logits_soft_cap pos_encoding_mode")
OPERATORS: dict[str, Operators] = {
    "batch_decode": bind("batch_decode", _COMMON + "head_dim page_size seq_lens q_len_per_req",
                         _PAGES),
    "batch_prefill_paged": bind("batch_prefill_paged", _COMMON + "head_dim_qk page_size " +
                                _OPTIONS, _PAGES),
    "batch_prefill_ragged": bind("batch_prefill_ragged", _COMMON + "head_dim_qk kv_indptr v_indptr "
                                 + _OPTIONS, _PACKED),
    "batch_mla": bind("batch_mla", "qo_indptr kv_len_arr num_heads head_dim_ckv head_dim_kpe "
                      "page_size q_data_type kv_data_type o_data_type causal sm_scale "
                      "use_custom_mask max_num_rows max_sequence_kv plan_on_device", _LATENT)}
_RUN_NAMES = {"batch_decode": _PAGES.split(), "batch_prefill_paged": _PAGES.split(),
              "batch_prefill_ragged": _PACKED.split(), "batch_mla": _LATENT.split()}
_LENGTHS = ("qo_indptr", "kv_indptr", "v_indptr", "o_indptr", "seq_lens", "seq_lens_q",
            "kv_len_arr")
# From so many rows on, a plan on the host, with its choice of kernels, wins back its wait.
MANY_ROWS = 2048
_UINT32 = _dtypes.BY_NAME["uint32"].bit
_WORDS = _UINT32 | sum(_dtypes.BY_NAME[n].bit for n in ("uint16", "int16", "int32"))


# ---- arguments -------------------------------------------------------------------------------


def expect(name: str, argument: str, expected: Any, got: Any) -> ValueError:
    """An error in the form of the library's."""
    return ValueError(f"{name}: {argument}: expected {expected}; got {got}")


def is_fp4(value: Any) -> bool:
    """Whether an output or its dtype is FlashInfer's NVFP4."""
    return (value == "nvfp4" if isinstance(value, str)
            else value is not None and type(value).__name__ == "FP4Tensor")


def output(name: str, like: Tensor, shape: tuple, out: Any, out_dtype: Any, default: Any,
           argument: str = "out_dtype") -> Tensor:
    """The output as given, or a new one of out_dtype; default is the dtype where none is said."""
    for value, its_name in ((out, "out"), (out_dtype, argument)):
        if is_fp4(value):
            raise NotImplementedError(f"{name}: {its_name}: NVFP4 is not supported by this version")
    if out is None:
        return _frameworks.empty(like, shape, default if out_dtype is None else out_dtype)
    if out_dtype is not None and _dtypes.of(out_dtype).bit != _frameworks.dtype_bit(out):
        raise expect(name, argument, f"{_dtypes.of(out.dtype).name}, the dtype of out",
                     _dtypes.of(out_dtype).name)
    return out


def flat(tensor: Any) -> Any:
    """A tensor with one dimension; None and numbers as they are."""
    return tensor.reshape(-1) if _frameworks.is_tensor(tensor) and tensor.ndim != 1 else tensor


def int32(tensor: Any) -> Any:
    """Lengths as one row of int32; unsigned ones are looked at as signed ones."""
    if tensor is None:
        return None
    tensor = flat(tensor)
    if _frameworks.dtype_bit(tensor) != _UINT32:
        return tensor
    return tensor.view(torch.int32 if _frameworks.is_torch(tensor) else "int32")


def one_sink(name: str, sinks: Any) -> Any:
    """The sinks of all heads: a tensor, or a list with that tensor."""
    if isinstance(sinks, (list, tuple)):
        if len(sinks) != 1:
            raise expect(name, "sinks", "one tensor with a value for each head", len(sinks))
        sinks = sinks[0]
    return flat(sinks)


def scale(value: Any) -> Any:
    """A number, or a tensor of one element or of one for each head."""
    return flat(value) if _frameworks.is_tensor(value) else float(value)


def product(a: Any, b: Any) -> Any:
    """Of two scales, on the device of a tensor among them; None is 1."""
    return b if a is None else a if b is None else a * b


def rows_of_mask(mask: Any) -> Any:
    """A packed mask as rows of bytes: one row for each query token."""
    if mask is None:
        return None
    mask = mask.reshape(-1, mask.shape[-1])
    if not _frameworks.dtype_bit(mask) & _WORDS:
        return mask
    return mask.view(torch.uint8 if _frameworks.is_torch(mask) else "uint8")


def pages(cache: Any, kv_layout: str) -> tuple[Tensor, Tensor]:
    """Keys and values of a paged cache. One tensor whose second axis is 1 is both."""
    if not isinstance(cache, (tuple, list)) and cache.ndim == 4 and cache.shape[1] == 1:
        return cache, cache
    return split_paged(cache, kv_layout)


def check_layout(name: str, kv_layout: Any) -> str:
    """ "NHD" or "HND"."""
    if kv_layout not in ("NHD", "HND"):
        raise expect(name, "kv_layout", "NHD or HND", repr(kv_layout))
    return kv_layout


def check_batch(name: str, batch_size: int, lengths: Tensor, argument: str = "seq_lens") -> None:
    """batch_size repeats what the lengths say."""
    if batch_size != lengths.shape[0]:
        raise expect(name, "batch_size", f"{lengths.shape[0]}, the entries of {argument}",
                     batch_size)


class Cache(NamedTuple):
    """A paged cache and where its pages are named."""

    k: Tensor
    v: Tensor
    tables: Tensor
    v_tables: Optional[Tensor]
    layout: str

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return self.k.shape[1 if self.layout == "NHD" else 2]

    @property
    def heads(self) -> int:
        """Heads of keys and values."""
        return self.k.shape[2 if self.layout == "NHD" else 1]


def cache_of(name: str, kv_cache: Any, kv_layout: str, block_tables: Tensor,
             uses_shared_paged_kv_idx: bool = True) -> Cache:
    """The cache of a call, with one table for keys and values or with one for each."""
    k, v = pages(kv_cache, check_layout(name, kv_layout))
    if uses_shared_paged_kv_idx:
        return Cache(k, v, block_tables, None, kv_layout)
    if block_tables.ndim != 3 or block_tables.shape[1] != 2:
        raise expect(name, "block_tables", "[b, 2, pages] without uses_shared_paged_kv_idx",
                     list(block_tables.shape))
    return Cache(k, v, block_tables[:, 0], block_tables[:, 1], kv_layout)


def no_nvfp4(name: str, **arguments: Any) -> None:
    """Arguments of NVFP4 caches and outputs: refused where given."""
    later(name, **arguments)


def no_spcompress(name: str, uses_spcompress: Any) -> None:
    """Refused where asked for."""
    refuse(name, uses_spcompress=uses_spcompress)


# ---- memory ----------------------------------------------------------------------------------


class Own(NamedTuple):
    """In the place of a workspace: memory for this call, where the tensor lies."""

    like: Tensor


class _Staging(NamedTuple):
    """Pinned memory of a plan, the plan, and the event behind its copy."""

    buffer: Tensor
    plan: Plan
    copied: Any


class _Ring:
    """Staging of one GPU: an entry is used again when the copy out of it has ended."""

    entries: dict[int, list] = {}
    LENGTH = 32

    @classmethod
    def take(cls, device: Any, pinned: int, plan: int) -> _Staging:
        entries = cls.entries.setdefault(device.index, [])
        for i, entry in enumerate(entries):
            if entry.copied.query() and entry.buffer.shape[0] >= pinned and entry.plan.size >= plan:
                return entries.pop(i)
        if len(entries) >= cls.LENGTH:
            entries.pop(0).copied.synchronize()
        return _Staging(_memory.pinned(max(pinned, 1 << 16)), Plan(plan), torch.cuda.Event())

    @classmethod
    def give(cls, device: Any, entry: _Staging) -> None:
        entry.copied.record(torch.cuda.current_stream(device))
        cls.entries[device.index].append(entry)


def _bytes_of(name: str, buffer: Tensor) -> Tensor:
    """A workspace as bytes that begin at a multiple of 16."""
    if buffer is None:
        raise expect(name, "workspace_buffer", "a tensor", None)
    if _frameworks.is_torch(buffer):
        raw = buffer.reshape(-1).view(torch.uint8)
        return raw[-raw.data_ptr() % 16:]
    raw = buffer.reshape(-1).view("uint8")
    return raw[-raw.__array_interface__["data"][0] % 16:]


def _need(sizes: Any) -> int:
    """Bytes of a workspace."""
    return (sizes.device_int + 255) // 256 * 256 + sizes.device + 16


def _carve(name: str, raw: Tensor, sizes: Any, pinned: Any) -> Workspace:
    """The plan's lists at the beginning, scratch behind."""
    lists = (sizes.device_int + 255) // 256 * 256
    if raw.shape[0] < lists + sizes.device:
        raise expect(name, "workspace_buffer", f"at least {_need(sizes)} bytes",
                     f"{raw.shape[0]} bytes")
    return Workspace(raw[lists:], raw[:lists], pinned)


# ---- the call --------------------------------------------------------------------------------


def _renamed(error: Exception, name: str, spelled: dict[str, str]) -> Exception:
    """A message of the library under the caller's names."""
    argument, colon, rest = str(error).partition(": ")[2].partition(": ")
    if not colon:
        return error
    return type(error)(f"{name}: {spelled.get(argument, argument)}: {rest}")


def once(name: str, op: str, workspace_buffer: Any, plan: dict[str, Any], run: dict[str, Any],
         spelled: dict[str, str]) -> None:
    """Plans and runs an operator. spelled has the caller's names of the library's arguments."""
    if compiling():
        _trace(name, op, workspace_buffer, plan, run, spelled)
    else:
        _eager(name, op, workspace_buffer, plan, run, spelled)


def _eager(name: str, op: str, workspace_buffer: Any, plan: dict[str, Any], run: dict[str, Any],
           spelled: dict[str, str]) -> None:
    own = isinstance(workspace_buffer, Own)
    raw = _frameworks.empty(workspace_buffer.like, (64,), "uint8") if own else _bytes_of(
        name, workspace_buffer)
    whole = Workspace(raw)
    if whole.device is not None:
        plan = _planned_where(name, plan, run, whole.device)
    if op == "batch_mla" and run.get("v_cache") is not None and not _memory.same_place(
            run["v_cache"], run["ckv_cache"]):
        raise expect(name, "v_cache", "the latent part of k_cache, the same memory", "another")
    calls = OPERATORS[op]
    values = [plan.get(n) for n in calls.names]
    arguments = [run.get(n) for n in _RUN_NAMES[op]]
    try:
        sizes = calls.sizes(*values, whole.address)
        if own:
            raw = _bytes_of(name, _frameworks.empty(raw, (_need(sizes),), "uint8"))
        if whole.device is None:
            space, memory = _carve(name, raw, sizes, None), Plan(sizes.plan)
            calls.plan(*values, space.address, memory.address, None)
            calls.run(*arguments, space.address, memory.address)
        elif plan["plan_on_device"]:
            space, memory = _carve(name, raw, sizes, None), Plan(sizes.plan)
            calls.plan(*values, space.address, memory.address, space.stream)
            calls.run(*arguments, space.address, memory.address)
        else:
            _on_gpu(name, calls, raw, sizes, values, arguments)
    except BusyError:
        raise
    except (ValueError, NotImplementedError, RuntimeError) as error:
        renamed = _renamed(error, name, spelled)
        if renamed is error:
            raise
        raise renamed from None


def _planned_where(name: str, plan: dict[str, Any], run: dict[str, Any], device: Any
                   ) -> dict[str, Any]:
    """The arguments of a plan on a GPU: it is made there as soon as one length lies there, and then
    the others follow it. Of many rows a graph alone asks for that."""
    arrays = {n: t for n, t in plan.items() if n in _LENGTHS and t is not None}
    there = [_memory.on_gpu(t) for t in arrays.values()]
    capturing = _memory.capturing(device)
    if capturing and not all(there):
        raise RuntimeError(
            f"{name}: lengths: expected all on the GPU while a graph is captured, since the host "
            "would plan for the values it sees")
    here = not any(there) or plan.get("use_custom_mask")
    if here or not capturing and _long_and_met(plan, run):
        return {**plan, "plan_on_device": False}
    return {**plan, **{n: _memory.to_device(t, device) for n, t in arrays.items()},
            "plan_on_device": True}


_met: set[tuple] = set()


def _long_and_met(plan: dict[str, Any], run: dict[str, Any]) -> bool:
    """Whether there are many rows. The first such call of its kind counts as short, so that a graph
    can be captured behind it."""
    rows = plan.get("max_num_rows") or 0
    if rows < MANY_ROWS:
        return False
    kind = (rows.bit_length(), *((n, x) for n, x in plan.items()
                                 if isinstance(x, (int, str)) and not n.startswith("max_")),
            *(n for n, x in run.items() if _frameworks.is_tensor(x)))
    known = kind in _met
    _met.add(kind)
    return known


def _on_gpu(name: str, op: Operators, raw: Tensor, sizes: Any, values: list,
            arguments: list) -> None:
    device = raw.device
    entry = _Ring.take(device, sizes.pinned, sizes.plan)
    entry.plan._memory[:] = Plan(entry.plan.size)._memory[:]
    space = _carve(name, raw, sizes, entry.buffer)
    try:
        op.plan(*values, space.address, entry.plan.address, space.stream)
        op.run(*arguments, space.address, entry.plan.address)
    finally:
        _Ring.give(device, entry)


# ---- while torch.compile traces ---------------------------------------------------------------


def _trace(name: str, op: str, workspace_buffer: Any, plan: dict[str, Any], run: dict[str, Any],
           spelled: dict[str, str]) -> None:
    """The call as one custom operator of torch: arguments by kind, each kind with its names."""
    own = isinstance(workspace_buffer, Own)
    tensors, numbers, integers, texts = {}, {}, {}, {}
    for part, values in (("plan", plan), ("run", run), ("name", spelled)):
        for key, value in values.items():
            if value is None or key in ("out", "lse") and part == "run":
                continue
            kind = (tensors if isinstance(value, torch.Tensor) else texts if isinstance(value, str)
                    else numbers if isinstance(value, float) else integers)
            kind[f"{part} {key}"] = value
    torch.ops.bolide.attention_once(
        name, op, own, workspace_buffer.like if own else workspace_buffer,
        list(tensors), list(tensors.values()), list(numbers), list(numbers.values()),
        list(integers), [int(i) for i in integers.values()], list(texts), list(texts.values()),
        run["out"], run.get("lse"))


def _traced(name, op, own, workspace, tensor_names, tensors, number_names, numbers, integer_names,
            integers, text_names, texts, out, lse):
    parts: dict[str, dict[str, Any]] = {"plan": {}, "run": {"out": out, "lse": lse}, "name": {}}
    for names, values in ((tensor_names, tensors), (number_names, numbers),
                          (integer_names, integers), (text_names, texts)):
        for key, value in zip(names, values):
            part, _, argument = key.partition(" ")
            parts[part][argument] = value
    _eager(name, op, Own(workspace) if own else workspace, parts["plan"], parts["run"],
           parts["name"])


def _define() -> Any:
    library = torch.library.Library("bolide", "FRAGMENT")
    library.define(
        "attention_once(str name, str op, bool own, Tensor workspace, str[] tensor_names, "
        "Tensor[] tensors, str[] number_names, float[] numbers, str[] integer_names, "
        "SymInt[] integers, str[] text_names, str[] texts, Tensor(a!) out, Tensor(b!)? lse) -> ()")
    library.impl("attention_once", _traced, "CompositeExplicitAutograd")
    torch.library.register_fake("bolide::attention_once", lambda *args: None, lib=library)
    return library


_library = _define() if torch is not None else None
