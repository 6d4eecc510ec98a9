# SPDX-License-Identifier: Apache-2.0
"""The one way from Python into the library: ``operator(name, arguments, phase)``.

Everything else in the package is FlashInfer's names in front of this. The interface inside the
package:

``operator("rmsnorm", "input weight out eps")``
    gives a callable of those arguments, positional, in that order; arguments that are not named
    keep their defaults. Per kind of row a value is

    - a tensor: of torch, or of NumPy on the CPU; None where the row is optional;
    - an output: a tensor; None to have it allocated (left out if it is optional); True to have it
      allocated although it is optional. What was allocated is returned: nothing, one tensor, or a
      tuple of them in the order of the arguments. Outputs of planned runs are allocated by the
      caller (``_frameworks.empty``) wherever torch may be tracing or NumPy may come in;
    - a number or a tensor (``k_scale``): either; one argument for both fields;
    - an enum: its name or its index; a dtype: any framework's dtype, ours, or a name;
    - a list of tensors or of integers: a list or tuple;
    - a workspace: ``Workspace.address``; a plan: ``Plan.address``;
    - ``stream``, which is no row: the address of a stream, for calls whose tensors all lie on the
      host (a plan on host lengths). Otherwise the framework's current stream is taken;
    - ``k_cache|v_cache``, two rows by one tensor that holds both on its second axis;
    - ``-``, a value that nothing reads: a hint.

    A call with one of the last two is for eager code alone.

``operator("batch_decode", names, phase="workspace")``
    gives a callable of the *plan's* arguments (of run's for an operator without plan) that returns
    ``Sizes(device, device_int, pinned, plan)`` in bytes.
``operator("batch_decode", names, phase="plan")`` and ``phase="run"`` (the default)
    plan and run. The device of a call is that of its workspace, else of its first device tensor.

Errors: ValueError, NotImplementedError, RuntimeError with the library's sentence; BusyError (a
RuntimeError) where a plan found every staging slot in use.

While torch.compile traces, a call becomes a custom operator of torch (:mod:`bolide._compile`).
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, NamedTuple

from . import _frameworks, _library, _rows
from ._library import torch

_direct: set[type] = set()
if _library.torch_is_direct:
    _direct |= {torch.Tensor, torch.nn.Parameter}


def _never() -> bool:
    return False


# Dynamo asks the first, and never looks at the second: how many modes of torch see each operator,
# such as those that trace, count or fake. For them a call has to be one of torch's operators.
tracing = torch.compiler.is_dynamo_compiling if torch is not None else _never
modes = torch._C._len_torch_dispatch_stack if torch is not None else _never
_is_compiling = torch.compiler.is_compiling if torch is not None else _never


def compiling() -> bool:
    """Whether calls have to be operators of torch: while it compiles, or a mode looks on."""
    return _is_compiling() or modes() > 0


class Sizes(NamedTuple):
    """Bytes that an operator needs for the arguments at hand."""

    device: int
    device_int: int
    pinned: int
    plan: int


class Operator:
    """What is known of a bound operator; see the head of this module."""

    def __init__(self, name: str, names: str, phase: str):
        self.name = name
        self.phase = phase
        self.names = tuple(names.split())
        plan = phase == "plan" or (phase == "workspace" and _rows.planned(name))
        self.table = _rows.rows(name, "plan" if plan else "run")
        by_name = {row.name: row for row in self.table}
        self.rows = tuple(by_name.get(n.partition("|")[0]) for n in self.names)
        self.outs = tuple((i, r.optional) for i, r in enumerate(self.rows)
                          if r is not None and r.kind == "out")
        self.lead = next((i for i, r in enumerate(self.rows) if r and r.is_tensor), 0)
        self.call = _library.bind(name, phase, names)
        self.custom = None
        if torch is not None and phase == "run" and not {"|", "-"} & set(names):
            from . import _compile

            _compile.define(self)

    def given(self, values) -> dict[str, Any]:
        """The arguments by name."""
        return dict(zip(self.names, values))


def operator(name: str, names: str, phase: str = "run") -> Callable:
    """Binds an operator; see the head of this module."""
    op = Operator(name, names, phase)
    raw, lead = op.call, op.lead

    def call(*values: Any) -> Any:
        if tracing() or modes() and op.custom is not None:
            return _trace(op, values)
        if type(values[lead]) in _direct:
            try:
                out = raw(*values)
            except RuntimeError as error:
                raise _said(op, values, error) from None
            return out if out is None or type(out) in _direct else _several(op, out)
        if compiling() or op.custom is not None and _frameworks.dispatches(values[lead]):
            return _trace(op, values)
        return _indirect(op, values)

    call.__name__ = call.__qualname__ = call.name = name
    call.raw = raw
    return call


def _said(op: Operator, values, error: RuntimeError) -> Exception:
    """The library's own error, or that a tensor is of a kind that has no memory here."""
    for name, value in zip(op.names, values):
        if _frameworks.is_torch(value):
            what = _frameworks.unlike(value)
            if what is not None:
                return ValueError(f"{op.name}: {name.partition('|')[0]}: {what}")
    return error


