#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times problems with `bolide bench`, and the same work in torch on the CPU, in one run.
bench/peers_cuda.py compares with FlashInfer on a GPU.

    bench/compare.py [--ours] [--backend cpu|cuda] [--isa NAME|all] [--threads N] [--rounds N]
                     [--seconds S] [--eager] [--keep DIR] [FILE|PROBLEM]...

Without a file or problem, every file in bench/problems (in bench/problems/cuda for the GPU) is
taken. Ours and theirs alternate, and medians over the rounds are kept; a peer that takes more than
twice as long as the best is not timed again. A peer is whichever of torch's forms is fastest: f32
or bf16, eager or compiled (--eager leaves the compiled ones out), on values of the same
distribution. Torch is installed for the measurement only, into a virtual environment of its own,
unless the Python at hand has it; with --ours it is not needed.

--isa avx2 holds torch to AVX2 as well, and the device's name says so: that is how a machine with
AVX2 only is measured on a larger one.

One line a problem goes to bench/results/<device>/<family>.jsonl (--keep: to another folder) and
replaces the line of the same problem, instruction set and number of threads. tools/tables.py
prints them into the documents.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import re
import select
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = ROOT / "build/bolide"
ENVIRONMENT = ROOT / ".venv-bench"
PACKAGES = ["torch", "numpy", "setuptools"]
RESULTS = ROOT / "bench/results"
HELD_TO_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
PATIENCE = 300  # seconds for one line of ours
ISAS = ["baseline", "avx2", "emu512", "avx512"]


def read_problems(words, backend):
    """Problem strings from the words: files have one a line, anything else is a problem."""
    if not words:
        folder = ROOT / "bench/problems" / ("cuda" if backend == "cuda" else "")
        words = sorted(str(path) for path in folder.glob("*.txt"))
    problems = []
    for word in words:
        if pathlib.Path(word).is_file():
            lines = pathlib.Path(word).read_text().splitlines()
            problems += [line.strip() for line in lines if line.strip() and line[0] != "#"]
        else:
            problems.append(word)
    return list(dict.fromkeys(problems))


class Failure(Exception):
    """A sentence; the problem is left out."""


