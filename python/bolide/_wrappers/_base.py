# SPDX-License-Identifier: Apache-2.0
"""What the stateful wrappers share: memory, making a plan, and options that change after it.

A plan of the library fixes mask, window, cap and positions. FlashInfer reads these at run from
attributes that ``forward`` (and some engines) set after the plan, so a run compares them with what
was planned and plans again where they differ, from lengths that the wrapper keeps on the host. What
a ``forward`` asked for last is planned at once the next time; so only the first one of a kind plans
twice, and a graph can be captured after one call of warm-up. ``sm_scale`` is no part of the plan:
it travels with the scale of q, and changing it costs nothing.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Callable, NamedTuple, Optional

from .. import _dtypes, _frameworks
from .._arguments import check_backend, split_paged
from .._binding import Plan, Workspace, _direct, modes, operator, tracing
from . import _memory, variant

Tensor = Any
INT_WORKSPACE_BYTES = 8 * 1024 * 1024


class Operators(NamedTuple):
    """The calls of a planned operator and the arguments of its plan. run_joined has keys and values
    in one tensor."""

    names: tuple[str, ...]
    sizes: Callable
    plan: Callable
    run: Callable
    run_joined: Callable


def bind(name: str, plan_names: str, run_names: str) -> Operators:
    """Binds a planned operator."""
    return Operators(
        tuple(plan_names.split()),
        operator(name, plan_names + " workspace", "workspace"),
        operator(name, plan_names + " workspace plan stream", "plan"),
        operator(name, run_names + " workspace plan"),
        operator(name, run_names.replace("k_cache v_cache", "k_cache|v_cache") + " workspace plan"))


def refuse(name: str, **arguments: Any) -> None:
    """Arguments that no version of the library will have: refused where given."""
    for argument, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{name}: {argument}: not supported")


class Options(NamedTuple):
    """What a plan fixes and FlashInfer reads at run."""

    causal: bool
    pos_encoding_mode: str
    window_left: int
    logits_soft_cap: float
    rope_scale: float
    rope_theta: float


def options_of(causal: Any, pos_encoding_mode: str, window_left: int,
               logits_soft_cap: Optional[float], rope_scale: Optional[float],
               rope_theta: Optional[float]) -> Options:
    """Options with FlashInfer's meaning of None."""
    return Options(bool(causal), pos_encoding_mode, window_left, logits_soft_cap or 0.0,
                   1.0 if rope_scale is None else rope_scale,
                   1e4 if rope_theta is None else rope_theta)


class PlanModule:
    """FlashInfer's ``_cached_module``, for engines that plan past the wrapper's own ``plan``."""

    def __init__(self, wrapper: Any):
        self._wrapper = weakref.ref(wrapper)

    def __reduce__(self):
        return PlanModule, (self._wrapper(),)

    def plan(self, *args: Any) -> Plan:
        """Plans from host lengths, in the order of FlashInfer's internal call."""
        return self._wrapper()._plan_internal(*args)


def _check_workspace(kind: str, name: str, buffer: Any) -> None:
    """A workspace is written from its first byte to its last."""
    if not _frameworks.is_tensor(buffer):
        raise ValueError(f"{kind}: {name}: expected a tensor; got {type(buffer).__name__}")
    if not _memory.is_dense(buffer):
        raise ValueError(f"{kind}: {name}: expected contiguous memory; got strides")


