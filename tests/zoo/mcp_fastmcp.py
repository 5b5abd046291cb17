"""The client of FastMCP."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from kit import API_KEY
from mcp_kit import MCP_URL, report_features


def call(name, arguments):
    async def run():
        async with Client(StreamableHttpTransport(MCP_URL, headers={"Authorization": f"Bearer {API_KEY}"})) as client:
            return await client.call_tool(name, arguments, raise_on_error=False)

    result = asyncio.run(run())
    parts = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]
    return {"content": parts, "isError": result.is_error}


report_features(call)
