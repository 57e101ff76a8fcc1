import { change, type Mutant } from './mutant.ts';

const STORE = ['store/deltas'];
const READERS = ['api/deltas'];
const LOCAL = ['local-run'];
const FOLLOWERS = ['store/follow'];

/** Breaks the text that readers get while a model writes. */
export const DELTA_MUTANTS: Mutant[] = [
  {
    name: 'stores text without the lease',
    changes: change('append_deltas', 'and s.id = p_session and s.lease_token = p_lease;', 'and s.id = p_session;'),
    tests: STORE,
  },
  {
    name: 'stores text behind text that it does not know of',
    changes: change('append_deltas', 'if v_before is distinct from p_after then', 'if false then'),
    tests: STORE,
  },
  {
    name: 'waits for the disk with each piece of text',
    changes: change('append_deltas', "'off', true", "'on', true"),
    tests: STORE,
  },
  {
    name: 'leaves the text beside its event',
    changes: change('append_events', 'if p_has_deltas then', 'if false then'),
    tests: STORE,
  },
  {
    name: 'shows text of a process that died',
    changes: change('selectDeltas', 'and ${d.leaseToken} = ${s.leaseToken}', ''),
    tests: STORE,
  },
  {
    name: 'does not take text back',
    changes: change('followSession', '!open.matches(text.deltas)', 'open.delta < 0'),
    tests: READERS,
  },
  {
    name: 'shows what another process says before it takes back what the dead one said',
    changes: change('followSession', '!open.matches(text.deltas, page.events)', 'false'),
    tests: FOLLOWERS,
    only: 'is told to discard',
  },
  {
    name: 'takes text back whose event comes next',
    changes: change('OpenText', '...events.map(({ id }) => id)', ''),
    tests: FOLLOWERS,
    only: 'is not taken back',
  },
  {
    name: 'sends a piece of text twice',
    changes: change('OpenText', 'number <= this.delta) + 1', 'number < this.delta) + 1'),
    tests: READERS,
  },
  {
    name: 'does not see that its process missed an event',
    changes: change('LocalRun', 'if (sequence !== (isEvent ? place + 1 : place)) return false;', ''),
    tests: LOCAL,
  },
  {
    name: 'sends an event of its process twice',
    changes: change('LocalRun', 'isEvent ? sequence <= after : !withText', '!isEvent && !withText'),
    tests: LOCAL,
  },
  {
    name: 'takes another event at the place of one that a failover lost for that event',
    changes: change('LocalRun', 'sequence <= after', 'sequence <= place'),
    tests: LOCAL,
  },
  {
    name: 'keeps whatever its process says for a reader that does not read',
    changes: change('LocalRun', 'if (this.#length > MAX_KEPT) this.drop();', ''),
    tests: LOCAL,
  },
  {
    name: 'takes the loss of a run for its end',
    changes: change('LocalRun', "this.#state = 'left'", "this.#state = 'ended'"),
    tests: LOCAL,
  },
  {
    name: 'takes the last events of its process for none',
    changes: change(
      'LocalRun',
      'const state = this.#state;',
      "const state = this.#state === 'running' ? 'running' : 'left';",
    ),
    tests: LOCAL,
  },
  {
    name: 'follows a process that lost its invocation unnoticed',
    changes: change('followHere', 'state !== LIVE_RUN && gone.abort()', 'undefined'),
    tests: FOLLOWERS,
    only: 'does not notice',
  },
  {
    name: 'takes text back where it reads on in the database',
    changes: change(
      'followHere',
      'takeText(open, [value]',
      'takeText(((open.delta = value.number), new OpenText(0)), [value]',
    ),
    tests: FOLLOWERS,
    only: 'not taken back',
  },
  {
    name: 'goes on behind another event after a failover',
    changes: change('followHere', 'lastId: value.id', 'lastId: undefined'),
    tests: FOLLOWERS,
    only: 'after a failover',
  },
  {
    name: 'takes a pause in memory for the end',
    changes: change('readTurn', 'last = ended ?? ', 'last = run?.invocation ?? ended ?? '),
    tests: FOLLOWERS,
    only: 'does not take a pause',
  },
];
