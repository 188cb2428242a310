// The head of a session's calls in the list: how many there are of each outcome, and when they ran.
import {badge, button, element} from './dom.js';
import {outcomes} from './outcome.js';
import {timeline} from './rows.js';
import {milliseconds, safeLine} from './text.js';
import {columns} from './row.js';

// makeHead makes the row of a group, with a button that folds it.
export function makeHead(group, isFolded, fold, now) {
  const counts = Object.entries(outcomes).map(([outcome, {word, class: of}]) => [group.entries.filter((e) => e.outcome === outcome).length, of, word])
    .filter(([count]) => count > 0).map(([count, of, word]) => badge(of, `${count} ${word.toLowerCase()}`));
  const name = button(`Session ${group.session}`, fold);
  name.className = 'quiet fold';
  name.setAttribute('aria-expanded', !isFolded);
  const cell = element('td', '', element('div', 'grouphead', name, element('span', 'counts', ...counts), line(group.entries, now)));
  cell.colSpan = columns.length;
  const row = element('tr', 'group', cell);
  row.dataset.session = group.session;
  return row;
}

function line(entries, now) {
  const {whole, pieces} = timeline(entries, now);
  const bar = element('div', 'timeline');
  for (const {entry, left, width} of pieces) {
    const piece = element('span', `piece ${outcomes[entry.outcome].class}`);
    piece.style.left = `${100 * left}%`;
    piece.style.width = `${100 * width}%`;
    piece.title = safeLine(`${entry.summary || entry.name}: ${outcomes[entry.outcome].word}`);
    bar.append(piece);
  }
  const text = `${entries.length} ${entries.length === 1 ? 'call' : 'calls'} over ${milliseconds(Math.round(whole))}`;
  bar.setAttribute('role', 'img');
  bar.setAttribute('aria-label', text);
  return element('span', 'when', bar, element('span', 'note small', text));
}
