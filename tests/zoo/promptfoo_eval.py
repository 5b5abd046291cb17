"""promptfoo with its image provider for OpenAI. It checks sizes itself."""

import json
import os
import pathlib
import re

from kit import API_KEY, BASE_URL, LONG_PROMPT, PROMPT, RETRY_PROMPT, absent, error, feature, png, run

PROGRAM = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/.bin/promptfoo")
QUIET = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_CONFIG_DIR": os.getcwd()}


def draw(prompt, size):
    provider = {"id": "openai:image:gpt-image-2", "config": {"apiBaseUrl": BASE_URL, "apiKey": API_KEY, "size": size}}
    config = {"prompts": ["{{text}}"], "providers": [provider], "tests": [{"vars": {"text": prompt}}]}
    pathlib.Path("config.json").write_text(json.dumps(config))
    output = pathlib.Path("out.json")
    output.unlink(missing_ok=True)
    try:
        run(PROGRAM, "eval", "-c", "config.json", "--no-cache", "-o", output, "--no-progress-bar", **QUIET)
    except RuntimeError:
        if not output.exists():
            raise
    result = json.loads(output.read_text())["results"]["results"][0]
    # The program keeps the image in a file of its own.
    found = re.search(r"promptfoo://blob/(\w+)", json.dumps(result))
    if not found:
        raise RuntimeError(result.get("error") or json.dumps(result))
    return png(next(pathlib.Path("blobs").rglob(found.group(1))).read_bytes(), size)


@feature("generation")
def _():
    return draw(PROMPT, "1536x1024")


absent("edit", "the provider has no edits")


@error("Invalid 'prompt'")
def _():
    return draw(LONG_PROMPT, "1024x1024")


@feature("retry")
def _():
    return draw(RETRY_PROMPT, "1024x1024")
