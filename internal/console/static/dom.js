// Makes elements. Text gets into the page here, as text, and nowhere as markup.
import {safe, safeLine} from './text.js';

// element makes an element with a class, and with children: other elements, or text on one line.
export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const child of children) {
    if (child === null || child === undefined || child === '') continue;
    made.append(child instanceof Node ? child : safeLine(child));
  }
  return made;
}

// block is preformatted text of several lines.
export function block(text) {
  const made = document.createElement('pre');
  made.textContent = safe(text);
  return made;
}

// link leads to another view of this page.
export function link(text, ...route) {
  const made = element('a', '', text);
  made.setAttribute('href', '#/' + route.map(encodeURIComponent).join('/'));
  return made;
}

export function button(text, onClick) {
  const made = element('button', '', text);
  made.type = 'button';
  made.addEventListener('click', onClick);
  return made;
}

// phase is a word that is one of few; any other gets no color.
export function phase(word) {
  return element('span', 'phase' + (/^[A-Za-z]{1,30}$/.test(word) ? ' phase-' + word : ''), word);
}

// fields is a list of names and values. Those without a value are left out.
export function fields(pairs) {
  const list = element('dl');
  for (const [name, value] of pairs) {
    if (value === undefined || value === null || value === '') continue;
    list.append(element('dt', '', name));
    list.append(value instanceof Node ? element('dd', '', value) : element('dd', 'text', String(value)));
  }
  return list;
}

// table has a head and rows of cells.
export function table(names, rows = []) {
  const body = element('tbody');
  for (const cells of rows) body.append(element('tr', '', ...cells.map((cell) => element('td', 'text', cell))));
  return element('table', 'table', element('thead', '', element('tr', '', ...names.map((name) => element('th', '', name)))), body);
}
