package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// maxListing bounds the manifest and the list of sums, in bytes: that of 50,000
// endpoints is about 80 MB.
const maxListing = 256 << 20

// Verify reads all of a backup and returns its manifest, streams.ErrSchema if a newer
// program made it, or an ErrArchive if a file is missing, cut off or changed, is no plain
// file, has another format, or holds what this version would not have written: another
// stream, setting or subject. It writes nothing and ends with ctx.
func Verify(ctx context.Context, dir string) (Manifest, error) {
	if err := plainFiles(dir); err != nil {
		return Manifest{}, err
	}
	checked, err := verifySums(ctx, dir)
	if err != nil {
		return Manifest{}, err
	}
	m, err := readManifest(dir)
	if err != nil {
		return m, err
	}
	if !checked[manifestFile] {
		return m, fmt.Errorf("%w: %s has no sum", ErrArchive, manifestFile)
	}
	if err := streams.CheckSchema(m.Schema); err != nil {
		return m, fmt.Errorf("read the backup in %s: %w", dir, err)
	}
	seen := map[string]bool{}
	for _, c := range m.Streams {
		switch {
		case seen[c.Name]:
			return m, fmt.Errorf("%w: stream %q is in it twice", ErrArchive, c.Name)
		case !checked[snapshotFile(c.Name)] || !checked[laterFile(c.Name)]:
			return m, fmt.Errorf("%w: stream %q is not in it", ErrArchive, c.Name)
		}
		seen[c.Name] = true
		if err := streams.CheckCopied(c.Name, c.Config); err != nil {
			return m, fmt.Errorf("%w: %w", ErrArchive, err)
		}
		if err := verifyCopy(ctx, dir, c, m.Streams); err != nil {
			return m, err
		}
	}
	return m, nil
}

// plainFiles refuses a folder with anything but plain files and folders in it: a
// link leads elsewhere, and a device or a pipe has no end.
func plainFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() && !e.IsDir() {
			return fmt.Errorf("%w: %s is a %s, want a plain file", ErrArchive, e.Name(), kindOf(e.Type()))
		}
	}
	return nil
}

func kindOf(mode os.FileMode) string {
	switch {
	case mode&os.ModeSymlink != 0:
		return "link"
	case mode&os.ModeNamedPipe != 0:
		return "pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	case mode&os.ModeDevice != 0:
		return "device"
	case mode.IsDir():
		return "folder"
	}
	return mode.Type().String()
}

// openPlain opens a file of the backup, and nothing that it leads to.
func openPlain(dir, name string) (*os.File, os.FileInfo, error) {
	path := filepath.Join(dir, name)
	found, err := os.Lstat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if !found.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: %s is a %s, want a plain file", ErrArchive, name, kindOf(found.Mode()))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !os.SameFile(found, info) {
		err = fmt.Errorf("%w: %s was replaced while it was opened", ErrArchive, name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// readListing reads a file that is parsed whole, unless it is too large for that.
func readListing(dir, name string) ([]byte, error) {
	file, info, err := openPlain(dir, name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	if info.Size() > maxListing {
		return nil, fmt.Errorf("%w: %s has %d bytes, want at most %d", ErrArchive, name, info.Size(), maxListing)
	}
	return io.ReadAll(io.LimitReader(file, maxListing))
}

func readManifest(dir string) (Manifest, error) {
	data, err := readListing(dir, manifestFile)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %s: %w", ErrArchive, manifestFile, err)
	}
	if m.Format != format {
		return Manifest{}, fmt.Errorf("%w: it has format %d, this program reads %d", ErrArchive, m.Format, format)
	}
	return m, nil
}

func verifySums(ctx context.Context, dir string) (map[string]bool, error) {
	data, err := readListing(dir, sumsFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no %s: the backup did not come to its end", ErrArchive, dir, sumsFile)
	}
	if err != nil {
		return nil, err
	}
	checked := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		want, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !found || name != filepath.Base(name) || name == "." || name == ".." || checked[name] {
			return nil, fmt.Errorf("%w: %s: %.200q", ErrArchive, sumsFile, line)
		}
		got, err := sumOf(ctx, dir, name)
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, fmt.Errorf("%w: %s was changed or cut off: its SHA-256 is %s, want %.64s", ErrArchive, name, got, want)
		}
		checked[name] = true
	}
	return checked, nil
}

