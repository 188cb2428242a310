// Runs scenario files: clients/scenarios/README.md describes them.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import {
  BackgroundCall,
  Result,
  Session,
  type Command,
  type SessionRunOptions,
  type Toolcall,
  type ToolcallError,
} from "../../src/index.js";
import type { Decision, TestNamespace } from "./cluster.js";

type Values = Record<string, unknown>;

/** One step of a file. */
export interface Step {
  do: string;
  on?: string;
  as?: string;
  with?: Values;
  expect?: Values;
  error?: unknown;
  message?: unknown;
  error_fields?: Values;
}

/** Arguments of `decide`. */
type Decided = Decision & { step: Step };

/** A scenario file. */
export interface Scenario {
  name: string;
  environment?: string;
  steps: Step[];
}

/** What callbacks have collected of one call. */
interface Collected {
  stdout: string;
  stderr: string;
  chunks: number;
}

/** Runs the steps of one file. */
export class Runner {
  private readonly kept = new Map<string, unknown>();
  private readonly collected = new WeakMap<object, Collected>();
  private readonly random = randomBytes(4).toString("hex");
  private signal: AbortSignal | undefined;

  constructor(
    private readonly client: Toolcall,
    private readonly namespace: TestNamespace,
    private readonly scenario: Scenario,
  ) {}

  async run(): Promise<void> {
    try {
      for (const [i, step] of this.scenario.steps.entries()) {
        const filled = JSON.parse(JSON.stringify(step).replaceAll("${run}", this.random)) as Step;
        try {
          await this.step(filled);
        } catch (error) {
          throw new Error(`step ${i + 1}, ${filled.do} ${JSON.stringify(filled.with ?? {}).slice(0, 200)}: ${String(error)}`, { cause: error });
        }
      }
    } finally {
      await Promise.all([...this.kept.values()].filter((o) => o instanceof Session).map((s) => s.end()));
    }
  }

  private async step(step: Step): Promise<void> {
    const outcome = await this.act(step).then(
      (value) => ({ value, error: undefined }),
      (error: unknown) => ({ value: undefined, error: error as ToolcallError }),
    );
    if (step.error === undefined) {
      if (outcome.error) {
        throw outcome.error;
      }
      if (step.as) {
        this.kept.set(step.as, outcome.value);
      }
      expectFields(await this.fieldsOf(outcome.value), step.expect ?? {});
      return;
    }
    assert.ok(outcome.error, `it should throw ${JSON.stringify(step.error)}, and returned ${JSON.stringify(await this.fieldsOf(outcome.value))}`);
    const { error } = outcome;
    match(error.constructor.name, step.error, `class of the error "${error.message}"`);
    match(error.message, step.message ?? { contains: "" }, "message");
    expectFields({ ...snake(error), stdout: error.result?.stdout, stderr: error.result?.stderr }, step.error_fields ?? {});
  }

  private act(step: Step): Promise<unknown> {
    const [object, method] = step.do.split(".");
    const args = step.with ?? {};
    if (object === "files") {
      return this.file(method ?? "", this.on(step, Session), args);
    }
    if (object === "handle") {
      return this.handle(method ?? "", this.on(step, BackgroundCall), args);
    }
    switch (step.do) {
      case "run":
        return this.command((c, o) => this.client.run(c, { environment: this.scenario.environment ?? "tools", ...o }), args);
      case "commands.run":
        return this.command((c, o) => this.on(step, Session).commands.run(c, o), args);
      case "session":
        return this.session(args);
      case "end":
        return this.on(step, Session).end();
      case "output":
        return this.output(step, args);
      case "cancel_after":
        return this.cancelAfter(args.seconds as number, args.step as Step);
      case "decide":
        return this.decide(args as unknown as Decided);
      case "kill_operator":
        return this.namespace.killOperator();
      case "repeat":
        return this.repeat(args.times as number, args.parallel as number, args.step as Step);
      default:
        throw new Error(`there is no operation ${step.do}`);
    }
  }

  private on<T>(step: Step, kind: abstract new (...args: never[]) => T): T {
    const object = this.kept.get(step.on ?? "");
    assert.ok(object instanceof kind, `"${step.on}" isn't what ${step.do} acts on`);
    return object;
  }

