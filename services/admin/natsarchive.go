package admin

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// archiveMagic begins the copies that NATS 2.15 makes of streams. Those of older
// servers are tar files, which can hold links and paths; they are refused.
const archiveMagic = "NATSARC1"

// maxName bounds the name of an entry: a subject, or that of a consumer.
const maxName = 64 << 10

// maxContent bounds an entry, in bytes: a message of 64 MB, which is the largest
// that a server takes, or the state of a consumer with a million deliveries.
const maxContent = 256 << 20

// errArchive means that an archive is cut off or in another form.
var errArchive = errors.New("it is cut off, or not in the form " + archiveMagic)

// entry is the head of what follows in an archive. The zero entry is its end.
type entry struct {
	name     string
	sequence uint64
	// header and payload are the lengths of what follows.
	header, payload uint64
}

// archiveReader reads an archive: the magic, and then entries of a head (name
// length, timestamp, sequence, header length, payload length, all varints, and
// the name) and their content.
type archiveReader struct {
	r     *bufio.Reader
	begun bool
	left  uint64 // of the entry's content
}

func newArchiveReader(r io.Reader) *archiveReader {
	return &archiveReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next entry, after what is left of the one before.
func (a *archiveReader) next() (entry, error) {
	if err := a.skip(); err != nil {
		return entry{}, err
	}
	if !a.begun {
		magic := make([]byte, len(archiveMagic))
		if _, err := io.ReadFull(a.r, magic); err != nil {
			return entry{}, broken(err)
		}
		if string(magic) != archiveMagic {
			return entry{}, errArchive
		}
		a.begun = true
	}
	size, err := binary.ReadUvarint(a.r)
	if err != nil {
		return entry{}, broken(err)
	}
	if size > maxName {
		return entry{}, fmt.Errorf("a name of %d bytes, want at most %d", size, maxName)
	}
	if _, err := binary.ReadVarint(a.r); err != nil { // the timestamp
		return entry{}, broken(err)
	}
	var e entry
	for _, to := range []*uint64{&e.sequence, &e.header, &e.payload} {
		if *to, err = binary.ReadUvarint(a.r); err != nil {
			return entry{}, broken(err)
		}
	}
	if e.header > maxContent || e.payload > maxContent {
		return entry{}, fmt.Errorf("an entry of %d and %d bytes, want at most %d", e.header, e.payload, maxContent)
	}
	name := make([]byte, size)
	if _, err := io.ReadFull(a.r, name); err != nil {
		return entry{}, broken(err)
	}
	e.name, a.left = string(name), e.header+e.payload
	return e, nil
}

// Read reads the content of the entry.
func (a *archiveReader) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n, err := a.r.Read(p[:min(uint64(len(p)), a.left)])
	a.left -= uint64(n) //nolint:gosec // a Reader returns no negative number
	if err != nil && a.left > 0 {
		err = broken(err)
	}
	return n, err
}

// skip passes over what is left of the content.
func (a *archiveReader) skip() error {
	_, err := io.CopyN(io.Discard, a.r, int64(a.left)) //nolint:gosec // next has bounded it
	a.left = 0
	return broken(err)
}

// decode reads the content as one JSON value.
func (a *archiveReader) decode(e entry, to any) error {
	data, err := io.ReadAll(a)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%.200s: %w", e.name, err)
	}
	return nil
}

// end returns an error unless the archive ends here.
func (a *archiveReader) end() error {
	switch _, err := a.r.ReadByte(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("something follows its end")
}

// broken says of an end that it came too early.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errArchive
	}
	return err
}
