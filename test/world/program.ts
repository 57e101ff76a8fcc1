import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { parseExactJson } from '../../src/core/exact-json.ts';

/** A program that speaks MCP in the texts that `WORLD_CASE` names; writes the arguments it was sent to `WORLD_SENT`. */

const { lists, answers, initialized } = JSON.parse(process.env['WORLD_CASE'] ?? '{}') as {
  lists: string[];
  answers: string[];
  initialized: object;
};
const say = (id: unknown, member: 'result' | 'error', text: string) =>
  process.stdout.write(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"${member}":${text}}\n`);

let page = 0;
let calls = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method } = JSON.parse(line) as { id?: unknown; method: string };
  if (id === undefined) continue;
  if (method === 'initialize') say(id, 'result', JSON.stringify(initialized));
  else if (method === 'tools/list') say(id, 'result', lists[page++] ?? '{"tools":[]}');
  else if (method === 'tools/call') {
    const { params } = parseExactJson(line) as { params: { arguments: unknown } };
    writeFileSync(process.env['WORLD_SENT'] ?? '', JSON.stringify(params.arguments));
    say(id, 'result', answers[Math.min(calls++, answers.length - 1)] ?? '{"content":[]}');
  } else say(id, 'error', '{"code":-32601,"message":"Method not found"}');
}
