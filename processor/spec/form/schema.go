package form

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// Object is a part of a JSON schema.
type Object = map[string]any

// Closed is an object without other fields.
func Closed(properties Object, required ...any) Object {
	o := Object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

const durationPattern = `^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`

// DurationSchema is that of a time, with what it is for and its default.
func DurationSchema(what, def string) Object {
	o := Object{"type": []any{"string", "integer"}, "pattern": durationPattern, "minimum": 0, "maximum": 0}
	if what != "" {
		o["description"] = what
	}
	if def != "" {
		o["default"] = def
	}
	return o
}

// SchemaOf is the JSON schema of settings that [Settings.Decode] fills: v is the struct, or a pointer to it.
func SchemaOf(v any) string {
	text, err := json.Marshal(schemaOf(reflect.TypeOf(v)))
	if err != nil { // maps of strings and lists alone
		panic(fmt.Sprintf("form: the schema of %T: %s", v, err))
	}
	return string(text)
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

func schemaOf(t reflect.Type) Object {
	// A reference to the environment may stand for any value.
	reference := Object{"type": "string", "pattern": `\$\{`}
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem())
	case t == secretType:
		return Object{"oneOf": []any{
			Closed(Object{"env": Object{"type": "string", "minLength": 1}}, "env"), Closed(Object{"file": Object{"type": "string", "minLength": 1}}, "file"),
		}, "description": "A secret, by what names it."}
	case t == durationType:
		return Object{"anyOf": []any{DurationSchema("", ""), reference}}
	case reflect.PointerTo(t).Implements(textType):
		return Object{"type": []any{"string", "number", "boolean"}}
	}
	switch t.Kind() {
	case reflect.Struct:
		properties, required := Object{}, []any{}
		for _, s := range settingsOf(t) {
			p := schemaOf(t.FieldByIndex(s.index).Type)
			if len(s.enum) > 0 {
				p = Object{"anyOf": []any{Object{"enum": s.enum}, reference}}
			}
			if s.doc != "" {
				p["description"] = s.doc
			}
			properties[s.name] = p
			if s.required {
				required = append(required, s.name)
			}
		}
		return Closed(properties, required...)
	case reflect.Slice:
		list := Object{"type": "array", "items": schemaOf(t.Elem())}
		if t.Elem().Kind() == reflect.String {
			return Object{"anyOf": []any{list, Object{"type": "string"}}}
		}
		return list
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Bool:
		return Object{"anyOf": []any{Object{"type": "boolean"}, reference}}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Object{"anyOf": []any{Object{"type": "integer"}, reference}}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Object{"anyOf": []any{Object{"type": "integer", "minimum": 0}, reference}}
	case reflect.Float32, reflect.Float64:
		return Object{"anyOf": []any{Object{"type": "number"}, reference}}
	case reflect.String:
		return Object{"type": []any{"string", "number", "boolean"}}
	}
	return Object{}
}
