# SPDX-License-Identifier: Apache-2.0
"""What programs do besides calling functions in order: they plan again and again, copy wrappers, run
in torch's inference mode, fork, use threads, and pass values of other types."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest

import bolide
from attention64 import Batch
from test_wrappers import DECODE, PAGED, RAGGED, decode, paged
from threads import in_threads


def plan(w, b, **options):
    w.plan(b.indptr, b.indices, b.last, b.h_q, b.h_kv, b.d, b.page, q_data_type=b.dtype, **options)


def test_plans_with_other_lengths(fw, rng, close):
    """A plan that differs in its lengths alone, and one that differs in more, in any order."""
    w = None
    lengths = [[9, 0, 4], [1, 31, 7], [3], [40] * 9, [5, 6, 7]]
    options = [{}, {"window_left": 3}, {}, {"logits_soft_cap": 0.5}, {"sm_scale": 0.3}]
    expected = [{}, {"window": 3, "causal": True}, {}, {"cap": 0.5}, {"scale": 0.3}]
    for lens in lengths:
        b = Batch(fw, rng, [1] * len(lens), lens)
        w = DECODE(b.workspace(1 << 26)) if w is None else w
        for given, reference in [(o, e) for o, e in zip(options, expected) for _ in range(2)]:
            plan(w, b, **given)
            b.check(close, w.run(b.q, b.cache, return_lse=True), b.expected(**reference))
    plan(w, b)
    w._window_left = 2  # as engines do
    b.check(close, w.run(b.q, b.cache), b.expected(window=2, causal=True))
    plan(w, b)
    b.check(close, w.run(b.q, b.cache), b.expected())
    b.check(close, w.forward(b.q, b.cache, window_left=4), b.expected(window=4, causal=True))


def test_many_plans_before_a_run(fw, rng, close):
    """Staging slots are taken in turn, and none is written over too early."""
    b = Batch(fw, rng, [1] * 3, [9, 1, 4])
    w = decode(b)
    for _ in range(30):
        plan(w, b)
        out = w.run(b.q, b.cache)
    b.check(close, out, b.expected())


def test_lengths_that_grow_behind_a_plan(fw, rng, close):
    """Written into the wrapper's buffers, or given to FlashInfer's internal plan: to many times those
    of the plan before."""
    short, long = (Batch(fw, rng, [1] * 2, lens) for lens in ([9, 4], [300, 77]))
    for internal in (False, True):
        w = DECODE(long.workspace(1 << 24))
        w.plan(short.indptr, long.indices, short.last, 4, 2, 64, 4, q_data_type=long.dtype)
        if internal:
            w._paged_kv_last_page_len_buf[:] = long.last
            w._plan_info = w._cached_module.plan(
                None, None, None, long.on_host(long.indptr_list), 2, 4, 2, 4, False, -1, 0.0, 64, 64,
                None, None)
        elif fw.name == "numpy":
            continue  # what is written to an array is not seen
        else:
            w._paged_kv_indptr_buf[:] = long.indptr
            w._paged_kv_last_page_len_buf[:] = long.last
        close(fw.numbers(w.run(long.q, long.cache)), long.expected()[0], long.dtype, 2.0)


def test_copies(fw, rng, close):
    """A copy has its plan, and memory of its own."""
    b = Batch(fw, rng, [3, 1, 2], [9, 1, 4], dtype="float16")
    w = PAGED(b.workspace(1 << 22))
    assert isinstance(copy.deepcopy(w), PAGED)
    w = paged(b, causal=True)
    for other in (copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        b.check(close, other.run(b.q, b.cache), b.expected(causal=True))
        c = Batch(fw, rng, [2, 2], [20, 20], dtype="float16")
        other.plan(c.qo, c.indptr, c.indices, c.last, c.h_q, c.h_kv, c.d, c.page,
                   q_data_type="float16")
        c.check(close, other.run(c.q, c.cache), c.expected())
        b.check(close, w.run(b.q, b.cache), b.expected(causal=True))
        assert other._workspace.address != w._workspace.address
    texts = ("twice", "float16", "float16", "float16", "int32", 64, 64, [], [], [], [], "Twice",
             {"logits": "return 2 * x;"})
    with pytest.raises(TypeError, match="jit_args cannot be copied"):
        copy.deepcopy(DECODE(b.workspace(1 << 22), jit_args=texts))


def test_inference_mode(fw, rng, close):
    if fw.name == "numpy":
        pytest.skip("of torch")
    import torch

    with torch.inference_mode():
        b = Batch(fw, rng, [1] * 3, [9, 1, 4])
        w = decode(b)
        b.check(close, w.run(b.q, b.cache), b.expected())
        last = w._paged_kv_last_page_len_buf
        last[0] = 0 + last[0]  # written behind the plan, which is made again
        b.check(close, w.run(b.q, b.cache), b.expected())
        w = RAGGED(b.workspace(1 << 25))
        k, v, starts = b.packed()
        w.plan(b.qo, starts, b.h_q, b.h_kv, b.d, causal=True, q_data_type=b.dtype)
        b.check(close, w.run(b.q, k, v), b.expected(causal=True))
        x = fw.tensor(rng.standard_normal((3, 64)), "float32")
        close(fw.numbers(bolide.rmsnorm(x, torch.ones_like(x[0]))),
              fw.numbers(torch.nn.functional.rms_norm(x, (64,), eps=1e-6)), "float32")


def test_numbers_of_rows(fw, rng):
    """In other precisions than the kernels take."""
    probs = fw.tensor(rng.dirichlet(np.ones(50), 4), "float32")
    p = rng.uniform(0.1, 0.9, 4).astype(np.float32)
    k = rng.integers(1, 9, 4)
    draw = {"seed": 3, "offset": 0}
    calls = {
        "top_p": lambda t: bolide.top_p_sampling_from_probs(probs, t, **draw),
        "min_p": lambda t: bolide.min_p_sampling_from_probs(probs, t, **draw),
        "renorm": lambda t: bolide.top_p_renorm_probs(probs, t),
        "both": lambda t: bolide.top_k_top_p_sampling_from_probs(
            probs, fw.tensor(k, "int64"), t, **draw),
        "temperature": lambda t: bolide.softmax(probs, t),
    }
    for call in calls.values():
        a, b = call(fw.tensor(p, "float32")), call(fw.tensor(p, "float64"))
        assert (fw.numbers(a) == fw.numbers(b)).all()


def test_what_is_no_tensor(fw):
    one = fw.tensor(np.ones(8), "float32")
    for value, kind in (([[1.0] * 8], "list"), ("x", "str")):
        with pytest.raises(ValueError, match=f"rmsnorm: input: value: expected a tensor; got {kind}"):
            bolide.rmsnorm(value, one)
    with pytest.raises(ValueError, match="rmsnorm: input: dtype: expected f32, f16 or bf16; got f64"):
        bolide.rmsnorm(fw.tensor(np.ones((2, 8)), "float64"), one)


def test_what_is_no_tensor_of_a_wrapper(fw, rng):
    """Refused by name, where a length of something else would be taken from it."""
    b = Batch(fw, rng, [1] * 2, [9, 4])
    for wrong in (None, 1 << 27, [0] * 64):
        with pytest.raises(ValueError, match="float_workspace_buffer: expected a tensor; got"):
            DECODE(wrong)
    strided = b.workspace(1 << 12).reshape(64, 64)[:, ::2]
    for make in (DECODE, PAGED, RAGGED):
        with pytest.raises(ValueError, match="float_workspace_buffer: expected contiguous memory"):
            make(strided)
    w = DECODE(b.workspace(1 << 22))
    sizes = (b.h_q, b.h_kv, b.d, b.page)
    with pytest.raises(ValueError, match="plan: expected tensors as lengths and offsets; got list"):
        w.plan([0, 3, 4], b.indices, b.last, *sizes, q_data_type=b.dtype)
    with pytest.raises(ValueError, match="indices: expected a tensor; got list"):
        w.plan(b.indptr, [0, 1, 2, 3], b.last, *sizes, q_data_type=b.dtype)
    w.plan(b.indptr, b.indices, b.last, *sizes, q_data_type=b.dtype)
    for cache, got in ((None, "NoneType"), ((*b.cache, b.k_cache), "3 of them"),
                       (b.k_cache, r"\[")):
        with pytest.raises(ValueError, match="paged_kv_cache: expected keys and values, .*" + got):
            w.run(b.q, cache)


def test_workspaces_are_aligned(fw, rng):
    b = Batch(fw, rng, [1], [3])
    for make in (DECODE, PAGED, RAGGED):
        with pytest.raises(ValueError, match="float_workspace_buffer: alignment: expected 16"):
            make(b.workspace(1 << 20)[1:])


def test_threads_and_forks(fw, rng, close):
    """Wrappers of threads do not meet; a child of a fork plans and runs on the CPU."""
    batches = [Batch(fw, rng, [2] * 3, [9, 4, 17]) for _ in range(4)]
    found: list = [None] * 4

    def work(i):
        b = batches[i]
        for _ in range(10):
            found[i] = fw.numbers(paged(b, causal=True).run(b.q, b.cache))

    in_threads(work, 4)
    for b, out in zip(batches, found):
        close(out, b.expected(causal=True)[0], "float32", 2.0)
    if fw.device != "cpu":
        return
    child = os.fork()
    if child == 0:
        os._exit(0 if np.allclose(fw.numbers(paged(b, causal=True).run(b.q, b.cache)), out) else 1)
    assert os.waitpid(child, 0)[1] == 0
