import { change, type Mutant } from './mutant.ts';

const GOES_ON = ['api/goes-on'];
const KEPT = { tests: ['session-lock'], only: 'whose request is kept' };

/** Breaks what becomes of an invocation that goes on in another process. */
export const GOES_ON_MUTANTS: Mutant[] = [
  {
    name: 'goes on after a death without end',
    changes: change('toError', 'run.attempt < attempts ?', 'run.attempt > 0 ?'),
    ...KEPT,
  },
  {
    name: 'goes on after a second death without a pause',
    changes: change('toPause', 'attempt === 1 ?', 'attempt > 0 ?'),
    ...KEPT,
  },
  {
    name: 'goes on, and repeats a call that acts once',
    changes: change('answerCall', "mayHaveRun && getEffect(tool) === 'once'", 'false'),
    tests: GOES_ON,
  },
  {
    name: 'goes on, and appends a stored step again',
    changes: change('storeEvent', 'if (running.stored?.has(event)) return;', ''),
    tests: GOES_ON,
  },
  {
    name: 'goes on, and asks the model again for what is stored',
    changes: change('askModel', 'if (stored) return stored;', ''),
    tests: GOES_ON,
  },
  {
    name: 'goes on with credentials in the row',
    changes: change('findHindrance', 'overrides.mcpServers?.some(hasCredential)', 'overrides.mcpServers === null'),
    tests: GOES_ON,
    only: 'credentials',
  },
  {
    name: 'goes on, and is counted by its budget again',
    changes: change('invocations/claim', 'p_is_free: lease.isFree === true', 'p_is_free: false'),
    tests: GOES_ON,
  },
];
