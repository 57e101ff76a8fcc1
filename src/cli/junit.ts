/** A test in a JUnit report. `failure`: the test did not pass; `error`: the test could not be run. */
interface JunitTest {
  name: string;
  kind?: 'failure' | 'error' | undefined;
  message?: string;
}

/** Escapes a text for XML. Replaces control characters, because XML 1.0 cannot contain them. */
const escaped = (text: string): string =>
  text
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, '�')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');

export function toJunitXml(suite: string, tests: readonly JunitTest[]): string {
  const count = (wanted: JunitTest['kind']) => tests.filter(({ kind }) => kind === wanted).length;
  const counts = `tests="${tests.length}" failures="${count('failure')}" errors="${count('error')}"`;
  const lines = tests.map(({ name, kind, message = '' }) => {
    const start = `  <testcase classname="${escaped(suite)}" name="${escaped(name)}"`;
    return kind ? `${start}>\n    <${kind} message="${escaped(message)}"/>\n  </testcase>` : `${start}/>`;
  });
  const opening = `<testsuite name="${escaped(suite)}" ${counts}>`;
  return ['<?xml version="1.0" encoding="UTF-8"?>', opening, ...lines, '</testsuite>', ''].join('\n');
}
