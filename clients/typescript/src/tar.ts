// Local directories as tar archives. What comes from a session isn't trusted: nothing of it is written outside its directory.

import type { Stats } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, readlink, realpath, symlink } from "node:fs/promises";
import { dirname, isAbsolute, join, sep } from "node:path";
import { FileFailed, Forbidden } from "./errors.js";
import { inLocal } from "./local.js";

const BLOCK = 512;
const PART = 256 * 1024;
// More in a header of an archive that this library reads is no header.
const MAX_HEADER = 1024 * 1024;
// As many links as Linux follows.
const MAX_LINKS = 40;

/** A file, a directory or a link to pack. */
export interface Entry {
  /** Relative to the directory, with "/" between its steps. */
  name: string;
  path: string;
  stats: Stats;
  /** What is written in a link. */
  target?: string;
}

/**
 * What is in a local directory, each directory before what is in it. Throws Forbidden for a link that leads out of it, and for what
 * is neither file, directory nor link.
 */
export async function entriesOf(directory: string): Promise<Entry[]> {
  const root = await inLocal(directory, () => realpath(directory));
  const entries: Entry[] = [];
  const add = async (name: string): Promise<void> => {
    const path = join(root, name);
    for (const base of (await inLocal(path, () => readdir(path))).sort()) {
      const entry = await entryAt(root, name === "" ? base : `${name}/${base}`);
      entries.push(entry);
      if (entry.stats.isDirectory()) {
        await add(entry.name);
      }
    }
  };
  await add("");
  return entries;
}

async function entryAt(root: string, name: string): Promise<Entry> {
  const path = join(root, name);
  const stats = await inLocal(path, () => lstat(path));
  if (stats.isSymbolicLink()) {
    const target = await inLocal(path, () => readlink(path));
    if (await leadsOut(name, (link) => targetAt(root, link))) {
      throw refused(`${path} is a link to ${target}, outside the directory: remove it`);
    }
    return { name, path, stats, target };
  }
  if (!stats.isFile() && !stats.isDirectory()) {
    throw refused(`${path} is neither a file nor a directory nor a link: remove it`);
  }
  return { name, path, stats };
}

/** The archive of entries, part by part. */
export async function* archiveOf(entries: readonly Entry[]): AsyncGenerator<Buffer> {
  for (const entry of entries) {
    if (entry.stats.isFile()) {
      yield* fileOf(entry);
    } else {
      yield headersOf(entry, 0);
    }
  }
  yield Buffer.alloc(2 * BLOCK);
}

// A file is packed as long as it is when it is opened.
async function* fileOf(entry: Entry): AsyncGenerator<Buffer> {
  const file = await inLocal(entry.path, () => open(entry.path));
  try {
    const { size } = await inLocal(entry.path, () => file.stat());
    yield headersOf(entry, size);
    for (let left = size; left > 0; ) {
      const { bytesRead, buffer } = await inLocal(entry.path, () => file.read(Buffer.allocUnsafe(Math.min(left, PART)), 0, Math.min(left, PART)));
      if (bytesRead === 0) {
        throw new FileFailed(`${entry.path} became shorter while it was read: try again`, { reason: "FileChanged", retrySafe: true });
      }
      yield buffer.subarray(0, bytesRead);
      left -= bytesRead;
    }
    yield padding(size);
  } finally {
    await file.close();
  }
}

function padding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

// The header of an entry, behind one with what doesn't fit into it.
function headersOf({ name, stats, target }: Entry, size: number): Buffer {
  const type = target !== undefined ? "2" : stats.isDirectory() ? "5" : "0";
  const mode = stats.mode & 0o777;
  const records = [...(fits(name) ? [] : [record("path", name)]), ...(target === undefined || fits(target) ? [] : [record("linkpath", target)])];
  if (size >= 8 ** 11) {
    records.push(record("size", String(size)));
  }
  const own = header({ name, mode, size, type, target: target ?? "" });
  const extended = Buffer.concat(records);
  return records.length === 0
    ? own
    : Buffer.concat([header({ name: "pax", mode: 0o644, size: extended.length, type: "x", target: "" }), extended, padding(extended.length), own]);
}

// Whether a text is one of 100 ASCII bytes at most.
function fits(text: string): boolean {
  return /^[\x20-\x7e]{1,100}$/.test(text);
}

