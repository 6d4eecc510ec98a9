# SPDX-License-Identifier: Apache-2.0
"""Small helpers of FlashInfer's interface: enums, arithmetic, and predicates that tell the truth
about this machine and this library."""

from __future__ import annotations

import functools
import inspect
import math
from enum import Enum
from typing import Any, Callable, Optional, Tuple

from . import _docs, _dtypes, _frameworks, _missing
from ._library import torch
from ._wrappers._memory import (  # noqa: F401  (engines look for them here)
    _cache_buf, _ceil_pow2, _get_range_buf)

Tensor = Any

log2e = 1.4426950408889634
SINGLE_KERNEL_TMP_SIZE = 32 * 1024 * 1024
srcToDstBlk16RowMap = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
srcToDstBlk32RowMap = [0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
                       4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31]


class BackendSupportedError(Exception):
    """A backend, or one on this GPU, does not have what was asked for."""


class GPUArchitectureError(Exception):
    """The GPU's architecture lacks what was asked for."""


class LibraryError(Exception):
    """A library that is needed is missing or too old."""


class PosEncodingMode(Enum):
    """Positions inside attention kernels."""

    NONE = 0
    ROPE_LLAMA = 1
    ALIBI = 2


class MaskMode(Enum):
    """Masks of attention kernels."""

    NON_CAUSAL = 0
    CAUSAL = 1
    CUSTOM = 2
    MULTIITEMSCORING = 3


class TensorLayout(Enum):
    """Order of tokens and heads."""

    NHD = 0
    HND = 1


class LogLevel(Enum):
    """Levels of :func:`set_log_level`."""

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    CRITICAL = 5


log_level_map = {level.name.lower(): level for level in LogLevel}


# ---- arithmetic ------------------------------------------------------------------------------


def ceil_div(x: int, y: int) -> int:
    """x / y rounded up."""
    return (x + y - 1) // y


def round_up(x: int, y: int) -> int:
    """x rounded up to a multiple of y."""
    return ceil_div(x, y) * y


def next_positive_power_of_2(x: int) -> int:
    """The smallest power of two that is at least x, and at least 1."""
    return 1 if x < 1 else 1 << (x - 1).bit_length()


def last_positive_power_of_2(x: int) -> int:
    """The largest power of two that is at most x, and at least 1."""
    return 1 if x < 2 else 1 << (x.bit_length() - 1)


def calculate_tile_tokens_dim(num_tokens: int, num_experts: int, top_k: int,
                              max_tile_tokens_dim: int = 128) -> int:
    """Tokens of a tile for experts that get equally many: a power of two from 8 on."""
    per_expert = num_tokens * top_k // num_experts
    return min(max(next_positive_power_of_2(per_expert), 8), max_tile_tokens_dim)


def get_indptr(x: Tensor) -> Tensor:
    """``[0, x[0], x[0] + x[1], …]`` in int64."""
    out = _frameworks.full(x, (x.shape[0] + 1,), "int64", 0)
    out[1:] = x.cumsum(0)
    return out


def get_alibi_slopes(n_heads: int, device: Any = None) -> Tensor:
    """ALiBi's slopes of each head, float32, after the paper also where n_heads is no power of 2."""
    def of(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]

    below = 1 << int(math.log2(n_heads))
    slopes = of(below) + of(2 * below)[::2][:n_heads - below]
    return torch.tensor(slopes, dtype=torch.float32, device=device)


def version_at_least(version: str, base_version: str) -> bool:
    """Whether a version such as "2.4.0+cu124" is base_version or newer."""
    def numbers(text: str) -> list[int]:
        out = []
        for part in text.split("+")[0].split("."):
            digits = "".join(c for c in part if c.isdigit())
            out.append(int(digits) if digits else 0)
        return out + [0] * (4 - len(out))

    return numbers(version) >= numbers(base_version)


# ---- tensors ---------------------------------------------------------------------------------


def canonicalize_torch_dtype(dtype: Any) -> Any:
    """torch's dtype for one of torch or its name."""
    try:
        return _frameworks.torch_dtype(dtype)
    except (TypeError, KeyError) as error:
        raise TypeError(f"dtype: expected a torch.dtype or a name; got {dtype!r}") from error


def is_float8(x: Tensor) -> bool:
    """Whether a tensor is float8_e4m3fn or float8_e5m2."""
    return _dtypes.name_of(x.dtype) in ("float8_e4m3fn", "float8_e5m2")


