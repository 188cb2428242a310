// A background call of a session: a server or a watcher, whose output is read and whose input is written while it runs.

import { readAll, type Api } from "./api.js";
import { resultOf, type Calls } from "./calls.js";
import { setTrue } from "./create.js";
import { ApiError, ConnectionLost, OutputNotKept, publicError } from "./errors.js";
import type { Live } from "./live.js";
import { isFinished, type ToolCall } from "./objects.js";
import { follow, limitOf, readRange, type CallRef, type Output, type Range, type Stream } from "./output.js";
import { errorOfEnd, Result } from "./result.js";
import { Retries } from "./retries.js";
import { utf8Of, wholeNumber } from "./spec.js";

/** What a read of a running call's output takes. */
export interface ReadOptions extends Range {
  /** Which stream. Default `stdout`. */
  stream?: Stream;
  /** Seconds to wait until there is a byte at the offset, or the stream has ended. Default 0. */
  waitFor?: number;
  signal?: AbortSignal;
}

interface WriteOptions {
  eof: boolean;
  signal: AbortSignal | undefined;
}

const MAX_INPUT = 512 * 1024;
// How much of a stream is read at a time for its lines, and how long one request waits for more.
const LINES_BYTES = 1024 * 1024;
const LINES_SECONDS = 30;
// For how long input is sent again to a session that has no pod for it.
const RESUMING_MILLISECONDS = 10_000;

/** How a background call was started, as far as its handle knows. */
interface Started {
  live?: Live | undefined;
  /** How many bytes of standard input the call has got; undefined when others may have written to it. */
  inputOffset?: number | undefined;
  check?: boolean;
}

/** A server or a watcher that runs beside the other calls of its session until it ends, is cancelled, or the session ends. */
export class BackgroundCall {
  /** Name of the ToolCall. */
  readonly call: string;
  /** UID of the ToolCall. */
  readonly uid: string | undefined;
  // Hidden from inspection and from JSON: they lead to credentials.
  readonly #calls: Calls;
  readonly #live: Live | undefined;
  readonly #object: ToolCall;
  readonly #check: boolean;
  #writes: Promise<void> = Promise.resolve();
  #inputOffset: number | undefined;

  /** Callers get it from `commands.run` with `background: true`, and from `commands.connect`. */
  constructor(calls: Calls, object: ToolCall, started: Started = {}) {
    this.#calls = calls;
    this.#object = object;
    this.#live = started.live;
    this.#check = started.check ?? false;
    this.#inputOffset = started.inputOffset;
    this.call = object.metadata.name;
    this.uid = object.metadata.uid;
  }

  /**
   * Reads what the call has written from an offset on. The result says where to read on. A call that was denied, or couldn't start,
   * throws that.
   */
  async read(options: ReadOptions = {}): Promise<Output> {
    const { stream = "stdout", waitFor = 0, signal } = options;
    const range = { offset: wholeNumber("offset", options.offset ?? 0, 0), ...limitOf(options) };
    const end = Date.now() + waitFor * 1_000;
    for (;;) {
      const chunk = await readRange(this.api, this.ref, { stream }, range, signal);
      const left = end - Date.now();
      if (chunk.data.length > 0 || chunk.complete || left <= 0) {
        if (chunk.complete && chunk.nextOffset === 0) {
          await this.throwIfNothingRan(signal);
        }
        return chunk;
      }
      await this.moreThan(range.offset, stream, left, signal);
    }
  }

