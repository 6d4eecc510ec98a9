# SPDX-License-Identifier: Apache-2.0
"""Our attention operators and FlashInfer's on the same tensors of a GPU, in turn.

    bench/peers_cuda.py [--ours] PROBLEM...

FORMS maps an operator to a function that takes the problem's numbers and gives named functions that
make one set of inputs and return a call on it. Calls are timed in a CUDA graph, over inputs that
together are four times the L2, at least 20 of them, and the time is divided by their number. Needs
torch; without FlashInfer there are no peers.
"""

import math
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from door import BITS, Door
from peers import numbers

try:
    import flashinfer
except ImportError:
    flashinfer = None
try:
    import vllm.vllm_flash_attn._vllm_fa3_C as fa3
except ImportError:
    fa3 = None
try:
    import cudnn
except ImportError:
    cudnn = None

DEVICE = "cuda"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f8_e4m3fn": torch.float8_e4m3fn}
CALLS = 20   # of a graph at least
LONG = 1 << 28  # bytes of a call from which on FEW calls do
FEW = 4
REPLAYS = 5
PAIRS = 9
WORKSPACE_BYTES = 512 << 20


def randn(*shape, dtype):
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).to(dtype)


def starts(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def lengths_of(value, batch):
    """len=5:7 or one number for all."""
    lengths = [int(word) for word in str(value).split(":")]
    return lengths if len(lengths) > 1 else lengths * batch


class Problem:
    """What the operators at hand have in common."""

    def __init__(self, p):
        self.p = p
        self.lengths = lengths_of(p["len"], p.get("b", 1))
        self.q_lengths = lengths_of(p.get("q_len", 1), len(self.lengths))
        self.dtype = DTYPES[p["x"]]
        self.kv_dtype = DTYPES[p.get("kv_data_type", p["x"])]
        self.heads = p["h_q"], p["h_kv"], p["d_qk" if "d_qk" in p else "d"]
        self.d_vo = p.get("d_vo", self.heads[2])
        self.o_dtype = DTYPES[p.get("o_data_type", p["x"])]
        self.causal = p.get("causal", 0)
        self.window = p.get("window_left", -1)
        self.page = p.get("page", 0)
        if self.page:
            pages = [-(-length // self.page) for length in self.lengths]
            self.indptr = starts(pages)
            self.table = torch.randperm(sum(pages)).int().to(DEVICE)
            self.last = torch.tensor([(n - 1) % self.page + 1 for n in self.lengths],
                                     dtype=torch.int32)

    def inputs(self):
        """q, k, v; with pages k and v are halves of one cache."""
        h_q, h_kv, d = self.heads
        q = randn(sum(self.q_lengths), h_q, d, dtype=self.dtype)
        if not self.page:
            return [q] + [randn(sum(self.lengths), h_kv, n, dtype=self.kv_dtype)
                          for n in (d, self.d_vo)]
        cache = randn(len(self.table), 2, self.page, h_kv, d, dtype=self.kv_dtype)
        return [q, cache[:, 0], cache[:, 1], cache]

    def numbers(self):
        """Bytes and floating-point operations of a call."""
        h_q, h_kv, d = self.heads
        width = 1 if self.kv_dtype == torch.float8_e4m3fn else 2
        both = d + self.d_vo
        bytes_ = sum(self.lengths) * h_kv * both * width + 2 * sum(self.q_lengths) * h_q * both
        pairs = sum(self.pairs(q, n) for q, n in zip(self.q_lengths, self.lengths))
        return bytes_, 2 * pairs * h_q * both

    def pairs(self, q, n):
        """Of a request's queries and keys, those that see each other."""
        if not self.causal:
            return q * n
        if self.window < 0:
            return q * n - q * (q - 1) / 2
        return sum(min(n - q + i, self.window) + 1 for i in range(q))

    def options(self):
        h_q, h_kv, _ = self.heads
        return {"num_qo_heads": h_q, "num_kv_heads": h_kv, "causal": self.causal,
                "q_data_type": BITS[self.dtype], "kv_data_type": BITS[self.kv_dtype],
                "o_data_type": BITS[self.o_dtype]}

    def output(self, q):
        return q.new_empty((*q.shape[:2], self.d_vo), dtype=self.o_dtype)


def decode(x, door, workspace):
    h_q, h_kv, d = x.heads
    bind = door.planned("batch_decode", x.options() | {
        "indptr": x.indptr, "last_page_len": x.last, "head_dim": d, "page_size": x.page,
        "max_sequence_kv": max(x.lengths)})

    def ours(q, k, v, _):
        out = torch.empty_like(q)
        return bind({"q": q, "k_cache": k, "v_cache": v, "indices": x.table, "out": out})

    def theirs(tensor_cores):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace(), "NHD", use_tensor_cores=tensor_cores)
        wrapper.plan(x.indptr, x.table, x.last, h_q, h_kv, d, x.page, q_data_type=x.dtype,
                     kv_data_type=x.kv_dtype)
        return lambda q, k, v, cache: lambda: wrapper.run(q, cache)

    return ours, {"flashinfer, tensor cores": lambda: theirs(True),
                  "flashinfer": lambda: theirs(False)}


def prefill_paged(x, door, workspace):
    h_q, h_kv, d = x.heads
    q_starts = starts(x.q_lengths)
    bind = door.planned("batch_prefill_paged", x.options() | {
        "qo_indptr": q_starts, "paged_kv_indptr": x.indptr, "paged_kv_last_page_len": x.last,
        "head_dim_qk": d, "page_size": x.page, "window_left": x.window})

    def ours(q, k, v, _):
        out = x.output(q)
        return bind({"q": q, "k_cache": k, "v_cache": v, "paged_kv_indices": x.table, "out": out})

    def theirs():
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
        wrapper.plan(q_starts, x.indptr, x.table, x.last, h_q, h_kv, d, x.page,
                     causal=bool(x.causal), q_data_type=x.dtype, kv_data_type=x.kv_dtype)
        return lambda q, k, v, cache: lambda: wrapper.run(q, cache)

    return ours, {"flashinfer fa2": theirs}


def prefill_ragged(x, door, workspace):
    h_q, h_kv, d = x.heads
    q_starts, kv_starts = starts(x.q_lengths), starts(x.lengths)
    bind = door.planned("batch_prefill_ragged", x.options() | {
        "qo_indptr": q_starts, "kv_indptr": kv_starts, "head_dim_qk": d, "head_dim_vo": x.d_vo,
        "window_left": x.window})

    def ours(q, k, v):
        out = x.output(q)
        return bind({"q": q, "k": k, "v": v, "out": out})

    def theirs():
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(), "NHD", backend="fa2")
        wrapper.plan(q_starts, kv_starts, h_q, h_kv, d, causal=bool(x.causal),
                     q_data_type=x.dtype, kv_data_type=x.kv_dtype)
        return lambda q, k, v: lambda: wrapper.run(q, k, v)

    return ours, {"flashinfer fa2": theirs}


def decode_fa3(x):
    """FlashAttention-3 on the same pages."""
    h_q, h_kv, d = x.heads
    b, most = len(x.lengths), max(x.lengths)
    starts_q = torch.arange(b + 1, dtype=torch.int32, device=DEVICE)
    pages = x.table.view(b, -1)
    used = torch.tensor(x.lengths, dtype=torch.int32, device=DEVICE)
    none = [None] * 4
    meta = torch.ops._vllm_fa3_C.get_scheduler_metadata(
        b, 1, most, h_q, h_kv, d, d, x.dtype, used, starts_q, *none, x.page, 0, True, -1, -1,
        False, 0, None, 0)

    def form(q, k, v, _):
        return lambda: torch.ops._vllm_fa3_C.fwd(
            q, k, v, *none, starts_q, None, None, None, used, 1, most, pages, *none, None, None,
            None, None, d ** -0.5, True, -1, -1, 0.0, True, meta, 0, None, 0, None, 1, 0, None)

    return form


def decode_cudnn(x):
    """cuDNN, by torch, on caches without pages of its own."""
    h_q, h_kv, d = x.heads
    b, length = len(x.lengths), x.lengths[0]

    def form(q, *_):
        k, v = (randn(b, h_kv, length, d, dtype=x.dtype) for _ in "kv")

        def call():
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                return F.scaled_dot_product_attention(q.view(b, h_q, 1, d), k, v, enable_gqa=True)

        return call

    return form


def prefill_fa3(x):
    """FlashAttention-3 on the same rows or pages."""
    h_kv, d = x.heads[1:]
    q_starts, kv_starts = starts(x.q_lengths).to(DEVICE), starts(x.lengths).to(DEVICE)
    used = torch.tensor(x.lengths, dtype=torch.int32, device=DEVICE)
    none = [None] * 4
    one = torch.ones(len(x.lengths), h_kv, device=DEVICE) if x.kv_dtype.itemsize == 1 else None
    where = (kv_starts, None, None, None) if not x.page else (None, None, None, used)
    pages = x.table.view(len(x.lengths), -1) if x.page else None

    def form(q, k, v, *_):
        return lambda: torch.ops._vllm_fa3_C.fwd(
            q, k, v, *none, q_starts, *where, max(x.q_lengths), max(x.lengths), pages, *none, None,
            one, one, one, d ** -0.5, bool(x.causal), x.window, 0 if x.window >= 0 else -1, 0.0,
            True, None, 0, None, 0, None, 1, 0, None)

    return form


def prefill_cudnn(x):
    """cuDNN's graph on the same rows of requests of one length; it has no window and no pages."""
    h_q, h_kv, d = x.heads
    b, eight = len(x.lengths), x.dtype.itemsize == 1
    kind = cudnn.data_type.FP8_E4M3 if eight else cudnn.data_type.BFLOAT16
    real = cudnn.data_type.FLOAT
    handle = cudnn.create_handle()

    def form(q, k, v):
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        q, k, v = (rows.view(b, -1, *rows.shape[1:]).permute(0, 2, 1, 3) for rows in (q, k, v))
        out = torch.empty(b, q.shape[2], h_q, x.d_vo, device=DEVICE, dtype=x.dtype)
        out = out.permute(0, 2, 1, 3)
        graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=real,
                              compute_data_type=real, handle=handle)
        names = [graph.tensor(name=n, dim=list(t.shape), stride=list(t.stride()), data_type=kind)
                 for n, t in zip("qkv", (q, k, v))]
        given = dict(zip(names, (q, k, v)))
        options = {"is_inference": True, "attn_scale": d ** -0.5, "use_causal_mask": bool(x.causal)}
        options |= dict(zip("qkv", names))
        one = [1] * 4
        if eight:
            scales = {n: graph.tensor(name=n, dim=one, stride=one, data_type=real) for n in
                      ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")}
            given |= {scale: torch.ones(one, device=DEVICE) for scale in scales.values()}
            results = graph.sdpa_fp8(**options, **scales)
            for most in results[1:]:
                if most is not None:
                    most.set_output(True).set_dim(one).set_stride(one).set_data_type(real)
                    given[most] = torch.zeros(one, device=DEVICE)
        else:
            results = graph.sdpa(**options)
        results[0].set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride()))
        results[0].set_data_type(kind)
        given[results[0]] = out
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        space = torch.empty(max(1, graph.get_workspace_size()), device=DEVICE, dtype=torch.uint8)

        def call():
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute(given, space, handle=handle)

        return call

    return form