def check_shape_dtype_device(x: Tensor, expected_shape: Any, expected_dtype: Any,
                             expected_device: Any, name: str) -> None:
    """ValueError naming x where it is not as expected; None is not checked."""
    if expected_shape is not None and tuple(x.shape) != tuple(expected_shape):
        raise ValueError(f"{name}: shape: expected {tuple(expected_shape)}; got {tuple(x.shape)}")
    if expected_dtype is not None and x.dtype != expected_dtype:
        raise ValueError(f"{name}: dtype: expected {expected_dtype}; got {x.dtype}")
    if expected_device is not None and x.device != expected_device:
        raise ValueError(f"{name}: device: expected {expected_device}; got {x.device}")


def get_native_fp4_dtype() -> Any:
    """torch's dtype of FP4 pairs where it has one, else its uint8."""
    return getattr(torch, "float4_e2m1fn_x2", torch.uint8)


# ---- devices ---------------------------------------------------------------------------------


def get_device_index(device: Any) -> int:
    """Index of a CUDA device, the current one where the device names none."""
    device = torch.device(device)
    return torch.cuda.current_device() if device.index is None else device.index


def get_device_properties(device: Any) -> Any:
    """torch's description of a device."""
    return torch.cuda.get_device_properties(get_device_index(device))


def get_device_name(device: Any) -> str:
    """The device's name."""
    return torch.cuda.get_device_name(get_device_index(device))


def get_compute_capability(device: Any) -> Tuple[int, int]:
    """Major and minor number; ValueError for a device that is no GPU."""
    if torch.device(device).type != "cuda":
        raise ValueError("device: expected a CUDA device; got " + str(device))
    return torch.cuda.get_device_capability(get_device_index(device))


def get_device_sm_count(device: Any) -> int:
    """Multiprocessors of a device."""
    return get_device_properties(device).multi_processor_count


def get_trtllm_gen_multi_ctas_kv_counter_bytes(batch_size: int, num_qo_heads: int,
                                               sm_count: int) -> int:
    """Bytes of the counters that programs bring to FlashInfer's kernels, one of four bytes for each
    request and head and for each multiprocessor. Bolide's need none."""
    return 4 * max(batch_size * num_qo_heads, sm_count)


class FP4Tensor:
    """Values of NVFP4, two a byte, and their scales, for programs that make one. What would read or
    write it refuses it by name.

    :param data: ``[…, d / 2]`` uint8. :param scale: of blocks of 16 values.
    :param scale_start_index: the first row of scale that belongs to data.
    :param original_shape: of the values before rows were padded.
    """

    def __init__(self, data: Tensor, scale: Tensor, scale_start_index: int = 0,
                 original_shape: Optional[Tuple[int, ...]] = None):
        self.data, self.scale = data, scale
        self.scale_start_index, self.original_shape = scale_start_index, original_shape


def get_shared_bytes_per_block_optin(device: Any) -> int:
    """Bytes of shared memory that a block may ask for."""
    return get_device_properties(device).shared_memory_per_block_optin


def get_gpu_memory_bandwidth(device: Any) -> float:
    """Theoretical bandwidth of the device's memory in GB/s."""
    from ctypes import CDLL, byref, c_int

    driver, found = CDLL("libcuda.so.1"), []
    for attribute in (36, 37):  # memory clock in kHz, bus width in bits
        value = c_int()
        if driver.cuDeviceGetAttribute(byref(value), attribute, get_device_index(device)) != 0:
            raise RuntimeError("the driver does not say the clock or width of the memory")
        found.append(value.value)
    return 2.0 * found[0] * 1e3 * found[1] / 8 / 1e9


def get_cuda_python_version() -> str:
    """The version of the package cuda-python; ImportError without it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cuda-python")
    except PackageNotFoundError as error:
        raise ImportError("the package cuda-python is not installed") from error


def has_cuda_cudart() -> bool:
    """Whether cuda-python's runtime module can be imported."""
    import importlib.util

    try:
        return importlib.util.find_spec("cuda.cudart") is not None
    except ModuleNotFoundError:
        return False


def _is_cuda(device: Any) -> bool:
    return torch is not None and torch.cuda.is_available() and torch.device(device).type == "cuda"


def _capability(device: Any) -> Tuple[int, int]:
    return get_compute_capability(device) if _is_cuda(device) else (0, 0)


def is_sm90a_supported(device: Any) -> bool:
    """Whether the device is of Hopper's architecture."""
    return _capability(device)[0] == 9


def is_sm100a_supported(device: Any) -> bool:
    """Whether the device has compute capability 10.0."""
    return _capability(device) == (10, 0)


def is_sm100f_supported(device: Any) -> bool:
    """Whether the device is of the family 10."""
    return _capability(device)[0] == 10


def is_sm110a_supported(device: Any) -> bool:
    """Whether the device has compute capability 11.0."""
    return _capability(device) == (11, 0)


