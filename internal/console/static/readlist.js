// Reads lists once, page by page.
import {readObject} from './api.js';

// pages are the answers to a list, at most so many. isLast says that there is no more.
export async function* pages(path, parameters, most, signal) {
  for (let page = 0, more = true; page < most && more; page++) {
    const answer = await readObject(path, parameters, signal);
    more = Boolean(answer.metadata?.continue);
    parameters = {...parameters, continue: answer.metadata?.continue};
    yield {answer, isLast: !more};
  }
}

// rows are those of a table, each as an object with the values of its columns and its metadata.
export function rows(answer) {
  const names = (answer.columnDefinitions ?? []).map((column) => column.name);
  return (answer.rows ?? []).map(({cells, object}) => ({...Object.fromEntries(names.map((name, at) => [name, cells[at]])), metadata: object?.metadata ?? {}}));
}
