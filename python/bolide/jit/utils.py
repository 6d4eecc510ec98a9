# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's short names of dtypes, which programs build names of modules from."""

from __future__ import annotations

from .. import _dtypes
from .._library import torch
from .files import write_if_different  # noqa: F401  (FlashInfer has it here)

_SHORT = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
          "int8": "i8", "uint8": "u8", "int32": "i32", "uint32": "u32", "int64": "i64",
          "uint64": "u64"}

filename_safe_dtype_map = {getattr(torch, name, _dtypes.BY_NAME[name]): short
                           for name, short in _SHORT.items()}
