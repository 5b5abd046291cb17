"""The image tool of LlamaIndex, which only knows DALL·E: its names, `standard`, `vivid`, and URLs."""

import os

from llama_index.tools.openai.image_generation.base import OpenAIImageGenerationToolSpec

from kit import API_KEY, BASE_URL, LONG_PROMPT, PROMPT, RETRY_PROMPT, absent, error, feature, fetched

os.environ["OPENAI_BASE_URL"] = BASE_URL
tool = OpenAIImageGenerationToolSpec(api_key=API_KEY)


@feature("generation")
def _():
    return fetched(tool.image_generation(PROMPT, size="1792x1024"))


absent("edit", "the tool has no edits")


@error("Invalid 'prompt'")
def _():
    return tool.image_generation(LONG_PROMPT)


@feature("retry")
def _():
    return fetched(tool.image_generation(RETRY_PROMPT))
