package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"flightline/streams"
)

// maxListing bounds the manifest and the list of sums, in bytes: that of 50,000
// endpoints is about 80 MB.
const maxListing = 256 << 20

// Verify reads all of a backup and returns its manifest, or an ErrArchive if a
// file is missing, cut off or changed, is no plain file, was made by a newer
// program, or holds what this version would not have written: another stream,
// setting or subject. It writes nothing and ends with ctx.
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
		return m, err
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
		if err := verifyCopy(ctx, dir, c); err != nil {
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
