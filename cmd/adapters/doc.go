// Package adapters makes the sources and sinks that ship with unisink out of what a specification says
// about them, and looks at what they will touch before the pipeline starts.
package adapters
