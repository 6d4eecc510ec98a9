# SPDX-License-Identifier: Apache-2.0
"""Programs look for this package; Bolide's kernels are compiled from its own sources."""

__version__ = "0.6.18"
