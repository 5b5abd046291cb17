"""The common part of the Python drivers of the zoo: the environment that the runner gives, and the lines that it reads.

A driver prints one JSON object for each feature: `client`, `feature`, `verdict` and `detail`. The verdict is `pass`,
`error` (the detail is the text that the client shows) or `absent` (the client has no such feature).
"""

import base64
import json
import os
import pathlib
import struct
import subprocess
import urllib.request

BASE_URL = os.environ["ZOO_BASE_URL"]
API_KEY = os.environ["ZOO_API_KEY"]
PICTURE = pathlib.Path(os.environ["ZOO_PICTURES"]) / "picture.png"
MASK = pathlib.Path(os.environ["ZOO_PICTURES"]) / "mask.png"
# The upstream refuses the first request with this word, before anything is paid.
RETRY_WORD = os.environ["ZOO_RETRY_WORD"]
PROMPT = "a lighthouse on a cliff at dusk"
RETRY_PROMPT = f"{PROMPT}, {RETRY_WORD}"
# A prompt of more characters than a prompt may have.
LONG_PROMPT = "a cube " * 8000
# A size that no image has: its edges are not multiples of 16.
WRONG_SIZE = "1000x1001"
# Longer texts are cut in the lines that a driver prints.
MAX_DETAIL_CHARS = 600


def report(feature, verdict, detail):
    text = " ".join(str(detail).split())[:MAX_DETAIL_CHARS]
    line = {"client": os.environ["ZOO_CLIENT"], "feature": feature, "verdict": verdict, "detail": text}
    print("\n" + json.dumps(line), flush=True)


def shown(raised):
    """The text of an error, as the client shows it; a group of errors is reduced to its first one."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return f"{type(raised).__name__}: {raised}"


def feature(name):
    """Runs the function at once. It returns the detail; what it raises is the error that the client shows."""

    def run(function):
        try:
            detail = function()
        except Exception as error:
            report(name, "error", shown(error))
        else:
            report(name, "pass", detail)

    return run


def error(*words):
    """Runs the function at once; it must raise an error whose text has all of these words."""

    def run(function):
        try:
            result = function()
        except Exception as raised:
            text = shown(raised)
            missing = [word for word in words if word not in text]
            report("error", "error" if missing else "pass", f"{text} (not in the text: {missing})" if missing else text)
        else:
            report("error", "error", f"no error, but {result!r}")

    return run


def absent(name, reason):
    report(name, "absent", reason)


def png(data, size=None):
    """The detail for an image: its size. Raises if the bytes are no PNG, or one of another size."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise AssertionError(f"not a PNG: {data[:16]!r}")
    found = "{}x{}".format(*struct.unpack(">II", data[16:24]))
    if size not in (None, found):
        raise AssertionError(f"the image has {found}, not {size}")
    return f"a PNG of {found}"


def decoded(text, size=None):
    return png(base64.b64decode(text, validate=True), size)


def fetched(url, size=None):
    """An image by its URL or data URL, without a key."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return png(answer.read(), size)


def run(*command, **environment):
    """Runs a program without standard input; returns its output. Raises with the end of all that it printed if it fails."""
    result = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise RuntimeError((result.stdout + result.stderr).strip()[-MAX_DETAIL_CHARS:])
    return result.stdout
