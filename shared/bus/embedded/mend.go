package embedded

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"

	"flightline/shared/disk"
)

// DamagedDir is the directory below Config.Dir that keeps damaged files as they
// were found.
const DamagedDir = "damaged"

// Damage is a part of a stream's files that cannot be read.
type Damage struct {
	Stream string
	// File is its path below the stream's directory.
	File string
	// Offset and Bytes say where; both are 0 for a file of settings.
	Offset, Bytes int
	// Messages is how many messages there were at most; 0 for settings.
	Messages uint64
	// Torn: nothing follows, as after a power loss or a SIGKILL during a write.
	Torn bool
}

// Settings reports whether settings are damaged, and no message: the stream or
// consumer is missing until it is made again, and then has its messages.
func (d Damage) Settings() bool { return d.Messages == 0 }

// mender looks for damage in the files of a store that no server has open.
type mender struct {
	dir    string // Config.Dir
	left   int64  // how many bytes it may still read
	found  []Damage
	unread int64 // how many bytes it did not read
}

// mendBytes bounds what is read at a start: some seconds of it.
const mendBytes = 2 << 30

func (c Config) mend(ctx context.Context) ([]Damage, error) {
	if !c.Mend {
		return nil, nil
	}
	m := &mender{dir: c.Dir, left: mendBytes}
	err := m.mend(ctx)
	if m.unread > 0 {
		c.Log.WarnContext(ctx, "not all files of the store were looked at for damage: it is too large, compressed or encrypted", "bytes", m.unread)
	}
	return m.found, err
}

// mend finds damage in the files of all streams and mends it: a server that
// finds it later drops all that follows in the file, also what was accepted in
// the meantime. It reads at most so many bytes of messages, small streams first.
func (m *mender) mend(ctx context.Context) error {
	paths, err := streamDirs(streamsDir(m.dir))
	if err != nil {
		return err
	}
	var all []*storedStream
	for _, path := range paths {
		s, err := openStored(path)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *storedStream) int { return cmp.Compare(a.size, b.size) })
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.stream(s); err != nil {
			return fmt.Errorf("look for damage in the files of %s: %w", s.name, err)
		}
	}
	return nil
}

// storedStream is a stream's directory.
type storedStream struct {
	name, dir string
	blocks    []uint64               // their numbers
	files     map[string]fs.FileInfo // the blocks, by path
	size      int64                  // of all blocks
}

func openStored(dir string) (*storedStream, error) {
	s := &storedStream{name: filepath.Base(dir), dir: dir, files: map[string]fs.FileInfo{}}
	entries, err := os.ReadDir(filepath.Join(dir, "msgs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list blocks of %s: %w", s.name, err)
	}
	for _, entry := range entries {
		number, isBlock := strings.CutSuffix(entry.Name(), ".blk")
		n, err := strconv.ParseUint(number, 10, 32)
		if !isBlock || err != nil {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return nil, fmt.Errorf("look at a block of %s: %w", s.name, err)
		}
		s.blocks, s.size = append(s.blocks, n), s.size+info.Size()
		s.files[blockPath(n)] = info
	}
	slices.Sort(s.blocks)
	return s, nil
}

// blockPath is the path of a block below its stream's directory.
func blockPath(number uint64) string {
	return filepath.Join("msgs", strconv.FormatUint(number, 10)+".blk")
}

func (m *mender) stream(s *storedStream) error {
	plain, err := m.settings(s, ".", s.name)
	if err != nil {
		return err
	}
	consumers, err := filepath.Glob(filepath.Join(s.dir, "obs", "*"))
	if err != nil {
		return err
	}
	for _, c := range consumers {
		name := filepath.Base(c)
		if _, err := m.settings(s, filepath.Join("obs", name), s.name+"/"+name); err != nil {
			return err
		}
	}
	if !plain || s.size > m.left {
		m.unread += s.size
		return nil
	}
	m.left -= s.size
	return m.messages(s)
}

// settings looks at a file of settings. One whose checksum is wrong is put away:
// the server skips it, and does not write it again while it is there. key is what
// the server makes the checksum with. plain is
// false if the settings say that blocks are compressed or encrypted.
func (m *mender) settings(s *storedStream, dir, key string) (plain bool, err error) {
	path := filepath.Join(dir, "meta.inf")
	data, err := os.ReadFile(filepath.Join(s.dir, path))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	sum, err := os.ReadFile(filepath.Join(s.dir, dir, "meta.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	hash := sha256.Sum256([]byte(key))
	h, err := highwayhash.New64(hash[:])
	if err != nil {
		return false, err
	}
	_, _ = h.Write(data) // it never fails
	if hex.EncodeToString(h.Sum(nil)) != string(sum) {
		m.found = append(m.found, Damage{Stream: s.name, File: path})
		return true, errors.Join(m.keep(s, path, data), os.Remove(filepath.Join(s.dir, path)))
	}
	_, err = os.Stat(filepath.Join(s.dir, "meta.key"))
	var set struct {
		Compression string `json:"compression"`
	}
	_ = json.Unmarshal(data, &set) // the checksum is right
	return errors.Is(err, fs.ErrNotExist) && (set.Compression == "" || set.Compression == "none"), nil
}

// messages looks at the blocks.
func (m *mender) messages(s *storedStream) error {
	var last uint64
	outdated := false // the server's index of the blocks
	for i, number := range s.blocks {
		path := blockPath(number)
		data, err := os.ReadFile(filepath.Join(s.dir, path))
		if err != nil {
			return err
		}
		b, err := newBlock(s.name, number, last, data)
		if err != nil {
			return err
		}
		var gaps []gap
		if gaps, last = b.gaps(); len(gaps) == 0 {
			continue
		}
		for _, g := range gaps {
			torn := g.to == len(data) && i == len(s.blocks)-1
			// The index also knows the last sequence, and is not trusted if a block ends otherwise.
			outdated = outdated || !torn
			m.found = append(m.found, Damage{s.name, path, g.from, g.to - g.from, g.most(), torn})
		}
		last = max(last, gaps[len(gaps)-1].sequence())
		if err := errors.Join(m.keep(s, path, data), disk.ReplaceFile(filepath.Join(s.dir, path), b.mended(gaps))); err != nil {
			return err
		}
	}
	if outdated {
		return dropIndex(s.dir)
	}
	return nil
}

// dropIndex removes what the server makes again from the blocks of a stream's directory.
func dropIndex(dir string) error {
	var paths []string
	for _, name := range []string{"index.db", "thw.db", "sched.db", "sources.db"} {
		paths = append(paths, filepath.Join(dir, "msgs", name))
	}
	return removeFiles(paths)
}

// keep copies a damaged file.
func (m *mender) keep(s *storedStream, path string, data []byte) error {
	dir := filepath.Join(m.dir, DamagedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%s", time.Now().UTC().Format("20060102T150405.000"), s.name, strings.ReplaceAll(path, string(filepath.Separator), "-"))
	return disk.ReplaceFile(filepath.Join(dir, name), data)
}
