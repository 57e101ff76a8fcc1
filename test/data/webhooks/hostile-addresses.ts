/** An address that no webhook may have, and what its refusal says. */
export interface HostileAddress {
  url: unknown;
  says: RegExp;
}

const SPELLING = /this is no address/;
const PRIVATE = /is not a public address/;
const HTTPS = /may be called by https only/;

/** Forty of them. */
export const HOSTILE_ADDRESSES: HostileAddress[] = [
  { url: '', says: /at least 1 character/ },
  { url: 7, says: /valid string/ },
  { url: null, says: /valid string/ },
  { url: `https://example.com/${'a'.repeat(10_000)}`, says: /at most 1024 characters/ },
  { url: 'example.com/hooks', says: SPELLING },
  { url: '//example.com/hooks', says: SPELLING },
  { url: 'https://', says: SPELLING },
  { url: 'https://exa mple.com/', says: SPELLING },
  { url: ' https://example.com/', says: SPELLING },
  { url: 'https://example.com/\nHost: other', says: SPELLING },
  { url: 'https://example.com\\@10.0.0.1/', says: SPELLING },
  { url: 'https://example.com:99999/', says: SPELLING },
  { url: 'https://[::1/', says: SPELLING },
  { url: 'https://1.2.3.4.5/', says: SPELLING },
  { url: '__proto__', says: SPELLING },
  { url: 'http://example.com/', says: HTTPS },
  { url: 'ftp://example.com/', says: HTTPS },
  { url: 'file:///etc/passwd', says: HTTPS },
  { url: 'javascript:alert(1)', says: HTTPS },
  { url: 'data:text/plain,hi', says: HTTPS },
  { url: 'gopher://example.com/', says: HTTPS },
  { url: 'ws://example.com/', says: HTTPS },
  { url: 'https://user:password@example.com/', says: /name or password/ },
  { url: 'https://user@example.com/', says: /name or password/ },
  { url: 'https://example.com/#part', says: /no part after #/ },
  { url: 'https://127.0.0.1/', says: PRIVATE },
  { url: 'https://127.1/', says: PRIVATE },
  { url: 'https://2130706433/', says: PRIVATE },
  { url: 'https://0x7f.0.0.1/', says: PRIVATE },
  { url: 'https://0177.0.0.1/', says: PRIVATE },
  { url: 'https://０.０.０.０/', says: PRIVATE },
  { url: 'https://10.0.0.1/', says: PRIVATE },
  { url: 'https://172.16.0.1:5432/', says: PRIVATE },
  { url: 'https://192.168.1.1/', says: PRIVATE },
  { url: 'https://169.254.169.254/latest/meta-data/', says: PRIVATE },
  { url: 'https://168.63.129.16/', says: PRIVATE },
  { url: 'https://[::1]/', says: PRIVATE },
  { url: 'https://[::ffff:10.0.0.1]/', says: PRIVATE },
  { url: 'https://[fd00::1]/', says: PRIVATE },
  { url: 'https://[64:ff9b::7f00:1]/', says: PRIVATE },
];
