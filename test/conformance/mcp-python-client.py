"""The Python client of MCP against a service here, in both eras; pip install mcp==2.3.0. It fails unless all is answered.

python mcp-python-client.py [http://127.0.0.1:8000/mcp]: asks an agent. The service has DOORS=mcp and a tool that a
person confirms (harness.yaml: `confirm_tools: [calculator]`).
DATABASE_URL=postgres://… python mcp-python-client.py kill: starts two replicas on that database, and kills one of them in
the middle of a long call; the other one goes on with it, as a task and as a plain call that is made again."""

import asyncio
import atexit
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.types import CallToolResult, ElicitResult, Request, Result

SUM = 'What is 17 * 23? Use the calculator.'


async def ask(url: str, mode: str) -> None:
    asked, progress = [], []

    async def confirm(_context, params) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action='accept', content={'confirmed': True})

    async def note(done, _total, message) -> None:
        progress.append((done, message))

    async with Client(url, mode=mode, elicitation_callback=confirm) as client:
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


class Task(Result):
    result_type: Literal['task']
    task_id: str


class TaskState(Result):
    status: str
    result: CallToolResult | None = None
    input_requests: dict[str, Any] | None = None


class TaskRequest(Request[dict[str, Any], str]):
    name_param = 'taskId'


class Tasks(ClientExtension):
    """The extension for tasks, by what the package has for extensions: it knows none of its own."""

    identifier = 'io.modelcontextprotocol/tasks'

    def claims(self):
        return [ResultClaim(result_type='task', model=Task, resolve=lambda task, context: follow(context.session, task))]


async def look(session, method: str, task: Task, **more: Any) -> TaskState:
    model = TaskState if method == 'tasks/get' else Result
    return await session.send_request(TaskRequest(method=method, params={'taskId': task.task_id, **more}), model)


async def follow(session, task: Task, status: str = 'completed') -> CallToolResult | TaskState:
    for _ in range(600):
        state = await look(session, 'tasks/get', task)
        if state.status == status:
            return state.result or state
        await asyncio.sleep(0.1)
    raise AssertionError(state)


class Model:
    """A model that answers once it may, and calls a tool first where the prompt wants a sum."""

    def __init__(self) -> None:
        self.may, self.waiting = threading.Event(), threading.Event()
        self.server = ThreadingHTTPServer(('127.0.0.1', 0), self.handler())
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f'http://127.0.0.1:{self.server.server_port}/v1'

    def hold(self) -> None:
        self.may.clear()
        self.waiting.clear()

    def handler(model) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers['content-length'])))
                model.waiting.set()
                model.may.wait()
                wants = SUM in json.dumps(body['messages']) and body['messages'][-1]['role'] == 'user'
                call = {'name': 'calculator', 'arguments': json.dumps({'expression': '17 * 23'})}
                delta = (
                    {'tool_calls': [{'index': 0, 'id': 'c1', 'type': 'function', 'function': call}]}
                    if wants
                    else {'content': f'The end: {body["messages"][-1]["content"]}'}
                )
                choice = {'index': 0, 'delta': delta, 'finish_reason': 'tool_calls' if wants else 'stop'}
                chunk = {'id': '1', 'object': 'chat.completion.chunk', 'created': 0, 'model': 'm', 'choices': [choice]}
                try:
                    self.send_response(200)
                    self.send_header('content-type', 'text/event-stream')
                    self.end_headers()
                    self.wfile.write(f'data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n'.encode())
                except OSError:
                    pass  # Its process was killed.

            def log_message(self, *_args) -> None: ...

        return Handler


class Replica:
    """A process of the service."""

    @classmethod
    async def start(cls, model: Model, home: str) -> 'Replica':
        main = Path(__file__).parents[2] / 'src/main.ts'
        settings = {
            'PORT': '0',
            'DOORS': 'mcp',
            'SESSION_LEASE_MS': '3000',
            'MODEL_PROVIDER': 'openai-compatible',
            'MODEL_NAME': 'm',
            'MODEL_BASE_URL': model.url,
            'LOG_LEVEL': 'error',
        }
        self = cls()
        atexit.register(self.end)
        self.process = await asyncio.create_subprocess_exec(
            'node', str(main), cwd=home, env={**os.environ, **settings}, stdout=asyncio.subprocess.PIPE
        )
        async for line in self.process.stdout:
            if found := re.search(r'listens on (\S+)', line.decode()):
                self.url = f'{found[1]}/mcp'
                return self
        raise AssertionError('no start')

    async def kill(self) -> None:
        self.end()
        await self.process.wait()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGKILL)


async def killed(model: Model, home: str, mode: str) -> None:
    first, second = await Replica.start(model, home), await Replica.start(model, home)
    options = {'mode': mode, 'extensions': [Tasks()]}
    key = {'agent-runtime/idempotency-key': f'{mode}-{os.getpid()}'}
    call = 'harness_agent', {'prompt': 'a long one'}
    model.hold()
    async with Client(second.url, **options) as client:
        is_modern = client.protocol_version >= '2026'
        try:
            async with Client(first.url, **options) as lost:
                # The era before has no tasks: its client waits, and is cut off.
                running = asyncio.create_task(lost.session.call_tool(*call, meta=key, allow_claimed=True))
                running.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.to_thread(model.waiting.wait)
                task = await running if is_modern else None
                await first.kill()
                if not is_modern:
                    await running
        except* Exception as error:
            assert task is None, error
        if is_modern:
            assert (await look(client.session, 'tasks/get', task)).status == 'working'
            model.may.set()
            ended = await follow(client.session, task)
        else:
            model.may.set()
            ended = await client.call_tool(*call, meta=key)
        assert ended.structured_content['text'] == 'The end: a long one', ended
        told = f'killed and ended: {ended.structured_content["status"]}'
        if is_modern:
            task = await client.session.call_tool('harness_agent', {'prompt': SUM}, allow_claimed=True)
            asked = await follow(client.session, task, 'input_required')
            answers = {id: {'action': 'accept', 'content': {'confirmed': True}} for id in asked.input_requests}
            await look(client.session, 'tasks/update', task, inputResponses=answers)
            counted = await follow(client.session, task)
            assert '391' in counted.structured_content['text'], counted
            model.hold()
            task = await client.session.call_tool(*call, allow_claimed=True)
            await look(client.session, 'tasks/cancel', task)
            await follow(client.session, task, 'cancelled')
            model.may.set()
            resolved = await client.call_tool(*call)
            assert resolved.structured_content['status'] == 'succeeded', resolved
            told += ', a question of a task answered, one cancelled, one resolved by the package'
        print(f'{client.protocol_version}: {told}')
    await second.kill()


async def main() -> None:
    asks_for_kill = sys.argv[1:] == ['kill']
    with tempfile.TemporaryDirectory() as home:
        Path(home, 'harness.yaml').write_text('tools: [calculator]\nconfirm_tools: [calculator]\n')
        for mode in ('legacy', 'auto'):
            if asks_for_kill:
                await killed(Model(), home, mode)
            else:
                await ask(sys.argv[1] if len(sys.argv) > 1 else 'http://127.0.0.1:8000/mcp', mode)


asyncio.run(main())
