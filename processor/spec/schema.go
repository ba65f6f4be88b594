package spec

import (
	"encoding/json"
	"fmt"

	"github.com/unisink/unisink/processor/spec/form"
)

// object is a part of a JSON schema.
type object = form.Object

// Schema is the JSON schema (draft 2020-12) of specifications that use the adapters, for editors. What it cannot
// say, such as how names go together, [Parse] and [Lint] tell. It panics if an adapter's own schema is no JSON.
func Schema(adapters []Adapter) []byte {
	source := place(object{
		"name":       object{"type": "string", "pattern": form.NamePattern.String(), "maxLength": 32, "default": "source", "description": "The source's name in its pipeline."},
		"format":     formatSchema("How a record's value is read."),
		"event_time": exprSchema("CEL over the record: Unix milliseconds or a timestamp. Without it the record's own timestamp counts."),
		"disorder":   form.DurationSchema("How far a record may be behind the newest one of its split.", "0s"),
		"idle_after": object{"anyOf": []any{object{"const": "never"}, form.DurationSchema("", "")}, "default": "1m", "description": "How long a split may be silent before it holds windows back no longer."},
	}, nil, adapters, func(a Adapter) (bool, string) { return a.Source != nil, a.SourceSchema })
	sink := place(object{
		"name":   object{"type": "string", "pattern": form.NamePattern.String(), "maxLength": 32, "description": "The sink's name in its pipeline."},
		"format": formatSchema("How a result's value is written."),
		"key":    exprSchema("CEL over the result, or without a window over the record: the key."),
		"fields": fieldsSchema("CEL over the result, or without a window over the record: the fields of a JSON object."),
		"value":  exprSchema("CEL for the whole value, instead of fields."),
	}, []any{"name"}, adapters, func(a Adapter) (bool, string) { return a.Sink != nil, a.SinkSchema })
	root := form.Closed(object{
		"pipeline":    object{"type": "string", "pattern": form.NamePattern.String(), "maxLength": 40, "description": "The pipeline's name."},
		"version":     object{"type": []any{"string", "number"}, "description": "A part of the fingerprint: raise it when something outside of this file changes its meaning."},
		"epoch":       form.DurationSchema("The time between barriers, at least 20ms.", "1s"),
		"key_groups":  object{"type": "integer", "minimum": 1, "maximum": 1 << 15, "default": 128, "description": "Fixed when the pipeline is created."},
		"state_dir":   object{"type": "string", "description": "A directory for state that does not fit into a vote, reached by all processes that may run the pipeline."},
		"state_store": place(object{}, nil, adapters, func(a Adapter) (bool, string) { return a.Store != nil, a.StoreSchema }),
		"source":      source,
		"where":       exprSchema("CEL over the record, a boolean: whether it goes on."),
		"map":         fieldsSchema("CEL over the record: the fields of a new record, which takes its place."),
		"key":         exprSchema("CEL over the (mapped) record: by what results are told apart."),
		"window":      windowSchema(),
		"on_error": object{"description": "What becomes of a record that cannot be read, mapped, keyed or aggregated.", "default": "fail", "anyOf": []any{
			object{"enum": []any{"fail", "skip"}},
			form.Closed(object{"dead_letter": object{"type": "string", "description": "The sink that takes it as it came."}}, "dead_letter"),
		}},
		"late":  object{"type": "string", "description": "The sink of records that come after their window."},
		"sinks": object{"type": "array", "minItems": 1, "items": sink},
	}, "pipeline", "source", "sinks")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "unisink pipeline"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil { // maps of strings, numbers and lists alone
		panic(fmt.Sprintf("spec: the schema: %s", err))
	}
	return append(text, '\n')
}

// place is a source or sink: our fields, and exactly one adapter.
func place(properties object, required []any, adapters []Adapter, use func(a Adapter) (bool, string)) object {
	var kinds []any
	for _, a := range adapters {
		can, text := use(a)
		if !can {
			continue
		}
		var schema any = object{}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &schema); err != nil {
				panic(fmt.Sprintf("spec: the schema of adapter %q is not JSON: %s", a.Kind, err))
			}
		}
		properties[a.Kind] = schema
		kinds = append(kinds, object{"required": []any{a.Kind}})
	}
	o := form.Closed(properties, required...)
	if len(kinds) > 0 {
		o["oneOf"] = kinds
	}
	return o
}

func exprSchema(what string) object {
	return object{"type": []any{"string", "boolean", "number"}, "description": what}
}

func fieldsSchema(what string) object {
	return object{"type": "object", "minProperties": 1, "additionalProperties": exprSchema("CEL."), "description": what}
}

func formatSchema(what string) object {
	return object{"enum": []any{"json", "bytes", "string"}, "default": "json", "description": what}
}

func windowSchema() object {
	o := form.Closed(object{
		"id":       object{"type": "string", "pattern": form.NamePattern.String(), "maxLength": 32, "default": "window", "description": "By which the state is kept."},
		"tumbling": form.DurationSchema("Windows of this size, one behind the other.", ""),
		"sliding": form.Closed(object{
			"size": form.DurationSchema("A multiple of every.", ""), "every": form.DurationSchema("How often a window begins.", ""),
		}, "size", "every"),
		"session":          form.DurationSchema("A session ends after so long without a record of its key.", ""),
		"allowed_lateness": form.DurationSchema("How long windows that have fired still take records; not with sessions.", "0s"),
		"aggregate":        fieldsSchema("The aggregates: count(), sum(x), min(x), max(x), avg(x), distinct(x), approx_distinct(x), first(x), last(x), top_k(x, 3), quantile(x, 0.99)."),
	}, "aggregate")
	o["oneOf"] = []any{object{"required": []any{"tumbling"}}, object{"required": []any{"sliding"}}, object{"required": []any{"session"}}}
	return o
}

// SchemaOf is the JSON schema of settings that Decode fills: v is the struct, or a pointer to it.
func SchemaOf(v any) string { return form.SchemaOf(v) }
