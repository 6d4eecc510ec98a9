# SPDX-License-Identifier: Apache-2.0
"""Custom attention by structs in CUDA C++. What the GPU's kernel would call is compiled for the CPU
here, element by element against the same formula in Python; tests/python/test_gpu.py runs whole
attention with them."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess

import numpy as np
import pytest

import bolide
from attention64 import Batch
from bolide._wrappers import cpp_variant
from cpp_structs import STRUCTS

PLACE = "request q_len kv_len query position head kv_head key dim".split()
PRELUDE = """
#include <math.h>
#include <stdint.h>
#define __host__
#define __device__
#define __forceinline__ inline
struct bolide__variant_at { int32_t request, q_len, kv_len, query, position, head, kv_head, key, dim; };
struct bolide__variant_extra { double number; const void *data; };
"""
CALL = """
extern "C" double call_{name}(float x, const bolide__variant_at *at,
                              const bolide__variant_extra *extra) {{
    (void)x;
    {text}
}}
"""


STATE = """
extern "C" void call_state(const bolide__variant_at *at, const bolide__variant_extra *extra,
                           int piece, float *state) {
    bolide__variant_state(at, extra, piece, state[0], state[1], state[2]);
}
"""


class At(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in PLACE]


class Extra(ctypes.Structure):
    _fields_ = [("number", ctypes.c_double), ("data", ctypes.c_void_p)]


@pytest.fixture
def built(tmp_path):
    """Compiles the texts of a struct; the functions take (x, place, parameters)."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")

    def build(name, texts=None):
        struct = STRUCTS[name]
        texts = texts or cpp_variant.texts("test", struct.name, struct.decl, struct.tensors,
                                           struct.numbers)
        softmax = 0 if texts.get("no_softmax") else 1
        code = (PRELUDE + f"enum {{ bolide__variant_softmax = {softmax} }};\n"
                + texts["declarations"]
                + "".join(CALL.format(name=n, text=t) for n, t in texts.items()
                          if n in ("logits", "mask", "query", "key", "output"))
                + (STATE if "BOLIDE__VARIANT_STATE" in texts["declarations"] else ""))
        (tmp_path / "variant.cpp").write_text(code)
        library = tmp_path / f"{name}.so"
        subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library,
                        tmp_path / "variant.cpp"], check=True)
        loaded = ctypes.CDLL(str(library))

        def call(text, x, place, *values):
            extra = (Extra * max(len(values), 1))(*(
                Extra(0, v.ctypes.data) if isinstance(v, np.ndarray) else Extra(v, None)
                for v in values))
            function = getattr(loaded, f"call_{text}")
            function.restype = ctypes.c_double
            return function(ctypes.c_float(x), ctypes.byref(place), extra)

        def state(piece, m, d, place, *values):
            extra = (Extra * len(values))(*(Extra(0, v.ctypes.data) if isinstance(v, np.ndarray)
                                            else Extra(v, None) for v in values))
            at = (ctypes.c_float * 3)(m, d, 1.0)
            loaded.call_state(ctypes.byref(place), extra, piece, at)
            return list(at)

        call.texts, call.state = texts, state
        return call

    return build


def places(rng, count=50):
    for _ in range(count):
        q_len, head = int(rng.integers(1, 20)), int(rng.integers(8))
        kv_len = q_len + int(rng.integers(40))
        query = int(rng.integers(q_len))
        yield At(int(rng.integers(5)), q_len, kv_len, query, kv_len - q_len + query, head, head // 2,
                 int(rng.integers(kv_len)), int(rng.integers(64))), float(rng.normal(0, 3))


@pytest.mark.parametrize("name", ["FlashSigmoid", "FlashSigmoidHopper"])
def test_sigmoid(built, rng, name):
    call = built(name)
    assert call.texts["no_softmax"] is True
    for at, x in places(rng):
        got = call("logits", x, at, 0.125, 0.25)
        assert got == pytest.approx(1 / (1 + math.exp(-(x * 0.125 + 0.25))), rel=1e-5)
        if "output" in call.texts:
            assert call("output", x, at, 0.125, 0.25) == np.float32(x)


