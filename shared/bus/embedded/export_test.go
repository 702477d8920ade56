package embedded

import (
	"log/slog"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// SetFsync makes the barrier call fsync instead of (*os.File).Sync.
func (b *Barrier) SetFsync(fsync func(*os.File) error) { b.fsync = fsync }

// Open is the number of streams whose block the barrier holds open, Known
// that of the streams it remembers.
func (b *Barrier) Open() (open, known int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.files {
		f.mu.Lock()
		if f.block != nil {
			open++
		}
		f.mu.Unlock()
	}
	return open, len(b.files)
}

// CachedSubjects is how many subjects the server keeps the subscriptions of.
func (s *Server) CachedSubjects() (uint32, error) {
	z, err := s.ns.Load().Subsz(nil)
	if err != nil {
		return 0, err
	}
	return z.NumCache, nil
}

// NewLogger is the logger that the server gets.
func NewLogger(log *slog.Logger) server.Logger { return newLogger(log) }

// UndoRemovals is what a start does first with a stream's directory.
func UndoRemovals(dir string, retain bool) ([]string, error) { return undoRemovals(dir, retain) }
