"""The command line of the MCP inspector."""

import json
import os
import pathlib
import subprocess

from kit import API_KEY
from mcp_kit import MCP_URL, report_features

PROGRAM = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/.bin/mcp-inspector")


def call(name, arguments):
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    words = [word for key, value in texts.items() for word in ("--tool-arg", f"{key}={value}")]
    place = [MCP_URL, "--transport", "http", "--header", f"Authorization: Bearer {API_KEY}"]
    command = [PROGRAM, "--cli", *place, "--method", "tools/call", "--tool-name", name, *words]
    # Its exit code is that of the tool: the result is on standard output in both cases.
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not result.stdout:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout)


report_features(call)
