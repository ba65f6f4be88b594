package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what the kernel knows of a process. It is known on Linux only.
type Usage struct {
	CPU       time.Duration // user and kernel, since its start; in steps of 10 ms
	RSS, Peak int64         // bytes resident, now and at most
	Own       int64         // of those now, without pages of files, which the kernel takes back when it needs memory
	Written   int64         // bytes that it has caused to be written to storage
}

// ticks of the kernel's clock per second, as /proc tells times on every Linux of today.
const ticks = 100

// UsageOf reads a process's usage; 0 is this process.
func UsageOf(pid int) (u Usage, err error) {
	dir := "/proc/self"
	if pid != 0 {
		dir = "/proc/" + strconv.Itoa(pid)
	}
	var err1 error
	u.CPU, _, err1 = cpuOf(dir)
	rss, err2 := numberIn(dir+"/status", "VmRSS:")
	peak, err3 := numberIn(dir+"/status", "VmHWM:")
	own, err5 := numberIn(dir+"/status", "RssAnon:")
	u.RSS, u.Peak, u.Own = rss<<10, peak<<10, own<<10
	var err4 error
	u.Written, err4 = numberIn(dir+"/io", "write_bytes:")
	return u, errors.Join(err1, err2, err3, err4, err5)
}

// FamilyCPU is what a process has used, with the children that it has now and those that it has waited for. It is known
// on Linux only, in steps of 10 ms for each.
func FamilyCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, fmt.Errorf("list the processes that a process has started: %w", err)
	}
	var sum time.Duration
	for _, child := range strings.Fields(string(text)) { // before the parent: one that ends between is then in its account
		own, waited, err := cpuOf("/proc/" + child)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue
			}
			return 0, err
		}
		sum += own + waited
	}
	own, waited, err := cpuOf("/proc/" + strconv.Itoa(pid))
	return sum + own + waited, err
}

// cpuOf reads what a process has used, user and kernel, and what its children had that it has waited for.
func cpuOf(dir string) (own, waited time.Duration, err error) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read what a process uses: %w", err)
	}
	// The second field is the program's name in parentheses, which may hold spaces.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 15 {
		return 0, 0, fmt.Errorf("read what a process uses: %s/stat has %d fields", dir, len(f))
	}
	var n [4]int64 // user and system, and the same of its children
	for i := range n {
		if n[i], err = strconv.ParseInt(f[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read what a process uses: %s/stat: %w", dir, err)
		}
	}
	return time.Duration(n[0]+n[1]) * time.Second / ticks, time.Duration(n[2]+n[3]) * time.Second / ticks, nil
}

// numberIn finds the number behind a word at the beginning of a line.
func numberIn(path, word string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read what a process uses: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == word {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("read what a process uses: %s has no %s", path, word)
}

// DirBytes is how much the files below a directory hold. What goes while it looks is not counted.
func DirBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
