export { callPart, scriptedModel, type ScriptedAnswer } from '../../src/process/scripted-model.ts';
