import { z } from 'zod';
import {
  documented,
  flag,
  isNetwork,
  isOrigin,
  list,
  publicUrl,
  splitAtCommas,
  textOr,
  whole,
} from './setting-schemas.ts';

export const SERVER = {
  HOST: textOr('127.0.0.1', 'Address to listen on.'),
  PORT: whole(8000, [0, 65_535], 'Port to listen on; 0 takes a free one.'),
  PUBLIC_URL: publicUrl(
    'Where clients reach the service, with the path that a proxy before it takes off: what stands in answers that ' +
      'name an address, such as cards of [A2A](a2a.md). Required with `A2A_CARD_KEY`.',
    'the host of each request',
  ),
  MAX_BODY_BYTES: whole(10_485_760, [1_024, 104_857_600], 'Size of a request body, and of an artifact.'),
  DEV_UI: flag(
    false,
    'Development UI mode: the ADK Web UI at `/dev-ui/` and the operations under `/dev/`. The UI has no login, so it ' +
      'needs mode `local`; with keys or tokens the operations ask for one, and the UI shows nothing.',
  ),
  ALLOWED_HOSTS: list('Further host names that mode `local` and the development UI answer to.', 'loopback names only'),
  ALLOWED_ORIGINS: documented(
    z
      .string()
      .transform(splitAtCommas)
      .refine((origins) => origins.every(isOrigin), 'origins such as https://app.example.com, without a path')
      .default([]),
    'Origins of web pages that may read answers in a browser.',
    'comma-separated',
    'the own origin only',
  ),
  TRUSTED_PROXIES: documented(
    z
      .string()
      .transform(splitAtCommas)
      .refine((proxies) => proxies.every(isNetwork), 'IP addresses and networks such as 10.0.0.0/8')
      .default([]),
    'Proxies whose `X-Forwarded-For` is believed; mode `local` refuses what others hand on.',
    'comma-separated',
    'none',
  ),
  REQUEST_TIMEOUT_MS: whole(
    60_000,
    [500, 3_600_000],
    'Longest time for a request to arrive (its headers: 10 seconds), and for a client to read nothing of an ' +
      'answer.',
  ),
  KEEP_ALIVE_TIMEOUT_MS: whole(
    65_000,
    [500, 3_600_000],
    'Longest time that a connection stays open without a request.',
  ),
  DRAIN_DELAY_MS: whole(
    500,
    [0, 600_000],
    'Time after SIGTERM in which requests are still taken while `/ready` answers 503, so that load balancers ' +
      'notice.',
  ),
  SHUTDOWN_GRACE_MS: whole(
    30_000,
    [0, 600_000],
    'Longest time for running requests after that; then another process goes on with them.',
  ),
};
