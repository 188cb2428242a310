// A ComputeSDK provider: its sandboxes are sessions of the toolcall.dev operator.

import {
  defineProvider,
  TIMEOUT_EXIT_CODE,
  type CommandResult,
  type CreateSandboxOptions,
  type FileEntry,
  type RunCommandOptions,
  type SandboxInfo,
} from "@computesdk/provider";
import {
  Denied,
  InvalidArgument,
  NonZeroExit,
  NotFound,
  TimedOut,
  type CallEnded,
  type Result,
  type Session,
  type SessionOptions,
  type SessionRunOptions,
  type Toolcall,
} from "@toolcall/client";

/** What the provider needs. */
export interface ToolcallConfig {
  /** The namespace and the credentials. */
  client: Toolcall;
  /** Name of the ExecutionEnvironment of sandboxes without a `templateId`. The namespace's default when unset. */
  environment?: string;
}

/** What a shell says of a program that it may not run. */
const DENIED_EXIT_CODE = 126;

/**
 * Makes a provider, for `compute.setConfig({ provider: toolcall({ client }) })`.
 *
 * A sandbox is a session; `getInstance()` returns it. A command that the policy refuses has exit code 126 and the message on standard
 * error, one over its time limit 124. One whose exit code nobody knows throws NonZeroExit.
 */
export const toolcall = defineProvider<Session, ToolcallConfig>({
  name: "toolcall",
  methods: {
    sandbox: {
      create,
      getById,
      list,
      destroy,
      runCommand,
      streamCommand: runCommand,
      getInfo,
      getUrl,
      filesystem: {
        readFile: (session, path) => session.files.read(path),
        writeFile: async (session, path, content) => void (await session.files.write(path, content)),
        mkdir: async (session, path) => void (await session.files.mkdir(path)),
        exists: (session, path) => session.files.exists(path),
        readdir,
        remove,
      },
    },
  },
});

async function create({ client, environment }: ToolcallConfig, options: CreateSandboxOptions = {}): Promise<Named> {
  return named(await client.session(options.templateId ?? environment, sessionOptions(options)));
}

async function getById({ client }: ToolcallConfig, sandboxId: string): Promise<Named | null> {
  try {
    const session = await client.connect(sandboxId);
    return (await session.phase()) === "Ended" ? null : named(session);
  } catch (error) {
    return absentId(error, null);
  }
}

/** All sessions of the namespace that haven't ended, whoever started them. */
async function list({ client }: ToolcallConfig): Promise<Named[]> {
  const found: Named[] = [];
  for await (const { name, phase } of client.sessions()) {
    if (phase === "Ended") {
      continue;
    }
    try {
      found.push(named(await client.connect(name)));
    } catch (error) {
      absent(error, undefined);
    }
  }
  return found;
}

async function destroy({ client }: ToolcallConfig, sandboxId: string): Promise<void> {
  try {
    await (await client.connect(sandboxId)).end();
  } catch (error) {
    absentId(error, undefined);
  }
}

async function runCommand(session: Session, command: string, options: RunCommandOptions = {}): Promise<CommandResult> {
  if (options.background) {
    await session.commands.run(command, { ...runOptions(options), background: true });
    return { stdout: "", stderr: "", exitCode: 0, durationMs: 0 };
  }
  try {
    return resultOf(await session.commands.run(command, runOptions(options)));
  } catch (error) {
    if (error instanceof Denied || error instanceof TimedOut) {
      return failureOf(error, error instanceof Denied ? DENIED_EXIT_CODE : TIMEOUT_EXIT_CODE);
    }
    throw error;
  }
}

async function getInfo(session: Session): Promise<SandboxInfo> {
  const { name: id, created, expires } = session;
  const phase = await session.phase();
  const status = phase === "Ended" || phase === "Suspended" ? "stopped" : "running";
  return { id, provider: "toolcall", status, createdAt: created, timeout: expires.getTime() - created.getTime() };
}

async function getUrl(): Promise<string> {
  throw invalid("nothing outside a session connects to its servers: use a command in the session, such as curl");
}

async function readdir(session: Session, path: string): Promise<FileEntry[]> {
  const entries = await session.files.list(path);
  if (entries.truncated) {
    throw invalid(`${path} has more than the ${entries.length} entries that one call lists: use a command`);
  }
  return entries.map(({ path: name, type, size, modTime }) => ({
    name,
    type: type === "Directory" ? "directory" : "file",
    ...(size === undefined ? {} : { size }),
    ...(modTime === undefined ? {} : { modified: new Date(modTime) }),
  }));
}

/** As rm -rf: what isn't there is no error. */
async function remove(session: Session, path: string): Promise<void> {
  try {
    await session.files.delete(path, { recursive: true });
  } catch (error) {
    absent(error, undefined);
  }
}

interface Named {
  sandbox: Session;
  sandboxId: string;
}

function named(session: Session): Named {
  return { sandbox: session, sandboxId: session.name };
}

function sessionOptions({ image, snapshotId, timeout, envs, directory, name, metadata, signal }: CreateSandboxOptions): SessionOptions {
  if (image !== undefined || snapshotId !== undefined) {
    throw invalid("a sandbox can't choose an image or a snapshot: give the name of an ExecutionEnvironment as templateId");
  }
  return {
    ...(timeout === undefined ? {} : { maxLifetime: secondsOf(timeout) }),
    ...(envs === undefined ? {} : { env: envs }),
    ...(directory === undefined ? {} : { cwd: directory }),
    ...(name === undefined ? {} : { key: name }),
    ...(metadata === undefined ? {} : { annotations: textsOf(metadata) }),
    ...(signal === undefined ? {} : { signal }),
  };
}

function runOptions({ cwd, env, timeout, onStdout, onStderr }: RunCommandOptions): Omit<SessionRunOptions, "background"> {
  return {
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined ? {} : { env }),
    ...(timeout === undefined ? {} : { timeout: secondsOf(timeout) }),
    ...(onStdout === undefined ? {} : { onStdout }),
    ...(onStderr === undefined ? {} : { onStderr }),
  };
}

function resultOf(result: Result): CommandResult {
  const { stdout, stderr, exitCode, duration = 0, message, reason, retrySafe, call } = result;
  if (exitCode === null) {
    throw new NonZeroExit(message, { reason, retrySafe, call, result });
  }
  return { stdout, stderr, exitCode, durationMs: duration * 1_000 };
}

function failureOf({ message, result }: CallEnded, exitCode: number): CommandResult {
  const stderr = result.stderr && !result.stderr.endsWith("\n") ? `${result.stderr}\n` : result.stderr;
  return { stdout: result.stdout, stderr: `${stderr}${message}\n`, exitCode, durationMs: (result.duration ?? 0) * 1_000 };
}

function absent<T>(error: unknown, instead: T): T {
  if (error instanceof NotFound) {
    return instead;
  }
  throw error;
}

// An id that can't be a session's name is that of none. Only what nothing was sent for has no cause.
function absentId<T>(error: unknown, instead: T): T {
  return error instanceof InvalidArgument && error.cause === undefined ? instead : absent(error, instead);
}

function invalid(message: string): InvalidArgument {
  return new InvalidArgument(message, { retrySafe: true });
}

function secondsOf(milliseconds: number): number {
  return Math.max(1, Math.ceil(milliseconds / 1_000));
}

function textsOf(metadata: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]));
}
