# SPDX-License-Identifier: Apache-2.0
"""Attention in one call, once more with tensors of the same shapes: what a function made of its
arguments is remembered, and the next call goes straight to the library.

A recipe says where each value of plan and run comes from: a constant, an argument, a view of one,
what a function derives from arguments alone, or new memory. No view is made again: the library
takes a description of one, of which only the address changes. A recipe is made by looking at what a
first call gave to the library, and only where that says all: the library was called once, every
tensor it got is an argument's memory, and what was returned is what it wrote. Arguments that were
one tensor have to be one again, and so those that a view may equally be of have to lie together.
Where a recipe fails, the function itself is called, which says why.
"""

from __future__ import annotations

import functools
import operator
import struct
from typing import Any, Callable

from .. import _frameworks, _library
from .._binding import _direct, compiling
from .._library import torch
from . import _memory
from .once import MANY_ROWS, OPERATORS, Own, Record, kept, where_of

_MOST = 512


def _flat(values: Any, parts: list, tensors: list) -> None:
    """Tensors in their order, and what a kind of call is known by."""
    for value in values:
        kind = type(value)
        if kind in _direct:
            tensors.append(value)
            parts.append((value.shape, value.dtype, value.get_device()))
        elif kind is tuple or kind is list:
            parts.append(len(value))
            _flat(value, parts, tensors)
        else:
            parts.append(value)


class _NotPlain(Exception):
    """A call that no recipe can make again."""


class _Recipe:
    """How a call is made of the tensors among its arguments. Items are these tensors, those that
    are kept anyway, new memory, and behind them what each step makes: views of an item, or what is
    derived. Values that are no tensors are bound once and for all."""

    __slots__ = ("place", "gpu", "counted", "new", "steps", "plan", "plan_items", "run",
                 "run_items", "workspace", "room", "where", "result", "single", "packed", "same",
                 "together")

    def __init__(self, record: Record, tensors: list, result: Any):
        call = record.call
        if record.place.sizes.pinned or call.gpu >= 0 and (record.rows or 0) >= MANY_ROWS:
            raise _NotPlain
        self.place, self.gpu = record.place, call.gpu
        self.where = where_of(call.gpu)
        self.counted = [v for v in (*call.plan, *call.run)
                     if _frameworks.is_tensor(v) and _memory.is_counted(v)]
        self.new: list[tuple] = []
        self.steps: list[tuple] = []
        self.packed: set[int] = set()
        self.same = [(i, j) for j, t in enumerate(tensors) for i in range(j) if tensors[i] is t]
        self.together: set[tuple] = set()
        items = [*tensors, *self.counted]
        self.single = not isinstance(result, tuple)
        results = [] if result is None else [result] if self.single else list(result)
        written = [t for t in (record.out, record.lse) if t is not None]
        for t in results:
            if t is not None:
                self._make_new(t, items, written)
        own = isinstance(record.workspace, Own)
        self.workspace = -1 if own else self._index(record.workspace, items)
        self.room = self.place.need if own else _bytes(record.workspace)
        self.result = [None if t is None else self._index(t, items) for t in results]
        if self.packed.intersection(self.result):
            raise _NotPlain
        name = call.bound.plan.name
        self.plan, self.plan_items = self._bound(name, "plan", call.bound.names, call.plan, items)
        self.run, self.run_items = self._bound(name, "run", OPERATORS[name].run_names, call.run,
                                               items)

    def _make_new(self, t: Any, items: list, written: list) -> None:
        """A result that is no argument's memory: all of it must have been written."""
        if type(t) not in _direct:
            raise _NotPlain
        if any(_same_memory(t, item) for item in items):
            return
        if not t.is_contiguous() or not any(
                _same_memory(t, w) and w.numel() == t.numel() for w in written):
            raise _NotPlain
        self.new.append((tuple(t.shape), t.dtype, t.device))
        items.append(t)

    def _bound(self, name: str, phase: str, names: tuple, values: list, items: list) -> tuple:
        """The library's function of tensors, workspace and plan alone, and the tensors' items."""
        given = {n: self._index(v, items) for n, v in zip(names, values)
                 if _frameworks.is_tensor(v)}
        fixed = {n: v for n, v in zip(names, values) if n not in given and v is not None}
        last = ("workspace", "plan", "stream") if phase == "plan" else ("workspace", "plan")
        try:
            made = _library.bind(name, phase, " ".join((*given, *last, *fixed)),
                                 *fixed.values())
        except (TypeError, ValueError):
            raise _NotPlain from None
        return made, _getter(*given.values())

    def _index(self, value: Any, items: list) -> int:
        """The item that a tensor is, with a step that makes it if it is a view of one."""
        for j, item in enumerate(items):
            if item is value:
                return j
        for made, function, arguments in kept.derived:
            if made is value:
                return self._derive(made, function, arguments, items)
        if type(value) not in _direct:
            raise _NotPlain
        j = self._base(value, items)
        if not self.steps or self.steps[-1][0] != j:
            self.steps.append((j, items[j].stride(), []))
        described = _frameworks.pack(value)[_frameworks.PLACE.size:]
        pack = struct.Struct(f"{_frameworks.PLACE.format}{len(described)}s").pack
        self.steps[-1][2].append((value.data_ptr() - items[j].data_ptr(), pack, described))
        self.packed.add(len(items))
        items.append(value)
        return len(items) - 1

    def _base(self, value: Any, items: list) -> int:
        """The item that a tensor is a view of. Where it may be one of several in the same memory, a
        later call must have them as far from each other."""
        first, last = _extent(value)
        found = [j for j, item in enumerate(items)
                 if j not in self.packed and _same_memory(value, item)]
        inside = [j for j in found
                  if _extent(items[j])[0] <= first and last <= _extent(items[j])[1]]
        found = [j for j in inside if items[j].data_ptr() == first] or inside or found
        if not found:
            raise _NotPlain
        at = items[found[0]].data_ptr()
        self.together.update((found[0], j, items[j].data_ptr() - at) for j in found[1:])
        return found[0]

    def _derive(self, made: Any, function: Callable, arguments: tuple, items: list) -> int:
        """A step that derives a tensor again, from tensors that are items themselves."""
        constants, slots = list(arguments), []
        for i, value in enumerate(arguments):
            if _frameworks.is_tensor(value):
                at = next((j for j, item in enumerate(items) if item is value), None)
                if at is None:
                    at = next((self._derive(*other, items) for other in kept.derived
                               if other[0] is value), None)
                if at is None:
                    raise _NotPlain
                slots.append((i, at))
                constants[i] = None
        self.steps.append((-1, function, (constants, slots)))
        items.append(made)
        return len(items) - 1

    def make(self, items: list) -> Any:
        """The call. ValueError where a view is another one than it was, or tensors that were one
        are not any more."""
        place, gpu = self.place, self.gpu
        stream = None if gpu < 0 else _frameworks.current_stream(gpu)
        items += self.counted
        for i, j in self.same:
            if items[i] is not items[j]:
                raise ValueError
        for i, j, distance in self.together:
            if items[j].data_ptr() - items[i].data_ptr() != distance:
                raise ValueError
        for shape, dtype, device in self.new:
            items.append(torch.empty(shape, dtype=dtype, device=device))
        for j, first, second in self.steps:
            if j < 0:
                given = second[0].copy()
                for at, k in second[1]:
                    given[at] = items[k]
                items.append(first(*given))
                continue
            base = items[j]
            if base.stride() != first:
                raise ValueError
            at = base.data_ptr()
            for offset, pack, described in second:
                items.append(pack(at + offset, stream or 0, described))
        if self.workspace < 0:
            raw = torch.empty(place.need, dtype=torch.uint8, device=items[0].device)
        else:
            raw = items[self.workspace]
        at = raw.data_ptr()
        skip = -at % 16
        size = self.room - skip
        if size < place.need - 16 or not raw.is_contiguous():
            raise ValueError
        if place.holds != (at + skip, size):
            place.put(at + skip, size, self.where)
        address, plan = place.address, place.plan.address
        self.plan(*self.plan_items(items), address, plan, stream)
        self.run(*self.run_items(items), address, plan)
        if self.single:
            return items[self.result[0]] if self.result else None
        return tuple([None if j is None else items[j] for j in self.result])


