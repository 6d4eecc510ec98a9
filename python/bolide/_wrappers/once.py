# SPDX-License-Identifier: Apache-2.0
"""Attention that is planned and run in one call, in the caller's workspace.

The plan's lists lie at the beginning of the workspace and scratch behind them; what lay there before
does not matter. Lengths on the host are planned there; for lengths on a GPU a kernel plans, so that
nothing waits and a graph can hold the call, but for few kinds of calls that copy them back. What a
kind of call needs is asked once and kept by its sizes and options, so that a call costs little more
than its plan and its run. Messages of the library are passed on with the names of the function and
of its arguments.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import threading
from typing import Any, Callable, NamedTuple

from .. import _frameworks
from .._binding import Plan, Sizes, compiling
from .._library import BusyError, torch
from . import _memory
from ._base import Operators, bind

Tensor = Any

_COMMON = ("num_qo_heads num_kv_heads head_dim_vo kv_layout q_data_type kv_data_type o_data_type "
           "causal window_left sm_scale max_sequence_kv plan_on_device ")
_RUN = "sinks q_scale k_scale v_scale o_scale return_lse_base_on_e out lse"
_PAGES = "q k_cache v_cache block_tables v_block_tables draft_mask " + _RUN
_ROWS_PAGES = "q k_cache v_cache paged_kv_indices block_tables v_block_tables draft_mask " + _RUN
_PACKED = "q k v " + _RUN
_LATENT = "q_nope q_pe ckv_cache kpe_cache block_tables custom_mask sinks q_scale o_scale out lse"
_OPTIONS = ("qo_indptr o_indptr seq_lens seq_lens_q max_num_rows max_token_per_sequence "
            "chunked_attention_size logits_soft_cap pos_encoding_mode")
_LENGTHS = ("qo_indptr", "kv_indptr", "v_indptr", "o_indptr", "seq_lens", "seq_lens_q",
            "kv_len_arr", "paged_kv_indptr")
# Bounds change from call to call and sizes hardly depend on them; what is kept may be too small.
_BOUNDS = ("max_num_rows", "max_token_per_sequence", "max_sequence_kv", "sm_scale")
# From so many rows on, a plan on the host, with its choice of kernels, wins back its wait.
MANY_ROWS = 2048


class _Calls(NamedTuple):
    """An operator, the arguments of its run, and which values of a plan are lengths and which, with
    the number of requests, decide what it needs."""

    bound: Operators
    run_names: tuple[str, ...]
    lengths: tuple[int, ...]
    static: Callable


def _calls(name: str, plan_names: str, run_names: str) -> _Calls:
    bound = bind(name, plan_names, run_names)
    indices = {n: i for i, n in enumerate(bound.names)}
    return _Calls(bound, tuple(run_names.split()),
                  tuple(i for n, i in indices.items() if n in _LENGTHS),
                  operator.itemgetter(*(i for n, i in indices.items()
                                        if n not in _LENGTHS and n not in _BOUNDS)))


OPERATORS: dict[str, _Calls] = {
    "batch_decode": _calls("batch_decode", _COMMON + "head_dim page_size seq_lens q_len_per_req",
                           _PAGES),
    "batch_prefill_paged": _calls("batch_prefill_paged", _COMMON + "head_dim_qk page_size "
                                  "paged_kv_indptr " + _OPTIONS, _ROWS_PAGES),
    "batch_prefill_ragged": _calls("batch_prefill_ragged", _COMMON + "head_dim_qk kv_indptr "
                                   "v_indptr " + _OPTIONS, _PACKED),
    "batch_mla": _calls("batch_mla", "qo_indptr kv_len_arr num_heads head_dim_ckv head_dim_kpe "
                        "page_size q_data_type kv_data_type o_data_type causal sm_scale "
                        "use_custom_mask max_num_rows max_sequence_kv plan_on_device", _LATENT)}


# ---- memory ----------------------------------------------------------------------------------


class Own(NamedTuple):
    """In the place of a workspace: memory for this call, where the tensor lies."""

    like: Tensor


class _Staging(NamedTuple):
    """Pinned memory of a plan, and the event behind its copy."""

    buffer: Tensor
    copied: Any


class _Ring:
    """Staging of one GPU: an entry is used again when the copy out of it has ended."""

    entries: dict[int, list] = {}
    lock = threading.Lock()
    LENGTH = 32

    @classmethod
    def take(cls, index: int, pinned: int) -> _Staging:
        with cls.lock:
            entries = cls.entries.setdefault(index, [])
            for i, entry in enumerate(entries):
                if entry.copied.query() and entry.buffer.shape[0] >= pinned:
                    return entries.pop(i)
            oldest = entries.pop(0) if len(entries) >= cls.LENGTH else None
        if oldest is not None:
            oldest.copied.synchronize()
        return _Staging(_memory.pinned(max(pinned, 1 << 16)), torch.cuda.Event())

    @classmethod
    def give(cls, index: int, entry: _Staging) -> None:
        entry.copied.record(torch.cuda.current_stream(index))
        cls.entries[index].append(entry)


_SPACE = struct.Struct("=QqQqQqii")  # bolide_workspace, and a device
_write, _NO_MEMORY = _SPACE.pack_into, (0, 0)


def where_of(gpu: int) -> tuple[int, int]:
    """A device of DLPack: a GPU, or the host for -1."""
    return (1, 0) if gpu < 0 else (2, gpu)


class _Place:
    """A workspace and the memory of a plan, written over by each call of one thread."""

    __slots__ = ("sizes", "lists", "need", "plan", "address", "holds", "_bytes", "_view")

    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        self.lists = (sizes.device_int + 255) // 256 * 256
        self.need = self.lists + sizes.device + 16
        self.plan = Plan(sizes.plan)
        self._bytes = bytearray(_SPACE.size)
        self._view = (ctypes.c_char * _SPACE.size).from_buffer(self._bytes)
        self.address = ctypes.addressof(self._view)
        self.holds: Any = None  # address and size, without pinned memory

    def put(self, at: int, size: int, where: tuple[int, int], pinned: Any = None) -> None:
        """The plan's lists at the beginning of the memory, scratch behind."""
        lists = self.lists
        self.holds = (at, size) if pinned is None else None
        host = _NO_MEMORY if pinned is None else (pinned.data_ptr(), pinned.shape[0])
        _write(self._bytes, 0, at + lists, size - lists, at, lists, *host, *where)


