// Reads a stream of a call: by ranges, and as it is written.
import {ApiError, chunks, logPath, request} from './api.js';

// nextOffset is where a stream goes on behind a part that wasn't kept.
export function nextOffset(error) {
  const cause = error.causes?.find((c) => c.reason === 'NextOffset');
  return cause && /^[0-9]{1,15}$/.test(cause.message) ? Number(cause.message) : undefined;
}

// maxRange bounds what one request asks for.
const maxRange = 8 << 20;

export class Stream {
  #of;

  // of has stream, namespace, name and uid.
  constructor(of) { this.#of = of; }

  get name() { return this.#of.stream; }

  #request(parameters, signal) {
    const {namespace, name, stream, uid} = this.#of;
    return request(logPath(namespace, name), {stream, uid, ...parameters}, signal);
  }

  // size returns how many bytes there are, and the first and the last of those that weren't kept.
  async size(signal) {
    const response = await this.#request({limit: '1'}, signal);
    await response.body?.cancel();
    const missing = /^([0-9]{1,15})-([0-9]{1,15})$/.exec(response.headers.get('Toolcall-Missing') ?? '');
    return {total: Number(response.headers.get('Toolcall-Bytes')), missing: missing ? [Number(missing[1]), Number(missing[2])] : null};
  }

  // follow passes on what is there from an offset, and what comes, and says whether that was the end of the stream.
  async follow(offset, begun, take, signal) {
    const response = await this.#request({offset: String(offset), follow: 'true'}, signal);
    if (Number(response.headers.get('Toolcall-Offset')) !== offset) throw new ApiError(502, {message: 'The answer begins at another offset.'});
    begun();
    let at = offset;
    for await (const chunk of chunks(response, signal)) {
      at += chunk.length;
      take(chunk);
    }
    return response.headers.get('Toolcall-Complete') === 'true' && at >= Number(response.headers.get('Toolcall-Bytes'));
  }

  // range passes on the bytes from start to end, each part with its offset. Those that weren't kept are left out, and told.
  async range(start, end, take, signal, gap = () => {}) {
    for (let at = start; at < end;) {
      const before = at;
      try {
        const response = await this.#request({offset: String(at), limit: String(Math.min(end - at, maxRange))}, signal);
        for await (const chunk of chunks(response, signal)) {
          take(chunk, at);
          at += chunk.length;
        }
      } catch (error) {
        const next = nextOffset(error);
        if (next === undefined || next <= at) throw error;
        gap(at, next - 1);
        at = next;
      }
      if (at <= before) throw new ApiError(502, {message: 'The answer ends before the stream does.'});
    }
  }
}
