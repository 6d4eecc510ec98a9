# SPDX-License-Identifier: Apache-2.0
"""Work of several threads at the same time."""

from __future__ import annotations

import threading


def in_threads(work, count):
    """Calls work(0), work(1), … each on a thread of its own, and waits for all."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
