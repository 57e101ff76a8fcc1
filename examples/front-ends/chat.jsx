import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

const api = '/ai-sdk/harness_agent/chat';
const id = new URLSearchParams(location.search).get('chat') ?? crypto.randomUUID();
history.replaceState(null, '', `?chat=${id}`);

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

function Chat({ initial }) {
  const [text, setText] = useState('');
  const { messages, status, error, sendMessage, stop, addToolApprovalResponse } = useChat({
    id,
    messages: initial,
    resume: true,
    transport: new DefaultChatTransport({ api }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const isBusy = status === 'submitted' || status === 'streaming';
  const send = (event) => {
    event.preventDefault();
    if (text.trim() === '') return;
    void sendMessage({ text });
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
      <div className="status" role="status">
        {status}
      </div>
      {error && <div className="error">{error.message}</div>}
      <form onSubmit={send}>
        <input placeholder="Say something" value={text} onChange={(event) => setText(event.target.value)} />
        {isBusy ? (
          <button type="button" onClick={end}>
            Stop
          </button>
        ) : (
          <button type="submit">Send</button>
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
