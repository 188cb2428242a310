// Runs the tool calls of AI agents on Kubernetes, through the toolcall.dev operator.

export { Toolcall, type SingleRunOptions, type ToolcallOptions } from "./toolcall.js";
export { Session, type SessionOptions } from "./session.js";
export { Commands, type SessionRunOptions } from "./commands.js";
export { BackgroundCall, type ReadOptions } from "./background.js";
export {
  Files,
  type FileChange,
  type FileInfo,
  type FileOptions,
  type Lines,
  type Listing,
  type Match,
  type ReadFileOptions,
  type WriteFileOptions,
} from "./files.js";
export type { Transferred } from "./transfer.js";
export { Result } from "./result.js";
export type { RunOptions } from "./calls.js";
export type { OutputCallback, OutputCallbacks } from "./live.js";
export type { Output, OutputOptions, Range, SomeCall, Stream } from "./output.js";
export { keyOf, type CallOptions, type Command } from "./spec.js";
export type { CallInfo, CallsQuery, SessionInfo, SessionsQuery } from "./list.js";
export type {
  Artifact,
  CallPhase,
  DeniedHost,
  FileStatus,
  NetworkStatus,
  Redaction,
  SessionPhase,
  StreamStatus,
  ToolCall,
  ToolCallSpec,
  ToolCallStatus,
} from "./objects.js";
export {
  ApprovalNeeded,
  CallEnded,
  Cancelled,
  Conflict,
  Denied,
  FileFailed,
  Forbidden,
  InvalidArgument,
  KeyReused,
  NonZeroExit,
  NotFound,
  NotStarted,
  OutputNotKept,
  PodLost,
  SessionEnded,
  TimedOut,
  ToolcallError,
  Unauthenticated,
  Unavailable,
  type ErrorDetails,
} from "./errors.js";