def eager(op: Operator, values) -> Any:
    """The call, whoever traces."""
    if type(values[op.lead]) in _direct:
        out = op.call(*values)
        return out if out is None or type(out) in _direct else _several(op, out)
    return _indirect(op, values)


def _several(op: Operator, out):
    if op.phase == "workspace":
        return Sizes(*out)
    # Older versions of tvm-ffi give the elements of an array in a tensor type of their own.
    return tuple(t if type(t) in _direct else torch.from_dlpack(t) for t in out)


def _check_tensors(op: Operator, values) -> None:
    """Values that are no tensors where tensors belong; for tensors the library says it."""
    for name, row, value in zip(op.names, op.rows, values):
        if (row is not None and row.kind in ("in", "inout") and value is not None
                and not _frameworks.is_tensor(value)):
            raise ValueError(f"{op.name}: {name.partition('|')[0]}: value: expected a tensor; got "
                             f"{type(value).__name__}")


def allocate(op: Operator, values) -> tuple[list, list]:
    """Values with every wanted output in place, and those that were allocated."""
    values = list(values)
    wanted = [i for i, optional in op.outs
              if values[i] is True or (values[i] is None and not optional)]
    if not wanted:
        return values, []
    given = op.given(values)
    names = _rows.bind_names(op.table, given, lambda t: t.shape)
    like = [v for v in values if _frameworks.is_tensor(v)][0]
    made = []
    for i in wanted:
        found = _rows.output(op.rows[i], op.table, given, names, _frameworks.dtype_bit)
        if found is None:
            continue
        values[i] = _frameworks.empty(like, *found)
        made.append(values[i])
    return values, made


def _result(made: list):
    return None if not made else made[0] if len(made) == 1 else tuple(made)


def _indirect(op: Operator, values):
    """A call with tensors that the binding does not take as they are."""
    made: list = []
    if op.phase != "workspace":
        _check_tensors(op, values)
        values, made = allocate(op, values)
    packed = []
    for name, row, value in zip(op.names, op.rows, values):
        try:
            packed.append(_frameworks.pack(value, row is not None and row.kind in ("out", "inout")))
        except (ValueError, KeyError, RuntimeError) as error:
            what = _frameworks.unlike(value) if _frameworks.is_torch(value) else None
            raise ValueError(f"{op.name}: {name.partition('|')[0]}: {what or error}") from None
    out = op.call(*packed)
    return Sizes(*out) if op.phase == "workspace" else _result(made)


def _trace(op: Operator, values):
    from . import _compile

    return _compile.trace(op, values)


# ---- workspaces and plans --------------------------------------------------------------------


class _WorkspaceStruct(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p), ("device_bytes", ctypes.c_int64),
        ("device_int", ctypes.c_void_p), ("device_int_bytes", ctypes.c_int64),
        ("pinned", ctypes.c_void_p), ("pinned_bytes", ctypes.c_int64),
        ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32),
    ]


def _place(buffer) -> tuple[int | None, int]:
    """Address and bytes of a buffer of either framework."""
    if buffer is None:
        return None, 0
    if _frameworks.is_torch(buffer):
        return buffer.data_ptr(), buffer.numel() * buffer.element_size()
    return buffer.__array_interface__["data"][0], buffer.nbytes


class Workspace:
    """The caller's three buffers as the library takes them; it keeps them alive."""

    __slots__ = ("buffers", "device", "_struct", "address")

    def __init__(self, device, device_int=None, pinned=None):
        self.buffers = (device, device_int, pinned)
        parts = [x for b in self.buffers for x in _place(b)]
        cuda = _frameworks.is_torch(device) and device.is_cuda
        self.device = device.device if cuda else None
        where = (2, device.device.index) if cuda else (1, 0)
        self._struct = _WorkspaceStruct(*parts, *where)
        self.address = ctypes.addressof(self._struct)

    def __reduce__(self):  # for copies, whose addresses are others
        return _workspace_again, self.buffers

    @property
    def stream(self) -> int | None:
        """The current stream of the workspace's device, for plans on host lengths."""
        return _frameworks.current_stream(self._struct.device_index) if self.device else None


def _workspace_again(device, device_int, pinned):
    """A copy of a workspace: a copy of pinned memory is pinned, too."""
    if pinned is not None and torch.cuda.is_available() and not pinned.is_pinned():
        pinned = pinned.pin_memory()
    return Workspace(device, device_int, pinned)


class Plan:
    """The memory of a plan, on the host. It may be copied: ``Plan.from_bytes(bytes(plan))``."""

    __slots__ = ("_memory", "address", "size")

    def __init__(self, size: int):
        self._memory = (ctypes.c_int64 * ((size + 7) // 8))()
        self.size = size
        self._memory[0] = size
        self.address = ctypes.addressof(self._memory)

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def __reduce__(self):
        return Plan.from_bytes, (bytes(self),)

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        plan = cls(len(data))
        ctypes.memmove(plan.address, data, len(data))
        return plan


@contextlib.contextmanager
def batch_invariant(enabled: bool = True):
    """Within it, on this thread, a request gives the same bits alone and in any batch."""
    before = _library.set_batch_invariant(enabled)
    try:
        yield
    finally:
        _library.set_batch_invariant(before)
