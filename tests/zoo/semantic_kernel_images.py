"""Semantic Kernel. The argument `azure` selects its service for Azure. It checks sizes itself."""

import asyncio
import sys

import openai
from semantic_kernel.connectors.ai.open_ai import AzureTextToImage, OpenAITextToImage
from semantic_kernel.connectors.ai.open_ai.prompt_execution_settings.open_ai_text_to_image_execution_settings import (
    ImageSize,
    OpenAITextToImageExecutionSettings,
)

from kit import API_KEY, BASE_URL, LONG_PROMPT, PICTURE, PROMPT, RETRY_PROMPT, decoded, error, feature


def service():
    if "azure" in sys.argv:
        # The service itself accepts only addresses with `https`.
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=BASE_URL.removesuffix("/v1"),
            azure_deployment="gpt-image-2",
            api_key=API_KEY,
            api_version="2025-04-01-preview",
        )
        return AzureTextToImage(deployment_name="gpt-image-2", async_client=client)
    client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)
    return OpenAITextToImage(ai_model_id="gpt-image-2", async_client=client)


def settings():
    return OpenAITextToImageExecutionSettings(size=ImageSize(width=1024, height=1024), quality="high")


def generate(prompt):
    return decoded(asyncio.run(service().generate_images(prompt, settings=settings()))[0], "1024x1024")


@feature("generation")
def _():
    return generate(PROMPT)


@feature("edit")
def _():
    images = service().edit_image("add a boat", image_paths=[str(PICTURE)], settings=settings())
    return decoded(asyncio.run(images)[0], "1024x1024")


@error("Invalid 'prompt'")
def _():
    return generate(LONG_PROMPT)


@feature("retry")
def _():
    return generate(RETRY_PROMPT)
