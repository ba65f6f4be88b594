package column

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/unisink/unisink/processor/stream"
)

// Raw gives the bytes back that a column holds: those of a column of bytes come as base64, with line breaks.
func (t *Type) Raw(text []byte) ([]byte, error) {
	if t.Kind != Bytes {
		return bytes.Clone(text), nil
	}
	out, err := base64.StdEncoding.AppendDecode([]byte{}, bytes.ReplaceAll(text, []byte{'\n'}, nil))
	if err != nil {
		return nil, fmt.Errorf("bytes: %w", err)
	}
	return out, nil
}

// ReadHeaders reads what a column of [Headers] holds.
func ReadHeaders(text []byte) ([]stream.Header, error) {
	var in []struct {
		Key   string
		Value json.RawMessage
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("the headers: %w", err)
	}
	out := make([]stream.Header, len(in))
	for i, h := range in {
		out[i].Key = h.Key
		var text *string
		var raw struct{ Base64 []byte }
		switch {
		case json.Unmarshal(h.Value, &text) == nil:
			if text != nil {
				out[i].Value = []byte(*text)
			}
		case json.Unmarshal(h.Value, &raw) == nil:
			out[i].Value = raw.Base64
		default:
			return nil, fmt.Errorf("the header %q is neither text nor {\"base64\": ...}", h.Key)
		}
	}
	return out, nil
}
