"""The image generator of Haystack."""

from haystack.components.generators import OpenAIImageGenerator
from haystack.utils import Secret

from kit import API_KEY, BASE_URL, PROMPT, RETRY_PROMPT, WRONG_SIZE, absent, decoded, error, feature


def generate(size, prompt=PROMPT):
    generator = OpenAIImageGenerator(api_key=Secret.from_token(API_KEY), api_base_url=BASE_URL, size=size)
    return decoded(generator.run(prompt)["images"][0], size)


@feature("generation")
def _():
    return generate("1536x1024")


absent("edit", "the component has no edits")


@error("size")
def _():
    return generate(WRONG_SIZE)


@feature("retry")
def _():
    return generate("1024x1024", RETRY_PROMPT)
