// SPDX-License-Identifier: Apache-2.0
//
// What a custom attention in FlashInfer's manner stands on: the base, the macros and the helpers
// that its struct names, and behind them the functions through which the texts of a variant
// (bolide_variant in <bolide/attention.h>) reach that struct. cpp_variant.py puts this in front of
// the struct. One object is made an element, as FlashInfer makes one a block; the compiler leaves
// nothing of it but what the element needs.
//
// What the kernel cannot give has a type of its own without conversions, so that a struct that
// reads it does not compile.

namespace flashinfer {

/* The running maximum and sum of a row, which are merged elsewhere. What comes in as output is
 * divided by the sum, so that a division by it, and a test whether there was a key, are all that
 * can be asked. */
struct row_maximum_not_here {};
struct row_sum_not_here {};

__host__ __device__ inline bool operator!=(row_maximum_not_here, float) {
    return true;
}
__host__ __device__ inline bool operator==(row_maximum_not_here, float) {
    return false;
}
template <typename T> __host__ __device__ inline T operator/(T x, row_sum_not_here) {
    return x;
}

namespace math {
constexpr float inf = __builtin_bit_cast(float, 0x7f800000);
constexpr float log2e = 1.44269504088896340736f;
constexpr float loge2 = 0.69314718055994530942f;

__host__ __device__ inline float ptx_exp2(float x) {
    return exp2f(x);
}
__host__ __device__ inline float ptx_log2(float x) {
    return log2f(x);
}
__host__ __device__ inline float ptx_lg2(float x) {
    return log2f(x);
}
__host__ __device__ inline float ptx_rcp(float x) {
    return 1.0f / x;
}
__host__ __device__ inline float ptx_rcp(row_sum_not_here) {
    return 1.0f;
}
__host__ __device__ inline float rsqrt(float x) {
    return 1.0f / sqrtf(x);
}
__host__ __device__ inline float tanh(float x) {
    return tanhf(x);
}
} // namespace math

#define REGISTER_QUERY_TRANSFORM(params, q, ...)                                                   \
    template <typename Params, typename T>                                                         \
    __device__ T QueryTransform(const Params &params, void *q_smem) {                              \
        __VA_ARGS__                                                                                \
    }

#define REGISTER_KEY_TRANSFORM(params, k, ...)                                                     \
    template <typename Params, typename T>                                                         \
    __device__ T KeyTransform(const Params &params, void *k_smem) {                                \
        __VA_ARGS__                                                                                \
    }

#define REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx,          \
                                  kv_head_idx, ...)                                                \
    template <typename Params, typename T>                                                         \
    __device__ T LogitsTransform(const Params &params, T logits, uint32_t batch_idx,               \
                                 uint32_t qo_idx, uint32_t kv_idx, uint32_t qo_head_idx,           \
                                 uint32_t kv_head_idx) {                                           \
        __VA_ARGS__                                                                                \
    }

#define REGISTER_LOGITS_MASK(params, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, ...)     \
    template <typename Params>                                                                     \
    __device__ bool LogitsMask(const Params &params, uint32_t batch_idx, uint32_t qo_idx,          \
                               uint32_t kv_idx, uint32_t qo_head_idx, uint32_t kv_head_idx) {      \
        __VA_ARGS__                                                                                \
    }

/* Once for each piece of a row's keys, behind them. m is to base 2. */
#define REGISTER_M_D_UPDATE(params, kv_tile_idx, qo_head_idx, m, d, scale, ...)                    \
    template <typename Params, typename T_M>                                                       \
    __device__ void update_m_d(const Params &params, uint32_t kv_tile_idx, uint32_t qo_head_idx,   \
                               T_M &m, float &d, float &scale) {                                   \
        __VA_ARGS__                                                                                \
    }

#define REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale,     \
                                  ...)                                                             \
    template <typename Params, typename T, typename T_M, typename T_D>                             \
    __device__ T OutputTransform(const Params &params, T output, uint32_t batch_idx,               \
                                 uint32_t qo_idx, uint32_t qo_head_idx, T_M &m, T_D &d,            \
                                 float scale) {                                                    \
        __VA_ARGS__                                                                                \
    }

struct AttentionVariantBase {
    static constexpr bool use_softmax = true;

    template <typename Params, typename T>
    __device__ T LogitsTransform(const Params &, T logits, uint32_t, uint32_t, uint32_t, uint32_t,
                                 uint32_t) {
        return logits;
    }
    template <typename Params>
    __device__ bool LogitsMask(const Params &, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t) {
        return true;
    }
    template <typename Params, typename T, typename T_M, typename T_D>
    __device__ T OutputTransform(const Params &params, T output, uint32_t, uint32_t, uint32_t,
                                 T_M &, T_D &, float) {
        return output * get_v_scale(params);
    }
    template <typename Params> __host__ __device__ static float get_v_scale(const Params &params) {
        return v_scale_of(params, 0);
    }

  private:
    template <typename Params>
    __host__ __device__ static auto v_scale_of(const Params &params, int)
        -> decltype(static_cast<float>(params.v_scale)) {
        return static_cast<float>(params.v_scale);
    }
    template <typename Params> __host__ __device__ static float v_scale_of(const Params &, long) {
        return 1.0f;
    }
};

/* What a struct for Hopper says of its softmax: none, or one of logits times a factor. */
template <int NUM_ROWS_PER_THREAD> struct DefaultUpdater {
    static constexpr bool use_softmax = false;
    __host__ __device__ DefaultUpdater(float = 1.0f) {
    }
    __host__ __device__ float factor() const {
        return 1.0f;
    }
};

