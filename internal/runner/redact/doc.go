// Package redact replaces known values in bytes that leave a call by a mark, [redacted: NAME].
//
// Its input is a list of values with their names, and text in writes of any size. The output is the text, in which every
// byte that belongs to an occurrence of a value is replaced.
//
// What is an occurrence. A value counts without line ends around it, with either line end between its lines, with its
// white space as a shell leaves it that splits words, and, if it holds %XX, with these decoded. One that isn't UTF-8 counts
// also as programs write it that read it as Latin-1, or that replace what is invalid byte by byte. Each of these occurs
//
//	as                                      on its own  in percent  in JSON  in JSON twice
//	it stands                               yes         yes         yes      yes
//	hexadecimal digits of either case       yes         yes         yes      yes
//	base64 of either alphabet, any phase    yes         yes         yes      yes
//	these digits with line ends among them  yes         yes         yes      no
//
// In percent means that any of the characters are written as %XX, and in what isn't digits also a space as +. In JSON means
// that any are escaped as in a string of JSON, or as Go quotes one. Line ends are \n or \r\n, after any of the digits, but
// not two in a row, and not with white space after them.
//
// Other combinations aren't matched: base64 or hexadecimal digits of what is encoded already, percent-encoding twice,
// percent-encoding and JSON in each other, JSON three times. Nor are other encodings: base32, octal escapes, HTML, UTF-16,
// quotes and backslashes of a shell, hexadecimal digits with something between them, other case; nor a part of a value, or
// its lines with something before each. A test has each of these.
//
// The bytes must be those of the value: nothing is recognized by its shape. A character of base64 that has bits of the
// value and of a neighbour is replaced too: no bit of the value stays, but for the edges below. Occurrences that overlap
// become one mark, with the name of the longest among them, in the bytes of the value; of those that are as long the one
// that begins first, then the one that is first in the list.
//
// Invariants:
//   - text without an occurrence passes unchanged;
//   - a stream holds back the longest end of the text that can be the beginning of an occurrence, and nothing else. An
//     escape sequence that isn't complete can be one. What is held back waits for more text or for the end of the stream:
//     there is no time limit, as one would let a slow writer print a value in pieces;
//   - a beginning counts from one byte of a value in plain text, from two in digits, and from three in digits with line ends
//     among them. Most lines end with the digits of one byte of some value, and a reader waits for such a line. This gives
//     up the edge of an occurrence when a write ends just there: at most two bytes of a value, and the bits that the next
//     character has, stay before the mark. Everything after them is replaced;
//   - apart from such edges, how the text is divided into writes doesn't change what is replaced. Occurrences that overlap
//     are several marks if a write ends among them;
//   - for foreign values, which the writer of the text wasn't given, nothing is held back because of what they are: a stream
//     with such values holds back the last line until it ends, at most its last 64 KiB, and decides everything before.
//     Otherwise the writer could print guesses and see which are held back, and so get a value piece by piece;
//   - time is linear in the text, whatever the text and the values, and memory is bounded by the values: 20 bytes for each
//     byte of a value and of its other forms, and for a stream what it holds back, in each decoded form;
//   - no value is in an error, or in what any type of this package prints.
//
// A foreign value of several lines is found whole where all of it is in one write, unless it is escaped, and what ends the
// write may begin an escape. If it comes line by line, each of its lines of 16 bytes and more counts by itself, without white
// space around it and unless it is the first or the last of a key in PEM; shorter lines pass, and so do lines of digits,
// until the value is complete. What is left of the value then is replaced. A whole guess of a foreign value, or of one such
// line, is confirmed by its mark.
//
// How it works. An Aho-Corasick automaton has all the values. It reads the text along several lanes: the text itself, the
// same with + as a space, its hexadecimal digits at two alignments, and its base64 at four. A filter finds where a lane must
// be read at all: it looks at four bytes in five, which tells whether the first eight characters of an occurrence, its
// window, can be there. Each state of the automaton knows how much of it begins a value that isn't foreign, so that holding
// back can't depend on the others.
//
// Escapes, and line ends between digits, are decoded only where an occurrence can have them, into segments of further texts,
// layers, which are read in the same way. If the first escape of an occurrence is after its window, a lane has come to it. If
// it is in the window, the filter tells. Escapes that stand for what no window has are skipped. For each of the others, the
// last bytes before it are kept decoded: four bytes of a window end with its last escape, or are the four characters after
// that. Only where the filter knows these, the escapes near by are looked at again, for the first one of the window: four
// characters of the window are before it, or four begin with it or follow it.
//
// The package must not import anything but the standard library: it is part of the first process of every pod. It must not
// log, and must not keep a value longer than its Matcher.
package redact
