package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"flightline/shared/bus/barrier"
)

// posix reports whether the system can fsync a directory, and rename over a file that
// is open.
const posix = runtime.GOOS != "windows"

// storeFromStream leads from a stream's directory to Config.Dir.
const storeFromStream = "../../../.."

// streamFiles is what a Barrier knows of one stream's files:
//
//	meta.inf meta.sum         the stream's settings
//	msgs/<n>.blk              its messages; the last one grows, full ones are
//	                          now and then replaced by a smaller one (rename)
//	obs/<consumer>/meta.*     the settings of a consumer
//	retained/<n>.blk.<count>  second names of blocks, ours
//
// The other files there are made from these by the server when it lacks them,
// or hold what a Barrier does not cover.
type streamFiles struct {
	dir   string
	group *barrier.Group

	mu     sync.Mutex             // held during a round
	synced map[string]fs.FileInfo // as they were before their last fsync, by path below dir
	stale  map[string]bool        // directories with an entry that may not be on the disk
	listed listing                // of the blocks
	block  *os.File               // the block that was synced last, or nil
	ended  error                  // if not nil, no round succeeds any more
	grown  fs.FileInfo            // the block that grows, as it was at the last sweep; nil if unknown

	// outdated: no round has succeeded since the blocks were listed.
	outdated bool

	retention *retention    // nil without one
	open      *atomic.Int64 // how many streams have their block open

	failure atomic.Pointer[syncFailure] // the first one, or nil
}

// errReplaced reports that a block was removed or replaced since the round found it: what
// replaced its messages may be newer than what the round has fsynced.
var errReplaced = errors.New("embedded: a block was replaced during a round")

// maxTries bounds how often a round begins again for errReplaced.
const maxTries = 10

// syncFailure is an fsync of a file or directory that has failed.
type syncFailure struct {
	path string
	err  error
}

// failed stores that an fsync has failed, and returns ErrSyncFailed.
func (f *streamFiles) failed(path string, err error) error {
	f.failure.CompareAndSwap(nil, &syncFailure{path, err})
	return fmt.Errorf("%w: %w", ErrSyncFailed, err)
}

// round fsyncs all files that have changed since the last one, then the
// directories in which one has appeared.
func (f *streamFiles) round(fsync func(*os.File) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lockedRound(fsync)
}

func (f *streamFiles) lockedRound(fsync func(*os.File) error) error {
	if f.ended != nil {
		return f.ended
	}
	err := f.syncChanged(fsync)
	for tries := 1; errors.Is(err, errReplaced) && tries < maxTries; tries++ {
		err = f.syncChanged(fsync)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = f.noStream()
	}
	if errors.Is(err, ErrNoStream) || errors.Is(err, ErrSyncFailed) {
		f.ended = err
		f.closeBlock()
	}
	return err
}

func (f *streamFiles) syncChanged(fsync func(*os.File) error) error {
	found, err := f.scan()
	if err != nil {
		return err
	}
	for path, now := range found {
		before := f.synced[path]
		if before == nil || !os.SameFile(before, now) {
			f.appeared(path)
		}
		switch {
		case now.IsDir():
			f.synced[path] = now
		case unchanged(before, now):
		default:
			if err := f.syncFile(path, now, fsync); err != nil {
				return err
			}
		}
	}
	for path := range f.synced {
		if _, ok := found[path]; !ok {
			delete(f.synced, path)
		}
	}
	if err := f.syncDirs(fsync); err != nil {
		return err
	}
	if f.retention != nil && f.outdated {
		if err := f.retention.update(found, func(path string) error { return f.syncDir(path, fsync) }); err != nil {
			return err
		}
	}
	f.outdated = false
	return nil
}

// sweep has a round if something was written since the last sweep, or a block with a second
// name is gone: nothing else may wait for one.
func (f *streamFiles) sweep(fsync func(*os.File) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		return nil
	}
	changed, err := f.lookAround()
	if err != nil || !changed {
		return err
	}
	return f.lockedRound(fsync)
}

