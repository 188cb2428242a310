// Files up and down, of any size, through the API's own path for it.

import { createHash, randomBytes, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, mkdir, mkdtemp, open, readdir, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { partsOf, readAll, type Api, type ApiRequest } from "./api.js";
import { ApiError, Cancelled, ConnectionLost, FileFailed, NotFound, publicError } from "./errors.js";
import { inLocal, localError } from "./local.js";
import { Retries } from "./retries.js";
import { archiveOf, entriesOf, unpack } from "./tar.js";

/** A file that was copied. */
export interface Transferred {
  bytes: number;
  /** Hash of the file in hexadecimal digits. Both sides have it. */
  sha256: string;
  /** Whether the file wasn't there before. */
  created?: boolean;
}

interface Body {
  bytes: number;
  sha256: string;
  open(): Uint8Array | AsyncIterable<Uint8Array>;
}

/** What transfers need calls for. */
export interface Through {
  /** Waits until the session has a pod, and resumes one that is suspended: as every call does. */
  wake(signal: AbortSignal | undefined): Promise<unknown>;
  /** The path as the session's pod has it. */
  pathOf(path: string, signal: AbortSignal | undefined): Promise<string>;
}

interface WriteCondition {
  ifSHA256?: string | undefined;
  signal?: AbortSignal | undefined;
}

// A transfer is idle while the operator sums a large file before the first byte, or syncs one after the last.
const IDLE_MILLISECONDS = 10 * 60_000;
// How often an archive that breaks off is begun again: the server breaks it off for good reasons too, and can't say so.
const ARCHIVES = 5;
// A policy can bound how much of a file one answer has. Then it is asked for in parts, the largest that it allows between these.
const MAX_PART_BYTES = 8 * 1024 * 1024;
const MIN_PART_BYTES = 64 * 1024;

/** Transfers of one session. */
export class Transfer {
  constructor(
    /** Name of the session. */
    private readonly session: string,
    private readonly api: Api,
    private readonly through: Through,
  ) {}

  /** Reads a file whole. */
  async read(path: string, signal: AbortSignal | undefined): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    await this.receive(path, (part) => parts.push(part), signal);
    return Buffer.concat(parts);
  }

  /** Copies a file of the session into a local one, which appears whole or not at all. */
  async download(path: string, local = basename(path), signal?: AbortSignal): Promise<Transferred> {
    const temporary = `${local}.${randomBytes(6).toString("hex")}.part`;
    const file = await inLocal(local, () => open(temporary, "wx"));
    try {
      const done = await this.receive(path, (part) => inLocal(local, () => file.writeFile(part)), signal);
      await inLocal(local, async () => {
        await file.sync();
        await file.close();
        await rename(temporary, local);
      });
      return done;
    } catch (error) {
      await file.close().catch(() => {});
      await rm(temporary, { force: true });
      throw error;
    }
  }

  /** Copies a local file into the session. */
  async upload(local: string, path = basename(local), condition: WriteCondition = {}): Promise<Transferred> {
    const hash = createHash("sha256");
    let bytes = 0;
    await inLocal(local, async () => {
      const found = await stat(local);
      if (!found.isFile() && !found.isDirectory()) {
        const message = `the local file ${local} is neither a file nor a directory: copy what it has to a file`;
        throw new FileFailed(message, { reason: "FileError", retrySafe: true });
      }
      for await (const part of createReadStream(local)) {
        hash.update(part as Buffer);
        bytes += (part as Buffer).length;
      }
    });
    const body = { bytes, sha256: hash.digest("hex"), open: () => exactly(local, bytes) };
    return this.put(path, body, condition);
  }

  /** Copies what is in a local directory into the session. */
  async uploadDir(local: string, path = basename(resolve(local)), signal?: AbortSignal): Promise<void> {
    const entries = await entriesOf(local);
    const headers = { "content-type": "application/octet-stream" };
    const retries = new Retries(this.api.retryMilliseconds);
    for (;;) {
      try {
        const open = (): AsyncIterable<Uint8Array> => archiveOf(entries);
        const answer = await this.send({ method: "PUT", ...(await this.archive(path, signal)), headers, body: open(), signal }, { open });
        await readAll(answer);
        return;
      } catch (error) {
        await waitAfter(error, retries, signal);
      }
    }
  }

  /** Copies a directory of the session into a local one, which appears whole or not at all. */
  async downloadDir(path: string, local = basename(path), signal?: AbortSignal): Promise<void> {
    const to = resolve(local);
    await refuseTaken(to);
    const beside = await inLocal(to, () => mkdtemp(join(dirname(to), ".toolcall-")));
    try {
      const tree = join(beside, "tree");
      await this.receiveDirectory(path, tree, signal);
      await inLocal(to, () => rename(tree, to));
    } finally {
      await rm(beside, { recursive: true, force: true });
    }
  }

  private async receiveDirectory(path: string, to: string, signal: AbortSignal | undefined): Promise<void> {
    const retries = new Retries(this.api.retryMilliseconds);
    for (let attempt = 1; ; ) {
      let hasBegun = false;
      try {
        await inLocal(to, async () => {
          await rm(to, { recursive: true, force: true });
          await mkdir(to);
        });
        const answer = await this.send({ method: "GET", ...(await this.archive(path, signal)), headers: { accept: "*/*" }, signal });
        hasBegun = true;
        retries.succeeded();
        return await unpack(partsOf<Buffer>(answer), to);
      } catch (error) {
        if (hasBegun && error instanceof ConnectionLost && attempt++ === ARCHIVES) {
          const advice = "see that each file in it can be read, isn't larger than the policy allows, and isn't written to meanwhile";
          throw new FileFailed(`the archive of ${path} broke off ${ARCHIVES} times: ${advice}`, { reason: "FileError", cause: error });
        }
        await waitAfter(error, retries, signal);
      }
    }
  }

  /** Writes data as a file. */
  write(path: string, data: Uint8Array, condition: WriteCondition): Promise<Transferred> {
    const sha256 = createHash("sha256").update(data).digest("hex");
    return this.put(path, { bytes: data.length, sha256, open: () => data }, condition);
  }

  // Receives a file, and goes on behind the last byte where a connection broke, if it is still the same file.
  private async receive(path: string, take: (part: Uint8Array) => unknown, signal?: AbortSignal): Promise<Transferred> {
    const hash = createHash("sha256");
    let bytes = 0;
    let etag: string | undefined;
    // How many bytes are asked for at once; all when undefined.
    let most: number | undefined;
    const retries = new Retries(this.api.retryMilliseconds);
    for (;;) {
      try {
        const headers: Record<string, string> = { accept: "*/*" };
        if (etag !== undefined && bytes > 0) {
          headers["if-match"] = etag;
        }
        if ("if-match" in headers || most !== undefined) {
          headers.range = `bytes=${bytes}-${most === undefined ? "" : bytes + most - 1}`;
        }
        const answer = await this.send({ method: "GET", ...(await this.target(path, signal)), headers, signal });
        etag = answer.headers.etag;
        for await (const part of partsOf<Buffer>(answer)) {
          await take(part);
          hash.update(part);
          bytes += part.length;
          retries.succeeded();
        }
        if (bytes >= sizeOf(answer.headers["content-range"])) {
          return { bytes, sha256: checkedHash(path, hash, etag) };
        }
      } catch (error) {
        if (error instanceof ApiError && error.status.reason === "FileTooLarge" && most !== MIN_PART_BYTES) {
          most = most === undefined ? MAX_PART_BYTES : Math.max(MIN_PART_BYTES, most / 2);
          continue;
        }
        if (error instanceof ApiError && error.code === 416 && etag !== undefined) {
          return { bytes, sha256: checkedHash(path, hash, etag) };
        }
        await waitAfter(error, retries, signal);
      }
    }
  }

  // Sends a file. When the answer is lost, what is there now tells whether it came through: it is sent again only if not.
  private async put(path: string, body: Body, condition: WriteCondition): Promise<Transferred> {
    const { ifSHA256, signal } = condition;
    const headers: Record<string, string> = { "content-type": "application/octet-stream", "content-length": String(body.bytes) };
    if (ifSHA256 !== undefined) {
      Object.assign(headers, ifSHA256 === "" ? { "if-none-match": "*" } : { "if-match": `"${ifSHA256}"` });
    }
    const retries = new Retries(this.api.retryMilliseconds);
    for (;;) {
      try {
        const answer = await this.send({ method: "PUT", ...(await this.target(path, signal)), headers, body: body.open(), signal }, body);
        await readAll(answer);
        const sha256 = plain(answer.headers.etag);
        if (sha256 !== undefined && sha256 !== body.sha256) {
          throw new FileFailed(`${path} changed while it was sent: send it again`, { reason: "FileChanged" });
        }
        return { bytes: body.bytes, sha256: body.sha256, created: answer.statusCode === 201 };
      } catch (error) {
        if (mayHaveArrived(error) && (await this.has(path, body.sha256, signal))) {
          return { bytes: body.bytes, sha256: body.sha256 };
        }
        await waitAfter(error, retries, signal);
      }
    }
  }

  private async has(path: string, sha256: string, signal: AbortSignal | undefined): Promise<boolean> {
    const target = await this.target(path, signal);
    try {
      const answer = await this.api.repeated(() => this.send({ method: "HEAD", ...target, signal }), signal);
      answer.resume();
      return plain(answer.headers.etag) === sha256;
    } catch (error) {
      // Who may write may be forbidden to look.
      if (error instanceof ApiError && error.code < 500) {
        return false;
      }
      throw publicError(error);
    }
  }

  // Sends a request; when the session isn't ready, once more after a call has waited for it.
  private async send(request: ApiRequest, again?: Pick<Body, "open">): ReturnType<Api["send"]> {
    const whole = { ...request, idleMilliseconds: IDLE_MILLISECONDS };
    try {
      return await this.api.send(whole);
    } catch (error) {
      if (!(error instanceof ApiError && error.code === 409 && error.status.reason === "Conflict")) {
        throw error;
      }
      await this.through.wake(request.signal);
      return this.api.send(again ? { ...whole, body: again.open() } : whole);
    }
  }

  private async archive(path: string, signal: AbortSignal | undefined): Promise<Pick<ApiRequest, "path" | "query">> {
    const target = await this.target(path, signal);
    return { ...target, query: { ...target.query, archive: "tar" } };
  }

  private async target(path: string, signal: AbortSignal | undefined): Promise<Pick<ApiRequest, "path" | "query">> {
    const query = { path: await this.through.pathOf(path, signal) };
    return { path: this.api.subresource("toolsessions", this.session, "proxy/files"), query };
  }
}

