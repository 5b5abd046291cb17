"""The official Python SDK with its client for Azure: the header `api-key`, and paths with the name of a deployment."""

import openai

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, decoded, error, feature

client = openai.AzureOpenAI(
    azure_endpoint=BASE_URL.removesuffix("/v1"),
    azure_deployment="gpt-image-2",
    api_version="2025-04-01-preview",
    api_key=API_KEY,
)


def image(answer, size):
    return decoded(answer.data[0].b64_json, size)


@feature("generation")
def _():
    return image(client.images.generate(model="gpt-image-2", prompt=PROMPT, size="1536x1024"), "1536x1024")


@feature("edit")
def _():
    answer = client.images.edit(model="gpt-image-2", image=PICTURE.open("rb"), prompt="add a boat", size="1024x1024")
    return image(answer, "1024x1024")


@error("size")
def _():
    return client.images.generate(model="gpt-image-2", prompt=PROMPT, size=WRONG_SIZE)


@feature("retry")
def _():
    return image(client.images.generate(model="gpt-image-2", prompt=RETRY_PROMPT, size="1024x1024"), "1024x1024")
