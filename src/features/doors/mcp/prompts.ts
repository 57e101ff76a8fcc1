import { NotFoundError } from '../../../core/errors.ts';
import type { McpCall } from './mcp-call.ts';

export async function listPrompts(call: McpCall) {
  const skills = await listSkills(call);
  return { prompts: skills.map(({ name, skill: { description } }) => ({ name, description })) };
}

/** @throws {NotFoundError} if no skill has this name */
export async function getPrompt(call: McpCall, name: string) {
  const prompt = (await listSkills(call)).find((each) => each.name === name);
  if (!prompt) throw new NotFoundError(`Prompt not found: ${name}`);
  const { description, body: text } = prompt.skill;
  return { description, messages: [{ role: 'user' as const, content: { type: 'text' as const, text } }] };
}

async function listSkills({ context: { agents }, appNames }: McpCall) {
  const lists = appNames.map(async (app) => {
    const skills = (await agents.get(app)?.listSkills?.()) ?? [];
    return skills.map((skill) => ({ name: `${app}/${skill.name}`, skill }));
  });
  return (await Promise.all(lists)).flat();
}
