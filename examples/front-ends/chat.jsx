import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

const api = '/ai-sdk/harness_agent/chat';
const id = new URLSearchParams(location.search).get('chat') ?? crypto.randomUUID();
history.replaceState(null, '', `?chat=${id}`);
const transport = new DefaultChatTransport({ api });

/** Loads what was said before, page by page; a chat that has not begun has nothing. */
async function loadMessages() {
  const messages = [];
  for (let after = '0'; after !== null; ) {
    const found = await fetch(`${api}/${id}/messages?afterSequence=${after}`);
    if (!found.ok) return messages;
    messages.push(...(await found.json()));
    after = found.headers.get('x-next-cursor');
  }
  return messages;
}

function Tool({ part, onDecide }) {
  const { toolName, input, state, output, errorText, approval } = part;
  return (
    <div className="tool">
      {toolName} {JSON.stringify(input)}
      {state === 'output-available' && <> → {JSON.stringify(output)}</>}
      {state === 'output-error' && <span className="error"> {errorText}</span>}
      {state === 'output-denied' && <span className="error"> denied</span>}
      {state === 'approval-requested' && (
        <>
          <button onClick={() => onDecide({ id: approval.id, approved: true })}>Approve</button>
          <button onClick={() => onDecide({ id: approval.id, approved: false })}>Deny</button>
        </>
      )}
    </div>
  );
}

function Message({ message: { role, parts }, onDecide }) {
  return (
    <div className={`message ${role}`}>
      {parts.map((part, index) => {
        if (part.type === 'text') return <span key={index}>{part.text}</span>;
        if (part.type === 'reasoning')
          return (
            <div key={index} className="thought">
              {part.text}
            </div>
          );
        if (part.type === 'dynamic-tool') return <Tool key={index} part={part} onDecide={onDecide} />;
        return null;
      })}
    </div>
  );
}

/** Steers what runs with a message. Settles when the agent has read it, or it has begun the next turn. */
async function steer(message) {
  const headers = { 'x-double-texting': 'steer' };
  const stream = await transport.sendMessages({ trigger: 'submit-message', chatId: id, messages: [message], headers });
  // The answer itself comes by the stream of what runs.
  for await (const { type } of stream) if (type !== 'start') return;
}

/** Messages that steer what runs in a chat, until they stand among its messages. */
function useSteering({ status, setMessages, resumeStream }) {
  const isAnswering = status === 'submitted' || status === 'streaming';
  const [steers, setSteers] = useState([]);
  const [refused, setRefused] = useState();
  const hasRead = steers.some(({ isRead }) => isRead);
  useEffect(() => {
    if (isAnswering || !hasRead) return;
    void loadMessages().then((messages) => {
      setMessages(messages);
      setSteers((before) => before.filter(({ isRead }) => !isRead));
      // One that came too late for the answer is answered now.
      return resumeStream();
    });
  }, [isAnswering, hasRead]);
  const say = (text) => {
    const message = { id: crypto.randomUUID(), role: 'user', parts: [{ type: 'text', text }] };
    setRefused();
    setSteers((before) => [...before, { message, isRead: false }]);
    steer(message).then(
      () => setSteers((before) => before.map((each) => (each.message === message ? { message, isRead: true } : each))),
      (error) => {
        setSteers((before) => before.filter((each) => each.message !== message));
        setRefused(error);
      },
    );
  };
  return { steers, say, refused, isBusy: isAnswering || steers.length > 0 };
}

function Chat({ initial }) {
  const [text, setText] = useState('');
  const chat = useChat({
    id,
    messages: initial,
    resume: true,
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const { messages, status, sendMessage, stop, addToolApprovalResponse } = chat;
  const { steers, say, refused, isBusy } = useSteering(chat);
  const error = chat.error ?? refused;
  const send = (event) => {
    event.preventDefault();
    if (text.trim() === '') return;
    if (isBusy) say(text);
    else void sendMessage({ text });
    setText('');
  };
  const end = async () => {
    // The SDK's own only leaves the stream.
    await fetch(`${api}/${id}/stop`, { method: 'POST', headers: { 'content-type': 'application/json' } });
    await stop();
  };
  return (
    <main>
      <h1>
        AI SDK <a href="/agent">AG-UI</a>
      </h1>
      {messages.map((message) => (
        <Message key={message.id} message={message} onDecide={addToolApprovalResponse} />
      ))}
      {steers.map(({ message, isRead }) => (
        <div key={message.id} className="steer">
          <Message message={message} />
          <div className="status">{isRead ? 'read' : 'is read before the next step'}</div>
        </div>
      ))}
      <div className="status" role="status">
        {status}
      </div>
      {error && <div className="error">{error.message}</div>}
      <form onSubmit={send}>
        <input placeholder="Say something" value={text} onChange={(event) => setText(event.target.value)} />
        <button type="submit">{isBusy ? 'Steer' : 'Send'}</button>
        {isBusy && (
          <button type="button" onClick={end}>
            Stop
          </button>
        )}
      </form>
    </main>
  );
}

function App() {
  const [initial, setInitial] = useState();
  useEffect(() => void loadMessages().then(setInitial), []);
  return initial ? <Chat initial={initial} /> : null;
}

createRoot(document.getElementById('root')).render(<App />);
