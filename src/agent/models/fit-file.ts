import { isUtf8 } from 'node:buffer';
import type { Part } from '../../core/content.ts';
import { decodeText, isTextType, toEssence } from '../../core/media-type.ts';
import type { CallOptions, FileFacts } from '../providers/provider.ts';

type Message = CallOptions['prompt'][number];
type UserPart = Extract<Message, { role: 'user' }>['content'][number];
export type FilePart = Extract<UserPart, { type: 'file' }>;

/** A file as sent to the provider; if the provider does not accept it, a text: the file's content or a description. */
export type Fitted = { file: FilePart } | { text: string };

/** How many more files the request may contain. */
export interface Room {
  files: number;
}

/**
 * A text file is sent as text; another file as it is if the provider accepts it, else as a description with name, type
 * and size. If `facts` is undefined, the provider accepts no files.
 */
export function fitFile({ inlineData, fileData }: Part, facts: FileFacts | undefined, room: Room): Fitted {
  const declared = inlineData?.mimeType ?? fileData?.mimeType ?? '';
  const name = (inlineData?.displayName ?? fileData?.displayName ?? '').toWellFormed();
  if (!inlineData) return fitAddress(fileData?.fileUri ?? '', declared, name, facts, room);
  const data = toStandard(inlineData.data ?? '');
  if (data === '') return words({ name, type: toEssence(declared), what: 'it is empty' });
  const head = Buffer.from(data.slice(0, 64), 'base64');
  const type = toType(head, declared);
  const size = Math.floor((data.length * 3) / 4) - (data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0);
  if (isTextType(type === toEssence(declared) ? declared : type) || isUnnamedText(type, data)) {
    const text = decodeText(Buffer.from(data, 'base64'), declared);
    return { text: name ? `File ${name}:\n${text}` : text };
  }
  const what = refuse(type, head, data, facts, room);
  if (what !== undefined || !facts) return words({ name, type, size, what: what ?? NOT_TAKEN });
  room.files -= 1;
  const filename = name ? { filename: name } : {};
  return { file: { type: 'file', mediaType: type, data: { type: 'data', data }, ...filename } };
}

const NOT_TAKEN = 'this model does not take files of this type';

function refuse(
  type: string,
  head: Buffer,
  data: string,
  facts: FileFacts | undefined,
  room: Room,
): string | undefined {
  if (!facts || !has(facts.types, type)) return NOT_TAKEN;
  if (type.startsWith('image/') && sniff(head) === undefined) return 'its bytes are no image that is known';
  if (data.length > facts.size) return `it is larger than this model takes`;
  return room.files > 0 ? undefined : 'there are more files than this model takes';
}

const has = (types: ReadonlySet<string>, type: string) => types.has(type) || types.has(type.replace(/\/.*/, '/*'));

/** Sends the URL of a file, which the provider fetches; this service never fetches it. */
function fitAddress(uri: string, declared: string, name: string, facts: FileFacts | undefined, room: Room): Fitted {
  const type = ALIASES.get(toEssence(declared)) ?? toEssence(declared);
  const url = URL.parse(uri);
  const isTaken = url && facts && facts.addresses.test(url.protocol) && has(facts.addressTypes, type);
  if (!isTaken || room.files <= 0) return words({ name, type, uri, what: 'this model does not fetch it' });
  room.files -= 1;
  const filename = name ? { filename: name } : {};
  return { file: { type: 'file', mediaType: type, data: { type: 'url', url }, ...filename } };
}

/** Describes in words a file that is not sent to the model. */
function words({
  name,
  type,
  size,
  uri,
  what,
}: {
  name: string;
  type: string;
  size?: number;
  uri?: string;
  what: string;
}) {
  const pieces = [
    name === '' ? 'A file' : `The file ${name}`,
    type === '' ? '' : ` of the type ${type}`,
    size === undefined ? '' : `, ${size} bytes`,
    uri === undefined ? '' : ` at ${uri === '' ? 'no address' : uri}`,
  ];
  return { text: `(${pieces.join('')}, is not shown: ${what}.)` };
}

const ALIASES = new Map([
  ['image/jpg', 'image/jpeg'],
  ['image/pjpeg', 'image/jpeg'],
  ['image/x-png', 'image/png'],
  ['audio/mp3', 'audio/mpeg'],
  ['audio/x-mp3', 'audio/mpeg'],
  ['audio/x-wav', 'audio/wav'],
  ['audio/wave', 'audio/wav'],
  ['audio/vnd.wave', 'audio/wav'],
  ['application/x-pdf', 'application/pdf'],
]);

/** Returns a file's media type. The first bytes decide for images, and for a file without a declared type. */
function toType(head: Buffer, declared: string): string {
  const essence = toEssence(declared);
  const type = ALIASES.get(essence) ?? essence;
  const isUnnamed = type === '' || !type.includes('/') || type === 'application/octet-stream';
  if (!isUnnamed && !type.startsWith('image/')) return type;
  if (type === 'image/svg+xml') return type;
  return sniff(head) ?? (isUnnamed ? (isPdf(head) ? 'application/pdf' : 'application/octet-stream') : type);
}

const isPdf = (head: Buffer) => head.toString('latin1', 0, 5) === '%PDF-';

const isUnnamedText = (type: string, data: string) => {
  if (type !== 'application/octet-stream') return false;
  const bytes = Buffer.from(data, 'base64');
  return isUtf8(bytes) && !bytes.includes(0);
};

/** Returns the image type that the first bytes show; `undefined` if they show none. */
function sniff(head: Buffer): string | undefined {
  const text = head.toString('latin1');
  if (text.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (text.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (/^GIF8[79]a/.test(text)) return 'image/gif';
  if (/^RIFF[\s\S]{4}WEBP/.test(text)) return 'image/webp';
  const brand = /^[\s\S]{4}ftyp([\s\S]{4})/.exec(text)?.[1];
  if (brand === 'heic' || brand === 'heix' || brand === 'hevc') return 'image/heic';
  return brand === 'mif1' || brand === 'msf1' ? 'image/heif' : undefined;
}

/** Converts base64 to the standard alphabet with padding and nothing else; `''` if it encodes no byte. */
function toStandard(text: string): string {
  const data = text.startsWith('data:') ? text.slice(text.indexOf(',') + 1) : text;
  if (data.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(data)) return data;
  return Buffer.from(data, 'base64').toString('base64');
}
