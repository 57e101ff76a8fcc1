import { type Mutant, change } from './mutant.ts';

const SOUND = ['run-live-sound'];

/** Breaks what clients see of live sessions and of wrong requests. */
export const CLIENT_MUTANTS: Mutant[] = [
  {
    name: 'stores the question of a request that names a tool that does not exist',
    changes: change('isUncertain', 'tools !== undefined || skills !== undefined || modelName !== undefined', 'false'),
    tests: ['clients'],
    only: 'do not exist',
  },
  {
    name: 'knows an alias of the application in the path only',
    changes: change('toShape', 'APP_NAME in members', 'false'),
    tests: ['clients'],
    only: 'the alias of harness_agent',
  },
  {
    name: 'stores the sound of a live session in its events',
    changes: change('getPiece', 'partial: true', 'partial: part.text !== undefined'),
    tests: SOUND,
    only: 'sound goes out',
  },
  {
    name: 'lets a live session run as often as it wants',
    changes: change('takeTurn', 'await countTurn();', ''),
    tests: ['run-live'],
    only: 'of runs in a minute',
  },
];
