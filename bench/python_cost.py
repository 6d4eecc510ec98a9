# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the host, from Python: python bench/python_cost.py [--device cuda]

Prints one line of JSON a call: the smallest mean of many rounds, in microseconds, on tensors so
small that nothing else counts. "direct" hands torch's tensors over as they are, "packed" is the way
of versions of torch without the DLPack exchange interface. On a GPU the queue is emptied between
rounds, and rounds are short enough not to fill it.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch

import bolide
from bolide import _binding
from bolide._binding import Plan, Workspace, operator


def cost(call, device, rounds=40, calls=200):
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - begin) / calls)
        if device == "cuda":
            torch.cuda.synchronize()
    return round(best * 1e6, 2)


def rmsnorm(device):
    x, w = torch.randn(1, 128, device=device).half(), torch.ones(128, device=device).half()
    out = torch.empty_like(x)
    yield "rmsnorm(x, w, out=o)", lambda: bolide.rmsnorm(x, w, out=out)
    yield "rmsnorm(x, w)", lambda: bolide.rmsnorm(x, w)


def decode(device, batch=256, page=16):
    lengths = np.arange(1, batch + 1, dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum(-(-lengths // page))]).astype(np.int32)
    last = ((lengths - 1) % page + 1).astype(np.int32)
    names = ("indptr last_page_len num_qo_heads num_kv_heads head_dim page_size q_data_type "
             "workspace")
    host = (torch.from_numpy(indptr), torch.from_numpy(last), 8, 2, 128, page, torch.float16)
    place = Workspace(torch.empty(16, dtype=torch.uint8, device=device))
    sizes = operator("batch_decode", names, phase="workspace")(*host, place.address)
    pinned = {"pin_memory": True} if device == "cuda" else {}
    where = Workspace(torch.empty(max(sizes.device, 16), dtype=torch.uint8, device=device),
                      torch.empty(max(sizes.device_int, 16), dtype=torch.uint8, device=device),
                      torch.empty(max(sizes.pinned, 16), dtype=torch.uint8, **pinned))
    plan = Plan(sizes.plan)
    make = operator("batch_decode", names + " plan stream", phase="plan")

    def again():
        while True:
            try:
                return make(*host, where.address, plan.address, where.stream)
            except bolide.BusyError:
                torch.cuda.synchronize()

    yield f"batch_decode plan of {batch} host lengths", again
    again()
    q = torch.randn(batch, 8, 128, device=device).half()
    k, v = (torch.randn(int(indptr[-1]), page, 2, 128, device=device).half() for _ in "kv")
    ids, out = torch.arange(int(indptr[-1]), dtype=torch.int32, device=device), torch.empty_like(q)
    run = operator("batch_decode", "q k_cache v_cache indices out workspace plan")
    if device == "cuda":
        yield "batch_decode run(q, cache, out=)", lambda: run(q, k, v, ids, out, where.address,
                                                              plan.address)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    direct = set(_binding._direct)
    for way, types in (("direct", direct), ("packed", set())):
        if way == "direct" and not direct:
            continue
        _binding._direct.clear()
        _binding._direct.update(types)
        for make in (rmsnorm, decode):
            for call, function in make(device):
                print(json.dumps({"call": call, "way": way, "device": name,
                                  "torch": torch.__version__, "us": cost(function, device)}))


if __name__ == "__main__":
    main()
