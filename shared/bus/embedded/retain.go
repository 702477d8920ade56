package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/disk"
)

// retainedDir is the directory below a stream's that has a second name, a hard link, for
// each of its blocks (docs/adr/0078-retained-blocks.md). The server removes a block, or
// renames a smaller one over it, as soon as its messages were replaced or deleted. What
// replaced them may not be on the disk yet: a power loss would take both. The second name
// goes only after a round that has fsynced the replacement. putBack undoes a removal of
// which there was no such round.
const retainedDir = "retained"

// sweepInterval is the pause between two looks for blocks that are gone, and for messages
// that no one waits for: about as long ago, at most, was a removal that a crash undoes.
const sweepInterval = time.Second

// maxUndoing is how many streams are looked at together at a start: they share fsyncs.
const maxUndoing = 16

// retention is the second names of a stream's blocks.
type retention struct {
	dir    string // the stream's
	blocks map[string]retained
}

// retained is the second name of a block.
type retained struct {
	count int // 1 for the first file of the block's name, and so on
	info  fs.FileInfo
}

// openRetention reads which blocks have a second name. If there are several for the same
// block, the last one counts.
func openRetention(dir string) (*retention, error) {
	r := &retention{dir: dir, blocks: map[string]retained{}}
	entries, err := os.ReadDir(filepath.Join(dir, retainedDir))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list retained blocks: %w", err)
	}
	for _, e := range entries {
		block, last, _ := strings.Cut(e.Name(), ".blk.")
		count, err := strconv.Atoi(last)
		if err != nil {
			continue // not ours
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("look at retained block: %w", err)
		}
		if path := filepath.Join("msgs", block+".blk"); count > r.blocks[path].count {
			r.blocks[path] = retained{count, info}
		}
	}
	return r, nil
}

// path is the second name of a block.
func (r *retention) path(block string, count int) string {
	return filepath.Join(r.dir, retainedDir, filepath.Base(block)+"."+strconv.Itoa(count))
}

// replaced reports whether a block was removed or replaced since it got its second name.
func (r *retention) replaced(found map[string]fs.FileInfo) bool {
	for block, old := range r.blocks {
		if now := found[block]; now == nil || !os.SameFile(old.info, now) {
			return true
		}
	}
	return false
}

// update gives second names to the blocks that were found and fsynced, has them on the disk
// with syncDir, and then removes those of blocks that were replaced or not found.
func (r *retention) update(found map[string]fs.FileInfo, syncDir func(path string) error) error {
	fresh, err := r.linkAll(found)
	if err != nil {
		return err
	}
	if len(fresh) > 0 {
		for _, dir := range []string{filepath.Join(r.dir, retainedDir), r.dir} {
			if err := syncDir(dir); err != nil {
				return err
			}
		}
	}
	var over []string
	for block, old := range r.blocks {
		if _, again := fresh[block]; again || found[block] == nil {
			over = append(over, r.path(block, old.count))
			delete(r.blocks, block)
		}
	}
	maps.Copy(r.blocks, fresh)
	return removeFiles(over)
}

// linkAll gives second names to those found that have none.
func (r *retention) linkAll(found map[string]fs.FileInfo) (fresh map[string]retained, err error) {
	fresh = map[string]retained{}
	for block, now := range found {
		old, known := r.blocks[block]
		if !isBlock(block) || known && os.SameFile(old.info, now) {
			continue
		}
		next := retained{old.count + 1, now}
		if err := r.link(block, next); err != nil {
			return nil, err
		}
		fresh[block] = next
	}
	return fresh, nil
}

// link gives a block its second name. It returns errReplaced if the block is no longer the
// file that was found.
func (r *retention) link(block string, next retained) error {
	to := r.path(block, next.count)
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("retain block: %w", err)
	}
	if err := removeFiles([]string{to}); err != nil { // of a round that failed
		return err
	}
	err := os.Link(filepath.Join(r.dir, block), to)
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	if err != nil {
		return fmt.Errorf("retain block: %w", err)
	}
	info, err := os.Lstat(to)
	if err != nil {
		return fmt.Errorf("look at retained block: %w", err)
	}
	if !os.SameFile(info, next.info) {
		return errors.Join(errReplaced, removeFiles([]string{to}))
	}
	return nil
}

// removeFiles passes over what is not there.
func removeFiles(paths []string) error {
	var failed error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// putBack puts back the blocks that were removed or replaced after the last round, and
// returns their paths; the server makes its index of the blocks again then. A block stays as
// it is if it has a second name: a round has seen it.
// A stream that was being deleted, or purged as a whole, gets nothing back.
func (r *retention) putBack() ([]string, error) {
	for _, name := range []string{"meta.inf", "msgs"} {
		if _, err := os.Lstat(filepath.Join(r.dir, name)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	var back []string
	for block, last := range r.blocks {
		path := filepath.Join(r.dir, block)
		now, err := os.Lstat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at block: %w", err)
		}
		if err == nil && os.SameFile(now, last.info) {
			continue
		}
		if err := os.Rename(r.path(block, last.count), path); err != nil {
			return nil, fmt.Errorf("put block back: %w", err)
		}
		back = append(back, block)
	}
	if len(back) > 0 {
		if err := errors.Join(dropIndex(r.dir), disk.SyncDir(filepath.Join(r.dir, "msgs"))); err != nil {
			return nil, fmt.Errorf("put block back: %w", err)
		}
	}
	slices.Sort(back)
	return back, nil
}

// drop removes all second names, and keeps their folder: on a full disk the next start could
// not make it, but there is room in it.
func (r *retention) drop() error {
	r.blocks = map[string]retained{}
	dir := filepath.Join(r.dir, retainedDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list retained blocks: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove second name of a block: %w", err)
		}
	}
	return nil
}

// undoRemovals does it for all streams. No server may have the store open.
func (b *Barrier) undoRemovals(ctx context.Context, log *slog.Logger) error {
	paths, err := streamDirs(b.streams)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(maxUndoing)
	for _, path := range paths {
		g.Go(func() error {
			back, err := undoRemovals(path, b.retain)
			if err != nil {
				return fmt.Errorf("undo removals in %s: %w", filepath.Base(path), err)
			}
			for _, block := range back {
				log.InfoContext(ctx, "block put back, it was removed just before a crash", "stream", filepath.Base(path), "file", block)
			}
			return nil
		})
	}
	return g.Wait()
}

// undoRemovals puts back what a crash may have taken from a stream, and returns the paths of
// those blocks. Then each block has a second name if retain, and none otherwise.
func undoRemovals(dir string, retain bool) ([]string, error) {
	r, err := openRetention(dir)
	if err != nil {
		return nil, err
	}
	back, err := r.putBack()
	if err != nil {
		return nil, err
	}
	if !retain {
		return back, os.RemoveAll(filepath.Join(dir, retainedDir))
	}
	if err := r.drop(); err != nil {
		return nil, err
	}
	s, err := openStored(dir)
	if err != nil {
		return nil, err
	}
	return back, r.update(s.files, disk.SyncDir)
}
