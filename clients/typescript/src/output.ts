// Reads what calls write, from where it is kept: by range, whole, and while it is written.

import type { IncomingMessage } from "node:http";
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { lost, partsOf, readAll, type Api, type Query } from "./api.js";
import { ApiError, ConnectionLost, OutputNotKept, publicError, ToolcallError } from "./errors.js";
import { Retries } from "./retries.js";
import { wholeNumber } from "./spec.js";

/** One of the two streams of a process. */
export type Stream = "stdout" | "stderr";

/** The call whose output is meant. */
export interface CallRef {
  name: string;
  uid: string | undefined;
}

/** What is read: a stream, or a file that the call kept. */
export type Source = { stream: Stream } | { artifact: string };

/** A part of a stream. */
export interface Output {
  /** The bytes as the process wrote them, after values of Secrets were redacted. */
  data: Uint8Array;
  /** The bytes as text; those that aren't UTF-8, and characters that the part cuts, are U+FFFD. */
  text: string;
  /** Offset of the first byte in the stream. */
  offset: number;
  /** Offset of the byte after the last. Read on from there. */
  nextOffset: number;
  /** Whether the stream has ended and this part reaches its end. */
  complete: boolean;
}

/** Where to read. */
export interface Range {
  /** First byte, from 0. Default 0. */
  offset?: number;
  /** At most so many bytes, from 1. Everything when unset. */
  limit?: number;
}

/** A call: its result, a background call, or its name. */
export type SomeCall = string | { readonly call: string; readonly uid: string | undefined };

/** What is read of a call's output. */
export interface OutputOptions extends Range {
  /** Which stream. Default `stdout`. */
  stream?: Stream;
  signal?: AbortSignal;
}

// A follow has no byte for as long as the command writes none. A peer that is gone is noticed by TCP.
const FOLLOW_IDLE_MILLISECONDS = 35 * 60_000;

interface Answer {
  body: IncomingMessage;
  bytes: number;
  complete: boolean;
  sha256: string | undefined;
}

async function open(api: Api, ref: CallRef, source: Source, query: Query, signal?: AbortSignal): Promise<Answer> {
  const body = await api.send({
    method: "GET",
    path: api.subresource("toolcalls", ref.name, "log"),
    query: { ...source, uid: ref.uid, ...query },
    headers: { accept: "*/*" },
    signal,
    ...(query.follow ? { idleMilliseconds: FOLLOW_IDLE_MILLISECONDS } : {}),
  });
  const header = (name: string): string | undefined => body.headers[name] as string | undefined;
  const begins = header("toolcall-offset") ?? String(query.offset);
  if (begins !== String(query.offset)) {
    body.destroy();
    const message = `asked for offset ${String(query.offset)}, the answer begins at ${begins}`;
    throw new ToolcallError(message, { reason: "UnexpectedAnswer", call: ref.name });
  }
  return {
    body,
    bytes: Number(header("toolcall-bytes") ?? 0),
    complete: header("toolcall-complete") === "true",
    sha256: header("toolcall-sha256"),
  };
}

/** Reads what there is of a stream from an offset on, without waiting for more. */
export async function readRange(api: Api, ref: CallRef, source: Source, range: Range, signal?: AbortSignal): Promise<Output> {
  const offset = range.offset ?? 0;
  try {
    return await api.repeated(async () => {
      const answer = await open(api, ref, source, { offset, limit: range.limit }, signal);
      const data = await readAll(answer.body);
      return chunk(data, offset, answer.complete && offset + data.length >= answer.bytes);
    }, signal);
  } catch (error) {
    signal?.throwIfAborted();
    throw outputError(error, ref);
  }
}

// Reads a complete stream or a kept file whole, goes on where a connection broke, and compares the hash.
async function readWhole(api: Api, ref: CallRef, source: Source, range: Range, signal?: AbortSignal): Promise<Buffer> {
  const first = range.offset ?? 0;
  const parts: Buffer[] = [];
  let offset = first;
  const end = range.limit === undefined ? Number.POSITIVE_INFINITY : first + range.limit;
  let sha256: string | undefined;
  const retries = new Retries(api.retryMilliseconds);
  for (let isWhole = false; !isWhole && offset < end; ) {
    const rest = end === Number.POSITIVE_INFINITY ? undefined : end - offset;
    const from = offset;
    try {
      const answer = await open(api, ref, source, { offset, limit: rest }, signal);
      sha256 = answer.sha256;
      for await (const part of partsOf<Buffer>(answer.body)) {
        parts.push(part);
        offset += part.length;
        retries.succeeded();
      }
      isWhole = offset >= Math.min(answer.bytes, end);
      if (!isWhole && offset === from) {
        throw new ConnectionLost("the answer has nothing in it");
      }
    } catch (error) {
      if (!(await retries.wait(error, signal))) {
        signal?.throwIfAborted();
        throw outputError(error, ref);
      }
    }
  }
  const data = Buffer.concat(parts);
  if (sha256 !== undefined && range.offset === undefined && range.limit === undefined && sha256 !== sha256Of(data)) {
    const message = `what was read of ${ref.name} hasn't the SHA-256 ${sha256} of the stream`;
    throw new ToolcallError(message, { reason: "UnexpectedAnswer", call: ref.name });
  }
  return data;
}

