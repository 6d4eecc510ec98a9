# SPDX-License-Identifier: Apache-2.0
"""What torch alone has: its dtypes on every path, generators, torch.compile, streams and graphs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import bolide  # noqa: E402
from bolide import _binding, _frameworks, _library  # noqa: E402

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def needs_gpu(test):
    return pytest.mark.gpu(pytest.mark.skipif(len(DEVICES) == 1, reason="no GPU")(test))


@pytest.fixture(params=["direct", "packed"])
def path(request, monkeypatch):
    """Both ways of a tensor into the binding: as it is, and as bytes for older torch."""
    if request.param == "packed":
        monkeypatch.setattr(_binding, "_direct", set())
    elif not _library.torch_is_direct:
        pytest.skip("this torch has no exchange interface")
    return request.param


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_both_paths(path, device, dtype):
    x = torch.randn(7, 128, device=device).to(dtype)[:, :96]
    w = torch.nn.Parameter(torch.randn(96, device=device).to(dtype), requires_grad=False)
    out = bolide.rmsnorm(x, w)
    x64, w64 = x.double(), w.double()
    expected = x64 * torch.rsqrt((x64**2).mean(-1, keepdim=True) + 1e-6) * w64
    assert type(out) is torch.Tensor and out.dtype is dtype and out.device == x.device
    torch.testing.assert_close(out.double(), expected, rtol=2e-2, atol=2e-2)
    given = torch.empty_like(out)
    assert bolide.rmsnorm(x, w, out=given) is given and torch.equal(given, out)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_passes(path, device, dtype):
    kind = getattr(torch, dtype)
    x = torch.randn(3, 64, device=device)
    out = torch.empty(3, 64, dtype=kind, device=device)
    bolide.rmsnorm_quant(out, x, torch.ones(64, device=device), 0.1)
    expected = x * torch.rsqrt((x**2).mean(-1, keepdim=True) + 1e-6) * 10
    torch.testing.assert_close(out.float(), expected, rtol=0.13, atol=0.1)
    q = torch.randn(4, 64, device=device).half()
    k = torch.randn(30, 2, 64, device=device).to(kind)
    got = bolide.single_decode_with_kv_cache(q, k, k, k_scale=0.5)
    k32 = k.float().repeat_interleave(2, 1)
    p = torch.softmax(torch.einsum("hd,shd->hs", q.float(), k32) / 16, -1)
    expected = torch.einsum("hs,shd->hd", p, k32)
    torch.testing.assert_close(got.float(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.skipif(not hasattr(torch, "uint64"), reason="this torch has no uint64")
def test_unsigned_passes(path, device):
    probs = torch.softmax(torch.randn(4, 100, device=device), -1)
    draw = [torch.tensor([v], dtype=torch.uint64, device=device) for v in (5, 4)]
    got = bolide.sampling_from_probs(probs, seed=draw[0], offset=draw[1])
    assert torch.equal(got, bolide.sampling_from_probs(probs, seed=5, offset=4))


@pytest.mark.parametrize("device", DEVICES)
def test_generators(device):
    if not bolide._rows.supports("sampling_from_probs", device):
        pytest.skip("sampling is not on the GPU")
    probs = torch.softmax(torch.randn(64, 100, device=device), -1)
    first = torch.Generator(device).manual_seed(7)
    second = torch.Generator(device).manual_seed(7)
    a, b = (bolide.sampling_from_probs(probs, generator=first) for _ in "ab")
    assert not torch.equal(a, b)
    assert torch.equal(a, bolide.sampling_from_probs(probs, generator=second))
    assert torch.equal(b, bolide.sampling_from_probs(probs, generator=second))
    torch.manual_seed(3)
    a = bolide.top_p_sampling_from_probs(probs, 0.9)
    torch.manual_seed(3)
    assert torch.equal(a, bolide.top_p_sampling_from_probs(probs, 0.9))


@needs_gpu
def test_offset_of_the_generator():
    generator = torch.Generator("cuda").manual_seed(7)
    seed, offset = bolide.sampling.get_seed_and_offset(5, generator, torch.device("cuda"))
    assert (seed, offset) == (7, 8)
    assert bolide.sampling.get_seed_and_offset(4, generator, torch.device("cuda")) == (7, 12)


def test_tensors_without_memory_here(path):
    """Refused by the argument's name, whichever way a tensor goes."""
    x, w = torch.ones(2, 8), torch.ones(8)
    for text, call in {
        "input: device: expected a CPU or CUDA tensor; got meta": lambda: bolide.rmsnorm(
            x.to("meta"), w.to("meta")),
        "weight: device: expected a CPU or CUDA tensor; got meta": lambda: bolide.rmsnorm(
            x, w.to("meta")),
        "input: layout: expected strided; got torch.sparse_coo": lambda: bolide.rmsnorm(
            x.to_sparse(), w, out=x.clone()),
        "input: value: expected a tensor; got one of a transform": lambda: torch.vmap(
            lambda a: bolide.rmsnorm(a, w))(torch.ones(3, 2, 8)),
    }.items():
        with pytest.raises(ValueError, match="^rmsnorm: " + text):
            call()


