# SPDX-License-Identifier: Apache-2.0
"""Stands on PYTHONPATH for FlashInfer: hands over to Bolide's alias, which takes this module's place."""

import sys

del sys.modules[__name__]

import bolide  # noqa: E402

bolide.install_as_flashinfer()

import flashinfer  # noqa: E402, F401
