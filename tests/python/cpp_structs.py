# SPDX-License-Identifier: Apache-2.0
"""Custom attention as programs for FlashInfer write it: structs on its base, with its macros, for
its kernels of either generation."""

from __future__ import annotations

from typing import NamedTuple


class Struct(NamedTuple):
    """A struct, and its tensors and numbers as (type, name)."""

    name: str
    decl: str
    tensors: list
    numbers: list

    def jit_args(self, dtype, d):
        """FlashInfer's list."""
        return ("test_" + self.name, dtype, dtype, dtype, "int32", d, d,
                [n for _, n in self.tensors], [t for t, _ in self.tensors],
                [n for _, n in self.numbers], [t for t, _ in self.numbers], self.name, self.decl)


_FA2 = """
  uint32_t window_left, qo_len, kv_len;
  float sm_scale_log2;
  template <typename Params>
  __device__ __host__ %s(const Params& params, uint32_t batch_idx, uint8_t* smem_ptr) {
    qo_len = params.get_qo_len(batch_idx);
    kv_len = params.get_kv_len(batch_idx);
    window_left = kv_len;
    %s
  }
"""

STRUCTS = {
    "FlashSigmoid": Struct("FlashSigmoid", """
struct FlashSigmoid : AttentionVariantBase {
  static constexpr bool use_softmax = false;
  float bias_log2;
""" + _FA2 % ("FlashSigmoid", """sm_scale_log2 = params.logits_scale * math::log2e;
    bias_log2 = params.sigmoid_bias * math::log2e;""") + """
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return math::ptx_rcp(1.f + math::ptx_exp2(-float(logits * sm_scale_log2 + bias_log2)));
  });

  REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale, {
    return output;
  })
};
""", [], [("double", "logits_scale"), ("double", "sigmoid_bias")]),

    "FlashSigmoidHopper": Struct("FlashSigmoid", """
struct FlashSigmoid : AttentionVariantBase {
  float scale_log2, bias_log2;
  template <typename MainloopParams, typename BlockCoord>
  __device__ __host__ FlashSigmoid(const MainloopParams& params, const BlockCoord& block_coord) {
    scale_log2 = params.additional_params.logits_scale * math::log2e;
    bias_log2 = params.additional_params.sigmoid_bias * math::log2e;
  }
  template <int NUM_ROWS_PER_THREAD>
  __device__ auto GetAttentionUpdater() {
    return DefaultUpdater<NUM_ROWS_PER_THREAD>();
  }
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return math::ptx_rcp(1.f + math::ptx_exp2(-float(logits * scale_log2 + bias_log2)));
  });
};
""", [], [("double", "logits_scale"), ("double", "sigmoid_bias")]),

    "DumpLogits": Struct("DumpLogits", """
struct DumpLogits : AttentionVariantBase {
  static constexpr bool use_softmax = true;
""" + _FA2 % ("DumpLogits", "sm_scale_log2 = params.sm_scale * math::log2e;") + """
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    if (qo_idx < qo_len && kv_idx < kv_len) {
      const uint32_t at = qo_head_idx * (qo_len * kv_len) + qo_idx * kv_len + kv_idx;
      params.output_logits[at] = logits * params.sm_scale;
    }
    return logits;
  });
};
""", [("float", "output_logits")], [("double", "sm_scale")]),

    "DumpLogitsHopper": Struct("DumpLogits", """
#include <flashinfer/attention/hopper/variant_helper.cuh>
using namespace flashinfer;
struct DumpLogits : AttentionVariantBase {
  float sm_scale_log2;
  uint32_t qo_len, kv_len;
  template <typename MainloopParams, typename BlockCoord>
  __device__ __host__ DumpLogits(const MainloopParams& params, const BlockCoord& block_coord) {
    sm_scale_log2 = params.additional_params.sm_scale * math::log2e;
    auto [_, __, ___, ____, _____, qo_len_, kv_len_, batch_idx] = block_coord;
    qo_len = qo_len_;
    kv_len = kv_len_;
  }
  template <int NUM_ROWS_PER_THREAD>
  __device__ auto GetAttentionUpdater() {
    return OnlineSoftmax<NUM_ROWS_PER_THREAD, /*WITH_SCALE=*/true>(sm_scale_log2);
  }
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    auto& more = params.additional_params;
    if (qo_idx < qo_len && kv_idx < kv_len) {
      more.output_logits[(qo_head_idx * qo_len + qo_idx) * kv_len + kv_idx] = logits * more.sm_scale;
    }
    return logits;
  });
};
""", [("float", "output_logits")], [("double", "sm_scale")]),

    "CustomMask": Struct("CustomMask", """
struct CustomMask : AttentionVariantBase {
  static constexpr bool use_softmax = true;
  uint8_t* mask_ptr;
""" + _FA2 % ("CustomMask", """mask_ptr = params.custom_mask;
    sm_scale_log2 = params.sm_scale * math::log2e;""") + """
  REGISTER_LOGITS_MASK(params, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    const uint32_t offset = qo_idx * kv_len + kv_idx;
    return ((mask_ptr[offset / 8] >> (offset % 8)) & 1);
  })

  REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale, {
    float d_rcp = (m != -math::inf) ? math::ptx_rcp(d) : 0.f;
    return output * d_rcp;
  })
};
""", [("uint8_t", "custom_mask")], [("double", "sm_scale")]),

    "Transforms": Struct("Transforms", """
struct Transforms : AttentionVariantBase {
""" + _FA2 % ("Transforms", "sm_scale_log2 = math::log2e;") + """
  REGISTER_QUERY_TRANSFORM(params, q, { return *(T*)q_smem * T(params.factor); })
  REGISTER_KEY_TRANSFORM(params, k, { return *(T*)k_smem * T(params.times); })
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return logits + float(params.ids[batch_idx]);
  })
};
""", [("int64_t", "ids")], [("int32_t", "times"), ("float", "factor"), ("double", "v_scale")]),

    "AttentionSink": Struct("AttentionSink", """
struct AttentionSink : AttentionVariantBase {
  static constexpr bool use_softmax = true;
""" + _FA2 % ("AttentionSink", "sm_scale_log2 = params.sm_scale * math::log2e;") + """
  REGISTER_M_D_UPDATE(params, kv_tile_idx, qo_head_idx, m, d, scale, {
    float log_sink = kv_tile_idx == 0 ? params.sink[qo_head_idx] * math::log2e : -math::inf;
    float m_new = (log_sink > m) ? log_sink : m;
    scale = math::ptx_exp2(m - m_new);
    d = math::ptx_exp2(log_sink - m_new) + d * scale;
    m = m_new;
  })
  REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale, {
    float d_rcp = (m != -math::inf) ? math::ptx_rcp(d) : 0.f;
    return output * scale * d_rcp;
  });
};
""", [("float", "sink")], [("double", "sm_scale")]),
}
