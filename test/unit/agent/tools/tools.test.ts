import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ToolServices } from '../../../../src/agent/definition/services.ts';
import { htmlToText } from '../../../../src/agent/tools/html-text.ts';
import { builtInTools, findTools } from '../../../../src/agent/tools/registry.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import { agent, memoryServices, runInput, runToEnd } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';

const clock = () => new Date('2026-03-29T00:59:59Z');
const known = builtInTools({ now: clock, egress: { allowLoopback: true } });

interface Setting {
  state?: Record<string, unknown>;
  services?: ToolServices;
}

/** Calls built-in tools one step each by the loop; gives their responses and the events. */
async function use(
  calls: [string, Record<string, unknown>][],
  { state = {}, services = memoryServices() }: Setting = {},
) {
  const steps = calls.map(([name, args], index) => [callPart(name, args, `${index}`)]);
  const members = { model: scriptedModel([...steps, [{ text: 'ok' }]]), tools: [...known.values()] };
  const { events, end } = await runToEnd(runInput({ agent: agent(members), state, services }));
  const responses = events.flatMap((event) => getFunctionResponses(event.content));
  return {
    responses: responses.map(({ response }) => response),
    parts: responses.map(({ parts }) => parts),
    events,
    end,
  };
}

const calculate = async (expression: string) => (await use([['calculator', { expression }]])).responses[0];

describe('calculator', () => {
  test.each([
    ['17 * 23', 391],
    ['0.1 + 0.2', 0.3],
    ['2^10 - 1', 1023],
    ['sqrt(2) ^ 2', 2],
    ['-3 mod 5', 2],
    ['10%', 0.1],
    ['170! / 169!', 170],
    ['max(1, 5, 3) + round(2.345, 2)', 7.35],
    ['sin(pi / 2)', 1],
    ['3 > 2', true],
    ['1 > 2 ? 10 : 20', 20],
    ['-2 ^ 2', -4],
    ['2 ^ -1 ^ 2', 0.5],
    ['200 + 10 %', 220],
    ['10 % 4 + mod(-3, 5)', 4],
    ['3! + 2 (1 + 1) + 2 pi / pi', 12],
    ['1 / 2 (4)', 2],
    ['1 < 2 <= 2', true],
    ['0.1 + 0.2 == 0.3 and not false', true],
    ['floor(0.3 / 0.1) + round(1.005, 2)', 4.01],
    ['median(3, 1, 2, 10) + std(2, 4)', 3.91421356237309],
    ['nthRoot(-27, 3) + log(8, 2)', 0],
    ['gcd(12, 18, 8) + lcm(4, 6) + 0x0f', 29],
    ['1 > 2 ? factorial(-1) : 6 & 3 | 8', 10],
    [`${'('.repeat(240)}1${')'.repeat(240)}`, 1],
    [`${'1+'.repeat(240)}1`, 241],
  ])('%s', async (expression, result) => {
    expect(await calculate(expression)).toEqual({ result });
  });

  test.each([
    '9^9^9^9',
    '1e9!',
    '0 / 0',
    '1 / 0',
    'import("fs")',
    'evaluate("1")',
    'parse("1")',
    'createUnit("x")',
    'config({})',
    'f(x) = x',
    'a = 1',
    '1:1000000000',
    '[1, 2]',
    '"text"',
    '{a: 1}',
    'range(1, 1e9)',
    'combinations(1e8, 5e7)',
    'map([1], f(x) = x)',
    'constructor',
    '__proto__',
    'sin.constructor("return 1")()',
    'cos.constructor',
    'process',
    'x',
    'pi()',
    'sqrt',
    '1; 2',
    '1 2',
    '(-1)!',
    '1.5!',
    'sin(1, 2)',
    'max()',
    'round(1, 16)',
    '1.5 & 1',
    '',
    '(',
    `${'('.repeat(600)}1`,
    '1+'.repeat(500),
    `${'1+'.repeat(400)}1`,
  ])('refuses %s', async (expression) => {
    expect(await calculate(expression)).toEqual({ error: expect.any(String) });
  });
});

describe('current_time', () => {
  test('tells the time in a zone, over a change of the clocks', async () => {
    const { responses } = await use([
      ['current_time', {}],
      ['current_time', { timeZone: 'Europe/Berlin' }],
      ['current_time', { timeZone: 'Mars/Base' }],
    ]);
    const utc = '2026-03-29T00:59:59.000Z';
    expect(responses).toEqual([
      { time: '2026-03-29 00:59:59', weekday: 'Sunday', timeZone: 'UTC', utc },
      { time: '2026-03-29 01:59:59', weekday: 'Sunday', timeZone: 'Europe/Berlin', utc },
      { error: '`Mars/Base` is not a known time zone. Use an IANA name such as Europe/Berlin.' },
    ]);
  });
});

