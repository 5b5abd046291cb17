"""A tour of the API with the official `openai` package, unchanged and in its strictest mode.

Two gateways are given by the environment: SIMULATED_* draws its own images, SCRIPTED_* has a fake upstream behind it
that obeys a directive in the prompt. Each call against the second carries its own `user`, so that the test which starts
this script can count what each call cost. PICTURES is a folder with files to edit. One line per check; exit 1 when one
failed.
"""

import io
import os
import pathlib

import openai

from kit import Each, check, finish, is_image, made, place

pool = made(openai.DefaultHttpxClient)


@made
def client(which, strict=True, **options):
    return openai.OpenAI(http_client=pool(), _strict_response_validation=strict, **place(which, **options))


simulated = Each(lambda: client("SIMULATED"))
scripted = Each(lambda: client("SCRIPTED"))
lenient = Each(lambda: client("SIMULATED", strict=False))

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
        is_image(image.b64_json, fmt, *map(int, size.split("x")))
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


pictures = pathlib.Path(os.environ["PICTURES"])


def edit(**options):
    """An edit of a known size, so that the strict types of 2.x are content as well."""
    options = {"image": pictures / "first.png", "size": "1024x1024", **options}
    return simulated.images.edit(model="gpt-image-2", prompt="add a hat", **options)


for name, image in (
    ("a path", pictures / "first.png"),
    ("bytes", (pictures / "first.png").read_bytes()),
    ("an open file", (pictures / "second.jpeg").open("rb")),
    ("a stream in memory", io.BytesIO((pictures / "third.webp").read_bytes())),
    ("a tuple with a wrong type", ("x.gif", (pictures / "first.png").read_bytes(), "image/gif")),
    ("a list of one", [pictures / "first.png"]),
    ("a list of three kinds", [pictures / "first.png", pictures / "second.jpeg", (pictures / "third.webp").read_bytes()]),
    ("a list of sixteen", [pictures / "first.png"] * 16),
):

    @check(f"edit {name}")
    def _(image=image):
        answer = edit(image=image)
        assert answer._request_id, "no request id"
        is_good(answer, "png", "1024x1024")


@check("edit with a mask")
def _():
    is_good(edit(mask=pictures / "mask.png"), "png", "1024x1024")


@check("edit two, with every option")
def _():
    options = {"n": 2, "quality": "low", "output_format": "webp", "output_compression": 60, "background": "opaque", "user": "tour"}
    is_good(edit(image=[pictures / "first.png", pictures / "second.jpeg"], mask=pictures / "mask.png", **options), "webp", "1024x1024", count=2)


def is_stream(events, family, fmt, size, partials):
    """At most so many partial images, counted from 0, and exactly one final image as the last event."""
    events = list(events)
    assert [event.type for event in events[:-1]] == [f"{family}.partial_image"] * (len(events) - 1), [event.type for event in events]
    assert len(events) - 1 <= partials, len(events)
    assert [event.partial_image_index for event in events[:-1]] == list(range(len(events) - 1))
    last = events[-1]
    assert last.type == f"{family}.completed", last.type
    assert last.usage.total_tokens == last.usage.input_tokens + last.usage.output_tokens
    for event in events:
        is_image(event.b64_json, fmt, *map(int, size.split("x")))
        assert (event.size, event.output_format, event.background) == (size, fmt, "opaque"), event.size
        assert event.quality in ("low", "medium", "high"), event.quality
        assert event.created_at > 1_700_000_000
    return events


def generate_stream(**options):
    return simulated.images.generate(model="gpt-image-2", prompt="a red cube on a table", stream=True, **options)


for partials in range(4):

    @check(f"stream a generation with {partials} partial images")
    def _(partials=partials):
        with generate_stream(partial_images=partials, size="1024x1024", output_format="jpeg") as events:
            is_stream(events, "image_generation", "jpeg", "1024x1024", partials)


@check("stream a generation with nothing but what is required")
def _():
    is_stream(generate_stream(size="1536x1024"), "image_generation", "png", "1536x1024", 0)


@check("stream an edit")
def _():
    with edit(image=[pictures / "first.png", pictures / "second.jpeg"], mask=pictures / "mask.png", stream=True, partial_images=2) as events:
        is_stream(events, "image_edit", "png", "1024x1024", 2)


@check("a stream from a scripted upstream arrives event by event")
def _():
    events = scripted.images.generate(model="gpt-image-2", prompt="a cube", size="1024x1024", stream=True, partial_images=3, user="stream")
    assert len(is_stream(events, "image_generation", "png", "1024x1024", 3)) == 4


@check("a quality that nobody has named")
def _():
    options = {"model": "gpt-image-2", "prompt": "a cube [[omit=quality]]", "size": "1024x1024"}
    assert scripted.images.generate(**options, user="unnamed").quality is None
    events = list(scripted.images.generate(**options, stream=True, partial_images=1, user="unnamed-stream"))
    assert [event.quality for event in events] == ["auto", "auto"], [event.quality for event in events]


