package approval

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gowebpki/jcs"
)

// canonical is the one JSON text of a value by RFC 8785.
func canonical(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	text, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("write canonical JSON: %w", err)
	}
	return text, nil
}

// generic is a value as the maps, lists and scalars that its JSON has, with numbers as they are written.
func generic(value any) (any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, fmt.Errorf("unmarshal: %w", err)
	}
	return decoded, nil
}
