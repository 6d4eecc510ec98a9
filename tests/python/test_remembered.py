# SPDX-License-Identifier: Apache-2.0
"""Attention in one call, made again by recipes: the tests of the functions once more, with every
call made twice, and what a recipe must not do."""

from __future__ import annotations

import math

import pytest

import bolide
import test_contracts
import test_mla_calls
import test_task_scheduled
from attention64 import Batch
from bolide._wrappers import remembered
from bolide._wrappers.once import kept
from test_contracts import *  # noqa: F401,F403
from test_mla_calls import *  # noqa: F401,F403
from test_task_scheduled import *  # noqa: F401,F403
from test_contracts import test_xqa as test_xqa_of_pages  # noqa: F401
from threads import in_threads

PLAIN = ("trtllm_batch_decode_with_kv_cache", "xqa_batch_decode_with_kv_cache", "xqa",
         "trtllm_batch_context_with_kv_cache", "trtllm_ragged_attention_deepseek",
         "trtllm_fmha_v2_prefill", "trtllm_batch_decode_with_kv_cache_mla", "xqa_mla",
         "prims_ts_batch_decode_with_kv_cache_mla", "prims_ts_batch_decode_with_kv_cache",
         "cudnn_batch_decode_with_kv_cache", "cudnn_batch_prefill_with_kv_cache",
         "batch_prefill")
_made: set = set()


@pytest.fixture(autouse=True)
def twice(monkeypatch, request):
    """Every call is made by the function, and then again. What the second gives is what counts."""
    first, make = remembered._first, remembered._Recipe.make

    def again(function, key, tensors, args, named):
        given = list(tensors)
        result = first(function, key, tensors, args, named)
        recipe = kept.recipes[key]
        if recipe is remembered._NotPlain:
            return result
        for t in [t for t in (result if isinstance(result, tuple) else (result,))
                  if t is not None and t.is_floating_point()]:
            t.fill_(float("nan"))
        _made.add(function.__name__)
        return recipe.make(given)

    if "own_calls" not in request.keywords:
        kept.recipes.clear()  # those of other tests, whose calls were of the same shapes
        monkeypatch.setattr(remembered, "_first", again)
    yield
    remembered._Recipe.make = make


@pytest.mark.own_calls
def test_a_recipe_follows_its_tensors(fw, rng, close):
    """Other values, other memory, results of one's own; a view that lies otherwise goes its way."""
    if fw.name == "numpy":
        pytest.skip("recipes are of torch's tensors")
    call = bolide.decode.trtllm_batch_decode_with_kv_cache
    kept.recipes.clear()
    for i in range(4):
        b = Batch(fw, rng, [1] * 3, [[9, 4, 17], [1, 1, 1], [17, 9, 4], [2, 16, 3]][i],
                  layout="HND", page=4, dtype="float32")
        import torch

        wide = torch.full((3, 8), 2**30, dtype=torch.int32, device=fw.device)
        table = b.table()
        wide[:, :table.shape[1]] = table
        cache = torch.full((16, 2, *b.k_cache.shape[1:]), float("nan"), device=fw.device)
        cache[:len(b.k_cache), 0], cache[:len(b.v_cache), 1] = b.k_cache, b.v_cache
        if i == 3:  # keys and values behind one another
            cache = cache.transpose(0, 1).contiguous().transpose(0, 1)
        space = torch.full((1 << 22,), 0xCD, dtype=torch.uint8, device=fw.device)
        space = space[i:i - 8]
        out = call(b.q, cache, space, wide, b.lens, 32, b.d ** -0.5, 1.0)
        b.check(close, out, b.expected())
        recipe, = kept.recipes.values()
        assert recipe is not remembered._NotPlain
    with pytest.raises(ValueError, match="trtllm_batch_decode_with_kv_cache: workspace_buffer: "):
        call(b.q, cache, space[:64], wide, b.lens, 32, b.d ** -0.5, 1.0)


@pytest.mark.own_calls
def test_tensors_that_were_one(fw, rng, close):
    """Keys that are the values in one call and not in the next, with every shape the same."""
    if fw.name == "numpy":
        pytest.skip("recipes are of torch's tensors")
    kept.recipes.clear()
    b = Batch(fw, rng, [1] * 3, [9, 4, 17], layout="HND", page=4)
    for values, numbers in ((b.k_cache, b.k64), (b.v_cache, b.v64), (b.k_cache, b.k64)):
        b.v64 = numbers
        for _ in range(2):
            out = bolide.decode.trtllm_batch_decode_with_kv_cache(
                b.q, (b.k_cache, values), b.workspace(1 << 22), b.table(), b.lens, 32,
                b.d ** -0.5, 1.0)
            b.check(close, out, b.expected())


@pytest.mark.own_calls
def test_tensors_of_one_memory(fw, rng, close):
    """Queries and results in one memory, at another distance in each call: a view of the results is
    not one of the queries."""
    if fw.name == "numpy":
        pytest.skip("recipes are of torch's tensors")
    import torch

    kept.recipes.clear()
    b = test_mla_calls.Dense(fw, rng, [1] * 5)
    query = b.same_length()
    shape, n = (*query.shape[:-1], test_mla_calls.CKV), query.numel()
    for distance in (n, n + 64, n + 128):
        arena = torch.full((4 * n,), float("nan"), device=fw.device)
        mine = arena[:n].view(query.shape)
        out = arena[distance:distance + math.prod(shape)].view(shape)
        mine.copy_(query)
        b.call(mine, out=out)
        close(fw.numbers(out)[:, 0], b.expected(0.2)[0], "float32")


@pytest.mark.own_calls
def test_threads(fw, rng, close):
    """Calls of one kind at the same time."""
    if fw.name == "numpy":
        pytest.skip("recipes are of torch's tensors")
    batches = [Batch(fw, rng, [1] * 3, [9, 4, 17], layout="HND", page=4) for _ in range(4)]
    found: list = [None] * 4

    def work(i):
        b = batches[i]
        for _ in range(20):
            found[i] = bolide.decode.trtllm_batch_decode_with_kv_cache(
                b.q, b.cache, b.workspace(1 << 22), b.table(), b.lens, 32, b.d ** -0.5, 1.0)

    in_threads(work, 4)
    for b, out in zip(batches, found):
        b.check(close, out, b.expected())


def test_most_functions_are_remembered(request):
    """Behind all the others: those whose calls are plain were made by recipes."""
    if request.config.getoption("--part") != "0/1" or (
            request.config.getoption("keyword")):
        pytest.skip("only some of the calls were made")
    if not _made:
        pytest.skip("there is no torch, whose calls are remembered")
    assert sorted(set(PLAIN) - _made) == []
