import { freshEnvironment } from '../config/environment.ts';

/** Interval in milliseconds at which a command of npx looks for its shell. */
const LOOK_MS = 500;

/** Calls `stop` when the shell between npx and this process has ended, because that shell hands on no SIGTERM. */
export function onNpxEnd(stop: () => void): void {
  if (freshEnvironment().own['npm_command'] !== 'exec') return;
  const shell = process.ppid;
  const looking = setInterval(() => {
    if (process.ppid === shell) return;
    clearInterval(looking);
    stop();
  }, LOOK_MS);
  looking.unref();
}
