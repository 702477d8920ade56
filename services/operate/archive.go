package operate

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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

// summed is a file that knows its SHA-256 when it is closed.
type summed struct {
	file *os.File
	buf  *bufio.Writer
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func create(dir, name string) (*summed, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	s := &summed{file: file, sum: sha256.New()}
	s.buf = bufio.NewWriterSize(io.MultiWriter(file, s.sum), 1<<20)
	return s, nil
}

func (s *summed) Write(p []byte) (int, error) { return s.buf.Write(p) }

// close puts the file on the disk and returns its SHA-256 in hex.
func (s *summed) close() (string, error) {
	err := errors.Join(s.buf.Flush(), s.file.Sync(), s.file.Close())
	return hex.EncodeToString(s.sum.Sum(nil)), err
}

// sums are the SHA-256 of the files by their names, in the order written.
type sums struct{ lines []string }

func (s *sums) add(name, sum string) { s.lines = append(s.lines, sum+"  "+name+"\n") }

// finish writes the manifest and then the sums, and puts the folder itself on
// the disk.
func finish(dir string, m Manifest, s *sums) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	for _, f := range []struct{ name, text string }{{manifestFile, string(data) + "\n"}, {sumsFile, ""}} {
		if f.name == sumsFile {
			f.text = strings.Join(s.lines, "")
		}
		file, err := create(dir, f.name)
		if err != nil {
			return err
		}
		_, err = io.WriteString(file, f.text)
		sum, closed := file.close()
		if err := errors.Join(err, closed); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		s.add(f.name, sum)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
