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

// Reasons for which a Barrier lets nobody through.
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

// mostOpen bounds the streams whose block is kept open between two rounds.
const mostOpen = 256

// Barrier is where those wait who wrote to a server without SyncAlways and
// must not lose what they wrote: PubAck says only that the operating system
// has it. It is for a server that is alone; in a cluster it would answer for
// this node's copy and no other.
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
	f, err := b.of(stream)
	if err != nil {
		return err
	}
	return f.group.Do(ctx, func(context.Context) error {
		err := f.round(b.fsync)
		if errors.Is(err, ErrNoStream) {
			b.forget(stream, f)
		}
		b.spare(f)
		return err
	})
}

// of returns the stream's files as they were last seen. Names that no one
// stream can have are refused, since they come from other processes.
func (b *Barrier) of(stream string) (*streamFiles, error) {
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
	b.sweep()
	f := newStreamFiles(filepath.Join(b.streams, stream))
	if f.gone() {
		return nil, f.noStream()
	}
	b.files[stream] = f
	return f, nil
}

// sweep drops the streams that were deleted, so that they hold neither memory
// nor the last block.
func (b *Barrier) sweep() {
	for stream, f := range b.files {
		if f.gone() {
			f.spare(true)
			delete(b.files, stream)
		}
	}
}

// forget drops a stream that is gone; a new stream of the name starts afresh.
func (b *Barrier) forget(stream string, f *streamFiles) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.files[stream] == f {
		delete(b.files, stream)
	}
}

// spare closes the block of some other stream if too many are open.
func (b *Barrier) spare(besides *streamFiles) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.files) <= mostOpen {
		return
	}
	spared := 0
	for _, f := range b.files {
		if f == besides {
			continue
		}
		if spared++; spared >= mostOpen {
			f.spare(false)
		}
	}
}

// Failed are the streams for which an fsync has failed, with what the file
// system said.
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

// resume lets in again who comes after a restart of the server. It knows no
// file then, so that the first round of a stream fsyncs all of them.
func (b *Barrier) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped, b.files = false, map[string]*streamFiles{}
}

// stop lets nobody in any more and returns when the rounds in progress are
// over.
func (b *Barrier) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for _, f := range b.files {
		f.end(ErrStopped)
	}
}
