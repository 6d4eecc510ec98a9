# SPDX-License-Identifier: Apache-2.0
"""Docstrings name every argument. Most of FlashInfer's arguments recur through dozens of functions
with one meaning, so those meanings stand here once: a function whose docstring does not name an
argument gains a line for it, from the function that its docstring refers to (``:meth:`run```,
``:func:`apply_rope```) or from the table below. A test finds arguments that neither describes."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, Iterable, Optional

# NAME: text, or FAMILY/NAME where a family of functions (its module) means something of its own.
_TABLE = """
activation_type: a member of ActivationType or its value.
actual_seq_lens_kv: ``[b]`` integers, keys of each request.
actual_seq_lens_q: ``[b]`` integers, queries of each request.
additional_scalar_dtypes: their types in C++, as strings.
additional_scalar_names: numbers that the variant reads, by name; run takes them behind the tensors.
additional_tensor_dtypes: their elements' types in C++, as strings.
additional_tensor_names: tensors that the variant reads, by name; run takes them in this order.
aggregate_op: how the times of several processes become one, such as max; None keeps each its own.
append_value: ``[nnz, h_kv, d]``, of append_key's dtype.
args: the variant's own tensors and numbers, in the order of ``jit_args``.
backend: a name of FlashInfer's; all stand for the same contract, others raise ValueError.
backend_checks: for each backend's name a predicate of the arguments.
batch_indices: ``[nnz]`` int32, the request of each new token; a negative one is skipped.
batch_offsets_k: ``[b]`` or ``[b + 1]`` int32, elements before each request's keys in k_cache.
batch_offsets_o: ``[b]`` or ``[b + 1]`` int32, elements before each request's rows of out.
batch_offsets_v: ``[b]`` or ``[b + 1]`` int32, elements before each request's values in v_cache.
batch_size: requests.
bitorder: "big" or "little": which bit of a byte comes first.
block_tables: ``[b, most pages]`` int32, the pages of each request in order.
bmm1_scale: a number or a float32 tensor of one element: multiplies logits, so it holds the softmax
    scale and what stored values of q and k stand for.
bmm2_scale: a number or a float32 tensor of one element: multiplies the result.
causal: whether a query sees no key behind its own place; the last query stands at the last key.
check_nan: reads the input once more, waits, and raises ValueError where it holds a NaN.
cold_l2_cache: writes twice the cache's size before each call.
common_check: a predicate of the arguments for all backends.
compressed_kv_cache: the cache that the second part of a list points into.
cos_sin_cache: ``[max_pos, rotary_dim]`` float32, cosines then sines.
custom_checks: further checks of a pipeline.
custom_fusion_rules: rules that are tried before the package's own.
custom_mask: bool, the ``[q_len, kv_len]`` masks of all requests one behind the other, True where a
    query sees a key; it takes the place of causal.
custom_mask_buf: uint8, room for the packed masks of every plan; in graphs.
custom_validity_checks: checks of a pipeline besides the package's own.
data: the tensor.
data_type: q's and the cache's dtype at once, in older programs.
default_params: values that a call may leave out.
deterministic: a hint; the same seed gives the same tokens either way.
device: a device, such as "cuda:0".
device_types: accepted and not needed.
dim: an axis; all of them if it is None.
disable_split_kv: a request is never cut into parts, so that its result does not depend on others.
dry_run_iters: calls before those that are timed; from dry_run_time_ms if it is None.
dry_run_time_ms: about how long to warm up, in milliseconds.
dsa_graph_safe: a hint; every call can be captured.
dtype: an element type.
dtype_idx: dtype of page tables.
dtype_kv: dtype of keys and values.
dtype_o: dtype of the result.
dtype_q: dtype of queries.
enable_pdl: a hint that changes no result.
eps: added under the root.
epsilon: added to the variance under the root.
execution_time: in milliseconds.
expected_device: the device, or None.
expected_dtype: the dtype, or None.
expected_shape: the shape, or None.
filter_apply_order: "top_k_first" renormalises behind top_k, "joint" holds both tests against the
    original distribution.
fixed_split_size: pages of a part of a request's keys; None lets the plan choose.
float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes; at least the first
    size of ``workspace_size``.
