# SPDX-License-Identifier: Apache-2.0
"""On a GPU: operators inside captured and replayed graphs of torch, on the current stream."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytestmark = pytest.mark.gpu

import bolide  # noqa: E402
from cuda_graph import captured  # noqa: E402
from bolide import _rows  # noqa: E402
from bolide._binding import Plan, Workspace, operator  # noqa: E402


def test_rmsnorm():
    x, w = (torch.randn(s, device="cuda").bfloat16() for s in ((8, 4096), (4096,)))
    out = torch.empty_like(x)
    graph = captured(lambda: bolide.rmsnorm(x, w, out=out))
    x.normal_()
    out.zero_()
    graph.replay()
    expected = torch.nn.functional.rms_norm(x.double(), (4096,), w.double(), 1e-6)
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2)


LENGTHS = "indptr last_page_len num_qo_heads num_kv_heads head_dim page_size q_data_type"
SIZES = operator("batch_decode", LENGTHS + " max_sequence_kv max_batch_size workspace",
                 phase="workspace")
PLAN = operator("batch_decode",
                LENGTHS + " max_sequence_kv max_batch_size workspace plan stream", phase="plan")
RUN = operator("batch_decode", "q k_cache v_cache indices k_scale out lse workspace plan")


@pytest.mark.parametrize("as_tensor", [False, True])
def test_batch_decode_is_planned_again(as_tensor):
    page, h_q, h_kv, d, most = 16, 32, 8, 128, 2048
    q = torch.randn(4, h_q, d, device="cuda").bfloat16()
    k, v = (torch.randn(600, page, h_kv, d, device="cuda").bfloat16() for _ in "kv")
    indices = torch.zeros(600, dtype=torch.int32, device="cuda")
    scale = torch.tensor([0.5], device="cuda") if as_tensor else 0.5
    out, lse = torch.empty_like(q), torch.empty(4, h_q, device="cuda")
    place = Workspace(torch.empty(16, dtype=torch.uint8, device="cuda"))

    def arguments(lengths):
        pages = [-(-n // page) for n in lengths]
        indptr = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)
        last = np.array([n - (p - 1) * page for n, p in zip(lengths, pages)], np.int32)
        ids = np.random.default_rng().permutation(600)[:indptr[-1]]
        indices[:indptr[-1]] = torch.from_numpy(ids).cuda()
        return indptr, ids, (indptr, last, h_q, h_kv, d, page, "bfloat16", most, 4)

    def check(lengths, indptr, ids):
        for i, n in enumerate(lengths):
            rows = torch.from_numpy(ids[indptr[i]:indptr[i + 1]]).cuda()
            kk, vv = (t[rows].reshape(-1, h_kv, d)[:n].double().repeat_interleave(4, 1)
                      for t in (k, v))
            s = torch.einsum("hd,shd->hs", q[i].double(), kk) / d**0.5 * 0.5
            expected = torch.einsum("hs,shd->hd", s.softmax(-1), vv)
            torch.testing.assert_close(out[i].double(), expected, rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(lse[i].double(), s.logsumexp(-1) * 1.4426950408889634,
                                       rtol=1e-3, atol=1e-3)

    first = [700, 1, 2000, 33]
    indptr, ids, given = arguments(first)
    sizes = SIZES(*given, place.address)
    workspace = Workspace(
        torch.empty(max(sizes.device, 16), dtype=torch.uint8, device="cuda"),
        torch.empty(max(sizes.device_int, 16), dtype=torch.uint8, device="cuda"),
        torch.empty(max(sizes.pinned, 16), dtype=torch.uint8, pin_memory=True))
    plan = Plan(sizes.plan)
    PLAN(*given, workspace.address, plan.address, workspace.stream)
    graph = captured(
        lambda: RUN(q, k, v, indices, scale, out, lse, workspace.address, plan.address))
    graph.replay()
    check(first, indptr, ids)
    for lengths in ([16, 17, 5, 1999], [1, 1, 1, 1]):
        indptr, ids, given = arguments(lengths)
        PLAN(*given, workspace.address, plan.address, workspace.stream)
        out.zero_()
        graph.replay()
        check(lengths, indptr, ids)


def test_plan_is_refused_during_capture():
    place = Workspace(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"),
                      torch.empty(1 << 20, dtype=torch.uint8, device="cuda"),
                      torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True))
    one = np.array([0, 1], np.int32), np.array([1], np.int32)
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(4, device="cuda")
    with torch.cuda.graph(graph):
        with pytest.raises((RuntimeError, ValueError), match="batch_decode_plan"):
            PLAN(*one, 32, 8, 128, 16, "bfloat16", 2048, 4, place.address, Plan(4096).address,
                 place.stream)
        x += 1
    graph.replay()
    assert x.tolist() == [1] * 4


def test_top_p_sampling_draws_anew():
    if not _rows.supports("top_p_sampling_from_probs", "cuda"):
        pytest.skip("top_p_sampling_from_probs is not on the GPU")
    probs = torch.softmax(torch.randn(16, 32000, device="cuda"), -1)
    seed, offset = (torch.zeros(1, dtype=torch.int64, device="cuda") for _ in "so")
    op = operator("top_p_sampling_from_probs", "probs top_p seed offset samples")
    out = torch.empty(16, dtype=torch.int32, device="cuda")
    graph = captured(lambda: op(probs, 0.9, seed, offset, out))
    seen = []
    for s in (1, 2, 1):
        seed.fill_(s)
        graph.replay()
        seen.append(out.clone())
        assert torch.equal(out, bolide.top_p_sampling_from_probs(probs, 0.9, seed=s, offset=0))
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])
    on_host = bolide.top_p_sampling_from_probs(probs.cpu(), 0.9, seed=2, offset=0)
    assert (seen[1].cpu() != on_host).sum() <= 1
