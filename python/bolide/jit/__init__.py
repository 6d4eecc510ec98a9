# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's compiled modules of functions, of which :mod:`bolide.jit.modules` has some, as far as
programs use them. Nothing here compiles anything."""

from .. import _docs, _missing
from . import env, rope, utils  # noqa: F401
from .attention import (
    gen_customize_single_decode_module, gen_customize_single_prefill_module)
from .batch import (
    gen_batch_attention_module, gen_batch_decode_mla_module, gen_batch_decode_module,
    gen_batch_mla_module, gen_batch_pod_module, gen_batch_prefill_module, gen_pod_module)
from .core import JitSpec, MissingJITCacheError, build_jit_specs
from .files import gen_jit_spec
from .modules import (
    gen_act_and_mul_module, gen_single_decode_module, gen_single_prefill_module,
    get_single_decode_uri, get_single_prefill_uri)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
