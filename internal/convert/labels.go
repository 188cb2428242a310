package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// labelRule describes valid names.
const labelRule = "lower-case letters, digits and dashes, at most 63, a letter or digit first and last"

const maxLabel = 63

var labelPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

func isLabel(name string) bool {
	return len(name) <= maxLabel && labelPattern.MatchString(name)
}

func isSubdomain(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if !labelPattern.MatchString(part) {
			return false
		}
	}
	return len(name) <= 253
}

// toLabel turns a name into a valid name, which can be the same for several names.
func toLabel(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9'):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxLabel {
			break
		}
	}
	label := strings.TrimRight(b.String(), "-")
	if label == "" {
		return withHash("environment", name)
	}
	return label
}

// withHash makes a label unique to a name.
func withHash(label, name string) string {
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:4])
	label = strings.TrimRight(label[:min(len(label), maxLabel-len(suffix))], "-")
	return label + suffix
}

// labels assigns each name a unique label. A valid name is its own label. A hash tells names apart that would get the
// same label.
func labels(names []string) map[string]string {
	assigned, taken := map[string]string{}, map[string]bool{}
	for _, name := range names {
		if isLabel(name) {
			assigned[name], taken[name] = name, true
		}
	}
	for _, name := range names {
		if _, ok := assigned[name]; ok || name == "" {
			continue
		}
		label := toLabel(name)
		for salted := name; taken[label]; salted += "#" {
			label = withHash(label, salted)
		}
		assigned[name], taken[label] = label, true
	}
	return assigned
}
