// Turns the arguments of a caller into the spec of a call, and checks them before anything is sent. Pure functions.

import { createHash, randomBytes } from "node:crypto";
import { posix } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { invalid } from "./errors.js";
import type { FileAction, ToolCallSpec, ToolSessionSpec } from "./objects.js";

/**
 * What to run: a command line for the environment's shell; a program with arguments, without a shell; a snippet of code;
 * or a model's tool call as it was emitted.
 */
export type Command =
  | string
  | { program: string; args?: readonly string[] }
  | { code: string; language: string; networkAccess?: boolean }
  | { tool: string; arguments?: Record<string, unknown> };

/** Options of one call that say how its process runs. */
export interface CallOptions {
  /** Seconds after which the process is stopped, a whole number from 1. The policy's default when unset; its maximum holds. */
  timeout?: number;
  /** Variables of the process, over those of the session and the environment. */
  env?: Record<string, string>;
  /** Directory to start in. A relative one counts from the session's `cwd`, or else from the image's working directory. */
  cwd?: string;
  /** Standard input; then it is closed. Empty when unset, but open for a background call of a session. */
  stdin?: string;
  /** Globs of files to keep after the end. Read them with `commands.artifact`. */
  collect?: readonly string[];
  /**
   * Hosts that the call may reach, each covered by what the policy's network allows: names, `*.` and a name, addresses or CIDRs,
   * without ports. All that the policy allows when unset.
   */
  networkHosts?: readonly string[];
  /** Labels of the ToolCall, so that kubectl finds it. Not among the arguments of a key. */
  labels?: Record<string, string>;
  /** Annotations of the ToolCall. Not among the arguments of a key. */
  annotations?: Record<string, string>;
  /**
   * Makes the call idempotent: the key becomes the object's name. A call with a given key runs at most once; asking again
   * with the same arguments gives its result, and with other arguments throws `KeyReused`. That holds while the call exists: a
   * finished call of a session stays for 300 s, and for the next 200 calls at most. Afterwards the command runs again.
   */
  key?: string;
}

/** Where a call runs. */
export interface Place {
  environment?: string | undefined;
  session?: { name: string; uid: string } | undefined;
  /** The session's own directory, to which `cwd` of a call is relative. */
  cwd?: string | undefined;
}

const NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const MAX_NAME = 253;
const MAX_SECONDS = 2 ** 31 - 1;

/** The spec of a call that runs a command. Throws InvalidArgument. */
export function commandSpec(command: Command, options: CallOptions, place: Place): ToolCallSpec {
  const spec: ToolCallSpec = { ...actionOf(command), ...placeOf(place, options.cwd) };
  if (options.timeout !== undefined) {
    spec.timeoutSeconds = wholeSeconds("timeout", options.timeout);
  }
  if (options.env !== undefined && Object.keys(options.env).length > 0) {
    spec.env = envOf(options.env);
  }
  if (options.stdin !== undefined && text("stdin", options.stdin) !== "") {
    spec.stdin = options.stdin;
  }
  if (options.collect !== undefined && options.collect.length > 0) {
    spec.collect = textList("collect", options.collect);
  }
  if (options.networkHosts !== undefined) {
    spec.network = { hosts: hostsOf(options.networkHosts) };
  }
  return spec;
}

/** The spec of a call for a file action. */
export function fileSpec(file: FileAction, place: Place): ToolCallSpec {
  if (text("path", file.path) === "") {
    throw invalid('path is empty: give a path, or "." for the session\'s directory');
  }
  return { file, ...placeOf(place, undefined) };
}

/** The name for a call or session: its key, or a new one that begins with `prefix`. Throws InvalidArgument. */
export function nameFor(key: string | undefined, prefix: string): string {
  if (key === undefined) {
    return `${prefix}-${randomBytes(10).toString("hex")}`;
  }
  return checkedName("key", key);
}

/** A name that goes into a path or a selector, such as that of a "call", unless no object can have it. Throws InvalidArgument. */
export function checkedName(what: string, name: string): string {
  if (typeof name !== "string" || name.length > MAX_NAME || !NAME.test(name)) {
    throw invalid(
      `the ${what} ${JSON.stringify(name)} can't be an object's name: use lower-case letters, digits, "-" and ".", ` +
        `at most ${MAX_NAME} characters, with a letter or digit at both ends`,
    );
  }
  return name;
}

/** A valid key made of any texts, such as a conversation's and a model's tool call's id: the same texts, the same key. */
export function keyOf(...parts: string[]): string {
  if (parts.length === 0) {
    throw invalid("keyOf needs at least one text, such as the id of a model's tool call");
  }
  // The length before each text keeps ("ab", "c") and ("a", "bc") apart.
  const whole = parts.map((part) => `${[...part].length}:${part}`).join("");
  return `key-${createHash("sha256").update(utf8Of("a text of the key", whole)).digest("hex").slice(0, 40)}`;
}

/** The bytes of a text. Throws InvalidArgument for half of a surrogate pair, which would become another character. */
export function utf8Of(what: string, text: string): Buffer {
  if (/\p{Surrogate}/u.test(text)) {
    throw invalid(`${what} has half of a surrogate pair, which UTF-8 doesn't have: leave it out`);
  }
  return Buffer.from(text, "utf8");
}

/** Joins a directory of a session and a path in it, as a POSIX path. Undefined when neither is given. */
export function joinPath(cwd: string | undefined, path: string | undefined): string | undefined {
  if (path === undefined || path === "") {
    return cwd;
  }
  return cwd === undefined || posix.isAbsolute(path) || isInHome(path) ? path : posix.join(cwd, path);
}

