"""Ten edits and some generations after each other over one connection, with each of several clients of Python.

BASE_URL and API_KEY name the gateway, PICTURES a folder with `first.png`. Each client sends its own name as `user`, so
that the test which starts this script can count what its calls cost. One line per check; exit 1 when one failed.
"""

import http.client
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import urllib.parse

import httpx
import openai
import requests

from kit import check, finish

BASE = os.environ["BASE_URL"]
KEY = os.environ["API_KEY"]
PICTURE = (pathlib.Path(os.environ["PICTURES"]) / "first.png").read_bytes()
PLACE = urllib.parse.urlsplit(BASE)
PATH = PLACE.path
# From 100 KB to 12 MB, unsorted.
SIZES = [4_000_000, 100_000, 12_000_000, 300_000, 1_048_576, 8_000_000, 150_000, 2_000_000, 6_000_000, 100_001]
CHUNKS = [1 << 20, 1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 4096, 300_000, 65_536, 7, 1 << 20]


def image(size):
    return PICTURE + os.urandom(size - len(PICTURE))


def fields(user):
    return {"model": "gpt-image-2", "prompt": "a hat", "size": "1024x1024", "user": user}


def form(user, size):
    """A whole form with its content type, as a client writes it that builds it in memory."""
    parts = [f'--xx\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields(user).items()]
    head = b'--xx\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    return b"".join([head, image(size), b"\r\n", *parts, b"--xx--\r\n"]), "multipart/form-data; boundary=xx"


def is_good(status, text, what):
    assert status == 200, f"{what}: {status} {text[:300]!r}"
    assert len(json.loads(text)["data"]) == 1, what


@check("requests")
def _():
    with requests.Session() as session:
        for size in SIZES:
            files = {"image": ("a.png", image(size), "image/png")}
            answer = session.post(f"{BASE}/images/edits", data=fields("requests"), files=files, headers={"Authorization": f"Bearer {KEY}"})
            is_good(answer.status_code, answer.content, size)


@check("http.client")
def _():
    connection = http.client.HTTPConnection(PLACE.hostname, PLACE.port)
    connection.connect()
    # Otherwise a connection that the gateway closed would be silently reopened.
    connection.auto_open = 0
    for size in SIZES:
        body, kind = form("http.client", size)
        connection.request("POST", f"{PATH}/images/edits", body, {"Authorization": f"Bearer {KEY}", "Content-Type": kind})
        answer = connection.getresponse()
        is_good(answer.status, answer.read(), size)


@check("httpx")
def _():
    with httpx.Client(timeout=60) as client:
        for size in SIZES:
            files = {"image": ("a.png", image(size), "image/png")}
            answer = client.post(f"{BASE}/images/edits", data=fields("httpx"), files=files, headers={"Authorization": f"Bearer {KEY}"})
            is_good(answer.status_code, answer.content, size)


@check("openai")
def _():
    client = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0)
    for size in SIZES:
        answer = client.images.edit(model="gpt-image-2", prompt="a hat", size="1024x1024", image=image(size), user="openai")
        assert len(answer.data) == 1, size


def read_answer(reader):
    """Status and body of an answer with a length or in chunks."""
    status = int(reader.readline().split()[1])
    headers = {}
    while line := reader.readline().strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    if "content-length" in headers:
        return status, reader.read(int(headers["content-length"]))
    body = b""
    while length := int(reader.readline(), 16):
        body += reader.read(length)
        reader.readline()
    reader.readline()
    return status, body


@check("a socket that is written at once")
def _():
    with socket.create_connection((PLACE.hostname, PLACE.port)) as link, link.makefile("rb") as reader:
        for size in SIZES:
            body, kind = form("socket", size)
            head = f"POST {PATH}/images/edits HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {KEY}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            link.sendall(head.encode() + body)
            is_good(*read_answer(reader), size)


@check("generations in chunks of any size")
def _():
    with socket.create_connection((PLACE.hostname, PLACE.port)) as link, link.makefile("rb") as reader:
        for size in CHUNKS:
            body = json.dumps(fields("chunks")).encode()
            # White space may follow the object.
            body = body.ljust(2_000 if size < 100 else 1_000_000)
            pieces = (body[at : at + size] for at in range(0, len(body), size))
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            head = f"POST {PATH}/images/generations HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            link.sendall(head.encode() + chunks)
            is_good(*read_answer(reader), size)


@check("curl")
def _():
    with tempfile.TemporaryDirectory() as folder:
        calls = []
        for number, size in enumerate(SIZES):
            name = pathlib.Path(folder) / f"{number}.png"
            name.write_bytes(image(size))
            texts = [argument for field in fields("curl").items() for argument in ("-F", "=".join(field))]
            calls += ["--next"] if calls else []
            calls += ["-sS", "-H", f"Authorization: Bearer {KEY}", "-F", f"image=@{name};type=image/png", *texts]
            calls += ["-o", f"{folder}/{number}.json", "-w", "%{http_code} %{num_connects}\n", f"{BASE}/images/edits"]
        done = subprocess.run(["curl", *calls], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["200 1"] + ["200 0"] * (len(SIZES) - 1), done.stdout


finish("clients of Python")
