"""LiteLLM as a library."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a price list otherwise

import litellm

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, decoded, error, feature

litellm.suppress_debug_info = True
PLACE = {"model": "openai/gpt-image-2", "api_base": BASE_URL, "api_key": API_KEY}


def generate(prompt, size):
    return decoded(litellm.image_generation(prompt=prompt, size=size, **PLACE).data[0].b64_json, size)


@feature("generation")
def _():
    return generate(PROMPT, "1536x1024")


@feature("edit")
def _():
    with PICTURE.open("rb") as image:
        answer = litellm.image_edit(prompt="add a boat", image=image, size="1024x1024", **PLACE)
    return decoded(answer.data[0].b64_json, "1024x1024")


@error("size")
def _():
    return generate(PROMPT, WRONG_SIZE)


@feature("retry")
def _():
    return generate(RETRY_PROMPT, "1024x1024")