func sumOf(ctx context.Context, dir, name string) (string, error) {
	file, _, err := openPlain(dir, name)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, &stoppable{ctx, file}); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// stoppable is a reader that ends with a context.
type stoppable struct {
	ctx context.Context //nolint:containedctx // a reader has no argument for it
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

const (
	// maxConsumers bounds those of a stream, maxHeader the headers of a message.
	maxConsumers, maxHeader = 100_000, 1 << 20
	// maxLine bounds a line of a .later file: a message of 64 MB in base64.
	maxLine = 96 << 20
)

// verifyCopy looks into the files of a stream of the backup. It returns an ErrArchive for
// what no backup holds.
func verifyCopy(ctx context.Context, dir string, c Copy, backup []Copy) error {
	file, info, err := openPlain(dir, snapshotFile(c.Name))
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	if info.Size() != c.Bytes {
		return fmt.Errorf("%w: %s has %d bytes, want %d", ErrArchive, snapshotFile(c.Name), info.Size(), c.Bytes)
	}
	if err := verifyArchive(c, backup, &stoppable{ctx, file}); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArchive, snapshotFile(c.Name), err)
	}
	rest, _, err := openPlain(dir, laterFile(c.Name))
	if err != nil {
		return err
	}
	defer rest.Close() //nolint:errcheck // it was only read
	n := 0
	for _, err := range laterMessages(c.Name, &stoppable{ctx, rest}) {
		if err != nil {
			return err
		}
		n++
	}
	if n != c.Later {
		return fmt.Errorf("%w: %s has %d messages, want %d", ErrArchive, laterFile(c.Name), n, c.Later)
	}
	return nil
}

// verifyArchive reads the server's copy of a stream: its state, its consumers and
// its messages. It holds as many messages and bytes as the manifest says at most,
// only of subjects of the stream, and no consumer that delivers into a stream of the backup.
func verifyArchive(c Copy, backup []Copy, r io.Reader) error {
	in := newArchiveReader(s2.NewReader(r))
	state, err := archivedState(in, c)
	if err != nil {
		return err
	}
	for range state.Consumers {
		if err := verifyConsumer(in, backup); err != nil {
			return err
		}
	}
	left, last := state.Bytes, uint64(0)
	for n := uint64(0); ; n++ {
		e, err := in.next()
		if err != nil {
			return err
		}
		if e == (entry{}) { // the end
			return in.end()
		}
		switch size := uint64(len(e.name)) + e.header + e.payload; {
		case e.sequence <= last || e.sequence > state.LastSeq:
			return fmt.Errorf("message %d after %d, want one up to %d", e.sequence, last, state.LastSeq)
		case n >= state.Messages:
			return fmt.Errorf("message %d: its manifest has %d messages", e.sequence, state.Messages)
		case size > left:
			return fmt.Errorf("message %d: its manifest has %d bytes", e.sequence, state.Bytes)
		default:
			left, last = left-size, e.sequence
		}
		if err := verifyMessage(c.Name, e, in); err != nil {
			return err
		}
	}
}

// copiedState is what the server says of a stream that it copies.
type copiedState struct {
	Messages  uint64 `json:"messages"`
	Bytes     uint64 `json:"bytes"`
	LastSeq   uint64 `json:"last_seq"`       //nolint:tagliatelle // as NATS spells it
	Consumers int    `json:"consumer_count"` //nolint:tagliatelle // as NATS spells it
}

