package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"flightline/shared/bus/barrier"
)

// Errors of Barrier.Sync.
var (
	// ErrNoStream reports a stream that has no files: it was deleted, or never
	// was, or is in the middle of a purge.
	ErrNoStream = errors.New("embedded: no such stream on the disk")
	// ErrStopped reports a Barrier whose server was stopped.
	ErrStopped = errors.New("embedded: the server was stopped")
	// ErrSyncFailed reports a stream for which an fsync has failed. What was
	// written around then may be lost though a later fsync succeeds, so it
	// stays that way until the server is restarted.
	ErrSyncFailed = errors.New("embedded: fsync failed")
)

// maxOpenBlocks bounds the streams whose block is kept open between two rounds.
const maxOpenBlocks = 256

// Barrier makes writes durable that a server without SyncAlways has acknowledged: a PubAck
// says only that the operating system has the message. It is for a single server. In a
// cluster it would answer for this node's copy and no other.
//
// It covers messages and the settings of the stream and its consumers, but
// not deletions and acknowledgements, nor how far a consumer has come: after
// a power loss what was deleted may be back, and be delivered again.
type Barrier struct {
	streams string // the directory that holds a directory for each stream
	retain  bool   // blocks have a second name
	fsync   func(*os.File) error
	open    atomic.Int64 // the streams with an open block

	mu      sync.Mutex
	stopped bool
	files   map[string]*streamFiles

	sweeping sync.WaitGroup
	end      chan struct{} // of sweeping
}

// newBarrier returns the barrier of the server whose store is in dir.
func newBarrier(dir string, retain bool) *Barrier {
	return &Barrier{
		streams: streamsDir(dir),
		retain:  retain && posix,
		fsync:   (*os.File).Sync,
		files:   map[string]*streamFiles{},
		end:     make(chan struct{}),
	}
}

// streamsDir has a directory for each stream of the store in dir.
func streamsDir(dir string) string {
	return filepath.Join(dir, server.JetStreamStoreDir, jobsAccount, "streams")
}

// streamDirs are the directories of the streams.
func streamDirs(streams string) ([]string, error) {
	entries, err := os.ReadDir(streams)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // the server deletes those
			paths = append(paths, filepath.Join(streams, e.Name()))
		}
	}
	return paths, nil
}

// Barrier returns the server's barrier, the same one each time. Once the
// server was stopped it returns ErrStopped to all.
func (s *Server) Barrier() *Barrier { return s.barrier }

// Sync returns nil when everything that was acknowledged for the stream
// before the call is on the disk. All who wait at the same time share an
// fsync. An error says that it is not known to be there: ErrNoStream,
// ErrStopped, ErrSyncFailed, what the file system said, or ctx's. The one
// whose turn it is to fsync does not leave before that is done, whatever
// becomes of its ctx.
func (b *Barrier) Sync(ctx context.Context, stream string) error {
	f, err := b.filesOf(stream)
	if err != nil {
		return err
	}
	return f.group.Do(ctx, func(context.Context) error {
		err := f.round(b.fsync)
		if errors.Is(err, ErrNoStream) {
			b.forget(stream, f)
		}
		b.closeSomeBlocks(f)
		return err
	})
}

// filesOf returns the stream's files as they were last seen. It refuses what cannot be the
// name of a stream, since names come from other processes.
func (b *Barrier) filesOf(stream string) (*streamFiles, error) {
	if stream == "" || strings.ContainsAny(stream, "./\\*> \x00") {
		return nil, fmt.Errorf("%w: %q", ErrNoStream, stream)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, ErrStopped
	}
	if f := b.files[stream]; f != nil {
		return f, nil
	}
	b.dropDeleted()
	return b.add(stream)
}

