/**
 * Where the console is: its scripts are in a folder of it. A proxy may have put a path before the service, which the
 * service does not see.
 */
const HOME_URL = new URL(/* @vite-ignore */ '..', import.meta.url);

/** The address of the console, with a slash at its end. */
export const HOME = HOME_URL.href;
/** The path of the console, without one. */
export const HOME_PATH = HOME_URL.pathname.slice(0, -1);
/** The address of the service, which every path of the API comes behind. */
export const SERVICE = new URL('..', HOME_URL).href.slice(0, -1);
