"""A tour of `/v1/responses` with the official `openai` package, unchanged and in its strictest mode.

SIMULATED_* answers by itself, SCRIPTED_* has a fake upstream behind it that speaks `/responses` and obeys a directive in
the task. Each call against the second carries its own `user`. One line per check; exit 1 when one failed.
"""

import openai

from kit import Each, check, finish, is_image, made, place

MODEL = "gpt-5.5"
TOOL = {"type": "image_generation", "size": "1024x640", "quality": "low", "output_format": "png", "partial_images": 1}
ORDER = """created in_progress output_item.added image_generation_call.in_progress image_generation_call.generating
    image_generation_call.partial_image image_generation_call.completed output_item.done output_item.added
    content_part.added output_text.delta output_text.done content_part.done output_item.done completed""".split()

pool = made(openai.DefaultHttpxClient)


@made
def client(which):
    # This client adds what it accepts in the tool; what the service sends is held to every type.
    return openai.OpenAI(http_client=pool(), _strict_response_validation=True, **place(which))


simulated, scripted = Each(lambda: client("SIMULATED")), Each(lambda: client("SCRIPTED"))


def is_good(response, size=(1024, 640)):
    call = next(item for item in response.output if item.type == "image_generation_call")
    assert call.status == "completed", call.status
    is_image(call.result, "png", *size)
    assert response.output_text, "nothing was said"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def respond(sdk, task="a red cube on a table", **options):
    return sdk.responses.create(model=MODEL, input=task, tools=[TOOL], **options)


@check("create with the image tool")
def _():
    answer = respond(simulated)
    assert answer._request_id, "no request id"
    is_good(answer)


@check("create without a tool")
def _():
    answer = simulated.responses.create(model=MODEL, input="hello")
    assert [item.type for item in answer.output] == ["message"]


@check("a second turn that replays the first")
def _():
    first = respond(simulated)
    replayed = [item.model_dump(exclude_none=True) for item in first.output]
    is_good(respond(simulated, [{"role": "user", "content": "a red cube"}, *replayed, {"role": "user", "content": "now blue"}]))


@check("create with events")
def _():
    events = list(respond(simulated, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"], kinds
    assert kinds[-1] == "completed", kinds
    assert [event.sequence_number for event in events] == list(range(len(events)))
    partial = next(event for event in events if event.type.endswith("partial_image"))
    is_image(partial.partial_image_b64, "png", 1024, 640)
    is_good(events[-1].response)


def helped(sdk, task, user):
    """What the helper for streams makes of the events, which come in the order of the contract."""
    headers = {"Cookie": "caller-canary=1"}
    with sdk.responses.stream(model=MODEL, input=task, tools=[TOOL], user=user, extra_headers=headers) as stream:
        kinds = [event.type.removeprefix("response.") for event in stream]
        # However many pieces the text has.
        order = [kind for at, kind in enumerate(kinds) if kind != "output_text.delta" or kinds[at - 1] != kind]
        assert order == ORDER, order
        response = stream.get_final_response()
        is_good(response)
        return response


for name, sdk in (("simulated", simulated), ("scripted", scripted)):

    @check(f"the helper for streams, one turn and another: {name}")
    def _():
        asked = {"role": "user", "content": "a red cube on a table"}
        first = helped(sdk, [asked], "helper-1")
        replayed = [item.model_dump(exclude_none=True) for item in first.output]
        helped(sdk, [asked, *replayed, {"role": "user", "content": "now blue"}], "helper-2")


def is_good_scripted(response):
    call = next(item for item in response.output if item.type == "image_generation_call")
    is_image(call.result, "png", 1024, 640)


@check("what the upstream says comes through")
def _():
    is_good_scripted(respond(scripted, user="plain"))
    is_good_scripted(list(respond(scripted, stream=True, user="events"))[-1].response)


def refused(name, param, **options):
    @check(f"400 names {param}: {name}")
    def _():
        try:
            simulated.responses.create(**{"model": MODEL, "input": "x", **options})
        except openai.BadRequestError as error:
            assert (error.code, error.param) == ("invalid_request_error", param), (error.code, error.param)
        else:
            raise AssertionError("no error")


refused("an image model", "model", model="gpt-image-2")
refused("a size off the grid", "tools[0].size", tools=[{"type": "image_generation", "size": "1000x1000"}])
refused("an unknown quality", "tools[1].quality", tools=[{"type": "web_search"}, {"type": "image_generation", "quality": "hd"}])


def fails(user, script, kind, code, status=None, stream=False):
    @check(f"{code} {user}")
    def _():
        try:
            answer = respond(scripted, f"a cube [[{script}]]", user=user, stream=stream)
            for _ in answer if stream else ():
                pass
        except kind as error:
            assert error.code == code, error.code
            assert status is None or error.status_code == status, error
            assert "canary" not in str(error), str(error)
        else:
            raise AssertionError("no error")


fails("parameter", "status=400 body=parameter", openai.BadRequestError, "invalid_request_error", 400)
fails("policy", "status=400 body=policy", openai.InternalServerError, "upstream_error", 502)
fails("broken", "cut=40", openai.InternalServerError, "upstream_error", 502)
fails("fails-at-once", "events=created,failed-policy", openai.InternalServerError, "upstream_error", 502, stream=True)
fails("breaks-between", "events=created,added,eof", openai.APIError, "upstream_error", stream=True)
fails("breaks-within", "events=created,added,half,cut b64=2000000", openai.APIError, "upstream_error", stream=True)
fails("fails-within", "events=created,added,failed", openai.APIError, "upstream_error", stream=True)

finish(f"openai {openai.__version__}")
