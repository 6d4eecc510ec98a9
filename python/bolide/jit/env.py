# SPDX-License-Identifier: Apache-2.0
"""Folders that programs which write FlashInfer's sources themselves look for: where its templates
lie, and where what is made of them goes. :mod:`bolide.jit.files` says what becomes of that."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .. import _missing

FLASHINFER_CSRC_DIR = Path(__file__).resolve().parent / "templates"
FLASHINFER_GEN_SRC_DIR = Path(tempfile.gettempdir()) / f"bolide-{os.getuid()}" / "generated"

__getattr__ = _missing.lookup(__name__)
