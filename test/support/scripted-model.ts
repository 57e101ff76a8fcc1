export { callPart, scriptedModel, type ScriptedAnswer } from '../../src/process/testing.ts';