describe('artifacts', () => {
  test('what is saved is listed and loaded, versions rise, media are attached', async () => {
    const { responses, parts, events } = await use([
      ['save_artifact', { name: 'a.md', text: 'one' }],
      ['save_artifact', { name: 'a.md', text: 'two', mimeType: 'text/markdown' }],
      ['save_artifact', { name: 'dot.png', data: 'iVBORw0KGgo=', mimeType: 'image/png' }],
      ['list_artifacts', {}],
      ['load_artifacts', { names: ['a.md', 'dot.png', 'none'] }],
    ]);
    expect(responses).toEqual([
      { name: 'a.md', version: 0 },
      { name: 'a.md', version: 1 },
      { name: 'dot.png', version: 0 },
      { names: ['a.md', 'dot.png'] },
      {
        artifacts: [
          { name: 'a.md', text: 'two' },
          { name: 'dot.png', attached: true, mimeType: 'image/png' },
          { name: 'none', error: 'There is no such artifact.' },
        ],
      },
    ]);
    expect(parts[4]).toEqual([{ inlineData: { data: 'iVBORw0KGgo=', mimeType: 'image/png' } }]);
    expect(events.map(({ actions }) => actions?.artifactDelta)).toContainEqual({ 'a.md': 1 });
  });

  test('neither text nor data, or both, is refused; so is what is too large to show', async () => {
    const services: ToolServices = {
      ...memoryServices(),
      loadArtifact: async (name) => ({ inlineData: { mimeType: 'image/png', data: name.repeat(400_000) } }),
    };
    const calls: [string, Record<string, unknown>][] = [
      ['save_artifact', { name: 'a' }],
      ['save_artifact', { name: 'a', text: 'x', data: 'AAAA', mimeType: 'image/png' }],
      ['load_artifacts', { names: ['a', 'b'] }],
    ];
    const { responses } = await use(calls, { services });
    expect(responses.slice(0, 2)).toEqual([{ error: expect.any(String) }, { error: expect.any(String) }]);
    expect(responses[2]).toEqual({
      artifacts: [
        { name: 'a', attached: true, mimeType: 'image/png' },
        { name: 'b', error: 'Too large to be loaded here.' },
      ],
    });
  });
});

describe('load_memory', () => {
  test('gives texts of what was found', async () => {
    const asked: string[] = [];
    const services: ToolServices = {
      ...memoryServices(),
      async searchMemory(query) {
        asked.push(query);
        return [{ author: 'user', timestamp: '2026-01-01', content: { parts: [{ text: 'I like tea' }] } }];
      },
    };
    const { responses } = await use([['load_memory', { query: 'drinks' }]], { services });
    expect(asked).toEqual(['drinks']);
    expect(responses).toEqual([{ memories: [{ author: 'user', timestamp: '2026-01-01', text: 'I like tea' }] }]);
  });
});

describe('state', () => {
  test('what is written is read in the next step, and stands in the event', async () => {
    const calls: [string, Record<string, unknown>][] = [
      ['read_state', {}],
      ['write_state', { key: 'user:color', value: { name: 'red' } }],
      ['write_state', { key: '__proto__', value: { polluted: true } }],
      ['read_state', { keys: ['user:color', 'old', 'none', '__proto__'] }],
    ];
    const { responses, events } = await use(calls, { state: { old: 1 } });
    expect(responses[0]).toEqual({ keys: ['old'] });
    expect(JSON.stringify(responses[3])).toBe(
      '{"values":{"user:color":{"name":"red"},"old":1,"none":null,"__proto__":{"polluted":true}}}',
    );
    expect(events.map(({ actions }) => actions?.stateDelta)).toContainEqual({ 'user:color': { name: 'red' } });
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test('a model cannot write what all users share, nor anything huge', async () => {
    const { responses, end } = await use([
      ['write_state', { key: 'app:banner', value: 'x' }],
      ['write_state', { key: 'big', value: 'x'.repeat(40_000) }],
    ]);
    expect(responses).toEqual([{ error: expect.any(String) }, { error: 'The value is larger than 32000 characters.' }]);
    expect(end.error).toBeUndefined();
  });
});

test.each([
  ['get_user_choice', { options: ['a', 'b'] }],
  ['request_input', { message: 'Which one?' }],
])('%s leaves its call open and pauses', async (name, args) => {
  const { responses, end, events } = await use([[name, args]]);
  expect(responses).toEqual([]);
  expect(events[0]?.longRunningToolIds).toEqual(['0']);
  expect(end).toMatchObject({ paused: true, error: undefined, lastEvent: undefined });
});

describe('web_fetch', () => {
  let answer: (response: ServerResponse) => void = () => {};
  const server = createServer((_request, response) => answer(response));
  let base = '';
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  });
  afterAll(() => {
    server.close();
    server.closeAllConnections();
  });
  const fetchPage = async (url = base) => (await use([['web_fetch', { url }]])).responses[0];
  const serve = (type: string, body: string | Buffer, status = 200) => {
    answer = (response) => response.writeHead(status, { 'content-type': type }).end(body);
  };

  test('gives title and text of a page', async () => {
    serve('text/html; charset=utf-8', '<title>A &amp; B</title><script>x("<p>")</script><h1>Hi</h1><p>one<br>two</p>');
    expect(await fetchPage()).toEqual({ url: base, title: 'A & B', text: 'Hi\none\ntwo' });
  });

  test('reads other charsets and other texts', async () => {
    serve('text/plain; charset=iso-8859-1', Buffer.from([0x67, 0x72, 0xfc, 0x6e]));
    expect(await fetchPage()).toEqual({ url: base, text: 'grün' });
    serve('application/ld+json', '{"a":1}');
    expect(await fetchPage()).toEqual({ url: base, text: '{"a":1}' });
  });

  test('gives a long text whole, which the runtime keeps', async () => {
    serve('text/plain', 'x'.repeat(4_000_000));
    expect(await fetchPage()).toMatchObject({
      kind: 'json',
      characters: 4_000_000 + JSON.stringify({ url: base, text: '' }).length,
    });
  });

  test('says why there is nothing', async () => {
    serve('image/png', 'x');
    expect(await fetchPage()).toEqual({ error: `${new URL(base).host} answered with image/png, which is not text.` });
    serve('text/html', 'secret', 404);
    expect(await fetchPage()).toEqual({ error: `${new URL(base).host} answered HTTP 404.` });
    expect(await fetchPage('http://169.254.169.254/')).toEqual({
      error: '169.254.169.254 may be called by https only.',
    });
    expect(await fetchPage('https://169.254.169.254/')).toEqual({ error: '169.254.169.254 is not a public address.' });
    expect(await fetchPage('nonsense')).toEqual({ error: 'This is not an absolute address.' });
    answer = (response) => response.destroy();
    expect(await fetchPage()).toEqual({ error: `${new URL(base).host} could not be reached.` });
  });
});

