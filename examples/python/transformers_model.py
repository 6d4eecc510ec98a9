# SPDX-License-Identifier: Apache-2.0
"""Bolide as the attention of Hugging Face transformers: registered once, chosen by name.

A prompt is read, then tokens are added one by one to the cache, by a small random Llama and by a
small random Gemma 2 with its windows and soft cap; the logits are compared with transformers' own.
"""

import torch
from transformers import (
    AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, Gemma2Config, LlamaConfig)
from transformers.masking_utils import flash_attention_mask

import bolide


def attention(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None,
              is_causal=None, sliding_window=None, softcap=None, **kwargs):
    """query is [b, h_q, n, d], key and value [b, h_kv, s, d]; the last n of s tokens are new."""
    if attention_mask is not None or dropout:
        raise NotImplementedError("padding and dropout are not part of this example")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    rows = [
        bolide.single_prefill_with_kv_cache(
            q.transpose(0, 1), k, v, causal=causal, kv_layout="HND", sm_scale=scaling,
            window_left=sliding_window - 1 if sliding_window else -1, logits_soft_cap=softcap)
        for q, k, v in zip(query, key, value)]
    return torch.stack(rows), None


AttentionInterface.register("bolide", attention)
AttentionMaskInterface.register("bolide", flash_attention_mask)

SMALL = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, pad_token_id=0,
             initializer_range=0.2)


def logits(model, implementation, tokens, prompt):
    """Logits of the prompt at once and of each token behind it, with the cache."""
    model.set_attn_implementation(implementation)
    with torch.inference_mode():
        step = model(tokens[:, :prompt], use_cache=True)
        found = [step.logits]
        for i in range(prompt, tokens.shape[1]):
            step = model(tokens[:, i:i + 1], past_key_values=step.past_key_values, use_cache=True)
            found.append(step.logits)
    return torch.cat(found, 1).float()


def worst(config, reference, dtype, device):
    """The largest difference of two logits, and the largest logit."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).to(device).eval()
    tokens = torch.randint(1, 256, (2, 40), device=device)
    ours, theirs = (logits(model, name, tokens, 29) for name in ("bolide", reference))
    return (ours - theirs).abs().max().item(), theirs.abs().max().item()


def main(device):
    llama = LlamaConfig(**SMALL)
    gemma = Gemma2Config(**SMALL, sliding_window=8, attn_logit_softcapping=5.0,
                         query_pre_attn_scalar=16)
    for config, reference in ((llama, "sdpa"), (gemma, "eager")):
        for dtype in (torch.float32, torch.bfloat16):
            error, largest = worst(config, reference, dtype, device)
            limit = largest * (1e-5 if dtype == torch.float32 else 6e-2)
            print(f"{config.model_type} {dtype}: off by {error:.2e}, logits up to {largest:.2f}")
            assert error <= limit, (error, limit)


if __name__ == "__main__":
    main("cuda" if torch.cuda.is_available() else "cpu")
