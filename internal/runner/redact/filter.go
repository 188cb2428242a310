package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// The ways in which the automaton reads a text, as the filter tells them apart. In spaced, a + is a space. base64 is three,
// by the phase of the value.
const (
	plain = iota
	spaced
	hexadecimal
	base64Phase0
	base64Phase1
	base64Phase2
	kinds
)

const (
	// window is how many characters of an occurrence the filter knows: the first ones that don't depend on neighbours.
	window = 8
	// gram is how many bytes the filter looks at, stride the distance of two looks. A window has at least one of them.
	gram   = 4
	stride = window - gram + 1
	// fold makes letters lower case. It maps other bytes on each other too, which costs a filter nothing but precision.
	fold = 0x20202020
)

const (
	hashBits   = 17
	hintBits   = 14
	windowBits = 14
)

// filter tells where an occurrence can begin.
type filter struct {
	// has tells whether hints has something, in a table that stays in the cache.
	has [1 << hashBits / 64]uint64
	// hints has one bit for each kind, and each distance from the beginning of the window, for the first bits of the hash of
	// four bytes. Lower bits are for windows that begin earlier.
	hints [1 << hintBits]uint32
	// windows tells whether something begins with eight characters.
	windows [1 << windowBits / 64]uint64
	// uses says of each byte whether a window can have it.
	uses [256]use
	// first has the first bits of the values: two, four, six.
	first [7]uint64
}

// use says where a byte that an escape stands for can be in an occurrence.
type use uint8

const (
	// notInWindow is for bytes that no window has.
	notInWindow use = iota
	// partOfOther is for those that no window has, but line ends between its digits, or longer escapes.
	partOfOther
	inWindow
)

func newFilter() *filter {
	f := &filter{}
	f.uses['\n'], f.uses['\r'], f.uses['\\'] = partOfOther, partOfOther, partOfOther
	for c := range f.uses {
		if base64Digits[c] != noDigit {
			f.uses[c] = inWindow
		}
	}
	return f
}

// hintsOf returns what the filter knows of four characters: 0 for nothing.
func (f *filter) hintsOf(word uint32) uint32 {
	h := hash(word | fold)
	if f.has[h/64]>>(h%64)&1 == 0 {
		return 0
	}
	return f.hints[h>>(hashBits-hintBits)]
}

func gramOf(text []byte) uint32 { return binary.LittleEndian.Uint32(text) }

func hash(folded uint32) uint32 { return folded * 0x9E3779B1 >> (32 - hashBits) }

func (f *filter) add(text []byte) {
	head := text[:MinLength]
	f.addWindow(plain, head)
	if bytes.IndexByte(head, ' ') >= 0 {
		f.addWindow(spaced, head)
	}
	f.addWindow(hexadecimal, []byte(hex.EncodeToString(head)))
	for phase, skip := range [...]int{0, 2, 3} {
		padded := append(make([]byte, phase), head...)
		f.addWindow(base64Phase0+phase, []byte(base64.StdEncoding.EncodeToString(padded))[skip:])
	}
	for _, n := range []int{2, 4, 6} {
		f.first[n] |= 1 << (head[0] >> (8 - n))
	}
}

// mayHaveRune reports whether a window, a line end or a longer escape can have a byte
// of a rune below 0x10000.
func (f *filter) mayHaveRune(r rune) bool {
	last := f.uses[0x80|r&0x3F]
	switch {
	case r < 0x80:
		return f.uses[r&0x7F] != notInWindow
	case r < 0x800:
		return f.uses[0xC0|r>>6]|last != notInWindow
	default:
		return f.uses[0xE0|r>>12]|f.uses[0x80|r>>6&0x3F]|last != notInWindow
	}
}

// skip returns how far the first sample is that tells of something, or that has less than a window after it. It looks at
// three samples at a time.
func (f *filter) skip(text []byte) int {
	rest := text
	for len(rest) >= 2*stride+window {
		a := hash(binary.LittleEndian.Uint32(rest) | fold)
		b := hash(binary.LittleEndian.Uint32(rest[stride:]) | fold)
		c := hash(binary.LittleEndian.Uint32(rest[2*stride:]) | fold)
		if (f.has[a/64]>>(a%64)|f.has[b/64]>>(b%64)|f.has[c/64]>>(c%64))&1 != 0 {
			break
		}
		rest = rest[3*stride:]
	}
	for len(rest) >= window {
		h := hash(binary.LittleEndian.Uint32(rest) | fold)
		if f.has[h/64]>>(h%64)&1 != 0 {
			break
		}
		rest = rest[stride:]
	}
	return len(text) - len(rest)
}

// windowHash treats characters alike that stand for the same.
func windowHash(kind int, text []byte) uint64 {
	head := binary.LittleEndian.Uint64(text)
	switch kind {
	case plain:
	case spaced:
		head &^= eachByte * (' ' ^ '+')
	case hexadecimal:
		head |= fold<<32 | fold
	default:
		head = base64Window(text)
	}
	return (head ^ uint64(kind)) * 0x9E3779B97F4A7C15 >> (64 - windowBits)
}

const eachByte = 0x0101010101010101

func base64Window(text []byte) (head uint64) {
	for _, c := range text[:window] {
		head = head<<8 | uint64(base64Digits[c])
	}
	return head
}

func (f *filter) hasWindow(kind int, text []byte) bool {
	h := windowHash(kind, text)
	return f.windows[h/64]>>(h%64)&1 != 0
}

// digitHints are the hints of all kinds but plain and spaced.
const digitHints = uint32(1<<(stride*kinds)-1) &^ (textKinds | textKinds<<kinds | textKinds<<(2*kinds) | textKinds<<(3*kinds) | textKinds<<(4*kinds))

const textKinds = 1<<plain | 1<<spaced

func (f *filter) addWindow(kind int, text []byte) {
	h := windowHash(kind, text)
	f.windows[h/64] |= 1 << (h % 64)
	for at := range stride {
		hint := uint32(1) << ((stride-1-at)*kinds + kind)
		f.addGram(hint, 0, text[at:at+gram])
	}
	for _, c := range text[:window] {
		f.uses[c] = inWindow
	}
}

// addGram adds a gram with each character as it can be written: in either alphabet of base64, or with + for a space. folded
// has those that are decided.
func (f *filter) addGram(hint, folded uint32, rest []byte) {
	if len(rest) == 0 {
		h := hash(folded)
		f.has[h/64] |= 1 << (h % 64)
		f.hints[h>>(hashBits-hintBits)] |= hint
		return
	}
	letters := rest[:1]
	switch {
	case hint&digitHints != 0 && rest[0] == '+':
		letters = []byte("+-")
	case hint&digitHints != 0 && rest[0] == '/':
		letters = []byte("/_")
	case hint&digitHints == 0 && rest[0] == ' ':
		letters = []byte(" +")
	}
	for _, c := range letters {
		shift := 8 * (gram - len(rest))
		f.addGram(hint, folded|uint32(c|fold&0xFF)<<shift, rest[1:])
	}
}

// noDigit is in the tables of digits for characters that are none.
const noDigit = 0xFF

var hexDigits, base64Digits = digits("0123456789abcdef", "0123456789ABCDEF"), digits(
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

func digits(alphabets ...string) (table [256]byte) {
	for i := range table {
		table[i] = noDigit
	}
	for _, alphabet := range alphabets {
		for i, c := range []byte(alphabet) {
			table[c] = byte(i)
		}
	}
	return table
}
