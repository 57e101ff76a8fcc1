import { expect, test } from 'vitest';
import { z } from 'zod';
import type { DatabasePool } from '../../../../../src/platform/db/database.ts';
import { area } from '../../../../../src/platform/http/operation/area.ts';
import type { Operation } from '../../../../../src/platform/http/operation/operation.ts';
import { appPath } from '../../../../../src/platform/http/operation/parameters.ts';

type Context = { database: Pick<DatabasePool, 'db' | 'reads'>; closed: string[] };
const room = area<Context>('Sessions', { read: 'read', write: 'write', owner: 'caller', isIdempotent: true });
const doorSchema = z.object({ doorId: z.string() });
const doors = new Map([['front', 'a door']]);

const door = room.resource({
  noun: 'door',
  path: '/apps/{app_name}/doors',
  within: appPath,
  key: appPath.extend({ doorId: z.string() }),
  schema: doorSchema,
  example: { doorId: 'front' },
  find: async (_db, { doorId }) => doors.get(doorId),
});
const run = async () => undefined;

test.each([
  [door.list, 'get', '/apps/{app_name}/doors', 'listDoors', 'List doors', 'read', undefined, 200],
  [door.create, 'post', '/apps/{app_name}/doors', 'createDoor', 'Create a door', 'write', undefined, 201],
  [door.read, 'get', '/apps/{app_name}/doors/{door_id}', 'getDoor', 'Get a door', 'read', 'No such door.', 200],
  [door.save, 'put', '/apps/{app_name}/doors/{door_id}', 'saveDoor', 'Save a door', 'write', undefined, null],
  [
    door.change,
    'patch',
    '/apps/{app_name}/doors/{door_id}',
    'updateDoor',
    'Change a door',
    'write',
    'No such door.',
    200,
  ],
  [
    door.remove,
    'delete',
    '/apps/{app_name}/doors/{door_id}',
    'deleteDoor',
    'Delete a door',
    'write',
    'No such door.',
    null,
  ],
] as const)(
  'a verb makes an operation by its row: %#',
  (verb, method, path, operationId, summary, scope, absent, status) => {
    const made = verb({ run }) as Operation;
    expect(made).toMatchObject({ method, path, operationId, summary, scope, area: 'Sessions', owner: 'caller' });
    expect(made.isIdempotent).toBe(true);
    expect(made.errors?.[404]).toBe(absent);
    expect(made.success ? (made.success.status ?? 200) : null).toBe(status);
  },
);

test('only a list answers several, and only what is saved is sent as it is shown', () => {
  expect(door.list({ run }).success?.example).toEqual([{ doorId: 'front' }]);
  expect(door.read({ run }).success).toMatchObject({ schema: doorSchema, description: 'The door.' });
  expect(door.save({ run }).body).toMatchObject({ schema: doorSchema, required: true });
  expect(door.change({ run }).body).toBeUndefined();
});

test('what a verb says wins over its row and its room, and 404 stays beside further errors', () => {
  const said = door.action('paint')({
    operationId: 'paintDoor',
    summary: 'Paint a door',
    scope: 'admin',
    load: 'heavy',
    owner: 'service',
    query: z.object({ colour: z.string() }),
    success: { description: 'The painted door.', status: 202 },
    errors: { 409: 'It is wet.' },
    run,
  });
  expect(said).toMatchObject({
    method: 'post',
    path: '/apps/{app_name}/doors/{door_id}/paint',
    operationId: 'paintDoor',
    scope: 'admin',
    load: 'heavy',
    owner: 'service',
    success: { schema: doorSchema, description: 'The painted door.', status: 202 },
    errors: { 404: 'No such door.', 409: 'It is wet.' },
  });
  expect(Object.keys(said.parameters ?? {})).toEqual(['path', 'query']);
  expect(door.read({ method: 'post', errors: { 404: 'Gone.' }, run })).toMatchObject({
    method: 'post',
    scope: 'write',
    errors: { 404: 'Gone.' },
  });
});

test('names follow the noun where nothing else is said', () => {
  const entry = room.resource({ noun: 'entry', plural: 'entries', path: '/entries', schema: z.string(), example: 'a' });
  expect([entry.list({ run }), entry.create({ run })]).toMatchObject([
    { operationId: 'listEntries', summary: 'List entries' },
    { operationId: 'createEntry', summary: 'Create an entry' },
  ]);
  // Without a key in the path query or body say which one is meant, and nothing is looked for.
  const removed = entry.remove({ run });
  expect([removed.path, removed.errors, removed.parameters]).toEqual(['/entries', undefined, undefined]);
});

/** Calls the handler of an operation with a path. */
function call(operation: Operation<Context>, doorId: string, closed: string[] = []) {
  const context = { database: { db: 'main', reads: 'reads' }, closed } as unknown as Context;
  const path = { appName: 'demo', doorId };
  return operation.handler(context, {
    path,
    notFound: () => new Error(operation.absent?.(path as never)),
  } as never);
}

test('a handler gets the row that was found, or the request gets the same 404 as one for another user', async () => {
  const read = door.read({ run: async (_context, _call, row) => ({ row }) });
  await expect(call(read, 'front')).resolves.toEqual({ kind: 'value', value: { row: 'a door' } });
  await expect(call(read, 'back')).rejects.toThrow('Door not found: back');
  expect(read.absent?.({ doorId: 'back' } as never)).toBe('Door not found: back');
});

test('a plain read is looked for with the connections for reads, a change with the others', async () => {
  const seen: unknown[] = [];
  const gate = room.resource({
    noun: 'gate',
    path: '/gates',
    key: z.object({ doorId: z.string() }),
    schema: doorSchema,
    example: { doorId: 'front' },
    find: async (db) => seen.push(db),
  });
  await call(gate.read({ run }), 'front');
  await call(gate.change({ run }), 'front');
  expect(seen).toEqual(['reads', 'main']);
});

test('a removal answers null, and false is a 404', async () => {
  const gate = room.resource({
    noun: 'gate',
    path: '/gates',
    key: z.object({ doorId: z.string() }),
    schema: doorSchema,
    example: { doorId: 'front' },
  });
  const remove = gate.remove({
    run: async ({ closed }, { path }) => closed.push(path.doorId) === 1,
  });
  await expect(call(remove, 'front')).resolves.toEqual({ kind: 'value', value: null });
  await expect(call(remove, 'front', ['front'])).rejects.toThrow('Gate not found: front');
});

test('a handler of its own answers as it likes', async () => {
  const text = door.read({ handler: async (_context, _call, row) => ({ kind: 'json', text: JSON.stringify(row) }) });
  await expect(call(text, 'front')).resolves.toEqual({ kind: 'json', text: '"a door"' });
});

test('an operation of a room has its scope by its method', () => {
  const operations = [
    room.operation({ method: 'get', path: '/now', operationId: 'getNow', summary: 'Now', handler: async () => {} }),
    room.operation({ method: 'post', path: '/now', operationId: 'setNow', summary: 'Set', handler: async () => {} }),
    room.operation({
      method: 'get',
      path: '/then',
      operationId: 'getThen',
      summary: 'Then',
      scope: 'admin',
      owner: 'service',
      handler: async () => {},
    }),
  ];
  expect(operations.map(({ scope, owner, area: name }) => [scope, owner, name])).toEqual([
    ['read', 'caller', 'Sessions'],
    ['write', 'caller', 'Sessions'],
    ['admin', 'service', 'Sessions'],
  ]);
});