def _getter(*indices: int) -> Callable:
    """The items of these indices."""
    if len(indices) > 1:
        return operator.itemgetter(*indices)
    return lambda items: [items[j] for j in indices]


def _bytes(workspace: Any) -> int:
    return workspace.numel() * workspace.element_size()


def _extent(tensor: Any) -> tuple[int, int]:
    """The addresses where a tensor's elements begin and end."""
    at, size = tensor.data_ptr(), tensor.element_size()
    steps = [(n - 1) * step for n, step in zip(tensor.shape, tensor.stride()) if n]
    return at, at + (sum(steps) + 1) * size


def _same_memory(a: Any, b: Any) -> bool:
    at = a.untyped_storage().data_ptr()
    return at != 0 and at == b.untyped_storage().data_ptr()


def remembered(function: Callable) -> Callable:
    """A function whose calls are made again by recipes, on each thread by its own."""
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if compiling():
            return function(*args, **named)
        parts: list = [function, len(args), *named]
        tensors: list = []
        _flat((*args, *named.values()), parts, tensors)
        key = tuple(parts)
        try:
            recipe = kept.recipes.get(key)
        except TypeError:  # a value that cannot be a key: no call of torch's tensors
            return function(*args, **named)
        if recipe is _NotPlain:
            return function(*args, **named)
        if recipe is not None:
            count = len(tensors)
            try:
                return recipe.make(tensors)
            except (ValueError, NotImplementedError, RuntimeError):
                del tensors[count:]
        return _first(function, key, tensors, args, named)

    return call


def _first(function: Callable, key: tuple, tensors: list, args: Any, named: Any) -> Any:
    """The call itself, and a recipe of it, or that there is none."""
    before = kept.records, kept.derived
    kept.records, kept.derived = [], []
    try:
        result = function(*args, **named)
        return _with_recipe(key, kept.records, tensors, result)
    finally:
        kept.records, kept.derived = before


def _with_recipe(key: tuple, records: list, tensors: list, result: Any) -> Any:
    """The result, which the next call of this key finds a recipe for."""
    if len(kept.recipes) >= _MOST:
        kept.recipes.clear()
    kept.recipes[key] = _NotPlain
    if len(records) == 1 and len(tensors) > 1:
        try:
            kept.recipes[key] = _Recipe(records[0], tensors, result)
        except _NotPlain:
            pass
    return result
