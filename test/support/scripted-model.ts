export { callPart, scriptedModel, type ScriptedAnswer } from '../../src/testing.ts';
