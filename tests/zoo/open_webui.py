"""Open WebUI, by its HTTP API, with its default size of 512x512."""

import base64
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from kit import API_KEY, BASE_URL, LONG_PROMPT, PICTURE, PROMPT, RETRY_PROMPT, absent, feature, png, report, shown

# The first start makes a database, and imports large packages.
MAX_START_SECONDS = 300


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


PORT = free_port()
ENVIRONMENT = {
    **os.environ,
    "DATA_DIR": os.path.join(os.getcwd(), "data"),
    "WEBUI_SECRET_KEY": "zoo",
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "ENABLE_OLLAMA_API": "false",
    "ENABLE_OPENAI_API": "false",
    "ENABLE_IMAGE_GENERATION": "true",
    "IMAGE_GENERATION_MODEL": "gpt-image-2",
    "IMAGES_OPENAI_API_BASE_URL": BASE_URL,
    "IMAGES_OPENAI_API_KEY": API_KEY,
    "ENABLE_IMAGE_EDIT": "true",
    "IMAGE_EDIT_MODEL": "gpt-image-2",
    "IMAGES_EDIT_OPENAI_API_BASE_URL": BASE_URL,
    "IMAGES_EDIT_OPENAI_API_KEY": API_KEY,
}


def call(path, body=None, token=None):
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()
    except urllib.error.HTTPError as refused:
        raise RuntimeError(refused.read().decode()) from None


def wait():
    deadline = time.monotonic() + MAX_START_SECONDS
    while time.monotonic() < deadline:
        try:
            return call("/health")
        except OSError:
            time.sleep(1)
    raise RuntimeError("the server does not start")


def draw(path, body):
    image = json.loads(call(f"/api/v1/images/{path}", body, token))[0]
    return png(call(image["url"], token=token))


command = ["open-webui", "serve", "--host", "127.0.0.1", "--port", str(PORT)]
log = open("open-webui.txt", "w")
server = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
try:
    wait()
    user = {"name": "Zoo", "email": "zoo@example.com", "password": "a-long-password-1"}
    token = json.loads(call("/api/v1/auths/signup", user))["token"]

    @feature("generation")
    def _():
        return draw("generations", {"prompt": PROMPT})

    @feature("edit")
    def _():
        data = base64.b64encode(PICTURE.read_bytes()).decode()
        return draw("edit", {"image": f"data:image/png;base64,{data}", "prompt": "add a boat"})

    # It drops the body of an error before it shows the error.
    STATUS_ONLY = '{"detail":"[ERROR: Bad Request]"}'
    try:
        draw("generations", {"prompt": LONG_PROMPT})
        report("error", "error", "no error")
    except RuntimeError as refused:
        if str(refused) == STATUS_ONLY:
            absent("error", f"it shows the words of the status and drops the message: {STATUS_ONLY}")
        else:
            report("error", "pass" if "Invalid 'prompt'" in str(refused) else "error", shown(refused))

    @feature("retry")
    def _():
        return draw("generations", {"prompt": RETRY_PROMPT})
finally:
    server.send_signal(signal.SIGTERM)
    server.wait(30)
