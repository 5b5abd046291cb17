"""A tour of the API with the official `openai` package, unchanged and in its strictest mode.

Two gateways are given by the environment: SIMULATED_* draws its own images, SCRIPTED_* has a fake upstream behind it
that obeys a directive in the prompt. Each call against the second carries its own `user`, so that the test which starts
this script can count what each call cost. One line per check; exit 1 when one failed.
"""

import base64
import os
import struct
import sys
import traceback

import openai

failures = []


def check(name):
    """Runs the function at once and prints a line about it."""

    def run(function):
        try:
            function()
        except Exception:
            failures.append(name)
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"ok     {name}")

    return run


def client(which, strict=True, **options):
    return openai.OpenAI(
        base_url=os.environ[f"{which}_BASE_URL"],
        api_key=options.pop("api_key", os.environ[f"{which}_API_KEY"]),
        _strict_response_validation=strict,
        **options,
    )


def size_of(data):
    """Format and pixel size from the first bytes of the file."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return ("png", *struct.unpack(">II", data[16:24]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = data[12:16]
        if kind == b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return ("webp", width & 0x3FFF, height & 0x3FFF)
        if kind == b"VP8L":
            bits = struct.unpack("<I", data[21:25])[0]
            return ("webp", (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
        return ("webp", int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1)
    if data[:2] == b"\xff\xd8":
        at = 2
        while True:
            marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", data[at + 5 : at + 9])
                return ("jpeg", width, height)
            at += 2 + length
    raise AssertionError(f"not an image: {data[:16]!r}")


simulated = client("SIMULATED")
scripted = client("SCRIPTED")
lenient = client("SIMULATED", strict=False)

# The strict types of 2.x know only these sizes of an answer, whichever server gives it.
SIZES_OF_2X = ("auto", "1024x1024", "1024x1536", "1536x1024")


def generate(**options):
    known = openai.__version__ >= "3" or options.get("size", "auto") in SIZES_OF_2X
    answer = (simulated if known else lenient).images.generate(model="gpt-image-2", prompt="a red cube on a table", **options)
    assert answer._request_id, "no request id"
    return answer


def is_good(answer, fmt, size, count=1):
    assert len(answer.data) == count, len(answer.data)
    for image in answer.data:
        found = size_of(base64.b64decode(image.b64_json, validate=True))
        assert found == (fmt, *map(int, size.split("x"))), found
        assert image.revised_prompt, "no revised prompt"
    assert (answer.size, answer.output_format, answer.background) == (size, fmt, "opaque"), answer.size
    assert answer.quality in ("low", "medium", "high"), answer.quality
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.input_tokens_details.text_tokens + answer.usage.input_tokens_details.image_tokens == answer.usage.input_tokens
    assert answer.created > 1_700_000_000


for fmt in ("png", "jpeg", "webp"):

    @check(f"generate {fmt}")
    def _(fmt=fmt):
        is_good(generate(output_format=fmt, size="1024x1024", quality="low"), fmt, "1024x1024")


for size in ("1024x640", "1536x1024", "1024x1536", "2048x1152"):

    @check(f"generate {size}")
    def _(size=size):
        is_good(generate(size=size, quality="medium"), "png", size)


@check("generate two, compressed")
def _():
    answer = generate(n=2, output_format="webp", output_compression=60, size="1024x1024", moderation="low", background="opaque", user="tour")
    is_good(answer, "webp", "1024x1024", count=2)


@check("generate with nothing but what is required")
def _():
    answer = generate()
    is_good(answer, "png", answer.size)


@check("generate with automatic values")
def _():
    answer = generate(size="auto", quality="auto", background="auto")
    is_good(answer, "png", answer.size)


@check("generate with the dated snapshot and raw headers")
def _():
    raw = simulated.images.with_raw_response.generate(model="gpt-image-2-2026-04-21", prompt="a cube", size="1024x1024")
    assert raw.headers["x-request-id"] and raw.headers["content-type"].startswith("application/json")
    assert raw.parse().to_dict()["model"] == "gpt-image-2-2026-04-21"


@check("models.list")
def _():
    models = list(simulated.models.list())
    assert models, "no model"
    assert all(model.object == "model" and model.id and model.owned_by for model in models)


for model in ("gpt-image-2", "gpt-image-2-2026-04-21"):

    @check(f"models.retrieve {model}")
    def _(model=model):
        assert simulated.models.retrieve(model).id == model


def raises(kind, call, status, code, param=None):
    """The call must raise exactly this exception, with everything that a program needs from it."""
    try:
        call()
    except openai.APIStatusError as error:
        assert type(error) is kind, type(error)
        found = (error.status_code, error.code, error.param)
        assert found == (status, code, param), found
        assert error.request_id, "no request id"
        assert error.body["message"], error.body
        return error
    raise AssertionError("nothing was raised")


@check("models.retrieve of an unknown model")
def _():
    raises(openai.NotFoundError, lambda: simulated.models.retrieve("no-such-model"), 404, "model_not_found", "model")


@check("400 names the parameter")
def _():
    for field, value in (("size", "1000x1000"), ("n", 11), ("quality", "hd"), ("background", "transparent"), ("output_format", "gif")):
        call = lambda: simulated.images.generate(model="gpt-image-2", prompt="a cube", **{field: value})
        error = raises(openai.BadRequestError, call, 400, "invalid_request_error", field)
        assert error.type == "invalid_request_error", error.type


@check("401 for a wrong key")
def _():
    for key in ("sk-img-nonsense", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"):
        error = raises(openai.AuthenticationError, lambda: client("SIMULATED", api_key=key).models.list(), 401, "INVALID_API_KEY")
        assert error.message and "Invalid API key" in error.message, error.message


def fails(user, script, kind, status, code, param=None):
    """A call that the fake upstream fails; the SDK keeps its default of two retries."""

    @check(f"{status} {user}")
    def _():
        call = lambda: scripted.images.generate(model="gpt-image-2", prompt=f"a cube [[{script}]]", user=user)
        raises(kind, call, status, code, param)


fails("refused", "status=400 body=policy", openai.InternalServerError, 502, "upstream_error")
fails("no-image", "data=empty", openai.InternalServerError, 502, "upstream_error")
fails("html", "body=html", openai.InternalServerError, 502, "upstream_error")
fails("front-proxy", "status=524 body=html", openai.InternalServerError, 502, "upstream_error")
fails("cut-before-the-image", "cut=30", openai.InternalServerError, 502, "upstream_error")
fails("usage-limit", "status=429 body=usage-limit resets-in=3600", openai.RateLimitError, 429, "usage_limit_reached")
fails("parameter", "status=400 body=parameter", openai.BadRequestError, 400, "invalid_request_error", "quality")


@check("a scripted upstream that answers well")
def _():
    answer = scripted.images.generate(model="gpt-image-2", prompt="a cube", size="1536x1024", user="well")
    is_good(answer, "png", "1536x1024")


print(f"openai {openai.__version__}: {len(failures)} failed")
sys.exit(1 if failures else 0)