def tool(*words):
    """What the tool prints, one JSON object a line."""
    done = subprocess.run([TOOL, *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(f"{TOOL.name} {' '.join(words)} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def isas(wanted):
    """The instruction sets to time; "" is the one that the library chooses."""
    if wanted != "all":
        return [wanted]
    words = [TOOL, "check", "rmsnorm", "n=1", "d=8", "--isa"]
    return [isa for isa in ISAS if subprocess.run([*words, isa], capture_output=True).returncode == 0]


class Ours:
    """A `bolide bench` that takes a problem at a time and keeps its memory for them."""

    def __init__(self, isa, options):
        words = [TOOL, "bench", "-", "--json", "--backend", options.backend]
        words += ["--seconds", str(options.seconds)]
        words += ["--threads", str(options.threads)] if options.threads else []
        words += ["--isa", isa] if isa else []
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def measure(self, problem):
        self.process.stdin.write(f"{problem}\n".encode())
        self.process.stdin.flush()
        ready = select.select([self.process.stdout], [], [], PATIENCE)[0]
        text = self.process.stdout.readline() if ready else b""
        if not text:
            raise Failure(f"{problem}: no result; lists are not taken here, and an operator has to "
                          "have an implementation")
        return json.loads(text)

    def close(self):
        self.process.kill()
        self.process.wait()


def within_twice_the_best(calls, times):
    """The calls that may still turn out the best."""
    best = min((us[-1] for us in times.values()), default=0)
    return {name: call for name, call in calls.items() if times[name][-1] <= 2 * best}


def measure(problem, ours, options):
    """Alternates ours and theirs; returns the line to keep."""
    calls = {}
    if not options.ours and options.backend == "cpu":
        import peers

        calls = peers.calls(problem, options.threads, options.seconds, options.eager)
    lines, times = [], {name: [] for name in calls}
    for _ in range(options.rounds):
        lines.append(ours.measure(problem))
        for name, call in calls.items():
            times[name].append(call())
        calls = within_twice_the_best(calls, times)
    lines.sort(key=lambda line: line["us"])
    line = lines[len(lines) // 2]
    line["us_min"] = min(other["us_min"] for other in lines)
    line.setdefault("date", datetime.date.today().isoformat())
    line["device"] = device(line, options)
    if options.commit:
        line["commit"] = options.commit
    if times:
        line["peers"] = {name: round(statistics.median(us), 3) for name, us in times.items()}
        line["best_peer"] = min(line["peers"], key=line["peers"].get)
        line["ratio"] = round(line["peers"][line["best_peer"]] / line["us"], 4)
    return line


def device(line, options):
    """The name of the machine, with what tells it from others of that name."""
    if options.backend == "cuda":
        return line["device"]
    cores = len(os.sched_getaffinity(0))
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    units = ", AMX" if "amx_bf16" in flags else ""
    held = ", held to AVX2" if line["isa"] == "avx2" and "avx512f" in flags else units
    return f"{line['device']}, {cores} cores{held}"


def keep(line, family, results):
    folder = re.sub(r"[^a-z0-9]+", "-", line["device"].lower().removeprefix("nvidia ")).strip("-")
    path = results / folder / f"{family}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    old = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []

    def identity(other):
        return other["problem"], other["isa"], other["threads"]

    kept = [line if identity(other) == identity(line) else other for other in old]
    if line not in kept:
        kept.append(line)
    aside = path.with_suffix(".new")
    aside.write_text("".join(json.dumps(other, ensure_ascii=False) + "\n" for other in kept))
    aside.replace(path)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", action="store_true", help="time no peers")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--isa", default="", help="an instruction set, or all of this machine")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as a call would take")
    parser.add_argument("--rounds", type=int, default=0, help="default: 5 with peers, else 1")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--eager", action="store_true", help="no compiled peers")
    parser.add_argument("--commit", default="", help="of the build, where it has no repository")
    parser.add_argument("--keep", type=pathlib.Path, default=RESULTS, help="folder of results")
    parser.add_argument("problem", nargs="*", metavar="FILE|PROBLEM")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.ours else 5)
    return options


def find_torch(options):
    """Goes on in an environment that has torch, held to the instruction set of ours."""
    if options.ours or options.backend != "cpu":
        return
    if options.isa == "avx2" and not HELD_TO_AVX2.items() <= os.environ.items():
        os.environ.update(HELD_TO_AVX2)
        os.execv(sys.executable, [sys.executable, __file__, *sys.argv[1:]])
    if not importlib.util.find_spec("torch"):
        python = ENVIRONMENT / "bin/python"
        subprocess.run([ROOT / "tools/venv.sh", ENVIRONMENT, *PACKAGES], check=True)
        os.execv(python, [python, __file__, *sys.argv[1:]])


def report(line):
    text = f"{line['us']:10.2f} us  {100 * line['share']:5.1f} % of {line['ceiling']}"
    if "ratio" in line:
        text += f"  {line['ratio']:6.2f} x {line['best_peer']}"
    print(f"{text}  {line['problem']}  {line['isa']}, {line['threads']}", flush=True)


def main():
    options = arguments()
    find_torch(options)
    families = {op["name"]: op["family"] for op in tool("ops", "--json")}
    failed = 0
    problems = read_problems(options.problem, options.backend)
    for isa in isas(options.isa):
        ours = Ours(isa, options)
        for problem in problems:
            try:
                line = measure(problem, ours, options)
            except Failure as failure:
                print(f"compare: {failure}", file=sys.stderr)
                failed += 1
                ours.close()
                ours = Ours(isa, options)
                continue
            keep(line, families[line["problem"].split()[0]], options.keep)
            report(line)
        ours.close()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
