package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// scan finds the files and directories to be synced.
func (f *streamFiles) scan() (map[string]fs.FileInfo, error) {
	found := make(map[string]fs.FileInfo, len(f.synced)+1)
	now := time.Now()
	if err := f.look(found, ".", "msgs"); err != nil {
		return nil, err
	}
	if err := f.scanBlocks(found, now); err != nil {
		return nil, err
	}
	paths := []string{"meta.inf", "meta.sum", "obs"}
	consumers, err := os.ReadDir(filepath.Join(f.dir, "obs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	for _, c := range consumers {
		dir := filepath.Join("obs", c.Name())
		paths = append(paths, dir, filepath.Join(dir, "meta.inf"), filepath.Join(dir, "meta.sum"))
	}
	return found, f.lookIfThere(found, paths...)
}

// listing is what the directory of the blocks held.
type listing struct {
	at     time.Time              // before it was looked at
	dir    fs.FileInfo            // as it was then
	blocks map[string]fs.FileInfo // by path
	last   string                 // the block that grows
}

// settled is the age from which a directory's time of modification shows that
// it is still the same: the kernel's clock for it ticks every 1 to 10 ms.
const settled = 100 * time.Millisecond

// holds reports whether the listing is still true of dir. On a file system
// that does not count the nanoseconds it never is.
func (l *listing) holds(dir fs.FileInfo) bool {
	if l.dir == nil || !os.SameFile(l.dir, dir) {
		return false
	}
	m := dir.ModTime()
	return m.Equal(l.dir.ModTime()) && m.Nanosecond()%int(time.Millisecond) != 0 && l.at.Sub(m) > settled
}

// scanBlocks finds the blocks as they were at one instant since it was called: what replaced a
// message of before is in one of them if the message is not. While none appears or is replaced
// after a round, only the last one is looked at, since the server writes to no other: a queue
// of a million jobs has hundreds.
func (f *streamFiles) scanBlocks(found map[string]fs.FileInfo, now time.Time) error {
	if !f.outdated && f.listed.holds(found["msgs"]) && f.lookAtLast(found) {
		return nil
	}
	f.outdated = true
	for {
		list, err := f.list(found["msgs"], now)
		if err != nil {
			return err
		}
		before := f.listed.blocks
		f.listed = list
		if maps.EqualFunc(before, list.blocks, os.SameFile) { // so nothing was replaced between the two looks
			maps.Copy(found, list.blocks)
			return nil
		}
	}
}

// lookAtLast finds the blocks as they were at the last round, but for the one that grows. It
// reports false if that is no longer the same file.
func (f *streamFiles) lookAtLast(found map[string]fs.FileInfo) bool {
	last := f.listed.last
	if last == "" {
		return true // there are none
	}
	now, err := os.Lstat(filepath.Join(f.dir, last))
	if err != nil || !os.SameFile(f.synced[last], now) {
		return false
	}
	for path := range f.listed.blocks {
		found[path] = f.synced[path]
	}
	found[last] = now
	return true
}

func (f *streamFiles) list(dir fs.FileInfo, now time.Time) (listing, error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, "msgs"))
	if err != nil {
		return listing{}, fmt.Errorf("list blocks: %w", err)
	}
	l := listing{at: now, dir: dir, blocks: map[string]fs.FileInfo{}}
	highest := uint64(0)
	for _, entry := range entries {
		number, isBlock := strings.CutSuffix(entry.Name(), ".blk")
		if !isBlock {
			continue
		}
		path := filepath.Join("msgs", entry.Name())
		if err := f.lookIfThere(l.blocks, path); err != nil {
			return listing{}, err
		}
		if n, err := strconv.ParseUint(number, 10, 64); err != nil {
			l.dir = nil // which one grows is unknown
		} else if n >= highest {
			highest, l.last = n, path
		}
	}
	if l.blocks[l.last] == nil {
		l.dir = nil // removed meanwhile
	}
	return l, nil
}

func isBlock(path string) bool { return filepath.Ext(path) == ".blk" }

func (f *streamFiles) look(found map[string]fs.FileInfo, paths ...string) error {
	for _, path := range paths {
		info, err := os.Lstat(filepath.Join(f.dir, path))
		if err != nil {
			return fmt.Errorf("look at file: %w", err)
		}
		found[path] = info
	}
	return nil
}

// lookIfThere passes over what was removed in the meantime.
func (f *streamFiles) lookIfThere(found map[string]fs.FileInfo, paths ...string) error {
	for _, path := range paths {
		if err := f.look(found, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
