package admin

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/disk"
	"flightline/shared/retry"
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
// written. It reads at last what it wrote, and returns Verify's error. A folder that
// an error leaves behind is no backup, and Restore refuses it. version is the
// program's own.
func Backup(ctx context.Context, nc *nats.Conn, dir, version string, log *slog.Logger) (Manifest, error) {
	return backup(ctx, nc, dir, version, stallTimeout, log)
}

// backup is Backup with the patience of the copies.
func backup(ctx context.Context, nc *nats.Conn, dir, version string, patience time.Duration, log *slog.Logger) (Manifest, error) {
	m := Manifest{Format: format, Version: version, Began: time.Now().UTC()}
	js, err := jetstream.New(nc)
	if err != nil {
		return m, fmt.Errorf("open jetstream: %w", err)
	}
	var found bool
	var names []string
	err = untilRead(ctx, func() (err error) {
		if m.Schema, found, err = streams.SchemaOf(ctx, js); err != nil {
			return err
		}
		names, err = ourStreams(ctx, nc)
		return err
	})
	if err != nil {
		return m, err
	}
	if !found {
		return m, ErrNothing
	}
	if err := streams.CheckSchema(m.Schema); err != nil {
		return m, err
	}
	if err := emptyFolder(dir); err != nil {
		return m, err
	}
	b := &copying{nc: nc, js: js, dir: dir, patience: patience, log: log}
	if m.Streams, err = b.copyAll(ctx, names); err != nil {
		return m, err
	}
	m.Ended = time.Now().UTC()
	if err := b.finish(m); err != nil {
		return m, err
	}
	log.InfoContext(ctx, "reading the backup again")
	if _, err := Verify(ctx, dir); err != nil {
		return m, errors.Join(fmt.Errorf("read the backup again: %w", err), os.Remove(filepath.Join(dir, sumsFile)))
	}
	return m, nil
}

// copying is one run of Backup.
type copying struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	dir      string
	patience time.Duration   // of one answer or chunk of a copy; then it begins again
	written  strings.Builder // sumsFile of the files so far
	log      *slog.Logger
}

// turn is when the messages are read that were written to a stream since its copy.
type turn int

const (
	// turnNow is right after the copy.
	turnNow turn = iota
	// turnWebhooks is once the payloads are copied: a replay moves a webhook back to the
	// queue, and a delivery removes its payloads.
	turnWebhooks
	// turnPauses is after that: a webhook that was put aside for a paused destination
	// needs the pause to be resumed.
	turnPauses
	// turnPayloads is after all else: outputs that the records refer to.
	turnPayloads
)

// turnOf is the turn of a stream.
func turnOf(stream string) turn {
	part, _ := streams.PartOf(stream)
	switch {
	case part == streams.PartPayloads:
		return turnPayloads
	case part == streams.PartUndelivered, stream == streams.Webhooks:
		return turnWebhooks
	case stream == streams.Bucket(streams.BucketDestinations):
		return turnPauses
	}
	return turnNow
}

