"""The common part of the drivers of MCP clients: the arguments of the tools, and what their results must have."""

import base64
import json

from kit import BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, error, feature, fetched

# The address of the MCP server.
MCP_URL = BASE_URL.removesuffix("/v1") + "/mcp"
# No answer may need more tokens in the context of an agent; a token has at least four bytes on average.
MAX_RESULT_BYTES = 100_000
# A client that waits for 5 seconds, and an image that takes 60, at a fifth of their times.
CLIENT_SECONDS = 1
IMAGE_SECONDS = 12
MAX_CALLS = 60


def checked(result):
    """The parts of a result, a JSON object; raises its text if the tool failed."""
    text = json.dumps(result)
    if len(text) > MAX_RESULT_BYTES:
        raise AssertionError(f"the result has {len(text)} bytes")
    if result.get("isError"):
        raise RuntimeError(" ".join(part.get("text", "") for part in result["content"]))
    return result["content"]


def image_of(result, size):
    """The detail for a result with a preview and a link to an image of this size."""
    parts = checked(result)
    if not any(part["type"] == "image" for part in parts):
        raise AssertionError("the result has no preview")
    return fetched(next(part["uri"] for part in parts if part["type"] == "resource_link"), size)


def repeated_until_made(call_within):
    """The detail for an image that takes longer than its client waits: the same call, again and again."""
    arguments = {"prompt": f"{RETRY_PROMPT}, takes-{IMAGE_SECONDS}-seconds", "size": "1024x1024"}
    for count in range(1, MAX_CALLS + 1):
        try:
            result = call_within("generate_image", arguments, CLIENT_SECONDS)
        except Exception as error:
            last = error
            continue
        last = result
        if not result.get("isError") and result["structuredContent"]["status"] == "completed":
            return f"{image_of(result, '1024x1024')}, with call {count}"
    raise AssertionError(f"no image after {MAX_CALLS} calls: {last}")


def report_features(call, call_within=None):
    """Reports every feature by this function, which calls a tool and returns its result as a JSON object.

    `call_within` does the same and raises an error after some seconds, its third argument.
    """

    @feature("generation")
    def _():
        return image_of(call("generate_image", {"prompt": PROMPT, "size": "1536x1024"}), "1536x1024")

    @feature("edit")
    def _():
        image = base64.b64encode(PICTURE.read_bytes()).decode()
        arguments = {"prompt": "add a boat", "images": [image], "size": "1024x1024"}
        return image_of(call("edit_image", arguments), "1024x1024")

    @error("size")
    def _():
        return checked(call("generate_image", {"prompt": PROMPT, "size": WRONG_SIZE}))

    @feature("retry")
    def _():
        # An agent calls again; no client does so by itself.
        if call_within is not None:
            return repeated_until_made(call_within)
        arguments = {"prompt": RETRY_PROMPT, "size": "1024x1024"}
        first = call("generate_image", arguments)
        return image_of(call("generate_image", arguments) if first.get("isError") else first, "1024x1024")
