// Files of a session: read, written and searched by the operator's runner, without a process in the image.

import { posix } from "node:path";
import type { Calls } from "./calls.js";
import { FileFailed, ToolcallError, invalid } from "./errors.js";
import type { FileAction, FileStatus } from "./objects.js";
import type { Result } from "./result.js";
import type { Session } from "./session.js";
import { fileSpec, isInHome, joinPath, utf8Of, wholeNumber } from "./spec.js";
import { Transfer, type Transferred } from "./transfer.js";

// What the pod says of a directory that isn't there or may not be read: it runs, whatever comes of the call.
const SAID_BY_POD = new Set([
  "FileNotFound",
  "NotDirectory",
  "FileError",
  "PathNotAllowed",
  "PermissionDenied",
  "WorkingDirNotFound",
  "WorkingDirNotAllowed",
]);

/** What all operations on files take. */
export interface FileOptions {
  signal?: AbortSignal;
}

/** A file, directory or link. */
export interface FileInfo {
  /** Relative to the directory that was listed or searched; absolute from `stat`. */
  path: string;
  type: "File" | "Directory" | "Link" | "Pipe" | "Socket" | "Device";
  /** Bytes of a file. */
  size?: number;
  /** Permissions, four octal digits. */
  mode?: string;
  /** Time of the last change, RFC 3339. */
  modTime?: string;
  /** What is written in a link. */
  target?: string;
}

/** What an operation did: the path with links resolved, and what else is known of the file. */
export type FileChange = Pick<FileStatus, "path" | "bytes" | "sha256" | "created" | "replaced" | "matches">;

/** A line that a search found. */
export interface Match {
  /** Relative to the directory that was searched. */
  path: string;
  /** Number of the line, from 1. */
  lineNumber: number;
  /** Where in the line the match begins, from 1, in bytes. */
  column?: number;
  /** The line without its end, at most 512 bytes around the match. */
  line: string;
  /** The lines before and after it, with `contextLines`. */
  before?: string[];
  after?: string[];
}

/** Lines of a file for a model. */
export interface Lines {
  text: string;
  /** Where there are no lines to show, or not all, a sentence that says why. */
  note?: string;
  /** Whether the file isn't text. */
  binary: boolean;
}

/** A list that says whether there is more. */
export type Listing<T> = T[] & {
  /** Whether there is more than was asked for, than 1,000 results, or than the policy lets a call return (64 KiB by default). */
  truncated: boolean;
};

/** Options of `read`. */
export interface ReadFileOptions extends FileOptions {
  /** First line, from 1. With it or with `limit` a part of the file is read. */
  offset?: number;
  /** At most so many lines. To the end of the file when unset. */
  limit?: number;
  /** `text` (the default): a string, in which bytes that aren't UTF-8 are U+FFFD. `bytes`: the whole file as it is. */
  format?: "text" | "bytes";
}

/** Options of `write`. */
export interface WriteFileOptions extends FileOptions {
  /** Permissions in octal digits. Those of the file that is replaced when unset, otherwise 0644. At most 512 KiB of data. */
  mode?: string;
  /** Write only if the file has this SHA-256 now; with "" only if there is no file. Throws FileFailed otherwise. */
  ifSHA256?: string;
}

/** Bytes that fit into a call. More go through the API for transfers. */
const MAX_CALL_BYTES = 512 * 1024;

/** The files of one session. Paths are absolute, in the home directory with `~/`, or count from the session's `cwd`. */
export class Files {
  readonly #session: Session;
  readonly #calls: Calls;
  readonly #transfer: Transfer;
  #imageDirectory: string | undefined;

