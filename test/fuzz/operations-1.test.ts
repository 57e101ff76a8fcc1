import { testOperations } from './operations.ts';

// Two files, so that each core has a service and a database of its own.
testOperations(0);
