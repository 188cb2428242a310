// Package redact replaces known values in bytes that leave a call by a mark, [redacted: NAME].
//
// Its input is a list of values with their names, and text in writes of any size. It guards against accidents: whoever wants to print
// a value in another way can. It is no wall.
//
// What is looked for. Each value of 8 bytes and more, without line ends around it, is expanded once into its forms, without other white
// space around it if 8 bytes are left:
//
//   - as it stands, with either line end between its lines;
//   - its lines of 8 bytes and more, without white space around them, but for the first and the last of a key in PEM;
//   - base64 and base64url, at each of the three positions of the value in a longer text: the characters that the value alone
//     decides, so that up to 4 bits at each edge stay;
//   - base64 of the value alone in lines of 76 and of 64 characters, as programs wrap it, and those of these lines that have 8 and more;
//   - hexadecimal digits in both cases;
//   - percent-encoded, with the digits in both cases: as encodeURIComponent, encodeURI, the password of a URL, forms of HTML, Python's
//     quote, and Go's QueryEscape, PathEscape and UserPassword do, and with every byte encoded; a space also as +;
//   - escaped as in a string of JSON, with <, > and &, the slash, and what isn't ASCII as it stands or escaped, digits in both cases; also
//     with the other signs that Java's Gson and .NET escape, and with double quotes as they stand.
//
// Names of hosts have lost the case of their letters: HostText finds each form in any case, of values that such a name has room for, and
// also as Go quotes it, once or twice.
//
// Other encodings pass, and so do two encodings in each other, a part of a value, and a value with something between its bytes. Nothing
// is recognized by its shape. Forms that overlap become one mark, with the name of the one that stands for most bytes.
//
// Invariants:
//   - text without a form passes unchanged;
//   - a stream holds back the end of the text that can be the beginning of a form, and nothing else: from one byte of a value as it
//     stands, and from two of another form. So the first character of such a form stays before the mark where a write ends just
//     after it. What is held back waits for more text or for the end of the stream: there is no time limit, as one would let a slow
//     writer print a value in pieces;
//   - apart from such edges, how the text is divided into writes doesn't change what is replaced;
//   - for foreign values, which the writer of the text wasn't given, nothing is held back because of what they are: a stream with
//     such values holds back the last line until it ends, at most its last 64 KiB or as much as the longest form of such a value,
//     and decides everything before. Otherwise the writer could print guesses and see which are held back. A foreign form of several
//     lines is found whole where all of it is in what is decided at once, and else line by line, without lines of less than 8 bytes;
//   - time is linear in the text, however small the writes are and however many forms begin alike. Forms with other beginnings that are
//     within each other are compared each by itself;
//   - memory is linear in the values: for each byte of a value 60 to 150 bytes, twice that for a value that the name of a host has room
//     for, and up to 1000 where most bytes are escaped and the value repeats itself; for a stream, twice what it holds back;
//   - no value is in an error, or in what any type of this package prints.
//
// How it works. A form has 8 bytes or more. A filter looks at four bytes of the text in five, and knows which of them are among the first
// eight of a form; a map has these eight. Only where both know the text, it is compared with the tree of the forms that begin so, from
// what they have in common on. Where a form begins within itself, what the text has in common with it there is known from before.
//
// The package must not import anything but the standard library: it is part of the first process of every pod. It must not
// log, and must not keep a value longer than its Matcher.
package redact
