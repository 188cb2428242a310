// Watches of objects. A watch may end at any moment and says nothing by that: it is started again where it was.

import { setTimeout as sleep } from "node:timers/promises";
import type { IncomingMessage } from "node:http";
import { lost, parsed, type Api, type Query } from "./api.js";
import { ApiError, NotFound, publicError } from "./errors.js";
import type { AnyObject, Plural } from "./objects.js";
import { Retries } from "./retries.js";

interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T;
}

interface List<T> {
  metadata: { resourceVersion?: string };
  items: T[];
}

/** Milliseconds between the end of a watch and the next one. */
export const PAUSE_MILLISECONDS = 100;

const SERVER_SECONDS = 300;
// The API server sends a bookmark about once a minute: a watch without a byte for longer is dead.
const IDLE_MILLISECONDS = 150_000;

/** Opens a watch. Its body has one JSON object a line. */
export function openWatch(api: Api, plural: Plural, query: Query, signal: AbortSignal): Promise<IncomingMessage> {
  return api.send({
    method: "GET",
    path: api.objects(plural),
    query: { watch: true, allowWatchBookmarks: true, timeoutSeconds: SERVER_SECONDS, ...query },
    signal,
    idleMilliseconds: IDLE_MILLISECONDS,
  });
}

/** The events of an open watch until it ends. Throws ApiError for an event that says so, and ConnectionLost. */
export async function* eventsOf<T extends AnyObject>(body: IncomingMessage): AsyncGenerator<WatchEvent<T>> {
  for await (const line of linesOf(body)) {
    const event = parsed<WatchEvent<T>>(line);
    if (event.type === "ERROR") {
      const status = event.object as { code?: number; message?: string };
      throw new ApiError(status.code ?? 500, status, {});
    }
    yield event;
  }
}

/**
 * Watches one object until `done` says so, and returns it then. A missing object is NotFound: nothing would ever come.
 * It goes on while the API can't be reached, for the API's `retryMilliseconds` at a time.
 */
export async function watchOne<T extends AnyObject>(
  api: Api,
  plural: Plural,
  meant: { name: string; uid?: string | undefined },
  done: (object: T) => boolean,
  signal?: AbortSignal,
): Promise<T> {
  const retries = new Retries(api.retryMilliseconds);
  for (;;) {
    try {
      const query = { fieldSelector: `metadata.name=${meant.name}` };
      const list = await api.json<List<T>>({ method: "GET", path: api.objects(plural), query, signal });
      const object = list.items[0];
      if (!object) {
        throw deleted(plural, meant.name);
      }
      mustBe(meant, plural, object);
      retries.succeeded();
      if (done(object)) {
        return object;
      }
      // The object's own version may be older than what the API server can watch from.
      const from = { ...query, resourceVersion: list.metadata.resourceVersion };
      const ended = await watchFrom(api, plural, from, done, signal);
      if (ended) {
        return ended;
      }
      await sleep(PAUSE_MILLISECONDS);
    } catch (error) {
      signal?.throwIfAborted();
      if (!(await waitAfter(error, retries, signal))) {
        signal?.throwIfAborted();
        throw publicError(error, { call: plural === "toolcalls" ? meant.name : undefined });
      }
    }
  }
}

/** Waits before the next watch. False when there is no use in another one, or the signal is aborted. */
export async function waitAfter(error: unknown, retries: Retries, signal?: AbortSignal): Promise<boolean> {
  if (error instanceof ApiError && error.code === 410) {
    await sleep(PAUSE_MILLISECONDS);
    return !signal?.aborted;
  }
  return retries.wait(error, signal);
}

async function watchFrom<T extends AnyObject>(
  api: Api,
  plural: Plural,
  from: Query & { fieldSelector: string },
  done: (object: T) => boolean,
  signal: AbortSignal | undefined,
): Promise<T | undefined> {
  const stop = new AbortController();
  const body = await openWatch(api, plural, from, signal ? AbortSignal.any([signal, stop.signal]) : stop.signal);
  try {
    for await (const event of eventsOf<T>(body)) {
      if (event.type === "DELETED") {
        throw deleted(plural, event.object.metadata.name);
      }
      if (event.type !== "BOOKMARK" && done(event.object)) {
        return event.object;
      }
    }
  } finally {
    stop.abort();
    body.destroy();
  }
  return undefined;
}

/** Throws NotFound unless the object is the one that is meant, and not another one that has its name now. */
export function mustBe(meant: { name: string; uid?: string | undefined }, plural: Plural, object: AnyObject): void {
  if (meant.uid !== undefined && object.metadata.uid !== meant.uid) {
    throw deleted(plural, meant.name);
  }
}

/** The error for an object that went while somebody waited for it. */
export function deleted(plural: Plural, name: string): NotFound {
  const kind = plural === "toolcalls" ? "call" : "session";
  return new NotFound(`the ${kind} ${name} was deleted: what came of it isn't known any more`, {
    reason: "Deleted",
    call: kind === "call" ? name : undefined,
    // A command that waits for a session hasn't started.
    retrySafe: kind === "session",
  });
}

async function* linesOf(body: IncomingMessage): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      let from = 0;
      for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
        parts.push(chunk.subarray(from, at));
        yield Buffer.concat(parts).toString("utf8");
        parts = [];
        from = at + 1;
      }
      parts.push(chunk.subarray(from));
    }
  } catch (error) {
    throw lost(error);
  }
}
