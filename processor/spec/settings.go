package spec

// Settings are an adapter's part of the specification, with places for messages.
type Settings struct {
	// File and At say where they stand.
	File string
	At   Pos

	path   string
	node   *node
	lookup func(name string) (string, bool)
}
