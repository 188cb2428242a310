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

// badge is a word for a state, with the colour and the shape of a class.
export function badge(className, word) { return element('span', `badge ${className}`, word); }

const shown = new WeakMap();

// isNew says whether what an element shows differs from what it was asked to show before. What stays the same keeps its focus.
export function isNew(into, ...what) {
  const state = JSON.stringify(what);
  if (shown.get(into) === state) return false;
  shown.set(into, state);
  return true;
}

// copied is text to copy: a command, with a button.
export function copied(text) {
  const code = element('code', 'text', text);
  const copy = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = 'Copied';
    } catch {
      // Without TLS, browsers have no clipboard: the text is selected then.
      getSelection().selectAllChildren(code);
      copy.textContent = 'Selected';
    }
  });
  copy.setAttribute('aria-label', `Copy: ${code.textContent}`);
  return element('div', 'copied', code, copy);
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

// table has a head and rows of cells, each with the name of its column, for pages that are too narrow for a table. A number is written to
// the right of its column.
export function table(names, rows) {
  const head = element('tr', '', ...names.map((name) => Object.assign(element('th', '', name), {scope: 'col'})));
  const row = (cells) => element('tr', '', ...cells.map((cell, i) => {
    const made = element('td', typeof cell === 'number' ? 'number' : 'text', cell);
    made.dataset.name = names[i];
    return made;
  }));
  return element('table', 'table', element('thead', '', head), element('tbody', '', ...rows.map(row)));
}
