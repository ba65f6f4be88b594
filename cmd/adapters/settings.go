package adapters

import (
	"errors"
	"strings"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/spec"
)

// told places an error of an adapter's constructor.
func told(s spec.Settings, err error) error {
	text := strings.ReplaceAll(err.Error(), participant.ErrMisconfigured.Error()+": ", "")
	var m spec.Mistakes
	if errors.As(err, &m) {
		return err
	}
	return s.Mistake("", "%s", strings.ReplaceAll(text, "\n", "; "))
}
