// Keeps a view equal to what the API server has: lists, then watches, and lists again when the watch can't go on.
import {ApiError, Backoff, events, readObject, request} from './api.js';

// maxObjects bounds what a view lists.
export const maxObjects = 2000;

// maxPage bounds the objects of one answer, and fewPage those of one where their metadata is as large as it may be: the console
// breaks longer answers off.
const maxPage = 500;
export const fewPage = 40;

// maxLabels bounds the labels that are kept of an object.
const maxLabels = 32;

// rowOf has what is needed of a row: its metadata may be large.
function rowOf({cells, object}) {
  const {uid, namespace, name, creationTimestamp, resourceVersion, labels} = object?.metadata ?? {};
  const few = Object.fromEntries(Object.entries(labels ?? {}).slice(0, maxLabels));
  return {cells, object: {metadata: {uid, namespace, name, creationTimestamp, resourceVersion, labels: few}}};
}

// items are the objects, or the rows of a table, that an answer or an event has.
function items(answer) {
  if (answer.kind === 'Table') return (answer.rows ?? []).map(rowOf);
  return answer.items ?? [answer];
}

export function metadataOf(item) { return item.object?.metadata ?? item.metadata ?? {}; }

// tellColumns tells the view of a table's columns, where it names them: the first of a watch does, and they may have changed.
function tellColumns(table, view) {
  if (table.columnDefinitions?.length) view.columns(table.columnDefinitions.map((column) => column.name));
}

// list reads all pages, and returns where a watch goes on.
async function list(path, selector, limit, view, signal) {
  const all = [];
  let parameters = {limit, ...selector};
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
async function follow(path, selector, version, view, backoff, signal) {
  const response = await request(path, {...selector, watch: 'true', resourceVersion: version}, signal);
  backoff.connected();
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

// keep does so until the signal. A view has columns, reset, put, remove, connected, interrupted and failed, which ends when the user
// wants another try.
export async function keep(path, selector, view, signal) {
  const backoff = new Backoff();
  let version = '', limit = maxPage;
  for (;;) {
    try {
      if (!version) version = await list(path, selector, limit, view, signal);
      version = await follow(path, selector, version, view, backoff, signal);
      if (!backoff.lasted()) await backoff.pause(null, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      backoff.lasted();
      if (!version && error.brokeOff) limit = fewPage;
      if (error.code === 410) version = ''; // What the watch would go on from is forgotten.
      else if (error.passing) view.interrupted(error);
      try {
        if (error.code !== 410 && !error.passing) await view.failed(error);
        else await backoff.pause(error, signal);
      } catch {
        return;
      }
    }
  }
}
