// The elements that the views of approvals, use and policies share.
import {element} from './dom.js';

// head begins a view: its title, and a line that says how far it is.
export function head(title, namespace, into) {
  const state = element('p', 'note', 'Reading…');
  state.id = 'state';
  state.setAttribute('role', 'status');
  into.append(element('h1', '', title, namespace === null ? '' : namespace ? ` in ${namespace}` : ' in all namespaces'), state);
  return state;
}

// section is a part of a view, with a title.
export function section(id, title, ...children) {
  const made = element('section', 'card', element('h2', '', title), ...children);
  made.id = id;
  return made;
}

// named is a table whose cells have the names of their columns, for pages that are too narrow for a table. A cell is an element, or
// text; a number is written to the right of its column.
export function named(names, rows) {
  const body = element('tbody');
  for (const cells of rows) {
    body.append(element('tr', '', ...cells.map((cell, at) => {
      const made = element('td', typeof cell === 'number' ? 'number' : 'text', cell instanceof Node ? cell : String(cell ?? ''));
      made.dataset.name = names[at];
      return made;
    })));
  }
  const column = (name) => {
    const made = element('th', '', name);
    made.scope = 'col';
    return made;
  };
  return element('table', 'table', element('thead', '', element('tr', '', ...names.map(column))), body);
}

// reachable lets the keyboard scroll the texts in an element.
export function reachable(element) {
  for (const text of element.querySelectorAll('pre')) text.tabIndex = 0;
  return element;
}

// redraw replaces what an element has, and leaves the focus on the link or button that had it.
export function redraw(into, ...children) {
  const focused = into.contains(document.activeElement) ? document.activeElement : null;
  const is = focused?.getAttribute('href') ?? focused?.textContent;
  into.replaceChildren(...children);
  if (focused) [...into.querySelectorAll('a, button')].find((one) => (one.getAttribute('href') ?? one.textContent) === is)?.focus({preventScroll: true});
}
