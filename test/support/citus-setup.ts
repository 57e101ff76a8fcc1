import { beforeEach } from 'vitest';
import { notForClusters } from './citus-exceptions.ts';

/** Set-up of every test file on the cluster of `CITUS_URL`: what cannot hold there is skipped, with the reason. */
beforeEach(({ task, skip }) => {
  const reason = notForClusters(task.file.name, [task.name, task.fullTestName]);
  if (reason !== undefined) skip(reason);
});
