import { expect, test } from 'vitest';
import { toNodeStatement } from '../../../../src/platform/db/user-node.ts';

test('tables are named by their places, values after them; columns of such a name, texts and comments are not', () => {
  const text = `-- one's "events"
    with a as (insert into "budget_uses" ("invocations") select $2 from "invocations"
               where "invocations"."id" = $1 and "invocations"."status" like 'a%"events"$1')
    update "sessions" set "state" = "sessions"."state" % $10`;
  expect(toNodeStatement(text)).toEqual({
    tables: ['budget_uses', 'invocations', 'sessions'],
    template: `
    with a as (insert into %1$I ("invocations") select %5$L from %2$I
               where %2$I."id" = %4$L and %2$I."status" like 'a%%"events"$1')
    update %3$I set "state" = %3$I."state" %% %13$L`,
  });
});

test('a statement that writes what is on every node, or names what is on the coordinator, is none', () => {
  expect(toNodeStatement('update "app_states" set "state" = $1')).toBeUndefined();
  expect(toNodeStatement('select from "sessions", lateral (select from "cronjobs")')).toBeUndefined();
  expect(toNodeStatement('update "sessions" set "id" = $1 from "app_states"')).toBeDefined();
});
