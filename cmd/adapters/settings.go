package adapters

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/spec"
)

// The settings of an adapter are structs with three tags: yaml is what [spec.Settings.Decode] goes by,
// doc is what the schema says, enum lists the values that are allowed.

// decode fills the settings and checks those that have an enum.
func decode(s spec.Settings, out any) error {
	if err := s.Decode(out); err != nil {
		return err
	}
	return checkEnums(s, "", reflect.ValueOf(out).Elem())
}

func checkEnums(s spec.Settings, path string, v reflect.Value) error {
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		field := v.FieldByIndex(f.Index)
		if path != "" {
			name = path + "." + name
		}
		if field.Kind() == reflect.Pointer && !field.IsNil() && field.Elem().Kind() == reflect.Struct {
			if err := checkEnums(s, name, field.Elem()); err != nil {
				return err
			}
		}
		enum := f.Tag.Get("enum")
		if enum == "" || field.String() == "" {
			continue
		}
		if allowed := strings.Split(enum, ","); !slices.Contains(allowed, field.String()) {
			return s.Mistake(name, "%q is none of %s", field.String(), strings.Join(allowed, ", "))
		}
	}
	return nil
}

// told places an error of an adapter's constructor.
func told(s spec.Settings, err error) error {
	text := strings.ReplaceAll(err.Error(), participant.ErrMisconfigured.Error()+": ", "")
	var m spec.Mistakes
	if errors.As(err, &m) {
		return err
	}
	return s.Mistake("", "%s", strings.ReplaceAll(text, "\n", "; "))
}

// schema is the JSON schema of settings.
func schema(settings any) string {
	text, err := json.Marshal(object(reflect.TypeOf(settings)))
	if err != nil {
		panic(fmt.Sprintf("settings %T have no schema: %v", settings, err)) // plain maps always encode
	}
	return string(text)
}

func object(t reflect.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		p := property(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			p["description"] = doc
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			p["enum"] = strings.Split(enum, ",")
		}
		properties[name] = p
		if opts == "required" {
			required = append(required, name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// property is the schema of one setting. What is no text may be a reference to the environment, and
// then it is text in the file.
func property(t reflect.Type) map[string]any {
	reference := map[string]any{"type": "string", "pattern": `\$\{`}
	switch {
	case t == reflect.TypeFor[spec.Secret]():
		one := func(key, doc string) map[string]any {
			return map[string]any{
				"type": "object", "additionalProperties": false, "required": []string{key},
				"properties": map[string]any{key: map[string]any{"type": "string", "description": doc}},
			}
		}
		return map[string]any{"oneOf": []any{
			one("env", "Name of the environment variable that holds the secret."), one("file", "Path of the file that holds the secret."),
		}}
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$|\$\{`}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return property(t.Elem())
	case reflect.Struct:
		return object(t)
	case reflect.Slice:
		return map[string]any{"oneOf": []any{
			map[string]any{"type": "string"},
			map[string]any{"type": "array", "minItems": 1, "items": property(t.Elem())},
		}}
	case reflect.Bool:
		return map[string]any{"oneOf": []any{map[string]any{"type": "boolean"}, reference}}
	case reflect.Int, reflect.Int64:
		return map[string]any{"oneOf": []any{map[string]any{"type": "integer", "minimum": 0}, reference}}
	default:
		return map[string]any{"type": "string"}
	}
}
