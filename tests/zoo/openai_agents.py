"""The OpenAI Agents SDK with the image tool of the Responses API."""

import asyncio
import base64

from agents import Agent, ImageGenerationTool, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, decoded, error, feature

# It would report every run to its maker.
set_tracing_disabled(True)


async def run(size, content):
    async with AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY) as client:
        tool = ImageGenerationTool(tool_config={"type": "image_generation", "size": size, "quality": "low"})
        agent = Agent(name="a painter", model=OpenAIResponsesModel(model="gpt-5.5", openai_client=client), tools=[tool])
        return await Runner.run(agent, [{"role": "user", "content": content}])


def draw(size, *content):
    result = asyncio.run(run(size, list(content)))
    calls = [item.raw_item for item in result.new_items if item.raw_item.type == "image_generation_call"]
    return decoded(calls[0].result, size)


def text(prompt):
    return {"type": "input_text", "text": prompt}


@feature("generation")
def _():
    return draw("1024x640", text(PROMPT))


@feature("edit")
def _():
    data = base64.b64encode(PICTURE.read_bytes()).decode()
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}
    return draw("1024x1024", text("add a boat"), image)


@error("size")
def _():
    return draw(WRONG_SIZE, text(PROMPT))


@feature("retry")
def _():
    return draw("1024x1024", text(RETRY_PROMPT))
