// The errors of this library: one class for each thing that a caller may want to handle differently.

import { CLASS_NAMES } from "./reasons.js";
import type { Result } from "./result.js";

/** What is known about an error beside its message. */
export interface ErrorDetails {
  /** CamelCase reason of the call, or of the API's answer. */
  reason?: string;
  /** True when it is certain that no command started, so that trying again repeats nothing. Default false. */
  retrySafe?: boolean;
  /** Name of the call that the error is about. */
  call?: string | undefined;
  /** Status code of the API's answer. */
  code?: number;
  /** The result of a call that has ended, with the output so far. */
  result?: Result | undefined;
  /** Of OutputNotKept: the offset of the next byte that is kept. */
  resumeAt?: number | undefined;
  cause?: unknown;
}

/** Base class of every error that this library throws. */
export class ToolcallError extends Error {
  /** CamelCase reason of the call (`status.reason`), or of the API's answer. */
  readonly reason: string;
  /** True when it is certain that no command started, so that trying again repeats nothing. */
  readonly retrySafe: boolean;
  /** Name of the ToolCall that the error is about; undefined when there is none. */
  readonly call: string | undefined;
  /** Status code of the API's answer; undefined when the error isn't about one. */
  readonly code: number | undefined;
  /** The result of a call that has ended, with the output so far. */
  readonly result: Result | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.reason = details.reason ?? new.target.name;
    this.retrySafe = details.retrySafe ?? false;
    this.call = details.call;
    this.code = details.code;
    this.result = details.result;
  }
}

/** A call ended otherwise than asked for. */
export class CallEnded extends ToolcallError {
  /** What the call left, with the output so far. */
  declare readonly result: Result;
}
/** The call was refused before anything ran: by the policy, by rights, by its session or by a budget. */
export class Denied extends CallEnded {}
/** The call needs an approval that it didn't get. */
export class ApprovalNeeded extends Denied {}
/** The call's time limit ended its process. `result` has the output so far. */
export class TimedOut extends CallEnded {}
/** The call's pod is gone, and nobody knows how far its command came. */
export class PodLost extends CallEnded {}
/** The call was cancelled, by this program or by somebody else. */
export class Cancelled extends ToolcallError {}
/** With `check`: the process ended with another exit code than 0, or by a signal. */
export class NonZeroExit extends CallEnded {}
/** The environment, session, program, directory or file isn't there. */
export class NotFound extends ToolcallError {}
/** The API server doesn't accept the credentials. The message says when their token expires, where the token has that. */
export class Unauthenticated extends ToolcallError {}
/** Rights or the policy forbid it. */
export class Forbidden extends ToolcallError {}
/** The session has ended and takes no calls. */
export class SessionEnded extends ToolcallError {}
/** A file operation failed. `reason` says how, for example `FileExists` or `EditNotFound`. */
export class FileFailed extends ToolcallError {}
/** The call ended without its command, or the session isn't ready: what it needs couldn't be had. */
export class NotStarted extends ToolcallError {}
/** The key is the name of a call or session with other arguments. */
export class KeyReused extends ToolcallError {}
/** An argument isn't valid. Nothing was run. */
export class InvalidArgument extends ToolcallError {}
/** The object isn't in a state for this, for example a session that isn't ready. */
export class Conflict extends ToolcallError {}
/** A part of the output wasn't kept. */
export class OutputNotKept extends ToolcallError {
  /** Offset of the next byte that is kept; undefined where nothing is. */
  readonly resumeAt: number | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details);
    this.resumeAt = details.resumeAt;
  }
}
/** The API can't be reached, or has failed, for longer than the library tries. */
export class Unavailable extends ToolcallError {}

type ErrorClass = new (message: string, details?: ErrorDetails) => ToolcallError;

const CLASSES: Record<(typeof CLASS_NAMES)[keyof typeof CLASS_NAMES], ErrorClass> = {
  FileFailed,
  Forbidden,
  NonZeroExit,
  NotFound,
  NotStarted,
  PodLost,
  SessionEnded,
  TimedOut,
};

// The class of a denial follows from the phase, but for the first two. No call ends with the others.
const BY_REASON: Record<string, ErrorClass> = {
  ...Object.fromEntries(Object.entries(CLASS_NAMES).map(([reason, name]) => [reason, CLASSES[name]])),
  ApprovalDenied: ApprovalNeeded,
  ApprovalExpired: ApprovalNeeded,
  NotSupported: FileFailed,
  OutputNotKept,
};

/** The class for the end of a call, by phase and reason; undefined when the process ended by itself with exit code 0. */
export function classOfEnd(phase: string, reason: string): ErrorClass | undefined {
  if (phase === "Succeeded") {
    return undefined;
  }
  if (phase === "Cancelled") {
    return Cancelled;
  }
  return BY_REASON[reason] ?? (phase === "Denied" ? Denied : NotStarted);
}

