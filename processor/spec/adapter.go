package spec

import (
	"log/slog"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/state"
)

// Adapter makes sources and sinks of one kind from what the specification says about them.
type Adapter struct {
	// Kind is the key in the specification: "kafka".
	Kind string
	// Source and Sink make one; nil: the kind has none. They open and connect to nothing, since Lint calls
	// them too. Errors should come from Settings, which knows the lines.
	Source func(e Env, name string, s Settings) (processor.Source, error)
	Sink   func(e Env, name string, s Settings) (processor.Sink, error)
	// Store makes a store for state; nil: the kind has none. It connects to nothing before the first call. One
	// that has a Close is closed with the pipeline.
	Store func(e Env, s Settings) (state.Store, error)
	// Places names what a source reads or a sink writes to, for people: "topic orders at k1:9092". A sink
	// that shares one with the source is a cycle, and with another sink a mistake. Nil: not known.
	Places func(e Env, source bool, s Settings) []string
	// Shares says of the sinks a and b, a before b, whether what an epoch writes to both is one branch, from what is
	// written alone: nothing is connected to, and no reference is looked up. Nil: each sink has its own.
	Shares func(a, b Settings) Sharing
	// SourceSchema, SinkSchema and StoreSchema are JSON schemas (draft 2020-12, objects) of the settings; empty: anything.
	SourceSchema, SinkSchema, StoreSchema string
}

// Sharing says whether two sinks share their branches.
type Sharing uint8

// What can be known of it before anything is connected to.
const (
	OwnBranch    Sharing = iota // each has its own
	SharedBranch                // one for both
	MayShare                    // one for both if what they refer to turns out to be one
)

// Env is what adapters get to know of the process.
type Env struct {
	Logger *slog.Logger
	// Lookup finds environment variables; os.LookupEnv.
	Lookup func(name string) (string, bool)
}
