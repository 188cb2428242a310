// LangChain tools whose commands and files are those of a toolcall.dev session, or of pods of their own.

import { tool, type StructuredToolInterface } from "@langchain/core/tools";
import { keyOf, SessionEnded, ToolcallError, Unavailable, type Command, type Result, type Session, type Toolcall } from "@toolcall/client";

/** Options of the tools. */
export interface ToolOptions {
  /**
   * Name of the conversation. With it, a model's tool call runs at most once, also when the agent crashes and goes on from
   * its saved messages: its key is made of the conversation and the id that the model gave the call. This holds while the
   * finished call exists: in a session for 300 s and the next 200 calls at most. Models reuse ids, so give each conversation
   * another name. Without it, every invocation runs.
   */
  conversation?: string;
  /** Seconds that a command may ask for at most. The policy's maximum when unset. */
  maxTimeout?: number;
}

/** What a tool runs commands in: a session, or pods of their own in the environment of that name. */
export type Target = Session | { toolcall: Toolcall; environment?: string };

/** What LangChain gives a tool's function beside its arguments, as far as it is used. */
interface Invocation {
  signal?: AbortSignal;
  toolCall?: { id?: string };
}

interface Limits {
  timeout?: number;
  key?: string;
  signal?: AbortSignal;
}

const TIMEOUT = { type: "integer", minimum: 1, description: "seconds after which it is stopped" };

/** A tool `bash` that runs command lines. */
export function bashTool(target: Target, options: ToolOptions = {}): StructuredToolInterface {
  const where = "commands" in target ? "Files stay from call to call; variables and the directory don't." : "Nothing stays for the next call.";
  return tool(
    (args: { command: string; timeout?: number }, invocation: Invocation) =>
      answer(() => run(target, args.command, limitsOf(args, invocation, options))),
    {
      name: "bash",
      description: `Runs a command line in a sandbox and returns what it printed. ${where}`,
      schema: object({ command: { type: "string", description: "the command line" }, timeout: TIMEOUT }, ["command"]),
    },
  );
}

/** A tool `run_code` that runs snippets in the languages of the environment. */
export function codeTool(target: Target, options: ToolOptions & { languages?: readonly string[] } = {}): StructuredToolInterface {
  const languages = options.languages ?? ["python"];
  return tool(
    (args: { code: string; language: string; timeout?: number }, invocation: Invocation) =>
      answer(() => run(target, { code: args.code, language: args.language }, limitsOf(args, invocation, options, "run_code"))),
    {
      name: "run_code",
      description: "Runs a program in a sandbox and returns what it printed.",
      schema: object(
        {
          code: { type: "string", description: "the program" },
          language: { type: "string", enum: [...languages], description: "its language" },
          timeout: TIMEOUT,
        },
        ["code", "language"],
      ),
    },
  );
}

const PATH = { type: "string", description: "absolute, or relative to the session's directory" };

/** Tools that read, write and search the files of a session: no process is started for that. */
export function fileTools(session: Session): StructuredToolInterface[] {
  return [readTool(session), writeTool(session), editTool(session), listTool(session), findTool(session), searchTool(session)];
}

/** All tools for a session: `bash`, `run_code` and those for files. */
export function sessionTools(session: Session, options: ToolOptions & { languages?: readonly string[] } = {}): StructuredToolInterface[] {
  return [bashTool(session, options), codeTool(session, options), ...fileTools(session)];
}

function readTool({ files }: Session): StructuredToolInterface {
  const whole = { type: "integer", minimum: 1 };
  return tool(
    (args: { path: string; offset?: number; limit?: number }, { signal }: Invocation) =>
      answer(async () => {
        const range = { offset: args.offset ?? 1, limit: args.limit ?? 2000 };
        const { text, note } = await files.readLines(args.path, { ...range, ...optional({ signal }) });
        return [text, note].filter(Boolean).join("\n");
      }),
    {
      name: "read_file",
      description: "Reads a text file: 2,000 lines unless you say otherwise.",
      schema: object({ path: PATH, offset: { ...whole, description: "the first line; that of the file is 1" }, limit: { ...whole, description: "how many lines" } }, ["path"]),
    },
  );
}

function writeTool({ files }: Session): StructuredToolInterface {
  return tool(
    (args: { path: string; content: string }, { signal }: Invocation) =>
      answer(async () => {
        const { bytes, created } = await files.write(args.path, args.content, optional({ signal }));
        return `${created ? "created" : "replaced"} ${args.path}, ${bytes} bytes`;
      }),
    {
      name: "write_file",
      description: "Writes a file whole, and makes the directories above it.",
      schema: object({ path: PATH, content: { type: "string" } }, ["path", "content"]),
    },
  );
}

