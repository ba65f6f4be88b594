package main

import "github.com/unisink/unisink/processor"

// settings are what a pipeline's file, and a resolver's, say about a sink.
type settings struct {
	Path  string `yaml:"path,required" doc:"The database's file; made if missing."`
	Table string `yaml:"table,required" doc:"Table with the columns key and value; made if missing."`
}

// newSink touches nothing yet: it is called by `pipeline lint` too.
func newSink(in settings) (processor.Sink, error) {
	s, err := NewSink(in.Path, in.Table)
	if err != nil {
		return nil, err
	}
	return s, nil
}
