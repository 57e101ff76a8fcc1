import { list, text, whole } from './setting-schemas.ts';

/** Live sessions, `/run_live`. How many one user may have is `MAX_STREAMS_PER_USER`. */
export const LIVE = {
  MODEL_LIVE_NAME: text(
    'Model of live sessions with sound and pictures, of a provider with a live API: `google`, at the host of ' +
      '`MODEL_BASE_URL`.',
    'live sessions have text only',
  ),
  MODEL_LIVE_ALLOWED_HOSTS: list(
    'Hosts that the live API may have: names, `*.example.com`, or an origin such as `http://gateway:8080` for a ' +
      'private address.',
    'every public host; in mode `local` without `ALLOW_ANONYMOUS` loopback too',
  ),
  MAX_LIVE_SESSIONS: whole(100, [0, 100_000], 'Maximum number of WebSockets of `/run_live` in this process.'),
  LIVE_IDLE_MS: whole(300_000, [50, 86_400_000], 'Maximum time that a live session says nothing.'),
  LIVE_SESSION_MS: whole(3_600_000, [100, 86_400_000], 'Maximum time of one live session.'),
  LIVE_SESSION_BYTES: whole(
    268_435_456,
    [1_024, 1_099_511_627_776],
    'Maximum number of bytes that a client sends in one live session; an hour of speech has 155 million.',
  ),
  LIVE_SESSION_FRAMES: whole(
    200_000,
    [1, 1_000_000_000],
    'Maximum number of frames that a client sends in one live session; 50 in a second are 180,000 in an hour.',
  ),
};