/** Reads all that is kept of a stream of a call, or a range of it. */
export async function readOutput(api: Api, call: SomeCall, options: OutputOptions): Promise<Buffer> {
  const range = { ...offsetOf(options), ...limitOf(options) };
  return readWhole(api, refOf(call), { stream: options.stream ?? "stdout" }, range, options.signal);
}

function offsetOf(range: Range): Range {
  return range.offset === undefined ? {} : { offset: wholeNumber("offset", range.offset, 0) };
}

/** The limit of a range, if it has one. Throws InvalidArgument. */
export function limitOf(range: Range): Range {
  return range.limit === undefined ? {} : { limit: wholeNumber("limit", range.limit, 1) };
}

/** Reads a file that a call kept. */
export function readArtifact(api: Api, call: SomeCall, path: string, signal: AbortSignal | undefined): Promise<Buffer> {
  return readWhole(api, refOf(call), { artifact: path }, {}, signal);
}

function refOf(call: SomeCall): CallRef {
  return typeof call === "string" ? { name: call, uid: undefined } : { name: call.call, uid: call.uid };
}

/** What a follow is about. */
export interface Follow {
  ref: CallRef;
  stream: Stream;
  /** Takes the bytes that begin at an offset, in their order, each once. It is waited for. */
  deliver(data: Uint8Array, offset: number): unknown;
  /** How many bytes the stream has, as soon as that is known. */
  total(): number | undefined;
  signal: AbortSignal;
  /** Offset of the first byte that is wanted. Default 0. */
  from?: number;
}

/**
 * Follows a stream from an offset on until it is complete, over as many connections as that takes. It counts the bytes, so that
 * none is lost or doubled. Resolves to the offset that was reached: less than the stream's bytes when it was aborted.
 */
export async function follow(api: Api, what: Follow): Promise<number> {
  let offset = what.from ?? 0;
  let empty = 0;
  const retries = new Retries(api.retryMilliseconds);
  const isComplete = (): boolean => offset >= (what.total() ?? Number.POSITIVE_INFINITY);
  while (!what.signal.aborted && !isComplete()) {
    try {
      const answer = await open(api, what.ref, { stream: what.stream }, { offset, follow: true }, what.signal);
      retries.succeeded();
      const from = offset;
      for await (const part of untilLost(answer.body, what.signal)) {
        const at = offset;
        offset += part.length;
        await what.deliver(part, at);
        if (isComplete()) {
          answer.body.destroy();
          return offset;
        }
      }
      if (answer.complete && offset >= answer.bytes) {
        return offset;
      }
      empty = offset > from ? 0 : empty + 1;
      await sleep(Math.min(10 * 2 ** empty, 1_000), undefined, { signal: what.signal });
    } catch (error) {
      if (what.signal.aborted) {
        return offset;
      }
      offset = await afterError(what, error, offset, retries);
    }
  }
  return offset;
}

// Waits before a follow goes on, and returns from where. Throws what waiting doesn't help with.
async function afterError(what: Follow, error: unknown, offset: number, retries: Retries): Promise<number> {
  const skip = error instanceof ApiError && error.code === 410 ? nextKept(error) : undefined;
  if (skip !== undefined && skip > offset) {
    return skip;
  }
  const wait = retries.next(error);
  if (wait === undefined) {
    throw outputError(error, what.ref);
  }
  await sleep(wait, undefined, { signal: what.signal }).catch(() => {});
  return offset;
}

/** The offset from which a stream goes on behind a part that wasn't kept; undefined when the answer doesn't say. */
export function nextKept(error: ApiError): number | undefined {
  for (const cause of error.status.details?.causes ?? []) {
    if (cause.reason === "NextOffset" && /^\d+$/.test(cause.message ?? "")) {
      return Number(cause.message);
    }
  }
  return undefined;
}

// The parts of a body until it ends, or its connection breaks: who counts the bytes can go on.
async function* untilLost(body: IncomingMessage, signal: AbortSignal): AsyncGenerator<Buffer> {
  try {
    yield* body as AsyncIterable<Buffer>;
  } catch (error) {
    if (!signal.aborted && lost(error) === error) {
      throw error;
    }
  }
}

function chunk(data: Buffer, offset: number, complete: boolean): Output {
  return { data, text: data.toString("utf8"), offset, nextOffset: offset + data.length, complete };
}

function outputError(error: unknown, ref: CallRef): unknown {
  if (error instanceof ApiError && error.code === 410) {
    const next = nextKept(error);
    const rest = next === undefined ? "" : `: read on from offset ${next}`;
    return new OutputNotKept(error.message + rest, { reason: "OutputNotKept", call: ref.name, code: 410, cause: error, resumeAt: next });
  }
  return publicError(error, { call: ref.name });
}

function sha256Of(data: Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}
