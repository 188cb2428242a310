package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// The ways in which the automaton reads a text, as the filter tells them apart. base64 is three, by the phase of the value.
const (
	plain = iota
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
	hashBits   = 16
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
	// first has the first bits of the values: two, four, six.
	first [7]uint64
}

// hintsOf returns what the filter knows of four characters.
func (f *filter) hintsOf(text []byte) uint32 {
	return f.hints[hash(binary.LittleEndian.Uint32(text)|fold)>>(hashBits-hintBits)]
}

func hash(folded uint32) uint32 { return folded * 0x9E3779B1 >> (32 - hashBits) }

func (f *filter) add(text []byte) {
	head := text[:MinLength]
	f.addWindow(plain, head)
	f.addWindow(hexadecimal, []byte(hex.EncodeToString(head)))
	for phase, skip := range [...]int{0, 2, 3} {
		padded := append(make([]byte, phase), head...)
		f.addWindow(base64Phase0+phase, []byte(base64.StdEncoding.EncodeToString(padded))[skip:])
	}
	for _, n := range []int{2, 4, 6} {
		f.first[n] |= 1 << (head[0] >> (8 - n))
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
	case hexadecimal:
		head |= fold<<32 | fold
	default:
		var digits [window]byte
		for i := range digits {
			digits[i] = base64Digits[text[i]]
		}
		head = binary.LittleEndian.Uint64(digits[:])
	}
	return (head ^ uint64(kind)) * 0x9E3779B97F4A7C15 >> (64 - windowBits)
}

func (f *filter) hasWindow(kind int, text []byte) bool {
	h := windowHash(kind, text)
	return f.windows[h/64]>>(h%64)&1 != 0
}

// digitHints are the hints of all kinds but plain.
const digitHints = 0x1FFFFFF &^ (1<<plain | 1<<(kinds+plain) | 1<<(2*kinds+plain) | 1<<(3*kinds+plain) | 1<<(4*kinds+plain))

// hasDigits reports whether four characters may be of the digits of a value.
func (f *filter) hasDigits(text []byte) bool {
	return f.hintsOf(text)&digitHints != 0
}

func (f *filter) addWindow(kind int, text []byte) {
	h := windowHash(kind, text)
	f.windows[h/64] |= 1 << (h % 64)
	for at := range stride {
		hint := uint32(1) << ((stride-1-at)*kinds + kind)
		f.addGram(hint, 0, text[at:at+gram], kind >= base64Phase0)
	}
}

// addGram adds a gram with the letters of both alphabets of base64. folded has those that are decided.
func (f *filter) addGram(hint, folded uint32, rest []byte, isBase64 bool) {
	if len(rest) == 0 {
		h := hash(folded)
		f.has[h/64] |= 1 << (h % 64)
		f.hints[h>>(hashBits-hintBits)] |= hint
		return
	}
	letters := []byte{rest[0]}
	if isBase64 && rest[0] == '+' {
		letters = []byte("+-")
	} else if isBase64 && rest[0] == '/' {
		letters = []byte("/_")
	}
	for _, c := range letters {
		shift := 8 * (gram - len(rest))
		f.addGram(hint, folded|uint32(c|fold&0xFF)<<shift, rest[1:], isBase64)
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
