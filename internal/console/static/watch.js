// Keeps a view equal to what the API server has: lists, then watches, and lists again when the watch can't go on.
import {ApiError, Backoff, events, readObject, request} from './api.js';

// maxObjects bounds what a view lists.
export const maxObjects = 2000;

// items are the objects, or the rows of a table, that an answer or an event has.
function items(answer) {
  if (answer.kind === 'Table') return answer.rows ?? [];
  return answer.items ?? [answer];
}

export function metadataOf(item) { return item.object?.metadata ?? item.metadata ?? {}; }

// tellColumns tells the view of a table's columns, where it names them: the first of a watch does, and they may have changed.
function tellColumns(table, view) {
  if (table.columnDefinitions?.length) view.columns(table.columnDefinitions.map((column) => column.name));
}

// list reads all pages, and returns where a watch goes on.
async function list(path, selector, view, signal) {
  const all = [];
  let parameters = {limit: 500, ...selector};
  for (;;) {
    const answer = await readObject(path, parameters, signal);
    tellColumns(answer, view);
    all.push(...items(answer));
    const more = answer.metadata?.continue;
    if (!more || all.length >= maxObjects) {
      view.reset(all, Boolean(more));
      return answer.metadata.resourceVersion;
    }
    parameters = {...parameters, continue: more};
  }
}

// follow passes events on until the watch ends, and returns where the next goes on.
async function follow(path, selector, version, view, signal) {
  const response = await request(path, {...selector, watch: 'true', resourceVersion: version}, signal);
  view.connected();
  for await (const event of events(response, signal)) {
    if (event.type === 'ERROR') throw new ApiError(event.object?.code ?? 500, event.object);
    tellColumns(event.object, view);
    for (const item of items(event.object)) {
      const seen = metadataOf(item).resourceVersion;
      if (seen) version = seen;
      if (event.type === 'DELETED') view.remove(item);
      else if (event.type !== 'BOOKMARK') view.put(item);
    }
  }
  return version;
}

// keep does so until the signal. A view has columns, reset, put, remove, connected, interrupted and failed.
export async function keep(path, selector, view, signal) {
  const backoff = new Backoff();
  let version = '';
  for (;;) {
    try {
      if (!version) version = await list(path, selector, view, signal);
      const began = Date.now();
      version = await follow(path, selector, version, view, signal);
      if (Date.now() - began > 1000) backoff.reached();
      else await backoff.pause(null, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (error.code === 410) version = ''; // What the watch would go on from is forgotten.
      else if (!error.passing) return view.failed(error);
      else view.interrupted(error);
      try {
        await backoff.pause(error, signal);
      } catch {
        return;
      }
    }
  }
}