class _Call(NamedTuple):
    """A call as the library takes it: the workspace, the GPU or -1, where to allocate one, and the
    values of plan and run."""

    name: str
    bound: Operators
    at: int
    size: int
    gpu: int
    own: Any
    plan: list
    run: list


class Record(NamedTuple):
    """A call that was made, for who makes it again (:mod:`bolide._wrappers.remembered`)."""

    call: _Call
    place: _Place
    workspace: Any
    out: Any
    lse: Any
    rows: Any


class _Kept(threading.local):
    """What a thread keeps: places by kind of call, recipes, and the calls made while one is
    made, with what these derived from arguments."""

    def __init__(self) -> None:
        self.places: dict[tuple, _Place] = {}
        self.recipes: dict[tuple, Any] = {}
        self.records: list | None = None
        self.derived: list = []


kept = _Kept()


def looked_at() -> None:
    """Says that a function looks at values that no derived tensor has: no recipe may go past it."""
    if kept.records is not None:
        kept.records.append(None)


def derived(function: Any, *arguments: Any) -> Any:
    """What a function makes of its arguments and of nothing else: a recipe makes it again."""
    made = function(*arguments)
    if kept.records is not None and made is not None:
        kept.derived.append((made, function, arguments))
    return made


_MOST_KINDS = 512


def _memory_of(name: str, buffer: Tensor) -> tuple[int, int, int]:
    """Address and bytes of a workspace, from a multiple of 16 on, and the GPU it lies on, else
    -1."""
    if buffer is None:
        raise ValueError(f"{name}: workspace_buffer: expected a tensor; got None")
    if _frameworks.is_torch(buffer):
        at, size = buffer.data_ptr(), buffer.numel() * buffer.element_size()
        gpu = buffer.get_device() if buffer.is_cuda else -1
        dense = buffer.is_contiguous()
    else:
        at, size = buffer.__array_interface__["data"][0], buffer.nbytes
        gpu, dense = -1, buffer.flags.c_contiguous
    if not dense:
        raise ValueError(f"{name}: workspace_buffer: expected contiguous memory; got strides")
    skip = -at % 16
    return at + skip, max(size - skip, 0), gpu


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
    if compiling() or _frameworks.dispatches(run["out"]):
        _trace(name, op, workspace_buffer, plan, run, spelled)
    else:
        _eager(name, op, workspace_buffer, plan, run, spelled)


