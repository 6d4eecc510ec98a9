# SPDX-License-Identifier: Apache-2.0
"""A client nobody here wrote: Hugging Face transformers with Bolide as its attention function."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "transformers_model.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("transformers_model", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.mark.parametrize("device", DEVICES)
def test_example(example, capsys, device):
    """Prompt and cached decode of both models, in float32 and bfloat16."""
    example.main(device)
    assert capsys.readouterr().out.count("off by") == 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrong", [{"window_left": 8}, {"logits_soft_cap": None}])
def test_example_can_fail(example, monkeypatch, wrong, device):
    """Window and soft cap reach the kernel: with another one the logits differ."""
    right = example.bolide.single_prefill_with_kv_cache
    monkeypatch.setattr(example.bolide, "single_prefill_with_kv_cache",
                        lambda *args, **named: right(*args, **{**named, **wrong}))
    gemma = example.Gemma2Config(**example.SMALL, sliding_window=8, attn_logit_softcapping=5.0,
                                 query_pre_attn_scalar=16)
    assert example.worst(gemma, "eager", torch.float32, device)[0] > 0.1
