# SPDX-License-Identifier: Apache-2.0
"""The library's functions as targets of JAX's calls, through tvm-ffi."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other tests need the GPU, too
jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi")

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "jax_block.py"
pytestmark = [pytest.mark.gpu] if jax.default_backend() == "gpu" else []


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("jax_block", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example(example, capsys):
    example.main(seed=int.from_bytes(os.urandom(4), "little"))
    assert capsys.readouterr().out.count("off by") == 2


def test_refusals_reach_jax(example):
    """The library's sentence, inside of JAX's error."""
    x = jax.numpy.zeros((3, 7), jax.numpy.float16)
    with pytest.raises(Exception, match="silu_and_mul: input: "):
        example.silu_and_mul(x).block_until_ready()


def test_scratch_that_is_too_small(example):
    """Of a size that would do for FlashInfer: the CPU has scratch of its own, a GPU says what it needs."""
    jnp = jax.numpy
    q, k = jnp.ones((8, 64), jnp.float16), jnp.ones((4000, 2, 64), jnp.float16)
    small = jax.ShapeDtypeStruct((16,), jnp.uint8)
    call = jax.ffi.ffi_call("decode", (example.like(q), small))
    if example.PLATFORM == "cpu":
        assert (call(q, k, k, sm_scale=0.125)[0] == 1).all()
        return
    with pytest.raises(Exception, match="workspace: size: expected at least [0-9]+ bytes; got 16"):
        call(q, k, k, sm_scale=0.125)[0].block_until_ready()


def test_modules_of_a_second_tutorial(example):
    """FlashInfer's tutorial for a model with windows gives a prefill of head size 256 32 MiB."""
    import math

    import jax_tvm_ffi

    from bolide.jit import gen_single_prefill_module

    jnp = jax.numpy
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (50, h, 256), jnp.bfloat16) for key, h in zip(keys, (4, 1, 1)))
    scale = 1 / math.sqrt(256)
    for window in (16, -1):
        run = gen_single_prefill_module("fa2", *3 * ("bfloat16",), 256, 256, 0, window >= 0, False,
                                        False).build_and_load().run
        name = f"prefill of window {window}"
        jax_tvm_ffi.register_ffi_target(
            name, lambda out, tmp, q, k, v, causal, window, run=run: run(
                q, k, v, tmp, out, None, causal, 0, window, None, None, 0.0, scale, 1.0, 1.0),
            ["rets", "args", "attrs.causal", "attrs.window"], platform=example.PLATFORM,
            pass_owned_tensor=True)
        scratch = jax.ShapeDtypeStruct((32 << 20,), jnp.uint8)
        out = jax.ffi.ffi_call(name, (example.like(q), scratch))(q, k, v, causal=1, window=window)[0]
        scores = jnp.einsum("qhd,kd->hqk", *(x.astype(jnp.float32) for x in (q, k[:, 0]))) * scale
        at = jnp.arange(50)
        seen = (at <= at[:, None]) & ((at >= at[:, None] - window) | (window < 0))
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
        expected = jnp.einsum("hqk,kd->qhd", weights, v[:, 0].astype(jnp.float32))
        assert jnp.abs(out.astype(jnp.float32) - expected).max() < 2e-2
