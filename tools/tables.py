#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes the generated parts of the documents: tools/tables.py [--check] [TOOL]
# A part lies between "<!-- begin NAME -->" and "<!-- end NAME -->". The table of operators comes
# from `TOOL ops --json` (build/bolide), that of parameters from `TOOL coverage --json`, tables of speed
# from bench/results/*/*.jsonl and bench/bars.txt, examples from their sources. With --check nothing is
# written; it prints what is out of step, and a line of counts.

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/speed.md", "docs/attention.md"]
NEEDED = {
    "problem": str, "device": str, "isa": str, "threads": int, "date": str, "commit": str,
    "us": (int, float), "us_min": (int, float, type(None)),  # None: the minimum was not kept
    "spread": (int, float), "bytes": (int, float),
    "flops": (int, float), "ceiling": str, "share": (int, float),
}
OPTIONAL = {"peers": dict, "best_peer": str, "ratio": (int, float)}


def operators(tool):
    """The rows of the table of operators, by family in table order."""
    text = subprocess.run([tool, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    ops = [json.loads(line) for line in text.splitlines()]
    families = {}
    for op in ops:
        families.setdefault(op["family"], []).append(op)
    lines = ["| family | operator | CPU | CUDA | what it computes |", "|---|---|---|---|---|"]
    for family in sorted(families):
        for op in families[family]:
            mark = ["yes" if op[backend] else "–" for backend in ("cpu", "cuda")]
            doc = op["doc"].replace("|", "\\|")
            lines.append(f"| {family} | `{op['name']}` | {mark[0]} | {mark[1]} | {doc} |")
    cpu = sum(bool(op["cpu"]) for op in ops)
    cuda = sum(bool(op["cuda"]) for op in ops)
    lines += ["", f"{len(ops)} operators: {cpu} on the CPU, {cuda} on CUDA."]
    return lines


def coverage(tool):
    """Parameters of FlashInfer's functions that an operator stands for, by family and fate."""
    text = subprocess.run([tool, "coverage", "--json"], check=True, capture_output=True,
                          text=True).stdout
    entries = [entry for entry in map(json.loads, text.splitlines()) if "param" in entry]
    kinds = ["honoured", "python", "always", "hint", "refused", "later", "missing"]
    lines = ["| family | functions | parameters | " + " | ".join(kinds) + " |",
             "|---|---|---|" + "---|" * len(kinds)]
    for family in sorted({entry["family"] for entry in entries}) + ["all"]:
        here = [entry for entry in entries if family in ("all", entry["family"])]
        counts = [sum(entry["status"] == kind for entry in here) for kind in kinds]
        numbers = [len({entry["name"] for entry in here}), len(here)] + counts
        lines.append(f"| {family} | " + " | ".join(map(str, numbers)) + " |")
    return lines


def lse(tool):
    """Base of the log-sum-exp that each operator gives or takes, and FlashInfer's names for it."""
    def ask(command):
        text = subprocess.run([tool, command, "--json"], check=True, capture_output=True,
                              text=True).stdout
        return [json.loads(line) for line in text.splitlines()]

    names = {}
    for entry in ask("coverage"):
        if entry.get("param") in ("return_lse", "lse", "s_a", "s"):
            names.setdefault(entry["op"], {})[entry["name"]] = None
    lines = ["| operator | argument | base | natural logarithm | FlashInfer's names |",
             "|---|---|---|---|---|"]
    for op in ask("ops"):
        rows = [row["name"] for row in op["run"]]
        states = [row for row in rows if row in ("lse", "s", "s_a", "s_b", "s_other", "s_merged")]
        if not states or op["family"] not in ("attention", "cascade"):
            continue
        option = "return_lse_base_on_e"
        words = ", ".join(f"`{row}`" for row in states)
        shown = ", ".join(f"`{name}`" for name in names.get(op["name"], {}))
        lines.append(f"| `{op['name']}` | {words} | 2 | "
                     f"{f'`{option}`' if option in rows else 'no'} | {shown} |")
    return lines


def results():
    """All measured lines, by device, and what is wrong with any of them."""
    devices, faults = {}, []
    for path in sorted(ROOT.glob("bench/results/*/*.jsonl")):
        seen = set()  # a new row takes the place of an old one
        for number, text in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}"
            try:
                line = json.loads(text)
            except ValueError:
                faults.append(f"{where}: not a JSON object")
                continue
            for key, kind in NEEDED.items():
                if not isinstance(line.get(key), kind):
                    faults.append(f"{where}: {key} is missing or of another type")
            for key in line.keys() - NEEDED.keys() - OPTIONAL.keys():
                faults.append(f"{where}: {key} is not a known key")
            which = tuple(line.get(key) for key in ("problem", "isa", "threads"))
            if which in seen:
                faults.append(f"{where}: a second row of this problem")
            seen.add(which)
            devices.setdefault(path.parent.name, []).append(line)
    return devices, faults


def speed(headline):
    """Tables of speed, one a device; the headline has chosen problems only."""
    chosen = None
    if headline:
        text = (ROOT / "bench/problems/headline.txt").read_text()
        chosen = {line for line in text.splitlines() if line and not line.startswith("#")}
    out = []
    for _, lines in sorted(results()[0].items()):
        lines = [line for line in lines if chosen is None or line["problem"] in chosen]
        if not lines:
            continue
        out += ["", f"**{lines[0]['device']}**", "",
                "| problem | on | median µs | share of ceiling | best peer | ours is faster by |",
                "|---|---|---|---|---|---|"]
        for line in lines:
            peer = "–"
            ratio = "–"
            if line.get("best_peer"):
                peer = f"{line['best_peer']} {line['peers'][line['best_peer']]:.4g} µs"
                ratio = f"{line['ratio']:.2f} ×"
            on = line["isa"] if line["isa"] == "cuda" else f"{line['isa']}, {line['threads']} threads"
            out.append(f"| `{line['problem']}` | {on} | {line['us']:.4g} | "
                       f"{100 * line['share']:.0f} % of {line['ceiling']} | {peer} | {ratio} |")
    return out[1:] or ["Nothing has been measured yet."]


def reached(line, what, other):
    """What a row has of what a bar asks; None if it was not measured."""
    if what in ("share", "ratio"):
        return line.get(what)
    if what == "faster":
        return other["us"] / line["us"] if other and line else None
    if what in ("us", "tbs", "tflops"):
        scale = {"us": 1, "tbs": line.get("bytes", 0) / 1e6, "tflops": line.get("flops", 0) / 1e6}
        return None if not line else line["us"] if what == "us" else scale[what] / line["us"]
    peer = line.get("peers", {}).get(what)
    return peer / line["us"] if peer else None


UNITS = {"us": "µs", "tbs": "TB/s", "tflops": "TFLOP/s"}


def aim_text(what, least):
    """What a bar asks, in its unit; a peer's name is told."""
    if what == "share":
        return f"{100 * float(least):.0f} % of the ceiling"
    peer = "" if what in UNITS or what in ("ratio", "faster") else f" {what}"
    return f"{least} {UNITS.get(what, '×')}{peer}"


def have_text(what, value, ceiling):
    if value is None:
        return "–"
    if what == "share":
        return f"{100 * value:.0f} % of {ceiling}"
    return f"{value:.4g} {UNITS[what]}" if what in UNITS else f"{value:.2f} ×"


def behind_its_peer(line):
    """Whether the best peer is faster by more than the run's spread."""
    return line.get("ratio") is not None and line["ratio"] < 1 - line["spread"]


def bars(cuda):
    """What bench/bars.txt asks of the CPU or of the GPU, beside what bench/results has."""
    measured = {}
    for lines in results()[0].values():
        for line in lines:
            measured.setdefault((line["problem"], line["isa"], str(line["threads"])), line)
    text = (ROOT / "bench/bars.txt").read_text()
    out, met, behind = ["| problem | on | aim | measured | |", "|---|---|---|---|---|"], 0, 0
    wanted = [line.split(" ", 4) for line in text.splitlines() if line and line[0] != "#"]
    wanted = [words for words in wanted if (words[0] == "cuda") == cuda]
    for isa, threads, what, least, problem in wanted:
        where, _, beside = problem.partition(" vs ")
        other = measured.get((beside, isa, threads))
        rows = [measured.get((name, isa, threads), {}) for name in where.split(" + ")]
        haves = [reached(line, what, other) for line in rows]
        lowest = max if what == "us" else min
        have = None if None in haves else lowest(haves)
        line = rows[haves.index(have)]
        bar = float(least)
        short = have is None or (have > bar if what == "us" else have < bar)
        # A factor above 1 is met where the machine's ceiling leaves no room for it.
        full = short and have and what == "ratio" and bar > 1 and line.get("share", 0) >= 0.97
        word = ("not measured" if have is None else
                f"at the ceiling of {line['ceiling']}" if full else "not met" if short else "met")
        met += not short or bool(full)
        if short and not full and behind_its_peer(line):
            behind += 1
            word += f", {line['ratio']:.2f} × {line['best_peer']}"
        on = "cuda" if cuda else f"{isa}, {threads} threads"
        name = where.replace(" + ", "` and `") + (f"` beside `{beside}" if beside else "")
        out.append(f"| `{name}` | {on} | {aim_text(what, least)} | "
                   f"{have_text(what, have, line.get('ceiling'))} | {word} |")
    end = f"{met} of {len(wanted)} are met."
    if cuda:
        end += f" Of the others {behind} are behind their best peer by more than the spread of the run."
    return out + ["", end]


def part(name, tool):
    """The lines of a generated part; None if the tool that it needs is not built."""
    if name == "operators":
        return operators(tool) if pathlib.Path(tool).exists() else None
    if name == "coverage":
        return coverage(tool) if pathlib.Path(tool).exists() else None
    if name == "lse":
        return lse(tool) if pathlib.Path(tool).exists() else None
    if name == "results":
        return speed(headline=True)
    if name == "bars":
        return bars(cuda=False)
    if name == "gpu bars":
        return bars(cuda=True)
    if name == "all results":
        return speed(headline=False)
    if name.startswith("example: "):
        text = (ROOT / name[len("example: "):]).read_text().rstrip("\n")
        # The licence line is said once, at the end of the document.
        language, head = ("python", 1) if name.endswith(".py") else ("c", 2)
        return [f"```{language}"] + text.split("\n")[head:] + ["```"]
    sys.exit(f"tables: unknown part: {name}")


def main():
    words = sys.argv[1:]
    check = "--check" in words
    words = [word for word in words if word != "--check"]
    tool = words[0] if words else str(ROOT / "build/bolide")
    passed = failed = skipped = 0
    for document in DOCUMENTS:
        path = ROOT / document
        before = path.read_text()
        after = before
        for name in re.findall(r"<!-- begin (.*) -->", before):
            lines = part(name, tool)
            if lines is None:
                print(f"skipped: {document}: {name}: {tool} is not built")
                skipped += 1
                continue
            end = re.sub(r":.*", "", name)
            pattern = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {end} -->)",
                                 re.S)
            new = pattern.sub(lambda m, text="\n".join(lines): f"{m[1]}\n{text}\n\n{m[2]}", after)
            if new == after:
                passed += 1
            else:
                failed += 1
                print(f"{'FAILED' if check else 'wrote'}: {document}: {name}")
            after = new
        if after != before and not check:
            path.write_text(after)
    for fault in results()[1]:
        print(f"FAILED: {fault}")
    failed += bool(results()[1])
    passed += not results()[1]
    if check:
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
        sys.exit(failed > 0)


main()
