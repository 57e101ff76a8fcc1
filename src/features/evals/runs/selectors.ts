/**
 * The cases that a command line names as `set[:case[,case…]]`, by set in the order given; no cases means all. Blanks
 * around ids are part of them, as in ADK; a set named twice gets the cases of both.
 */
export function parseSelectors(selectors: string[]): Map<string, string[]> {
  const selected = new Map<string, string[]>();
  for (const selector of selectors) {
    const [evalSetId = '', cases = ''] = selector.split(':');
    const ids = cases.split(',').filter((id) => id.trim() !== '');
    selected.set(evalSetId, [...(selected.get(evalSetId) ?? []), ...ids]);
  }
  return selected;
}
