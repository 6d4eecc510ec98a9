# SPDX-License-Identifier: Apache-2.0
"""A program written for FlashInfer runs as it stands, with Bolide's directory in PYTHONPATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import bolide  # noqa: E402

PROGRAM = Path(__file__).parent / "flashinfer_program.py"
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.mark.parametrize("device", DEVICES)
def test_program(device):
    assert "bolide" not in PROGRAM.read_text()
    package = str(Path(bolide.__file__).parents[1])
    folders = [bolide.flashinfer_path(), package, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    run = subprocess.run([sys.executable, str(PROGRAM), device], env=env, capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    parts = run.stdout.split()
    assert parts[:7] == ["single_requests", "batch_decode", "batch_prefill", "cascade", "latent",
                         "sampling", "compiled"]
    assert parts[7:] == (["graph", "custom"] if device == "cuda" else [])