  /** Callers get it as `session.files`. */
  constructor(session: Session, calls: Calls) {
    this.#session = session;
    this.#calls = calls;
    this.#transfer = new Transfer(session.name, calls.api, {
      pathOf: (path, signal) => this.pathOf(path, signal),
      wake: (signal) => this.wake(signal),
    });
  }

  /** Reads a file of any size: as text, as bytes, or some lines of it. */
  read(path: string, options: ReadFileOptions & { format: "bytes" }): Promise<Uint8Array>;
  read(path: string, options?: ReadFileOptions & { format?: "text" }): Promise<string>;
  async read(path: string, options: ReadFileOptions = {}): Promise<string | Uint8Array> {
    const isPart = options.offset !== undefined || options.limit !== undefined;
    if (options.format === "bytes") {
      if (isPart) {
        throw invalid("offset and limit count lines of a text: leave them out, or read the file as text");
      }
      return this.#transfer.read(path, options.signal);
    }
    if (isPart) {
      let text = "";
      for await (const part of this.parts(path, options)) {
        text += part.stdout;
      }
      return text;
    }
    return (await this.#transfer.read(path, options.signal)).toString("utf8");
  }

  /**
   * Reads lines of a file for a model, which is told in a `note` why there are none, or not all: the file isn't text, is empty, ends
   * before, or has a line that is too long.
   */
  async readLines(path: string, options: FileOptions & { offset?: number; limit?: number } = {}): Promise<Lines> {
    let text = "";
    try {
      for await (const part of this.parts(path, options)) {
        text += part.stdout;
        const binary = part.object.status?.file?.binary ?? false;
        if (binary || text === "") {
          return { text: "", note: part.text, binary };
        }
      }
    } catch (error) {
      if (!(error instanceof FileFailed) || error.reason !== "FileTooLarge" || text === "") {
        throw error;
      }
      return { text, note: error.message, binary: false };
    }
    return { text, binary: false };
  }

  /** Writes a file whole, or not at all, and makes the directories above it. */
  async write(path: string, data: string | Uint8Array, options: WriteFileOptions = {}): Promise<FileChange> {
    const bytes = typeof data === "string" ? utf8Of("the data", data) : data;
    const { mode, ifSHA256, signal } = options;
    if (bytes.length <= MAX_CALL_BYTES) {
      const content = typeof data === "string" ? { content: data } : { contentBase64: Buffer.from(data).toString("base64") };
      return this.act({ operation: "Write", path, ...content, mode, ifSHA256 }, { signal });
    }
    if (mode !== undefined) {
      throw invalid(`mode can be given for at most ${MAX_CALL_BYTES} bytes, and the data has ${bytes.length}: leave it out`);
    }
    const done = await this.#transfer.write(path, bytes, { ifSHA256, signal });
    return { path, ...done };
  }

  /** Replaces a text that is there exactly once, or with `replaceAll` wherever it is. */
  edit(path: string, oldText: string, newText: string, options?: FileOptions & { replaceAll?: boolean }): Promise<FileChange>;
  /** Replaces several texts, each given with what replaces it: all of them, or none. */
  edit(path: string, edits: readonly (readonly [string, string])[], options?: FileOptions & { replaceAll?: boolean }): Promise<FileChange>;
  edit(
    path: string,
    what: string | readonly (readonly [string, string])[],
    last?: string | (FileOptions & { replaceAll?: boolean }),
    more: FileOptions & { replaceAll?: boolean } = {},
  ): Promise<FileChange> {
    const options = typeof last === "object" ? last : more;
    const { replaceAll } = options;
    if (typeof what === "string") {
      return this.act({ operation: "Edit", path, oldString: what, newString: last as string, replaceAll }, options);
    }
    return this.act({ operation: "Edit", path, edits: what.map(([oldString, newString]) => ({ oldString, newString, replaceAll })) }, options);
  }

  /** Lists a directory, with `recursive` all that is below it; with `respectGitIgnore` without what .gitignore names. */
  list(
    path = ".",
    options: FileOptions & { recursive?: boolean; respectGitIgnore?: boolean; maxResults?: number } = {},
  ): Promise<Listing<FileInfo>> {
    const { recursive, respectGitIgnore } = options;
    return this.find<FileInfo>({ operation: "List", path, recursive, respectGitIgnore }, options);
  }

  /** Finds files and directories by a pattern such as `src/*.ts`, relative to `path`. */
  glob(
    pattern: string,
    options: FileOptions & { path?: string; respectGitIgnore?: boolean; maxResults?: number } = {},
  ): Promise<Listing<FileInfo>> {
    const { path = ".", respectGitIgnore } = options;
    return this.find<FileInfo>({ operation: "Glob", path, pattern, respectGitIgnore }, options);
  }

  /**
   * Finds lines by an RE2 expression, or with `literal` by a text. `glob` narrows the search to files, `respectGitIgnore` leaves out
   * what .gitignore names, and `contextLines` returns so many lines before and after each.
   */
  grep(
    pattern: string,
    options: FileOptions & {
      path?: string;
      literal?: boolean;
      glob?: string;
      contextLines?: number;
      respectGitIgnore?: boolean;
      maxResults?: number;
    } = {},
  ): Promise<Listing<Match>> {
    const { path = ".", literal, glob, contextLines, respectGitIgnore } = options;
    return this.find<Match>({ operation: "Grep", path, pattern, literal, glob, contextLines, respectGitIgnore }, options);
  }

  /** Describes a file, a directory or a link. */
  async stat(path: string, options: FileOptions = {}): Promise<FileInfo & { sha256?: string }> {
    const result = await this.run({ operation: "Stat", path }, options.signal);
    const sha256 = result.object.status?.file?.sha256;
    return { ...(JSON.parse(result.stdout) as FileInfo), ...(sha256 === undefined ? {} : { sha256 }) };
  }

  /** Whether there is something at the path. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if ((error as { reason?: string }).reason === "FileNotFound") {
        return false;
      }
      throw error;
    }
  }

  /** Makes a directory, and those above it. */
  mkdir(path: string, options: FileOptions = {}): Promise<FileChange> {
    return this.act({ operation: "MakeDirectory", path }, options);
  }

  /** Gives a file or directory another path. `overwrite` lets it replace a file. */
  async move(path: string, destination: string, options: FileOptions & { overwrite?: boolean } = {}): Promise<FileChange> {
    const to = await this.pathOf(destination, options.signal);
    return this.act({ operation: "Move", path, destination: to, overwrite: options.overwrite }, options);
  }

  /** Deletes a file; with `recursive` a directory and all that is in it. */
  delete(path: string, options: FileOptions & { recursive?: boolean } = {}): Promise<FileChange> {
    return this.act({ operation: "Delete", path, recursive: options.recursive }, options);
  }

  /** Copies a local file of any size into the session. It gets the local file's name when `path` isn't given. */
  upload(local: string, path?: string, options: FileOptions & { ifSHA256?: string } = {}): Promise<Transferred> {
    return this.#transfer.upload(local, path, options);
  }

  /** Copies a file of the session, of any size, to this machine: whole, or not at all. */
  download(path: string, local?: string, options: FileOptions = {}): Promise<Transferred> {
    return this.#transfer.download(path, local, options.signal);
  }

  /**
   * Copies what is in a local directory below `path`, by default below its own name in the session's directory. Files that are there
   * already are replaced, others stay. Throws Forbidden for a link that leads out of the directory.
   */
  uploadDir(local: string, path?: string, options: FileOptions = {}): Promise<void> {
    return this.#transfer.uploadDir(local, path, options.signal);
  }

  /**
   * Copies a directory to a local one, by default of its own name, which may not be there yet or is empty: whole, or not at all. Throws
   * Forbidden for a link that leads out of the directory; what is neither file, directory nor link is left out.
   */
  downloadDir(path: string, local?: string, options: FileOptions = {}): Promise<void> {
    return this.#transfer.downloadDir(path, local, options.signal);
  }

  // The results of the calls that read lines, so many as it takes.
  private async *parts(path: string, options: ReadFileOptions): AsyncGenerator<Result, void> {
    let offset = wholeNumber("offset", options.offset ?? 1, 1);
    let left = options.limit === undefined ? Number.POSITIVE_INFINITY : wholeNumber("limit", options.limit, 1);
    while (left > 0) {
      const limit = left === Number.POSITIVE_INFINITY ? undefined : left;
      const result = await this.run({ operation: "Read", path, offset, limit }, options.signal);
      yield result;
      const { nextOffset, lines = 0, truncated } = result.object.status?.file ?? {};
      if (nextOffset === undefined && truncated) {
        const message = `only a part of ${path} could be read by lines: read it without offset and limit`;
        throw new FileFailed(message, { reason: "FileTooLarge", call: result.call, result });
      }
      if (nextOffset === undefined) {
        break;
      }
      left -= lines;
      offset = nextOffset;
    }
  }

  private async find<T>(action: FileAction, options: FileOptions & { maxResults?: number }): Promise<Listing<T>> {
    const maxResults = options.maxResults === undefined ? undefined : wholeNumber("maxResults", options.maxResults, 1);
    const result = await this.run({ ...action, maxResults }, options.signal);
    const lines = result.stdout.split("\n").filter((line) => line !== "");
    const found = lines.map((line) => JSON.parse(line) as T);
    return Object.assign(found, { truncated: result.object.status?.file?.truncated ?? false });
  }

  private async act(action: FileAction, options: { signal?: AbortSignal | undefined }): Promise<FileChange> {
    return (await this.run(action, options.signal)).object.status?.file ?? {};
  }

  private async run(action: FileAction, signal: AbortSignal | undefined): Promise<Result> {
    const path = await this.pathOf(action.path, signal);
    return this.runAt({ ...action, path }, undefined, signal);
  }

  // Has a call wait for the session's pod, as every call does. The directory is what rules on paths allow most likely.
  private async wake(signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.runAt({ operation: "Stat", path: await this.pathOf(".", signal) }, undefined, signal);
    } catch (error) {
      if (!(error instanceof ToolcallError && SAID_BY_POD.has(error.reason))) {
        throw error;
      }
    }
  }

  private runAt(action: FileAction, cwd: string | undefined, signal: AbortSignal | undefined): Promise<Result> {
    return this.#calls.run(fileSpec(action, { ...this.#session.place(), cwd }), signal ? { signal } : {});
  }

  // A path below the session's cwd. A relative cwd counts from the image's working directory, as it does for commands; a path
  // without a cwd from the session's directory.
  private async pathOf(path: string, signal: AbortSignal | undefined): Promise<string> {
    const { cwd } = this.#session.place();
    const joined = path === "" ? "" : (joinPath(cwd, path) ?? path);
    if (cwd === undefined || joined === "" || posix.isAbsolute(joined) || isInHome(joined)) {
      return joined;
    }
    this.#imageDirectory ??= (JSON.parse((await this.runAt({ operation: "Stat", path: "." }, ".", signal)).stdout) as FileInfo).path;
    return posix.join(this.#imageDirectory, joined);
  }
}