describe('htmlToText', () => {
  const read = async (html: string) => {
    const { title, text } = await htmlToText(html, 4_194_304);
    return { title, text };
  };

  test.each([
    ['a < b && c', 'a < b && c'],
    ['<!-- <p>no</p> -->yes', 'yes'],
    ['<STYLE>p{}</STYLE><P>yes</P>', 'yes'],
    ['<li>one<li>two', 'one\ntwo'],
    ['&lt;&#65;&#x42;&bogus;&#xD800;&#0;', '<AB&bogus;\uFFFD\uFFFD'],
    ['caf&eacute; &frac12; &CounterClockwiseContourIntegral; &amp;lt;', 'café ½ ∳ &lt;'],
    ['<!DOCTYPE html><html><head><title>no</title></head><body>yes', 'yes'],
    ['<!-- never closed <p>no', ''],
    ['<a title=">">yes</a>', 'yes'],
    ['<svg><svg>no</svg>no</svg>yes<svg/>too', 'yestoo'],
    ['<noscript><p>no</p></noscript>a<template><div>no</div></template>b', 'ab'],
    ['<select><option>no</select>yes</select></div>', 'yes'],
    ['<script>never closed', ''],
    ['<p title="a', ''],
    ['a<b>b</b>c', 'abc'],
  ])('%s', async (html, text) => {
    expect((await read(html)).text).toBe(text);
  });

  test('megabytes of hostile markup are read to the end', async () => {
    for (const piece of ['<script', '<!--', '<', '<p', '</', '&#', '&am', '<title>', '<p ', '<svg>', '<template>']) {
      expect((await read(piece.repeat(200_000))).text.length).toBeLessThan(2_000_000);
    }
  });

  test('deep nesting, end tags without a start and huge attributes cost no more than their length', async () => {
    const deep = `${'<b>'.repeat(100_000)}deep${'</z>'.repeat(100_000)}${'</b>'.repeat(100_000)} end`;
    expect(await read(deep)).toEqual({ title: '', text: 'deep end' });
    const hidden = `${'<svg>'.repeat(100_000)}no${'</svg>'.repeat(100_000)}yes`;
    expect(await read(hidden)).toEqual({ title: '', text: 'yes' });
    const attribute = `<p class="${'a>&amp;'.repeat(500_000)}" ${'x '.repeat(500_000)}>yes</p>`;
    expect(await read(attribute)).toEqual({ title: '', text: 'yes' });
  });

  test('the title is the first one, with its entities', async () => {
    const page = '<title>a &amp; <b>\n b</title><svg><title>no</title></svg><title>no</title>text';
    expect(await read(page)).toEqual({ title: 'a & <b>\nb', text: 'text' });
  });
});

test('an unknown tool is named, with what there is', () => {
  const few = new Map([...known].slice(0, 2));
  expect(findTools(few, ['calculator', 'calculator']).map(({ name }) => name)).toEqual(['calculator']);
  expect(() => findTools(few, ['calculator', 'x'])).toThrow(
    'Tool `x` is not a supported built-in tool. Available: calculator, current_time',
  );
});
