package celrules

import (
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	// maxCost is the cost of one expression, as in the API server, and of all expressions for one call.
	maxCost = 1_000_000
	// ExamplesCost is the cost of all evaluations for the examples of a policy.
	ExamplesCost = 4 * maxCost
	// bytesPerCost is how much text is read for a cost of 1, as in CEL's own model.
	bytesPerCost = 10
)

// Sizes of an ordinary call, for which the cost of an expression is estimated.
const (
	usualElements = 32
	usualText     = 256
	usualLongText = 16 << 10
)

// estimator says how large a call is that an expression is estimated for.
type estimator struct{}

// EstimateSize is the size of what isn't in the expression itself.
func (estimator) EstimateSize(of checker.AstNode) *checker.SizeEstimate {
	size := uint64(usualElements)
	if kind := of.Type().Kind(); kind == types.StringKind || kind == types.DynKind {
		size = usualText
	}
	if path := of.Path(); len(path) > 0 {
		switch path[len(path)-1] {
		case "command", "source", "stdin", "content", "contentBase64", "oldString", "newString":
			size = usualLongText
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: size}
}

// EstimateCallCost leaves functions to CEL's own model.
func (estimator) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// tracker charges for the functions whose work CEL's own model underestimates, or measures in characters and not in bytes.
type tracker struct {
	// patterns are the patterns of the expression, with the size of the program of each.
	patterns map[string]uint64
}

// CallCost is the cost of a function; nil where CEL's own model does.
func (t tracker) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	var cost uint64
	switch function {
	case "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_":
		cost = comparison(args[0], args[1])
	case "@in":
		cost = 1 + extent(args[0])/bytesPerCost
		if list, ok := args[1].(traits.Lister); ok {
			cost *= length(list)
		}
	case "size":
		cost = 1
		if text, ok := args[0].(types.String); ok {
			cost += uint64(len(text)) / bytesPerCost
		}
	case "matches":
		text, _ := args[0].(types.String)
		pattern, _ := args[1].(types.String)
		cost = uint64(len(text))/bytesPerCost*t.patterns[string(pattern)] + 1
	default:
		return nil
	}
	return &cost
}

// comparison is the cost of comparing two values: of two texts or lists of texts, what the smaller one takes.
func comparison(a, b ref.Val) uint64 {
	first, isText := a.(types.String)
	second, areTexts := b.(types.String)
	if isText && areTexts {
		return 1 + uint64(min(len(first), len(second)))/bytesPerCost
	}
	return 1 + (extent(a)+extent(b))/bytesPerCost
}

// extent is how much there is to read of a value: the bytes of its texts, and one for all else.
func extent(of ref.Val) uint64 {
	switch v := of.(type) {
	case types.String:
		return uint64(len(v))
	case traits.Lister:
		return 1 + sum(v.Iterator(), func(element ref.Val) uint64 { return extent(element) })
	case traits.Mapper:
		return 1 + sum(v.Iterator(), func(key ref.Val) uint64 { return extent(key) + extent(v.Get(key)) })
	default:
		return 1
	}
}

func sum(all traits.Iterator, size func(ref.Val) uint64) (total uint64) {
	for all.HasNext() == types.True {
		total += size(all.Next())
	}
	return total
}

func length(list traits.Lister) uint64 {
	n, _ := list.Size().(types.Int)
	return uint64(n)
}
