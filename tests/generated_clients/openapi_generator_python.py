"""The Python client that openapi-generator generates."""

import base64
import os

from imagate_client import ApiClient, Configuration, ImageGenerationRequest, ImageModel, ImagesApi
from imagate_client.exceptions import ConflictException, UnauthorizedException

ORIGIN, KEY, WORD = (os.environ[name] for name in ("CLIENT_TEST_ORIGIN", "CLIENT_TEST_KEY", "CLIENT_TEST_WORD"))


def send(prompt, key=KEY, idempotency_key=None):
    with ApiClient(Configuration(host=ORIGIN, access_token=key)) as client:
        request = ImageGenerationRequest(model=ImageModel.GPT_MINUS_IMAGE_MINUS_2, prompt=prompt, quality="low", n=None)
        return ImagesApi(client).create_image(request, idempotency_key=idempotency_key)


def image(answer):
    data = answer.data[0].b64_json
    return base64.b64decode(data)


def failure(kind, *arguments):
    try:
        answer = send(*arguments)
    except kind as error:
        return error.data.error.code
    raise AssertionError(answer)


first = image(send(f"A fox, counted-{WORD}", idempotency_key=f"run-{WORD}"))
assert first.startswith(b"\x89PNG"), first[:8]
assert image(send(f"A fox, counted-{WORD}", idempotency_key=f"run-{WORD}")) == first
assert send("A fox, answers-quality-ultra").quality == "ultra"
assert failure(UnauthorizedException, "A fox", "sk-wrong") == "INVALID_API_KEY"
assert failure(ConflictException, f"A fox {WORD}, takes-8-seconds") == "image_in_progress"
