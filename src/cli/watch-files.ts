import { existsSync, type FSWatcher, readdirSync, readFileSync, realpathSync, statSync, watch } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** Debounce of changes: editors write a file in several steps. */
const SETTLE_MS = 200;
/** An import of another file of the project. */
const IMPORT = /(?:from|import)\s*\(?\s*['"](\.{1,2}\/[^'"]+)['"]/g;

/** Finds the files at and below places and those that they import, each with its state, and the directories of all. */
function look(places: readonly string[]) {
  const files = new Map<string, string>();
  /** By number and path: one that was made anew is another. */
  const directories = new Map<string, string>();
  const addDirectory = (path: string) => directories.set(`${statSync(path).ino} ${path}`, path);
  const entered = new Set<string>();
  const visit = (place: string): void => {
    let there = resolve(place);
    while (!existsSync(there)) there = dirname(there);
    const path = realpathSync(there);
    const stats = statSync(path);
    addDirectory(stats.isDirectory() ? path : dirname(path));
    // One that is absent may come: the nearest directory tells.
    if (there !== resolve(place) || entered.has(path)) return;
    entered.add(path);
    if (stats.isDirectory()) {
      for (const name of readdirSync(path)) if (!/^(?:\.|node_modules$)/.test(name)) visit(join(path, name));
      return;
    }
    files.set(path, `${stats.ino} ${stats.mtimeMs} ${stats.size}`);
    if (!/\.[cm]?[jt]s$/.test(path)) return;
    for (const [, name = ''] of readFileSync(path, 'utf8').matchAll(IMPORT)) visit(resolve(dirname(path), name));
  };
  places.forEach(visit);
  return { files, directories };
}

/**
 * Calls `changed` with a file at or below places, or one that those import, when it came, went or has another content.
 * Directories are watched, so that it does not matter how a file is saved. @returns what ends it
 */
export function watchFiles(getPlaces: () => readonly string[], changed: (file: string) => void): () => void {
  const watchers = new Map<string, FSWatcher>();
  let known = look(getPlaces());
  let timer: NodeJS.Timeout | undefined;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(update, SETTLE_MS);
  };
  const follow = () => {
    for (const [key, watcher] of watchers) {
      if (known.directories.has(key)) continue;
      watcher.close();
      watchers.delete(key);
    }
    for (const [key, path] of known.directories) {
      if (watchers.has(key)) continue;
      watchers.set(key, watch(path, soon).on('error', soon));
      // A file may have come before.
      soon();
    }
  };
  const update = () => {
    const before = known.files;
    try {
      known = look(getPlaces());
      follow();
    } catch {
      return soon(); // something went while it was looked at
    }
    const file = [...known.files, ...before].find(([path]) => known.files.get(path) !== before.get(path))?.[0];
    if (file !== undefined) changed(relative('', file));
  };
  follow();
  return () => {
    clearTimeout(timer);
    for (const watcher of watchers.values()) watcher.close();
  };
}
