# SPDX-License-Identifier: Apache-2.0
"""Bolide's operators inside jax.jit, through tvm-ffi: on the CPU, or on a GPU with JAX for CUDA.

A function of the library becomes a target of XLA's calls by register_ffi_target. Its arguments
stand in FlashInfer's order; where JAX's order (outputs, inputs, numbers) is another one, a Python
function in between changes it. What XLA passes for an absent tensor is an empty one.
"""

import jax
import jax.numpy as jnp
import jax_tvm_ffi

from bolide.jit import gen_act_and_mul_module, gen_single_decode_module
from bolide.jit.rope import gen_rope_module

PLATFORM = "gpu" if jax.default_backend() == "gpu" else "cpu"
H_Q, H_KV, D = 8, 2, 64

silu = gen_act_and_mul_module("silu").build_and_load()
rope = gen_rope_module().build_and_load()
decode = gen_single_decode_module("float16", "float16", "float16", D, D, 0, False, False)
decode = decode.build_and_load()


def register(name, function, *attributes):
    jax_tvm_ffi.register_ffi_target(
        name, function, ["rets", "args", *(f"attrs.{a}" for a in attributes)], platform=PLATFORM,
        allow_cuda_graph=True, pass_owned_tensor=True)


register("silu_and_mul", silu.silu_and_mul, "enable_pdl")
register("apply_rope", lambda q_out, k_out, q, k, *rest: rope.apply_rope(q, k, q_out, k_out, *rest),
         "rotary_dim", "interleave", "rope_scale", "rope_theta")
register("decode", lambda out, tmp, q, k, v, sm_scale: decode.run(
    q, k, v, tmp, out, None, 0, -1, None, 0.0, sm_scale, 1.0, 1e-4), "sm_scale")


def like(x, shape=None):
    return jax.ShapeDtypeStruct(x.shape if shape is None else shape, x.dtype)


def silu_and_mul(x):
    half = x.shape[:-1] + (x.shape[-1] // 2,)
    return jax.ffi.ffi_call("silu_and_mul", like(x, half), vmap_method="broadcast_all")(
        x, enable_pdl=False)


def apply_rope(q, k, indptr, offsets):
    return jax.ffi.ffi_call("apply_rope", (like(q), like(k)))(
        q, k, indptr, offsets, rotary_dim=D, interleave=False, rope_scale=1.0, rope_theta=1e4)


def single_decode(q, k, v):
    scratch = jax.ShapeDtypeStruct((32 << 20,), jnp.uint8)
    return jax.ffi.ffi_call("decode", (like(q), scratch))(q, k, v, sm_scale=D**-0.5)[0]


@jax.jit
def block(q, k, v, k_cache, v_cache, gate_up):
    """A token's rotary embedding, its attention over a cache, and a gated activation."""
    indptr = jnp.array([0, 1], jnp.int32)
    q, k = apply_rope(q, k, indptr, jnp.array([k_cache.shape[0]], jnp.int32))
    k, v = jnp.concatenate([k_cache, k]), jnp.concatenate([v_cache, v])
    return single_decode(q[0], k, v), silu_and_mul(gate_up)


def reference(q, k, v, k_cache, v_cache, gate_up):
    """The same in plain JAX, in float32."""
    q, k, v, k_cache, v_cache, gate_up = (
        x.astype(jnp.float32) for x in (q, k, v, k_cache, v_cache, gate_up))
    angle = k_cache.shape[0] * 1e4 ** (-jnp.arange(D // 2) / (D // 2))

    def turn(x):
        a, b = x[..., :D // 2], x[..., D // 2:]
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle),
                                a * jnp.sin(angle) + b * jnp.cos(angle)], -1)

    k, v = (jnp.repeat(jnp.concatenate(pair), H_Q // H_KV, 1)
            for pair in ((k_cache, turn(k)), (v_cache, v)))
    weights = jax.nn.softmax(jnp.einsum("hd,shd->hs", turn(q)[0], k) * D**-0.5, -1)
    gate, up = jnp.split(gate_up, 2, -1)
    return jnp.einsum("hs,shd->hd", weights, v), jax.nn.silu(gate) * up


def main(seed=0):
    shapes = [(1, H_Q, D), (1, H_KV, D), (1, H_KV, D), (99, H_KV, D), (99, H_KV, D), (4, 512)]
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    given = [jax.random.normal(key, shape, jnp.float16) for key, shape in zip(keys, shapes)]
    for name, ours, theirs in zip(("attention", "silu_and_mul"), block(*given), reference(*given)):
        error = float(jnp.abs(ours.astype(jnp.float32) - theirs).max())
        print(f"{name} on {PLATFORM}: off by {error:.1e}")
        assert error < 1e-2, (name, error)


if __name__ == "__main__":
    main()