def _eager(name: str, op: str, workspace_buffer: Any, plan: dict[str, Any], run: dict[str, Any],
           spelled: dict[str, str]) -> None:
    calls = OPERATORS[op]
    own = workspace_buffer.like if type(workspace_buffer) is Own else None
    if own is None:
        at, size, gpu = _memory_of(name, workspace_buffer)
    else:
        at, size, gpu = 0, 0, own.get_device() if _memory.on_gpu(own) else -1
    if gpu >= 0:
        plan["plan_on_device"] = _planned_there(name, plan, run, gpu)
    if op == "batch_mla" and run.get("v_cache") is not None and not _memory.same_place(
            run["v_cache"], run["ckv_cache"]):
        raise ValueError(f"{name}: v_cache: expected the latent part of k_cache, the same memory; "
                         "got another")
    values = list(map(plan.get, calls.bound.names))
    call = _Call(name, calls.bound, at, size, gpu, own, values,
                 list(map(run.get, calls.run_names)))
    key = (op, gpu, calls.static(values),
           *[None if values[i] is None else values[i].shape for i in calls.lengths])
    place = kept.places.get(key)
    try:
        if place is None or not _made(call, place, True):
            place = _asked(call, key)
            _made(call, place, False)
    except BusyError:
        raise
    except (ValueError, NotImplementedError, RuntimeError) as error:
        renamed = _renamed(error, name, spelled)
        if renamed is error:
            raise
        raise renamed from None
    if kept.records is not None:
        kept.records.append(Record(call, place, workspace_buffer, run.get("out"), run.get("lse"),
                                   plan.get("max_num_rows")))


def _asked(call: _Call, key: tuple) -> _Place:
    """What the library says that the call needs."""
    place = _Place(Sizes(0, 0, 0, 8))
    place.put(0, 0, where_of(call.gpu))
    sizes = call.bound.sizes(*call.plan, place.address)
    if len(kept.places) >= _MOST_KINDS:
        kept.places.clear()
    kept.places[key] = place = _Place(sizes)
    return place


def workspace_bytes(op: str, plan: dict[str, Any], gpu: int) -> int:
    """What a call needs for a plan of its arguments, on a GPU or, with -1, on the CPU."""
    bound = OPERATORS[op].bound
    plan = {**plan, "plan_on_device": gpu >= 0}
    place = _Place(Sizes(0, 0, 0, 8))
    place.put(0, 0, where_of(gpu))
    return _Place(bound.sizes(*map(plan.get, bound.names), place.address)).need


def _made(call: _Call, place: _Place, again: bool) -> bool:
    """Makes the call. False, if what an earlier one of its kind needed does not fit this one."""
    at, size, need = call.at, call.size, place.need
    if call.own is not None:
        raw = _frameworks.empty(call.own, (need,), "uint8")  # kept until the end of the call
        at, size, _ = _memory_of(call.name, raw)
    if size < need - 16:
        if again:
            return False
        raise ValueError(f"{call.name}: workspace_buffer: expected at least {need} bytes; got "
                         f"{call.size} bytes")
    bound, staging, stream = call.bound, None, None
    if call.gpu >= 0:
        stream = _frameworks.current_stream(call.gpu)
        if place.sizes.pinned:
            staging = _Ring.take(call.gpu, place.sizes.pinned)
            place.plan = Plan(place.sizes.plan)  # a plan of before would look into its own staging
    place.put(at, size, where_of(call.gpu), staging and staging.buffer)
    try:
        bound.plan(*call.plan, place.address, place.plan.address, stream)
    except ValueError:
        if again:
            return False
        raise
    finally:
        if staging is not None:
            _Ring.give(call.gpu, staging)
    bound.run(*call.run, place.address, place.plan.address)
    return True


def _planned_there(name: str, plan: dict[str, Any], run: dict[str, Any], gpu: int) -> bool:
    """Whether a plan is made on the GPU: as soon as one length lies there, and then the others
    follow it. Of many rows a graph alone asks for that."""
    arrays = {n: plan[n] for n in _LENGTHS if plan.get(n) is not None}
    there = [_memory.on_gpu(t) for t in arrays.values()]
    masked = plan.get("use_custom_mask")
    if all(there) and not masked and (plan.get("max_num_rows") or 0) < MANY_ROWS:
        return True
    device = torch.device("cuda", gpu)
    capturing = _memory.capturing(device)
    if capturing and not all(there):
        raise RuntimeError(
            f"{name}: lengths: expected all on the GPU while a graph is captured, since the host "
            "would plan for the values it sees")
    if not any(there) or masked or not capturing and _long_and_met(plan, run):
        return False
    plan.update({n: _memory.to_device(t, device) for n, t in arrays.items()})
    return True


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