// copyAll copies the streams in their order, and what was written to each since then in
// its turn.
func (b *copying) copyAll(ctx context.Context, names []string) ([]Copy, error) {
	var done []Copy
	var waiting [turnPayloads + 1][]int // indices in done
	for _, name := range names {
		part, _ := streams.PartOf(name)
		if part > streams.PartPayloads {
			if err := b.copyWaiting(ctx, done, slices.Concat(waiting[turnWebhooks], waiting[turnPauses])); err != nil {
				return nil, err
			}
			waiting[turnWebhooks], waiting[turnPauses] = nil, nil
		}
		c := Copy{Name: name}
		its := turnOf(name)
		err := b.snapshot(ctx, &c)
		if err == nil && its == turnNow {
			err = b.copyLater(ctx, &c)
		}
		if err != nil && part == streams.PartJobs && deleted(ctx, b.js, name) { // with its endpoint
			b.log.WarnContext(ctx, "stream was deleted during the backup", "stream", name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("copy stream %s: %w", name, err)
		}
		b.log.InfoContext(ctx, "stream copied", "stream", name, "messages", c.Messages, "bytes", c.Bytes, "later", c.Later)
		if its != turnNow {
			waiting[its] = append(waiting[its], len(done))
		}
		done = append(done, c)
	}
	return done, b.copyWaiting(ctx, done, slices.Concat(waiting[turnWebhooks], waiting[turnPauses], waiting[turnPayloads]))
}

// copyWaiting copies what was written to streams since their copies: which has their indices
// in done, in the order in which they are read.
func (b *copying) copyWaiting(ctx context.Context, done []Copy, which []int) error {
	for _, i := range which {
		if err := b.copyLater(ctx, &done[i]); err != nil {
			return fmt.Errorf("copy stream %s: %w", done[i].Name, err)
		}
	}
	return nil
}

func ourStreams(ctx context.Context, nc *nats.Conn) ([]string, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	names, err := bus.Bind(nc).StreamNames(ctx)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return streams.BackupOrder(names), nil
}

// emptyFolder makes the folder. A folder that exists must be empty.
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

// maxSnapshots is how often the copy of a stream is begun, with a pause between two tries: a
// server that dies takes it along, and another one is elected meanwhile.
const (
	maxSnapshots       = 5
	snapshotRetryDelay = 5 * time.Second
)

// snapshot writes the server's copy of a stream. It begins again if the server did not bring
// it to its end, as while the stream elects another leader. If a consumer has not answered
// twice, the copy is without consumers: those that Flightline needs are made again at the
// start of its roles, and what they had not acknowledged comes again.
func (b *copying) snapshot(ctx context.Context, c *Copy) error {
	consumers, lacking := true, 0
	for n := 1; ; n++ {
		err := b.writeSnapshot(ctx, c, consumers)
		if err == nil || n == maxSnapshots || !brokenOff(err) || ctx.Err() != nil {
			return err
		}
		if lacksConsumer(err) {
			lacking++
			consumers = lacking < 2
		}
		b.log.WarnContext(ctx, "the copy was broken off, beginning again", "stream", c.Name, "consumers", consumers, "err", err)
		if err := os.Remove(filepath.Join(b.dir, snapshotFile(c.Name))); err != nil {
			return err
		}
		_ = retry.Sleep(ctx, snapshotRetryDelay) // the next try fails if ctx has ended
	}
}

func (b *copying) writeSnapshot(ctx context.Context, c *Copy, consumers bool) error {
	return b.writeFile(snapshotFile(c.Name), func(w io.Writer) error {
		d, size, err := snapshot(ctx, b.nc, c.Name, consumers, b.patience, &reporting{Writer: w, reported: time.Now(), report: func(bytes int64) {
			b.log.InfoContext(ctx, "copying", "stream", c.Name, "bytes", bytes)
		}})
		if err != nil {
			return err
		}
		c.Config, c.State, c.Bytes = d.Config, d.State, size
		var state copiedState
		err = json.Unmarshal(c.State, &state)
		c.Messages, c.last = state.Messages, state.LastSeq
		return err
	})
}

// reporting is a writer that says every progressInterval how much was written.
type reporting struct {
	io.Writer
	report   func(bytes int64)
	bytes    int64
	reported time.Time
}

func (r *reporting) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	r.bytes += int64(n)
	if time.Since(r.reported) >= progressInterval {
		r.reported = time.Now()
		r.report(r.bytes)
	}
	return n, err
}

// copyLater writes what was written to the stream since its state was taken.
func (b *copying) copyLater(ctx context.Context, c *Copy) error {
	return b.writeFile(laterFile(c.Name), func(w io.Writer) (err error) {
		c.Later, err = copyLater(ctx, b.nc, b.js, c.Name, c.last, w)
		return err
	})
}

// writeFile makes a file of what fill writes, puts it on the disk and notes its SHA-256.
func (b *copying) writeFile(name string, fill func(io.Writer) error) error {
	file, err := os.OpenFile(filepath.Join(b.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<20)
	if err := errors.Join(fill(buf), buf.Flush(), file.Sync(), file.Close()); err != nil {
		return err
	}
	fmt.Fprintf(&b.written, "%x  %s\n", sum.Sum(nil), name)
	return nil
}

const (
	// format is the version of the folder's layout.
	format = 1
	// manifestFile says what is in the folder, sumsFile what each file's SHA-256
	// is, as sha256sum -c reads it. It is written last: without it the backup
	// did not come to its end.
	manifestFile = "manifest.json"
	sumsFile     = "SHA256SUMS"
)

// ErrArchive means that a folder holds no whole, unchanged backup that this
// program can read.
var ErrArchive = errors.New("not a good backup")

// Manifest says what a backup holds.
type Manifest struct {
	Format int `json:"format"`
	// Schema is that of the bus (streams.Schema), Version that of the program
	// that made the backup.
	Schema  int    `json:"schema"`
	Version string `json:"version"`
	// Began and Ended are by the clock of the machine that made it. Jobs that
	// were accepted before Began are in it.
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Streams []Copy    `json:"streams"`
}

// Copy is the copy of one stream.
type Copy struct {
	Name string `json:"name"`
	// Config and State are the server's own, as its API has them.
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
	// Messages is what State counts, Bytes the size of the copy, Later how many
	// messages were written meanwhile.
	Messages uint64 `json:"messages"`
	Bytes    int64  `json:"bytes"`
	Later    int    `json:"later"`

	last uint64 // the stream's last sequence when the copy began
}

func snapshotFile(stream string) string { return stream + ".snapshot" }
func laterFile(stream string) string    { return stream + ".later" }

// finish writes the manifest and then the sums, and puts the folder itself on
// the disk.
func (b *copying) finish(m Manifest) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	if err := b.writeText(manifestFile, string(data)+"\n"); err != nil {
		return err
	}
	if err := b.writeText(sumsFile, b.written.String()); err != nil {
		return err
	}
	return disk.SyncDir(b.dir)
}

func (b *copying) writeText(name, text string) error {
	return b.writeFile(name, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}