function record(key: string, value: string): Buffer {
  const rest = Buffer.from(` ${key}=${value}\n`);
  let length = rest.length + 1;
  while (length !== rest.length + String(length).length) {
    length = rest.length + String(length).length;
  }
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function header(of: { name: string; mode: number; size: number; type: string; target: string }): Buffer {
  const block = Buffer.alloc(BLOCK);
  const number = (value: number, at: number, digits: number): unknown => block.write(value.toString(8).padStart(digits, "0"), at, "latin1");
  block.write(of.name, 0, 100, "utf8");
  number(of.mode, 100, 7);
  number(0, 108, 7);
  number(0, 116, 7);
  number(of.size >= 8 ** 11 ? 0 : of.size, 124, 11);
  number(0, 136, 11);
  block.write(" ".repeat(8), 148, "latin1");
  block.write(of.type, 156, "latin1");
  block.write(of.target, 157, 100, "utf8");
  block.write("ustar\x0000", 257, "latin1");
  number(block.reduce((sum, byte) => sum + byte, 0), 148, 6);
  block[154] = 0;
  return block;
}

interface Member {
  name: string;
  mode: number;
  size: number;
  type: string;
  target: string;
}

/**
 * Writes what is in an archive into a new, empty directory of ours, and nothing elsewhere. Throws Forbidden for a member or a link that
 * leads out of the directory, and for what is neither file, directory nor link.
 */
export async function unpack(body: AsyncIterable<Uint8Array>, directory: string): Promise<void> {
  const parts = new Parts(body);
  try {
    await makeLinks(await unpackAll(parts, directory), directory);
  } finally {
    await parts.close();
  }
}

// Writes files and directories, and returns the links.
async function unpackAll(parts: Parts, directory: string): Promise<Member[]> {
  const links: Member[] = [];
  for (let member = await nextMember(parts); member; member = await nextMember(parts)) {
    const path = placeOf(member.name, directory);
    if (member.type === "2") {
      links.push(member);
    } else {
      await write(parts, member, path);
    }
  }
  await parts.skipAll();
  return links;
}

// Makes the links last, and all directories before the first one: nothing is written through a link.
async function makeLinks(links: readonly Member[], directory: string): Promise<void> {
  const targets = new Map<string, string>();
  for (const { name, target } of links) {
    const key = stepsOf(name).join("/");
    targets.set(key, targets.get(key) ?? target);
  }
  for (const { name, target } of links) {
    const steps = stepsOf(name);
    if (steps.some((_, at) => at > 0 && targets.has(steps.slice(0, at).join("/")))) {
      throw refused(`the archive has a member below a link: ${JSON.stringify(name)}`);
    }
    await refuseLeadingOut(name, target, (link) => targets.get(link));
    const path = placeOf(name, directory);
    await inLocal(path, () => mkdir(dirname(path), { recursive: true }));
  }
  for (const { name, target } of links) {
    const path = placeOf(name, directory);
    await inLocal(path, () => symlink(target, path));
  }
  // Again, as the file system has the names: it may take two for the same.
  for (const { name, target } of links) {
    await refuseLeadingOut(name, target, (link) => targetAt(directory, link));
  }
}

async function refuseLeadingOut(name: string, target: string, targetOf: TargetOf): Promise<void> {
  if (await leadsOut(name, targetOf)) {
    throw refused(`the link ${JSON.stringify(name)} leads to ${JSON.stringify(target)}, out of its directory`);
  }
}

function placeOf(name: string, directory: string): string {
  const steps = stepsOf(name);
  const isForeign = sep !== "/" && /[\\:]/.test(name);
  if (name.startsWith("/") || name.includes("\0") || steps.includes("..") || isForeign) {
    throw refused(`the archive has a member that leads out of its directory: ${JSON.stringify(name)}`);
  }
  return join(directory, ...steps);
}

async function write(parts: Parts, { name, type, mode, size }: Member, path: string): Promise<void> {
  if (type === "5") {
    // The owner can go on writing there.
    return inLocal(path, async () => {
      await mkdir(path, { recursive: true });
      await chmod(path, mode | 0o700);
    });
  }
  if (type !== "0") {
    throw refused(`the archive's ${name} is neither a file nor a directory nor a link`);
  }
  const file = await inLocal(path, async () => {
    await mkdir(dirname(path), { recursive: true });
    return open(path, "wx", 0o600);
  });
  try {
    for await (const part of parts.take(size)) {
      await inLocal(path, () => file.writeFile(part));
    }
    await inLocal(path, () => file.chmod(mode));
  } finally {
    await file.close();
  }
  await parts.read(padding(size).length);
}

// The next member; undefined at the end of the archive.
async function nextMember(parts: Parts): Promise<Member | undefined> {
  let extended: Partial<Record<string, string>> = {};
  for (;;) {
    const block = await parts.read(BLOCK);
    if (block.every((byte) => byte === 0)) {
      return undefined;
    }
    const member = memberOf(block);
    if (member.type !== "x" && member.type !== "g") {
      const size = extended.size === undefined ? member.size : Number(extended.size);
      return { ...member, name: extended.path ?? member.name, target: extended.linkpath ?? member.target, size: checkedSize(size) };
    }
    if (member.size > MAX_HEADER) {
      throw unreadable("a header is too large");
    }
    const records = await parts.read(member.size);
    await parts.read(padding(member.size).length);
    extended = member.type === "x" ? recordsOf(records) : extended;
  }
}

function memberOf(block: Buffer): Member {
  const text = (from: number, length: number): string => {
    const field = block.subarray(from, from + length);
    const end = field.indexOf(0);
    return field.subarray(0, end < 0 ? length : end).toString("utf8");
  };
  const octal = (from: number, length: number): number => {
    const digits = text(from, length).trim();
    return /^[0-7]*$/.test(digits) ? Number.parseInt(digits || "0", 8) : Number.NaN;
  };
  const sum = block.reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 32 : byte), 0);
  if (octal(148, 8) !== sum) {
    throw unreadable("a header has another sum");
  }
  const prefix = text(257, 5) === "ustar" ? text(345, 155) : "";
  const type = text(156, 1) || "0";
  const name = text(0, 100);
  const size = type === "2" || type === "5" ? 0 : checkedSize(octal(124, 12));
  return { name: prefix ? `${prefix}/${name}` : name, mode: octal(100, 8) & 0o777, size, type, target: text(157, 100) };
}

