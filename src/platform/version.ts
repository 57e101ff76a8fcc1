import { readFileSync } from 'node:fs';

export const { version: VERSION } = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
) as {
  version: string;
};

const { compare } = new Intl.Collator('en', { numeric: true });

/** True if a version follows another by the precedence of semver: a pre-release precedes its release. */
export function isNewer(version: string, than: string): boolean {
  const [release = '', preRelease] = toParts(version);
  const [otherRelease = '', otherPreRelease] = toParts(than);
  if (release !== otherRelease) return compare(release, otherRelease) > 0;
  if (preRelease === undefined || otherPreRelease === undefined)
    return preRelease === undefined && otherPreRelease !== undefined;
  return compare(preRelease, otherPreRelease) > 0;
}

/** Splits a version into release and pre-release, without build metadata. */
const toParts = (version: string) => /^([^-+]*)(?:-([^+]*))?/.exec(version)?.slice(1) ?? [];