def is_sm120a_supported(device: Any) -> bool:
    """Whether the device has compute capability 12.0."""
    return _capability(device) == (12, 0)


def is_sm120f_supported(device: Any) -> bool:
    """Whether the device is of the family 12."""
    return _capability(device)[0] == 12


def is_sm121a_supported(device: Any) -> bool:
    """Whether the device has compute capability 12.1."""
    return _capability(device) == (12, 1)


def is_sm12x_supported(device: Any) -> bool:
    """Whether the device is of the family 12."""
    return _capability(device)[0] == 12


def device_support_pdl(device: Any) -> bool:
    """Whether the device knows programmatic dependent launch: Hopper and newer."""
    return _capability(device)[0] >= 9


def is_cvt_rs_supported(device: Any = None) -> bool:
    """Whether the device converts with stochastic rounding: families 10.0 and 10.3."""
    return _capability("cuda" if device is None else device) in ((10, 0), (10, 3))


def is_fa3_prefill_head_dim_supported(head_dim_qk: int, head_dim_vo: int) -> bool:
    """Whether FlashInfer's fa3 has the head sizes; Bolide's choice does not depend on it."""
    return (head_dim_qk, head_dim_vo) in ((64, 64), (128, 128), (256, 256), (192, 128))


def is_fa3_backend_supported(pos_encoding_mode: int, use_fp16_qk_reductions: bool,
                             use_custom_mask: bool, dtype_q: Any, dtype_kv: Any) -> bool:
    """Whether a problem is one for the backend fa3, by FlashInfer's rules."""
    if use_custom_mask or pos_encoding_mode != PosEncodingMode.NONE.value:
        return False
    if use_fp16_qk_reductions:
        return False
    names = [_dtypes.name_of(d) for d in (dtype_q, dtype_kv)]
    if names[1] == "uint8":
        return False
    return not names[1].startswith("float8") or names[0].startswith("float8")


def is_cutlass_backend_supported(pos_encoding_mode: int, use_fp16_qk_reductions: bool,
                                 use_custom_mask: bool, dtype_q: Any, dtype_kv: Any) -> bool:
    """Whether a problem is one for the backend cutlass: no mask, positions or fp8."""
    names = [_dtypes.name_of(d) for d in (dtype_q, dtype_kv)]
    return (not use_custom_mask and pos_encoding_mode == PosEncodingMode.NONE.value
            and not use_fp16_qk_reductions and not any(n.startswith("float8") for n in names))


def determine_attention_backend(device: Any, pos_encoding_mode: int, use_fp16_qk_reductions: bool,
                                use_custom_mask: bool, dtype_q: Any, dtype_kv: Any, *,
                                head_dim_qk: Optional[int] = None,
                                head_dim_vo: Optional[int] = None) -> str:
    """What "auto" stands for: "fa3" on Hopper for problems that it has, else "fa2"."""
    sizes = head_dim_qk is None or is_fa3_prefill_head_dim_supported(
        head_dim_qk, head_dim_qk if head_dim_vo is None else head_dim_vo)
    if is_sm90a_supported(device) and sizes and is_fa3_backend_supported(
            pos_encoding_mode, use_fp16_qk_reductions, use_custom_mask, dtype_q, dtype_kv):
        return "fa3"
    return "fa2"


def determine_gemm_backend(device: Any) -> str:
    """The kind of grouped GEMM for the device: "sm90" on Hopper, else "sm80"."""
    return "sm90" if is_sm90a_supported(device) else "sm80"


def determine_mla_backend(device: Any) -> str:
    """The kind of MLA for the device: "fa3" on Hopper, else "fa2"."""
    return "fa3" if is_sm90a_supported(device) else "fa2"


def has_flashinfer_jit_cache() -> bool:
    """Whether FlashInfer's package of compiled modules is there; Bolide needs none."""
    return False


def is_confidential_compute() -> bool:
    """Whether the environment says that GPUs run in confidential mode."""
    import os

    return os.environ.get("FLASHINFER_CONFIDENTIAL_COMPUTE", "0") == "1"


def get_default_generators(device: Any) -> Any:
    """torch's generator of a CUDA device."""
    torch.cuda.init()
    return torch.cuda.default_generators[get_device_index(device)]


# ---- decorators ------------------------------------------------------------------------------


def register_custom_op(name: str, fn: Optional[Callable] = None, /, *, mutates_args: Any,
                       device_types: Any = None, schema: Optional[str] = None) -> Callable:
    """The function as it is. Bolide's calls are custom operators of torch by themselves, and only
    while torch.compile traces."""
    return (lambda f: f) if fn is None else fn


def register_fake_op(name: str, fn: Optional[Callable] = None) -> Callable:
    """The function as it is; see :func:`register_custom_op`."""
    return (lambda f: f) if fn is None else fn