@pytest.mark.parametrize("name", ["DumpLogits", "DumpLogitsHopper"])
def test_dump_logits(built, rng, name):
    """A tensor that the struct writes; logits come without a scale and leave with it."""
    call = built(name)
    assert "no_softmax" not in call.texts
    for at, x in places(rng):
        dumped = np.zeros((8, at.q_len, at.kv_len), np.float32)
        assert call("logits", x, at, dumped, 0.3) == pytest.approx(0.3 * x, rel=1e-5)
        assert dumped[at.head, at.query, at.key] == pytest.approx(0.3 * x, rel=1e-5)
        assert np.count_nonzero(dumped) == 1


def test_masks(built, rng):
    call = built("CustomMask")
    for at, x in places(rng):
        bits = rng.integers(0, 2, at.q_len * at.kv_len)
        packed = np.packbits(bits.astype(np.uint8), bitorder="little")
        seen = call("mask", 0, at, packed, 0.5)
        assert seen == bits[at.query * at.kv_len + at.key]
        assert call("logits", x, at, packed, 0.5) == pytest.approx(0.5 * x, rel=1e-5)
        # The result has been divided by the sum of its row.
        assert call("output", x, at, packed, 0.5) == np.float32(x)


def test_transforms_and_types(built, rng):
    """Elements of q and k, numbers of other types, a v_scale that the base reads."""
    call = built("Transforms")
    ids = rng.integers(-1000, 1000, 5)
    for at, x in places(rng):
        given = (ids, 3, 2.0, 0.5)
        assert call("query", x, at, *given) == np.float32(x) * 2
        assert call("key", x, at, *given) == np.float32(x) * 3
        assert call("logits", x, at, *given) == pytest.approx(x + ids[at.request], rel=1e-5, abs=1e-4)
        assert call("output", x, at, *given) == pytest.approx(0.5 * x)


def test_maximum_and_sum(built, rng):
    """A sink joins the first piece of a row and no other one."""
    call = built("AttentionSink")
    assert "no_softmax" not in call.texts
    sink = rng.normal(0, 2, 8).astype(np.float32)
    for at, m in places(rng):
        own, d = sink[at.head] / math.log(2), float(rng.uniform(0.5, 3))
        for piece, terms in ((0, [own]), (2, [])):
            new_m, new_d, scale = call.state(piece, m, d, at, sink, 0.3)
            assert new_m == pytest.approx(max([m, *terms]), rel=1e-5)
            assert new_d == pytest.approx(d * 2 ** (m - new_m) + sum(
                2 ** (t - new_m) for t in terms), rel=1e-4)
            assert scale == pytest.approx(2 ** (m - new_m), rel=1e-4)


def test_sums_of_rows_do_not_compile(built):
    struct = STRUCTS["CustomMask"]
    for use in ("d + 1.0f", "m * 2.0f", "float(d)"):
        decl = struct.decl.replace("math::ptx_rcp(d)", f"math::ptx_rcp({use})")
        texts = cpp_variant.texts("test", struct.name, decl, struct.tensors, struct.numbers)
        with pytest.raises(subprocess.CalledProcessError):
            built("CustomMask", texts)


def texts_of(decl, name="V"):
    return cpp_variant.texts("wrapper", name, decl, [], [])


def test_refusals_of_structs():
    start = "struct V : AttentionVariantBase { V(const P &p, uint32_t b, uint8_t *smem) {"
    with pytest.raises(ValueError, match="wrapper: jit_args: variant_decl: expected a struct W"):
        texts_of(start + "} };", "W")
    with pytest.raises(NotImplementedError, match="smem: there is no shared memory"):
        texts_of(start + "x = smem[0]; } };")
    with pytest.raises(NotImplementedError, match="#include cub/cub.cuh: kernels are compiled"):
        texts_of("#include <cub/cub.cuh>\n" + start + "} };")
    assert "#include" not in texts_of(
        "#include <flashinfer/attention/variant_helper.cuh>\n#include <cstdint>\n" + start
        + "} // PQuantize, smem\n};")["declarations"]


