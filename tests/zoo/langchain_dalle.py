"""The wrapper for DALL·E of LangChain's community package: its default model is `dall-e-2`, and it reads URLs only."""

from langchain_community.utilities.dalle_image_generator import DallEAPIWrapper

from kit import API_KEY, BASE_URL, LONG_PROMPT, PROMPT, RETRY_PROMPT, absent, error, feature, fetched


def generate(prompt, size="1024x1024"):
    return fetched(DallEAPIWrapper(api_key=API_KEY, base_url=BASE_URL, size=size).run(prompt))


@feature("generation")
def _():
    return generate(PROMPT, "512x512")


absent("edit", "the wrapper has no edits")


@error("Invalid 'prompt'")
def _():
    return generate(LONG_PROMPT)


@feature("retry")
def _():
    return generate(RETRY_PROMPT)
