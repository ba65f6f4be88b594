// Package jsonfield reads a few top-level fields of a JSON object without allocating and without
// building the rest. The whole document is checked: what encoding/json calls invalid is an error
// here too. Of a name that occurs twice the last value counts, as there.
//
// Bytes of strings that are not valid UTF-8 are handed on as they are, where encoding/json replaces them.
package jsonfield
