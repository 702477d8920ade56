package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
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
	fsync   func(*os.File) error

	mu      sync.Mutex
	stopped bool
	files   map[string]*streamFiles
}

// newBarrier returns the barrier of the server whose store is in dir.
func newBarrier(dir string) *Barrier {
	return &Barrier{
		streams: filepath.Join(dir, server.JetStreamStoreDir, jobsAccount, "streams"),
		fsync:   (*os.File).Sync,
		files:   map[string]*streamFiles{},
	}
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
	f := newStreamFiles(filepath.Join(b.streams, stream))
	if f.gone() {
		return nil, f.noStream()
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.files) <= maxOpenBlocks {
		return
	}
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

// resume makes Sync work again after a restart of the server. It forgets all files, so
// that the first round of a stream fsyncs all of them.
func (b *Barrier) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped, b.files = false, map[string]*streamFiles{}
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
