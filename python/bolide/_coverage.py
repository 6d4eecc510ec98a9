# SPDX-License-Identifier: Apache-2.0
"""How much of FlashInfer's interface there is, parameter by parameter.

The table is tools/coverage.txt of the sources, which describes its own form; a wheel carries it as
coverage.txt in this folder. The tests of the repository hold it against the interface and against
the operators' rows.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Iterator, NamedTuple

_KINDS = ("honoured", "python", "always", "hint", "refused", "missing", "later")


class Parameter(NamedTuple):
    """What becomes of one parameter of one function, or of some of its values."""

    function: str
    operator: str
    name: str
    status: str
    values: tuple[str, ...]
    reason: str


class Coverage(NamedTuple):
    """Counts by status, and every parameter behind them."""

    counts: dict[str, int]
    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in _KINDS)


def _text() -> str:
    here = Path(__file__).parent
    for path in (here / "coverage.txt", here.parent.parent / "tools" / "coverage.txt"):
        if path.exists():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError("bolide: coverage.txt is not in the package")


_ENTRY = re.compile(r"(?P<status>\w+)(?: \[(?P<values>[^]]*)\])?(?: \((?P<reason>.*)\))?$")


def _read(text: str) -> Iterator[Parameter]:
    functions: list[str] = []
    operator = ""
    for line in text.splitlines():
        if line.startswith("  ") and not line.strip().startswith("#"):
            name, colon, rest = line.strip().partition(": ")
            found = _ENTRY.match(rest) if rest.split(" ")[0] in _KINDS else None
            names = [name] if colon else name.split()
            for each in names:
                for function in functions:
                    yield Parameter(
                        function, operator, each, found["status"] if found else "honoured",
                        tuple((found["values"] or "").split()) if found else (),
                        (found["reason"] or "") if found else "")
        elif " -> " in line and not line.startswith("#"):
            left, operator = line.split(" -> ")
            functions = left.split(", ")


def coverage() -> Coverage:
    """What becomes of each parameter of FlashInfer's functions that an operator stands for.

    ``str(bolide.coverage())`` counts: honoured; done by this package; always so; a hint, which may
    be without effect; refused by name; missing; coming later with its formats.
    """
    parameters = tuple(_read(_text()))
    counts = Counter(p.status for p in parameters)
    return Coverage({kind: counts[kind] for kind in _KINDS}, parameters)
