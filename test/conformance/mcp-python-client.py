"""The Python client of MCP asks an agent here in both eras: pip install mcp==2.3.0, then a service with a tool that a
person confirms (harness.yaml: `confirm_tools: [calculator]`) and DOORS=mcp, then
python mcp-python-client.py [http://127.0.0.1:8000/mcp]. Fails unless all that it asks is answered."""

import asyncio
import sys

from mcp import Client
from mcp.types import ElicitResult

URL = sys.argv[1] if len(sys.argv) > 1 else 'http://127.0.0.1:8000/mcp'
SUM = 'What is 17 * 23? Use the calculator.'


async def ask(mode: str) -> None:
    asked, progress = [], []

    async def confirm(_context, params) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action='accept', content={'confirmed': True})

    async def note(done, _total, message) -> None:
        progress.append((done, message))

    async with Client(URL, mode=mode, elicitation_callback=confirm) as client:
        tools = (await client.list_tools()).tools
        name = tools[0].name
        hello = await client.call_tool(name, {'prompt': 'hello'}, progress_callback=note)
        session = hello.structured_content['session']
        again = await client.call_tool(name, {'prompt': 'hello again', 'session': session})
        assert again.structured_content['session'] == session, again
        assert 'turn 2' in again.structured_content['text'], again
        counted = await client.call_tool(name, {'prompt': SUM, 'session': session})
        status, text = counted.structured_content['status'], counted.structured_content['text']
        # Before 2026 a stateless server has no way to ask: the answer says that a person is waited for.
        assert ('391' in text and len(asked) == 1) if client.protocol_version >= '2026' else status == 'paused', counted
        resources = (await client.list_resources()).resources
        # Prompts are skills, which the agent may not have.
        prompts = (await client.list_prompts()).prompts if client.server_capabilities.prompts else []
        wrong = await client.call_tool(name, {'prompt': 1})
        assert wrong.is_error, wrong
        told = f'{len(asked)} asked, {len(progress)} of progress, {len(resources)} resources, {len(prompts)} prompts'
        print(f'{client.protocol_version}: {[tool.name for tool in tools]}, {status}: {text!r}, {told}')


async def main() -> None:
    for mode in ('legacy', 'auto'):
        await ask(mode)


asyncio.run(main())
