//go:build !linux

package ground

import (
	"errors"
	"os"
)

func shutdown(*os.File) error { return errors.ErrUnsupported }

func allocate(*os.File, int64) error { return errors.ErrUnsupported }
