import { HttpAgent } from '@ag-ui/client';
import { useEffect, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';

const url = '/ag-ui/harness_agent';
const threadId = new URLSearchParams(location.search).get('thread') ?? crypto.randomUUID();
history.replaceState(null, '', `?thread=${threadId}`);

/** An agent that also takes up what runs: `HttpAgent` leaves `connect` to its subclasses. */
class Agent extends HttpAgent {
  connect(input) {
    return new HttpAgent({ url: `${url}/connect`, threadId }).run(input);
  }
}

/** A tool of this page, which the runtime offers to the model and never runs. */
const TOOLS = [
  {
    name: 'set_title',
    description: 'Sets the title of the page that the user looks at.',
    parameters: { type: 'object', properties: { title: { type: 'string' } }, required: ['title'] },
  },
];

function runTool({ name, arguments: args }) {
  if (name !== 'set_title') return { error: `There is no tool ${name}.` };
  document.title = JSON.parse(args).title;
  return { title: document.title };
}

/** Holds a thread: its messages, what runs, what waits for a person. */
function useThread() {
  const agent = useRef();
  const [view, setView] = useState({ messages: [], isRunning: false, interrupts: [] });
  const show = (more) => setView((before) => ({ ...before, messages: [...agent.current.messages], ...more }));
  const run = async (start) => {
    show({ isRunning: true, error: undefined, interrupts: [] });
    const subscriber = {
      onMessagesChanged: () => show({}),
      onRunErrorEvent: ({ event }) => show({ error: event.message }),
    };
    await start(subscriber).catch((error) => error.status === 404 || show({ error: error.message }));
    show({ isRunning: false, interrupts: agent.current.pendingInterrupts ?? [] });
  };
  const go = (parameters = {}) =>
    run(async (subscriber) => {
      await agent.current.runAgent({ tools: TOOLS, ...parameters }, subscriber);
      // What this page was asked to do; the answers go on with the run.
      for (let calls = findOpen(agent.current); calls.length > 0; calls = findOpen(agent.current)) {
        for (const call of calls)
          agent.current.addMessage({
            id: crypto.randomUUID(),
            role: 'tool',
            toolCallId: call.id,
            content: JSON.stringify(runTool(call.function)),
          });
        await agent.current.runAgent({ tools: TOOLS }, subscriber);
      }
    });
  useEffect(() => {
    agent.current = new Agent({ url, threadId });
    void run((subscriber) => agent.current.connectAgent({}, subscriber));
  }, []);
  return {
    ...view,
    say: (content) => {
      agent.current.addMessage({ id: crypto.randomUUID(), role: 'user', content });
      return go();
    },
    decide: (approved) =>
      go({
        resume: view.interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: { approved } })),
      }),
    stop: () => agent.current.abortRun(),
  };
}

/** Returns calls of this page's tools that nobody has answered. */
function findOpen({ messages }) {
  const answered = new Set(messages.map(({ toolCallId }) => toolCallId));
  const calls = messages.flatMap(({ toolCalls }) => toolCalls ?? []);
  return calls.filter((call) => TOOLS.some(({ name }) => name === call.function.name) && !answered.has(call.id));
}

function Message({ message: { role, content, toolCalls } }) {
  const text = typeof content === 'string' ? content : (content ?? []).map((part) => part.text ?? '').join('');
  if (role === 'tool') return <div className="tool">→ {text}</div>;
  return (
    <div className={`message ${role === 'user' ? 'user' : 'assistant'}`}>
      <span className={role === 'reasoning' ? 'thought' : ''}>{text}</span>
      {toolCalls?.map((call) => (
        <div key={call.id} className="tool">
          {call.function.name} {call.function.arguments}
        </div>
      ))}
    </div>
  );
}

function App() {
  const [text, setText] = useState('');
  const { messages, isRunning, interrupts, error, say, decide, stop } = useThread();
  const send = (event) => {
    event.preventDefault();
    if (text.trim() === '') return;
    void say(text);
    setText('');
  };
  return (
    <main>
      <h1>
        AG-UI <a href="/">AI SDK</a>
      </h1>
      {messages.map((message) => (
        <Message key={message.id} message={message} />
      ))}
      {interrupts.map(({ id, message }) => (
        <div key={id} className="tool">
          {message}
          <button onClick={() => decide(true)}>Approve</button>
          <button onClick={() => decide(false)}>Deny</button>
        </div>
      ))}
      <div className="status" role="status">
        {isRunning ? 'running' : 'ready'}
      </div>
      {error && <div className="error">{error}</div>}
      <form onSubmit={send}>
        <input placeholder="Say something" value={text} onChange={(event) => setText(event.target.value)} />
        {isRunning ? (
          <button type="button" onClick={stop}>
            Leave
          </button>
        ) : (
          <button type="submit">Send</button>
        )}
      </form>
    </main>
  );
}

createRoot(document.getElementById('root')).render(<App />);
