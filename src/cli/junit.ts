/** `failure`: the test did not pass; `error`: it could not be run. */
interface JunitTest {
  name: string;
  kind?: 'failure' | 'error' | undefined;
  message?: string;
}

/** Escapes for XML and HTML, and replaces characters that XML 1.0 cannot have. */
export const escaped = (text: string): string =>
  text
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, '�')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');

/** A JUnit report for CI systems. */
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
