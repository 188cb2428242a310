// The elements that the lists and the views of use and policies share.
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
