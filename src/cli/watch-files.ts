import { existsSync, type FSWatcher, readdirSync, readFileSync, realpathSync, statSync, watch } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** Waiting time (debounce) after a change, because editors write a file in several steps. Milliseconds. */
const SETTLE_MS = 200;
const IMPORT = /(?:from|import)\s*\(?\s*['"](\.{1,2}\/[^'"]+)['"]/g;

/** Finds the files at and below the given paths, the files that they import, and the directories of all these files. */
function look(places: readonly string[]) {
  const files = new Map<string, string>();
  /** Directories by inode and path, because a directory that was deleted and created again needs a new watcher. */
  const directories = new Map<string, string>();
  const addDirectory = (path: string) => directories.set(`${statSync(path).ino} ${path}`, path);
  const entered = new Set<string>();
  const visit = (place: string): void => {
    let there = resolve(place);
    while (!existsSync(there)) there = dirname(there);
    const path = realpathSync(there);
    const stats = statSync(path);
    addDirectory(stats.isDirectory() ? path : dirname(path));
    // The nearest existing directory of a missing file is watched, to notice when the file appears.
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
 * Watches files and those that they import. Calls `changed` with a file that appears, disappears or changes. Watches
 * directories, because editors may save a file by replacing it. @returns a function that stops watching
 */
export function watchFiles(getPlaces: () => readonly string[], changed: (file: string) => void): () => void {
  const watchers = new Map<string, FSWatcher>();
  let current = look(getPlaces());
  let timer: NodeJS.Timeout | undefined;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(update, SETTLE_MS);
  };
  const follow = () => {
    for (const [key, watcher] of watchers) {
      if (current.directories.has(key)) continue;
      watcher.close();
      watchers.delete(key);
    }
    for (const [key, path] of current.directories) {
      if (watchers.has(key)) continue;
      watchers.set(key, watch(path, soon).on('error', soon));
      // A file may have appeared before its directory was watched.
      soon();
    }
  };
  const update = () => {
    const before = current.files;
    try {
      current = look(getPlaces());
      follow();
    } catch {
      return soon(); // A file disappeared meanwhile.
    }
    const file = [...current.files, ...before].find(([path]) => current.files.get(path) !== before.get(path))?.[0];
    if (file !== undefined) changed(relative('', file));
  };
  follow();
  return () => {
    clearTimeout(timer);
    for (const watcher of watchers.values()) watcher.close();
  };
}
