# SPDX-License-Identifier: Apache-2.0
"""Where FlashInfer has what templates say of a module's arguments."""

from ..files import generate_additional_params  # noqa: F401