// add begins to look after a stream. b.mu must be held.
func (b *Barrier) add(stream string) (*streamFiles, error) {
	f := &streamFiles{
		dir: filepath.Join(b.streams, stream), group: barrier.NewGroup(), open: &b.open,
		synced: map[string]fs.FileInfo{}, stale: map[string]bool{},
	}
	if f.gone() {
		return nil, f.noStream()
	}
	if b.retain {
		var err error
		if f.retention, err = openRetention(f.dir); err != nil {
			return nil, err
		}
	}
	b.files[stream] = f
	return f, nil
}

// dropDeleted drops the streams that were deleted, so that they hold neither memory
// nor an open block. b.mu must be held.
func (b *Barrier) dropDeleted() {
	for stream, f := range b.files {
		if f.gone() {
			f.closeIdle(true)
			delete(b.files, stream)
		}
	}
}

// forget drops a deleted stream, so that a new stream of the same name gets new files.
func (b *Barrier) forget(stream string, f *streamFiles) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.files[stream] == f {
		delete(b.files, stream)
	}
}

// closeSomeBlocks closes blocks of other streams than except if too many are open.
func (b *Barrier) closeSomeBlocks(except *streamFiles) {
	if b.open.Load() <= maxOpenBlocks {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	open := 0
	for _, f := range b.files {
		if f == except {
			continue
		}
		if open++; open >= maxOpenBlocks {
			f.closeIdle(false)
		}
	}
}

// Failed returns the streams for which an fsync has failed, with the error of the file
// system.
func (b *Barrier) Failed() map[string]string {
	failed := map[string]string{}
	for stream, f := range b.failures() {
		failed[stream] = f.err.Error()
	}
	return failed
}

func (b *Barrier) failures() map[string]*syncFailure {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]*syncFailure{}
	for stream, f := range b.files {
		if failure := f.failure.Load(); failure != nil {
			all[stream] = failure
		}
	}
	return all
}

// start makes Sync work: at first, and again after a restart of the server. It knows
// nothing of any file, so that the first round of a stream fsyncs all of them. What was
// written before is for the server's own sync.
func (b *Barrier) start() error {
	b.mu.Lock()
	b.stopped, b.files = false, map[string]*streamFiles{}
	b.mu.Unlock()
	if err := b.adopt(); err != nil {
		return err
	}
	for _, f := range b.all() {
		if _, err := f.lookAround(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// adopt begins to look after all streams of the store, also those that no one waits for.
func (b *Barrier) adopt() error {
	if !b.retain {
		return nil
	}
	paths, err := streamDirs(b.streams)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, path := range paths {
		name := filepath.Base(path)
		if b.stopped || b.files[name] != nil {
			continue
		}
		if _, err := b.add(name); err != nil && !errors.Is(err, ErrNoStream) {
			return err
		}
	}
	return nil
}

// sweep looks after all streams each second, until leave.
func (b *Barrier) sweep() {
	if !b.retain {
		return
	}
	b.sweeping.Go(func() {
		tick := time.NewTicker(sweepInterval)
		defer tick.Stop()
		for {
			select {
			case <-b.end:
				return
			case <-tick.C:
			}
			_ = b.adopt() // the next writer to a new stream has the error too
			for _, f := range b.all() {
				if err := f.sweep(b.fsync); errors.Is(err, ErrNoStream) { // the next writer has other errors too
					b.forget(filepath.Base(f.dir), f)
				}
			}
		}
	})
}

func (b *Barrier) all() []*streamFiles {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.files))
}

// leave ends the sweeps, and removes the second names of all blocks. The server must be
// gone. What cannot be removed does no harm: the next start looks at it.
func (b *Barrier) leave() {
	if !b.retain {
		return
	}
	close(b.end)
	b.sweeping.Wait()
	for _, f := range b.all() {
		_ = f.leave(b.fsync)
	}
}

// stop makes every Sync fail with ErrStopped from now on. It returns when the rounds in
// progress are over.
func (b *Barrier) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for _, f := range b.files {
		f.end(ErrStopped)
	}
}
