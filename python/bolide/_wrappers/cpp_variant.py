# SPDX-License-Identifier: Apache-2.0
"""Custom attention as FlashInfer has it: a struct in CUDA C++ on ``AttentionVariantBase``.

The struct becomes part of the GPU's kernel as it stands, behind ``cpp_variant.cuh``, which has what
it names, and between the texts of a variant, which call it for each element. FlashInfer multiplies
what ``LogitsTransform`` returns by the struct's ``sm_scale_log2``, so logits come to it without a
scale. What the kernel cannot do is refused here by name; what else the compiler does not know ends
in its message at the first run.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

TENSORS = {"float": "float32", "double": "float64", "int": "int32", "int32_t": "int32",
           "uint32_t": "uint32", "int64_t": "int64", "uint64_t": "uint64", "uint8_t": "uint8",
           "int8_t": "int8", "bool": "bool"}
NUMBERS = ("float", "double", "int", "int32_t", "uint32_t", "int64_t", "uint64_t", "bool")

# Headers whose names the shim has, and those that the compiler brings itself.
_KNOWN_HEADERS = re.compile(
    r"(flashinfer/)?(attention/)?(hopper/)?(variant_helper|variants|attention_updater|math|utils)"
    r"\.cuh|cstdint|stdint\.h|cmath|math\.h|cuda_runtime\.h")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]*)[>"][^\n]*$', re.M)
_REFUSED = {
    "PQuantize": "weights are not quantised",
    "ODequantize": "weights are not quantised",
}


_STATE = """
#define BOLIDE__VARIANT_STATE
__device__ inline void bolide__variant_state(
    const bolide__variant_at *at, const bolide__variant_extra *extra, int piece, float &m, float &d,
    float &scale) {{
    bolide_cpp::state{call}(*at, extra, piece, m, d, scale);
}}
"""


@functools.lru_cache(maxsize=None)
def _shim() -> str:
    return (Path(__file__).parent / "cpp_variant.cuh").read_text()


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def _checked(name: str, variant_name: str, decl: str) -> str:
    """The struct without the lines that include what is here."""
    code = _without_comments(decl)
    if not re.search(rf"\b(struct|class)\s+{re.escape(variant_name)}\b", code):
        raise ValueError(f"{name}: jit_args: variant_decl: expected a struct {variant_name}, the "
                         "variant_name")
    for word, reason in _REFUSED.items():
        if re.search(rf"\b{word}\b", code):
            raise NotImplementedError(f"{name}: jit_args: variant_decl: {word}: {reason}")
    for argument in re.findall(r"uint8_t\s*\*\s*(\w+)\s*\)", code):
        if len(re.findall(rf"\b{argument}\b", code)) > 1:
            raise NotImplementedError(
                f"{name}: jit_args: variant_decl: {argument}: there is no shared memory for it")
    for header in _INCLUDE.findall(code):
        if not _KNOWN_HEADERS.fullmatch(header):
            raise NotImplementedError(
                f"{name}: jit_args: variant_decl: #include {header}: kernels are compiled without "
                "headers of the system")
    return _INCLUDE.sub("", decl)


def _given(tensors: list, numbers: list) -> str:
    """A struct of the parameters, read from those of a call, in order."""
    fields, reads = [], []
    for i, (kind, name) in enumerate(tensors):
        fields.append(f"    {kind} *{name};\n")
        reads.append(f"{name}(static_cast<{kind} *>(const_cast<void *>(extra[{i}].data)))")
    for i, (kind, name) in enumerate(numbers, len(tensors)):
        fields.append(f"    {kind} {name};\n")
        reads.append(f"{name}(static_cast<{kind}>(extra[{i}].number))")
    start = " : " + ", ".join(reads) if reads else ""
    return ("struct bolide_given {\n" + "".join(fields) +
            f"    __host__ __device__ bolide_given(const bolide_cpp::extra_of *extra){start} "
            "{ (void)extra; }\n};\n")


def texts(name: str, variant_name: str, decl: str, tensors: list,
          numbers: list) -> dict[str, Any]:
    """The texts of a variant that calls the struct. tensors and numbers are (type, name)."""
    code = _without_comments(decl)
    checked = _checked(name, variant_name, decl)
    call = f"<{variant_name}, bolide_given>"
    made: dict[str, Any] = {
        "declarations": f'{_shim()}{_given(tensors, numbers)}#line 1 "variant_decl"\n{checked}',
        "logits": f"return bolide_cpp::logits{call}(x, *at, extra);",
    }
    if re.search(r"\bREGISTER_LOGITS_MASK\b|\bLogitsMask\b", code):
        made["mask"] = f"return bolide_cpp::mask{call}(*at, extra);"
    if re.search(r"\bREGISTER_OUTPUT_TRANSFORM\b|\bOutputTransform\b|\bscale_pv\b", code) or any(
            n == "v_scale" for _, n in numbers):
        made["output"] = f"return bolide_cpp::output{call}(x, *at, extra);"
    for word, text in (("Query", "query"), ("Key", "key")):
        if re.search(rf"\bREGISTER_{text.upper()}_TRANSFORM\b|\b{word}Transform\b", code):
            made[text] = f"return bolide_cpp::{text}{call}(x, *at, extra);"
    if re.search(r"\buse_softmax\s*=\s*false\b|\bDefaultUpdater\b", code):
        made["no_softmax"] = True
    elif re.search(r"\bREGISTER_M_D_UPDATE\b|\bupdate_m_d\b", code):
        made["declarations"] += _STATE.format(call=call)
    return made
