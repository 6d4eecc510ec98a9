# SPDX-License-Identifier: Apache-2.0
"""One decoding step in Python: attention of a token over its cache, a norm, and a sample.

Tensors of torch on a GPU or the CPU work the same way; NumPy arrays do on the CPU.
"""

import numpy as np

import bolide

rng = np.random.default_rng(0)
q = rng.standard_normal((8, 64)).astype(np.float16)  # 8 query heads of 64
k, v = rng.standard_normal((2, 100, 2, 64)).astype(np.float16)  # 100 tokens, 2 heads

out, lse = bolide.single_decode_with_kv_cache(q, k, v, return_lse=True)
x = bolide.rmsnorm(out, np.ones(64, np.float16))

logits = rng.standard_normal((8, 1000)).astype(np.float32)
probs = bolide.softmax(logits, temperature=0.7)
tokens = bolide.top_k_top_p_sampling_from_probs(probs, 40, 0.9, seed=1, offset=0)
print(x.shape, lse.shape, tokens)