/** Whether a path is in the home directory of the session's processes. */
export function isInHome(path: string): boolean {
  return path === "~" || path.startsWith("~/");
}

/** Whether an object that is there was created with the spec that was sent. What the API server adds doesn't count. */
export function sameSpec(sent: ToolCallSpec | ToolSessionSpec, there: ToolCallSpec | ToolSessionSpec): boolean {
  const stored = asStored(sent);
  return covers(stored, there) && covers(there, stored);
}

// A spec as the API server keeps it: as JSON has it, and with U+FFFD for half of a surrogate pair, which JSON.stringify escapes.
function asStored(spec: object): unknown {
  return JSON.parse(JSON.stringify(spec).replace(/\\(?:u(d[89a-f][0-9a-f]{2})|[^])/g, (escape, half) => (half ? "\ufffd" : escape)));
}

/** A positive whole number of seconds. Throws InvalidArgument. */
export function wholeSeconds(name: string, value: number, least = 1): number {
  if (!Number.isInteger(value) || value < least || value > MAX_SECONDS) {
    throw invalid(`${name} is ${String(value)}: give a whole number of seconds, at least ${least}`);
  }
  return value;
}

/** A number of bytes, lines or results. Throws InvalidArgument. */
export function wholeNumber(name: string, value: number, least: number): number {
  if (!Number.isSafeInteger(value) || value < least) {
    throw invalid(`${name} is ${String(value)}: give a whole number, at least ${least}`);
  }
  return value;
}

/** The list that the API takes for variables, sorted, so that the same variables make the same spec. Throws InvalidArgument. */
export function envOf(env: Record<string, string>): { name: string; value: string }[] {
  const sorted = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw invalid(`${JSON.stringify(name)} isn't a variable's name: use letters, digits and "_", not a digit first`);
    }
    return { name, value: text(`env.${name}`, value) };
  });
}

/** Labels or annotations. Throws InvalidArgument. */
export function textsOf(field: string, texts: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(texts).map(([name, value]) => [name, text(`${field}.${name}`, value)]));
}

function actionOf(command: Command): ToolCallSpec {
  if (typeof command === "string") {
    return { shell: { command: text("command", command) } };
  }
  if (typeof command === "object" && command !== null) {
    const given = ["program", "code", "tool"].filter((name) => name in command);
    if (given.length > 1) {
      throw invalid(`give exactly one of program, code and tool: ${given.join(" and ")} are there`);
    }
    if ("program" in command) {
      const args = textList("args", command.args ?? []);
      return { structured: { binary: text("program", command.program), ...(args.length > 0 ? { args } : {}) } };
    }
    if ("code" in command) {
      const network = command.networkAccess === undefined ? {} : { networkAccess: command.networkAccess };
      return { code: { language: text("language", command.language), source: text("code", command.code), ...network } };
    }
    if ("tool" in command) {
      return { tool: { name: text("tool", command.tool), arguments: command.arguments ?? {} } };
    }
  }
  throw invalid("the command is neither a command line nor an object with program, code or tool");
}

function placeOf(place: Place, cwd: string | undefined): ToolCallSpec {
  const workingDir = joinPath(place.cwd, cwd === undefined ? undefined : text("cwd", cwd));
  return {
    ...(place.session ? { sessionRef: place.session } : {}),
    ...(place.environment ? { environmentRef: { name: place.environment } } : {}),
    ...(workingDir === undefined ? {} : { workingDir }),
  };
}

function text(name: string, value: unknown): string {
  if (typeof value !== "string") {
    throw invalid(`${name} is of type ${typeof value}: give a string`);
  }
  if (name !== "stdin" && value.includes("\0")) {
    throw invalid(`${name} has a NUL character, which no process can be given`);
  }
  return value;
}

function textList(name: string, values: readonly string[]): string[] {
  if (!Array.isArray(values)) {
    throw invalid(`${name} is of type ${typeof values}: give a list of strings`);
  }
  return values.map((value) => text(name, value));
}

// An empty list would narrow nothing, which nobody means who gives one.
function hostsOf(hosts: readonly string[]): string[] {
  if (!Array.isArray(hosts) || hosts.length === 0 || hosts.includes("")) {
    throw invalid(
      `networkHosts is ${JSON.stringify(hosts)}: give a list of hosts, such as ["packages.example.com"], or leave it out for all that the policy allows`,
    );
  }
  return textList("networkHosts", hosts);
}

// Fields that admission and later requests set, and the values that the API server sets where a field is absent.
const NOT_SENT = new Set(["requestedBy", "cancel", "end", "suspend"]);
const DEFAULTS: Record<string, unknown> = {
  idleTimeoutSeconds: 900,
  maxLifetimeSeconds: 28800,
  maxConcurrentCalls: 1,
  maxCalls: 10000,
  ttlSecondsAfterEnded: 3600,
  retain: "Delete",
  value: "",
};

function covers(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || a === null || typeof b !== "object" || b === null) {
    return a === b;
  }
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, i) => covers(item, b[i]));
  }
  return Object.entries(a).every(([key, value]) => {
    const other = (b as Record<string, unknown>)[key];
    if (key === "arguments") {
      return isDeepStrictEqual(value, other);
    }
    return NOT_SENT.has(key) || value === undefined || (other === undefined ? value === DEFAULTS[key] : covers(value, other));
  });
}
