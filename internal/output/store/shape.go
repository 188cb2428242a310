package store

import (
	"errors"
	"slices"

	"toolcall.dev/operator/internal/output"
)

// checkInfo refuses what can't be true of a stream, whoever says it.
func checkInfo(info output.Info) error {
	m := info.Missing
	switch {
	case info.Bytes < 0, m.Start < 0, m.End > info.Bytes && m.End > m.Start:
		return errors.New("the stream's source says what can't be")
	case info.SHA256 != "" && !validHash.MatchString(info.SHA256):
		return errors.New("the stream's source says a sha256 that is none")
	}
	return nil
}

// missing returns the range that isn't kept of a stream: what the source lacks, and the middle of what is above the limit.
func missing(info output.Info, limit int64) span {
	m := span(info.Missing)
	if info.Bytes <= limit {
		return m
	}
	first := limit / 2
	over := span{Start: first, End: info.Bytes - (limit - first)}
	if m.empty() {
		return over
	}
	return span{Start: min(m.Start, over.Start), End: max(m.End, over.End)}
}

// available returns how many bytes from the stream's start on can be stored before its end is known.
func available(info output.Info, limit int64) int64 {
	if m := missing(info, limit); !m.empty() {
		return m.Start
	}
	return info.Bytes
}

// layout returns the parts of a stream in order. Those that are stored already keep their hash, the others have none.
func layout(bytes int64, m span, stored []part) []part {
	if m.empty() {
		m = span{Start: bytes, End: bytes}
	}
	return cut(cut(nil, span{End: m.Start}, stored), span{Start: m.End, End: bytes}, stored)
}

// cut adds the parts of a range, which end at multiples of partBytes. Those that are stored are the first ones of the stream.
func cut(parts []part, r span, stored []part) []part {
	for at := r.Start; at < r.End; {
		p := part{Offset: at, Size: min(partBytes-at%partBytes, r.End-at)}
		if n := int(at / partBytes); n < len(stored) && stored[n].Offset == p.Offset && stored[n].Size == p.Size {
			p = stored[n]
		}
		parts = append(parts, p)
		at = p.end()
	}
	return parts
}

// unused returns the stored parts that a stream doesn't consist of.
func unused(stored, used []part) []part {
	var rest []part
	for _, p := range stored {
		if !slices.Contains(used, p) {
			rest = append(rest, p)
		}
	}
	return rest
}
