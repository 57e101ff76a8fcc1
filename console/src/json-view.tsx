import { useState } from 'react';
import { Button } from 'react-aria-components';
import { formatCount, formatJson } from './format.ts';

/** Longer texts are shown by their beginnings, until somebody wants the rest. */
const MAX_TEXT = 600;
/** Members that are shown at a time. */
const PAGE = 100;
/** Depth to which a value is open at first, and the members of one that is. */
const OPEN_DEPTH = 2;
const OPEN_MEMBERS = 30;

/** A value as JSON that is folded by depth: what is closed is not in the page. */
export function JsonView({ value, label }: { value: unknown; label: string }) {
  return (
    <section className="json-view" aria-label={label} tabIndex={0}>
      <Node name={undefined} value={value} depth={0} />
    </section>
  );
}

function Node({ name, value, depth }: { name: string | undefined; value: unknown; depth: number }) {
  const isList = Array.isArray(value);
  const members = typeof value === 'object' && value !== null ? Object.entries(value) : undefined;
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && (members?.length ?? 0) <= OPEN_MEMBERS);
  const [shown, setShown] = useState(PAGE);
  const title = name !== undefined && <bdi className="json-name">{shorten(name)}</bdi>;
  if (!members)
    return (
      <div className="json-member">
        {title}
        <Scalar value={value} />
      </div>
    );
  const count = isList ? `[${formatCount(members.length)}]` : `{${formatCount(members.length)}}`;
  if (members.length === 0)
    return (
      <div className="json-member">
        {title}
        <code>{isList ? '[]' : '{}'}</code>
      </div>
    );
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {title} <code className="hint">{count}</code>
      </summary>
      {isOpen && (
        <div className="json-members">
          {members.slice(0, shown).map(([key, member]) => (
            <Node key={key} name={key} value={member} depth={depth + 1} />
          ))}
          {members.length > shown && (
            <Button onPress={() => setShown(shown + PAGE)}>
              Show {formatCount(Math.min(PAGE, members.length - shown))} more of {formatCount(members.length)}
            </Button>
          )}
        </div>
      )}
    </details>
  );
}

const shorten = (text: string) => (text.length > 200 ? `${text.slice(0, 200)}…` : text);

function Scalar({ value }: { value: unknown }) {
  if (typeof value !== 'string') return <code className="json-scalar">{JSON.stringify(value)}</code>;
  return <LongText text={value} />;
}

/** Plain text in its box, a long one by its beginning. */
export function LongText({ text, most = MAX_TEXT }: { text: string; most?: number }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = !isWhole && text.length > most;
  return (
    <span className={text.includes('\n') ? 'long-text lines' : 'long-text'}>
      <bdi>{isCut ? `${text.slice(0, most)}…` : text}</bdi>
      {isCut && <Button onPress={() => setWhole(true)}>Show all {formatCount(text.length)} characters</Button>}
    </span>
  );
}

/** Copies a value, as it is if it is text, else as JSON. */
export function Copy({ value, what }: { value: unknown; what: string }) {
  const [said, setSaid] = useState('Copy');
  const copy = () => {
    const text = typeof value === 'string' ? value : formatJson(value);
    copyText(text).then(
      () => setSaid('Copied'),
      () => setSaid('Your browser does not copy'),
    );
  };
  return (
    <Button className="copy" aria-label={said === 'Copy' ? `Copy ${what}` : said} onPress={copy}>
      {said}
    </Button>
  );
}

/** The clipboard exists where the page came over TLS or from this machine; else a selection is copied. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand('copy');
  field.remove();
  if (!isDone) throw new Error('not copied');
}
