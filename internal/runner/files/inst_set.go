package files

import (
	"encoding/binary"
	"math/bits"
)

// instSet is a set of instructions of a program, a bit for each.
type instSet []uint64

func newInstSet(size int) instSet { return make(instSet, (size+63)/64) }

func (s instSet) clear() { clear(s) }

func (s instSet) has(pc uint32) bool { return s[pc/64]&(1<<(pc%64)) != 0 }

// add adds an instruction, and says whether it is new.
func (s instSet) add(pc uint32) bool {
	isNew := !s.has(pc)
	s[pc/64] |= 1 << (pc % 64)
	return isNew
}

// encode appends the instructions in their order, each as its distance from the one before.
func (s instSet) encode(to []byte) []byte {
	last := 0
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			pc := 64*i + bits.TrailingZeros64(word)
			to = binary.AppendUvarint(to, uint64(pc-last))
			last = pc
		}
	}
	return to
}

// decodeInstructions appends the instructions that encode wrote.
func decodeInstructions(to []uint32, encoded string) []uint32 {
	data, last := []byte(encoded), uint64(0)
	for len(data) > 0 {
		distance, n := binary.Uvarint(data)
		last += distance
		to = append(to, uint32(last))
		data = data[n:]
	}
	return to
}
