import { createServer } from 'node:http';
import express from 'express';
import { describe, expect, it } from 'vitest';
import {
  AgentError,
  BusyError,
  ConfigError,
  ConflictError,
  InvalidError,
  InvalidTokenError,
  LeaseLostError,
  NotFoundError,
  TooLargeError,
  UnauthenticatedError,
  UnavailableError,
} from '../../../../src/core/errors.ts';
import { errorHandler } from '../../../../src/platform/http/error-handler.ts';
import { close, listen } from '../../../support/edge.ts';

const CANARY = 'canary-4711';

/** The answer to a handler that throws this, and what was logged. */
async function answerTo(thrown: unknown, before = (_response: express.Response) => {}) {
  const logged: unknown[] = [];
  const app = express();
  app.get('/x', (_request, response) => {
    before(response);
    throw thrown;
  });
  const note = (fields: object, message: string) => logged.push(fields, message);
  app.use(errorHandler({ log: { error: note, warn: note }, maxBodyBytes: 10 }));
  const server = createServer(app);
  const port = await listen(server);
  try {
    const response = await fetch(`http://127.0.0.1:${port}/x`);
    return {
      status: response.status,
      headers: response.headers,
      text: await response.text(),
      log: JSON.stringify(logged),
    };
  } finally {
    await close(server);
  }
}

const databaseError = (code: string, extra = {}) =>
  Object.assign(new Error(`Failed query: select '${CANARY}'`), {
    query: 'select $1',
    params: [CANARY],
    cause: Object.assign(new Error(`duplicate ${CANARY}`), { code, severity: 'ERROR', detail: CANARY, ...extra }),
  });

describe('errors of the domain', () => {
  it.each<[Error, number, string, Record<string, string>]>([
    [new NotFoundError('Session not found'), 404, 'Session not found', {}],
    [new InvalidError('No.'), 400, 'No.', {}],
    [new ConflictError('There.'), 409, 'There.', {}],
    [new LeaseLostError('Gone.'), 409, 'Gone.', {}],
    [new TooLargeError('Big.'), 413, 'Big.', {}],
    [new UnauthenticatedError('Who?'), 401, 'Who?', { 'www-authenticate': 'Bearer' }],
    [new InvalidTokenError('Who?'), 401, 'Who?', { 'www-authenticate': 'Bearer error="invalid_token"' }],
    [new UnavailableError('Away.'), 503, 'Away.', { 'retry-after': '1' }],
    [new BusyError('Busy.', 2.1), 429, 'Busy.', { 'retry-after': '3' }],
    [new BusyError('Busy.', 0), 429, 'Busy.', { 'retry-after': '1' }],
  ])('%s is %d', async (error, status, detail, headers) => {
    const answer = await answerTo(error);
    expect([answer.status, answer.text]).toEqual([status, JSON.stringify({ detail })]);
    expect(answer.headers.get('content-type')).toBe('application/json');
    for (const [name, value] of Object.entries(headers)) expect(answer.headers.get(name)).toBe(value);
    expect(answer.log).toBe('[]');
  });

  it.each<[string, unknown, string]>([
    ['an agent’s', new AgentError('model_unavailable', CANARY), 'The agent could not complete the invocation.'],
    ['of the configuration', new ConfigError(CANARY), 'Internal Server Error'],
    ['unknown', new Error(CANARY), 'Internal Server Error'],
    ['of the program', new TypeError(CANARY), 'Internal Server Error'],
    ['no error at all', CANARY, 'Internal Server Error'],
    ['nothing', null, 'Internal Server Error'],
  ])('what is %s tells nothing', async (_what, thrown, detail) => {
    const answer = await answerTo(thrown ?? Object.create(null));
    expect([answer.status, answer.text]).toEqual([500, JSON.stringify({ detail })]);
    expect(answer.log).toContain('request failed');
  });

  it('keeps the stack of an unknown error in the log', async () => {
    const { log } = await answerTo(new Error('why'));
    expect(log).toContain('"reason":"why"');
    expect(log).toContain('error-handler.test.ts');
  });

  it('cuts the connection when an answer has begun', async () => {
    const broken = answerTo(new Error('late'), (response) => {
      response.writeHead(200, { 'content-length': 100 });
      response.write('half');
    });
    await expect(broken).rejects.toThrow(/terminated|fetch failed/);
  });
});

describe('errors of the database', () => {
  it.each([
    '08006',
    '08P01',
    '57P01',
    '57P02',
    '57P03',
    '53100',
    '53200',
    '53300',
    '25006',
    '40001',
    '40P01',
    '55P03',
    '57014',
    'ECONNREFUSED',
    'ECONNRESET',
    'ETIMEDOUT',
  ])('%s passes: 503', async (code) => {
    const answer = await answerTo(databaseError(code));
    expect([answer.status, answer.text]).toEqual([503, '{"detail":"The database is not available for now."}']);
    expect(answer.headers.get('retry-after')).toBe('1');
    expect(answer.log).toContain(`"code":"${code}"`);
  });

  it.each(['timeout exceeded when trying to connect', 'Connection terminated unexpectedly'])(
    'the pool’s %j passes too',
    async (message) => {
      expect((await answerTo(new Error(message))).status).toBe(503);
    },
  );

  it.each(['22P05', '22021'])('%s is the request’s fault: 422', async (code) => {
    const answer = await answerTo(databaseError(code));
    expect([answer.status, JSON.parse(answer.text)]).toEqual([
      422,
      {
        detail: [
          {
            type: 'value_error',
            loc: ['body'],
            msg: 'Value error, the text holds a character that cannot be stored',
            input: null,
            ctx: { error: {} },
          },
        ],
      },
    ]);
  });

  it('never shows or logs statements and values', async () => {
    const answer = await answerTo(databaseError('23505', { constraint: 'sessions_pkey' }));
    expect([answer.status, answer.text]).toEqual([500, '{"detail":"Internal Server Error"}']);
    expect(answer.log).toContain('"code":"23505"');
    expect(answer.log).toContain('"constraint":"sessions_pkey"');
    expect(answer.log).not.toContain(CANARY);
  });

  it('ends with a cause that leads back to itself', async () => {
    const error: Error & { cause?: unknown } = new Error('x');
    error.cause = error;
    expect((await answerTo(error)).status).toBe(500);
  });
});