def even(x):
    """Whether cuDNN's graph as made here is for this problem."""
    return not x.page and x.window < 0 and len({*x.lengths, *x.q_lengths}) == 1


# Other peers by operator and name: whether they are there for a problem, and what makes the form.
PREFILL = {"flash attention 3": (lambda _: fa3, prefill_fa3),
           "cudnn": (lambda x: cudnn and even(x), prefill_cudnn)}
OTHERS = {
    "batch_decode": {"flash attention 3": (lambda _: fa3, decode_fa3),
                     "cudnn": (lambda _: True, decode_cudnn)},
    "batch_prefill_ragged": PREFILL,
    "batch_prefill_paged": PREFILL,
}
FORMS = {
    "batch_decode": decode,
    "batch_prefill_paged": prefill_paged,
    "batch_prefill_ragged": prefill_ragged,
}


def rotated(make, size):
    """Sets of inputs, together four times the L2, and how often a graph goes through them."""
    cache = 4 * torch.cuda.get_device_properties(0).L2_cache_size
    sets = [make() for _ in range(math.ceil(cache / size))]
    return sets, math.ceil((CALLS if size < LONG else FEW) / len(sets))


def alternate(timers):
    """Times of each pair by name."""
    times = {name: [] for name in timers}
    for _ in range(PAIRS):
        for name, run in timers.items():
            times[name].append(run())
    return times


