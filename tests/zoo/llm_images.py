"""The command line `llm` with its plugin for OpenAI images, which names the model `gpt-image-1.5`."""

import os
import pathlib

from kit import API_KEY, BASE_URL, LONG_PROMPT, PICTURE, PROMPT, RETRY_PROMPT, error, feature, png, run

ENVIRONMENT = {"OPENAI_API_KEY": API_KEY, "OPENAI_BASE_URL": BASE_URL, "LLM_USER_PATH": os.getcwd()}


def llm(prompt, *options):
    path = pathlib.Path("out.png").absolute()
    run("llm", "-m", "openai/gpt-image-1.5", *options, "-o", "output", path, prompt, **ENVIRONMENT)
    return path.read_bytes()


@feature("generation")
def _():
    return png(llm(PROMPT, "-o", "size", "landscape"), "1536x1024")


@feature("edit")
def _():
    return png(llm("add a boat", "-a", str(PICTURE)), "1024x1024")


@error("Invalid 'prompt'")
def _():
    return llm(LONG_PROMPT)


@feature("retry")
def _():
    return png(llm(RETRY_PROMPT), "1024x1024")