function checkedSize(size: number): number {
  if (!Number.isSafeInteger(size) || size < 0) {
    throw unreadable("a member's size isn't a number of bytes");
  }
  return size;
}

function recordsOf(data: Buffer): Partial<Record<string, string>> {
  const records: Partial<Record<string, string>> = {};
  for (let at = 0; at < data.length; ) {
    const length = Number(data.subarray(at, data.indexOf(32, at)).toString("latin1"));
    const text = data.subarray(at, at + length).toString("utf8");
    const found = /^\d+ ([^=]+)=([^]*)\n$/.exec(text);
    if (!(length > 0) || !found) {
      throw unreadable("an extended header isn't made of records");
    }
    records[found[1] as string] = found[2] as string;
    at += length;
  }
  return records;
}

// What is written in a link, by its steps below the directory; undefined for what is no link.
type TargetOf = (link: string) => string | undefined | Promise<string | undefined>;

function targetAt(directory: string, link: string): Promise<string | undefined> {
  return readlink(join(directory, link)).catch(() => undefined);
}

// Whether a link below a directory leads out of it, over whatever other links, also where nothing is.
async function leadsOut(link: string, targetOf: TargetOf): Promise<boolean> {
  const at: string[] = [];
  const left = stepsOf(link);
  let followed = 0;
  for (let step = left.shift(); step !== undefined; step = left.shift()) {
    if (step === "..") {
      if (at.pop() === undefined) {
        return true;
      }
      continue;
    }
    at.push(step);
    const target = await targetOf(at.join("/"));
    if (target === undefined) {
      continue;
    }
    if (isAbsolute(target) || target.includes("\0")) {
      return true;
    }
    if (++followed > MAX_LINKS) {
      return false;
    }
    at.pop();
    left.unshift(...stepsOf(target));
  }
  return false;
}

function stepsOf(name: string): string[] {
  return name.split(sep === "/" ? "/" : /[\\/]/).filter((step) => step !== "" && step !== ".");
}

function refused(message: string): Forbidden {
  return new Forbidden(message, { reason: "PathNotAllowed", retrySafe: true });
}

function unreadable(why: string): FileFailed {
  return new FileFailed(`the archive can't be read: ${why}`, { reason: "FileError" });
}

// The bytes of a body, so many as are wanted at a time.
class Parts {
  private readonly body: AsyncIterator<Uint8Array>;
  private rest: Buffer = Buffer.alloc(0);

  constructor(body: AsyncIterable<Uint8Array>) {
    this.body = body[Symbol.asyncIterator]();
  }

  async *take(bytes: number): AsyncGenerator<Buffer> {
    for (let left = bytes; left > 0; ) {
      if (this.rest.length === 0) {
        const next = await this.body.next();
        if (next.done) {
          throw unreadable("it ends too early");
        }
        this.rest = Buffer.from(next.value);
      }
      const part = this.rest.subarray(0, left);
      this.rest = this.rest.subarray(part.length);
      left -= part.length;
      yield part;
    }
  }

  async read(bytes: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.take(bytes)) {
      parts.push(part);
    }
    return Buffer.concat(parts);
  }

  // Reads to the end: a connection that breaks there is an error too.
  async skipAll(): Promise<void> {
    while (!(await this.body.next()).done) {}
  }

  // Breaks the connection of a body that wasn't read to its end.
  async close(): Promise<void> {
    await this.body.return?.();
  }
}
