/** Groups of `@durable-streams/server-conformance-tests` 0.3.6 that are about reading and closing. */
export const SELECTED = [
  'Read Operations',
  'Long-Poll Operations',
  'Browser Security Headers',
  'HEAD Metadata',
  'Offset Validation and Resumability',
  'Long-Poll Edge Cases',
  'Caching and ETag',
  'Chunking and Large Payloads',
  'Read-Your-Writes Consistency',
  'SSE Mode',
  '(?<!Fork - )JSON Mode',
  'Byte-Exactness Property',
  'Immutability Properties',
  'Offset Validation Properties',
  'Close Operations',
  'HEAD with Stream Closure',
  'Read Closed Streams',
  'Long-poll with Stream Closure',
  'SSE with Stream Closure',
];

/** Tests of these groups that do not hold, each with the reason. */
export const LEFT_OUT: Record<string, string> = {
  'HEAD Metadata Edge Cases should return TTL metadata if configured': 'a session has no TTL: retention is by user',
  'Caching and ETag should allow If-None-Match in CORS preflight responses':
    'the test writer has no CORS; the service has that of its settings, for all operations',
  ...Object.fromEntries(
    [
      'should return text/event-stream content-type for SSE requests',
      'should accept live=sse query parameter for application/json',
      'should have correct SSE headers (no Content-Length, proper Cache-Control)',
      'should auto-detect binary streams and return base64 encoded data in SSE mode',
    ].map((name) => [`SSE Mode ${name}`, 'all streams of the service say `charset=utf-8` behind their type']),
  ),
};
