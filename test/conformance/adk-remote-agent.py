"""ADK's remote agent asks a service here twice in one conversation: pip install 'google-adk[a2a]==2.13.0', then
DOORS=a2a npm start, then python adk-remote-agent.py [http://127.0.0.1:8000]. Fails unless both answers come whole."""

import asyncio
import sys

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

URL = sys.argv[1] if len(sys.argv) > 1 else 'http://127.0.0.1:8000'
TURNS = {'What is 17 * 23? Use the calculator.': 'answered: 391', 'hello again': 'turn 2 of this session'}


async def main() -> None:
    agent = RemoteA2aAgent(name='remote', agent_card=f'{URL}/.well-known/agent-card.json')
    runner = InMemoryRunner(agent=agent, app_name='app')
    session = await runner.session_service.create_session(app_name='app', user_id='u')
    for said, expected in TURNS.items():
        message = types.Content(role='user', parts=[types.Part(text=said)])
        events = [event async for event in runner.run_async(user_id='u', session_id=session.id, new_message=message)]
        whole = [part.text for event in events if not event.partial and event.content for part in event.content.parts or []]
        print(whole)
        assert any(text and expected in text for text in whole), [event.error_message for event in events]


asyncio.run(main())
