package ground

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the kernel calls EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH.
const (
	ext4Shutdown = 0x8004587d
	noLogFlush   = 2
)

func shutdown(f *os.File) error {
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, noLogFlush); err != nil {
		return fmt.Errorf("shut the file system down: %w", err)
	}
	return nil
}

func allocate(f *os.File, bytes int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, bytes) }
