package tools

import (
	"bytes"
	"encoding/json"
	"strings"
)

// isBlank reports whether a value is a text with nothing in it.
func isBlank(raw json.RawMessage) bool {
	text, isText := textOf(raw)
	return isText && strings.TrimSpace(text) == ""
}

// isNoObject reports whether a value that is meant to be an object is a list with nothing in it: some clients, such as those in PHP, write
// an object without fields so. Where a text is meant, it is a mistake, which could empty a file.
func isNoObject(raw json.RawMessage) bool {
	var list []json.RawMessage
	return unmarshal(raw, &list) && list != nil && len(list) == 0
}

// unmarshal decodes a value, also one that is written as a text with JSON in it, as models write numbers, lists and objects.
func unmarshal(raw json.RawMessage, out any) bool {
	if json.Unmarshal(raw, out) == nil {
		return true
	}
	text, ok := textOf(raw)
	return ok && strings.TrimSpace(text) != "null" && json.Unmarshal([]byte(text), out) == nil
}

// textOf returns a value that is a string.
func textOf(raw json.RawMessage) (text string, ok bool) {
	var decoded *string
	if json.Unmarshal(raw, &decoded) != nil || decoded == nil {
		return "", false
	}
	return *decoded, true
}

// kind names the JSON type of a value for a message.
func kind(raw json.RawMessage) string {
	switch raw := bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "a string"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list"
	case raw[0] == 't', raw[0] == 'f':
		return "true or false"
	case raw[0] == 'n':
		return "null"
	default:
		return "a number"
	}
}
