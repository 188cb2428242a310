// Reads lists once, page by page.
import {readObject} from './api.js';
import {fewPage} from './watch.js';

// pages are the answers to a list, of at most so many objects. isLast says that there is no more. Where the objects are too large for a
// page, it goes on with fewer.
export async function* pages(path, parameters, most, signal) {
  for (let read = 0, more = true; read < most && more;) {
    let answer;
    try {
      answer = await readObject(path, parameters, signal);
    } catch (error) {
      if (!error.brokeOff || parameters.limit <= fewPage) throw error;
      parameters = {...parameters, limit: fewPage};
      continue;
    }
    read += parameters.limit;
    more = Boolean(answer.metadata?.continue);
    parameters = {...parameters, continue: answer.metadata?.continue};
    yield {answer, isLast: !more};
  }
}

// rows are those of a table, each as an object with the values of its columns, and of its metadata, which may be large, what is needed.
export function rows(answer) {
  const names = (answer.columnDefinitions ?? []).map((column) => column.name);
  return (answer.rows ?? []).map(({cells, object}) => {
    const {uid, namespace, name, creationTimestamp} = object?.metadata ?? {};
    return {...Object.fromEntries(names.map((column, at) => [column, cells[at]])), metadata: {uid, namespace, name, creationTimestamp}};
  });
}
