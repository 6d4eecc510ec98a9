# SPDX-License-Identifier: Apache-2.0
"""Sampling, its filters, top-k and the pipelines from logits to tokens."""

from __future__ import annotations

import numpy as np
import pytest

import bolide
from bolide import logits_processor as lp


def need(fw, op):
    if not bolide._rows.supports(op, fw.device):
        pytest.skip(f"{op} is not on {fw.device}")


def probabilities(fw, rng, n=40, v=300):
    need(fw, "softmax")
    x = rng.standard_normal((n, v)) * 3
    logits = fw.tensor(x, "float32")
    return logits, bolide.softmax(logits)


def exact(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def test_softmax(fw, rng, close):
    logits, probs = probabilities(fw, rng)
    x = fw.numbers(logits)
    close(fw.numbers(probs), exact(x), "float32", 2)
    close(fw.numbers(bolide.softmax(logits, 0.5)), exact(x / 0.5), "float32", 2)
    each = rng.random(40) + 0.1
    each[7] = 0
    got = fw.numbers(bolide.softmax(logits, fw.tensor(each, "float32")))
    assert got[7, x[7].argmax()] == 1 and got[7].sum() == 1
    rows = np.arange(40) != 7
    close(got[rows], exact(x[rows] / np.float32(each)[rows, None]), "float32", 4)


def kept_by_top_p(p, top_p):
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    return set(order[before < top_p])


def test_filters(fw, rng, close):
    logits, probs = probabilities(fw, rng)
    p, x = fw.numbers(probs), fw.numbers(logits)
    masked = fw.numbers(bolide.top_k_mask_logits(logits, 10))
    assert (np.isfinite(masked).sum(-1) == 10).all()
    assert (masked[np.isfinite(masked)] == x[np.isfinite(masked)]).all()
    top = fw.numbers(bolide.top_k_renorm_probs(probs, 10))
    assert ((top > 0) == np.isfinite(masked)).all()
    close(top, np.where(top > 0, p, 0) / np.where(top > 0, p, 0).sum(-1, keepdims=True), "float32")
    top = fw.numbers(bolide.top_p_renorm_probs(probs, 0.7))
    for row in range(40):
        assert set(np.flatnonzero(top[row])) == kept_by_top_p(p[row], 0.7)
    assert bolide.sampling.top_p_renorm_prob is bolide.top_p_renorm_probs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_probabilities_of_16_bits(fw, rng, dtype):
    _, probs = probabilities(fw, rng)
    half = fw.tensor(fw.numbers(probs), dtype)
    whole = fw.tensor(fw.numbers(half), "float32")
    s = bolide.sampling
    calls = (s.sampling_from_probs, lambda p, **k: s.top_p_sampling_from_probs(p, 0.9, **k),
             lambda p, **k: s.top_k_sampling_from_probs(p, 9, **k),
             lambda p, **k: s.min_p_sampling_from_probs(p, 0.1, **k),
             lambda p, **k: s.top_k_top_p_sampling_from_probs(p, 9, 0.9, **k))
    for call in calls:
        got, expected = (fw.numbers(call(p, seed=3, offset=0)) for p in (half, whole))
        assert (got == expected).all()
    got, expected = (s.top_p_renorm_probs(p, 0.7) for p in (half, whole))
    assert got.dtype == expected.dtype == bolide.float32
    assert (fw.numbers(got) == fw.numbers(expected)).all()
    with pytest.raises(ValueError, match="sampling_from_probs: probs: dtype: expected f32; got i16"):
        s.sampling_from_probs(fw.tensor(np.ones((2, 3)), "int16"), seed=3, offset=0)


def test_samples_respect_their_filter(fw, rng):
    logits, probs = probabilities(fw, rng)
    p = fw.numbers(probs)
    ten = np.argsort(-p, -1)[:, :10]
    for seed in range(5):
        draw = {"seed": seed + 1, "offset": 4 * seed}
        ids = fw.numbers(bolide.top_k_sampling_from_probs(probs, 10, **draw))
        assert ids.dtype == np.int32 and all(i in row for i, row in zip(ids, ten))
        ids = fw.numbers(bolide.top_p_sampling_from_probs(probs, 0.6, **draw))
        assert all(i in kept_by_top_p(row, 0.6) for i, row in zip(ids, p))
        ids = fw.numbers(bolide.min_p_sampling_from_probs(probs, 0.3, **draw))
        assert (p[np.arange(40), ids] >= 0.3 * p.max(-1) * (1 - 1e-6)).all()
        for order in ("top_k_first", "joint"):
            for call, given in ((bolide.top_k_top_p_sampling_from_probs, probs),
                                (bolide.top_k_top_p_sampling_from_logits, logits)):
                ids = fw.numbers(call(given, 10, 0.9, filter_apply_order=order, **draw))
                assert all(i in row for i, row in zip(ids, ten))


def test_frequencies(fw, rng):
    need(fw, "sampling_from_probs")
    p = np.array([0.5, 0.25, 0.125, 0.125])
    probs = fw.tensor(p[None], "float32")
    logits = fw.tensor(np.log(p)[None], "float32")
    rows = fw.tensor(np.zeros(20000), "int32")
    seed = int(rng.integers(2**40))
    for call, given in ((bolide.sampling_from_probs, probs), (bolide.sampling_from_logits, logits)):
        ids = fw.numbers(call(given, indices=rows, seed=seed, offset=0))
        expected = 20000 * p
        # chi-square of 3 degrees of freedom: above 36 once in 10 million runs
        assert ((np.bincount(ids, minlength=4) - expected) ** 2 / expected).sum() < 36


def test_seed_forms(fw, rng):
    _, probs = probabilities(fw, rng)
    one = bolide.sampling_from_probs(probs, seed=7, offset=8)
    tensor = [fw.tensor(np.array([v]), "int64") for v in (7, 8)]
    assert (fw.numbers(bolide.sampling_from_probs(probs, seed=tensor[0], offset=tensor[1]))
            == fw.numbers(one)).all()
    other = fw.numbers(bolide.sampling_from_probs(probs, seed=7, offset=12))
    assert (other != fw.numbers(one)).any()
    each = fw.tensor(np.arange(40), "int64")
    mixed = fw.numbers(bolide.sampling_from_probs(probs, seed=each, offset=each))
    assert len(set(mixed.tolist())) > 1
    for bits in (2**63, 2**64 - 1):  # of 64, with and without a sign
        low, high = (fw.numbers(bolide.sampling_from_probs(probs, seed=v, offset=v))
                     for v in (bits - 2**64, bits))
        as_tensor = fw.tensor(np.array([bits - 2**64]), "int64")
        assert (low == high).all()
        assert (low == fw.numbers(bolide.sampling_from_probs(probs, seed=as_tensor,
                                                             offset=as_tensor))).all()
    for bad in (2**64, -2**63 - 1):
        with pytest.raises(ValueError, match=f"seed: value: expected a number of 64 bits; got {bad}"):
            bolide.sampling_from_probs(probs, seed=bad, offset=0)
    with pytest.raises(ValueError, match="two integers or two tensors; got 7, a tensor"):
        bolide.sampling_from_probs(probs, seed=7, offset=tensor[1])
    with pytest.raises(ValueError, match="both or neither; got 7, None"):
        bolide.sampling_from_probs(probs, seed=7)
    with pytest.raises(ValueError, match="seed: value: expected an integer or a tensor"):
        bolide.sampling_from_probs(probs, seed="7", offset=0)
    if fw.name == "numpy":
        with pytest.raises(ValueError, match="sampling_from_probs: seed"):
            bolide.sampling_from_probs(probs)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float16", "float32", "float64"])
def test_parameters_of_any_type(fw, rng, close, dtype):
    """One for each row, in what type it is at hand: as a number of that value."""
    probs = fw.tensor(rng.dirichlet(np.ones(40), 3), "float32")
    ones, threes = fw.tensor(np.full(3, 1.0), dtype), fw.tensor(np.full(3, 3.0), dtype)
    draw = {"seed": 5, "offset": 0}
    for call, one, number in (
            (lambda x: bolide.top_p_renorm_probs(probs, x), ones, 1.0),
            (lambda x: bolide.softmax(probs, x), threes, 3.0),
            (lambda x: bolide.top_k_renorm_probs(probs, x), threes, 3),
            (lambda x: bolide.top_k_mask_logits(probs, x), threes, 3),
            (lambda x: bolide.top_p_sampling_from_probs(probs, x, **draw), ones, 1.0),
            (lambda x: bolide.min_p_sampling_from_probs(probs, x, **draw), ones, 1.0),
            (lambda x: bolide.top_k_sampling_from_probs(probs, x, **draw), threes, 3),
            (lambda x: bolide.top_k_top_p_sampling_from_probs(probs, x, ones, **draw), threes, 3),
            (lambda x: bolide.top_k_top_p_sampling_from_logits(probs, x, ones, **draw), threes, 3)):
        assert (fw.numbers(call(one)) == fw.numbers(call(number))).all()


def test_indices_valid_and_nan(fw, rng):
    _, probs = probabilities(fw, rng, 3)
    p = fw.numbers(probs)
    p[1] = 0
    probs = fw.tensor(p, "float32")
    rows = fw.tensor(np.array([2, 1, 0, 2]), "int64")
    ids, valid = bolide.sampling_from_probs(probs, indices=rows, seed=1, offset=0,
                                            return_valid=True)
    assert fw.numbers(ids).dtype == np.int64 and fw.numbers(ids)[1] == 0
    assert fw.numbers(valid).astype(bool).tolist() == [True, False, True, True]
    p[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        bolide.sampling_from_probs(fw.tensor(p, "float32"), check_nan=True, seed=1, offset=0)


def test_speculative(fw, rng):
    need(fw, "chain_speculative_sampling")
    draft = exact(rng.standard_normal((2, 3, 50)))
    target = np.concatenate([draft, exact(rng.standard_normal((2, 1, 50)))], 1)
    ids = rng.integers(0, 50, (2, 3))
    out, accepted, emitted = bolide.chain_speculative_sampling(
        fw.tensor(draft, "float32"), fw.tensor(ids, "int32"), fw.tensor(target, "float32"),
        seed=3, offset=0)
    assert (fw.numbers(out)[:, :3] == ids).all() and (fw.numbers(out)[:, 3] >= 0).all()
    assert fw.numbers(accepted).tolist() == [3, 3] == fw.numbers(emitted).tolist()
    bolide.chain_speculative_sampling(
        fw.tensor(draft, "float32"), fw.tensor(ids, "int32"), fw.tensor(target, "float32"),
        accepted, emitted, seed=3, offset=0)
    assert fw.numbers(accepted).tolist() == [6, 6]


def test_top_k(fw, rng):
    need(fw, "top_k")
    x = rng.standard_normal((6, 200))
    values, ids = bolide.top_k(fw.tensor(x, "float32"), 7, sorted=True)
    order = np.argsort(-np.float32(x), -1, kind="stable")[:, :7]
    assert fw.numbers(ids).dtype == np.int64 and (fw.numbers(ids) == order).all()
    assert (fw.numbers(values) == np.take_along_axis(np.float32(x), order, -1)).all()
    same = fw.tensor(np.zeros((1, 9)), "float32")
    for tie, expected in ((bolide.TopKTieBreak.SMALL, {0, 1}), (bolide.TopKTieBreak.LARGE, {7, 8})):
        assert set(fw.numbers(bolide.topk.topk(same, 2, tie_break=tie)[1])[0]) == expected


def test_top_k_transforms(fw, rng):
    need(fw, "top_k_page_table_transform")
    x = fw.tensor(rng.standard_normal((2, 30)), "float32")
    lengths = fw.tensor(np.array([30, 3]), "int32")
    offsets = fw.tensor(np.array([100, 200]), "int32")
    got = fw.numbers(bolide.top_k_ragged_transform(x, offsets, lengths, 5))
    assert set(got[0]) == set(100 + np.argsort(-fw.numbers(x)[0])[:5])
    assert got[1].tolist() == [200, 201, 202, -1, -1]
    table = rng.permutation(60).reshape(2, 30)
    raw = fw.tensor(np.zeros((2, 5)), "int32")
    got = fw.numbers(bolide.top_k_page_table_transform(
        x, fw.tensor(table, "int32"), lengths, 5, out_raw_indices=raw))
    assert set(got[0]) == set(table[0, fw.numbers(raw)[0]])
    assert got[1].tolist() == [*table[1, :3], -1, -1]
    ids, values = bolide.top_k_varlen(x, lengths, 5, return_values=True)
    assert (fw.numbers(ids)[1, 3:] == -1).all() and tuple(values.shape) == (2, 5)
    again, none = bolide.top_k_varlen(x, lengths, 5)
    assert none is None and (fw.numbers(again) == fw.numbers(ids)).all()
    ids, values = bolide.topk.topk_clusters_exact(x, 5, output_values=True)
    taken = np.take_along_axis(fw.numbers(x), fw.numbers(ids).astype(np.int64), -1)
    assert (taken == fw.numbers(values)).all()


# ---- pipelines -------------------------------------------------------------------------------


def kinds(pipe):
    return [type(op).__name__ for op in pipe.compiled_ops]


def test_pipeline(fw, rng):
    logits, _ = probabilities(fw, rng)
    pipe = lp.LogitsPipe([lp.Temperature(), lp.Softmax(), lp.TopK(), lp.Sample()])
    assert kinds(pipe) == ["FusedTemperatureSoftmaxOp", "FusedProbsTopKSampleOp"]
    got = pipe(logits, temperature=0.7, top_k=10, seed=5, offset=0)
    expected = bolide.top_k_sampling_from_probs(bolide.softmax(logits, 0.7), 10, seed=5, offset=0)
    assert (fw.numbers(got) == fw.numbers(expected)).all()
    plain = lp.LogitsPipe([lp.Temperature(), lp.Softmax(), lp.TopK(), lp.Sample()], compile=False)
    ids = fw.numbers(plain(logits, temperature=0.7, top_k=10, seed=5, offset=0))
    ten = np.argsort(-fw.numbers(logits), -1)[:, :10]
    assert plain.compiled_ops is None and all(i in row for i, row in zip(ids, ten))


def test_pipeline_orders(fw, rng):
    logits, probs = probabilities(fw, rng)
    masked = lp.LogitsPipe([lp.TopK(top_k=4), lp.Softmax()], input_type=lp.TensorType.LOGITS)
    assert ((fw.numbers(masked(logits)) > 0).sum(-1) == 4).all()
    joint = lp.LogitsPipe([lp.TopK(joint_topk_topp=True), lp.TopP(), lp.Sample()],
                          input_type=lp.TensorType.PROBS)
    assert kinds(joint) == ["FusedProbsTopKTopPSampleOp"]
    got = joint(probs, top_k=9, top_p=0.8, seed=2, offset=0)
    expected = bolide.top_k_top_p_sampling_from_probs(probs, 9, 0.8, filter_apply_order="joint",
                                                      seed=2, offset=0)
    assert (fw.numbers(got) == fw.numbers(expected)).all()
    first = lp.LogitsPipe([lp.TopK(), lp.TopP(), lp.Sample()], input_type=lp.TensorType.PROBS)
    assert kinds(first) == ["ProbsTopKOp", "FusedProbsTopPSampleOp"]
    least = lp.LogitsPipe([lp.MinP(), lp.Sample()])
    ids, valid = least(probs, min_p=0.4, seed=1, offset=0, return_valid=True)
    assert fw.numbers(valid).all() and tuple(ids.shape) == (40,)


def test_pipeline_is_checked():
    with pytest.raises(lp.CompileError, match="at most one Softmax"):
        lp.compile_pipeline([lp.operators.SoftmaxOp(), lp.operators.SoftmaxOp()])
    with pytest.raises(lp.CompileError, match="nothing may stand behind"):
        lp.compile_pipeline([lp.operators.ProbsSampleOp(), lp.operators.TopPOp()])
    with pytest.raises(lp.LegalizationError):
        lp.LogitsPipe([lp.Softmax(), lp.Softmax()])
    with pytest.raises(lp.LegalizationError, match="say which"):
        lp.LogitsPipe([lp.Sample()])
    with pytest.raises(lp.LegalizationError, match="at least one"):
        lp.LogitsPipe([])
    pipe = lp.LogitsPipe([lp.TopP()])
    with pytest.raises(ValueError, match="expected PROBS; got LOGITS"):
        pipe(lp.TaggedTensor.logits(np.zeros((1, 2))))
    with pytest.raises(ValueError, match="top_p is required"):
        pipe(np.zeros((1, 2), np.float32))
