package chunks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
)

const (
	// maxWindow and maxWindowBytes bound the chunks that are not stored yet. One
	// that is larger than all the room is taken when nothing else is there.
	maxWindow      = 2048
	maxWindowBytes = 2 * job.MaxChunk
	// maxPack and maxPackBytes bound the chunks of one message.
	maxPack      = 512
	maxPackBytes = 128 << 10
)

// ErrSealed means that the run takes no further chunks.
var ErrSealed = errors.New("chunks: the run has ended")

// Window appends chunks to the output of one run that no other process writes,
// in order and each once, while its caller goes on. One message is under way at a
// time; what is emitted meanwhile goes together into the next one. It is safe for
// concurrent use.
//
// A goroutine stores the chunks while there are some. It ends after a write that
// JetStream did not acknowledge within bus.CallTimeout; the next call goes on
// where it stopped.
type Window struct {
	writer *Writer // the sender's, while there is one

	mu          sync.Mutex
	waiting     []piece
	held, bytes int // what is not stored yet: waiting or under way
	// What the writer has of it.
	packed, packedBytes int
	sending             bool          // a sender runs
	sealed              bool          // no chunk is taken any more
	err                 error         // why the last sender stopped; nil: it stored all, or one runs
	changed             chan struct{} // closed and replaced when something was stored, or a sender stopped
}

// piece is a chunk that waits, and until when it is needed.
type piece struct {
	data  []byte
	until time.Time
}

// NewWindow returns the window of a run to which only writer writes, which is
// the window's from now on.
func NewWindow(writer *Writer) *Window {
	return &Window{writer: writer, changed: make(chan struct{})}
}

// Emit takes a chunk, which is kept until streams.Margin after until. It waits
// while the window is full. An error means that the chunk was not taken:
// bus.ErrUnavailable, ErrSealed, ctx.Err(), or why an earlier chunk cannot be
// stored.
func (w *Window) Emit(ctx context.Context, c Encoded, until time.Time) error {
	sealed := false
	err := w.await(ctx, func() bool {
		sealed = w.sealed
		return sealed || w.put(c.pieces, until)
	})
	if sealed {
		return ErrSealed
	}
	return err
}

// put takes the pieces of a chunk if there is room for all of them.
func (w *Window) put(pieces [][]byte, until time.Time) bool {
	size := 0
	for _, data := range pieces {
		size += len(data)
	}
	if w.held > 0 && (w.held+len(pieces) > maxWindow || w.bytes+size > maxWindowBytes) {
		return false
	}
	for _, data := range pieces {
		w.waiting = append(w.waiting, piece{data, until})
	}
	w.held, w.bytes = w.held+len(pieces), w.bytes+size
	return true
}

// Flush returns once all chunks are stored. It returns bus.ErrUnavailable,
// ctx.Err(), or why a chunk cannot be stored.
func (w *Window) Flush(ctx context.Context) error {
	return w.await(ctx, func() bool { return w.held == 0 })
}

// Resume goes on storing after an outage.
func (w *Window) Resume(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start(ctx)
}

// Seal makes every further Emit return ErrSealed, and those that wait, too.
func (w *Window) Seal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealed = true
	w.change()
}

// Emitted reports whether anything is stored, once Flush has returned nil or a final
// error.
func (w *Window) Emitted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.sending && w.writer.last > 0
}

// await returns nil once done, which it calls with the lock, holds. Meanwhile what
// waits is being stored. A write that JetStream did not acknowledge ends it, since
// only the caller knows whether to try again.
func (w *Window) await(ctx context.Context, done func() bool) error {
	for began := false; ; began = true {
		w.mu.Lock()
		if final(w.err) {
			defer w.mu.Unlock()
			return w.err
		}
		ok, err := done(), w.err
		if !ok && began && err != nil {
			w.mu.Unlock()
			return err
		}
		w.start(ctx)
		changed := w.changed
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%w: chunks wait to be stored: %w", bus.ErrUnavailable, ctx.Err())
		}
	}
}

// final holds for errors that another try does not mend.
func final(err error) bool { return err != nil && !errors.Is(err, bus.ErrUnavailable) }

// change wakes those who wait. It needs the lock, as do start and put.
func (w *Window) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// start starts a sender if there is something to store and none runs.
func (w *Window) start(ctx context.Context) {
	if w.held == 0 || w.sending || final(w.err) {
		return
	}
	w.sending, w.err = true, nil
	go w.send(context.WithoutCancel(ctx)) // it ends by itself: see Window
}

// send stores what waits, message after message.
func (w *Window) send(ctx context.Context) {
	for w.next() {
		within, cancel := context.WithTimeout(ctx, bus.CallTimeout)
		err := w.writer.flush(within)
		cancel()
		if err != nil {
			w.mu.Lock()
			w.sending, w.err = false, err
			w.change()
			w.mu.Unlock()
			return
		}
	}
}

// next gives the writer the chunks of the next message. What an earlier sender did
// not store goes first. It reports false, and the sender has ended, once nothing is
// left.
func (w *Window) next() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.writer.unsent) > 0 {
		return true
	}
	if w.packed > 0 {
		w.held, w.bytes = w.held-w.packed, w.bytes-w.packedBytes
		w.packed, w.packedBytes = 0, 0
		w.change()
	}
	w.packed, w.packedBytes = packOf(w.waiting)
	if w.packed == 0 {
		w.sending = false
		return false
	}
	w.writer.pack(w.waiting[:w.packed])
	w.waiting = slices.Delete(w.waiting, 0, w.packed)
	return true
}

// packOf is how many of the pieces go into the next message, and their size. The
// first does in any case.
func packOf(waiting []piece) (n, size int) {
	for _, p := range waiting[:min(len(waiting), maxPack)] {
		if n > 0 && size+len(p.data) > maxPackBytes {
			break
		}
		n, size = n+1, size+len(p.data)
	}
	return n, size
}
