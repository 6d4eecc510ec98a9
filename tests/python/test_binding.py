# SPDX-License-Identifier: Apache-2.0
"""The binding itself: values of every kind, allocation, errors, workspaces and plans."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import bolide
from bolide import _binding, _dtypes, _frameworks, _rows
from bolide._binding import Plan, Workspace, operator
from threads import in_threads

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
RMS = operator("rmsnorm", "input weight out eps")


def need(fw, op):
    if not _rows.supports(op, fw.device):
        pytest.skip(f"{op} is not on {fw.device}")


def rms(x, w, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_allocates_and_computes(fw, rng, close, dtype):
    x = fw.tensor(rng.standard_normal((7, 96)), dtype)
    w = fw.tensor(rng.standard_normal(96), dtype)
    out = RMS(x, w, None, None)
    assert type(out) is type(x) and out.dtype == x.dtype
    close(fw.numbers(out), rms(fw.numbers(x), fw.numbers(w)), dtype)


def test_given_output_and_strides(fw, rng, close):
    wide = fw.tensor(rng.standard_normal((9, 80)), "float32")
    out = fw.tensor(np.full((9, 80), np.nan), "float32")
    w = fw.tensor(rng.standard_normal(64), "float32")
    assert RMS(wide[::2, 8:72], w, out[::2, 8:72], 0.5) is None
    expected = rms(fw.numbers(wide)[::2, 8:72], fw.numbers(w), 0.5)
    close(fw.numbers(out)[::2, 8:72], expected, "float32")
    assert np.isnan(fw.numbers(out)[1::2]).all()


def test_errors_have_the_library_s_sentence(fw):
    x = fw.tensor(np.ones((2, 8)), "float32")
    with pytest.raises(ValueError, match=r"^rmsnorm: weight: shape: expected \[8\]; got \[3\]"):
        RMS(x, fw.tensor(np.ones(3), "float32"), None, None)
    with pytest.raises(ValueError, match="rmsnorm: weight: dtype: expected f32; got f16"):
        RMS(x, fw.tensor(np.ones(8), "float16"), None, None)
    with pytest.raises(ValueError, match="rmsnorm: eps: value: expected a number; got another"):
        RMS(x, fw.tensor(np.ones(8), "float32"), None, "much")
    with pytest.raises(ValueError, match="rmsnorm: weight"):
        RMS(x, None, None, None)


def test_a_wrong_input_is_named_where_an_output_cannot_be_made(fw):
    x = fw.tensor(np.ones(8), "float32")
    with pytest.raises(ValueError, match="rmsnorm: input: rank: expected 2 or 3; got 1"):
        RMS(x, x, None, None)
    with pytest.raises(ValueError, match=r"silu_and_mul: input: shape: expected .*; got \[2, 7\]"):
        bolide.silu_and_mul(fw.tensor(np.ones((2, 7)), "float32"))
    with pytest.raises(ValueError, match="top_k: k: value: expected .*; got -1"):
        bolide.top_k(fw.tensor(np.ones((2, 7)), "float32"), -1)
    with pytest.raises(ValueError, match="sampling_from_probs: probs: rank: expected 2; got 1"):
        bolide.sampling.sampling_from_probs(x, seed=1, offset=0)
    with pytest.raises(ValueError, match="packbits: x: rank: expected 1; got 2"):
        bolide.packbits(fw.tensor(np.ones((2, 8)), "uint8"))


def test_a_wrong_output_is_named(fw):
    out = fw.tensor(np.full((3, 33), 7.0), "float32")
    with pytest.raises(ValueError, match=r"silu_and_mul: out: shape: expected \[3, 32\]; got \[3, 33\]"):
        bolide.silu_and_mul(fw.tensor(np.ones((3, 64)), "float32"), out=out)
    assert (fw.numbers(out) == 7).all()


def test_unknown_names():
    for phase in ("run", "workspace"):
        with pytest.raises(ValueError, match="no_such: no such operator"):
            operator("no_such", "a", phase)
    with pytest.raises(ValueError, match="no_such: no such operator"):
        _binding._library.bind("no_such", "run", "a")
    with pytest.raises(ValueError, match="rmsnorm: weights"):
        _binding._library.bind("rmsnorm", "run", "input weights")
    with pytest.raises(ValueError, match="no such phase"):
        _binding._library.bind("rmsnorm", "plan", "")


def test_values_that_are_bound(fw, rng, close):
    """Values given with the names stay: only those of the other names are passed."""
    bind = _binding._library.bind
    x = fw.tensor(rng.standard_normal((3, 64)), "float32")
    w, out = fw.tensor(np.ones(64), "float32"), fw.tensor(np.full((3, 64), np.nan), "float32")
    bind("rmsnorm", "run", "input weight out eps", 0.5)(*map(_frameworks.pack, (x, w, out)))
    close(fw.numbers(out), rms(fw.numbers(x), 1.0, 0.5), "float32")
    with pytest.raises(ValueError, match="rmsnorm: arguments: another number than was bound"):
        bind("rmsnorm", "run", "input weight out eps", 0.5)(*map(_frameworks.pack, (x, w, out, 1)))
    with pytest.raises(ValueError, match="rmsnorm: eps: value: expected a number; got another"):
        bind("rmsnorm", "run", "input weight out eps", "much")
    for value in (_frameworks.pack(w), np.ones(64, np.float32), [1.0]):
        with pytest.raises(ValueError, match="rmsnorm: weight: value: expected a number, a name "):
            bind("rmsnorm", "run", "input out eps weight", value)
    for value in (True, None):  # an output that a call would allocate
        with pytest.raises(ValueError, match="expected values that are no memory"):
            bind("rmsnorm", "run", "input weight out", value)
    with pytest.raises(ValueError, match="expected no more values than names"):
        bind("rmsnorm", "run", "input", 1, 2)
    with pytest.raises(ValueError, match="expected values that are no memory"):
        bind("batch_decode", "run", "q workspace", Workspace(np.zeros(64, np.uint8)).address)



def test_every_operator_binds():
    for name in _rows.operators():
        for phase in ("run", "plan") if _rows.planned(name) else ("run",):
            names = " ".join(row.name for row in _rows.rows(name, phase))
            assert callable(operator(name, names, phase=phase))


def test_scratch_is_brought(fw, rng, close):
    op = operator("single_decode_with_kv_cache", "q k v out lse kv_layout")
    need(fw, op.name)
    q, k, v = (rng.standard_normal(s) for s in ((4, 64), (50, 2, 64), (50, 2, 64)))
    q, k, v = (fw.tensor(t, "float16") for t in (q, k, v))
    out = _frameworks.empty(q, (4, 64), "float16")
    lse = op(q, k, v, out, True, "NHD")
    a, b, c = (fw.numbers(t) for t in (q, k, v))
    s = np.einsum("hd,shd->hs", a, np.repeat(b, 2, 1)) / 8
    p = np.exp(s - s.max(-1, keepdims=True))
    expected = np.einsum("hs,shd->hd", p / p.sum(-1, keepdims=True), np.repeat(c, 2, 1))
    close(fw.numbers(out), expected, "float16")
    close(fw.numbers(lse), (np.log2(p.sum(-1)) + s.max(-1) * np.log2(np.e)), "float32", 10)
    with pytest.raises(ValueError, match="kv_layout: value: expected one of NHD HND; got NDH"):
        op(q, k, v, out, None, "NDH")


PLAN = "indptr last_page_len num_qo_heads num_kv_heads head_dim page_size q_data_type"
DECODE_SIZES = operator("batch_decode", PLAN, phase="workspace")
DECODE_PLAN = operator("batch_decode", PLAN + " workspace plan stream", phase="plan")
DECODE_RUN = operator("batch_decode", "q k_cache v_cache indices out lse k_scale workspace plan")


def buffer(fw, size, pinned=False):
    like = fw.tensor(np.zeros(1), "float32")
    if pinned and fw.device == "cuda":
        import torch

        return torch.empty(max(size, 16), dtype=torch.uint8, pin_memory=True)
    return _frameworks.empty(like, (max(size, 16),), "uint8")


def test_plan_and_run(fw, rng, close):
    lengths, page, h_q, h_kv, d = [5, 33, 16], 16, 8, 2, 64
    pages = [-(-n // page) for n in lengths]
    indptr = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)
    last = np.array([n - (p - 1) * page for n, p in zip(lengths, pages)], np.int32)
    ids = rng.permutation(indptr[-1]).astype(np.int32)
    cache = [fw.tensor(rng.standard_normal((indptr[-1], page, h_kv, d)), "bfloat16") for _ in "kv"]
    q = fw.tensor(rng.standard_normal((3, h_q, d)), "bfloat16")
    host = (indptr, last, h_q, h_kv, d, page, "bfloat16")
    where = Workspace(buffer(fw, 1))
    query = operator("batch_decode", PLAN + " workspace", phase="workspace")
    sizes = query(*host, where.address)
    workspace = Workspace(buffer(fw, sizes.device), buffer(fw, sizes.device_int),
                          buffer(fw, sizes.pinned, pinned=True))
    plan = Plan(sizes.plan)
    DECODE_PLAN(*host, workspace.address, plan.address, workspace.stream)
    plan = Plan.from_bytes(bytes(plan))
    out = _frameworks.empty(q, q.shape, q.dtype)
    lse = _frameworks.empty(q, (3, h_q), "float32")
    DECODE_RUN(q, *cache, fw.tensor(ids, "int32"), out, lse, 0.5, workspace.address, plan.address)
    k, v = (fw.numbers(c) for c in cache)
    for i, n in enumerate(lengths):
        rows = ids[indptr[i]:indptr[i + 1]]
        kk, vv = (np.repeat(t[rows].reshape(-1, h_kv, d)[:n], h_q // h_kv, 1) for t in (k, v))
        s = np.einsum("hd,shd->hs", fw.numbers(q)[i], kk) / np.sqrt(d) * 0.5
        p = np.exp(s - s.max(-1, keepdims=True))
        close(fw.numbers(out)[i],
              np.einsum("hs,shd->hd", p / p.sum(-1, keepdims=True), vv), "bfloat16")
    with pytest.raises(RuntimeError, match="batch_decode_run: plan: plan"):
        DECODE_RUN(q, *cache, fw.tensor(ids, "int32"), out, None, None, workspace.address,
                   Plan(sizes.plan).address)


def test_number_or_tensor(fw, rng):
    op = operator("top_k_mask_logits", "logits top_k out")
    need(fw, op.name)
    x = fw.tensor(rng.standard_normal((3, 50)), "float32")
    one = fw.numbers(op(x, 5, None))
    each = fw.numbers(op(x, fw.tensor(np.array([5, 5, 5]), "int32"), None))
    assert (one == each).all() and (np.isfinite(one).sum(-1) == 5).all()
    with pytest.raises(ValueError, match="top_k: value: expected an integer or a tensor"):
        op(x, 0.5, None)


def test_batch_invariant_is_of_the_thread():
    seen = []
    with bolide.batch_invariant():
        thread = threading.Thread(
            target=lambda: seen.append(_binding._library.set_batch_invariant(False)))
        thread.start()
        thread.join()
        assert _binding._library.set_batch_invariant(True) is True
    assert seen == [False]
    assert _binding._library.set_batch_invariant(False) is False


def test_threads_share_a_binding(rng):
    op = operator("single_decode_with_kv_cache", "q k v out")
    q = rng.standard_normal((8, 64)).astype(np.float32)
    k = rng.standard_normal((700, 8, 64)).astype(np.float32)
    expected = np.empty_like(q)
    op(q, k, k, expected)
    wrong = []

    def work():
        for _ in range(20):
            out = np.full_like(q, np.nan)
            op(q, k, k, out)
            if not (out == expected).all():
                wrong.append(out)

    in_threads(lambda _: work(), 4)
    assert not wrong


def test_arrays_that_are_refused():
    x = np.ones((2, 8), np.float32)
    out = np.ones((2, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="rmsnorm: out: value: expected .*read-only"):
        RMS(x, np.ones(8, np.float32), out, None)
    with pytest.raises(ValueError, match=r"rmsnorm: input: dtype: expected the machine's order of"):
        RMS(x.astype(x.dtype.newbyteorder()), np.ones(8, np.float32), None, None)
    x.flags.writeable = False
    assert RMS(x, np.ones(8, np.float32), None, None).shape == (2, 8)


def test_dtypes_compare_with_frameworks():
    assert bolide.float16 == np.dtype("float16") and np.dtype("float16") == bolide.float16
    assert bolide.float16 != np.dtype("float32") and bolide.bfloat16 == "bfloat16"
    assert _dtypes.of(np.float32) is bolide.float32
    with pytest.raises(TypeError):
        _dtypes.of("complex64")


OF_OTHERS = ["transformers_model.py", "jax_block.py"]  # they have tests of their own


@pytest.mark.parametrize("path", sorted(p for p in EXAMPLES.glob("*.py") if p.name not in OF_OTHERS),
                         ids=lambda p: p.name)
def test_examples(path):
    subprocess.run([sys.executable, "-W", "error", str(path)], check=True, capture_output=True)


def test_import_builds_nothing_and_needs_no_torch():
    code = ("import sys; sys.modules['torch'] = None; import bolide; bolide.rmsnorm; "
            "print([m for m in sys.modules if m.startswith('torch.')])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
