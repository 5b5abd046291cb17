"""The image generator of Pydantic AI. It checks sizes itself, so the error is that of a prompt that is too long."""

from pydantic_ai import BinaryImage, ImageGenerator
from pydantic_ai.images.openai import OpenAIImageGenerationModel
from pydantic_ai.providers.openai import OpenAIProvider

from kit import API_KEY, BASE_URL, LONG_PROMPT, PICTURE, PROMPT, RETRY_PROMPT, error, feature, png

provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)
generator = ImageGenerator(OpenAIImageGenerationModel("gpt-image-2", provider=provider))


def generate(prompt, width, height, images=None):
    result = generator.generate_sync(prompt, images=images, settings={"dimensions": (width, height)})
    return png(result.images[0].content.data, f"{width}x{height}")


@feature("generation")
def _():
    return generate(PROMPT, 1536, 1024)


@feature("edit")
def _():
    return generate("add a boat", 1024, 1024, [BinaryImage(PICTURE.read_bytes(), media_type="image/png")])


@error("Invalid 'prompt'")
def _():
    return generate(LONG_PROMPT, 1024, 1024)


@feature("retry")
def _():
    return generate(RETRY_PROMPT, 1024, 1024)
