// Creates objects so that a request can be repeated: the client names them, and looks at what is there when the name is taken.

import type { Api } from "./api.js";
import { ApiError, ConnectionLost, KeyReused, NothingSent, publicError, Unavailable } from "./errors.js";
import { GROUP, VERSION, type AnyObject, type Plural, type ToolCall, type ToolCallSpec, type ToolSession, type ToolSessionSpec } from "./objects.js";
import { Retries } from "./retries.js";
import { sameSpec, textsOf } from "./spec.js";
import { deleted } from "./watch.js";

// How long after the first request that may have arrived a create request is repeated. The name of a call that was created and has
// ended is taken for 300 s in a session: repeated after that, the request would run the command again.
const REPEAT_MILLISECONDS = 60_000;

/** An object to create. */
export interface NewObject {
  plural: Plural;
  name: string;
  spec: ToolCallSpec | ToolSessionSpec;
  labels?: Record<string, string> | undefined;
  annotations?: Record<string, string> | undefined;
}

/** How an object is created. */
export interface CreateOptions<T> {
  signal?: AbortSignal | undefined;
  /** The object, if somebody has seen that an attempt created it: it may have gone since. */
  seen?: () => T | undefined;
}

/**
 * Creates a call or session, and repeats the request while it isn't answered, for a minute at most after one that may have
 * arrived. When the name is taken, the object that has it is returned if its spec is the same: an earlier request made it.
 * Otherwise it throws KeyReused. `retrySafe` of an error says that no attempt can have created it.
 */
export async function create<T extends ToolCall | ToolSession>(api: Api, object: NewObject, options: CreateOptions<T> = {}): Promise<T> {
  const { signal, seen } = options;
  const kind = object.plural === "toolcalls" ? "ToolCall" : "ToolSession";
  const body = {
    apiVersion: `${GROUP}/${VERSION}`,
    kind,
    metadata: {
      name: object.name,
      ...(object.labels ? { labels: textsOf("labels", object.labels) } : {}),
      ...(object.annotations ? { annotations: textsOf("annotations", object.annotations) } : {}),
    },
    spec: object.spec,
  };
  const retries = new Retries(api.retryMilliseconds);
  // When the first attempt began that may have created the object although its answer doesn't say so.
  let uncertainSince: number | undefined;
  for (;;) {
    const there = uncertainSince !== undefined && seen?.();
    if (there) {
      return checked(object, there);
    }
    const began = Date.now();
    if (uncertainSince !== undefined && began - uncertainSince >= REPEAT_MILLISECONDS) {
      return await found<T>(api, object);
    }
    try {
      return await api.create<T>(api.objects(object.plural), body);
    } catch (error) {
      const wasUncertain = uncertainSince !== undefined;
      if (!isRefusal(error) && !wasUnsent(error)) {
        uncertainSince ??= began;
      }
      const isTaken = hasReason(error, "AlreadyExists");
      // An answer that refuses the request says nothing of attempts before it: what there is does.
      const there = isTaken || (wasUncertain && isRefusal(error)) ? await existing<T>(api, object) : undefined;
      if (there) {
        return there;
      }
      if (isTaken && wasUncertain) {
        throw deleted(object.plural, object.name);
      }
      // The object that had the name has just gone, or requests of others came in between: the same request may pass now.
      const passes = isTaken || hasReason(error, "Conflict");
      if (!(await retries.wait(passes ? new ConnectionLost("", { cause: error }) : error, signal))) {
        signal?.throwIfAborted();
        throw publicError(error, { call: callOf(object), retrySafe: uncertainSince === undefined });
      }
    }
  }
}

// Whether it is certain that this attempt created nothing.
function isRefusal(error: unknown): boolean {
  return (error instanceof ApiError && error.code < 500) || error instanceof NothingSent;
}

// Whether there was no connection that could have carried the attempt.
function wasUnsent(error: unknown): boolean {
  const { code } = (error instanceof ConnectionLost ? (error.cause ?? {}) : {}) as NodeJS.ErrnoException;
  return code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "EAI_AGAIN";
}

function hasReason(error: unknown, reason: string): boolean {
  return error instanceof ApiError && error.code === 409 && error.status.reason === reason;
}

function callOf({ plural, name }: NewObject): string | undefined {
  return plural === "toolcalls" ? name : undefined;
}

// The object whose create request isn't repeated any more.
async function found<T extends ToolCall | ToolSession>(api: Api, object: NewObject): Promise<T> {
  const there = await existing<T>(api, object);
  if (!there) {
    const what = object.plural === "toolcalls" ? "call" : "session";
    const message = `no answer to the create request for ${REPEAT_MILLISECONDS / 1_000} s, and the ${what} isn't there: whether it ran isn't known`;
    throw new Unavailable(message, { call: callOf(object) });
  }
  return there;
}

// The object that has the name; undefined when there is none. Not ended by a signal: whoever gives up then has to know whose
// object it is.
async function existing<T extends ToolCall | ToolSession>(api: Api, object: NewObject): Promise<T | undefined> {
  const path = api.objects(object.plural, object.name);
  const call = callOf(object);
  let there: T;
  try {
    there = await api.repeated(() => api.json<T>({ method: "GET", path }));
  } catch (error) {
    if (error instanceof ApiError && error.code === 404) {
      return undefined;
    }
    throw publicError(error, { call });
  }
  return checked(object, there);
}

// The object, unless it has other arguments.
function checked<T extends ToolCall | ToolSession>(object: NewObject, there: T): T {
  if (!sameSpec(object.spec, there.spec)) {
    const call = callOf(object);
    const what = call === undefined ? "session" : "call";
    throw new KeyReused(
      `the key ${object.name} is the name of a ${what} with other arguments, which isn't run again: choose another key`,
      { call, retrySafe: true },
    );
  }
  return there;
}

/** Which object is meant: with a UID no later one of the same name. */
export interface Meant {
  plural: Plural;
  name: string;
  uid?: string | undefined;
}

/** Sets one field of an object's spec to true. A missing object is fine: what was to be stopped isn't there. */
export async function setTrue(api: Api, meant: Meant, field: "cancel" | "end", signal?: AbortSignal): Promise<void> {
  const { plural, name, uid } = meant;
  const headers = { "content-type": "application/merge-patch+json" };
  const body = JSON.stringify({ ...(uid ? { metadata: { uid } } : {}), spec: { [field]: true } });
  try {
    await api.repeated(() => api.json({ method: "PATCH", path: api.objects(plural, name), headers, body, signal }), signal);
  } catch (error) {
    if (!(await isGone(api, meant, error, signal))) {
      signal?.throwIfAborted();
      throw publicError(error, plural === "toolcalls" ? { call: name } : {});
    }
  }
}

// Whether a patch was refused because the object isn't there any more. A UID that differs is a conflict, or an invalid change.
async function isGone(api: Api, { plural, name, uid }: Meant, error: unknown, signal?: AbortSignal): Promise<boolean> {
  if (!(error instanceof ApiError) || error.code === 404) {
    return error instanceof ApiError;
  }
  if (!uid || (error.code !== 409 && error.code !== 422)) {
    return false;
  }
  const request = { method: "GET", path: api.objects(plural, name), signal } as const;
  return api.repeated(() => api.json<AnyObject>(request), signal).then(
    (there) => there.metadata.uid !== uid,
    (gone: unknown) => gone instanceof ApiError && gone.code === 404,
  );
}
