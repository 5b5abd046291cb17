"""A tour of `/v1/responses` with LangChain and the OpenAI Agents SDK, unchanged: one turn and a second one on top of it.

SIMULATED_* answers by itself, SCRIPTED_* has a fake upstream behind it. Each call against the second carries its own
`user`. One line per check; exit 1 when one failed.
"""

import asyncio
from importlib.metadata import version

from agents import Agent, ImageGenerationTool, ModelSettings, OpenAIResponsesModel, Runner, set_tracing_disabled
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI

from kit import check, finish, is_image, made, place

MODEL = "gpt-5.5"
TOOL = {"type": "image_generation", "size": "1024x640", "quality": "low", "output_format": "png"}
ORDER = """created in_progress output_item.added image_generation_call.in_progress image_generation_call.generating
    image_generation_call.completed output_item.done output_item.added content_part.added output_text.delta
    output_text.done content_part.done output_item.done completed""".split()

# It would report every run to its maker.
set_tracing_disabled(True)
# The connections of a client belong to one loop.
run_here = asyncio.Runner().run
HEADERS = {"Cookie": "caller-canary=1"}


@made
def chat_model(which):
    return ChatOpenAI(model=MODEL, use_responses_api=True, default_headers=HEADERS, **place(which))


def chat(which, user):
    return chat_model(which).bind_tools([TOOL]).bind(user=user)


def has_image(message):
    calls = [block for block in message.content if block["type"] == "image_generation_call"]
    assert len(calls) == 1, [block["type"] for block in message.content]
    is_image(calls[0]["result"], "png", 1024, 640)
    assert message.text, "nothing was said"
    assert message.usage_metadata["output_tokens"] > 0, message.usage_metadata
    return message


def with_langchain(which):
    first = HumanMessage("a red cube on a table")
    then = HumanMessage("now blue")

    @check(f"LangChain, one turn and another: {which}")
    def _():
        answer = has_image(chat(which, "langchain-1").invoke([first]))
        has_image(chat(which, "langchain-2").invoke([first, answer, then]))

    @check(f"LangChain, one turn and another in events: {which}")
    def _():
        answer = None
        for number, messages in enumerate([[first], [first, None, then]]):
            messages = [answer if message is None else message for message in messages]
            chunks = list(chat(which, f"langchain-events-{number}").stream(messages))
            answer = chunks[0]
            for chunk in chunks[1:]:
                answer = answer + chunk
            has_image(answer)


@made
def client(which):
    return AsyncOpenAI(default_headers=HEADERS, **place(which))


def agent(which, user):
    return Agent(
        name="a painter",
        model=OpenAIResponsesModel(model=MODEL, openai_client=client(which)),
        model_settings=ModelSettings(extra_body={"user": user}),
        tools=[ImageGenerationTool(tool_config=TOOL)],
    )


def has_drawn(result):
    calls = [item.raw_item for item in result.new_items if item.raw_item.type == "image_generation_call"]
    assert len(calls) == 1, [item.raw_item.type for item in result.new_items]
    is_image(calls[0].result, "png", 1024, 640)
    assert result.final_output, "nothing was said"
    return result.to_input_list()


def with_the_agents_sdk(which):
    more = {"role": "user", "content": "now blue"}

    @check(f"Agents SDK, one turn and another: {which}")
    def _():
        said = has_drawn(run_here(Runner.run(agent(which, "agents-1"), "a red cube on a table")))
        has_drawn(run_here(Runner.run(agent(which, "agents-2"), [*said, more])))

    async def run(user, messages):
        result = Runner.run_streamed(agent(which, user), messages)
        kinds = []
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                kinds.append(event.data.type.removeprefix("response."))
        # However many pieces the text has.
        order = [kind for at, kind in enumerate(kinds) if kind != "output_text.delta" or kinds[at - 1] != kind]
        assert order == ORDER, order
        return has_drawn(result)

    @check(f"Agents SDK, one turn and another in events: {which}")
    def _():
        async def turns():
            said = await run("agents-events-1", "a red cube on a table")
            await run("agents-events-2", [*said, more])

        run_here(turns())


for gateway in ("SIMULATED", "SCRIPTED"):
    with_langchain(gateway)
    with_the_agents_sdk(gateway)

releases = ", ".join(f"{name} {version(name)}" for name in ("langchain-openai", "openai-agents"))
finish(releases)