fn: the function.
fp8_enabled: a hint.
generator: of torch, where seed and offset come from without them; it advances.
global_scaling_factor: of the formats of fewer bits, refused.
hca_is_causal: whether a list ends at the position of its query.
head_dim: channels of a head.
head_dim_qk: channels of a query's and a key's head.
head_dim_vo: channels of a value's and an output's head.
head_dimensions: the sizes of a head.
head_size: channels of a head.
high_freq_factor: a wavelength below old_context_len / high_freq_factor keeps its frequency.
indices: int32, the pages of all requests one behind the other.
sampling/indices: ``[n]`` int32 or int64, the row of each draw; one draw a row if it is None.
indices_buffer: int32, as long as the largest list of pages.
indptr: ``[b + 1]`` int32: request i has the pages ``indices[indptr[i]:indptr[i + 1]]``.
indptr_buffer: ``[b + 1]`` int32.
initial_type: the type of the pipeline's input.
input: ``[n, d]``.
input_args: positional arguments of fn.
input_global_scaling_factor: multiplies input, or None.
input_kwargs: named arguments of fn; with input_args it gives buffers to rotate.
input_type: the type of what the step gets.
int_workspace_buffer: uint8 on the same device; at least the second size of ``workspace_size``.
int_workspace_buffers: one for each level.
interleave: True pairs neighbouring channels, False the halves of a head.
is_deterministic: a hint; the result is the same every time.
is_neox: True pairs the halves of a head, False neighbouring channels.
is_var_seq: a hint; lengths come from seq_lens.
k: ``[n, h_kv, d_qk]``, keys.
k_nope: ``[n, h_kv, d_nope]``, or ``[n, d_nope]``.
k_nope_out: like k_nope, in quantize_dtype; allocated if None.
k_rope: ``[n, h_kv, d_rope]``, or ``[n, d_rope]``.
k_rope_out: like k_rope, in quantize_dtype; allocated if None.
k_scale: a number or a float32 tensor of one element, what a stored 1.0 of k stands for.
key: ``[n, h_kv * head_size]``.
kv_cache: pages of keys and values, a pair of tensors or one with both on its second axis.
kv_cache_sf: scales of a cache in FP4, refused.
kv_data_type: dtype of the cache; that of q if it is None.
kv_dtype: dtype of k and v.
kv_indices: int32, the pages of all requests one behind the other.
kv_indptr: ``[b + 1]`` int32: request i has the pages ``kv_indices[kv_indptr[i]:kv_indptr[i + 1]]``.
kv_indptr_buf: ``[b + 1]`` int32.
kv_last_page_len: ``[b]`` int32, keys in each request's last page, from 1 to page_size.
kv_layout: "NHD" has pages ``[page, token, head, dim]``, "HND" ``[page, head, token, dim]``.
kv_lora_rank: channels of the compressed part.
kv_seqlen: keys of each request.
l2_flush: the older name of cold_l2_cache.
l2_flush_device: where the memory lies that is written between calls, in older programs.
l2_flush_size_mb: how much of it is written, in older programs.
last_page_len: ``[b]`` int32, keys in each request's last page, from 1 to page_size.
last_page_len_buffer: ``[b]`` int32.
launch_with_pdl: a hint that changes no result.
load_balance: a hint.
logits: ``[n, v]`` float32, float16 or bfloat16.
logits_soft_cap: cap of logits by ``cap * tanh(logit / cap)``; None or 0 for none.
low_freq_factor: a wavelength above old_context_len / low_freq_factor has its frequency divided by
    rope_scale; between the two it is blended.
