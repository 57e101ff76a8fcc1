#!/usr/bin/env node
import { loadFaster } from './process/module-loading.ts';

/** The service and its command line: without a command it starts the service. */
loadFaster();
// Not above: what is imported there is loaded before this file runs.
const { runProgram } = await import('./cli/program.ts');
process.exitCode = await runProgram(process.argv.slice(2));
