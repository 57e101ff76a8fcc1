#!/usr/bin/env node
import { runProgram } from './cli/program.ts';

/** The service and its command line: without a command it starts the service. */
process.exitCode = await runProgram(process.argv.slice(2));
