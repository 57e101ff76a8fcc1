import { change, type Mutant } from './mutant.ts';

const STORE = ['store/jobs'];

/** Breaks the claim of jobs. */
export const JOB_MUTANTS: Mutant[] = [
  {
    name: 'claims jobs beyond the limits',
    changes: change('claim_jobs', 'r.rank > r.places or ', ''),
    tests: STORE,
  },
  {
    name: 'claims jobs of a kind in two processes at once',
    changes: change('claim_jobs', "perform pg_advisory_xact_lock(hashtextextended('jobs ' || p_kind, 0));", ''),
    tests: STORE,
  },
  {
    name: 'gives the last slots of a process to one user',
    changes: [
      { in: 'claim_jobs', from: "or p_limits ? 'user' and key like 'user:%' and n::integer >= v_free", to: '' },
      {
        in: 'claim_jobs',
        from: "or p_limits ? 'user' and r.key like 'user:%' and r.rank + d.place > v_free + 1",
        to: '',
      },
    ],
    tests: STORE,
  },
  {
    name: 'serves one lane until it is empty',
    changes: change('claim_jobs', 'set turn_time = clock_timestamp()  -- 7', 'set turn_time = l.turn_time'),
    tests: STORE,
  },
  {
    name: 'leaves lanes behind a limit that has places',
    changes: change('claim_jobs', 'update job_lanes l set blocked_by = null', 'update job_lanes l set lane = l.lane'),
    tests: STORE,
  },
  {
    name: 'ends a job that another process has',
    changes: change('end_job', 'and j.lease_token = p_token', ''),
    tests: STORE,
  },
  {
    name: 'opens the lane of a host that is silent',
    changes: change('setHalfOpen', '.set({ halfOpen: isHalfOpen })', '.set({ halfOpen: false })'),
    tests: STORE,
  },
];
