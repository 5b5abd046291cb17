"""Slow images with the official Python client and its default settings: plain, and streamed unless PLAIN_ONLY is set.

BASE_URL and API_KEY name the gateway. DELAYS are the milliseconds that each image takes, all of them at once; REPEAT
says how often each of them is asked for, PARALLEL how many at a time. One line per check; exit 1 when one failed.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import openai

from kit import check, finish

DELAYS = os.environ["DELAYS"].split()
REPEAT = int(os.environ.get("REPEAT", "1"))
PARALLEL = int(os.environ.get("PARALLEL", "64"))
CLIENT = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"])


def plain(what):
    delay, number = what
    user = f"python-plain-{delay}-{number}"
    answer = CLIENT.images.generate(model="gpt-image-2", prompt=f"a cube [[delay={delay}]]", size="1024x1024", user=user)
    assert answer.data[0].b64_json, user


def streamed(what):
    delay, number = what
    user = f"python-stream-{delay}-{number}"
    prompt = f"a cube [[delay={delay}]]"
    events = CLIENT.images.generate(model="gpt-image-2", prompt=prompt, size="1024x1024", user=user, stream=True)
    assert [event.type for event in events][-1] == "image_generation.completed", user


def every(ask):
    jobs = [(delay, number) for delay in DELAYS for number in range(REPEAT)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        assert len(list(pool.map(ask, jobs))) == len(jobs)


with ThreadPoolExecutor(2) as both:
    runs = {"plain": both.submit(every, plain)}
    if "PLAIN_ONLY" not in os.environ:
        runs["streamed"] = both.submit(every, streamed)
    for name, run in runs.items():
        check(name)(run.result)

finish(f"openai {openai.__version__}")
