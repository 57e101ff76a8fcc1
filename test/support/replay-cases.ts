import type { Part } from '../../src/core/content.ts';
import { AgentError } from '../../src/core/errors.ts';
import { HANG, lookUp, type Script } from './replay-world.ts';
import { callPart } from './scripted-model.ts';

/** One invocation to record. */
export interface ReplayCase {
  kind: string;
  /** [`harness_agent`] */
  app?: string;
  script: Script;
  harness?: object;
  stateDelta?: object;
  streaming?: boolean;
  /** What the user does while it hangs, or after it has paused. */
  next?: 'cancel' | 'answer' | 'answer the same' | 'confirm' | 'reject' | 'rewind';
}

const root = (...harness_agent: Script[string]): Script => ({ harness_agent });
const transfer = callPart('transfer_to_agent', { agent_name: 'billing' });
const thought: Part = { text: 'Hm.', thought: true, thoughtSignature: 'c2ln' };
const shop = (item: string) => callPart('price', { item });

/** Every kind of invocation that a replay can meet. */
const KINDS: ReplayCase[] = [
  { kind: 'an answer', script: root('Hello.') },
  { kind: 'thoughts with signatures', script: root([thought, { text: 'Hello.' }]) },
  { kind: 'a tool', script: root([lookUp('tea')], 'Tea it is.') },
  { kind: 'tools in two steps', script: root([{ text: 'Look.' }, lookUp('tea')], [lookUp('milk')], 'Both.') },
  { kind: 'tools side by side', script: root([lookUp('a'), lookUp('b'), callPart('read_state')], 'All.') },
  { kind: 'calls of one id', script: root([callPart('fail', {}, 'c1')], [callPart('fail', {}, 'c1')], 'Twice.') },
  { kind: 'a failing tool', script: root([callPart('fail'), lookUp('a')], 'Well.') },
  { kind: 'a tool that is not there', script: root([callPart('nothing')], 'Sorry.') },
  { kind: 'wrong arguments', script: root([callPart('look_up', { topic: 7 })], [lookUp('7')], 'Better.') },
  {
    kind: 'arguments that are no JSON',
    script: root([{ ...callPart('look_up'), partMetadata: { invalidArguments: '{"to' } }], 'Sorry.'),
  },
  {
    kind: 'state that the instruction names',
    stateDelta: { city: 'Rome', 'user:lang': 'it', 'temp:n': 1 },
    script: root([callPart('write_state', { key: 'city', value: 'Oslo' })], [callPart('read_state')], 'Moved.'),
  },
  {
    kind: 'artifacts',
    script: root(
      [callPart('save_artifact', { name: 'a.txt', text: 'one' })],
      [callPart('save_artifact', { name: 'a.txt', text: 'two' }), callPart('load_artifacts', { names: ['a.txt'] })],
      'Saved.',
    ),
  },
  {
    kind: 'media of a tool',
    script: root(
      [callPart('save_artifact', { name: 'a.png', data: 'AAAA', mimeType: 'image/png' })],
      [callPart('load_artifacts', { names: ['a.png'] })],
      'Seen.',
    ),
  },
  {
    kind: 'an answer that is asked for again',
    harness: { output_schema: { type: 'object', required: ['n'] } },
    script: root('Seven.', [lookUp('7')], '{"n":7}'),
  },
  { kind: 'a transfer', script: { ...root([transfer]), billing: [[lookUp('bill')], 'Here is the bill.'] } },
  { kind: 'a transfer to nobody', script: root([callPart('transfer_to_agent', { agent_name: 'x' })], 'Stay.') },
  {
    kind: 'an agent as a tool',
    script: { ...root([callPart('helper', { request: 'help' })], 'Helped.'), helper: [[lookUp('h')], 'So.'] },
  },
  {
    kind: 'hooks',
    app: 'hooked',
    script: { hooked: [[lookUp('tea')], [lookUp('known')], 'Bad tea.'] },
  },
  { kind: 'one after another', app: 'line', script: { first: [[lookUp('f')], 'Paris'], second: ['In Paris.'] } },
  {
    kind: 'side by side',
    app: 'side',
    script: { left: [[lookUp('l')], 'L.'], right: [[lookUp('r'), lookUp('s')], 'R.'], middle: ['M.'] },
  },
  {
    kind: 'a failure side by side',
    app: 'side',
    script: {
      left: [[lookUp('l')], new AgentError('model_failed', 'It broke.')],
      right: [[lookUp('r')], HANG],
      middle: ['M.'],
    },
  },
  {
    kind: 'rounds',
    app: 'rounds',
    script: { worker: [[lookUp('w')], 'Again.', [callPart('exit_loop')]] },
  },
  { kind: 'a summary of what came before', app: 'short', script: { short: ['Long words. '.repeat(40), 'Short.'] } },
  {
    kind: 'a context window that fills up on the way',
    app: 'narrow',
    script: { narrow: [...Array.from({ length: 5 }, (_, n) => [lookUp(`tea ${n} ${'leaf '.repeat(80)}`)]), 'Short.'] },
  },
  { kind: 'a circle', app: 'circle', script: { circle: [[lookUp('tea')]] } },
  { kind: 'a server', app: 'remote', script: { remote: [[shop('tea'), shop('')], 'Cheap.'] } },
  { kind: 'a long-running tool', script: root([callPart('get_user_choice', { options: ['a', 'b'] })]) },
  {
    kind: 'a long-running tool that is answered',
    next: 'answer',
    script: root([callPart('get_user_choice', { options: ['a'] }), lookUp('a')], 'You chose.'),
  },
  {
    kind: 'an invocation that goes on',
    next: 'answer the same',
    script: root([callPart('get_user_choice', { options: ['a'] })], [lookUp('a')], 'You chose.'),
  },
  { kind: 'a confirmation', next: 'confirm', script: root([callPart('send', { to: 'x' }), lookUp('a')], 'Sent.') },
  { kind: 'a rejection', next: 'reject', script: root([callPart('send', { to: 'x' })], 'Not sent.') },
  { kind: 'a model that fails', script: root([lookUp('a')], new AgentError('model_unavailable', 'Away.')) },
  { kind: 'an empty answer', script: root([{ text: ' ' }]) },
  { kind: 'the limit of model calls', harness: { max_llm_calls: 2 }, script: root([lookUp('a')]) },
  {
    kind: 'the limit of model calls, reached by an agent as a tool',
    harness: { max_llm_calls: 3 },
    script: { ...root([callPart('helper', { request: 'h' })]), helper: [[lookUp('h')], 'So.'] },
  },
  { kind: 'the limit of tool calls', script: root(Array.from({ length: 7 }, (_, n) => lookUp(`${n}`))) },
  { kind: 'an event that is too large', script: root([callPart('large'), lookUp('a')]) },
  { kind: 'an answer that is too large', script: root([lookUp('a')], 'x'.repeat(40_000)) },
  { kind: 'a tool that the request wants and nobody has', harness: { tools: ['nothing'] }, script: root('Never.') },
  { kind: 'a name of the state that is not set', harness: { system_prompt: 'I am {nobody}.' }, script: root('Never.') },
  {
    kind: 'an agent that the request changed',
    harness: { system_prompt: 'I am harness_agent. Be short, {city?}.', temperature: 0.5, tools: ['current_time'] },
    stateDelta: { city: 'Rome' },
    script: root([lookUp('a')], 'Short.'),
  },
  { kind: 'a cancelled tool', next: 'cancel', script: root([callPart('hang'), lookUp('a')]) },
  { kind: 'a cancelled model', next: 'cancel', script: root([lookUp('a')], HANG) },
  {
    kind: 'a cancellation side by side',
    app: 'side',
    next: 'cancel',
    script: { left: [[lookUp('l')], HANG], right: [HANG], middle: ['M.'] },
  },
  { kind: 'a stream', streaming: true, script: root([{ text: 'Look.' }, lookUp('a')], 'Seen.') },
  { kind: 'an invocation that was rewound', next: 'rewind', script: root([lookUp('a')], 'Undone.') },
];

/** So many cases: every kind in turn. */
export const replayCases = (count: number): ReplayCase[] =>
  Array.from({ length: count }, (_, n) => KINDS[n % KINDS.length] as ReplayCase);
