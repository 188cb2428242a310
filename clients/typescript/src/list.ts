// Lists of calls and sessions, page by page.

import type { Api, ApiRequest } from "./api.js";
import { ApiError, invalid, publicError } from "./errors.js";
import type { CallPhase, Plural, SessionPhase, ToolCall, ToolSession } from "./objects.js";
import { checkedName, wholeNumber } from "./spec.js";

/** Which sessions, and how they are read. */
export interface SessionsQuery {
  /** Only sessions in this phase. */
  phase?: SessionPhase;
  /** How many are read at a time, from 1. Default 200. */
  page?: number;
  signal?: AbortSignal;
}

/** Which calls, and how they are read. */
export interface CallsQuery extends Omit<SessionsQuery, "phase"> {
  /** Only calls in this phase. */
  phase?: CallPhase;
  /** Only calls of the session of this name. */
  session?: string;
}

/** A call in a list. */
export interface CallInfo {
  name: string;
  phase: CallPhase;
  reason: string;
  /** Name of the session; undefined for a call with a pod of its own. */
  session: string | undefined;
  created: Date;
}

/** A session in a list. */
export interface SessionInfo {
  name: string;
  phase: SessionPhase;
  reason: string;
  /** Name of the environment that was asked for; undefined for the namespace's default. */
  environment: string | undefined;
  created: Date;
}

interface Page<T> {
  metadata: { continue?: string };
  items: T[];
}

interface Query {
  session?: string;
  phase?: string;
  page?: number;
  signal?: AbortSignal;
}

/** Reads a list page by page as its items are asked for. After a long time the rest is read as it is then. */
export function list<T extends ToolCall | ToolSession, I>(api: Api, plural: Plural, query: Query, infoOf: (object: T) => I): AsyncGenerator<I, void> {
  const { session, phase, page = 200, signal } = query;
  if (phase && !/^[A-Za-z]+$/.test(phase)) {
    throw invalid(`phase is ${JSON.stringify(phase)}: it is one word, such as "Running"`);
  }
  const fields = [...(phase ? [`status.phase=${phase}`] : []), ...(session ? [`spec.sessionRef.name=${checkedName("session", session)}`] : [])];
  const parameters = { limit: wholeNumber("page", page, 1), fieldSelector: fields.length > 0 ? fields.join(",") : undefined };
  return items();

  async function* items(): AsyncGenerator<I, void> {
    let next: string | undefined;
    do {
      const found = await read({ method: "GET", path: api.objects(plural), query: { ...parameters, continue: next }, signal });
      yield* found.items.map(infoOf);
      next = found.metadata.continue || undefined;
    } while (next);
  }

  async function read(request: ApiRequest): Promise<Page<T>> {
    try {
      return await api.repeated(() => api.json<Page<T>>(request), signal);
    } catch (error) {
      const rest = error instanceof ApiError && error.code === 410 ? error.status.metadata?.continue : undefined;
      if (rest) {
        return { metadata: { continue: rest }, items: [] };
      }
      throw publicError(error);
    }
  }
}

/** What a list says of a call. */
export function callInfo(call: ToolCall): CallInfo {
  return {
    name: call.metadata.name,
    phase: call.status?.phase ?? "Pending",
    reason: call.status?.reason ?? "",
    session: call.spec.sessionRef?.name,
    created: new Date(call.metadata.creationTimestamp ?? 0),
  };
}

/** What a list says of a session. */
export function sessionInfo(session: ToolSession): SessionInfo {
  return {
    name: session.metadata.name,
    phase: session.status?.phase ?? "Pending",
    reason: session.status?.reason ?? "",
    environment: session.spec.environmentRef?.name,
    created: new Date(session.metadata.creationTimestamp ?? 0),
  };
}