  /**
   * The lines that the call writes, from the first on, each when it is complete, without its end; to the stream's end. A part that
   * isn't kept is a line that says so. A call that was denied, or couldn't start, throws that.
   */
  async *lines(options: { stream?: Stream; signal?: AbortSignal } = {}): AsyncGenerator<string, void> {
    let offset = 0;
    let rest = Buffer.alloc(0);
    for (let isComplete = false; !isComplete; ) {
      const read = { ...options, offset, limit: LINES_BYTES, waitFor: LINES_SECONDS };
      const part = await this.read(read).catch((error: unknown) => skipTo(error, offset));
      if (typeof part === "number") {
        yield* rest.length > 0 ? [lineOf(rest)] : [];
        yield `[${part - offset} bytes were not kept]`;
        rest = Buffer.alloc(0);
        offset = part;
        continue;
      }
      rest = Buffer.concat([rest, part.data]);
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
        yield lineOf(rest.subarray(0, end));
        rest = rest.subarray(end + 1);
      }
      offset = part.nextOffset;
      isComplete = part.complete;
    }
    yield* rest.length > 0 ? [lineOf(rest)] : [];
  }

  /**
   * Writes to the standard input of a call that was given no `stdin`. Each byte arrives once, whatever breaks. With `eof` the
   * input is closed behind the text. Let one handle at a time write to a call.
   */
  async write(text: string | Uint8Array, options: { eof?: boolean; signal?: AbortSignal } = {}): Promise<void> {
    const data = typeof text === "string" ? utf8Of("the text", text) : Buffer.from(text);
    const written = this.#writes.then(() => this.writeAll(data, options));
    this.#writes = written.catch(() => {});
    return written;
  }

  /** Waits for the end of the call. Throws as `run` does. An aborted signal ends the waiting, not the call. */
  async wait(options: { signal?: AbortSignal } = {}): Promise<Result> {
    const object = await this.#calls.ended(this.#object, options.signal);
    return resultOf(object, this.#live, this.#check, options.signal);
  }

  /** Asks the call to stop: its processes get SIGTERM, and SIGKILL five seconds later. A call that has ended ignores it. */
  cancel(options: { signal?: AbortSignal } = {}): Promise<void> {
    return setTrue(this.api, { plural: "toolcalls", ...this.ref }, "cancel", options.signal);
  }

  /** Same as `cancel`. */
  kill(options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.cancel(options);
  }

  private async throwIfNothingRan(signal: AbortSignal | undefined): Promise<void> {
    const call = await this.#calls.get<ToolCall>("toolcalls", this.call, signal);
    const result = isFinished(call) ? new Result(call) : undefined;
    const error = result?.retrySafe ? errorOfEnd(result, false) : undefined;
    if (error) {
      throw error;
    }
  }

  private get api(): Api {
    return this.#calls.api;
  }

  private get ref(): CallRef {
    return { name: this.call, uid: this.uid };
  }

  // Returns when there is a byte behind the offset, when the stream is complete, or after the time.
  private async moreThan(offset: number, stream: Stream, milliseconds: number, signal?: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), milliseconds);
    const stopped = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    try {
      await follow(this.api, { ref: this.ref, stream, from: offset, deliver: () => stop.abort(), total: () => undefined, signal: stopped });
      signal?.throwIfAborted();
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  private async writeAll(data: Buffer, options: { eof?: boolean; signal?: AbortSignal }): Promise<void> {
    let at = 0;
    do {
      const part = data.subarray(at, at + MAX_INPUT);
      at += part.length;
      await this.writePart(part, { eof: options.eof === true && at >= data.length, signal: options.signal });
    } while (at < data.length);
  }

  private async writePart(part: Buffer, options: WriteOptions): Promise<void> {
    const base = (this.#inputOffset ??= await this.askInputOffset(options.signal));
    // Unknown until all of the part was taken: after an error the next write asks.
    this.#inputOffset = undefined;
    await this.sendPart(base, part, options);
    this.#inputOffset = base + part.length;
  }

  // Sends a part until all of it was taken. Once an answer was lost, the API's own count says how much of the part it took.
  private async sendPart(base: number, part: Buffer, options: WriteOptions): Promise<void> {
    const retries = new Retries(this.api.retryMilliseconds);
    let taken = 0;
    let isLost = false;
    for (;;) {
      try {
        await this.post(base + taken, part.subarray(taken), options);
        return;
      } catch (error) {
        const next = offsetOf(error);
        const isOurs = isLost || !isConflict(error);
        const hasMoved = isOurs && next !== undefined && next > base + taken && next <= base + part.length;
        taken = hasMoved ? next - base : taken;
        // A call whose input was to be closed, and that takes none any more, got the request whose answer was lost.
        const isClosed = options.eof && isLost && isConflict(error) && !isOfSession(error) && !hasMoved;
        if (isClosed || (hasMoved && taken === part.length && !options.eof)) {
          return;
        }
        isLost ||= !isConflict(error);
        if (hasMoved) {
          retries.succeeded();
        }
        if (!(hasMoved && isConflict(error)) && !(await retries.wait(error, options.signal))) {
          options.signal?.throwIfAborted();
          throw publicError(error, { call: this.call });
        }
      }
    }
  }

  // The offset of the next byte of a call that something else may have written to: a request without a body asks for it.
  private async askInputOffset(signal: AbortSignal | undefined): Promise<number> {
    try {
      return await this.api.repeated(() => this.post(0, Buffer.alloc(0), { eof: false, signal }), signal);
    } catch (error) {
      const next = offsetOf(error);
      if (next === undefined) {
        signal?.throwIfAborted();
        throw publicError(error, { call: this.call });
      }
      return next;
    }
  }

  // Sends bytes, and returns the offset of the next one. A session without a pod may be on its way back.
  private async post(offset: number, body: Buffer, options: WriteOptions): Promise<number> {
    const retries = new Retries(RESUMING_MILLISECONDS);
    for (;;) {
      try {
        return await this.postOnce(offset, body, options);
      } catch (error) {
        if (!isOfSession(error) || !(await retries.wait(new ConnectionLost("", { cause: error }), options.signal))) {
          throw error;
        }
      }
    }
  }

  private async postOnce(offset: number, body: Buffer, options: WriteOptions): Promise<number> {
    const session = this.#object.spec.sessionRef?.name ?? "";
    const answer = await this.api.send({
      method: "POST",
      path: this.api.subresource("toolsessions", session, "proxy/input"),
      query: { call: this.call, offset, ...(options.eof ? { eof: true } : {}) },
      headers: { "content-type": "application/octet-stream" },
      body,
      signal: options.signal,
    });
    await readAll(answer);
    return Number(answer.headers["toolcall-input-offset"] ?? offset + body.length);
  }
}

// Where a stream goes on behind a part that isn't kept. Throws any other error.
function skipTo(error: unknown, offset: number): number {
  const next = error instanceof OutputNotKept ? error.resumeAt : undefined;
  if (next === undefined || next <= offset) {
    throw error;
  }
  return next;
}

function lineOf(data: Buffer): string {
  return data.toString("utf8", 0, data.at(-1) === 13 ? data.length - 1 : data.length);
}

function offsetOf(error: unknown): number | undefined {
  const header = error instanceof ApiError ? error.headers["toolcall-input-offset"] : undefined;
  return header === undefined ? undefined : Number(header);
}

function isConflict(error: unknown): boolean {
  return error instanceof ApiError && error.code === 409;
}

// Whether it is the session that isn't in a state for input: not the call, which takes none once it has ended.
function isOfSession(error: unknown): boolean {
  return isConflict(error) && (error as ApiError).status.details?.kind === "toolsessions";
}
