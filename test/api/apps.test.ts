import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { hostScript } from '../support/agents.ts';
import { startApp, testApp } from '../support/app.ts';
import { signingKey, startIssuer } from '../support/issuer.ts';

const app = testApp({ SYSTEM_PROMPT: 'Be brief.', TOOLS: 'calculator' });
const info = '/apps/harness_agent/app-info';

describe('is it there', () => {
  test.each(['/health', '/ping'])('%s says that it is, whoever asks', async (path) => {
    const { status, body } = await app.get(path, { authorization: 'Bearer any' });
    expect([status, body]).toEqual([200, { status: 'ok' }]);
  });
});

describe('list applications', () => {
  test.each(['', '?relative_path=./', '?detailed=false', '?detailed=0'])('%j gives names', async (query) => {
    const { status, body } = await app.get(`/list-apps${query}`);
    expect([status, body]).toEqual([200, ['harness_agent']]);
  });

  test('in detail', async () => {
    const { status, body } = await app.get('/list-apps?detailed=true&relative_path=./');
    const listed = {
      name: 'harness_agent',
      rootAgentName: 'harness_agent',
      description: '',
      language: 'typescript',
      isComputerUse: false,
      agents: null,
    };
    expect([status, body]).toEqual([200, { apps: [listed] }]);
  });

  test('what is no boolean is 422', async () => {
    const { status, body } = await app.get('/list-apps?detailed=maybe');
    expect([status, body]).toEqual([
      422,
      {
        detail: [
          {
            type: 'bool_parsing',
            loc: ['query', 'detailed'],
            msg: 'Input should be a valid boolean, unable to interpret input',
            input: 'maybe',
          },
        ],
      },
    ]);
  });

  test('several are sorted', async () => {
    const hosted = [...hostScript([]).values()].flatMap((agent) => ['b', 'a'].map((name) => [name, agent] as const));
    const several = await startApp({}, { agents: new Map(hosted) });
    expect((await several.get('/list-apps')).body).toEqual(['a', 'b']);
    const { apps } = (await several.get('/list-apps?detailed=1')).body as { apps: { name: string }[] };
    expect(apps.map(({ name }) => name)).toEqual(['a', 'b']);
    await several.close();
  });
});

describe('an application', () => {
  test('its agent, with instruction and tools', async () => {
    const { status, body } = await app.get(info);
    const calculator = {
      name: 'calculator',
      description: expect.any(String),
      parameters: expect.objectContaining({ type: 'object' }),
    };
    expect([status, body]).toEqual([
      200,
      {
        name: 'harness_agent',
        rootAgentName: 'harness_agent',
        description: '',
        language: 'typescript',
        isComputerUse: false,
        agents: {
          harness_agent: {
            name: 'harness_agent',
            description: '',
            instruction: 'Be brief.',
            tools: [{ functionDeclarations: [calculator] }],
            sub_agents: [],
          },
        },
      },
    ]);
  });

  test.each(['other', '__proto__', 'constructor', '..%2F..'])('%s is 404', async (name) => {
    const { status, body } = await app.get(`/apps/${name}/app-info`);
    expect([status, body]).toEqual([404, { detail: `App not found: ${decodeURIComponent(name)}` }]);
  });

  test('a tree of agents is listed by name; one whose root asks no model is 400', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'harness-'));
    const file = join(dir, 'harness.yaml');
    const start = async (type: string) => {
      const child = (name: string) => `  - name: ${name}\n    description: does ${name}\n    tools: [current_time]\n`;
      await writeFile(
        file,
        `type: ${type}\ndescription: the root\ntools: []\nsub_agents:\n${child('one')}${child('two')}`,
      );
      return startApp({ HARNESS_FILE: file });
    };
    const tree = await start('llm');
    const body = (await tree.get(info)).body as {
      agents: Record<string, { description: string; sub_agents: string[] }>;
    };
    expect(Object.entries(body.agents).map(([name, agent]) => [name, agent.description, agent.sub_agents])).toEqual([
      ['harness_agent', 'the root', ['one', 'two']],
      ['one', 'does one', []],
      ['two', 'does two', []],
    ]);
    await tree.close();
    const sequence = await start('sequential');
    const refused = await sequence.get(info);
    expect([refused.status, refused.body]).toEqual([400, { detail: 'Root agent is not an LlmAgent' }]);
    await sequence.close();
    await rm(dir, { recursive: true });
  });

  test('users of a user pool do not see the instruction', async () => {
    const key = await signingKey('RS256', 'k');
    const issuer = await startIssuer([key.jwk]);
    const pool = await startApp({
      SYSTEM_PROMPT: 'Secret.',
      DEV_UI: 'false',
      JWT_ISSUER: issuer.url,
      JWT_AUDIENCE: 'runtime',
    });
    const token = await new SignJWT({ sub: 'u' })
      .setProtectedHeader({ alg: 'RS256', kid: 'k' })
      .setIssuer(issuer.url)
      .setAudience('runtime')
      .setExpirationTime('1h')
      .sign(key.privateKey);
    const { status, text, body } = await pool.get(info, { authorization: `Bearer ${token}` });
    expect([status, text.includes('Secret')]).toEqual([200, false]);
    expect(body).toMatchObject({ agents: { harness_agent: { instruction: '' } } });
    await pool.close();
    await issuer.close();
  });
});

describe('telemetry', () => {
  test('is off, whatever is asked for', async () => {
    expect((await app.get('/config/telemetry')).body).toEqual({ telemetry: false });
    for (const telemetry of [true, false, null]) {
      const answer = await app.post('/config/telemetry', { telemetry }, { 'x-adk-telemetry-request': 'true' });
      expect([answer.status, answer.body]).toEqual([200, { telemetry: false }]);
    }
  });

  test('a choice needs the header that no form can send', async () => {
    const others: Record<string, string>[] = [{}, { 'x-adk-telemetry-request': 'false' }];
    for (const headers of others) {
      const { status, body } = await app.post('/config/telemetry', { telemetry: true }, headers);
      expect([status, body]).toEqual([400, { detail: 'Forbidden: missing required security header' }]);
    }
    const wrong = await app.post('/config/telemetry', { telemetry: 'x' }, { 'x-adk-telemetry-request': 'true' });
    expect(wrong.body).toMatchObject({ detail: [{ type: 'bool_parsing', loc: ['body', 'telemetry'] }] });
  });
});
