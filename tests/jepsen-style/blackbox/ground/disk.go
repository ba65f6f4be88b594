package ground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Disk is a directory on a file system of its own; without disks it is a plain directory.
type Disk struct {
	g    *Ground
	name string
	dir  string
}

// filler takes the space of a full disk.
const filler = ".filler"

// bytesPerFile is for how many files a disk has room: transfers make many small ones.
const bytesPerFile = "8192"

// AddDisk makes and mounts a disk of some bytes. The journal is written every five minutes and not
// before unless somebody syncs, so that what was not synced is lost with the power.
func (g *Ground) AddDisk(ctx context.Context, label string, bytes int64) (*Disk, error) {
	d := &Disk{g: g, name: label, dir: filepath.Join(g.dir, label)}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make disk %s: %w", label, err)
	}
	g.disks = append(g.disks, d)
	if !g.able.Disks {
		return d, nil
	}
	f, err := os.Create(d.image())
	if err != nil {
		return nil, fmt.Errorf("make the image of disk %s: %w", label, err)
	}
	if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
		return nil, fmt.Errorf("make the image of disk %s: %w", label, err)
	}
	if err := g.command(ctx, "mkfs.ext4", "-q", "-m", "0", "-i", bytesPerFile, "-E", "lazy_itable_init=1,nodiscard", d.image()); err != nil {
		return nil, err
	}
	return d, d.mount(ctx)
}

func (d *Disk) image() string { return d.dir + ".img" }

// Dir is where it is mounted.
func (d *Disk) Dir() string { return d.dir }

func (d *Disk) mount(ctx context.Context) error {
	return d.g.command(ctx, "mount", "-o", "loop,commit=300,noatime,noinit_itable", d.image(), d.dir)
}

// Fill leaves no room on the disk. Whoever writes sees ENOSPC until Empty.
func (d *Disk) Fill() (err error) {
	f, err := os.OpenFile(filepath.Join(d.dir, filler), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill disk %s: %w", d.name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// The large part at once, the crumbs by writing.
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &st); err != nil {
		return fmt.Errorf("look at the room on disk %s: %w", d.name, err)
	}
	size := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // its type is another on other machines
	if err := allocate(f, size*9/10); err != nil {
		return fmt.Errorf("fill disk %s: %w", d.name, err)
	}
	if _, err := f.Seek(size*9/10, 0); err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return fmt.Errorf("fill disk %s: %w", d.name, err)
		}
	}
}

// Empty gives the room back.
func (d *Disk) Empty() error {
	if err := os.Remove(filepath.Join(d.dir, filler)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("empty disk %s: %w", d.name, err)
	}
	return nil
}

// PowerOff loses everything that was not synced: no write, of the journal neither, reaches the disk
// any more, and every access fails.
func (d *Disk) PowerOff() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("cut the power of disk %s: %w", d.name, err)
	}
	if err := errors.Join(shutdown(f), f.Close()); err != nil {
		return fmt.Errorf("cut the power of disk %s: %w", d.name, err)
	}
	return nil
}

// PowerOn mounts the disk anew, which replays its journal, after a look at it that mends nothing.
// Nobody may have anything open on it.
func (d *Disk) PowerOn(ctx context.Context) error {
	if err := d.g.command(ctx, "umount", d.dir); err != nil {
		return err
	}
	return d.mount(ctx)
}

// clearDisks unmounts whatever is mounted below the slot's directory. The loop devices go with it.
func (g *Ground) clearDisks(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/mounts")
	if errors.Is(err, os.ErrNotExist) {
		return nil // not a Linux
	}
	if err != nil {
		return fmt.Errorf("look at what is mounted: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], g.dir+string(filepath.Separator)) {
			if err := g.command(ctx, "umount", f[1]); err != nil {
				// Something still has a file open: the mount goes with it.
				errs = append(errs, g.command(ctx, "umount", "--lazy", f[1]))
			}
		}
	}
	return errors.Join(errs...)
}