template <int NUM_ROWS_PER_THREAD, bool WITH_SCALE> struct OnlineSoftmax {
    static constexpr bool use_softmax = true;
    const float sm_scale_log2;
    __host__ __device__ OnlineSoftmax(float scale = 1.0f) : sm_scale_log2(scale) {
    }
    __host__ __device__ float factor() const {
        return WITH_SCALE ? sm_scale_log2 : 1.0f;
    }
};
template <int NUM_ROWS_PER_THREAD>
using OnlineSoftmaxWithScale = OnlineSoftmax<NUM_ROWS_PER_THREAD, true>;
template <int NUM_ROWS_PER_THREAD>
using OnlineSoftmaxWithoutScale = OnlineSoftmax<NUM_ROWS_PER_THREAD, false>;

} // namespace flashinfer

namespace bolide_cpp {

using place = bolide__variant_at;
using extra_of = bolide__variant_extra;

/* The parameters, under the name that they have in either kind of struct. */
template <typename Given> struct params_of : Given {
    const Given &additional_params;
    uint32_t q_len, kv_len;

    __host__ __device__ params_of(const extra_of *extra, const place &at)
        : Given(extra), additional_params(*this), q_len(at.q_len), kv_len(at.kv_len) {
    }
    __host__ __device__ uint32_t get_qo_len(uint32_t) const {
        return q_len;
    }
    __host__ __device__ uint32_t get_kv_len(uint32_t) const {
        return kv_len;
    }
};

struct tile_not_here {};
struct offset_not_here {};

/* The block of a struct for Hopper, in the order in which it is taken apart. */
struct block {
    tile_not_here q_tile_idx;
    int qo_head_idx, kv_head_idx;
    offset_not_here qo_indptr, kv_indptr;
    int qo_len, kv_len, batch_idx;
};

template <typename Variant, typename Params>
__device__ auto make(const Params &params, const place &at, int)
    -> decltype(Variant(params, uint32_t(0), static_cast<uint8_t *>(nullptr))) {
    return Variant(params, static_cast<uint32_t>(at.request), static_cast<uint8_t *>(nullptr));
}

template <typename Variant, typename Params>
__device__ Variant make(const Params &params, const place &at, long) {
    return Variant(params, block{{}, at.head, at.kv_head, {}, {}, at.q_len, at.kv_len, at.request});
}

/* What logits are multiplied by in front of exp2, and whether there is a softmax at all. */
template <typename Variant>
__device__ auto softmax_of(Variant &v, int) -> decltype(v.template GetAttentionUpdater<1>()) {
    return v.template GetAttentionUpdater<1>();
}

template <typename Variant>
__device__ flashinfer::OnlineSoftmax<1, Variant::use_softmax> softmax_of(Variant &v, long) {
    if constexpr (Variant::use_softmax)
        return {v.sm_scale_log2};
    else
        return {1.0f};
}

template <typename Variant>
constexpr auto for_hopper(int)
    -> decltype(static_cast<Variant *>(nullptr)->template GetAttentionUpdater<1>(), bool()) {
    return true;
}
template <typename Variant> constexpr bool for_hopper(long) {
    return false;
}

template <typename Variant> constexpr bool uses_softmax() {
    if constexpr (for_hopper<Variant>(0))
        return decltype(static_cast<Variant *>(nullptr)
                            ->template GetAttentionUpdater<1>())::use_softmax;
    else
        return Variant::use_softmax;
}

template <typename Variant, typename Given>
__device__ float logits(float x, const place &at, const extra_of *extra) {
    static_assert(uses_softmax<Variant>() == (bolide__variant_softmax != 0), "softmax");
    const params_of<Given> params(extra, at);
    Variant v = make<Variant>(params, at, 0);
    const float y = v.LogitsTransform(params, x, at.request, at.query, at.key, at.head, at.kv_head);
    if constexpr (uses_softmax<Variant>())
        return y * (softmax_of(v, 0).factor() * flashinfer::math::loge2);
    return y;
}

template <typename Variant, typename Given>
__device__ bool mask(const place &at, const extra_of *extra) {
    const params_of<Given> params(extra, at);
    Variant v = make<Variant>(params, at, 0);
    return v.LogitsMask(params, at.request, at.query, at.key, at.head, at.kv_head);
}

template <typename Variant, typename Given>
__device__ float query(float x, const place &at, const extra_of *extra) {
    const params_of<Given> params(extra, at);
    Variant v = make<Variant>(params, at, 0);
    return v.template QueryTransform<params_of<Given>, float>(params, &x);
}

template <typename Variant, typename Given>
__device__ float key(float x, const place &at, const extra_of *extra) {
    const params_of<Given> params(extra, at);
    Variant v = make<Variant>(params, at, 0);
    return v.template KeyTransform<params_of<Given>, float>(params, &x);
}

template <typename Variant, typename Given>
__device__ void state(const place &at, const extra_of *extra, int piece, float &m, float &d,
                      float &scale) {
    const params_of<Given> params(extra, at);
    Variant v = make<Variant>(params, at, 0);
    v.update_m_d(params, piece, at.head, m, d, scale);
}

template <typename Variant>
__device__ auto scale_pv_of(const Variant &v, int) -> decltype(float(v.scale_pv)) {
    return v.scale_pv;
}
template <typename Variant> __device__ float scale_pv_of(const Variant &, long) {
    return 1.0f;
}

template <typename Variant, typename Given>
__device__ float output(float x, const place &at, const extra_of *extra) {
    const params_of<Given> params(extra, at);
    Variant v = make<Variant>(params, at, 0);
    if constexpr (for_hopper<Variant>(0))
        return x * scale_pv_of(v, 0);
    flashinfer::row_maximum_not_here m;
    flashinfer::row_sum_not_here d;
    return v.OutputTransform(params, x, at.request, at.query, at.head, m, d, 1.0f);
}

} // namespace bolide_cpp

using namespace flashinfer;