@check("a stream that is left in the middle")
def _():
    prompt = "a cube [[events=p,murmur]]"
    with scripted.images.generate(model="gpt-image-2", prompt=prompt, size="1024x1024", stream=True, partial_images=1, user="left") as events:
        assert next(iter(events)).partial_image_index == 0


def breaks(user, script):
    """A stream that fails after its first event must raise in the loop, not just end."""

    @check(f"a stream that breaks: {user}")
    def _():
        prompt = f"a cube [[{script}]]"
        events = scripted.images.generate(model="gpt-image-2", prompt=prompt, size="1024x1024", stream=True, partial_images=1, user=user)
        seen = []
        try:
            for event in events:
                seen.append(event.type)
        except openai.APIError as error:
            assert error.message == "Upstream request failed", error.message
            assert (error.code, error.param) == ("upstream_error", None), (error.code, error.param)
            assert seen == ["image_generation.partial_image"], seen
        else:
            raise AssertionError(f"nothing was raised after {seen}")


breaks("break-clean", "events=p,eof")
breaks("break-cut", "events=p,cut")
breaks("break-in-the-image", "events=p,half,cut b64=800000")
breaks("break-said", "events=p,e")


@check("400 of an edit names the parameter")
def _():
    text = ("a.png", b"a red cube", "image/png")
    for options, param in (
        ({"image": text}, "image"),
        ({"image": [pictures / "first.png", text]}, "image[]"),
        ({"image": [pictures / "first.png"] * 17}, "image"),
        ({"mask": pictures / "opaque.png"}, "mask"),
        ({"mask": pictures / "small.png"}, "mask"),
        ({"mask": pictures / "second.jpeg"}, "mask"),
        ({"input_fidelity": "high"}, "input_fidelity"),
        ({"size": "1000x1000"}, "size"),
        ({"stream": True, "n": 2}, "n"),
        ({"partial_images": 1}, "partial_images"),
    ):
        call = lambda: edit(**options)
        raises(openai.BadRequestError, call, 400, "invalid_request_error", param)


@check("413 for an image of 50 MiB")
def _():
    image = (pictures / "first.png").read_bytes() + bytes(52_428_800)
    raises(openai.APIStatusError, lambda: edit(image=image), 413, "request_too_large", "image")


@check("401 for an edit with a wrong key")
def _():
    call = lambda: client("SIMULATED", api_key="sk-img-nonsense").images.edit(model="gpt-image-2", prompt="a hat", image=pictures / "first.png")
    raises(openai.AuthenticationError, call, 401, "INVALID_API_KEY")


def fails(user, script, kind, status, code, param=None, behind=scripted):
    """A call that the fake upstream fails; the SDK keeps its default of two retries."""

    @check(f"{status} {user}")
    def _():
        call = lambda: behind.images.generate(model="gpt-image-2", prompt=f"a cube [[{script}]]", user=user)
        raises(kind, call, status, code, param)


fails("refused", "status=400 body=policy", openai.InternalServerError, 502, "upstream_error")
fails("no-image", "data=empty", openai.InternalServerError, 502, "upstream_error")
fails("html", "body=html", openai.InternalServerError, 502, "upstream_error")
fails("front-proxy", "status=524 body=html", openai.InternalServerError, 502, "upstream_error")
fails("cut-before-the-image", "cut=30", openai.InternalServerError, 502, "upstream_error")
fails("usage-limit", "status=429 body=usage-limit resets-in=3600", openai.RateLimitError, 429, "usage_limit_reached", behind=client("RESTING1"))
fails("parameter", "status=400 body=parameter", openai.BadRequestError, 400, "invalid_request_error", "quality")


def stream_fails(user, script, kind, status, code, param=None):
    """As `fails`, with a stream: before its first event an error has its own status."""

    @check(f"{status} stream-{user}")
    def _():
        prompt = f"a cube [[{script}]]"
        call = lambda: scripted.images.generate(model="gpt-image-2", prompt=prompt, user=f"stream-{user}", stream=True)
        raises(kind, call, status, code, param)


stream_fails("refused", "events=e-policy", openai.InternalServerError, 502, "upstream_error")
stream_fails("no-image", "events=blank", openai.InternalServerError, 502, "upstream_error")
stream_fails("parameter", "status=400 body=parameter", openai.BadRequestError, 400, "invalid_request_error", "quality")


@check("an edit through a scripted upstream")
def _():
    images = [pictures / "first.png", pictures / "second.jpeg"]
    answer = scripted.images.edit(model="gpt-image-2", prompt="a hat", image=images, mask=pictures / "mask.png", size="1024x1024", user="edit")
    is_good(answer, "png", "1024x1024")


@check("a scripted upstream that answers well")
def _():
    answer = scripted.images.generate(model="gpt-image-2", prompt="a cube", size="1536x1024", user="well")
    is_good(answer, "png", "1536x1024")


finish(f"openai {openai.__version__}")
