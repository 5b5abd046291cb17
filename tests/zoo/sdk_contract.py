"""Prints the image contract of the installed official SDK as JSON: for each type its fields, and the words of each field.

The keys are names of `openapi/gateway.json`. A field whose values are not a list of words has an empty list.
"""

import json
import typing

import openai
import pydantic
from openai.types import (
    Image,
    ImageEditCompletedEvent,
    ImageEditPartialImageEvent,
    ImageGenCompletedEvent,
    ImageGenPartialImageEvent,
    ImageModel,
    ImagesResponse,
    image_edit_params,
    image_generate_params,
)
from openai.types.responses import tool

TYPES = {
    "ImageGenerationRequest": image_generate_params.ImageGenerateParamsStreaming,
    "ImageEditForm": image_edit_params.ImageEditParamsStreaming,
    "ImageGenerationTool": tool.ImageGeneration,
    "ImagesResponse": ImagesResponse,
    "Image": Image,
    "ImageGenerationPartialImageEvent": ImageGenPartialImageEvent,
    "ImageGenerationCompletedEvent": ImageGenCompletedEvent,
    "ImageEditPartialImageEvent": ImageEditPartialImageEvent,
    "ImageEditCompletedEvent": ImageEditCompletedEvent,
}


def words(annotation):
    """The words that a field can have, wherever they are in its type."""
    if typing.get_origin(annotation) is typing.Literal:
        return [word for word in typing.get_args(annotation) if isinstance(word, str)]
    return [word for argument in typing.get_args(annotation) for word in words(argument)]


def fields(kind):
    if issubclass(kind, pydantic.BaseModel):
        return {name: words(field.annotation) for name, field in kind.model_fields.items()}
    return {name: words(annotation) for name, annotation in typing.get_type_hints(kind).items()}


contract = {name: fields(kind) for name, kind in TYPES.items()}
print(json.dumps({"version": openai.__version__, "models": words(ImageModel), "types": contract}))
