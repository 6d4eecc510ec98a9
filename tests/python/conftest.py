# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: both frameworks behind one face, and the closing line of counts.

With ``--gpu`` the tests that use the GPU are run and no others, with ``--part I/N`` the I-th of N
parts of what is left.
"""

from __future__ import annotations

import numpy as np
import pytest

try:
    import torch
except ImportError:
    torch = None

from bolide import _dtypes, _frameworks


def pytest_addoption(parser):
    parser.addoption("--gpu", action="store_true", help="only the tests that use the GPU")
    parser.addoption("--part", default="0/1", metavar="I/N", help="each N-th test, from the I-th on")


def _uses_gpu(item):
    """By its parameters or by its mark."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "gpu" in item.keywords or any(
        v == "cuda" or getattr(v, "device", None) == "cuda" for v in given)


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: runs on a GPU")
    config.addinivalue_line("markers", "own_calls: counts its own calls of functions")
    if config.getoption("--gpu") and (torch is None or not torch.cuda.is_available()):
        raise pytest.UsageError("--gpu: torch has no GPU here")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--gpu"):
        left_out = [i for i in items if not _uses_gpu(i)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [i for i in items if _uses_gpu(i)]
    part, parts = (int(word) for word in config.getoption("--part").split("/"))
    if not 0 <= part < parts:
        raise pytest.UsageError("--part: expected I/N with 0 <= I < N")
    config.hook.pytest_deselected(items=[i for k, i in enumerate(items) if k % parts != part])
    items[:] = items[part::parts]


_counts = {"passed": 0, "failed": 0, "skipped": 0}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _counts[report.outcome] += 1


def pytest_collectreport(report):
    if report.outcome != "passed":
        _counts[report.outcome] += 1


def pytest_unconfigure(config):
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**_counts))


class Numpy:
    """Tensors of NumPy."""

    name = "numpy"
    device = "cpu"
    unsigned = np.uint32

    def tensor(self, array, dtype):
        return np.ascontiguousarray(array).astype(_frameworks.numpy_dtype(_dtypes.of(dtype)))

    def numbers(self, tensor):
        """float64, or integers as they are."""
        if _dtypes.of(tensor.dtype).name.startswith(("int", "uint", "bool")):
            return np.asarray(tensor)
        return np.asarray(tensor).astype(np.float64)


class Torch:
    """Tensors of torch on one device."""

    def __init__(self, device):
        self.name = f"torch-{device}"
        self.device = device
        self.unsigned = torch.uint32

    def tensor(self, array, dtype):
        kind = _frameworks.torch_dtype(dtype)
        return torch.from_numpy(np.ascontiguousarray(array).copy()).to(self.device).to(kind)

    def numbers(self, tensor):
        kind = torch.float64 if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to("cpu").to(kind).numpy()


def _frameworks_here():
    if torch is None:
        return [Numpy()]
    here = [Numpy(), Torch("cpu")]
    if torch.cuda.is_available():
        here.append(Torch("cuda"))
    return here


@pytest.fixture(params=_frameworks_here(), ids=lambda f: f.name)
def fw(request):
    """Each framework and device of this machine in turn."""
    return request.param


@pytest.fixture
def rng():
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


class Close:
    """Comparison by dtype: a rounding of the output and the noise of sums in float32."""

    LIMIT = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 0.13,
             "float8_e5m2": 0.26}

    def __call__(self, actual, expected, dtype, scale=1.0):
        assert actual.shape == expected.shape, (actual.shape, expected.shape)
        limit = self.LIMIT[_dtypes.name_of(dtype)] * scale
        error = np.abs(actual - expected) - limit * np.abs(expected)
        worst = float(error.max(initial=0))
        assert worst <= limit, f"off by {worst} at a tolerance of {limit}"


@pytest.fixture
def close():
    return Close()
