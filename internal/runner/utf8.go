package runner

import "unicode/utf8"

// validator checks whether a stream is UTF-8, however it is split.
type validator struct {
	// carry is the beginning of a character at the end of the last write.
	carry   [utf8.UTFMax]byte
	carried int
	invalid bool
}

func (v *validator) write(p []byte) {
	for v.carried > 0 && len(p) > 0 && !v.invalid {
		v.carry[v.carried] = p[0]
		v.carried++
		p = p[1:]
		if c := v.carry[:v.carried]; utf8.FullRune(c) {
			v.invalid = !utf8.Valid(c)
			v.carried = 0
		}
	}
	if v.invalid || len(p) == 0 {
		return
	}
	n := partialEnd(p)
	v.invalid = !utf8.Valid(p[:len(p)-n])
	v.carried = copy(v.carry[:], p[len(p)-n:])
}

// isPartial reports whether the stream ends within a character.
func (v *validator) isPartial() bool { return v.carried > 0 }

// partialEnd returns the length of an incomplete character at the end of p.
func partialEnd(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
