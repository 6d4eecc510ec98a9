# SPDX-License-Identifier: Apache-2.0
"""A CUDA graph of one call, for the tests that replay it with other values."""

import torch


def captured(call):
    """The call in a graph; it has run once before, as first uses compile."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph
