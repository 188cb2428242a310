// Errors of this machine's files, as the errors of this library.

import { classOfAnswer, invalid } from "./errors.js";

const REASONS: Partial<Record<string, string>> = {
  ENOENT: "FileNotFound",
  EISDIR: "IsDirectory",
  ENOTDIR: "NotDirectory",
  EEXIST: "FileExists",
  ENOTEMPTY: "FileExists",
  EACCES: "PermissionDenied",
  EPERM: "PermissionDenied",
  ENOSPC: "NoSpace",
  EDQUOT: "NoSpace",
  EFBIG: "FileTooLarge",
};

/** Does something with a file of this machine, and throws what goes wrong as NotFound, Forbidden, FileFailed or InvalidArgument. */
export async function inLocal<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw localError(error, path);
  }
}

/** The error for an operation on a file of this machine that failed; what isn't one comes back as it is. */
export function localError(error: unknown, path: string): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === "ERR_INVALID_ARG_VALUE") {
    return invalid(`the local path ${JSON.stringify(path)} can't be used: give a path without NUL characters`);
  }
  if (!(error instanceof Error) || typeof code !== "string" || syscall === undefined) {
    return error;
  }
  const reason = REASONS[code] ?? "FileError";
  const advice = reason === "IsDirectory" ? ": uploadDir and downloadDir copy directories" : "";
  const Class = classOfAnswer(0, reason);
  return new Class(`the local file ${path}: ${error.message}${advice}`, { reason, retrySafe: true, cause: error });
}
