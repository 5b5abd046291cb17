"""Requests that are refused before their body is read, with one client of Python, each named by its status, the form of
its body and its size. Odd repetitions have a connection of their own, and even ones share a client.

CLIENT names the client; CASES is a list of {status, url, key, kind, type}; SIZES and COUNT say how often. One line of
JSON for each case and size: how many answers were seen, and what the others were.
"""

import asyncio
import collections
import json
import os
import socket
import urllib.error
import urllib.request
import uuid

import aiohttp
import httpx
import openai
import requests

CLIENT = os.environ["CLIENT"]
COUNT = int(os.environ["COUNT"])


def json_body(size):
    return b'{"prompt":1}' if size <= 12 else json.dumps({"model": "gpt-image-2", "prompt": "x" * (size - 42)}).encode()


def form_body(size):
    boundary = uuid.uuid4().hex
    part = 'Content-Disposition: form-data; name="%s"'
    head = "\r\n".join([f"--{boundary}", part % "prompt", "", "a hat", f"--{boundary}", part % "image" + '; filename="a.png"', "", ""])
    return head.encode() + bytes(size) + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


class Urllib:
    def send(self, case, size, fresh):
        headers = {"Authorization": f"Bearer {case['key']}", "Content-Type": case["type"]}
        body = json_body(size)
        if case["kind"] == "form":
            body, headers["Content-Type"] = form_body(size)
        try:
            with urllib.request.urlopen(urllib.request.Request(case["url"], body, headers), timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


class Requests:
    shared = requests.Session()

    def send(self, case, size, fresh):
        session = requests.Session() if fresh else self.shared
        headers = {"Authorization": f"Bearer {case['key']}"}
        if case["kind"] == "form":
            content = {"data": {"prompt": "a hat"}, "files": {"image": ("a.png", bytes(size), "image/png")}}
        else:
            content = {"data": json_body(size)}
            headers["Content-Type"] = case["type"]
        answer = session.post(case["url"], headers=headers, timeout=60, **content)
        return answer.status_code, answer.content


class Httpx:
    # A client that checks no certificates is made quickly.
    shared = httpx.Client(timeout=60, verify=False)

    def send(self, case, size, fresh):
        client = httpx.Client(timeout=60, verify=False) if fresh else self.shared
        headers = {"Authorization": f"Bearer {case['key']}"}
        if case["kind"] == "form":
            content = {"data": {"prompt": "a hat"}, "files": {"image": ("a.png", bytes(size), "image/png")}}
        else:
            content = {"content": json_body(size)}
            headers["Content-Type"] = case["type"]
        answer = client.post(case["url"], headers=headers, **content)
        if fresh:
            client.close()
        return answer.status_code, answer.content


class Aiohttp:
    loop = asyncio.new_event_loop()
    shared = None

    def send(self, case, size, fresh):
        return self.loop.run_until_complete(self.call(case, size, fresh))

    async def call(self, case, size, fresh):
        if fresh:
            async with aiohttp.ClientSession() as session:
                return await self.post(session, case, size)
        if self.shared is None:
            self.shared = aiohttp.ClientSession()
        return await self.post(self.shared, case, size)

    async def post(self, session, case, size):
        headers = {"Authorization": f"Bearer {case['key']}"}
        if case["kind"] == "form":
            data = aiohttp.FormData({"prompt": "a hat"})
            data.add_field("image", bytes(size), filename="a.png", content_type="image/png")
        else:
            data = json_body(size)
            headers["Content-Type"] = case["type"]
        async with session.post(case["url"], data=data, headers=headers) as answer:
            return answer.status, await answer.read()


class OpenAi:
    shared = None

    def make(self):
        return openai.OpenAI(api_key="-", base_url="http://127.0.0.1:1/v1", max_retries=0, timeout=60, http_client=openai.DefaultHttpxClient(verify=False))

    def send(self, case, size, fresh):
        if self.shared is None:
            self.shared = self.make()
        client = self.make() if fresh else self.shared
        headers = {"Authorization": f"Bearer {case['key']}"}
        content = {}
        if case["kind"] == "form":
            headers["Content-Type"] = "multipart/form-data"
            content = {"body": {"prompt": "a hat"}, "files": [("image", ("a.png", bytes(size), "image/png"))]}
        else:
            headers["Content-Type"] = case["type"]
            content = {"body": json.loads(json_body(size))}
        try:
            client.post(case["url"], cast_to=object, options={"headers": headers}, **content)
        except openai.APIStatusError as error:
            return error.status_code, error.response.content
        finally:
            if fresh:
                client.close()
        return 200, b"{}"


client = {"urllib": Urllib, "requests": Requests, "httpx": Httpx, "aiohttp": Aiohttp, "openai-python": OpenAi}[CLIENT]()
for case in json.loads(os.environ["CASES"]):
    for size in case["sizes"]:
        seen, others = 0, collections.Counter()
        for repetition in range(COUNT):
            try:
                status, text = client.send(case, size, repetition % 2 == 0)
                assert "error" in json.loads(text), text[:100]
            except Exception as error:
                status = f"{type(error).__name__}: {error} {error.__cause__ or ''}"[:160]
            if status == case["status"]:
                seen += 1
            else:
                others[str(status)] += 1
        print(json.dumps({"client": CLIENT, "kind": case["kind"], "status": case["status"], "size": size, "seen": seen, "count": COUNT, "others": others}), flush=True)
