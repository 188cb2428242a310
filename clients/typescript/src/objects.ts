// The parts of the API's objects that this library reads and writes. The reference of the operator describes every field.

/** Group of the API that calls and sessions belong to. */
export const GROUP = "toolcall.dev";

/** Version of the API. */
export const VERSION = "v1alpha1";

/** Metadata of an object, as far as this library uses it. */
export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  labels?: Record<string, string>;
}

/** A condition of an object. */
export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
}

/** What a call does to files, without a process: `spec.file`. JSON leaves undefined fields out. */
export interface FileAction {
  operation: "Read" | "Write" | "Edit" | "List" | "Glob" | "Grep" | "Stat" | "Delete" | "MakeDirectory" | "Move";
  path: string;
  offset?: number | undefined;
  limit?: number | undefined;
  unit?: "Lines" | "Bytes" | undefined;
  content?: string | undefined;
  contentBase64?: string | undefined;
  mode?: string | undefined;
  ifSHA256?: string | undefined;
  oldString?: string | undefined;
  newString?: string | undefined;
  replaceAll?: boolean | undefined;
  edits?: { oldString: string; newString?: string; replaceAll?: boolean | undefined }[] | undefined;
  pattern?: string | undefined;
  literal?: boolean | undefined;
  glob?: string | undefined;
  contextLines?: number | undefined;
  respectGitIgnore?: boolean | undefined;
  recursive?: boolean | undefined;
  maxResults?: number | undefined;
  destination?: string | undefined;
  overwrite?: boolean | undefined;
}

/** `spec` of a ToolCall. Exactly one of `structured`, `shell`, `code`, `tool` and `file` is set. */
export interface ToolCallSpec {
  structured?: { binary: string; args?: string[] };
  shell?: { command: string };
  code?: { language: string; source: string; networkAccess?: boolean };
  tool?: { name: string; arguments?: Record<string, unknown> };
  file?: FileAction;
  environmentRef?: { name: string };
  sessionRef?: { name: string; uid?: string };
  background?: boolean;
  workingDir?: string;
  env?: { name: string; value: string }[];
  stdin?: string;
  timeoutSeconds?: number;
  collect?: string[];
  network?: { hosts?: string[] };
  cancel?: boolean;
}

/** What a call wrote to one stream. */
export interface StreamStatus {
  /** How many bytes the process wrote, after values of Secrets were redacted. */
  bytes: number;
  /** Hash of all of them in hexadecimal digits; absent when not all were seen. */
  sha256?: string;
  /** Whether the text in the status isn't all of it. */
  truncated: boolean;
  /** Whether bytes that aren't UTF-8 were replaced in the text. */
  invalidUTF8: boolean;
  /** How the rest of a shortened stream fares: `Storing`, `Complete`, `Shortened` or `Lost`. */
  state?: string;
}

/** What a file action did: `status.file`. */
export interface FileStatus {
  path?: string;
  bytes?: number;
  sha256?: string;
  lines?: number;
  matches?: number;
  truncated?: boolean;
  nextOffset?: number;
  changed?: boolean;
  created?: boolean;
  replaced?: number;
  binary?: boolean;
}

/** A file that a call kept. */
export interface Artifact {
  path: string;
  bytes: number;
  sha256?: string;
  mediaType?: string;
}

/** A host that a call looked up, or tried to connect to, and wasn't allowed to. */
export interface DeniedHost {
  /** The name, or the address where it wasn't looked up by a name. */
  host: string;
  /** The port of TCP; absent for a lookup. */
  port?: number;
  /** How often. */
  count: number;
}

/** The network that a call had: `status.network`. */
export interface NetworkStatus {
  mode?: "None" | "Listed" | "Open" | "Unrestricted";
  /** What the call could reach, at most 20; absent where that is all that isn't denied. */
  allowed?: string[];
  /** At most 20, in the order of the first attempts. */
  denied?: DeniedHost[];
  /** How many attempts aren't in `denied`. */
  omittedDenied?: number;
}

/** How often a value of a Secret was replaced in what a call wrote. */
export interface Redaction {
  name: string;
  stream: "Stdout" | "Stderr" | "Message";
  count: number;
}

/** Phase of a call. The last four are terminal. */
export type CallPhase = "Pending" | "Running" | "Succeeded" | "Failed" | "Denied" | "Cancelled";

/** `status` of a ToolCall. */
export interface ToolCallStatus {
  phase?: CallPhase;
  reason?: string;
  message?: string;
  conditions?: Condition[];
  exitCode?: number;
  signal?: string;
  stdout?: string;
  stderr?: string;
  streams?: { stdout: StreamStatus; stderr: StreamStatus };
  output?: string;
  durationMilliseconds?: number;
  startTime?: string;
  completionTime?: string;
  timings?: { acceptedMilliseconds?: number; startedMilliseconds?: number; finishedMilliseconds?: number; path?: string };
  /** What the call's processes took of their node. What the kernel doesn't tell is absent. */
  usage?: { cpuMilliseconds?: number; maxRSSBytes?: number; readBytes?: number; writtenBytes?: number; peakProcesses?: number };
  retrySafe?: boolean;
  timeoutSeconds?: number;
  file?: FileStatus;
  artifacts?: Artifact[];
  network?: NetworkStatus;
  redactions?: Redaction[];
}

/** A ToolCall as the API has it. */
export interface ToolCall {
  metadata: ObjectMeta;
  spec: ToolCallSpec;
  status?: ToolCallStatus;
}

/** `spec` of a ToolSession. */
export interface ToolSessionSpec {
  environmentRef?: { name: string };
  workingDir?: string;
  env?: { name: string; value: string }[];
  workspace?: { size: string; storageClassName?: string; retain?: "Delete" | "Keep" };
  idleTimeoutSeconds?: number;
  maxLifetimeSeconds?: number;
  maxConcurrentCalls?: number;
  end?: boolean;
}

/** Phase of a session. `Ended` is final. */
export type SessionPhase = "Pending" | "Ready" | "Suspended" | "Ended";

/** A ToolSession as the API has it. */
export interface ToolSession {
  metadata: ObjectMeta;
  spec: ToolSessionSpec;
  status?: { phase?: SessionPhase; reason?: string; message?: string; conditions?: Condition[] };
}

/** Either kind of object. */
export type AnyObject = ToolCall | ToolSession;

/** The plural names under which the API serves the kinds. */
export type Plural = "toolcalls" | "toolsessions";

/** Whether the call has ended, whatever the outcome. */
export function isFinished(call: ToolCall): boolean {
  return (call.status?.conditions ?? []).some((c) => c.type === "Finished" && c.status === "True");
}
