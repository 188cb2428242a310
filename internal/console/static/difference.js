// Compares texts by lines. Without elements.

// maxCells bounds the work: texts with more lines that differ stand as removed and added.
const maxCells = 4_000_000;

// maxLines bounds what is shown: each line becomes an element.
const maxLines = 2000;

// lengths has, for each pair of lines, how many lines the rests of both texts have in common, in the same order.
function lengths(a, b) {
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  return (i, j) => table[i * width + j];
}

function changed(a, b) {
  const made = [];
  const common = a.length * b.length > maxCells ? null : lengths(a, b);
  let i = 0, j = 0;
  while (common && i < a.length && j < b.length) {
    if (a[i] === b[j]) made.push({mark: ' ', text: a[i++]}), j++;
    else if (common(i + 1, j) >= common(i, j + 1)) made.push({mark: '-', text: a[i++]});
    else made.push({mark: '+', text: b[j++]});
  }
  return [...made, ...a.slice(i).map((text) => ({mark: '-', text})), ...b.slice(j).map((text) => ({mark: '+', text}))];
}

// difference is the lines that differ, with a few around them: each has a mark, -, + or a space, and … stands for what is left out.
// It is empty when there is no difference. After very many lines, the last one says how many more differ.
export function difference(before, after, context = 2) {
  const a = before.split('\n'), b = after.split('\n');
  let first = 0, last = 0;
  while (first < a.length && first < b.length && a[first] === b[first]) first++;
  while (last < a.length - first && last < b.length - first && a.at(-1 - last) === b.at(-1 - last)) last++;
  const same = (lines) => lines.map((text) => ({mark: ' ', text}));
  const all = [...same(a.slice(0, first)), ...changed(a.slice(first, a.length - last), b.slice(first, b.length - last)), ...same(a.slice(a.length - last))];
  const near = new Uint8Array(all.length);
  all.forEach(({mark}, at) => { if (mark !== ' ') near.fill(1, Math.max(0, at - context), at + context + 1); });
  const shown = all.flatMap((line, at) => (near[at] ? [line] : at > 0 && near[at - 1] ? [{mark: '…', text: ''}] : []));
  const more = shown.slice(maxLines).filter(({mark}) => mark === '-' || mark === '+').length;
  return more ? [...shown.slice(0, maxLines), {mark: '…', text: `${more} more lines differ`}] : shown;
}