// The first bytes of a local file, so many as were announced: what is behind them would be taken for another request.
async function* exactly(local: string, bytes: number): AsyncGenerator<Buffer> {
  let left = bytes;
  if (bytes > 0) {
    try {
      for await (const part of createReadStream(local, { end: bytes - 1, highWaterMark: 256 * 1024 })) {
        left -= (part as Buffer).length;
        yield part as Buffer;
      }
    } catch (error) {
      throw localError(error, local);
    }
  }
  if (left > 0) {
    throw new FileFailed(`${local} became ${left} bytes shorter while it was sent: send it again`, { reason: "FileChanged" });
  }
}

// Whether a request without a useful answer may have been carried out: the API server answers 5xx too when it lost the operator.
function mayHaveArrived(error: unknown): boolean {
  return error instanceof ConnectionLost || (error instanceof ApiError && error.code >= 500 && error.code !== 501 && error.code !== 507);
}

async function refuseTaken(local: string): Promise<void> {
  const stats = await inLocal(local, () => lstat(local)).catch((error: unknown) => {
    if (error instanceof NotFound) {
      return undefined;
    }
    throw error;
  });
  if (stats?.isSymbolicLink() || (stats && (await inLocal(local, () => readdir(local))).length > 0)) {
    throw new FileFailed(`the local directory ${local} isn't empty: name another one`, { reason: "FileExists", retrySafe: true });
  }
}

async function waitAfter(error: unknown, retries: Retries, signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted || !(await retries.wait(error, signal))) {
    throw signal?.aborted ? new Cancelled("the transfer was given up", { cause: signal.reason }) : publicError(error);
  }
}

function checkedHash(path: string, hash: Hash, etag: string | undefined): string {
  const sha256 = hash.digest("hex");
  const wanted = plain(etag);
  if (wanted !== undefined && wanted !== sha256) {
    throw new FileFailed(`${path} changed while it was read: read it again`, { reason: "FileChanged" });
  }
  return sha256;
}

// How many bytes the whole file has of which an answer is a part; 0 when it doesn't say.
function sizeOf(contentRange: string | undefined): number {
  return Number(/\/(\d+)$/.exec(contentRange ?? "")?.[1] ?? 0);
}

function plain(etag: string | undefined): string | undefined {
  return etag?.replace(/^"|"$/g, "");
}
