package veil_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/unisink/unisink/internal/veil"
)

func TestNothingOfAKeyOrAQuotationIsShown(t *testing.T) {
	for got, want := range map[string]string{
		veil.Key([]byte("foo")): "a key of 3 bytes (SHA-256 begins with 2c26b46b68ffc68f)",
		veil.Key(nil):           "a key of 0 bytes (SHA-256 begins with e3b0c44298fc1c14)",
		veil.Quoted("value \"a\"b\n\" is out of range"):          `value "..." is out of range`,
		veil.Quoted(`half a "quotation`):                         `half a "quotation`,
		veil.Error(&fs.PathError{Path: "p"}, "in short").Error(): "in short",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := veil.Error(fs.ErrExist, "in short"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v is not what it veils", err)
	}
}