def timer(form, sets, rounds):
    """A function that times one graph of the form on all sets, in microseconds a call."""
    calls = [form(*inputs) for inputs in sets]
    for call in calls[:3]:  # what is compiled or loaded at first use
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    graph.replay()

    def run():
        times = []
        for _ in range(REPLAYS if rounds * len(calls) < 50 * CALLS else 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * start.elapsed_time(end) / (rounds * len(calls)))
        return statistics.median(times)

    run.kept = calls
    return run


def measure(problem, peers=True):
    """Times of each pair by name, ours first, with bytes and operations; None without a form."""
    operator, p = numbers(problem)
    if operator not in FORMS:
        return None
    x = Problem(p)
    ours, forms = FORMS[operator](
        x, Door(), lambda: torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE))
    size = x.numbers()[0]
    sets, rounds = rotated(x.inputs, size)
    timers = {"bolide": timer(ours, sets, rounds)}
    # FlashInfer converts 8-bit caches in kernels that are compiled at their first use.
    if peers and flashinfer and x.kv_dtype == x.dtype:
        for name, make in forms.items():
            timers[name] = timer(make(), sets, rounds)
    others = OTHERS.get(operator, {}) if peers and x.kv_dtype == x.dtype else {}
    for name, (there, make) in others.items():
        if there(x):
            timers[name] = timer(make(x), sets, rounds)
    return alternate(timers), *x.numbers()


def read_ceiling():
    """Bytes a second that a sum over 2 GiB reads."""
    x = torch.ones(1 << 29, device=DEVICE)
    run = timer(lambda y: lambda: torch.sum(y), [(x,)], 3)
    return x.numel() * 4 / min(run() for _ in range(3)) * 1e6


def show(problem, times, size, flops):
    """A line for each that was timed, with its time by ours."""
    print(problem)
    for name, us in times.items():
        middle = statistics.median(us)
        ratio = statistics.median(b / a for a, b in zip(times["bolide"], us))
        print(f"  {name:26s} {middle:9.2f} us  {size / middle / 1e6:6.3f} TB/s "
              f"{flops / middle / 1e6:7.1f} TFLOP/s  spread {max(us) / min(us) - 1:.3f}"
              f"  x {ratio:.3f}", flush=True)


def main():
    words = [word for word in sys.argv[1:] if word != "--ours"]
    print(f"read ceiling {read_ceiling() / 1e12:.2f} TB/s")
    for problem in words:
        show(problem, *measure(problem, "--ours" not in sys.argv))


if __name__ == "__main__":
    main()
