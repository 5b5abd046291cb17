"""What the tours in Python share: checks that print one line each, the environment, clients, and sizes of images."""

import base64
import functools
import os
import struct
import sys
import traceback

# One client for all calls of a tour, over one connection pool, or a fresh one for each call.
IS_ONE = os.environ.get("CLIENTS") == "one"
failures = []


def check(name):
    """Runs the function at once and prints a line about it."""

    def run(function):
        try:
            function()
        except Exception:
            failures.append(name)
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"ok     {name}")

    return run


def finish(what):
    """Prints the sum, and ends with 1 when a check failed."""
    print(f"{what}: {len(failures)} failed")
    sys.exit(bool(failures))


def place(which, **options):
    """What a client needs to know of one of the gateways."""
    return {"base_url": os.environ[f"{which}_BASE_URL"], "api_key": os.environ[f"{which}_API_KEY"], **options}


def made(make):
    """A function that makes clients; where one is for all calls, it is made once for the same arguments."""
    return functools.cache(make) if IS_ONE else make


class Each:
    """Stands for a client wherever one is used: each use asks for it."""

    def __init__(self, make):
        self._make = make

    def __getattr__(self, name):
        return getattr(self._make(), name)


def size_of(data):
    """Format and pixel size from the first bytes of the file."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return ("png", *struct.unpack(">II", data[16:24]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = data[12:16]
        if kind == b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return ("webp", width & 0x3FFF, height & 0x3FFF)
        if kind == b"VP8L":
            bits = struct.unpack("<I", data[21:25])[0]
            return ("webp", (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
        return ("webp", int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1)
    if data[:2] == b"\xff\xd8":
        at = 2
        while True:
            marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", data[at + 5 : at + 9])
                return ("jpeg", width, height)
            at += 2 + length
    raise AssertionError(f"not an image: {data[:16]!r}")


def is_image(text, *expected):
    """The text must be an image of this format and size."""
    found = size_of(base64.b64decode(text, validate=True))
    assert found == expected, found
