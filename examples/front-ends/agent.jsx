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

/**
 * Steers what runs with a message. A request with tools of the page cannot steer. Settles when the message is answered,
 * by what ran or by a run of its own.
 */
function sendSteering(message) {
  const headers = { 'x-double-texting': 'steer' };
  // An agent has one run at a time, so this is another one of the thread.
  return new HttpAgent({ url, threadId, headers, initialMessages: [message] }).runAgent();
}

/** Holds a thread: its messages, what runs, what waits for a person, and messages that no run has taken yet. */
function useThread() {
  const agent = useRef();
  const steers = useRef([]);
  const [view, setView] = useState({ messages: [], steers: [], isRunning: false, interrupts: [] });
  const show = (more) => {
    // The stream shows the message when a run takes it.
    const shown = new Set(agent.current.messages.map(({ id }) => id));
    steers.current = steers.current.filter(({ id }) => !shown.has(id));
    setView((before) => ({ ...before, messages: [...agent.current.messages], steers: steers.current, ...more }));
  };
  const run = async (start) => {
    show({ isRunning: true, error: undefined, interrupts: [] });
    const subscriber = {
      onMessagesChanged: () => show({}),
      onRunErrorEvent: ({ event }) => show({ error: event.message }),
    };
    const tell = (error) => error.status === 404 || show({ error: error.message });
    await start(subscriber).catch(tell);
    show({});
    // One that came too late for the run has begun its own.
    while (steers.current.length > 0) {
      const [{ id }] = steers.current;
      await agent.current.connectAgent({}, subscriber).catch(tell);
      show({});
      steers.current = steers.current.filter((each) => each.id !== id);
    }
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
    steer: (content) => {
      const message = { id: crypto.randomUUID(), role: 'user', content };
      steers.current = [...steers.current, message];
      show({});
      sendSteering(message).catch((error) => {
        steers.current = steers.current.filter((each) => each !== message);
        show({ error: error.message });
      });
    },
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
  const { messages, steers, isRunning, interrupts, error, say, steer, decide, stop } = useThread();
  const send = (event) => {
    event.preventDefault();
    if (text.trim() === '') return;
    if (isRunning) steer(text);
    else void say(text);
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
      {steers.map((message) => (
        <div key={message.id} className="steer">
          <Message message={message} />
          <div className="status">is read before the next step</div>
        </div>
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
        <button type="submit">{isRunning ? 'Steer' : 'Send'}</button>
        {isRunning && (
          <button type="button" onClick={stop}>
            Leave
          </button>
        )}
      </form>
    </main>
  );
}

createRoot(document.getElementById('root')).render(<App />);
