"""The Codex CLI. The argument names the way to its images: `tool` is its own image tool, which calls the image
endpoints; `hosted` is the image tool of the Responses API, which releases up to 0.125 use.

Codex reaches only the gateway: the proxy setting leads all its other connections to a port that refuses them.
"""

import base64
import json
import os
import pathlib
import subprocess
import sys
import time

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, absent, error, feature, png

IS_HOSTED = sys.argv[1] == "hosted"
HOME = pathlib.Path(os.environ["ZOO_FOLDER"]) / "codex"
CONFIG = f"""
check_for_update_on_startup = false
model = "gpt-5.5"
model_provider = "imagate"

[model_providers.imagate]
name = "OpenAI"
requires_openai_auth = true
base_url = "{BASE_URL}"
env_key = "IMAGATE_API_KEY"
wire_api = "responses"

[analytics]
enabled = false

[features]
apps = false
plugins = false
enable_request_compression = false
"""


def encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def prepare():
    """Writes the configuration, and a login without a signature: with it, Codex offers its image tool."""
    HOME.mkdir()
    (HOME / "config.toml").write_text(CONFIG)
    account = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "account", "chatgpt_user_id": "user"}
    payload = encoded({"exp": 4_102_444_800, "https://api.openai.com/auth": account})
    token = f"{encoded({'alg': 'none', 'typ': 'JWT'})}.{payload}.{encoded('none')}"
    tokens = {"id_token": token, "access_token": token, "refresh_token": "none", "account_id": "account"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    login = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "last_refresh": now, "tokens": tokens}
    (HOME / "auth.json").write_text(json.dumps(login))


def program():
    vendor = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/@openai")
    return next(path for path in vendor.glob("*/vendor/**/codex") if path.is_file())


def images():
    return set(HOME.glob("generated_images/*/*"))


def codex(task):
    """Runs a task; the detail is that of the image that it wrote, else the message of the failed turn is raised."""
    before = images()
    environment = {
        **os.environ,
        "CODEX_HOME": str(HOME),
        "IMAGATE_API_KEY": API_KEY,
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    command = [program(), "exec", "-s", "danger-full-access", "--skip-git-repo-check", "--json", task]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    new = images() - before
    if new:
        return png(new.pop().read_bytes())
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    raise RuntimeError(json.dumps(events[-2:]) or run.stderr)


def drawn(prompt, **options):
    if IS_HOSTED:
        return codex(prompt)
    return codex(f"[[call imagegen {json.dumps({'prompt': prompt, **options})}]]")


prepare()


@feature("generation")
def _():
    return drawn(PROMPT)


if IS_HOSTED:
    absent("edit", "this release attaches images to its prompt only")
    absent("error", "the model sets the options of its tool")
else:

    @feature("edit")
    def _():
        return drawn("add a boat", referenced_image_paths=[str(PICTURE)])

    @error("background")
    def _():
        return drawn(PROMPT, transparent_background=True)


@feature("retry")
def _():
    return drawn(RETRY_PROMPT)
