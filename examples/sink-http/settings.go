package main

import (
	"net/http"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/twophase"
)

// settings are what a pipeline's file, and a resolver's, say about a shop.
type settings struct {
	URL     string `yaml:"url,required" doc:"Where the shop answers: http://shop:8080."`
	Account string `yaml:"account,required" doc:"Whose shop it is, whatever its address."`
	Journal string `yaml:"journal,required" doc:"File that keeps what was begun; its directory exists."`
}

// newSink connects to nothing yet: it is called by `pipeline lint` too.
func newSink(in settings) (processor.Sink, error) {
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	return twophase.New[string](&shop{in.URL, client}, participant.TwoPhaseConfig[string]{
		Kind: "shop", Identity: in.Account, Text: "the shop of " + in.Account, Journal: journal.At(in.Journal),
	})
}