  private session({ environment, ...options }: Values): Promise<Session> {
    return this.client.session((environment ?? this.scenario.environment ?? "tools") as string, options);
  }

  private async command(
    run: (command: Command, options: SessionRunOptions & { environment?: string }) => Promise<Result | BackgroundCall>,
    { command, program, args, code, language, on_stdout, on_stderr, network_hosts, ...rest }: Values,
  ): Promise<Result | BackgroundCall> {
    const what = (command ?? (program ? { program, args } : { code, language })) as Command;
    const live: Collected = { stdout: "", stderr: "", chunks: 0 };
    const collect = (stream: "stdout" | "stderr") => (text: string): void => {
      live[stream] += text;
      live.chunks++;
    };
    const options = {
      ...(rest as SessionRunOptions),
      ...(network_hosts ? { networkHosts: network_hosts as string[] } : {}),
      ...(on_stdout ? { onStdout: collect("stdout") } : {}),
      ...(on_stderr ? { onStderr: collect("stderr") } : {}),
      ...(this.signal ? { signal: this.signal } : {}),
    };
    const done = await run(what, options);
    this.collected.set(done, live);
    return done;
  }

  private async output(step: Step, { stream, ...range }: Values): Promise<Values> {
    const call = this.kept.get(step.on ?? "") as Result | BackgroundCall;
    const options = { ...(range as { offset?: number; limit?: number }), ...(stream === undefined ? {} : { stream: stream as "stdout" }) };
    const data = await this.client.output(call, options);
    return { bytes: data.length, sha256: sha256Of(data), text: data.toString("utf8") };
  }

  private async handle(method: string, handle: BackgroundCall, args: Values): Promise<unknown> {
    switch (method) {
      case "read":
        return handle.read({
          ...(args.offset === undefined ? {} : { offset: args.offset as number }),
          ...(args.limit === undefined ? {} : { limit: args.limit as number }),
          ...(args.wait_for === undefined ? {} : { waitFor: args.wait_for as number }),
        });
      case "lines": {
        const value: string[] = [];
        for await (const line of handle.lines()) {
          value.push(line);
        }
        return { value };
      }
      case "write":
        return handle.write(args.text as string, args.eof === undefined ? {} : { eof: args.eof as boolean });
      case "wait": {
        const result = await handle.wait();
        this.collected.set(result, this.collected.get(handle) as Collected);
        return result;
      }
      case "cancel":
        return handle.cancel();
      default:
        throw new Error(`there is no operation handle.${method}`);
    }
  }

  private async file(method: string, { files }: Session, args: Values): Promise<unknown> {
    const { path, pattern, content, destination, size, old: oldText, new: newText, replace_all, ...rest } = args;
    const at = path as string;
    switch (method) {
      case "read":
        return { value: await files.read(at, rest) };
      case "write":
        return files.write(at, content as string);
      case "edit":
        return files.edit(at, oldText as string, newText as string, replace_all === undefined ? {} : { replaceAll: replace_all as boolean });
      case "list":
        return { value: await files.list(at, rest) };
      case "glob":
        return { value: await files.glob(pattern as string, at === undefined ? {} : { path: at }) };
      case "grep":
        return { value: await files.grep(pattern as string, { ...(at === undefined ? {} : { path: at }), ...rest }) };
      case "stat":
        return files.stat(at);
      case "delete":
        return files.delete(at, rest);
      case "mkdir":
        return files.mkdir(at);
      case "move":
        return files.move(at, destination as string);
      case "upload":
      case "download":
        return inFolder((local) => (method === "upload" ? upload(files, local, at, size as number) : download(files, local, at)));
      case "upload_dir":
        return inFolder((local) => uploadDir(files, local, at, content as Record<string, string>));
      case "download_dir":
        return inFolder((local) => downloadDir(files, local, at));
      default:
        throw new Error(`there is no operation files.${method}`);
    }
  }

