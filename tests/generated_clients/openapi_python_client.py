"""The client that openapi-python-client generates."""

import base64
import os
from http import HTTPStatus

from imagate_client import AuthenticatedClient
from imagate_client.api.images import create_image
from imagate_client.models import ErrorResponse, ImageGenerationRequest, ImageModel, ImagesResponse, Quality
from imagate_client.types import UNSET

ORIGIN, KEY, WORD = (os.environ[name] for name in ("CLIENT_TEST_ORIGIN", "CLIENT_TEST_KEY", "CLIENT_TEST_WORD"))


def send(prompt, key=KEY, idempotency_key=UNSET):
    client = AuthenticatedClient(base_url=ORIGIN, token=key, timeout=60)
    request = ImageGenerationRequest(model=ImageModel.GPT_IMAGE_2, prompt=prompt, quality=Quality.LOW, n=None)
    return create_image.sync_detailed(client=client, body=request, idempotency_key=idempotency_key)


def image(answer):
    assert answer.status_code is HTTPStatus.OK, answer
    assert isinstance(answer.parsed, ImagesResponse), answer
    return base64.b64decode(answer.parsed.data[0].b64_json)


def failure(answer):
    assert isinstance(answer.parsed, ErrorResponse), answer
    error = answer.parsed.error
    return answer.status_code, error.type_, error.code


first = image(send(f"A fox, counted-{WORD}", idempotency_key=f"run-{WORD}"))
assert first.startswith(b"\x89PNG"), first[:8]
assert image(send(f"A fox, counted-{WORD}", idempotency_key=f"run-{WORD}")) == first
assert send("A fox, answers-quality-ultra").parsed.quality == "ultra"
unauthorized = (HTTPStatus.UNAUTHORIZED, "authentication_error", "INVALID_API_KEY")
unfinished = (HTTPStatus.CONFLICT, "server_error", "image_in_progress")
assert failure(send("A fox", key="sk-wrong")) == unauthorized
assert failure(send(f"A fox {WORD}, takes-8-seconds")) == unfinished
