"""The command line `gpt-image-2-skill`, written in Rust, from its npm package. It checks sizes itself."""

import os
import pathlib

from kit import API_KEY, BASE_URL, LONG_PROMPT, PICTURE, PROMPT, RETRY_PROMPT, error, feature, png, run

PROGRAM = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/.bin/gpt-image-2-skill")


def draw(kind, prompt, size, *options):
    place = ["--provider", "openai", "--api-key", API_KEY, "--openai-api-base", BASE_URL]
    run(PROGRAM, "--json", *place, "images", kind, "--prompt", prompt, "--out", "out.png", "--size", size, *options)
    return png(pathlib.Path("out.png").read_bytes(), size)


@feature("generation")
def _():
    return draw("generate", PROMPT, "1536x1024")


@feature("edit")
def _():
    return draw("edit", "add a boat", "1024x1024", "--ref-image", PICTURE)


@error("Invalid 'prompt'")
def _():
    return draw("generate", LONG_PROMPT, "1024x1024")


@feature("retry")
def _():
    return draw("generate", RETRY_PROMPT, "1024x1024")