class Planned:
    """Base of the wrappers; see the head of this module."""

    _operators: Operators
    _backends: tuple[str, ...] = ("auto",)

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str, use_cuda_graph: bool,
                 backend: str, jit_args: Any = None):
        check_backend(type(self).__name__, backend, self._backends)
        self._kv_layout = kv_layout
        self._use_cuda_graph = use_cuda_graph
        self._backend = backend
        self._variant = variant.made(
            type(self).__name__, jit_args, _memory.on_gpu(float_workspace_buffer))
        self._variant_address = None if self._variant is None else self._variant.address
        self._cached_module: Optional[PlanModule] = None
        self._plan_memory: Optional[Plan] = None
        self._plan_info: Optional[Plan] = None
        self._arguments: dict[str, Any] = {}
        self._planned: Optional[Options] = None
        self._attributes_planned: Optional[tuple] = None
        self._given: Optional[tuple] = None
        self._attributes_given: Optional[tuple] = None
        self._forwarded: Optional[Options] = None
        self._outgrown: list = []
        self._lent: dict[str, tuple[Tensor, int]] = {}
        self._pos_encoding_mode = "NONE"
        self._causal = False
        self._window_left = -1
        self._logits_soft_cap: Optional[float] = 0.0
        self._sm_scale: Optional[float] = None
        self._rope_scale: Optional[float] = None
        self._rope_theta: Optional[float] = None
        self._default_scale = 1.0
        self._kept_slopes: Optional[Tensor] = None
        self._d_vo = 0
        self._o_bit = 0
        _check_workspace(type(self).__name__, "float_workspace_buffer", float_workspace_buffer)
        self.device = _memory.device_of(float_workspace_buffer)
        self.reset_workspace_buffer(
            float_workspace_buffer,
            _frameworks.empty(float_workspace_buffer, (INT_WORKSPACE_BYTES,), "uint8"))

    # ---- memory -----------------------------------------------------------------------------

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor,
                               int_workspace_buffer: Tensor) -> None:
        """Takes other workspaces, on the same device and aligned to 16 bytes. A plan has to be made
        again behind it.

        :param float_workspace_buffer: uint8, at least the first size of ``workspace_size``.
        :param int_workspace_buffer: uint8, at least its second size.
        """
        for name, buffer in (("float_workspace_buffer", float_workspace_buffer),
                             ("int_workspace_buffer", int_workspace_buffer)):
            _check_workspace(type(self).__name__, name, buffer)
            if _memory.address_of(buffer) % 16:
                raise ValueError(f"{type(self).__name__}: {name}: alignment: expected 16 bytes; got "
                                 f"{_memory.address_of(buffer) % 16} bytes beyond")
        self._float_workspace_buffer = float_workspace_buffer
        self._int_workspace_buffer = int_workspace_buffer
        self._pin_memory_int_workspace_buffer = None
        self._scratch: Optional[Tensor] = None
        if _memory.on_gpu(float_workspace_buffer):
            self._pin_memory_int_workspace_buffer = _memory.pinned(int_workspace_buffer.shape[0])
        self._plan_info = None
        self._set_workspace()

    def _set_workspace(self) -> None:
        scratch = self._float_workspace_buffer if self._scratch is None else self._scratch
        self._workspace = Workspace(scratch, self._int_workspace_buffer,
                                    self._pin_memory_int_workspace_buffer)

    def _reserve(self, values: list) -> tuple[int, bool]:
        """Room for a plan in the buffers that the wrapper itself has brought: the bytes of the
        plan, and whether a buffer had to grow. What was outgrown stays alive, since a captured
        graph may read it. The same where the caller's float workspace, which programs size for
        FlashInfer's plans, is too small for one of ours: the wrapper brings scratch of its own."""
        sizes = self._operators.sizes(*values, self._workspace.address)
        grown = False
        buffer = self._float_workspace_buffer
        if sizes.device > (buffer if self._scratch is None else self._scratch).nbytes:
            self._outgrown.append(self._scratch)
            self._scratch = _frameworks.empty(buffer, (sizes.device,), "uint8")
            grown = True
        if sizes.device_int > self._int_workspace_buffer.shape[0]:
            self._outgrown.append(self._int_workspace_buffer)
            self._int_workspace_buffer = _frameworks.empty(
                self._float_workspace_buffer, (sizes.device_int,), "uint8")
            grown = True
        host = self._pin_memory_int_workspace_buffer
        if host is not None and sizes.pinned > host.shape[0]:
            self._outgrown.append(host)
            self._pin_memory_int_workspace_buffer = _memory.pinned(sizes.pinned)
            grown = True
        if grown:
            self._set_workspace()
        return sizes.plan, grown

    def _tables(self, block_tables: Any, indices: Any) -> Any:
        """The block tables of a plan, where they are what is read: with the backends of FlashInfer
        that read them, or without a list of pages. Else both name the same pages."""
        if indices is None or self._backend in ("trtllm-gen", "cudnn"):
            return block_tables
        return None

    # ---- plans ------------------------------------------------------------------------------

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """Whether the wrapper keeps its index arrays in the caller's buffers."""
        return self._use_cuda_graph

    def _attributes(self) -> tuple:
        """Those that options are read from."""
        return (self._causal, self._pos_encoding_mode, self._window_left, self._logits_soft_cap,
                self._rope_scale, self._rope_theta)

    def _options(self) -> Options:
        """The options in the attributes."""
        return options_of(self._causal, self._pos_encoding_mode, self._window_left,
                          self._logits_soft_cap, self._rope_scale, self._rope_theta)

    def _set_options(self, options: Options) -> None:
        self._causal = options.causal
        self._pos_encoding_mode = options.pos_encoding_mode
        self._window_left = options.window_left
        self._logits_soft_cap = options.logits_soft_cap
        self._rope_scale = options.rope_scale
        self._rope_theta = options.rope_theta

    def _sizes(self, arguments: dict[str, Any]) -> Any:
        values = [arguments.get(name) for name in self._operators.names]
        return self._operators.sizes(*values, self._workspace.address)

    def _make_plan(self, arguments: dict[str, Any], options: Options) -> Plan:
        """Plans, and on success keeps what was planned."""
        arguments = {**arguments, **options._asdict(), "kv_layout": self._kv_layout,
                     "sm_scale": 1.0, "variant": self._variant_address}
        if self._variant is not None:
            self._variant.check(arguments)
        memory = self._plan_with(arguments)
        self._planned, self._attributes_planned, self._given = options, None, None
        if self._cached_module is None:
            self._cached_module = PlanModule(self)
        return memory

    def _plan_with(self, arguments: dict[str, Any]) -> Plan:
        """The plan of complete arguments."""
        values = list(map(arguments.get, self._operators.names))
        if self._plan_memory is None:
            self._plan_memory = Plan(self._reserve(values)[0])
        memory = self._plan_memory
        try:
            _memory.planned(self._operators.plan, values, self._workspace, memory)
        except ValueError:
            if not self._reserve(values)[1]:
                raise
            _memory.planned(self._operators.plan, values, self._workspace, memory)
        self._arguments, self._plan_info = arguments, memory
        self._lent = {}
        return memory

    def _note_given(self, given: tuple) -> None:
        """Behind a plan: what it was given besides the lengths, with which the next may be made."""
        if self._variant is None and self._attributes_planned is not None:
            self._given, self._attributes_given = given, self._attributes_planned

    def _is_as_before(self, given: tuple) -> bool:
        """Whether a plan differs from the last one in its lengths alone."""
        return self._given == given and self._forwarded is None

    def _plan_lengths(self, lengths: dict[str, Any]) -> dict[str, Any]:
        """The last plan with other lengths: its arguments."""
        arguments = {**self._arguments, **lengths}
        self._plan_with(arguments)
        self._set_options(self._planned)
        self._attributes_planned = self._attributes_given
        return arguments

    def _make_first_plan(self, arguments: dict[str, Any], options: Options) -> None:
        """The plan of what plan() was given, or of what forward asked for last."""
        self._make_plan(arguments, options if self._forwarded is None else self._forwarded)
        self._set_options(options)
        self._note_attributes()

    def _note_attributes(self) -> None:
        """So that a run need not build the options to see that they are those of the plan."""
        same = self._planned is not None and self._options() == self._planned
        self._attributes_planned = self._attributes() if same else None

    def _plan_again(self, options: Options) -> None:
        """Options have changed since the plan."""
        if self._plan_info is None:
            raise RuntimeError(f"{type(self).__name__}: plan() must come before run()")
        if _memory.capturing(self.device):
            changed = [n for n, a, b in zip(Options._fields, options, self._planned) if a != b]
            raise RuntimeError(
                f"{type(self).__name__}: {', '.join(changed)}: not as planned, and no plan can be "
                "made while a graph is captured; call it once before, or give them to plan()")
        self._make_plan(self._arguments, options)
        self._note_attributes()

    def _keep(self, plan: dict[str, Any], sm_scale: Optional[float], d_qk: int, d_vo: int) -> None:
        """Attributes behind a successful plan, under FlashInfer's names."""
        self._sm_scale = sm_scale
        self._default_scale = 1.0 / math.sqrt(d_qk)
        self._d_vo = d_vo
        q, kv, o = (plan[n] for n in ("q_data_type", "kv_data_type", "o_data_type"))
        self._o_bit = o
        self._cached_q_data_type = self._framework_dtype(q)
        self._cached_kv_data_type = self._framework_dtype(kv)
        self._cached_o_data_type = self._framework_dtype(o)
        self._num_qo_heads = plan["num_qo_heads"]
        self._num_kv_heads = plan["num_kv_heads"]

    def _framework_dtype(self, bit: int) -> Any:
        if _frameworks.is_torch(self._float_workspace_buffer):
            return _frameworks.torch_dtype(_dtypes.BY_BIT[bit])
        return _frameworks.numpy_dtype(_dtypes.BY_BIT[bit])

    # ---- runs -------------------------------------------------------------------------------

    def _forward(self, causal: bool, pos_encoding_mode: str, window_left: int,
                 logits_soft_cap: Optional[float], sm_scale: Optional[float],
                 rope_scale: Optional[float], rope_theta: Optional[float]) -> None:
        """The options of FlashInfer's older forward, which replace those of the plan."""
        self._forwarded = options_of(causal, pos_encoding_mode, window_left, logits_soft_cap,
                                     rope_scale, rope_theta)
        self._set_options(self._forwarded)
        self._sm_scale = sm_scale

    def _lend(self, name: str, buffer: Any) -> None:
        """An index array of a plan goes out of the wrapper. In graph mode it is the caller's own."""
        if self._plan_info is None or self._use_cuda_graph or not _frameworks.is_torch(buffer):
            return
        self._lent[name] = buffer, buffer._version
        self._attributes_planned = None

    def _follow_buffers(self) -> None:
        """FlashInfer's kernels read the index arrays anew at each run, and one engine corrects them
        in place behind a plan. Here the plan has them, so it is made again, which waits for the
        GPU."""
        changed = {name: buffer for name, (buffer, version) in self._lent.items()
                   if buffer._version != version}
        if not changed:
            return
        if _memory.capturing(self.device):
            raise RuntimeError(
                f"{type(self).__name__}: {', '.join(changed)}: written behind the plan, and no plan "
                "can be made while a graph is captured")
        arguments = dict(self._arguments)
        for name, values in zip(changed, _memory.to_host(*changed.values())):
            argument = name[1:].removesuffix("_buf")
            if argument not in arguments:
                argument = argument.removeprefix("paged_kv_")
            if arguments.get(argument) is None:
                raise RuntimeError(f"{type(self).__name__}: {name}: written behind a plan that took "
                                   "its lengths from elsewhere; plan again")
            arguments[argument] = values
        lent = {name: (buffer, buffer._version) for name, (buffer, _) in self._lent.items()}
        self._make_plan(arguments, self._planned)
        self._lent = lent

    def _before_run(self) -> None:
        if self._attributes() == self._attributes_planned and self._plan_info is not None:
            return
        if self._lent:
            self._follow_buffers()
        options = self._options()
        if options != self._planned or self._plan_info is None:
            if options != self._forwarded:
                self._forwarded = None
            self._plan_again(options)

    def _scales(self, q_scale: Any, k_scale: Any) -> tuple[Any, Any]:
        """The scales of q and k, with sm_scale in one of them."""
        sm = self._default_scale if self._sm_scale is None else self._sm_scale
        if self._variant is not None and self._variant.sm_scale is not None:
            sm = self._variant.sm_scale
        if q_scale is None:
            return sm, k_scale
        if k_scale is None and _frameworks.is_tensor(q_scale):
            return q_scale, sm
        if _frameworks.is_tensor(q_scale) and not _frameworks.is_tensor(k_scale):
            return q_scale, k_scale * sm
        return q_scale * sm, k_scale

    def _outputs(self, q: Tensor, out: Any, lse: Any, return_lse: bool) -> tuple[Any, Any]:
        if out is None:
            out = _frameworks.empty(q, (q.shape[0], q.shape[1], self._d_vo), self._o_bit)
        if lse is None and return_lse:
            lse = _frameworks.empty(q, (q.shape[0], q.shape[1]), "float32")
        return out, lse

    def _run(self, q: Tensor, paged_kv_cache: Any, *more: Any) -> None:
        """The call, with keys and values apart or in one tensor."""
        if type(paged_kv_cache) is tuple and len(paged_kv_cache) == 2 and (
                paged_kv_cache[0].ndim == 4):
            self._operators.run(q, *paged_kv_cache, *more)
        elif type(paged_kv_cache) in _direct and paged_kv_cache.ndim == 5 and not (
                tracing() or modes()):
            self._operators.run_joined(q, paged_kv_cache, *more)
        else:
            self._operators.run(q, *split_paged(paged_kv_cache, self._kv_layout), *more)

    @property
    def _alibi_slopes(self) -> Tensor:
        """For variants that name them: ``[h_q]`` float32."""
        from ..utils import get_alibi_slopes

        slopes = self._kept_slopes
        if slopes is None or slopes.shape[0] != self._num_qo_heads:
            self._kept_slopes = slopes = get_alibi_slopes(self._num_qo_heads, self.device)
        return slopes

    def _scale_arguments(self, args: tuple, *scales: Any) -> tuple[Any, Any, Any]:
        """q_scale, k_scale and v_scale, which FlashInfer also takes as positional arguments behind
        the tensors of a run in fp8; with a variant these are its parameters."""
        if self._variant is not None:
            self._variant.fill(args, self)
            return scales
        if not args:
            return scales
        if len(args) != 3 or any(s is not None for s in scales):
            raise ValueError(
                f"{type(self).__name__}.run: expected three more positional arguments, the scales "
                f"of q, k and v, and none of them by keyword; got {len(args)}")
        return args

    def end_forward(self) -> None:
        """Does nothing; FlashInfer has it for older programs."""


def outputs_bit(q: Any, o: Any) -> int:
    """The dtype of a result: as asked for, else q's, bfloat16 where q has 8 bits."""
    if o is not None:
        return _dtypes.of(o).bit
    q = _dtypes.of(q)
    return q.bit if q.itemsize > 1 else _dtypes.BY_NAME["bfloat16"].bit