# ---- streams and graphs ----------------------------------------------------------------------


@needs_gpu
def test_current_stream_is_used(path):
    x, w = torch.randn(512, 4096, device="cuda"), torch.ones(4096, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        y = x * 2
        out = bolide.rmsnorm(y, w)
    stream.synchronize()
    expected = torch.nn.functional.rms_norm(x * 2, (4096,), w, 1e-6)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@needs_gpu
def test_graph(path):
    x, w = torch.randn(8, 4096, device="cuda"), torch.randn(4096, device="cuda")
    out = torch.empty_like(x)
    bolide.rmsnorm(x, w, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bolide.rmsnorm(x, w, out=out)
    x.normal_()
    out.zero_()
    graph.replay()
    torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (4096,), w, 1e-6), rtol=1e-4,
                               atol=1e-4)


def test_scratch_grows_and_stays(monkeypatch):
    made = []

    def empty(size, **options):
        made.append(torch.zeros(size, dtype=torch.uint8))
        return made[-1]

    capturing = [False]
    monkeypatch.setattr(_frameworks, "_scratch", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(_frameworks.torch, "empty", empty)
    first = _frameworks._grow(0, 7, 100)
    capturing[0] = True
    assert _frameworks._grow(0, 7, 1 << 20) == first and len(made) == 1
    with pytest.raises(RuntimeError, match="scratch: 50000000 bytes were first needed during"):
        _frameworks._grow(0, 7, 50_000_000)
    capturing[0] = False
    assert _frameworks._grow(0, 7, 50_000_000) != first
    assert [t.numel() for t in made] == [1 << 25, 1 << 26] and _frameworks._grow(0, 8, 1) not in (
        first,)
    assert len(_frameworks._scratch[0, 7]) == 2


# ---- the package -----------------------------------------------------------------------------


def test_helpers():
    assert bolide.utils.canonicalize_torch_dtype("float16") is torch.float16
    assert torch.bfloat16 == bolide.bfloat16 and bolide.bfloat16 == torch.bfloat16
    slopes = bolide.utils.get_alibi_slopes(6)
    np.testing.assert_allclose(slopes, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    assert bolide.utils.get_indptr(torch.tensor([2, 3])).tolist() == [0, 2, 5]
    assert _frameworks.torch_dtype("fp16") is torch.float16


def test_attention_counts():
    from bolide import testing

    assert testing.attention_flops(2, 4, 6, 64, 32, 8, False) == 2 * 8 * 2 * 4 * 6 * 96
    pairs = sum(min(i + 2, 5) + 1 for i in range(4))
    assert testing.attention_flops(1, 4, 6, 64, 64, 1, True) in (
        2 * pairs * 128, 4 * (12 - 4) * 128)
    lens = torch.tensor([4, 4])
    assert testing.attention_flops_with_actual_seq_lens(lens, lens + 2, 64, 32, 8, False) == (
        testing.attention_flops(2, 4, 6, 64, 32, 8, False))
    assert testing.attention_tb_per_sec(1, 1, 1000, 128, 128, 32, 8, 1.0) == pytest.approx(
        (2 * 32 * 128 * 2 + 1000 * 8 * 256 * 2) / 1e9)


def test_timing():
    times = bolide.testing.bench_gpu_time(lambda x: x + 1, dry_run_iters=2, repeat_iters=5,
                                          input_args=(torch.ones(10, device=DEVICES[-1]),))
    assert len(times) == 5 and all(t > 0 for t in times)


def test_import_lets_tvm_ffi_build_nothing():
    code = ("import torch, os, bolide\n"
            "print(os.environ.get('TVM_FFI_DISABLE_TORCH_C_DLPACK'), "
            "hasattr(torch.Tensor, '__dlpack_c_exchange_api__'))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    disabled, native = out.stdout.split()
    assert native == "True" or disabled == "1"
