// What a decision is about, as elements.
import {difference} from './difference.js';
import {block, element} from './dom.js';
import {asked, indented, strict} from './summary.js';

// differenceOf is the lines that differ, or a sentence that none do.
export function differenceOf(before, after, same) {
  const lines = difference(strict(before), strict(after));
  if (lines.length === 0) return element('p', 'note', same);
  const shown = element('pre', 'difference');
  for (const {mark, text} of lines) {
    const line = element({'-': 'del', '+': 'ins'}[mark] ?? 'span');
    line.textContent = `${mark} ${text}\n`;
    shown.append(line);
  }
  return shown;
}

// requestOf is the action as it was asked for, whole, and what will happen.
export function requestOf(call) {
  const {text, rest} = asked(call.spec);
  return [
    element('h3', '', 'Asked for'), ...[text, rest].filter(Boolean).map((part) => block(strict(part))),
    element('h3', '', 'What will happen'),
    element('p', 'note', 'Long texts, values and input stand as their SHA-256. The content of files that the action reads or runs isn\'t part of this: it may change until then.'),
    block(strict(indented(call.status.approval.summary))),
  ];
}
