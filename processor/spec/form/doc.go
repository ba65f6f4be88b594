// Package form reads the form of a specification: YAML whose every value knows its place, the fields of a
// mapping, an adapter's settings, secrets. What it means is not known here.
package form