function editTool({ files }: Session): StructuredToolInterface {
  return tool(
    (args: { path: string; old: string; new: string; replace_all?: boolean }, { signal }: Invocation) =>
      answer(async () => {
        const options = optional({ replaceAll: args.replace_all, signal });
        const { replaced } = await files.edit(args.path, args.old, args.new, options);
        return `replaced ${replaced} times in ${args.path}`;
      }),
    {
      name: "edit_file",
      description: "Replaces a text in a file. It must be there exactly once, unless replace_all is true.",
      schema: object(
        { path: PATH, old: { type: "string" }, new: { type: "string" }, replace_all: { type: "boolean" } },
        ["path", "old", "new"],
      ),
    },
  );
}

function listTool({ files }: Session): StructuredToolInterface {
  return tool(
    (args: { path?: string; recursive?: boolean }, { signal }: Invocation) =>
      answer(async () => {
        const entries = await files.list(args.path ?? ".", optional({ recursive: args.recursive, signal }));
        return textOf(entries.map((e) => (e.type === "Directory" ? `${e.path}/` : `${e.path}\t${e.size ?? ""}`)), entries.truncated);
      }),
    {
      name: "list_files",
      description: "Lists a directory, with the sizes of files in bytes.",
      schema: object({ path: PATH, recursive: { type: "boolean" } }, []),
    },
  );
}

function findTool({ files }: Session): StructuredToolInterface {
  return tool(
    (args: { pattern: string; path?: string }, { signal }: Invocation) =>
      answer(async () => {
        const found = await files.glob(args.pattern, optional({ path: args.path, signal }));
        return textOf(found.map((e) => e.path), found.truncated);
      }),
    {
      name: "find_files",
      description: 'Finds files by a pattern of their names, such as "**/*.ts".',
      schema: object({ pattern: { type: "string" }, path: PATH }, ["pattern"]),
    },
  );
}

function searchTool({ files }: Session): StructuredToolInterface {
  return tool(
    (args: { pattern: string; path?: string; glob?: string; literal?: boolean }, { signal }: Invocation) =>
      answer(async () => {
        const options = optional({ path: args.path, glob: args.glob, literal: args.literal, signal });
        const found = await files.grep(args.pattern, options);
        return textOf(found.map((m) => `${m.path}:${m.lineNumber}:${m.line}`), found.truncated);
      }),
    {
      name: "search_files",
      description: "Finds lines in files by a regular expression (RE2), or by a text with literal.",
      schema: object(
        { pattern: { type: "string" }, path: PATH, glob: { type: "string", description: "which files" }, literal: { type: "boolean" } },
        ["pattern"],
      ),
    },
  );
}

async function run(target: Target, command: Command, limits: Limits): Promise<string> {
  const result: Result =
    "commands" in target
      ? await target.commands.run(command, limits)
      : await target.toolcall.run(command, { ...limits, ...optional({ environment: target.environment }) });
  return result.text;
}

// The kind keeps the keys of a tool apart from those of the others.
function limitsOf(args: { timeout?: number }, invocation: Invocation, options: ToolOptions, ...kind: string[]): Limits {
  const { conversation, maxTimeout } = options;
  const id = invocation.toolCall?.id;
  if (conversation !== undefined && !id) {
    throw new Error("with a conversation, invoke the tool with a model's tool call: its id makes sure that it runs at most once");
  }
  const timeout = args.timeout === undefined ? undefined : Math.min(args.timeout, maxTimeout ?? args.timeout);
  const key = conversation === undefined ? undefined : keyOf(conversation, ...kind, id as string);
  return optional({ timeout, key, signal: invocation.signal });
}

// Gives a model what it can do something about: denials and failures too. Their text says what would work.
async function answer(work: () => Promise<string>): Promise<string> {
  try {
    return await work();
  } catch (error) {
    const isForModel = error instanceof ToolcallError && !(error instanceof Unavailable) && !(error instanceof SessionEnded);
    if (!isForModel || error.reason === "Cancelled" || error.reason === "CancelFailed") {
      throw error;
    }
    return error.result?.text || error.message;
  }
}

function textOf(lines: string[], truncated: boolean): string {
  return [...(lines.length > 0 ? lines : ["nothing found"]), ...(truncated ? ["… there is more: narrow the search"] : [])].join("\n");
}

function object(properties: Record<string, unknown>, required: string[]): { type: "object"; properties: Record<string, never>; required: string[] } {
  return { type: "object", properties: properties as Record<string, never>, required };
}

// The fields that have a value.
function optional<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
