// Lists of calls and sessions, page by page.

import type { Api } from "./api.js";
import { publicError } from "./errors.js";
import type { CallPhase, Plural, SessionPhase, ToolCall, ToolSession } from "./objects.js";
import { wholeNumber } from "./spec.js";

/** Which page of a list. */
export interface PageQuery {
  /** At most so many items, from 1. Default 100. */
  limit?: number;
  /** `continue` of the page before. The first page when unset. */
  continue?: string | undefined;
  signal?: AbortSignal;
}

/** Which calls. */
export interface CallsQuery extends PageQuery {
  /** Only calls in this phase. */
  phase?: CallPhase;
  /** Only calls of the session of this name. */
  session?: string;
}

/** Which sessions. */
export type SessionsQuery = PageQuery;

/** A part of a list. */
export interface Page<T> {
  items: T[];
  /** Give it to the next query. Undefined on the last page. */
  continue: string | undefined;
}

/** A call in a list. */
export interface CallInfo {
  name: string;
  phase: CallPhase;
  reason: string;
  /** Name of the session; undefined for a call with a pod of its own. */
  session: string | undefined;
  createdAt: Date;
}

/** A session in a list. */
export interface SessionInfo {
  name: string;
  phase: SessionPhase;
  reason: string;
  /** Name of the environment that was asked for; undefined for the namespace's default. */
  environment: string | undefined;
  createdAt: Date;
}

interface ObjectList<T> {
  metadata: { continue?: string };
  items: T[];
}

/** Reads one page. A `continue` that is too old is an error of the API, 410: begin again. */
export async function list<T extends ToolCall | ToolSession, I>(
  api: Api,
  plural: Plural,
  query: CallsQuery,
  infoOf: (object: T) => I,
): Promise<Page<I>> {
  const fields = [
    ...(query.phase ? [`status.phase=${query.phase}`] : []),
    ...(query.session ? [`spec.sessionRef.name=${query.session}`] : []),
  ];
  const parameters = {
    limit: wholeNumber("limit", query.limit ?? 100, 1),
    continue: query.continue,
    fieldSelector: fields.length > 0 ? fields.join(",") : undefined,
  };
  try {
    const request = { method: "GET", path: api.objects(plural), query: parameters, signal: query.signal } as const;
    const page = await api.repeated(() => api.json<ObjectList<T>>(request), query.signal);
    return { items: page.items.map(infoOf), continue: page.metadata.continue || undefined };
  } catch (error) {
    throw publicError(error);
  }
}

/** What a list says of a call. */
export function callInfo(call: ToolCall): CallInfo {
  return {
    name: call.metadata.name,
    phase: call.status?.phase ?? "Pending",
    reason: call.status?.reason ?? "",
    session: call.spec.sessionRef?.name,
    createdAt: new Date(call.metadata.creationTimestamp ?? 0),
  };
}

/** What a list says of a session. */
export function sessionInfo(session: ToolSession): SessionInfo {
  return {
    name: session.metadata.name,
    phase: session.status?.phase ?? "Pending",
    reason: session.status?.reason ?? "",
    environment: session.spec.environmentRef?.name,
    createdAt: new Date(session.metadata.creationTimestamp ?? 0),
  };
}
