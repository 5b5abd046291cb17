"""Streams that break within an image, read by the official client, by httpx-sse, and by readers that take the first or the
last of two equal members, or nothing but the base64. One line of JSON for each: its whole images, and its failure.

IMAGES_BASE_URL and RESPONSES_BASE_URL with their keys name the gateways; PROMPTS and INPUTS are lists of scripts.
"""

import base64
import json
import os

import httpx
import httpx_sse
import openai

IMAGES = {"base_url": os.environ["IMAGES_BASE_URL"], "api_key": os.environ["IMAGES_API_KEY"]}
RESPONSES = {"base_url": os.environ["RESPONSES_BASE_URL"], "api_key": os.environ["RESPONSES_API_KEY"]}
TOOL = {"type": "image_generation", "size": "1024x640", "quality": "low", "partial_images": 1}
# The last words of the events that have an image.
KINDS = ("partial_image", "completed", "output_item.done")
# An image whose bytes end in the middle, which a lenient decoder might take.
MEMBERS = ("b64_json", "partial_image_b64", "result")


def image_body(prompt):
    return {"model": "gpt-image-2", "prompt": prompt, "stream": True, "partial_images": 1, "size": "1024x1024"}


def first_wins(pairs):
    members = {}
    for name, value in pairs:
        members.setdefault(name, value)
    return members


def texts(value):
    """The images of some data, wherever they are."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name in MEMBERS and isinstance(member, str):
                yield member
            else:
                yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)


def decoded(text):
    # The lenient decoder, which skips what is no base64.
    return base64.b64decode(text)


def read_events(place, path, body, take):
    """The images that a reader takes of a stream, and how it ends."""
    images, failure = 0, None
    headers = {"Authorization": f"Bearer {place['api_key']}"}
    with httpx.Client(timeout=60) as client:
        with httpx_sse.connect_sse(client, "POST", place["base_url"] + path, json=body, headers=headers) as source:
            for event in source.iter_sse():
                try:
                    for text in take(event):
                        decoded(text)
                        images += 1
                except ValueError as error:
                    failure = failure or str(error)
                if event.event == "error":
                    failure = json.loads(event.data)["error"]["code"]
    return images, failure


def by_event_name(event):
    return list(texts(json.loads(event.data))) if event.event.endswith(KINDS) else []


def by_type(hook):
    def take(event):
        data = json.loads(event.data, object_pairs_hook=hook)
        return list(texts(data)) if data["type"].endswith(KINDS) else []

    return take


def by_base64(hook):
    return lambda event: list(texts(json.loads(event.data, object_pairs_hook=hook)))


READERS = {
    "httpx-sse": by_event_name,
    "last type": by_type(dict),
    "first type": by_type(first_wins),
    "last base64": by_base64(dict),
    "first base64": by_base64(first_wins),
}


def official_images(prompt):
    images, failure = 0, None
    with openai.OpenAI(max_retries=0, **IMAGES) as client:
        try:
            for event in client.images.generate(**image_body(prompt)):
                decoded(event.b64_json)
                images += 1
        except openai.APIError as error:
            failure = error.code
    return images, failure


def official_responses(text):
    images, failure = 0, None
    with openai.OpenAI(max_retries=0, **RESPONSES) as client:
        try:
            for event in client.responses.create(model="gpt-5", input=text, stream=True, tools=[TOOL]):
                for image in texts(event.model_dump()):
                    decoded(image)
                    images += 1
        except openai.APIError as error:
            failure = error.code
    return images, failure


def show(reader, script, result):
    print(json.dumps({"reader": reader, "script": script, "images": result[0], "failure": result[1]}))


for prompt in json.loads(os.environ["PROMPTS"]):
    show("openai-python", prompt, official_images(prompt))
    for name, take in READERS.items():
        show(name, prompt, read_events(IMAGES, "/images/generations", image_body(prompt), take))
for text in json.loads(os.environ["INPUTS"]):
    show("openai-python", text, official_responses(text))
    body = {"model": "gpt-5", "input": text, "stream": True, "tools": [TOOL]}
    for name, take in READERS.items():
        show(name, text, read_events(RESPONSES, "/responses", body, take))
