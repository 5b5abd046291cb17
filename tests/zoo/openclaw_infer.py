"""OpenClaw, by its commands for images."""

import json
import os
import pathlib

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, error, feature, png, run

PROGRAM = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/.bin/openclaw")
CONFIG = pathlib.Path("openclaw.json").absolute()
PROVIDER = {"baseUrl": BASE_URL, "apiKey": API_KEY, "models": []}
# Without the policy, it calls no address of this machine.
POLICY = {"ssrfPolicy": {"dangerouslyAllowPrivateNetwork": True}}
CONFIG.write_text(json.dumps({"models": {"providers": {"openai": PROVIDER}}, "browser": POLICY}))
ENVIRONMENT = {"OPENCLAW_CONFIG_PATH": str(CONFIG), "OPENCLAW_STATE_DIR": os.getcwd(), "OPENAI_API_KEY": API_KEY}


def draw(command, prompt, size, *options):
    output = pathlib.Path(f"{command}.png").absolute()
    model = ["--model", "openai/gpt-image-2", "--size", size, "--output", output, "--json"]
    run(PROGRAM, "infer", "image", command, "--prompt", prompt, *model, *options, **ENVIRONMENT)
    return png(output.read_bytes(), size)


@feature("generation")
def _():
    return draw("generate", PROMPT, "1536x1024")


@feature("edit")
def _():
    return draw("edit", "add a boat", "1024x1024", "--file", PICTURE)


@error("size")
def _():
    return draw("generate", PROMPT, WRONG_SIZE)


@feature("retry")
def _():
    return draw("generate", RETRY_PROMPT, "1024x1024")