  private async cancelAfter(seconds: number, step: Step): Promise<void> {
    this.signal = AbortSignal.timeout(seconds * 1_000);
    try {
      await this.step(step);
    } finally {
      this.signal = undefined;
    }
  }

  private async decide({ step, ...decision }: Decided): Promise<void> {
    await Promise.all([this.step(step), this.namespace.decide(decision)]);
  }

  private async repeat(times: number, parallel: number, step: Step): Promise<void> {
    let left = times;
    const worker = async (): Promise<void> => {
      while (left-- > 0) {
        await this.step(step);
      }
    };
    await Promise.all(Array.from({ length: parallel }, worker));
  }

  private async fieldsOf(value: unknown): Promise<Values> {
    const fields = snake(value);
    const live = typeof value === "object" && value !== null ? this.collected.get(value) : undefined;
    if (live) {
      const sha256 = sha256Of(Buffer.from(live.stdout));
      Object.assign(fields, { live_stdout: live.stdout, live_stderr: live.stderr, live_chunks: live.chunks, live_stdout_sha256: sha256 });
    }
    return fields;
  }
}

async function inFolder<T>(work: (local: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "toolcall-"));
  try {
    return await work(join(folder, "file"));
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function upload(files: Session["files"], local: string, path: string, size: number): Promise<Values> {
  const data = Buffer.alloc(size);
  for (let i = 0; i < size; i++) {
    data[i] = (31 * i + (i >> 8)) & 255;
  }
  await writeFile(local, data);
  await files.upload(local, path);
  return { bytes: size, sha256: sha256Of(data) };
}

async function download(files: Session["files"], local: string, path: string): Promise<Values> {
  await files.download(path, local);
  const data = await readFile(local);
  return { bytes: data.length, sha256: sha256Of(data) };
}

async function uploadDir(files: Session["files"], local: string, path: string, content: Record<string, string>): Promise<void> {
  for (const [name, text] of Object.entries(content)) {
    await mkdir(dirname(join(local, name)), { recursive: true });
    await writeFile(join(local, name), text);
  }
  await files.uploadDir(local, path);
}

async function downloadDir(files: Session["files"], local: string, path: string): Promise<Values> {
  await files.downloadDir(path, local);
  const found = (await readdir(local, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const names = found.map((entry) => relative(local, join(entry.parentPath, entry.name))).sort();
  return { value: await Promise.all(names.map(async (name) => `${name}: ${await readFile(join(local, name), "utf8")}`)) };
}

function sha256Of(data: Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

// The public fields of an object under their names in snake_case.
function snake(value: unknown): Values {
  if (typeof value !== "object" || value === null) {
    return {};
  }
  return Object.fromEntries(Object.entries(value).map(([key, v]) => [key.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), v]));
}

function expectFields(fields: Values, expected: Values): void {
  for (const [path, matcher] of Object.entries(expected)) {
    let value: unknown = fields;
    for (const part of path.split(".")) {
      value = value === fields ? fields[part] : (snake(value)[part] ?? (value as Values | undefined)?.[part]);
    }
    match(value, matcher, path);
  }
}

/** Compares a value with a matcher of a scenario. */
export function match(value: unknown, matcher: unknown, what: string): void {
  const [kind, wanted] = typeof matcher === "object" && matcher !== null && !Array.isArray(matcher) ? (Object.entries(matcher)[0] ?? []) : [];
  const said = `${what} is ${JSON.stringify(value)?.slice(0, 400)}, expected ${JSON.stringify(matcher).slice(0, 400)}`;
  switch (kind) {
    case undefined:
      return assert.deepEqual(value, matcher, said);
    case "contains":
      return assert.ok(typeof value === "string" && value.includes(wanted as string), said);
    case "matches":
      return assert.match(String(value), new RegExp(wanted as string), said);
    case "at_least":
      return assert.ok((value as number) >= (wanted as number), said);
    case "absent":
      return assert.ok(value === undefined || value === null, said);
    case "one_of":
      return assert.ok((wanted as unknown[]).includes(value), said);
    case "length":
      return assert.equal((value as { length: number } | undefined)?.length, wanted, said);
    default:
      throw new Error(`there is no matcher ${kind}`);
  }
}