mask: whether the merge takes place, one flag a row; all rows if it is None.
mask_indptr_buf: ``[b + 1]`` int32, where each mask begins; in graphs.
mat_a: ``[m, k]`` bfloat16.
mat_b: ``[k, n]`` bfloat16, column by column.
max_item_len_ptr: ``[b]`` uint16, the longest item of each request.
max_seq_len: the largest of seq_lens, or more.
max_sequence_kv: the most keys of a request; saves a wait where lengths lie on the GPU.
max_tile_tokens_dim: the largest result.
max_token_per_sequence: the most queries of a request; saves a wait where lengths lie on the GPU.
message: the sentence of the error.
min_rotations: the fewest copies.
ms: the time in milliseconds.
multi_ctas_kv_counter_buffer: a hint; no kernel here needs counters.
mutates_args: accepted and not needed.
name: a name for messages.
non_blocking: a hint; a plan never waits for copies that it made.
norm_out: the normalised result, allocated if None.
num_experts: experts.
num_heads: heads of queries.
num_iters_within_graph: calls in one graph.
num_kv_heads: heads of keys and values; it divides num_qo_heads.
num_qo_heads: heads of queries and outputs.
num_tokens: tokens.
o_data_type: dtype of the result; that of q if it is None.
o_dtype: dtype of out.
o_scale: a number, what a stored 1.0 of the result stands for.
o_sf_scale: of outputs in FP4, refused.
o_sf_vec_size: of outputs in FP4, refused.
offset: of the random numbers of seed, likewise a number or int64 tensor.
offsets: ``[b]``, of indptr's dtype: the position of each request's first row.
topk/offsets: ``[n]`` int32, added to the indices of each row.
old_context_len: tokens of the context that the model was first trained on.
op: how the times of several processes become one.
ops: the steps of the pipeline.
out: where the result goes, of the shape and dtype of what is returned; allocated if None.
out_dtype: dtype of the result if out is None.
out_indices: int32 ``[n, top_k]``; allocated if None.
out_values: of the logits' dtype ``[n, top_k]``; written where it is given.
packed_custom_mask: custom_mask as bits, as of :func:`packbits` with "little", each request's mask
    beginning with a byte of its own.
