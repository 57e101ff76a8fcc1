// The suite of Durable Streams; test/api/durable-streams.test.ts runs it, with the vitest that it brings.
import { runConformanceTests } from '@durable-streams/server-conformance-tests';

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL });
