# SPDX-License-Identifier: Apache-2.0
"""The classes with plan and run. The modules that FlashInfer has them in export them."""
