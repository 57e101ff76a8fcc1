import { list, text, textOr, url } from './setting-schemas.ts';

/** The agent, its tools and the applications beside it. */
export const AGENT = {
  HARNESS_FILE: text(
    'YAML file that describes the agent; a variable wins over the member of the same meaning.',
    '`harness.yaml`, if it exists',
  ),
  SYSTEM_PROMPT: text('Instruction of the agent.'),
  TOOLS: list('Built-in tools of the agent.', '`current_time,calculator`'),
  SKILLS: list('Skills of the agent: names of directories in `SKILLS_DIR`.'),
  SKILLS_DIR: text('Directory of the skills.'),
  MCP_SERVERS: text(
    'Remote MCP servers: a JSON array as `mcp_servers` of `harness.yaml`, or URLs separated by commas.',
  ),
  MCP_ALLOWED_HOSTS: list(
    'Hosts that MCP servers may have: names, `*.example.com`, or an origin for a private address.',
    'every public host; in mode `local` without `ALLOW_ANONYMOUS` loopback too',
  ),
  OAUTH_REDIRECT_URL: url(
    'Where browsers come back to after a user has given an MCP server access: a page of yours that calls ' +
      '`GET /oauth/callback` as that user.',
    'that operation itself, in mode `local`',
  ),
  AGENTS_DIR: textOr(
    'agents',
    'Directory of agent applications, one `<name>/agent.ts` each; that of `harness_agent` replaces the built-in one.',
  ),
};
