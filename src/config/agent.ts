import { list, text, textOr, url } from './setting-schemas.ts';

export const AGENT = {
  HARNESS_FILE: text(
    'YAML file that [describes the agent](agents.md#the-agent-harnessyaml); a variable wins over its member ' +
      'of the same meaning.',
    '`harness.yaml`, if it exists',
  ),
  SYSTEM_PROMPT: text('Instruction of the agent.'),
  TOOLS: list('Built-in tools of the agent.', '`current_time,calculator`'),
  SKILLS: list('Skills of the agent: directories in `SKILLS_DIR`.'),
  SKILLS_DIR: text('Directory of the skills.'),
  MCP_SERVERS: text(
    'Remote MCP servers: a JSON array as `mcp_servers` of `harness.yaml`, or URLs separated by commas.',
  ),
  MCP_ALLOWED_HOSTS: list(
    'Hosts that MCP servers may have: names, `*.example.com`, or an origin for a private address.',
    'every public host; in mode `local` without `ALLOW_ANONYMOUS` loopback too',
  ),
  OAUTH_REDIRECT_URL: url(
    'Page of yours to which browsers come back after a user has granted access; it calls `GET ' +
      '/oauth/callback` as the user who is logged in on it: with a token, or with a key and `user_id`.',
    'that operation itself, in mode `local`',
  ),
  AGENTS_DIR: textOr('agents', 'Directory of [applications](agents.md#your-own-agent), `<name>/agent.ts` each.'),
};
