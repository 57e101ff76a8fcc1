#!/usr/bin/env node
import { runProgram } from './cli/program.ts';
import { loadFaster } from './module-loading.ts';

/** The service and its command line: without a command it starts the service. */
loadFaster();
process.exitCode = await runProgram(process.argv.slice(2));
