# SPDX-License-Identifier: Apache-2.0
"""The library's C interface by ctypes, for measurements on the tensors of another framework.

    op = Door()
    call = op.planned("batch_decode", {"indptr": indptr, "num_qo_heads": 32, ...})
    call({"q": q, "k_cache": k, ...})          # on torch's current stream

Structs of arguments are read from the headers: each field behind the head has eight bytes.
"""

import ctypes
import functools
import os
import pathlib
import re

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPU, CUDA = 1, 2
CODES = {torch.float16: (2, 16), torch.bfloat16: (4, 16), torch.float32: (2, 32),
         torch.int32: (0, 32), torch.int64: (0, 64), torch.uint8: (1, 8),
         torch.float8_e4m3fn: (10, 8)}
BITS = {torch.float32: 1 << 1, torch.float16: 1 << 2, torch.bfloat16: 1 << 3,
        torch.float8_e4m3fn: 1 << 4}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_index", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in
                ("device_bytes", "device_int_bytes", "pinned_bytes", "plan_bytes")]


class Workspace(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("device_bytes", ctypes.c_int64),
                ("device_int", ctypes.c_void_p), ("device_int_bytes", ctypes.c_int64),
                ("pinned", ctypes.c_void_p), ("pinned_bytes", ctypes.c_int64)]


def view(t):
    """A tensor struct over a torch tensor; the arrays it points to stay with it."""
    shape = (ctypes.c_int64 * t.dim())(*t.shape)
    strides = (ctypes.c_int64 * t.dim())(*t.stride())
    code, bits = CODES[t.dtype]
    v = Tensor(t.data_ptr(), CUDA if t.is_cuda else CPU, t.device.index or 0, t.dim(), code, bits,
               1, shape, strides, 0)
    v.kept = (t, shape, strides)
    return v


@functools.lru_cache(None)
def fields(struct):
    """Names and types of a struct's fields behind its head, from the headers."""
    for header in (ROOT / "include/bolide").glob("*.h"):
        found = re.search(r"typedef struct %s \{(.*?)\}" % struct, header.read_text(), re.S)
        if found:
            text = re.sub(r"/\*.*?\*/", "", found.group(1), flags=re.S)
            out = []
            for line in text.split(";")[1:-1]:
                kind, names = re.match(r"\s*(.*?)(\w+(?:, \w+)*)\s*$", line, re.S).groups()
                out += [(name, kind.strip()) for name in names.split(", ")]
            return out
    raise KeyError(struct)


class Door:
    def __init__(self):
        path = os.environ.get("BOLIDE_LIBRARY", str(ROOT / "build/libbolide.so"))
        os.environ.setdefault("BOLIDE_OVERLAP", "0")  # as `bolide bench` does
        self.lib = ctypes.CDLL(path)
        self.lib.bolide_last_error.restype = ctypes.c_void_p
        self.ctx = ctypes.c_void_p()
        self.check(self.lib.bolide_context_create(CUDA, 0, ctypes.byref(self.ctx)), "context")

    def check(self, status, what):
        if status:
            # The message is the last of seven fields of eight bytes.
            fields_ = (ctypes.c_char_p * 7).from_address(self.lib.bolide_last_error())
            raise RuntimeError(f"{what}: status {status}: {fields_[6].decode()}")

    def args(self, entry, values):
        """An args struct with its defaults and these values."""
        struct = fields(f"bolide_{entry}_args")
        buffer = (ctypes.c_uint64 * (1 + len(struct)))()
        size = ctypes.sizeof(buffer)
        self.check(self.lib.bolide_args_init(entry.encode(), buffer, ctypes.c_size_t(size)), entry)
        buffer.kept = []
        for i, (name, kind) in enumerate(struct):
            if name not in values:
                continue
            value = values[name]
            if isinstance(value, torch.Tensor):
                value = view(value)
            if isinstance(value, (ctypes.Structure, ctypes.Array)):
                buffer.kept.append(value)
                buffer[1 + i] = ctypes.addressof(value)
            elif kind == "double":
                ctypes.c_double.from_buffer(buffer, 8 * (1 + i)).value = value
            else:
                buffer[1 + i] = value
        return buffer

    def planned(self, op, values):
        """Plans an operator; gives a function of the run's arguments that gives a call."""
        sizes = Sizes()
        query = self.args(f"{op}_plan", values)
        self.check(getattr(self.lib, f"bolide_{op}_workspace")(self.ctx, query,
                                                               ctypes.byref(sizes)), op)
        device = [torch.empty(n + 1, dtype=torch.uint8, device="cuda")
                  for n in (sizes.device_bytes, sizes.device_int_bytes)]
        pinned = torch.empty(sizes.pinned_bytes + 1, dtype=torch.uint8).pin_memory()
        workspace = Workspace(device[0].data_ptr(), sizes.device_bytes, device[1].data_ptr(),
                              sizes.device_int_bytes, pinned.data_ptr(), sizes.pinned_bytes)
        plan = (ctypes.c_int64 * (sizes.plan_bytes // 8 + 1))(sizes.plan_bytes)
        both = {"workspace": workspace, "plan": plan}
        args = self.args(f"{op}_plan", values | both)
        self.check(getattr(self.lib, f"bolide_{op}_plan")(self.ctx, args, self.stream()), op)
        torch.cuda.synchronize()
        run = getattr(self.lib, f"bolide_{op}_run")

        def bind(run_values):
            run_args = self.args(f"{op}_run", run_values | both)
            run_args.kept += [device, pinned]
            return lambda: self.check(run(self.ctx, run_args, self.stream()), op)

        return bind

    def call(self, op, values):
        """A call of an operator without a plan, on these arguments."""
        args = self.args(op, values)
        run = getattr(self.lib, f"bolide_{op}")
        return lambda: self.check(run(self.ctx, args, self.stream()), op)

    @staticmethod
    def stream():
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