const BY_CODE: Record<number, ErrorClass> = {
  400: InvalidArgument,
  401: Unauthenticated,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  410: Conflict,
  412: FileFailed,
  413: InvalidArgument,
  416: InvalidArgument,
  422: InvalidArgument,
  429: Unavailable,
  507: FileFailed,
};

/** The class for an answer of the API, by its `reason` and its status code. */
export function classOfAnswer(code: number, reason: string): ErrorClass {
  const Class = BY_REASON[reason];
  const isOfAnswers = Class !== undefined && !(Class.prototype instanceof CallEnded);
  return isOfAnswers ? Class : (BY_CODE[code] ?? (code >= 500 ? Unavailable : ToolcallError));
}

/** The class for a session that couldn't start for the reason that a call would end with. */
export function classOfStart(reason: string): ErrorClass {
  const Class = BY_REASON[reason] ?? NotStarted;
  return Class.prototype instanceof CallEnded ? NotStarted : Class;
}

/** The error for an argument that isn't valid, before anything is sent. */
export function invalid(message: string): InvalidArgument {
  return new InvalidArgument(message, { retrySafe: true });
}

/** Body of the API's answer to a request that failed: a Kubernetes Status, as far as it is used. */
export interface ApiStatus {
  message?: string;
  reason?: string;
  /** Of a list that took too long: where it goes on. */
  metadata?: { continue?: string };
  details?: { kind?: string; retryAfterSeconds?: number; causes?: { reason?: string; message?: string; field?: string }[] };
}

/** An answer of the API that isn't a success. Not exported: callers see the classes above. */
export class ApiError extends Error {
  constructor(
    readonly code: number,
    readonly status: ApiStatus,
    readonly headers: Record<string, string | string[] | undefined>,
  ) {
    super(status.message ?? `the API answered with status ${code}`);
  }

  /** Seconds after which the API wants the request to be sent again; undefined when it doesn't say. */
  get retryAfter(): number | undefined {
    const seconds = Number(this.headers["retry-after"] ?? this.status.details?.retryAfterSeconds);
    return Number.isFinite(seconds) ? seconds : undefined;
  }
}

/** A connection that couldn't be made or broke: whether the server got the request isn't known. Not exported. */
export class ConnectionLost extends Error {}

/** A connection that couldn't be made, or broke, before the server has ever answered: its address may be wrong. Not exported. */
export class Unreached extends ConnectionLost {
  constructor(
    server: string,
    /** When the request began. */
    readonly began: number,
    cause: unknown,
  ) {
    // That of several attempts, one for each address, has no message.
    const { message, code } = cause as NodeJS.ErrnoException;
    super(`the API server at ${server} can't be reached: ${message || code}`, { cause });
  }
}

/** A request that was given up before anything of it was sent. Not exported. */
export class NothingSent extends Error {}

/** Credentials that can't be had, for example of a program that fails. Not exported. */
export class NoCredentials extends NothingSent {}

/** A request of a client that was closed. Not exported. */
export class ClientClosed extends NothingSent {
  constructor() {
    super("the client was closed");
  }
}

/** The same error, with more of the call that it is about. */
export function withDetails(error: ToolcallError, more: Pick<ErrorDetails, "call" | "result">): ToolcallError {
  const Class = error.constructor as ErrorClass;
  const { reason, retrySafe, call, code, result, cause } = error;
  const resumeAt = error instanceof OutputNotKept ? error.resumeAt : undefined;
  return new Class(error.message, { reason, retrySafe, call, ...(code === undefined ? {} : { code }), resumeAt, result, cause, ...more });
}

/**
 * The public error for whatever a request threw. One of this library that names no call is copied with it; errors of other kinds
 * come back as they are. The reason of an abort is the caller's own, and may be either: throw it before. Nothing of the error says
 * that no command started: who creates a call knows, and gives `retrySafe`.
 */
export function publicError(error: unknown, details: ErrorDetails = {}): unknown {
  if (error instanceof ApiError) {
    const reason = error.status.reason || `HTTP${error.code}`;
    const Class = classOfAnswer(error.code, reason);
    return new Class(error.message, { reason, code: error.code, cause: error, ...details });
  }
  if (error instanceof NoCredentials) {
    return new InvalidArgument(error.message, { cause: error, ...details });
  }
  if (error instanceof ClientClosed) {
    return new Unavailable(error.message, { reason: "ClientClosed", cause: error, ...details });
  }
  if (error instanceof ConnectionLost || error instanceof NothingSent) {
    return new Unavailable(error.message, { cause: error, ...details });
  }
  if (error instanceof ToolcallError && error.call === undefined && details.call !== undefined) {
    return withDetails(error, { call: details.call });
  }
  return error;
}
