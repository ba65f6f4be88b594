package participant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
)

// encode writes a T, and sees that it can be read again: by the time somebody has to it is decided.
func (r *TwoPhaseResource[T]) encode(name BranchName, t T) ([]byte, error) {
	body, err := r.c.Encode(t)
	if err != nil {
		return nil, fmt.Errorf("encode the transaction of %s: %w: %w", name, ErrMisconfigured, err)
	}
	if _, err := r.c.Decode(body); err != nil {
		return nil, fmt.Errorf("the transaction of %s, a %s, is not read back as it was written (%w): set Encode and Decode, or change its type: %w",
			name, reflect.TypeFor[T](), err, ErrMisconfigured)
	}
	return body, nil
}

// read reads the T of a handle as a whole. One that another version of the program has written is no T of this one:
// the service would be asked to confirm or to cancel something else, or nothing, and say that it did.
func (r *TwoPhaseResource[T]) read(h Handle) (T, error) {
	t, err := r.c.Decode(h.Body)
	if err == nil {
		return t, nil
	}
	var none T
	return none, fmt.Errorf("the transaction of %s, as it stands in its handle and in %s, is no %s of this program (%s): run the version that wrote it until nothing "+
		"of it is unfinished, or give this one a Decode that reads it, or, where it is decided, give the branch up with `unisink txn resolve`; nothing was called: %w",
		h.Name, r.journal(), reflect.TypeFor[T](), err.Error(), ErrUndeterminable)
}

// journal names the journal for people.
func (r *TwoPhaseResource[T]) journal() string {
	if named, ok := r.c.Journal.(fmt.Stringer); ok {
		return "journal " + named.String()
	}
	return "the journal of " + r.c.Text
}

// decodeWhole reads JSON that this very type has written, or that reads as if it had. The library skips fields that the
// type does not have, leaves empty those that are missing, and does not mind the case of their names.
func decodeWhole[T any](data []byte) (T, error) {
	var t, none T
	if mutant.On("twophase/read-as-a-whole") {
		err := json.Unmarshal(data, &t)
		return t, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&t); err != nil {
		return none, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return none, errors.New("something follows it")
	}
	again, err := json.Marshal(t)
	if err != nil {
		return none, err
	}
	was, err := anyJSON(data)
	if err != nil {
		return none, err
	}
	is, err := anyJSON(again)
	if err != nil {
		return none, err
	}
	if what := differs(nil, was, is); what != "" {
		return none, errors.New(what)
	}
	return t, nil
}

// anyJSON reads JSON without a type, numbers as they are written.
func anyJSON(data []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// differs says where what was written and what would be written now differ first; "" if nowhere. The order of fields
// means nothing.
func differs(at []string, was, is any) string {
	switch was := was.(type) {
	case map[string]any:
		if is, ok := is.(map[string]any); ok {
			return differsIn(at, was, is)
		}
	case []any:
		is, ok := is.([]any)
		if !ok || len(is) != len(was) {
			break
		}
		for i := range was {
			if what := differs(append(at, fmt.Sprint(i)), was[i], is[i]); what != "" {
				return what
			}
		}
		return ""
	default:
		if was == is {
			return ""
		}
	}
	if len(at) == 0 {
		return "it reads differently here"
	}
	return fmt.Sprintf("%q reads differently here", strings.Join(at, "."))
}

func differsIn(at []string, was, is map[string]any) string {
	for _, k := range slices.Sorted(maps.Keys(was)) {
		field := append(slices.Clone(at), k)
		now, known := is[k]
		if !known {
			return fmt.Sprintf("it has %q, which is unknown here", strings.Join(field, "."))
		}
		if what := differs(field, was[k], now); what != "" {
			return what
		}
	}
	for _, k := range slices.Sorted(maps.Keys(is)) {
		if _, had := was[k]; !had {
			return fmt.Sprintf("it lacks %q", strings.Join(append(slices.Clone(at), k), "."))
		}
	}
	return ""
}
