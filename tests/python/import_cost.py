# SPDX-License-Identifier: Apache-2.0
"""What `import bolide` costs, judged against the machine: beside what NumPy and tvm-ffi, which it
needs, cost there. Each is the least processor time of several processes, taken in turn, so that
neither a slow machine nor a busy one decides."""

from __future__ import annotations

import subprocess
import sys

CODE = {
    "needed": "import numpy, tvm_ffi",
    "import": "import bolide",
    "first use": "import bolide; bolide.rmsnorm",
}
ROUNDS = 6


def _once(code: str, command: list, environment) -> float:
    """torch is left out; its own import takes longer than all of this."""
    text = ("import sys, time; sys.modules['torch'] = None; t = time.process_time(); "
            f"{code}; print(time.process_time() - t)")
    out = subprocess.run([*command, "-c", text], capture_output=True, text=True, timeout=300,
                         env=environment, cwd="/")
    assert out.returncode == 0, out.stderr
    return float(out.stdout)


def check(*options: str, environment=None, python=(sys.executable,)) -> None:
    """Importing the package loads next to nothing; the first use loads the library and tvm-ffi, and
    all that is ours, which must stay small beside them."""
    taken = {what: [] for what in CODE}
    for _ in range(ROUNDS):
        for what, code in CODE.items():
            taken[what].append(_once(code, [*python, *options], environment))
    least = {what: min(times) for what, times in taken.items()}
    print("processor time, " + ", ".join(f"{what}: {t:.3f} s" for what, t in least.items()))
    assert least["import"] <= 0.4 * least["needed"], least
    assert least["first use"] <= 2 * least["needed"], least
    if list(python) == [sys.executable]:  # seconds of an emulated machine mean nothing
        assert least["first use"] <= 1.5, least