// lookAround reports whether the files are others than at the last look and at the last round.
func (f *streamFiles) lookAround() (changed bool, err error) {
	found, now := map[string]fs.FileInfo{}, time.Now()
	if err := f.look(found, "msgs"); err != nil {
		return false, err
	}
	if err := f.scanBlocks(found, now); err != nil {
		return false, err
	}
	before, last := f.grown, found[f.listed.last]
	f.grown = last
	grew := last != nil && !unchanged(before, last) && !unchanged(f.synced[f.listed.last], last)
	return grew || f.retention.replaced(found), nil
}

// unchanged reports whether nothing was written to a file since before, nil if that is unknown.
func unchanged(before, now fs.FileInfo) bool {
	return before != nil && os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime())
}

// leave removes the second names of the blocks, which a server that is stopped does not
// remove.
func (f *streamFiles) leave(fsync func(*os.File) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.scan()
	if err == nil && f.retention.replaced(found) {
		err = f.lockedRound(fsync)
	}
	if err != nil {
		return err
	}
	return f.retention.drop()
}

// appeared marks the directory of a new file or directory to be synced; for the stream's
// own directory, all those from the store down to it.
func (f *streamFiles) appeared(path string) {
	if path != "." {
		f.stale[filepath.Dir(path)] = true
		return
	}
	for up := ".."; len(up) <= len(storeFromStream); up = filepath.Join(up, "..") {
		f.stale[up] = true
	}
}

// syncFile fsyncs one file. It passes over a file that was removed, unless that is a block:
// see errReplaced. A block stays open: it is likely the one that grows, and the kernel reports
// an error of its own writing only to a descriptor that was open then.
func (f *streamFiles) syncFile(path string, now fs.FileInfo, fsync func(*os.File) error) error {
	file, err := f.openFile(path, now)
	switch {
	case isBlock(path) && errors.Is(err, fs.ErrNotExist):
		return errReplaced
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("sync: %w", err)
	}
	if file != f.block {
		if posix && isBlock(path) {
			f.closeBlock()
			f.block = file
			f.open.Add(1)
		} else {
			defer file.Close() //nolint:errcheck // nothing was written
		}
	}
	// What is written from here on is for the next round to notice.
	before, err := file.Stat()
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if isBlock(path) && !os.SameFile(before, now) {
		return errReplaced
	}
	if err := fsync(file); err != nil {
		return f.failed(filepath.Join(f.dir, path), err)
	}
	f.synced[path] = before
	return nil
}

func (f *streamFiles) openFile(path string, now fs.FileInfo) (*os.File, error) {
	if f.block != nil {
		if info, err := f.block.Stat(); err == nil && os.SameFile(info, now) {
			return f.block, nil
		}
	}
	return os.OpenFile(filepath.Join(f.dir, path), os.O_RDWR, 0) // some systems refuse to fsync what is open for reading
}

// syncDirs fsyncs the stale directories.
func (f *streamFiles) syncDirs(fsync func(*os.File) error) error {
	for path := range f.stale {
		if err := f.syncDir(filepath.Join(f.dir, path), fsync); err != nil {
			return err
		}
		delete(f.stale, path)
	}
	return nil
}

// syncDir passes over a directory that was removed.
func (f *streamFiles) syncDir(path string, fsync func(*os.File) error) error {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	defer dir.Close() //nolint:errcheck // nothing was written
	if !posix {
		return nil
	}
	if err := fsync(dir); err != nil {
		return f.failed(path, err)
	}
	return nil
}

// end makes all rounds fail from now on, once the one in progress is over.
func (f *streamFiles) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = why
	f.closeBlock()
}

// closeIdle closes the block unless a round is in progress. If gone, the stream was
// deleted, and no round succeeds any more.
func (f *streamFiles) closeIdle(gone bool) {
	if !f.mu.TryLock() {
		return // the round will find out
	}
	defer f.mu.Unlock()
	f.closeBlock()
	if gone {
		f.ended = f.noStream()
	}
}

func (f *streamFiles) gone() bool {
	_, err := os.Lstat(f.dir)
	return errors.Is(err, fs.ErrNotExist)
}

func (f *streamFiles) noStream() error {
	return fmt.Errorf("%w: %s", ErrNoStream, filepath.Base(f.dir))
}

func (f *streamFiles) closeBlock() {
	if f.block != nil {
		_ = f.block.Close() // nothing was written
		f.block = nil
		f.open.Add(-1)
	}
}
