package spec

import (
	"time"

	"github.com/unisink/unisink/processor/spec/form"
)

// Document is a specification as it was read: checked for form, with defaults filled in, expressions
// not compiled yet. Whoever reads it from outside ([Parse]) gets the same that [Build] works with.
type Document struct {
	File     string // for messages
	Pipeline Text
	// Version is a part of the fingerprint; raise it when an adapter or function outside changes meaning.
	Version string
	// Epoch is the time between barriers; default 1 s, at least 20 ms.
	Epoch     time.Duration
	KeyGroups uint32
	// StateDir is where state lies that does not fit into a vote; empty: nowhere.
	StateDir string
	// StateKind and StateSettings name an adapter's store instead, for example kafka: {...}; empty: none.
	StateKind     Text
	StateSettings Settings

	Source Source
	Where  Text // CEL, bool; empty: all
	// Map gives records new fields; empty: they stay what they are. After it `rec` is the new record.
	Map    []Field
	Key    Text    // CEL; needed before a window
	Window *Window // nil: records pass through
	// OnError says what becomes of a record that cannot be read, mapped, keyed or aggregated.
	OnError    OnError
	DeadLetter Text // the sink of OnErrorDeadLetter
	Late       Text // the sink of late records; empty: they are counted only
	Sinks      []Sink
}

// What the form of the file is made of; see package form.
type (
	// Pos is a place in the file.
	Pos = form.Pos
	// Text is a value and where it stands.
	Text = form.Text
	// Field is a name and its expression, in the order of the file.
	Field = form.Field
	// Settings are an adapter's part of the specification; it decodes them.
	Settings = form.Settings
	// Secret is what the specification only names.
	Secret = form.Secret
	// Mistake is one thing that is wrong with a specification.
	Mistake = form.Mistake
	// Mistakes are all that was found. It is what [Parse], [Lint], [Build], [Explain] and Settings.Decode return; use errors.As.
	Mistakes = form.Mistakes
)

// Format says how a record's value is read or written.
type Format string

// The formats.
const (
	FormatJSON   Format = "json"   // rec is the object; only the fields that are used are read
	FormatBytes  Format = "bytes"  // rec is the value as it is
	FormatString Format = "string" // rec is the value as text; not UTF-8 is an error of the record
)

// OnError says what becomes of a bad record.
type OnError string

// The ways to treat a bad record.
const (
	OnErrorFail       OnError = "fail"
	OnErrorSkip       OnError = "skip"
	OnErrorDeadLetter OnError = "dead_letter"
)

// Source is where records come from.
type Source struct {
	Name      Text
	Kind      Text // "kafka", "file", ...: the adapter
	Settings  Settings
	Format    Format
	EventTime Text // CEL, Unix milliseconds or timestamp; empty: the record's own timestamp
	Disorder  time.Duration
	// IdleAfter: how long a split may be silent before it holds nothing back; 0: it holds back for ever ("never").
	IdleAfter time.Duration
}

// WindowKind is how windows are laid over event time.
type WindowKind string

// The kinds of windows.
const (
	WindowTumbling WindowKind = "tumbling"
	WindowSliding  WindowKind = "sliding"
	WindowSession  WindowKind = "session"
)

// Window says what is aggregated over which time.
type Window struct {
	ID   Text // of the operator, by which state is kept; default "window"
	Kind WindowKind
	// Size of tumbling and sliding windows; Every: how often a sliding one begins; Gap ends a session.
	Size, Every, Gap time.Duration
	AllowedLateness  time.Duration
	Aggregates       []Field // `count()`, `sum(rec.cents)`, `top_k(rec.product, 3)`, ...
}

// Sink is where results, or late or dead records, go.
type Sink struct {
	Name     Text
	Kind     Text
	Settings Settings
	// Key and Fields are CEL over the result: key, window_start, window_end, update and the aggregates by name;
	// without a window over the record. Empty: the key as it is, and all of them.
	Key    Text
	Format Format
	Fields []Field
	Value  Text // one expression for the whole value, instead of Fields

	formatAt *form.Node // where the format was given; nil: nowhere
}