def test_structs_are_for_the_gpu(fw, rng):
    """On the CPU they are refused by name, by the wrappers and by the modules of one request."""
    if fw.device != "cpu":
        pytest.skip("of the CPU")
    b = Batch(fw, rng, [1] * 4, [9, 4, 31, 1], dtype="float16")
    s = STRUCTS["FlashSigmoid"]
    for make in (bolide.BatchDecodeWithPagedKVCacheWrapper,
                 bolide.BatchPrefillWithPagedKVCacheWrapper,
                 bolide.BatchPrefillWithRaggedKVCacheWrapper):
        with pytest.raises(NotImplementedError, match="Wrapper: jit_args: variant_decl: a struct in"):
            make(b.workspace(), jit_args=s.jit_args("float16", 64))
    args = s.jit_args("float16", 64)
    module = bolide.jit.gen_customize_single_decode_module(*args[:4], *args[5:]).build_and_load()
    k = fw.tensor(rng.standard_normal((5, 2, 64)), "float16")
    with pytest.raises(NotImplementedError, match="a struct in CUDA C.. is for the GPU"):
        bolide.decode.single_decode_with_kv_cache_with_jit_module(module, b.q[0], k, k, 0.1, 0.2)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_modules_of_one_request(fw, rng, close, layout):
    """With texts of C, which both devices take."""
    if fw.device == "cpu" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    texts = {"logits": "return 1 / (1 + expf(-(x + bias[head])));", "no_softmax": 1}
    names = (["bias"], ["float"], ["factor"], ["double"])
    q, bias = rng.standard_normal((3, 4, 64)), rng.standard_normal(4)
    k, v = rng.standard_normal((9, 2, 64)), rng.standard_normal((9, 2, 64))
    k4, v4 = (np.repeat(x, 2, 1) for x in (k, v))
    weights = 1 / (1 + np.exp(-(np.einsum("nhd,shd->hns", q, k4) / 8 + bias[:, None, None])))
    expected = np.einsum("hns,shd->nhd", weights, v4)
    order = (0, 1, 2) if layout == "NHD" else (1, 0, 2)
    qt, kt, vt = (fw.tensor(x, "float32") for x in (
        q, np.ascontiguousarray(k.transpose(order)), np.ascontiguousarray(v.transpose(order))))
    given = (fw.tensor(bias, "float32"), 1.0)
    common = ("sigmoid", "float32", "float32", "float32", 64, 64, *names, "Sigmoid", texts)
    module = bolide.jit.gen_customize_single_prefill_module("fa2", *common).build_and_load()
    got = bolide.prefill.single_prefill_with_kv_cache_with_jit_module(
        module, qt, kt, vt, *given, kv_layout=layout)
    close(fw.numbers(got), expected, "float32", 9.0)
    causal = expected.copy()
    for i in range(3):
        causal[i] = np.einsum("hs,shd->hd", weights[:, i, :7 + i], v4[:7 + i])
    got = bolide.prefill.single_prefill_with_kv_cache_with_jit_module(
        module, qt, kt, vt, *given, kv_layout=layout, mask_mode=1)
    close(fw.numbers(got), causal, "float32", 9.0)
    module = bolide.jit.gen_customize_single_decode_module(*common).build_and_load()
    got = bolide.decode.single_decode_with_kv_cache_with_jit_module(
        module, qt[2], kt, vt, *given, kv_layout=layout)
    close(fw.numbers(got), expected[2], "float32", 9.0)
    with pytest.raises(NotImplementedError, match="mask_mode: expected 0 or 1; got 2"):
        bolide.prefill.single_prefill_with_kv_cache_with_jit_module(
            bolide.jit.gen_customize_single_prefill_module("fa2", *common).load(), qt, kt, vt,
            *given, kv_layout=layout, mask_mode=2)