page_size: tokens of a page.
page_table_row_starts: ``[n]`` int32, where a row's part of its page table begins.
paged_ckv_cache: ``[pages, page_size, d_ckv]``.
paged_kpe_cache: ``[pages, page_size, d_kpe]``.
paged_kv_cache: pages of keys and values, a pair of tensors or one with both on its second axis.
paged_kv_indices: int32, the pages of all requests one behind the other.
paged_kv_indices_arr: of each level, int32, the pages of all its requests one behind the other.
paged_kv_indices_buf: int32, as long as the largest list of pages; in graphs.
paged_kv_indices_buf_arr: of each level, int32, as long as its largest list of pages; in graphs.
paged_kv_indptr: ``[b + 1]`` int32, where each request's pages begin in paged_kv_indices.
paged_kv_indptr_arr: of each level, ``[b + 1]`` int32, where each request's pages begin.
paged_kv_indptr_buf: ``[b + 1]`` int32; in graphs.
paged_kv_indptr_buf_arr: of each level, ``[b + 1]`` int32; in graphs.
paged_kv_last_page_len: ``[b]`` int32, keys in each request's last page; of each level in cascades.
paged_kv_last_page_len_buf: ``[b]`` int32; in graphs.
paged_kv_last_page_len_buf_arr: of each level, ``[b]`` int32; in graphs.
params: values that a call may leave out, by name.
pdl: a hint that changes no result.
pos_encoding_mode: "NONE", "ROPE_LLAMA" turns q and k in the kernel, "ALIBI" adds slopes to logits.
pos_ids: ``[n]`` int32 or int64, the position of each row.
positions: ``[nnz]`` int32, the place of each new token in its request.
pre_idx: a hint.
prefix_len_ptr: ``[b]`` uint32, keys that all items of a request share (multi-item scoring).
probs: ``[n, v]``, rows that sum to 1.
processors: the steps, from logits to tokens.
q: ``[n, h_q, d_qk]``, queries.
q_data_type: dtype of q.
q_dtype: dtype of q.
q_len_per_req: queries of each request.
q_nope: ``[n, h_q, d_nope]``.
q_nope_out: like q_nope, in quantize_dtype; allocated if None.
q_pe: ``[b, h_q, d_kpe]``.
q_rope: ``[n, h_q, d_rope]``.
q_rope_out: like q_rope, in quantize_dtype; allocated if None.
q_scale: a number or a float32 tensor of one element, what a stored 1.0 of q stands for.
qk_nope_head_dim: channels of a query's head that do not turn.
qk_rope_head_dim: channels of a query's head that turn.
qo_indptr: ``[b + 1]`` int32: request i has the rows ``q[qo_indptr[i]:qo_indptr[i + 1]]``.
qo_indptr_arr: of each level, ``[b + 1]`` int32, where each request's rows begin in q.
qo_indptr_buf: ``[b + 1]`` int32; in graphs.
qo_seqlen: queries of each request.
quant_scale_kv: multiplies k before the conversion.
quant_scale_q: multiplies q before the conversion.
quantize_dtype: float8_e4m3fn (the default) or float8_e5m2.
query: ``[n, h_q, d]``, queries.
random_seed: the seed.
repeat_iters: calls that are timed; from repeat_time_ms if it is None.
repeat_time_ms: about how long to measure, in milliseconds.
residual: like input; the sum is stored in it.
residual_out: the sum, allocated if None.
return_lse: whether to return ``(out, lse)``, lse float32 ``[n, h_q]`` to base 2.
return_valid: whether to return ``(tokens, valid)``; valid is False for a row of zeros or NaN.
rope_scale: divides positions; 1 if it is None.
rope_theta: base of the frequencies; 1e4 if it is None.
row_starts: ``[n]`` int32, the column at which a row begins.
triton/s: ``[n, h]`` float32, the lse of v to base 2; written.
s_a: ``[n, h]`` float32, the lse of v_a to base 2.
s_b: ``[n, h]`` float32, the lse of v_b to base 2.
s_other: ``[n, h]`` float32, the lse of v_other to base 2.
scale_bias: added to scale, or None.
scale_bmm1: multiplies logits; 0 stands for ``head_dim ** -0.5``.
scale_bmm1_d: the same as a float32 tensor of one element.
scale_bmm2: multiplies the result.
scale_bmm2_d: the same as a float32 tensor of one element.
scale_k: what a stored 1.0 of k stands for, a tensor of one element or a number.
scale_q: what a stored 1.0 of q stands for, a tensor of one element or a number.
scale_v: what a stored 1.0 of v stands for, a tensor of one element or a number.
schema: accepted and not needed.
seq_lens: ``[b]`` int32, keys of each request.
topk/seq_lens: ``[n]`` int32, how many elements of each row count.
seq_lens_q: ``[b]`` int32, queries of each request.
sf_out: of the formats of fewer bits, refused.
shift_bias: added to shift, or None.
sinks: ``[h_q]`` float32, for each head a logit that joins every row's sum and has no value.
skip_softmax_threshold_scale_factor: a hint.
sleep_after_run: rests after each call, so that a chip may cool.
sm_count: a hint.
sm_scale: multiplies logits; ``head_dim_qk ** -0.5`` if it is None.
specs: the specs.
src_page_table: ``[n, most pages]`` int32.
supported_ccs: numbers such as 90.
swa_kv_cache: the cache that the first part of a list points into.
t: the tensor.
tensor: what the step gets, with its type.
tie_break: which of equal values are taken: NONE leaves it open, SMALL and LARGE go by index.
time: in milliseconds.
token_pos_in_items_len: entries of a request in the above.
token_pos_in_items_ptr: uint16, each token's place in its item, 0 at a delimiter.
top_k: how many stay, a number or int32 ``[n]``.
topk/top_k: how many of each row.
utils/top_k: experts of a token.
top_p: the mass that stays, a number or float32 ``[n]``.
type: what the tensor holds: logits, probabilities or indices.
unique_kv_indices: int32, the pages of all requests' own keys.
unique_kv_indptr: ``[b + 1]`` int32, where each request's begin in unique_kv_indices.
unique_kv_last_page_len: ``[b]`` int32, keys in each request's last page.
uri: a name for the module, which becomes the name of the kernel's cache entry.
testing/use_cuda_graph: times calls inside a replayed graph.
use_cuda_graph: keeps what plans write in buffers given here, so that a captured run stays right.
use_custom_mask: whether there is a mask.
use_fp16_qk_reduction: a hint; sums are float32.
use_fp16_qk_reductions: a hint; sums are float32.
use_fp16_softmax: a hint.
use_logits_soft_cap: whether logits are capped.
use_mxfp8: of the formats of fewer bits, refused where True.
use_nvfp4: of the formats of fewer bits, refused where True.
use_pdl: a hint that changes no result.
use_sliding_window: whether there is a window.
use_tensor_cores: a hint; the kernel is chosen by shape.
uses_shared_paged_kv_idx: True; tables of their own for values are refused where there are none.
uses_spcompress: a hint.
sparse/v: values, shaped like k.
triton/v: ``[n, h, d]``, a result over some keys; written.
v: ``[n, h_kv, d_vo]``, values.
v_a: ``[n, h, d]``, a result over some keys.
v_b: ``[n, h, d]``, a result over other keys.
v_head_dim: channels of a value's head.
v_other: ``[n, h, d]``, a result over other keys.
v_scale: a number or a float32 tensor of one element, what a stored 1.0 of v stands for.
variant_decl: the struct in CUDA C++, or a dictionary of texts in C.
variant_name: the struct's name.
weight: ``[d]``, of input's dtype.
window: the steps in question.
window_left: a query sees so many keys before its own place; -1 for all.
workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes; 128 MiB are enough.
testing/x: times of this process, in milliseconds.
x: a tensor.
"""

_table = dict(re.findall(r"^(\S+?): (.*(?:\n    .*)*)", _TABLE, re.M))
_PARAM = re.compile(r":param (\w+): (.*?)(?=\s*:param |\s*:returns:|\n\s*\n|\s*\Z)", re.S)
_PUBLIC = re.compile(r"bolide\.(_wrappers\.)?[a-z]")
_REFERENCE = re.compile(r":(?:meth|func|class):`~?([\w.]+)`")
# Lines that lean on the one before them mean nothing in another docstring.
_LEANING = ("likewise", "the same", "the other", "and ")
_PARTS = {"_p": "of the requests that prefill: ", "_d": "of the requests that decode: "}


def _named(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _family(function: Callable) -> str:
    """The module that a function is of: sparse, for one of bolide._wrappers.sparse."""
    return function.__module__.replace("._wrappers", "").split(".")[1]


def arguments(function: Callable) -> list[str]:
    """The arguments that a docstring has to name."""
    code = inspect.unwrap(function).__code__
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return [name for name in code.co_varnames[:count]
            if name not in ("self", "cls") and not name.startswith("_")]


def _referred(text: str, owner: Any, scope: dict[str, Any]) -> Iterable[str]:
    """The docstrings of what a docstring refers to: in its class, its module, or by full name."""
    for name in _REFERENCE.findall(text):
        found: Any = None
        for part in name.removeprefix("bolide.").split("."):
            found = getattr(found, part, None) if found is not None else (
                getattr(owner, part, None) or scope.get(part))
        if found is not None and inspect.getdoc(found):
            yield found.__doc__


def _meaning(name: str, family: str, found: dict[str, str]) -> Optional[str]:
    meaning = found.get(name) or _table.get(f"{family}/{name}") or _table.get(name)
    if meaning is None and name[-2:] in _PARTS and name[:-2] in _table:
        meaning = _PARTS[name[-2:]] + _table[name[:-2]]
    return meaning


def _complete(function: Callable, target: Any, owner: Any, scope: dict[str, Any]) -> None:
    """Appends the lines that target's docstring lacks for the arguments of a function."""
    text = target.__doc__
    if not text:
        return
    named = _named(text)
    missing = [name for name in arguments(function) if name not in named]
    if not missing:
        return
    found: dict[str, str] = {}
    for other in _referred(text, owner, scope):
        for name, meaning in _PARAM.findall(other):
            if not meaning.startswith(_LEANING):
                found.setdefault(name, " ".join(meaning.split()))
    family = _family(function)
    lines = [f":param {name}: {' '.join(meaning.split())}" for name in missing
             if (meaning := _meaning(name, family, found))]
    indent = re.search(r"\n( *)(?=\S)", text)
    space = "\n" + (indent[1] if indent else "")
    target.__doc__ = text.rstrip() + ("" if ":param" in text else space[:1]) + space + (
        space.join(lines)) + "\n"


def complete(scope: dict[str, Any]) -> None:
    """Completes the docstrings of the public functions and classes of a module, by its globals."""
    for name, value in list(scope.items()):
        module = getattr(value, "__module__", None) or ""
        if name.startswith("_") or not _PUBLIC.match(module):
            continue
        if inspect.isclass(value):
            for method, function in list(vars(value).items()):
                if method == "__init__":
                    _complete(function, value, value, scope)
                elif not method.startswith("_") or method == "__call__":
                    function = getattr(function, "__func__", function)
                    if inspect.isfunction(function):
                        _complete(function, function, value, scope)
        elif inspect.isfunction(value):
            _complete(value, value, None, scope)
