#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the language model of examples/llm, and llama.cpp on the same file beside it.

    bench/model.py [--llama LLAMA_BENCH] [--threads N] [--rounds N] [--isa NAME]

Writes 128 tokens from an empty context and reads a prompt of 512, as llama-bench's tg128 and pp512
do, in the default mode and with --exact. Ours and theirs alternate; medians over the rounds are
kept, in microseconds a token, in bench/results/<device>/llm.jsonl. llama-bench comes from the
source that the Python package llama-cpp-python 0.3.36 carries:

    cmake -S vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release
    cmake --build build --target llama-bench
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import compare

PROGRAM = compare.ROOT / "build/bolide-llm"
CLOSING = re.compile(r"prompt (\d+) tokens, ([\d.]+) tokens/s; generated (\d+) tokens, ([\d.]+)")
NEW = 128
# 512 tokens with SmolLM2's vocabulary, as the program counts them.
TEXT = "The quick brown fox jumps over the lazy dog. " * 51 + "The quick"
WEIGHTS = 134515008  # of the model
MODES = {"int16": [], "f32": ["--exact"]}
# What gives the ceilings of this machine at this minute: a read and a multiplication.
CEILINGS = {"read": "mm_block_quant m=1 n=49152 k=576 format=q8_0",
            "fma": "mm_block_quant m=512 n=1536 k=576 format=q4_1"}


def ours(model, options, mode, prompt, new):
    """Tokens a second that one run of the program has read and written."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(prompt)
        file.flush()
        words = [PROGRAM, "--model", model, "--raw", "--prompt-file", file.name, "--max-tokens",
                 str(new), "--threads", str(options.threads), *MODES[mode]]
        environment = dict(os.environ, **({"BOLIDE_ISA": options.isa} if options.isa else {}))
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    read, reading, written, writing = CLOSING.search(done.stderr).groups()
    return int(read), float(reading), int(written), float(writing)


def theirs(model, options):
    """Tokens a second of llama-bench: (pp512, tg128)."""
    words = [options.llama, "-m", model, "-t", str(options.threads), "-p", "512", "-n", str(NEW),
             "-r", "1", "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rates = {bool(run["n_gen"]): run["avg_ts"] for run in json.loads(done.stdout)}
    return rates[False], rates[True]


def ceiling(name):
    """Bytes or flops a microsecond of this machine."""
    best = 0
    for _ in range(3):
        (line,) = compare.tool("bench", *CEILINGS[name].split(), "--json")
        best = max(best, line["bytes" if name == "read" else "flops"] / line["us"] / line["share"])
    return best, line["device"], line["isa"]


def line_of(problem, rates, peers, amount, limit, options):
    speed, device, isa = ceiling(limit)
    us = [1e6 / rate for rate in rates]
    middle = statistics.median(us)
    line = {"problem": problem, "device": device, "isa": options.isa or isa,
            "threads": options.threads, "date": datetime.date.today().isoformat(),
            "commit": compare.commit(), "us": round(middle, 3), "us_min": round(min(us), 3),
            "spread": round((max(us) - min(us)) / middle, 4),
            "bytes": amount if limit == "read" else 0, "flops": 0 if limit == "read" else amount,
            "ceiling": limit, "share": round(amount / middle / speed, 4)}
    if peers:
        peer = 1e6 / statistics.median(peers)
        line.update(peers={"llama.cpp": round(peer, 3)}, best_peer="llama.cpp",
                    ratio=round(peer / middle, 4))
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", help="llama-bench; without it, no peer is timed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa", default="", help="of ours; llama.cpp takes what it was built for")
    options = parser.parse_args()
    model = subprocess.run([sys.executable, compare.ROOT / "examples/llm/fetch.py"],
                           stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    reading, writing = {mode: [] for mode in MODES}, {mode: [] for mode in MODES}
    peers = []
    for _ in range(options.rounds):
        for mode in MODES:
            read, rate, _, _ = ours(model, options, mode, TEXT, 1)
            reading[mode].append(rate)
            _, _, written, rate = ours(model, options, mode, "Once upon a time", NEW + 1)
            if written != NEW + 1:
                sys.exit(f"model: expected {NEW + 1} tokens; got {written}")
            writing[mode].append(rate)
        if options.llama:
            peers.append(theirs(model, options))
    name = os.path.basename(model).removesuffix(".gguf")
    size = os.path.getsize(model)
    for mode in MODES:
        # Each weight is read once and multiplied once a token; a token's own embedding is nothing.
        lines = [line_of(f"llm model={name} compute={mode} generate={NEW}", writing[mode],
                         [rate for _, rate in peers], size, "read", options),
                 line_of(f"llm model={name} compute={mode} prompt={read}", reading[mode],
                         [rate for rate, _ in peers], 2 * WEIGHTS, "fma", options)]
        for line in lines:
            compare.keep(line, "llm")
            print(f"{1e6 / line['us']:8.1f} tokens/s, {100 * line['share']:.0f} % of "
                  f"{line['ceiling']}, {line.get('ratio', 0):.2f} x llama.cpp  {line['problem']}")


if __name__ == "__main__":
    main()
