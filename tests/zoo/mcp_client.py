"""The official Python client of MCP. The argument names the transport: `http`, or `stdio` with the command `imagate mcp`."""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from kit import API_KEY, BASE_URL
from mcp_kit import MCP_URL, report_features


def server():
    if sys.argv[1] == "stdio":
        environment = {"IMAGATE_BASE_URL": BASE_URL, "IMAGATE_API_KEY": API_KEY, "HOME": os.environ["HOME"]}
        return StdioServerParameters(command=os.environ["ZOO_PROGRAM"], args=["mcp"], env=environment)
    http_client = create_mcp_http_client(headers={"Authorization": f"Bearer {API_KEY}"})
    return streamable_http_client(MCP_URL, http_client=http_client)


def call(name, arguments, timeout=None):
    async def run():
        async with Client(server()) as client:
            return await client.call_tool(name, arguments, read_timeout_seconds=timeout)

    return asyncio.run(run()).model_dump(mode="json", by_alias=True, exclude_none=True)


report_features(call, call)
