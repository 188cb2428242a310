// A deepagents backend: an agent's shell and files are those of a toolcall.dev session.

import { posix } from "node:path";
import { SessionEnded, ToolcallError, Unavailable, type FileInfo as SessionFile, type Session } from "@toolcall/client";
import type {
  DeleteResult,
  EditResult,
  ExecuteResponse,
  FileDownloadResponse,
  FileInfo,
  FileOperationError,
  FileUploadResponse,
  GlobResult,
  GrepResult,
  LsResult,
  ReadRawResult,
  ReadResult,
  SandboxBackendProtocolV2,
  WriteResult,
} from "deepagents";
import { isText, mediaTypeOf } from "./media.js";

/** Options of the backend. */
export interface ToolcallBackendOptions {
  /** Seconds after which a command is stopped. The policy's default when unset. */
  timeout?: number;
}

// More lines than that are all.
const MOST_LINES = 2 ** 31;

const UPLOAD_ERRORS: Record<string, FileOperationError> = {
  FileNotFound: "file_not_found",
  PathNotAllowed: "permission_denied",
  PermissionDenied: "permission_denied",
  Forbidden: "permission_denied",
  IsDirectory: "is_directory",
};

/**
 * Runs an agent's commands and file operations in one session. Files are read, written and searched by the operator's runner:
 * the image needs neither Python nor a shell for that. The caller starts and ends the session.
 *
 * What the agent did wrong, or may not do, comes back as the `error` of a result, with a message that says what would be right.
 * A session that has ended and an API that can't be reached are thrown.
 */
export class ToolcallBackend implements SandboxBackendProtocolV2 {
  /** Name of the session. */
  readonly id: string;
  private home: string | undefined;

  constructor(
    private readonly session: Session,
    private readonly options: ToolcallBackendOptions = {},
  ) {
    this.id = session.name;
  }

  /** Runs a command line. The exit code is null when nothing ran, when a signal or the time limit ended it, or nobody knows. */
  async execute(command: string): Promise<ExecuteResponse> {
    const { timeout } = this.options;
    try {
      const result = await this.session.commands.run(command, timeout === undefined ? {} : { timeout });
      return { output: result.text, exitCode: result.exitCode, truncated: result.truncated };
    } catch (error) {
      const { message, result } = asAnswer(error);
      return { output: result?.text || message, exitCode: null, truncated: result?.truncated ?? false };
    }
  }

  /** Lists a directory. "/" stands for the session's own directory: policies seldom let a call read all of "/". */
  ls(path: string): Promise<LsResult> {
    return attempt<LsResult>(async () => {
      const base = await this.baseOf(path);
      const entries = await this.session.files.list(base);
      return { files: entries.map((entry) => infoOf(entry, posix.join(base, entry.path))) };
    });
  }

  /**
   * Reads lines of a text file, counted from 0, or a whole file of another kind as bytes. One that isn't text although its name doesn't
   * say so, and one that ends before the offset, are an error.
   */
  read(filePath: string, offset = 0, limit = 500): Promise<ReadResult> {
    const mimeType = mediaTypeOf(filePath);
    return attempt<ReadResult>(async () => {
      if (!isText(mimeType)) {
        return { content: await this.session.files.read(filePath, { format: "bytes" }), mimeType };
      }
      const isLimited = Number.isFinite(limit) && limit <= MOST_LINES;
      const [first, count] = [wholeFrom(offset), isLimited ? wholeFrom(limit) : Number.POSITIVE_INFINITY];
      if (count === 0) {
        return { content: "", mimeType };
      }
      // One line more than asked for says whether there are more.
      const wanted = { offset: first + 1, ...(isLimited ? { limit: count + 1 } : {}) };
      const { text, note, binary } = await this.session.files.readLines(filePath, wanted);
      if (note !== undefined && text === "" && (binary || first > 0)) {
        return { error: note };
      }
      const lines = linesOf(text);
      const shown = lines.slice(0, count);
      if (shown.length === 0) {
        return { content: "", mimeType };
      }
      const end = first + shown.length;
      // Where not all could be read, reading on says why.
      const isMore = lines.length > count || note !== undefined;
      const range = { startLine: first + 1, endLine: end, ...(isMore ? { nextOffset: end } : { totalLines: end }) };
      return { content: shown.join("\n"), mimeType, ...range };
    });
  }

  /** Reads a whole file, with its times. */
  readRaw(filePath: string): Promise<ReadRawResult> {
    const mimeType = mediaTypeOf(filePath);
    return attempt<ReadRawResult>(async () => {
      const [entry, bytes] = await Promise.all([this.session.files.stat(filePath), this.session.files.read(filePath, { format: "bytes" })]);
      const content = isText(mimeType) ? Buffer.from(bytes).toString("utf8") : bytes;
      const time = entry.modTime ?? new Date().toISOString();
      return { data: { content, mimeType, created_at: time, modified_at: time } };
    });
  }

