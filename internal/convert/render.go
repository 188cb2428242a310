package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// render writes the objects as YAML, one document each, without the fields that the API server sets.
func render(objects []any) ([]byte, error) {
	var out bytes.Buffer
	for i, object := range objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		document, err := renderOne(object)
		if err != nil {
			return nil, err
		}
		out.Write(document)
	}
	return out.Bytes(), nil
}

func renderOne(object any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	if fields["spec"], err = withoutEmptyObjects(fields["spec"]); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(fields); err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(escapeUnprintable(data))
}

// escapeUnprintable escapes the characters that are valid in JSON but not in YAML. Both have the same escapes.
func escapeUnprintable(data []byte) []byte {
	var out []byte
	for _, r := range string(data) {
		if (r >= 0x7f && r <= 0x9f) || r == 0xfeff || r == 0xfffe || r == 0xffff {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// withoutEmptyObjects removes structs without values, which JSON encodes as empty objects.
func withoutEmptyObjects(spec json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(spec, &fields); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if string(value) == "{}" {
			delete(fields, name)
		}
	}
	return json.Marshal(fields)
}
