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
    jnp = jax.numpy
    q, k = jnp.ones((8, 64), jnp.float16), jnp.ones((4000, 2, 64), jnp.float16)
    small = jax.ShapeDtypeStruct((16,), jnp.uint8)
    call = jax.ffi.ffi_call("decode", (example.like(q), small))
    with pytest.raises(Exception, match="workspace: size: expected at least [0-9]+ bytes; got 16"):
        call(q, k, k, sm_scale=0.125)[0].block_until_ready()
