"""LangChain with the image tool of the Responses API."""

import base64

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, decoded, error, feature

chat = ChatOpenAI(model="gpt-5.5", use_responses_api=True, base_url=BASE_URL, api_key=API_KEY)


def draw(size, *content):
    tool = {"type": "image_generation", "size": size, "quality": "low"}
    message = chat.bind_tools([tool]).invoke([HumanMessage(list(content))])
    calls = [block for block in message.content if block["type"] == "image_generation_call"]
    return decoded(calls[0]["result"], size)


def text(prompt):
    return {"type": "text", "text": prompt}


@feature("generation")
def _():
    return draw("1024x640", text(PROMPT))


@feature("edit")
def _():
    data = base64.b64encode(PICTURE.read_bytes()).decode()
    image = {"type": "image", "base64": data, "mime_type": "image/png"}
    return draw("1024x1024", text("add a boat"), image)


@error("size")
def _():
    return draw(WRONG_SIZE, text(PROMPT))


@feature("retry")
def _():
    return draw("1024x1024", text(RETRY_PROMPT))