  /** Writes a file whole, and makes its parents. The content of a file that isn't text is base64. */
  write(filePath: string, content: string): Promise<WriteResult> {
    return attempt<WriteResult>(async () => {
      const data = isText(mediaTypeOf(filePath)) ? content : Buffer.from(content, "base64");
      await this.session.files.write(filePath, data);
      return { path: filePath, filesUpdate: null };
    });
  }

  /** Replaces a text that is there exactly once, or wherever it is. An empty text stands for an empty file. */
  edit(filePath: string, oldString: string, newString: string, replaceAll = false): Promise<EditResult> {
    return attempt<EditResult>(async () => {
      if (oldString === "") {
        return this.fill(filePath, newString);
      }
      const { replaced } = await this.session.files.edit(filePath, oldString, newString, { replaceAll });
      return { path: filePath, filesUpdate: null, occurrences: replaced ?? 0 };
    });
  }

  /** Deletes a file, or a directory with all that is in it. */
  delete(filePath: string): Promise<DeleteResult> {
    return attempt<DeleteResult>(async () => {
      await this.session.files.delete(filePath, { recursive: true });
      return { path: filePath, filesUpdate: null };
    });
  }

  /** Finds lines with a text below a directory, or in a file. */
  grep(pattern: string, path?: string | null, glob?: string | null, maxCount?: number | null): Promise<GrepResult> {
    return attempt<GrepResult>(async () => {
      const base = await this.baseOf(path ?? "/");
      const narrowed = { ...(glob ? { glob } : {}), ...(maxCount ? { maxResults: Math.min(maxCount, 1000) } : {}) };
      const found = await this.session.files.grep(pattern, { path: base, literal: true, ...narrowed });
      const isFile = found.length > 0 && (await this.session.files.stat(base)).type === "File";
      const matches = found.map((m) => ({ path: isFile ? base : posix.join(base, m.path), line: m.lineNumber, text: m.line }));
      return { matches, ...(found.truncated ? { truncated: true } : {}) };
    });
  }

  /** Finds files by a pattern. Their paths are relative to the directory that was searched. */
  glob(pattern: string, path = "/"): Promise<GlobResult> {
    return attempt<GlobResult>(async () => {
      const base = await this.baseOf(path);
      const relative = posix.isAbsolute(pattern) ? posix.relative("/", pattern) : pattern;
      const found = await this.session.files.glob(relative, { path: base });
      return { files: found.map((entry) => infoOf(entry, entry.path)), ...(found.truncated ? { truncated: true } : {}) };
    });
  }

  /** Writes files of any size and content. */
  uploadFiles(files: [string, Uint8Array][]): Promise<FileUploadResponse[]> {
    const upload = async ([path, content]: [string, Uint8Array]): Promise<FileUploadResponse> => {
      const error = await errorOf(() => this.session.files.write(path, content));
      return { path, error };
    };
    return inTurns(files, upload);
  }

  /** Reads files of any size and content. */
  downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    const download = async (path: string): Promise<FileDownloadResponse> => {
      let content: Uint8Array | null = null;
      const error = await errorOf(async () => {
        content = await this.session.files.read(path, { format: "bytes" });
      });
      return { path, content, error };
    };
    return inTurns(paths, download);
  }

  // Fills an empty file. The condition holds it empty until then.
  private async fill(path: string, content: string): Promise<EditResult> {
    const { size, sha256 } = await this.session.files.stat(path);
    if (size !== 0) {
      return { error: `${path} isn't empty: say which text to replace` };
    }
    await this.session.files.write(path, content, sha256 === undefined ? {} : { ifSHA256: sha256 });
    return { path, filesUpdate: null, occurrences: content === "" ? 0 : 1 };
  }

  private async baseOf(path: string): Promise<string> {
    if (path !== "/" && path !== "") {
      return path;
    }
    this.home ??= (await this.session.files.stat(".")).path;
    return this.home;
  }
}

function infoOf(entry: SessionFile, path: string): FileInfo {
  const isDirectory = entry.type === "Directory";
  return {
    path: isDirectory ? `${path}/` : path,
    is_dir: isDirectory,
    ...(entry.size === undefined ? {} : { size: entry.size }),
    ...(entry.modTime === undefined ? {} : { modified_at: entry.modTime }),
  };
}

// Errors that an agent can do something about. Others are thrown.
function asAnswer(error: unknown): ToolcallError {
  if (!(error instanceof ToolcallError) || error instanceof Unavailable || error instanceof SessionEnded) {
    throw error;
  }
  return error;
}

async function attempt<T extends { error?: string }>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    return { error: asAnswer(error).message } as T;
  }
}

async function errorOf(work: () => Promise<unknown>): Promise<FileOperationError | null> {
  try {
    await work();
    return null;
  } catch (error) {
    return UPLOAD_ERRORS[asAnswer(error).reason] ?? "invalid_path";
  }
}

async function inTurns<T, R>(items: T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (const item of items) {
    done.push(await work(item));
  }
  return done;
}

function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") {
    lines.pop();
  }
  return lines;
}

function wholeFrom(value: number): number {
  return Number.isFinite(value) ? Math.max(0, Math.floor(value)) : 0;
}