def supported_compute_capability(supported_ccs: Any) -> Callable:
    """Marks a check with the capabilities (major * 10 + minor) for which it holds."""
    try:
        capabilities = set(supported_ccs)
    except TypeError:
        raise TypeError("supported_ccs: must be an iterable of integers; got "
                        f"{type(supported_ccs).__name__}") from None
    for cc in capabilities:
        if type(cc) is not int:
            raise TypeError(f"supported_ccs: each must be an integer; got {type(cc).__name__}")

    def mark(fn: Callable) -> Callable:
        fn._supported_ccs = capabilities
        fn.is_compute_capability_supported = lambda cc: cc in capabilities
        return fn

    return mark


def _device_of(args: Any, kwargs: Any) -> Any:
    for value in (*args, *kwargs.values()):
        if _frameworks.is_torch(value):
            return value.device
    return None


def backend_requirement(backend_checks: dict, common_check: Optional[Callable] = None,
                        heuristic_func: Optional[Callable] = None) -> Callable:
    """Checks of a function with backends, before it runs.

    The function gains ``skip_check=False`` and the predicates is_backend_supported(backend, cc),
    is_compute_capability_supported(cc), has_backend(name), has_backend_choices(). A check returns
    whether a problem fits, and gets the function's arguments; for "auto" those that fit, in the
    order of heuristic_func, become ``suitable_auto_backends``. Of a check without
    :func:`supported_compute_capability` no capability is known: it has none.
    """
    def allows(check: Optional[Callable], cc: Optional[int]) -> bool:
        return cc is None or cc in getattr(check, "_supported_ccs", ())

    def decorate(fn: Callable) -> Callable:
        signature = inspect.signature(fn)

        def is_compute_capability_supported(cc: int) -> bool:
            if backend_checks:
                return any(allows(check, cc) for check in backend_checks.values())
            if not hasattr(common_check, "_supported_ccs"):
                raise ValueError(f"{fn.__name__}: is_compute_capability_supported: common_check is "
                                 "without supported_compute_capability")
            return allows(common_check, cc)

        def is_backend_supported(backend: str, cc: Optional[int] = None) -> bool:
            if not backend_checks:
                raise ValueError(f"{fn.__name__}: is_backend_supported: there is no choice of "
                                 "backends")
            return backend in backend_checks and allows(backend_checks[backend], cc)

        def fits(check: Optional[Callable], arguments: dict) -> bool:
            return check is None or check(**arguments) is not False

        def may(check: Callable, arguments: dict) -> bool:
            try:
                return fits(common_check, arguments) and fits(check, arguments)
            except ValueError:
                return False

        def hold(arguments: dict, device: Any) -> None:
            major, minor = _capability(device) if device is not None else (0, 0)
            cc = 10 * major + minor if major else None
            backend = arguments.get("backend")
            if not backend_checks:
                if common_check is None:
                    raise ValueError(f"{fn.__name__}: backend_requirement: expected backend_checks "
                                     "or common_check; got neither")
                if not allows(common_check, cc):
                    raise BackendSupportedError(f"{fn.__name__}: not for compute capability {cc}")
            elif backend == "auto":
                found = [name for name, check in backend_checks.items()
                         if allows(check, cc) and may(check, arguments)]
                if heuristic_func is not None and found:
                    found = list(heuristic_func(found, **arguments))
                if not found:
                    raise BackendSupportedError(f"{fn.__name__}: no backend has this problem")
                wrapper.suitable_auto_backends = found
            elif not is_backend_supported(backend, cc):
                raise BackendSupportedError(
                    f"{fn.__name__}: backend: expected one of {', '.join(backend_checks)}"
                    f"{'' if cc is None else f' that has compute capability {cc}'}; got "
                    f"{backend!r}")
            elif not fits(backend_checks[backend], arguments):
                raise ValueError(f"{fn.__name__}: backend {backend} does not have this problem")
            if not fits(common_check, arguments):
                raise ValueError(f"{fn.__name__}: the problem is not supported")

        @functools.wraps(fn)
        def wrapper(*args: Any, skip_check: bool = False, **kwargs: Any) -> Any:
            if not skip_check:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                hold(dict(bound.arguments), _device_of(args, kwargs))
            return fn(*args, **kwargs)

        wrapper.is_compute_capability_supported = is_compute_capability_supported
        wrapper.is_backend_supported = is_backend_supported
        wrapper.has_backend = lambda backend: backend in backend_checks
        wrapper.has_backend_choices = lambda: bool(backend_checks)
        wrapper.suitable_auto_backends = []
        return wrapper

    return decorate


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
