"""A tour of the API with LiteLLM as a library, unchanged.

The environment is that of `openai_tour.py`. LiteLLM calls through the `openai` package and makes errors of its own from
what that raises. One line per check; exit 1 when one failed.
"""

import base64
import os
import pathlib
from importlib.metadata import version

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would fetch a price list otherwise

import litellm

import kit
from kit import check, finish, is_image, size_of

litellm.suppress_debug_info = True


def place(which, **options):
    if not kit.IS_ONE:
        # It keeps its clients otherwise.
        litellm.in_memory_llm_clients_cache.flush_cache()
    known = kit.place(which)
    return {"model": "openai/gpt-image-2", "api_base": known["base_url"], "api_key": known["api_key"], **options}


def is_good(answer, size, count=1):
    assert len(answer.data) == count, len(answer.data)
    for image in answer.data:
        is_image(image.b64_json, "png", *map(int, size.split("x")))
        assert image.revised_prompt, "no revised prompt"
    assert answer.created > 1_700_000_000, answer.created
    assert (answer.size, answer.output_format) == (size, "png"), (answer.size, answer.output_format)
    assert answer.quality in ("low", "medium", "high"), answer.quality
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0, usage


@check("image_generation with nothing but what is required")
def _():
    answer = litellm.image_generation(prompt="a red cube", **place("SIMULATED"))
    is_good(answer, answer.size)


@check("image_generation with options")
def _():
    answer = litellm.image_generation(prompt="a red cube", n=2, size="1536x1024", quality="low", user="tour", **place("SIMULATED"))
    is_good(answer, "1536x1024", count=2)


@check("image_generation as webp and as jpeg")
def _():
    for fmt in ("webp", "jpeg"):
        answer = litellm.image_generation(
            prompt="a red cube", output_format=fmt, output_compression=60, background="opaque", moderation="low", **place("SIMULATED")
        )
        assert answer.output_format == fmt, answer.output_format
        assert size_of(base64.b64decode(answer.data[0].b64_json, validate=True))[0] == fmt


@check("aimage_generation")
def _():
    import asyncio

    answer = asyncio.run(litellm.aimage_generation(prompt="a red cube", size="1024x640", **place("SIMULATED")))
    is_good(answer, "1024x640")


def raises(kind, call, status, words):
    """The call must raise exactly this exception, and its text must say why."""
    try:
        call()
    except Exception as error:
        assert type(error) is kind, f"{type(error)}: {error}"
        assert error.status_code == status, error.status_code
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        assert "canary" not in str(error), "the upstream's own words came through"
        return error
    raise AssertionError("nothing was raised")


@check("400 names the size")
def _():
    call = lambda: litellm.image_generation(prompt="a red cube", size="1000x1000", **place("SIMULATED"))
    raises(litellm.BadRequestError, call, 400, ["invalid_request_error", "size"])


@check("401 for an unknown key")
def _():
    call = lambda: litellm.image_generation(prompt="a red cube", **place("SIMULATED", api_key="sk-img-nonsense"))
    raises(litellm.AuthenticationError, call, 401, ["Invalid API key"])


@check("404 for a base URL with its version twice")
def _():
    doubled = os.environ["SIMULATED_BASE_URL"] + "/v1"
    call = lambda: litellm.image_generation(prompt="a red cube", **place("SIMULATED", api_base=doubled))
    # The class goes by `type`, the number by the status.
    raises(litellm.BadRequestError, call, 404, ["Invalid URL"])


pictures = pathlib.Path(os.environ["PICTURES"])


def edit(image, **options):
    return litellm.image_edit(prompt="a hat", image=image, size="1024x1024", **options, **place("SIMULATED"))


@check("image_edit of one image, of several, and with a mask")
def _():
    is_good(edit((pictures / "first.png").open("rb")), "1024x1024")
    is_good(edit([(pictures / "first.png").open("rb"), (pictures / "second.jpeg").open("rb")], quality="low"), "1024x1024")
    is_good(edit((pictures / "first.png").open("rb"), mask=(pictures / "mask.png").open("rb"), n=2), "1024x1024", count=2)


@check("400 of image_edit names the mask")
def _():
    call = lambda: edit((pictures / "first.png").open("rb"), mask=(pictures / "opaque.png").open("rb"))
    try:
        call()
    except Exception as error:
        assert "mask" in str(error) and getattr(error, "status_code", None) == 400, f"{type(error)}: {error}"
    else:
        raise AssertionError("nothing was raised")


def fails(user, script, kind, status, *words, behind="SCRIPTED"):
    """A call that the fake upstream fails; the retries are left as they are."""

    @check(f"{status} {user}")
    def _():
        call = lambda: litellm.image_generation(prompt=f"a cube [[{script}]]", user=user, **place(behind))
        raises(kind, call, status, words)


fails("parameter", "status=400 body=parameter", litellm.BadRequestError, 400, "quality")
fails("usage-limit", "status=429 body=usage-limit resets-in=3600 retry-after=3600", litellm.RateLimitError, 429, "The usage limit has been reached", behind="RESTING1")
fails("refused", "status=400 body=policy", litellm.BadGatewayError, 502, "Upstream request failed")
fails("no-image", "data=empty", litellm.BadGatewayError, 502, "Upstream request failed")
fails("html", "body=html", litellm.BadGatewayError, 502, "Upstream request failed")
fails("cut-before-the-image", "cut=30", litellm.BadGatewayError, 502, "Upstream request failed")
fails("key-of-the-account", "status=401", litellm.BadGatewayError, 502, "Upstream request failed", behind="RESTING2")


@check("an answer that breaks off after the image began is an error")
def _():
    try:
        litellm.image_generation(prompt="a cube [[cut=80%]]", user="cut-after-the-image", **place("SCRIPTED"))
    except Exception as error:
        print(f"       {type(error).__name__}: {str(error)[:150]}")
    else:
        raise AssertionError("nothing was raised")


@check("a scripted upstream that answers well")
def _():
    is_good(litellm.image_generation(prompt="a cube", size="1536x1024", user="well", **place("SCRIPTED")), "1536x1024")


finish(f"litellm {version('litellm')}")
