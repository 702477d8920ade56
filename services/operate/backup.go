package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

var (
	// ErrNothing means that the server has no Flightline to copy.
	ErrNothing = errors.New("there is no Flightline on this NATS")
	// ErrNotEmpty means that there is something where the backup, or what it
	// holds, is to go.
	ErrNotEmpty = errors.New("not empty")
)

// Backup copies all streams and buckets to a new folder while they are in use.
// It returns ErrNothing, ErrNotEmpty or streams.ErrSchema before anything is
// written. A folder that an error leaves behind is no backup, and Restore
// refuses it. version is the program's own.
func Backup(ctx context.Context, nc *nats.Conn, dir, version string, log *slog.Logger) (Manifest, error) {
	m := Manifest{Format: format, Version: version, Began: time.Now().UTC()}
	js, err := jetstream.New(nc)
	if err != nil {
		return m, fmt.Errorf("open jetstream: %w", err)
	}
	var found bool
	if m.Schema, found, err = streams.SchemaOf(ctx, js); err != nil {
		return m, err
	}
	if !found {
		return m, ErrNothing
	}
	if err := streams.CheckSchema(m.Schema); err != nil {
		return m, err
	}
	names, err := ourStreams(ctx, js)
	if err != nil {
		return m, err
	}
	if err := emptyFolder(dir); err != nil {
		return m, err
	}
	written := new(sums)
	b := &copying{nc: nc, js: js, dir: dir, written: written, log: log}
	if m.Streams, err = b.all(ctx, names); err != nil {
		return m, err
	}
	m.Ended = time.Now().UTC()
	return m, finish(dir, m, written)
}

// copying is one run of Backup.
type copying struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	dir     string
	written *sums
	log     *slog.Logger
}

// all copies the streams in their order. What was written to the payloads since
// their copy is read after all else: outputs that the records refer to.
func (b *copying) all(ctx context.Context, names []string) ([]Copy, error) {
	var done []Copy
	var payloads []int
	for _, name := range names {
		c := Copy{Name: name}
		err := b.snapshot(ctx, &c)
		part, _ := streams.PartOf(name)
		if err == nil && part == streams.PartPayloads {
			payloads = append(payloads, len(done))
		} else if err == nil {
			err = b.later(ctx, &c)
		}
		if err != nil && part == streams.PartJobs && deleted(ctx, b.js, name) { // with its endpoint
			b.log.WarnContext(ctx, "stream was deleted during the backup", "stream", name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("copy stream %s: %w", name, err)
		}
		b.log.InfoContext(ctx, "stream copied", "stream", name, "messages", c.Messages, "bytes", c.Bytes, "later", c.Later)
		done = append(done, c)
	}
	for _, i := range payloads {
		if err := b.later(ctx, &done[i]); err != nil {
			return nil, fmt.Errorf("copy stream %s: %w", done[i].Name, err)
		}
	}
	return done, nil
}

func ourStreams(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	list := js.StreamNames(ctx)
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return streams.BackupOrder(names), nil
}

// emptyFolder makes the folder; one that is there must have nothing in it.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("folder %s: %w: each backup needs a folder of its own", dir, ErrNotEmpty)
	}
	return nil
}

// snapshot writes the server's copy of a stream.
func (b *copying) snapshot(ctx context.Context, c *Copy) error {
	return writeFile(b.dir, snapshotFile(c.Name), b.written, func(w io.Writer) error {
		d, size, err := snapshot(ctx, b.nc, c.Name, w)
		if err != nil {
			return err
		}
		c.Config, c.State, c.Bytes = d.Config, d.State, size
		var state struct {
			Messages uint64 `json:"messages"`
			LastSeq  uint64 `json:"last_seq"` //nolint:tagliatelle // as NATS spells it
		}
		err = json.Unmarshal(c.State, &state)
		c.Messages, c.last = state.Messages, state.LastSeq
		return err
	})
}

// later writes what was written to the stream since its state was taken.
func (b *copying) later(ctx context.Context, c *Copy) error {
	return writeFile(b.dir, laterFile(c.Name), b.written, func(w io.Writer) (err error) {
		c.Later, err = later(ctx, b.nc, b.js, c.Name, c.last, w)
		return err
	})
}

// writeFile makes a file of what fill writes and notes its sum.
func writeFile(dir, name string, written *sums, fill func(io.Writer) error) error {
	file, err := create(dir, name)
	if err != nil {
		return err
	}
	err = fill(file)
	sum, closed := file.close()
	if err := errors.Join(err, closed); err != nil {
		return err
	}
	written.add(name, sum)
	return nil
}
