"""The official Python SDK as programs for DALL·E call it: its names, sizes, qualities and styles, and URLs."""

import openai

from kit import API_KEY, BASE_URL, LONG_PROMPT, PICTURE, PROMPT, RETRY_PROMPT, decoded, error, feature, fetched

client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)


@feature("generation")
def _():
    answer = client.images.generate(
        model="dall-e-3", prompt=PROMPT, size="1792x1024", quality="hd", style="vivid", response_format="url"
    )
    return fetched(answer.data[0].url)


@feature("edit")
def _():
    with PICTURE.open("rb") as image:
        answer = client.images.edit(
            model="dall-e-2", image=image, prompt="add a boat", size="512x512", response_format="b64_json"
        )
    return decoded(answer.data[0].b64_json)


@error("Invalid 'prompt'")
def _():
    return client.images.generate(model="dall-e-3", prompt=LONG_PROMPT)


@feature("retry")
def _():
    return fetched(client.images.generate(model="dall-e-3", prompt=RETRY_PROMPT, response_format="url").data[0].url)