// archivedState reads the state at the beginning of an archive, which must be
// that of the manifest but for the consumers.
func archivedState(in *archiveReader, c Copy) (copiedState, error) {
	var told, state copiedState
	if err := json.Unmarshal(c.State, &told); err != nil {
		return state, fmt.Errorf("%s: state: %w", manifestFile, err)
	}
	e, err := in.next()
	if err != nil {
		return state, err
	}
	if e.name != "state.json" || e.sequence != 0 {
		return state, fmt.Errorf("it begins with %.100q, want its state", e.name)
	}
	if err := in.decode(e, &state); err != nil {
		return state, err
	}
	told.Consumers = state.Consumers
	if state != told || told.Messages != c.Messages {
		return state, fmt.Errorf("it has %d messages, %d bytes, up to %d; %s has %d, %d, %d",
			state.Messages, state.Bytes, state.LastSeq, manifestFile, c.Messages, told.Bytes, told.LastSeq)
	}
	if state.Consumers < 0 || state.Consumers > maxConsumers {
		return state, fmt.Errorf("it has %d consumers, want at most %d", state.Consumers, maxConsumers)
	}
	return state, nil
}

// verifyConsumer reads a consumer. That of a watch delivers to an inbox, whose prefix is a
// setting, and is not durable: Restore drops it.
func verifyConsumer(in *archiveReader, backup []Copy) error {
	e, err := in.next()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(e.name, "consumers/") || e.sequence != 0 {
		return fmt.Errorf("it has %.100q, want a consumer", e.name)
	}
	var consumer struct {
		Config jetstream.ConsumerConfig `json:"config"`
	}
	if err := in.decode(e, &consumer); err != nil {
		return err
	}
	to := consumer.Config.DeliverSubject
	taken := func(c Copy) bool { return streams.Takes(c.Name, to) }
	switch {
	case to == "":
		return nil
	case consumer.Config.Durable != "":
		return fmt.Errorf("%.200s is durable and delivers to %.200q, want a consumer that is pulled from", e.name, to)
	case strings.HasPrefix(to, "$") || slices.ContainsFunc(backup, taken):
		return fmt.Errorf("%.200s delivers to %.200q, want a consumer that is pulled from, or an inbox", e.name, to)
	}
	return nil
}

// verifyMessage reads a message: it is one of the stream, and a schedule in it
// leads to the same stream.
func verifyMessage(stream string, e entry, in *archiveReader) error {
	if !streams.Takes(stream, e.name) {
		return fmt.Errorf("message %d has the subject %.200q, which is none of %s", e.sequence, e.name, stream)
	}
	if e.header > maxHeader {
		return fmt.Errorf("message %d has %d bytes of headers, want at most %d", e.sequence, e.header, maxHeader)
	}
	raw := make([]byte, e.header)
	if _, err := io.ReadFull(in, raw); err != nil {
		return fmt.Errorf("message %d: %w", e.sequence, err)
	}
	if len(raw) > 0 {
		h, err := nats.DecodeHeadersMsg(raw)
		if err != nil {
			return fmt.Errorf("message %d: %w", e.sequence, err)
		}
		for _, target := range h[jetstream.ScheduleTargetHeader] {
			if !streams.Takes(stream, target) {
				return fmt.Errorf("message %d is scheduled for %.200q, which is none of %s", e.sequence, target, stream)
			}
		}
	}
	return in.skip()
}

// laterMessages are those of a .later file of the stream, in order. It ends with
// an ErrArchive at the first that is no message of the stream.
func laterMessages(stream string, r io.Reader) func(yield func(message, error) bool) {
	return func(yield func(message, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 1<<20), maxLine)
		for lines.Scan() {
			var m message
			err := json.NewDecoder(bytes.NewReader(lines.Bytes())).Decode(&m)
			if err == nil && !streams.Takes(stream, m.Subject) {
				err = fmt.Errorf("a message of subject %.200q", m.Subject)
			}
			if err != nil {
				err = fmt.Errorf("%w: %s: %w", ErrArchive, laterFile(stream), err)
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(message{}, fmt.Errorf("%w: %s: %w", ErrArchive, laterFile(stream), err))
		}
	}
}
