"""opencode, which gets its images from the tools of the gateway over MCP. The text model is the gateway's, too."""

import json
import os
import pathlib
import re

from kit import API_KEY, BASE_URL, PROMPT, RETRY_PROMPT, WRONG_SIZE, absent, error, feature, fetched, run
from mcp_kit import MCP_URL

PROGRAM = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/.bin/opencode")
CONFIG = {
    "model": "imagate/gpt-5.5",
    "provider": {
        "imagate": {
            "npm": "@ai-sdk/openai",
            "options": {"baseURL": BASE_URL, "apiKey": API_KEY},
            "models": {"gpt-5.5": {}},
        }
    },
    "mcp": {"imagate": {"type": "remote", "url": MCP_URL, "headers": {"Authorization": f"Bearer {API_KEY}"}}},
    "autoupdate": False,
    "share": "disabled",
}
pathlib.Path("opencode.json").write_text(json.dumps(CONFIG))


def draw(prompt, size):
    """The model calls the tool, and repeats its result as the last message."""
    task = f"[[call generate_image {json.dumps({'prompt': prompt, 'size': size})}]]"
    output = run(PROGRAM, "run", "--format", "json", task)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    said = " ".join(event["part"]["text"] for event in events if event["type"] == "text")
    found = re.search(r"https?://[^\s\"\\]+/v1/images/files/[^\s\"\\]+", said)
    if not found:
        raise RuntimeError(said or output)
    return fetched(found.group(), size)


@feature("generation")
def _():
    return draw(PROMPT, "1536x1024")


absent("edit", "the tool takes the id of an earlier image; the clients of MCP above have it")


@error("size")
def _():
    return draw(PROMPT, WRONG_SIZE)


@feature("retry")
def _():
    return draw(RETRY_PROMPT, "1024x1024")
