import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Server as ModernServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

/**
 * An MCP server on its standard streams, of the protocol that its argument names (`2025` or `2026`). Its tools: `tell`
 * names its variables and its process, `end` ends it, `flood` writes a message without end, `talk` many messages.
 */
const INFO = { name: 'program', version: '1' };
const CAPABILITIES = { capabilities: { tools: {}, logging: {} } };
const TOOLS = ['tell', 'end', 'flood', 'talk'].map((name) => ({ name, inputSchema: { type: 'object' as const } }));

async function call(name: string): Promise<{ content: { type: 'text'; text: string }[] }> {
  if (name === 'end') process.exit(1);
  const log = { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'so it goes' } };
  const piece = name === 'flood' ? 'x'.repeat(65_536) : `${JSON.stringify(log)}\n`.repeat(100);
  while (name !== 'tell') await new Promise((resolve) => process.stdout.write(piece, resolve));
  return { content: [{ type: 'text', text: JSON.stringify({ names: Object.keys(process.env), pid: process.pid }) }] };
}

if (process.argv[2] === '2025') {
  const server = new Server(INFO, CAPABILITIES);
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => call(params.name));
  await server.connect(new StdioServerTransport());
} else {
  const create = () => {
    const server = new ModernServer(INFO, CAPABILITIES);
    server.setRequestHandler('tools/list', () => ({ tools: TOOLS }));
    server.setRequestHandler('tools/call', ({ params }) => call(params.name));
    return server;
  };
  serveStdio(create, { legacy: 'reject' });
}
