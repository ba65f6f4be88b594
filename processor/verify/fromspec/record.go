package fromspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

var errText = errors.New("the text is not UTF-8")

// vars are what expressions over a record of the source name.
func (p *Program) vars(r *stream.Record) (map[string]any, error) {
	headers := make(map[ref.Val]ref.Val, len(r.Headers))
	for _, h := range r.Headers {
		headers[types.String(h.Key)] = types.Bytes(bytes.Clone(h.Value))
	}
	vars := map[string]any{
		"key": types.Bytes(bytes.Clone(r.Key)), "headers": types.NewRefValMap(types.DefaultTypeAdapter, headers), "timestamp": types.Int(r.Time),
		"topic": types.String(r.Topic), "partition": types.Int(r.Partition), "offset": types.Int(r.Offset),
	}
	switch p.spec.Format {
	case formatBytes:
		vars["rec"] = types.Bytes(bytes.Clone(r.Value))
	case formatString:
		vars["rec"] = types.String(r.Value)
		if !utf8.Valid(r.Value) {
			vars["rec"] = types.WrapErr(errText)
		}
	default:
		if !p.reads {
			break
		}
		rec, err := object(r.Value)
		if err != nil {
			return nil, err
		}
		vars["rec"] = rec
	}
	return vars, nil
}

// object reads a record. A tombstone is one without fields. Fields that cannot be used are errors where they
// are used and nowhere else.
func object(doc []byte) (ref.Val, error) {
	out := map[ref.Val]ref.Val{}
	if doc != nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(doc, &fields); err != nil {
			return nil, fmt.Errorf("the record is not a JSON object: %w", err)
		}
		if fields == nil {
			return nil, errors.New("the record is not a JSON object")
		}
		for name, text := range fields {
			out[types.String(name)] = field(text)
		}
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, out), nil
}

func field(text []byte) ref.Val {
	if !utf8.Valid(text) {
		return types.WrapErr(errText)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return types.WrapErr(err)
	}
	return fromJSON(v)
}

func fromJSON(v any) ref.Val {
	switch x := v.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(x)
	case string:
		return types.String(x)
	case json.Number:
		return number(string(x))
	case []any:
		list := make([]ref.Val, len(x))
		for i, y := range x {
			list[i] = fromJSON(y)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case map[string]any:
		out := make(map[ref.Val]ref.Val, len(x))
		for k, y := range x {
			out[types.String(k)] = fromJSON(y)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, out)
	}
	return types.NewErr("a %T is no JSON", v)
}

// number: without a fraction and an exponent it is an integer of 64 bits, else a double.
func number(text string) ref.Val {
	if bytes.ContainsAny([]byte(text), ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return types.NewErr("the number %s does not fit into a double", text)
		}
		return types.Double(f)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return types.NewErr("the integer %s does not fit into 64 bits", text)
	}
	return types.Int(n)
}

// keyText is a key as bytes.
func keyText(v ref.Val) (string, error) {
	switch x := v.(type) {
	case types.String:
		return string(x), nil
	case types.Bytes:
		if !utf8.Valid(x) {
			return "", errText
		}
		return string(x), nil
	case types.Int:
		return strconv.FormatInt(int64(x), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(x), 10), nil
	case types.Bool:
		return strconv.FormatBool(bool(x)), nil
	}
	return "", fmt.Errorf("a %s is no key", v.Type().TypeName())
}

// plain is a value as package verify takes it.
func plain(v ref.Val) (any, error) {
	switch x := v.(type) {
	case types.Null:
		return nil, nil //nolint:nilnil // null is a value
	case types.Bool:
		return bool(x), nil
	case types.Int:
		return int64(x), nil
	case types.Uint:
		return new(big.Rat).SetInt(new(big.Int).SetUint64(uint64(x))), nil
	case types.Double:
		return float64(x), nil
	case types.String:
		return string(x), nil
	case types.Bytes:
		return []byte(x), nil
	}
	return toJSON(v)
}

// lift is the opposite of plain.
func lift(v any) (ref.Val, bool) {
	switch x := v.(type) {
	case nil:
		return types.NullValue, true
	case bool:
		return types.Bool(x), true
	case int64:
		return types.Int(x), true
	case float64:
		return types.Double(x), true
	case string:
		return types.String(x), true
	case []byte:
		return types.Bytes(x), true
	case verify.Unknown:
		return nil, false
	}
	return nil, false
}
